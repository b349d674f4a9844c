"""A pod that vanished unserved counts as in flight until kubelet must have passed it."""

import pytest

from controller.handing_over.collision import LONG_ENOUGH_S, PASSED_S
from core.model import Phase
from tests.support.worlds.world import World, node, pod


def bound_world():
    """A node, and a pod that was bound there and is not served yet."""
    world = World(node("n1"))
    world.adds(pod("p"))
    (bind,) = world.binds()
    world.accepts(bind)
    return world


def test_a_pod_that_vanished_unserved_keeps_out_what_the_plugin_could_mistake_for_it():
    world = World(node("n1", cards=2))
    world.adds(pod("p"))
    (bind,) = world.binds()
    world.accepts(bind)
    world.gone("p")
    world.adds(pod("same"), pod("other", number=2))
    (bind,) = world.binds()
    assert (bind.pod.name, world.stage("same")) == ("other", "turn")


def test_its_share_is_free_at_once():
    world = World(node("n1", memory=1000))
    world.adds(pod("p"))
    (bind,) = world.binds()
    world.accepts(bind)
    world.gone("p")
    assert not world.holders("n1")


def test_it_ends_after_a_time_in_which_nothing_was_in_flight():
    world = bound_world()
    world.gone("p")
    world.adds(pod("same"))
    world.passes(LONG_ENOUGH_S - 0.5)
    assert world.binds() == []
    world.now_s += 1.0
    (bind,) = world.binds()
    assert bind.pod.name == "same"
    assert not len(world.scheduler.cluster.handoff.unserved_pods)


def test_it_ends_soon_after_a_pod_bound_later_was_served():
    world = World(node("n1", cards=2))
    world.adds(pod("p"))
    (bind,) = world.binds()
    world.accepts(bind)
    world.gone("p")
    world.now_s += 1.0
    world.adds(pod("later", number=2))
    (bind,) = world.binds()
    world.accepts(bind)
    world.adds(pod("same"))
    world.now_s += 0.1
    world.serves("later")
    world.now_s += PASSED_S - 0.2
    assert world.binds() == []
    world.now_s += 0.3
    (bind,) = world.binds()
    assert bind.pod.name == "same"


def test_a_pod_bound_before_it_vanished_says_nothing_when_it_is_served():
    world = World(node("n1", cards=2))
    world.adds(pod("p"), pod("two", number=2))
    for bind in world.binds():
        world.accepts(bind)
    world.now_s += 1.0
    world.gone("p")
    world.adds(pod("same"))
    world.now_s += 0.1
    world.serves("two")
    world.now_s += PASSED_S + 1.0
    assert world.binds() == []


def test_its_time_does_not_run_while_something_is_in_flight_there():
    world = World(node("n1", cards=2))
    world.adds(pod("p"), pod("two", number=2))
    for bind in world.binds():
        world.accepts(bind)
    world.gone("p")
    world.adds(pod("same"))
    for _ in range(10):
        world.passes(LONG_ENOUGH_S)
    assert world.binds() == []
    world.serves("two")
    world.passes(LONG_ENOUGH_S)
    world.passes(LONG_ENOUGH_S)
    assert world.stage("same") != "turn"


@pytest.mark.parametrize("end", ["served", "failed"])
def test_a_pod_that_was_served_or_turned_away_leaves_no_ghost(end):
    world = bound_world()
    if end == "served":
        world.serves("p")
    else:
        world.shows(world.seen("p"), phase=Phase.FAILED, status_reason="UnexpectedAdmissionError")
    world.gone("p")
    assert not len(world.scheduler.cluster.handoff.unserved_pods)


def test_a_pod_that_vanished_before_its_binding_was_refused_leaves_no_ghost():
    world = World(node("n1"))
    world.adds(pod("p"))
    (bind,) = world.binds()
    world.gone("p")
    assert len(world.scheduler.cluster.handoff.unserved_pods) == 1
    world.scheduler.outcomes.refused(bind.pod.uid, bind.attempt)
    assert not len(world.scheduler.cluster.handoff.unserved_pods)
    world.adds(pod("q"))
    assert len(world.binds()) == 1


def test_a_pod_goes_elsewhere_rather_than_wait_for_a_ghost():
    world = World(node("n1"), node("n2"))
    world.adds(pod("p"))
    (bind,) = world.binds()
    world.accepts(bind)
    world.gone("p")
    world.adds(pod("q"))
    (second,) = world.binds()
    assert second.node != bind.node


def test_a_pod_that_vanished_on_two_nodes_is_a_ghost_on_both_until_each_ends():
    world = World(node("n1"), node("n2", unschedulable=True))
    world.adds(pod("p"))
    (bind,) = world.binds()
    world.loses(bind)
    world.reads_back(None)
    # The watch is behind: it shows the pod as it was before its deletion, and the first node takes nothing now.
    world.scheduler.nodes.changed(node("n1", version="2", unschedulable=True))
    world.scheduler.nodes.changed(node("n2", version="2"))
    world.adds(pod("p"))
    (bind,) = world.binds()
    assert bind.node == "n2"
    world.scheduler.outcomes.contradicted(bind.pod.uid, bind.attempt)
    world.reads_back(None)
    world.gone("p")
    assert len(world.scheduler.cluster.handoff.unserved_pods) == 2
    for _ in range(30):
        world.passes(1.0)
    assert len(world.scheduler.cluster.handoff.unserved_pods) == 0
