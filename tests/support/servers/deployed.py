"""Plays one Deployment: its processes behind a balancer, replaced as its controller and the kubelets would.

What runs is what the API server holds: its arguments, files and account. Another template is rolled out one by one, the
new process ready before an old one is told to end; and when the Deployment is gone, so are they.
"""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from sandbox.client import ApiStatusError
from sandbox.demo.processes import Running
from tests.support.servers.balancer import Backend, Balancer
from tests.support.servers.manifests import Runner

_LOOK_S: Final = 0.2
# A kubelet waits for terminationGracePeriodSeconds, on a machine with room for its pods.
_END_S: Final = 90.0
_READY_WITHIN_S: Final = 120.0
_ROUTED_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Replica:
    template: str
    running: Running
    backend: Backend


class Deployed:
    """The processes of the Deployment at *path*.

    Attributes:
        codes: with which those ended that were told to.
        started: how many were started.
    """

    def __init__(self, runner: Runner, path: str, balancer: Balancer) -> None:
        """Nothing runs yet."""
        self.codes: list[int] = []
        self.started = 0
        self._runner = runner
        self._path = path
        self._balancer = balancer
        self._replicas: list[_Replica] = []
        self._settled = asyncio.Event()

    async def run(self) -> None:
        """Do as the Deployment says, until cancelled."""
        while True:
            await self._towards(await self._deployment())
            await asyncio.sleep(_LOOK_S)

    async def settled(self) -> None:
        """Wait until what runs is what the Deployment says from now on."""
        async with asyncio.timeout(_READY_WITHIN_S * 4):
            # The first may be of a look from before.
            for _ in range(2):
                self._settled.clear()
                await self._settled.wait()

    async def _deployment(self) -> dict[str, Any] | None:
        try:
            return await self._runner.admin.get(self._path)
        except ApiStatusError as e:
            if e.status != 404:
                raise
            return None

    async def _towards(self, found: dict[str, Any] | None) -> None:
        """One step."""
        template = json.dumps(found["spec"]["template"], sort_keys=True) if found is not None else ""
        wanted = found["spec"]["replicas"] if found is not None else 0
        fresh = [one for one in self._replicas if one.template == template]
        stale = [one for one in self._replicas if one.template != template]
        if found is not None and len(fresh) < wanted:
            await self._start(found, template)
        if found is None and self._replicas:
            async with asyncio.TaskGroup() as tasks:
                for one in tuple(self._replicas):
                    tasks.create_task(self._end(one))
        elif stale or len(fresh) > wanted:
            await self._end((stale or fresh)[0])
        elif len(fresh) == wanted:
            self._settled.set()

    async def _start(self, found: dict[str, Any], template: str) -> None:
        self.started += 1
        name = f"{found['metadata']['name']}-{self.started}"
        running, ports = await self._runner.start(name, found)
        backend = Backend(ports["https"], ports["plain"])
        self._balancer.add(backend)
        async with asyncio.timeout(_READY_WITHIN_S):
            while not self._balancer.is_ready(backend):
                assert running.process.returncode is None, running.log_tail()
                await asyncio.sleep(_LOOK_S)
        self._replicas.append(_Replica(template, running, backend))

    async def _end(self, replica: _Replica) -> None:
        self._replicas.remove(replica)
        # A pod that is being deleted is no endpoint any more; whoever routes calls to it learns of that meanwhile.
        replica.running.signal(signal.SIGTERM)
        await asyncio.sleep(_ROUTED_S)
        self._balancer.remove(replica.backend)
        async with asyncio.timeout(_END_S):
            self.codes.append(await replica.running.process.wait())


@asynccontextmanager
async def deployed(runner: Runner, path: str, balancer: Balancer) -> AsyncIterator[Deployed]:
    """Play the Deployment at *path* meanwhile."""
    found = Deployed(runner, path, balancer)
    async with asyncio.TaskGroup() as tasks:
        playing = tasks.create_task(found.run(), name=f"deployed {path}")
        try:
            yield found
        finally:
            playing.cancel()
