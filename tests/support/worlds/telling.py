"""A teller beside a world, on the loop's own time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from controller.actions import Inbox
from controller.metrics import Metrics
from controller.reporting.events import Recorder
from controller.reporting.status import StatusWriter
from core.explaining.explain import Explanation
from core.ledger import Ledger
from core.model import NodeName
from core.placing.decide import Shape
from tests.support.servers.fake_calls import FakeCalls
from tests.support.worlds.world import World, node


class CountingWriter(StatusWriter):
    """Counts how often a shape is explained."""

    explained = 0

    async def explain(
        self,
        shape: Shape,
        fork: Ledger | None = None,
        barred: frozenset[NodeName] | None = None,
        domain: frozenset[NodeName] | None = None,
    ) -> tuple[Explanation, float]:
        self.explained += 1
        return await super().explain(shape, fork, barred, domain)


class Rig:
    """A teller beside a world, on the loop's own time."""

    def __init__(self, *nodes, **settings):
        self.world = World(*nodes, **settings)
        self._began_s = self.world.now_s - asyncio.get_running_loop().time()
        self.calls = FakeCalls()
        self.inbox = Inbox(self.now_s)
        recorder = Recorder(self.calls, Metrics(), instance="test", clock=self.now_s, wall=self.now_s)
        self.recorder = recorder
        self.metrics = Metrics()
        self.teller = CountingWriter(
            self.world.scheduler, self.calls, self.inbox, recorder, self.metrics, clock=self.now_s, wall=self.now_s
        )

    def now_s(self):
        """Of one clock with the world, which began before it."""
        return self._began_s + asyncio.get_running_loop().time()

    async def passes(self, seconds, step_s=0.1):
        """Let time pass, with the scheduler at work every *step_s*."""
        end_s = self.now_s() + seconds
        while self.now_s() < end_s:
            self.world.now_s = self.now_s()
            self.inbox.work(self.now_s() + 1.0)
            self.world.plan()
            if self.world.scheduler.cluster.requeue.unreported or self.world.scheduler.cluster.unreported:
                self.teller.wake.set()
            await asyncio.sleep(step_s)

    def said(self):
        return [body["status"]["conditions"][0]["message"] for _, body in self.calls.of("patch")]


@asynccontextmanager
async def running() -> AsyncIterator[Rig]:
    found = Rig(node("n1", memory=1000))
    async with asyncio.TaskGroup() as tasks:
        began = [tasks.create_task(found.teller.run()), tasks.create_task(found.recorder.run())]
        yield found
        for one in began:
            one.cancel()
