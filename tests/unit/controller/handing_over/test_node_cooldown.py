"""Nodes that turned pods away rest, longer each time; an owner's pods avoid what failed them three times in a row."""

import pytest

from controller.handing_over.closed_nodes import FIRST_S, LAST_S
from core.model import NodeName, Phase
from core.settings import DialectName
from tests.support.worlds.world import World, node, pod

GONE = "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices X, which is unexpected"


def turn_away(world, name, reason="UnexpectedAdmissionError"):
    world.shows(world.seen(name), phase=Phase.FAILED, status_reason=reason, status_message=GONE)
    for clear in world.clears():
        world.scheduler.cleared(clear.pod.uid, done=True)


def send(world, name, **fields):
    """Have a pod bound: where."""
    world.adds(pod(name, **fields))
    (bind,) = world.binds()
    world.accepts(bind)
    return bind.node


def rest_s(world):
    """For how long node n1, or else n2, rests still."""
    rests = world.scheduler.cluster.handoff.cooldown.rests.values()
    return max([one.until_s - world.now_s for one in rests if not one.over], default=0.0)


def why(world, name, *, in_full=False):
    """Why node n1 is closed to a pod that waits."""
    shape = world.entry(name).shape
    assert shape is not None
    return world.scheduler.cluster.handoff.why_closed(
        NodeName("n1"), world.scheduler.cluster.collision_key(shape), in_full=in_full
    )


def test_a_node_that_turned_a_pod_away_is_passed_over_while_another_is_free():
    world = World(node("n1"), node("n2"))
    first = send(world, "p0")
    turn_away(world, "p0")
    for at in range(1, 6):
        other = send(world, f"p{at}")
        assert other != first
        world.serves(f"p{at}")


def test_where_nothing_else_fits_the_pod_waits_with_the_reason_and_is_sent_after_the_rest():
    world = World(node("n1"))
    send(world, "p0")
    turn_away(world, "p0")
    world.adds(pod("p1"))
    assert world.binds() == []
    assert world.stage("p1") == "turn"
    assert why(world, "p1") == "its kubelet rejected a pod"
    assert why(world, "p1", in_full=True) == f"its kubelet rejected a pod: {GONE}"
    world.passes(FIRST_S - 0.5)
    assert world.binds() == []
    world.now_s += 1.0
    assert len(world.binds()) == 1


def test_a_rest_doubles_with_every_failure_and_ends_with_a_pod_that_was_served():
    world = World(node("n1"))
    rests = []
    for at in range(9):
        send(world, f"p{at}")
        turn_away(world, f"p{at}")
        rests.append(rest_s(world))
        world.passes(rests[-1])
    assert rests == [min(FIRST_S * 2**at, LAST_S) for at in range(9)]
    send(world, "good")
    world.serves("good")
    send(world, "bad")
    turn_away(world, "bad")
    assert rest_s(world) == FIRST_S


def test_pods_that_fail_together_are_one_failure():
    world = World(node("n1", cards=4))
    for name, number in (("p1", 1), ("p2", 2), ("p3", 3)):
        world.adds(pod(name, number=number))
    for bind in world.binds():
        world.accepts(bind)
    for name in ("p1", "p2", "p3"):
        turn_away(world, name)
    assert rest_s(world) == FIRST_S


def test_replacements_of_pods_on_a_dead_plugin_are_few():
    world = World(*(node(name, memory=200_000, slots=200) for name in ("n1", "n2")))
    names, failed = iter(f"p{at}" for at in range(1000)), 0
    dead = send(world, next(names))
    turn_away(world, "p0")
    for _ in range(100):  # ten seconds
        world.now_s += 0.1
        name = next(names)
        where = send(world, name)
        if where == dead:
            failed += 1
            turn_away(world, name)
        else:
            world.serves(name)
    assert failed <= 1


@pytest.mark.parametrize("reason", ["OutOfvolcano.sh/vgpu-memory", "OutOfvolcano.sh/vgpu-number"])
def test_what_a_node_has_too_little_of_counts_when_it_is_of_its_cards(reason):
    world = World(node("n1"))
    send(world, "p")
    turn_away(world, "p", reason)
    assert rest_s(world) == FIRST_S


