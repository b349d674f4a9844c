"""What a waiting pod is told becomes true again soon, whatever was told before, and however that came."""

import pytest

from core.explaining import explain
from core.model import NodeName
from tests.support.worlds.telling import running
from tests.support.worlds.world import node, pod

pytestmark = pytest.mark.looptime


async def test_a_cause_that_changes_is_told_soon_though_numbers_moved_for_long():
    async with running() as rig:
        rig.world.adds(pod("p", memory=5000))
        await rig.passes(1)
        for at in range(15):
            rig.world.scheduler.nodes.changed(node("n1", memory=1001 + at, version=f"v{at}"))
            await rig.passes(70, 1.0)
        assert len(rig.said()) > 5
        rig.world.scheduler.nodes.changed(node("n1", memory=9000, version="w", unschedulable=True))
        await rig.passes(10)
        assert "cordoned" in rig.said()[-1]


async def test_a_node_that_is_deleted_is_not_named_any_more_as_one_to_wait_for():
    async with running() as rig:
        rig.world.scheduler.nodes.changed(node("n2", memory=8000, unschedulable=True))
        rig.world.adds(pod("p", memory=5000))
        await rig.passes(5)
        assert "n2 is uncordoned" in rig.said()[-1]
        rig.world.scheduler.nodes.gone(NodeName("n2"))
        await rig.passes(30)
        assert "0/1 nodes" in rig.said()[-1]
        assert "n2" not in rig.said()[-1]


async def test_that_there_is_no_node_any_more_is_told():
    async with running() as rig:
        rig.world.adds(pod("p", memory=5000))
        await rig.passes(5)
        assert "0/1 nodes" in rig.said()[-1]
        rig.world.scheduler.nodes.gone(NodeName("n1"))
        await rig.passes(30)
        assert "0/1 nodes" not in rig.said()[-1]


async def test_that_room_was_taken_meanwhile_is_told():
    async with running() as rig:
        rig.world.scheduler.nodes.changed(node("n2", cards=2, memory=8000, slots=1))
        rig.world.adds(pod("p", memory=9000))
        await rig.passes(5)
        told = rig.said()[-1]
        rig.world.adds(pod("r", memory=7000), pod("s", memory=7000))
        for _ in range(4):
            for bind in rig.world.binds():
                rig.world.accepts(bind)
                rig.world.serves(bind.pod.name)
            await rig.passes(15)
        shape = rig.world.entry("p").shape
        assert shape is not None
        answer, _ = await rig.teller.explain(shape)
        assert rig.said()[-1] == explain.wait(answer, ()).message != told


async def throttled(rig, seconds):
    """Every Binding is answered 429, Retry-After: 1."""
    for _ in range(seconds):
        await rig.passes(1.0, 0.5)
        for bind in rig.world.binds():
            rig.world.scheduler.outcomes.refused(bind.pod.uid, bind.attempt, rest_s=1.0)


@pytest.mark.parametrize("memory", [500, 5000])
async def test_a_pod_whose_bindings_do_not_go_through_is_told_so_and_not_that_no_node_fits(memory):
    async with running() as rig:
        rig.world.adds(pod("p", memory=memory))
        await rig.passes(2)
        rig.world.scheduler.nodes.changed(node("n1", memory=9000, version="2"))
        await throttled(rig, 300)
        assert rig.world.stage("p") == "resting"
        assert "CS552" in rig.said()[-1]
        assert len(rig.said()) <= 2


async def test_of_a_binding_or_two_that_do_not_go_through_nothing_is_told():
    async with running() as rig:
        rig.world.adds(pod("p", memory=500))
        await throttled(rig, 3)
        assert rig.said() == []
