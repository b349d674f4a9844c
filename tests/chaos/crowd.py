"""Who uses the cluster meanwhile: pods of every protocol come and go; what admission loses is asked for again."""

import asyncio
import random
from typing import Any, Final

import aiohttp

from sandbox.client import ApiStatusError
from sandbox.nodes.kubelet import RUN_SECONDS, STOP_SECONDS
from tests.chaos.world import CLASSES, POOL, World
from tests.support.devices.mixed import wanted, wanted_of
from tests.support.devices.vendors import port_of
from tests.support.worlds.controller_rig import PODS, pod

Json = dict[str, Any]

# Of pods that are seen in the cluster, how many wait or run at the most.
MOST_ALIVE: Final = 300
_STEP_S: Final = 1.0
_OURS: Final = "cardshare"
_GIVEN_UP_S: Final = 60.0
# Pods of the highest priority are rare, or nobody else ever runs.
_CLASSES: Final = ("", "", "", *sorted(CLASSES))
_OTHERS: Final = tuple(port_of(name).vendor for name in ("hygon", "amd", "cambricon"))


class Crowd:
    """The users.

    Attributes:
        made: how many pods they created.
        lost: calls that failed though both webhooks were well, or let a pod pass unseen; each with what was said.
        met_faults: calls that failed while one of the webhooks was killed or stopped.
    """

    def __init__(self, world: World, seed: int, per_s: float) -> None:
        self.made = 0
        self.lost: list[str] = []
        self.met_faults = 0
        self._world = world
        self._chance = random.Random(seed)
        self._per_s = per_s
        self._names = 0

    async def run(self) -> None:
        """Come and go until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                try:
                    pods = await self._world.rig.client.list(PODS)
                except (aiohttp.ClientError, TimeoutError):
                    continue  # its own API server is too busy
                over = [one for one in pods if one["status"].get("phase") in ("Succeeded", "Failed")]
                alive = len(pods) - len(over)
                for one in over:
                    tasks.create_task(self._remove(one))
                leaving = [one for one in pods if one not in over and self._chance.random() < 0.02]
                for one in leaving:
                    tasks.create_task(self._remove(one, grace_s=self._chance.choice((0, 1, 30))))
                arriving = self._chance.randint(0, round(2 * self._per_s)) if alive < MOST_ALIVE else 0
                for _ in range(arriving):
                    tasks.create_task(self._create(self._next()))
                await asyncio.sleep(_STEP_S)

    async def thin_out(self, share: float) -> None:
        """Take away that share of the pods that run."""
        for one in await self._world.rig.client.list(PODS):
            if one["spec"].get("nodeName") and self._chance.random() < share:
                await self._remove(one, grace_s=0)

    def _next(self) -> Json:
        self._names += 1
        is_of_other = self._chance.random() < 0.2
        asked = wanted_of(self._chance.choice(_OTHERS), self._chance) if is_of_other else wanted(self._chance)
        made: Json = pod(f"p{self._names}", asked.limits, annotations=dict(asked.annotations))
        made["metadata"]["labels"] = dict(asked.labels)
        made["metadata"]["annotations"][RUN_SECONDS] = str(self._chance.randint(5, 120))
        made["metadata"]["annotations"][STOP_SECONDS] = str(self._chance.choice((0, 0, 3, 25)))
        if name := self._chance.choice(_CLASSES):
            made["spec"]["priorityClassName"] = name
        if self._chance.random() < 0.8:
            made["spec"]["nodeSelector"] = dict(POOL)
        if self._chance.random() < 0.5 and "nvidia.com/gpu" not in asked.limits and not is_of_other:
            del made["spec"]["schedulerName"]  # the webhook's to say
        return made

    async def _create(self, made: Json) -> None:
        now = asyncio.get_running_loop().time
        name, until_s = made["metadata"]["name"], now() + _GIVEN_UP_S
        while now() < until_s:
            began_s = now()
            try:
                found = await self._world.rig.client.create(PODS, made)
            except ApiStatusError as e:
                if e.reason == "AlreadyExists":
                    return
                self._note(f"{name}: {e}", began_s)
            except (aiohttp.ClientError, TimeoutError) as e:
                self._note(f"{name}: {e!r}", began_s)
            else:
                self.made += 1
                if found["spec"].get("schedulerName") != _OURS:
                    self.lost.append(f"{name} was admitted unseen, for {found['spec'].get('schedulerName')}")
                return
            await asyncio.sleep(1.0)

    def _note(self, text: str, began_s: float) -> None:
        ended_s = asyncio.get_running_loop().time()
        if any(one.was_disturbed(began_s, ended_s) for one in self._world.webhooks):
            self.met_faults += 1
        else:
            self.lost.append(text)

    async def _remove(self, found: Json, grace_s: int = 0) -> None:
        name, uid = found["metadata"]["name"], found["metadata"]["uid"]
        try:
            await self._world.rig.client.delete(f"{PODS}/{name}", grace_s=grace_s, uid=uid)
        except ApiStatusError as e:
            if e.status not in (404, 409, 429, 500, 504):
                raise
        except (aiohttp.ClientError, TimeoutError):
            return  # looked at again in the next step