def test_an_owners_pods_that_fit_on_no_numa_node_are_sent_rarely_and_then_elsewhere():
    world = World(node("n1"), node("n2", memory=90_000, slots=100))
    where = []
    for at in range(4):
        where.append(send(world, f"p{at}", owner="ReplicaSet/web"))
        turn_away(world, f"p{at}", "TopologyAffinityError")
        assert rest_s(world) >= FIRST_S
        world.passes(rest_s(world))
    assert where[0] == where[1] == where[2] != where[3]


def test_pods_that_ask_for_something_else_go_to_a_node_whose_topology_manager_rejected_one():
    world = World(node("n1"))
    send(world, "p", owner="ReplicaSet/large", memory=8000)
    turn_away(world, "p", "TopologyAffinityError")
    assert send(world, "small", owner="ReplicaSet/small", memory=1000) == "n1"
    world.serves("small")
    world.adds(pod("same", owner="ReplicaSet/other", memory=8000))
    assert world.binds() == []
    assert why(world, "same", in_full=True) == f"its kubelet rejected a pod: {GONE}"
    assert len(world.scheduler.cluster.handoff.cooldown.resting(DialectName("vgpu"))) == 1
    world.passes(FIRST_S)
    (bind,) = world.binds()
    world.accepts(bind)
    turn_away(world, "same", "TopologyAffinityError")
    assert rest_s(world) == FIRST_S * 2


def test_a_node_whose_topology_manager_has_rejected_many_kinds_takes_none():
    world = World(node("n1"))
    for at in range(1, 18):
        send(world, f"p{at}", memory=at)
        turn_away(world, f"p{at}", "TopologyAffinityError")
    world.adds(pod("another", memory=100))
    assert world.binds() == []
    assert len(world.scheduler.cluster.handoff.cooldown.rests) == 17


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [("UnexpectedAdmissionError", "device plugin's log"), ("TopologyAffinityError", "relax topologyManagerPolicy")],
)
def test_the_nodes_event_says_what_to_do_and_sends_nobody_to_a_plugin_that_has_no_part_in_it(reason, remedy):
    world = World(node("n1"))
    send(world, "p")
    turn_away(world, "p", reason)
    (event,) = [one for one in world.announced() if one.reason == "PodTurnedAway"]
    assert remedy in event.message
    assert ("device plugin" in event.message) == (reason == "UnexpectedAdmissionError")


@pytest.mark.parametrize("reason", ["OutOfcpu", "Evicted", "NodeAffinity", "", "OutOf"])
def test_other_ends_of_a_pod_say_nothing_of_its_cards(reason):
    world = World(node("n1"))
    send(world, "p")
    turn_away(world, "p", reason)
    assert rest_s(world) == 0.0


def test_the_share_of_a_pod_that_was_turned_away_is_free_and_its_keys_are_cleared():
    world = World(node("n1", memory=1000))
    send(world, "p")
    world.shows(world.seen("p"), phase=Phase.FAILED, status_reason="UnexpectedAdmissionError")
    assert not world.holders("n1")
    (clear,) = world.clears()
    assert clear.annotations["volcano.sh/devices-to-allocate"] == ""


def test_the_event_is_on_the_node_once_for_a_rest():
    world = World(node("n1", cards=2))
    for name, number in (("p1", 1), ("p2", 2)):
        world.adds(pod(name, number=number))
    for bind in world.binds():
        world.accepts(bind)
    world.announced()
    turn_away(world, "p1")
    turn_away(world, "p2")
    (event,) = [one for one in world.announced() if one.reason == "PodTurnedAway"]
    assert (event.about.kind, event.about.name) == ("Node", "n1")
    assert "no healthy devices present" in event.message
    assert "for 5 s" in event.message


# ---------------------------------------------------------------------- the owner's next pod


def failing_thrice(world, owner="ReplicaSet/web"):
    """Three pods of one owner turned away in a row by the node that looks best: which it is."""
    where = ""
    for at in range(3):
        where = send(world, f"p{at}", owner=owner)
        turn_away(world, f"p{at}")
        world.passes(rest_s(world))
    return where


