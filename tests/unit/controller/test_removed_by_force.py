"""A pod on a node is removed by force: its processes run on for a while, and so do its cards."""

import pytest

from controller.actions import Clear
from core.model import PodUid
from core.waiting import Cause
from tests.support.worlds.telling import running
from tests.support.worlds.world import World, node, pod


@pytest.fixture
def world():
    found = World(node("n1", memory=1000))
    found.adds(pod("p"))
    found.placed()
    found.adds(pod("q"))
    assert found.binds() == []
    return found


def places(world):
    return [bind.pod.name for bind in world.binds()]


def test_its_cards_are_free_after_the_shortest_grace_period_and_a_margin(world):
    world.gone("p", by_force=True)
    assert places(world) == []
    world.now_s += 4.9
    assert places(world) == []
    world.now_s += 0.6
    assert places(world) == ["q"]


def test_a_pod_that_has_ended_before_it_goes_holds_nothing(world):
    world.gone("p")
    assert world.holders("n1") == set()


def test_while_its_node_is_not_ready_it_keeps_them_and_as_long_after_that(world):
    world.scheduler.nodes.changed(node("n1", memory=1000, ready=False, version="2"))
    world.gone("p", by_force=True)
    for _ in range(300):
        world.passes(1.0)
    assert world.holders("n1") == {"uid-p"}
    world.scheduler.nodes.changed(node("n1", memory=1000, version="3"))
    assert places(world) == []
    world.now_s += 5.6
    assert places(world) == ["q"]


def test_it_keeps_them_over_a_list_and_no_longer_than_its_node_is_there(world):
    world.gone("p", by_force=True)
    for _ in world.scheduler.pods_replaced(tuple(world.pods.values()), "900"):
        pass
    assert world.holders("n1") == {"uid-p"}
    world.scheduler.nodes.gone("n1")
    world.passes(1.0)
    assert not world.scheduler.vanished.until_s


def returns(world, *, ready=True):
    world.version += 1
    world.scheduler.nodes.changed(node("n1", memory=1000, ready=ready, version=str(world.version)))
    world.now_s += 0.1  # releases are handled together with those soon after them


@pytest.mark.parametrize("is_gone_first", [True, False])
def test_a_node_that_is_deleted_and_returns_is_closed_as_long(world, is_gone_first):
    """Its kubelet may hear of the removal only then, and its processes run on meanwhile."""
    if is_gone_first:
        world.scheduler.nodes.gone("n1")
    world.gone("p", by_force=True)
    world.scheduler.nodes.gone("n1")
    world.passes(60.0)
    assert world.holders("n1") == set()
    returns(world)
    assert places(world) == []
    assert world.wait("q").cause is Cause.NODE_RESTS
    world.passes(3.0)
    world.scheduler.nodes.gone("n1")
    returns(world, ready=False)
    world.passes(60.0)
    returns(world)
    world.passes(4.5)
    assert places(world) == []
    world.passes(0.6)
    assert places(world) == ["q"]


def test_a_node_that_was_away_for_long_is_another_one(world):
    world.scheduler.nodes.gone("n1")
    world.gone("p", by_force=True)
    world.passes(601.0)
    returns(world)
    assert places(world) == ["q"]


def test_a_pod_that_had_ended_closes_no_node_that_returns(world):
    world.scheduler.nodes.gone("n1")
    world.gone("p")
    returns(world)
    assert places(world) == ["q"]


def test_0_seconds_hold_nothing_on_a_node_that_is_ready():
    world = World(node("n1", memory=1000), removed_pod_hold_s=0.0)
    world.adds(pod("p"))
    world.placed()
    world.adds(pod("q"))
    world.gone("p", by_force=True)
    assert places(world) == ["q"]


def test_a_pod_that_was_served_and_has_not_started_keeps_them_too():
    world = World(node("n1", memory=1000))
    world.adds(pod("p"))
    (bind,) = world.binds()
    shown = world.accepts(bind)
    served = {"volcano.sh/devices-to-allocate": "", "volcano.sh/bind-phase": "success"}
    world.shows(shown, annotations={**shown.annotations, **served})
    world.adds(pod("q"))
    world.gone("p")
    assert places(world) == []
    world.now_s += 5.6
    assert places(world) == ["q"]


