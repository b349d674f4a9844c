"""Carries out the faults of a plan: each begins, lasts for a while, and is made good again by itself."""

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import aiohttp

from sandbox.client import ApiStatusError, PatchKind
from tests.chaos.plan import Kind, Planned
from tests.chaos.services import Service
from tests.chaos.world import World
from tests.support.servers.fault_proxy import Fault, FaultProxy

_SPARED_WITHIN_S: Final = 20.0
_TRIES: Final = 10
_WATCHED: Final = ("/pods", "/nodes", "/configmaps", "")
_SETTINGS: Final = (
    "",
    "policy: spread\n",
    "policy: index\nturn_wait_max_s: 1\n",
    "bind_in_flight_max: 4\n",
    "schedule_weight: 0\nrefused_retry_s: 20\n",
)
_SPOILT: Final = ("policy: tidy\n", "bind_in_flight_max: many\n", "no such key: 1\n", "{")


class Faults:
    """What goes wrong in a world.

    Attributes:
        done: how many of each kind were carried out.
    """

    def __init__(self, world: World) -> None:
        self.done: Counter[Kind] = Counter()
        self._world = world
        # One webhook at a time: with none left, it is no fault of ours that calls are lost.
        self._webhook = asyncio.Lock()
        self._edit = asyncio.Lock()
        # Nodes something is being done to.
        self._busy: set[str] = set()

    async def play(self, planned: Sequence[Planned]) -> None:
        """Begin each at its time, and return when all have been made good."""
        began_s = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as tasks:
            for one in planned:
                await asyncio.sleep(max(began_s + one.at_s - asyncio.get_running_loop().time(), 0.0))
                tasks.create_task(self._carry_out(one), name=one.kind.value)

    async def _carry_out(self, one: Planned) -> None:
        await _HOW[one.kind](self, random.Random(one.seed))
        self.done[one.kind] += 1

    # ------------------------------------------------------------------ processes

    async def kill_controller(self, chance: random.Random) -> None:
        chance.choice(self._world.controllers).hit(signal.SIGKILL)

    async def end_controller(self, chance: random.Random) -> None:
        chance.choice(self._world.controllers).hit(signal.SIGTERM)

    async def stop_controller(self, chance: random.Random) -> None:
        await _stop(chance.choice(self._world.controllers), chance.choice((1.0, 4.0, 9.0, 25.0)))

    async def kill_webhook(self, chance: random.Random) -> None:
        await self._hit_webhook(chance, signal.SIGKILL)

    async def end_webhook(self, chance: random.Random) -> None:
        await self._hit_webhook(chance, signal.SIGTERM)

    async def stop_webhook(self, chance: random.Random) -> None:
        async with self._webhook:
            one = chance.choice(self._world.webhooks)
            await self._until_ready()
            await _stop(one, chance.choice((1.0, 3.0, 9.0)))
            await self._until_ready()

    async def _hit_webhook(self, chance: random.Random, number: signal.Signals) -> None:
        async with self._webhook:
            await self._until_ready()
            one = chance.choice(self._world.webhooks)
            one.hit(number)
            await one.until_away(_SPARED_WITHIN_S)
            await self._until_ready()

    async def _until_ready(self) -> None:
        for one in self._world.webhooks:
            await one.until_ready(_SPARED_WITHIN_S)

    # ------------------------------------------------------------------ the way to the API server

    def _ways(self, chance: random.Random) -> list[FaultProxy]:
        """Of one process, or of all."""
        services = [*self._world.controllers, *self._world.webhooks]
        some = chance.choice([[one] for one in services] + [services] * 2)
        return [one.proxy for one in some]

    async def delay_calls(self, chance: random.Random) -> None:
        ways = self._ways(chance)
        for way in ways:
            way.lag_s = chance.uniform(0.1, 3.0)
        await asyncio.sleep(chance.uniform(2.0, 10.0))
        for way in ways:
            way.lag_s = 0.0

    async def refuse_calls(self, chance: random.Random) -> None:
        ending = chance.choice(("/binding", "/status", "/pods", "/nodes", "/cardshare-controller", "/events", ""))
        status = chance.choice(("429", "500", "403"))
        ways = self._ways(chance)
        for way in ways:
            way.refused[ending] = status
        await asyncio.sleep(chance.uniform(1.0, 8.0))
        for way in ways:
            way.refused.pop(ending, None)

    async def swallow_calls(self, chance: random.Random) -> None:
        ways = self._ways(chance)
        for way in ways:
            way.way = "hole"
        await asyncio.sleep(chance.choice((2.0, 6.0, 14.0)))
        for way in ways:
            way.way = "open"

    async def lose_answers(self, chance: random.Random) -> None:
        await self._spoil(chance, "cut-after", (("POST", "/binding"), ("POST", "/binding"), ("PATCH", ""), ("PUT", "")))

    async def halve_answers(self, chance: random.Random) -> None:
        await self._spoil(chance, "half", (("POST", "/binding"), ("GET", "/pods"), ("GET", ""), ("PATCH", "")))

    async def delay_bindings(self, chance: random.Random) -> None:
        await self._spoil(chance, "late", (("POST", "/binding"),))

    # Of both controllers, whoever leads: what is done to one that stands by does nothing.
    async def _spoil(self, chance: random.Random, kind: str, which: Sequence[tuple[str, str]]) -> None:
        verb, ending = chance.choice(which)
        faults = []
        for way in [one.proxy for one in self._world.controllers]:
            fault = Fault(verb, ending, kind, times=chance.choice((1, 5, 40)), delay_s=chance.uniform(1.0, 5.0))
            way.faults.append(fault)
            faults.append((way, fault))
        await asyncio.sleep(chance.uniform(3.0, 10.0))
        for way, fault in faults:
            way.faults.remove(fault)

    async def hold_watch(self, chance: random.Random) -> None:
        ending, ways = chance.choice(_WATCHED[:2]), self._ways(chance)
        for way in ways:
            way.held.add(ending)
        await asyncio.sleep(chance.choice((2.0, 5.0, 12.0)))
        for way in ways:
            way.held.discard(ending)

    async def double_watch(self, chance: random.Random) -> None:
        ways = self._ways(chance)
        for way in ways:
            way.doubled.add("")
            way.cut_watches()
        await asyncio.sleep(chance.uniform(3.0, 10.0))
        for way in ways:
            way.doubled.discard("")

    async def cut_watches(self, chance: random.Random) -> None:
        ending, ways = chance.choice(_WATCHED), self._ways(chance)
        for _ in range(chance.randint(1, 4)):
            for way in ways:
                way.cut_watches(ending)
            await asyncio.sleep(chance.uniform(0.2, 1.0))

    async def compact(self, chance: random.Random) -> None:
        await _insist(self._world.compact)
        ending = chance.choice(_WATCHED)
        for way in self._ways(chance):
            way.faults.append(Fault("GET", ending, "expired", times=chance.randint(1, 3)))
            way.cut_watches(ending)

    # ------------------------------------------------------------------ configuration

    async def rotate(self, chance: random.Random) -> None:
        async with self._webhook:  # both are there to take the new pair
            await self._until_ready()
            await _insist(lambda: self._world.rotate(chance.uniform(2.0, 3.0)))

    async def edit(self, chance: random.Random) -> None:
        async with self._edit:
            await self._world.write_settings(chance.choice(_SETTINGS))

    async def spoil_settings(self, chance: random.Random) -> None:
        async with self._edit:
            await self._world.write_settings(chance.choice(_SPOILT))
            await asyncio.sleep(chance.uniform(2.0, 8.0))
            await self._world.write_settings(chance.choice(_SETTINGS))

    # ------------------------------------------------------------------ nodes and their plugins

    async def _with_node(self, chance: random.Random, act: Callable[[str], Awaitable[None]]) -> None:
        """Do something to a node to which nothing else is being done; of the pool, most of the time."""
        names = [one["name"] for one in self._world.nodes if chance.random() < 0.05 or "pool" in one.get("labels", {})]
        name = chance.choice([name for name in names if name not in self._busy] or names)
        if name in self._busy:
            return
        self._busy.add(name)
        try:
            await act(name)
        finally:
            self._busy.discard(name)

    async def silence_plugin(self, chance: random.Random) -> None:
        async def act(name: str) -> None:
            plugins = self._world.rig.kubelet.plugins(name)
            for plugin in plugins:
                plugin.faults.silent = True  # type: ignore[attr-defined]  # every player has them; kubelet knows of none
            await asyncio.sleep(chance.uniform(2.0, 15.0))
            for plugin in plugins:
                plugin.faults.silent = False  # type: ignore[attr-defined]

        await self._with_node(chance, act)

    async def kill_plugin(self, chance: random.Random) -> None:
        async def act(name: str) -> None:
            await _insist(lambda: self._world.rig.kubelet.kill_plugins(name))
            await asyncio.sleep(chance.uniform(1.0, 10.0))
            await _insist(lambda: self._world.rig.kubelet.revive_plugins(name))

        await self._with_node(chance, act)

    async def fail_plugin(self, chance: random.Random) -> None:
        async def act(name: str) -> None:
            plugins = self._world.rig.kubelet.plugins(name)
            for plugin in plugins:
                plugin.faults.fail_next = chance.randint(1, 3)  # type: ignore[attr-defined]
            await asyncio.sleep(chance.uniform(4.0, 10.0))
            for plugin in plugins:
                plugin.faults.fail_next = 0  # type: ignore[attr-defined]

        await self._with_node(chance, act)

    async def sicken_card(self, chance: random.Random) -> None:
        async def act(name: str) -> None:
            plugin = self._world.rig.kubelet.plugins(name)[0]
            if hasattr(plugin, "set_healthy"):
                setup = plugin._setup  # type: ignore[attr-defined]  # the player's own cards
                card = setup.cards[0].id if hasattr(setup, "cards") else 0
                await _insist(lambda: plugin.set_healthy(card, False))
                await asyncio.sleep(chance.uniform(2.0, 10.0))
                await _insist(lambda: plugin.set_healthy(card, True))

        await self._with_node(chance, act)

    async def unready_node(self, chance: random.Random) -> None:
        async def act(name: str) -> None:
            await _insist(lambda: self._world.rig.kubelet.set_ready(name, is_ready=False))
            await asyncio.sleep(chance.uniform(2.0, 10.0))
            await _insist(lambda: self._world.rig.kubelet.set_ready(name, is_ready=True))

        await self._with_node(chance, act)

    async def cordon_node(self, chance: random.Random) -> None:
        async def act(name: str) -> None:
            await _insist(lambda: self._cordon(name, cordoned=True))
            await asyncio.sleep(chance.uniform(2.0, 10.0))
            await _insist(lambda: self._cordon(name, cordoned=False))

        await self._with_node(chance, act)

    async def _cordon(self, name: str, *, cordoned: bool) -> None:
        body = {"spec": {"unschedulable": cordoned or None}}
        await self._world.rig.client.patch(f"/api/v1/nodes/{name}", body, PatchKind.MERGE)

    async def delete_node(self, chance: random.Random) -> None:
        async def act(name: str) -> None:
            await _insist(lambda: self._world.rig.client.delete(f"/api/v1/nodes/{name}"))
            await asyncio.sleep(chance.uniform(1.0, 10.0))
            await _insist(lambda: self._world.rig.kubelet.rejoin(name))

        await self._with_node(chance, act)


