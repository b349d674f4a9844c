import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from controller.actions import Inbox
from controller.scheduler_names import SchedulerNames
from controller.watches import PodSink, node_sink
from kube.reflector import EventKind
from tests.support.worlds.world import World, node, pod

pytestmark = pytest.mark.looptime


class Rig:
    """Sinks beside a world whose scheduler works all the time."""

    def __init__(self):
        self.world = World(node("n1", memory=1000))
        self.inbox = Inbox(asyncio.get_running_loop().time)
        self.pods = PodSink(self.world.scheduler, self.inbox, SchedulerNames(()))
        self.nodes = node_sink(self.world.scheduler, self.inbox)

    async def work(self):
        while True:
            await self.inbox.filled.wait()
            self.inbox.filled.clear()
            while self.inbox.work(asyncio.get_running_loop().time()):  # noqa: ASYNC110 (it has work to do)
                await asyncio.sleep(0)


@asynccontextmanager
async def running() -> AsyncIterator[Rig]:
    async with asyncio.TaskGroup() as tasks:
        rig = Rig()
        began = tasks.create_task(rig.work())
        yield rig
        began.cancel()


async def test_a_list_is_taken_whole_before_the_watch_goes_on():
    async with running() as rig:
        await rig.pods.on_replace([pod(f"p{i}") for i in range(200)], "7")
        assert len(rig.world.scheduler.cluster.queue) == 200
        await rig.pods.on_replace([pod("p0")], "8")
        assert [entry.pod.name for entry in rig.world.scheduler.cluster.queue] == ["p0"]


async def test_events_change_what_a_list_said():
    async with running() as rig:
        await rig.pods.on_event(EventKind.ADDED, pod("p"))
        await rig.nodes.on_event(EventKind.ADDED, node("n2"))
        await asyncio.sleep(0.1)
        assert (rig.world.stage("p"), "n2" in rig.world.ledger.states) == ("ready", True)
        await rig.pods.on_event(EventKind.DELETED, pod("p", resource_version="9"))
        await rig.nodes.on_event(EventKind.DELETED, node("n2", version="9"))
        await asyncio.sleep(0.1)
        assert (rig.world.stage("p"), "n2" in rig.world.ledger.states) == ("none", False)