def test_what_the_plugin_writes_for_it_by_its_name_does_not_make_the_next_pod_of_that_name_served():
    """It is removed between the plugin's two writes, and made again at once, as a StatefulSet does."""
    world = World(node("n1", cards=3, slots=1, memory=1000))
    erased = {"volcano.sh/devices-to-allocate": ""}
    world.adds(pod("p"))
    (bind,) = world.binds()
    shown = world.accepts(bind)
    world.shows(shown, annotations={**shown.annotations, **erased})
    world.gone("p", by_force=True)
    world.adds(pod("p")._replace(uid=PodUid("uid-again")))
    (bind,) = world.binds()
    shown = world.accepts(bind)
    late = {"volcano.sh/bind-phase": "success", "volcano.sh/vgpu-time": "18446744073709551615"}
    shown = world.shows(shown, annotations={**shown.annotations, **late})
    world.adds(pod("q"))
    assert places(world) == []
    assert world.actions(Clear) == []
    world.shows(shown, annotations={**shown.annotations, **erased})
    assert places(world) == ["q"]


def test_a_pod_that_was_not_served_holds_nothing():
    world = World(node("n1", memory=1000))
    world.adds(pod("p"))
    (bind,) = world.binds()
    world.accepts(bind)
    world.gone("p")
    assert world.holders("n1") == set()


def follows(**settings):
    """A leader that follows another, and has just listed all pods."""
    found = World(node("n1", memory=1000), **settings)
    for _ in found.scheduler.pods_replaced((), "900"):
        pass
    found.scheduler.follow()
    return found


def test_a_leader_that_follows_another_waits_for_pods_that_vanished_before_it_listed_them():
    world = follows()
    world.adds(pod("q"))
    assert places(world) == []
    world.now_s += 4.9
    assert places(world) == []
    assert "removed there by force" in world.scheduler.cluster.queue.get("uid-q").wait.text
    world.now_s += 0.6
    assert places(world) == ["q"]
    assert world.scheduler.vanished.next_s() == float("inf")


def test_it_waits_no_longer_if_it_has_listed_them_long_ago():
    world = World(node("n1", memory=1000))
    for _ in world.scheduler.pods_replaced((), "900"):
        pass
    world.now_s += 5.0
    for _ in world.scheduler.pods_replaced((), "901"):
        pass
    world.scheduler.follow()
    world.adds(pod("q"))
    assert places(world) == ["q"]


def test_it_waits_for_a_node_that_is_not_ready_until_that_is_heard_of_again():
    world = follows()
    world.scheduler.nodes.changed(node("n1", memory=1000, ready=False, version="2"))
    world.adds(pod("q"))
    for _ in range(30):
        world.passes(1.0)
    world.scheduler.nodes.changed(node("n1", memory=1000, version="3"))
    assert places(world) == []
    world.now_s += 5.6
    assert places(world) == ["q"]


def test_with_0_seconds_it_waits_for_nothing():
    world = follows(removed_pod_hold_s=0.0)
    world.adds(pod("q"))
    assert places(world) == ["q"]


class TestWhoWaitsIsTold:
    pytestmark = pytest.mark.looptime

    async def test_of_seconds_and_the_pod_and_autoscalers_of_nothing(self):
        async with running() as rig:
            rig.world.adds(pod("p"))
            rig.world.placed()
            rig.world.adds(pod("q"))
            await rig.passes(10)
            assert rig.said()[-1].startswith("CS501")
            rig.world.gone("p", by_force=True)
            await rig.passes(1)
            (_, body) = rig.calls.of("patch")[-1]
            (condition,) = body["status"]["conditions"]
            assert condition["reason"] == "WaitingForRemoved"
            assert condition["message"] == (
                "CS516 0/1 nodes are available: 1 with cards held for removed pods. Wait until n1 frees the cards of "
                "pod default/p, which was removed by force: 5 s at most."
            )

    async def test_not_of_a_pod_of_another_namespace(self):
        async with running() as rig:
            rig.world.adds(pod("p", namespace="theirs"))
            rig.world.placed()
            rig.world.gone("p", by_force=True)
            rig.world.adds(pod("q"))
            await rig.passes(1)
            assert "CS516" in rig.said()[-1]
            assert "cards of a pod, which was removed" in rig.said()[-1]
            assert "theirs" not in rig.said()[-1]

    async def test_of_its_node_while_that_is_not_ready_for_which_autoscalers_may_buy_another(self):
        async with running() as rig:
            rig.world.adds(pod("p"))
            rig.world.placed()
            rig.world.scheduler.nodes.changed(node("n1", memory=1000, ready=False, version="2"))
            rig.world.gone("p", by_force=True)
            rig.world.adds(pod("q"))
            await rig.passes(1)
            assert rig.said()[-1].startswith("CS501")
            assert "n1 is ready and, 5 s after that, frees the cards of pod default/p" in rig.said()[-1]

    async def test_nothing_of_it_where_even_these_cards_would_not_do(self):
        async with running() as rig:
            rig.world.adds(pod("p"))
            rig.world.placed()
            rig.world.gone("p", by_force=True)
            rig.world.adds(pod("q", memory=5000))
            await rig.passes(1)
            assert rig.said()[-1].startswith("CS502")