async def _insist(act: Callable[[], Awaitable[object]]) -> None:
    """Do something to the cluster, again while its own API server is too busy to answer."""
    for tries_left in reversed(range(_TRIES)):
        try:
            await act()
        except (aiohttp.ClientError, TimeoutError, ApiStatusError) as e:
            if isinstance(e, ApiStatusError) and e.status == 404:
                return  # gone by an answer that did not arrive
            if not tries_left:
                raise
            await asyncio.sleep(1.0)
        else:
            return


async def _stop(service: Service, seconds: float) -> None:
    service.hit(signal.SIGSTOP)
    await asyncio.sleep(seconds)
    service.hit(signal.SIGCONT)


_HOW: Final[Mapping[Kind, Callable[[Faults, random.Random], Awaitable[None]]]] = {
    Kind.CONTROLLER_KILLED: Faults.kill_controller,
    Kind.CONTROLLER_STOPPED: Faults.stop_controller,
    Kind.CONTROLLER_ENDED: Faults.end_controller,
    Kind.WEBHOOK_KILLED: Faults.kill_webhook,
    Kind.WEBHOOK_STOPPED: Faults.stop_webhook,
    Kind.WEBHOOK_ENDED: Faults.end_webhook,
    Kind.CALLS_LATE: Faults.delay_calls,
    Kind.CALLS_REFUSED: Faults.refuse_calls,
    Kind.CALLS_SWALLOWED: Faults.swallow_calls,
    Kind.ANSWERS_LOST: Faults.lose_answers,
    Kind.ANSWERS_HALF: Faults.halve_answers,
    Kind.BINDINGS_LATE: Faults.delay_bindings,
    Kind.WATCH_HELD: Faults.hold_watch,
    Kind.WATCH_DOUBLED: Faults.double_watch,
    Kind.WATCH_CUT: Faults.cut_watches,
    Kind.COMPACTED: Faults.compact,
    Kind.CERTIFICATES_ROTATED: Faults.rotate,
    Kind.PLUGIN_SILENT: Faults.silence_plugin,
    Kind.PLUGIN_DEAD: Faults.kill_plugin,
    Kind.PLUGIN_FAILS: Faults.fail_plugin,
    Kind.CARD_ILL: Faults.sicken_card,
    Kind.NODE_NOT_READY: Faults.unready_node,
    Kind.NODE_CORDONED: Faults.cordon_node,
    Kind.NODE_DELETED: Faults.delete_node,
    Kind.SETTINGS_EDITED: Faults.edit,
    Kind.SETTINGS_SPOILT: Faults.spoil_settings,
}