def test_an_owners_pods_go_elsewhere_after_three_failures_in_a_row():
    world = World(node("n1"), node("n2", memory=90_000, slots=100))
    where = [send(world, "p0", owner="ReplicaSet/web")]
    for at in range(1, 4):
        turn_away(world, f"p{at - 1}")
        world.passes(rest_s(world))
        where.append(send(world, f"p{at}", owner="ReplicaSet/web"))
    assert where[0] == where[1] == where[2] != where[3]
    assert send(world, "other", owner="ReplicaSet/other") == where[0]
    assert world.scheduler.cluster.handoff.cooldown.avoided(world.seen("p3")) == {where[0]}
    (avoided,) = world.scheduler.cluster.handoff.cooldown.avoidances()
    assert avoided[:4] == ("default", "ReplicaSet/web", where[0], 3)


def test_they_go_there_all_the_same_where_nothing_else_fits():
    world = World(node("n1"))
    where = failing_thrice(world)
    assert send(world, "p3", owner="ReplicaSet/web") == where


def test_a_pod_of_theirs_that_is_served_there_ends_it():
    world = World(node("n1"))
    failing_thrice(world)
    send(world, "p3", owner="ReplicaSet/web")
    world.serves("p3")
    assert not list(world.scheduler.cluster.handoff.cooldown.avoidances())


def test_news_of_pods_that_have_been_running_there_for_long_is_no_service():
    world = World(node("n1"))
    send(world, "old", owner="ReplicaSet/web")
    world.serves("old")
    for at in range(3):
        send(world, f"p{at}", owner="ReplicaSet/web")
        turn_away(world, f"p{at}")
        world.passes(rest_s(world))
        world.shows(world.seen("old"))
    assert [times for _, _, _, times, _ in world.scheduler.cluster.handoff.cooldown.avoidances()] == [3]
    send(world, "next")
    turn_away(world, "next")
    assert rest_s(world) == FIRST_S * 8


def test_pods_that_ran_before_this_process_began_are_no_service_either():
    world = World(node("n1"))
    world.adds(bound_elsewhere())
    send(world, "p0")
    turn_away(world, "p0")
    world.passes(FIRST_S)
    world.shows(world.seen("before"))
    send(world, "p1")
    turn_away(world, "p1")
    assert rest_s(world) == FIRST_S * 2


def bound_elsewhere():
    """A pod that runs on n1 since before this process began."""
    ids = "n1-0,NVIDIA,100,0:"
    notes = {"volcano.sh/vgpu-node": "n1", "volcano.sh/vgpu-ids-new": ids, "volcano.sh/bind-phase": "success"}
    return pod("before", node_name="n1", annotations=notes, started=True, phase=Phase.RUNNING)


def test_it_is_forgotten_after_ten_minutes():
    world = World(node("n1"))
    failing_thrice(world)
    assert list(world.scheduler.cluster.handoff.cooldown.avoidances())
    world.passes(600.0)
    assert not list(world.scheduler.cluster.handoff.cooldown.avoidances())


def test_pods_without_an_owner_avoid_nothing():
    world = World(node("n1"))
    failing_thrice(world, owner="")
    assert not list(world.scheduler.cluster.handoff.cooldown.avoidances())


# ---------------------------------------------------------------------- a plugin that comes back


def without_devices(name="n1", version="2"):
    made = node(name, version=version)
    return node(name, version=version, allocatable={**made.allocatable, "volcano.sh/vgpu-number": "0"})


def test_a_node_rests_when_its_plugin_has_come_back():
    world = World(node("n1"))
    world.scheduler.nodes.changed(without_devices())
    world.scheduler.nodes.changed(node("n1", version="3"))
    world.adds(pod("p"))
    assert world.binds() == []
    assert why(world, "p") == "its device plugin has just restarted"
    world.now_s += FIRST_S
    assert len(world.binds()) == 1


def test_a_node_that_registers_for_the_first_time_does_not():
    world = World(without_devices(version="1"))
    world.scheduler.nodes.changed(node("n1", version="2"))
    world.adds(pod("p"))
    assert len(world.binds()) == 1


def test_a_plugin_that_comes_and_goes_rests_longer_each_time():
    world = World(node("n1"))
    rests = []
    for at in range(8):
        world.scheduler.nodes.changed(without_devices(version=f"2{at}0"))
        world.scheduler.nodes.changed(node("n1", version=f"2{at}1"))
        rests.append(rest_s(world))
        world.passes(rests[-1])
    assert rests == [min(FIRST_S * 2**at, LAST_S) for at in range(8)]
