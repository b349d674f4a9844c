"""A change of leader: no Binding that an earlier leader sent takes what another pod has been given, however late."""

import pytest

from controller.actions import Bind, Touch
from controller.deciding.lifecycle import WILL_BE_DECIDED
from tests.support.worlds.world import World, node, on, pod


class Store:
    """The API server's pods: it writes a Binding, at any time, only in the version that it names."""

    def __init__(self, *pods):
        self.pods = {one.uid: one for one in pods}
        self.version = 50

    def executes(self, bind: Bind):
        """The pod that *bind* puts on its node; None: 409."""
        before = self.pods[bind.pod.uid]
        if before.node_name or before.resource_version != bind.version:
            return None
        self.version += 1
        now = before._replace(
            resource_version=str(self.version),
            node_name=bind.node,
            annotations={**before.annotations, **bind.annotations},
        )
        self.pods[now.uid] = now
        return now


def leader(store, *nodes, pods=None, **settings):
    """A process that sees what is stored, and takes over from one that did not end in order."""
    world = World(*nodes, **settings)
    for one in store.pods.values() if pods is None else pods:
        world.pods[one.uid] = one
        world.scheduler.pod_changed(one)
    world.scheduler.take_over(("cardshare", "volcano"))
    return world


def stuck():
    """A cluster with room for one, whose leader sent p's Binding and died before it was written; and that Binding."""
    room = node("n1", memory=1000)
    waiting = pod("p", resource_version="5", scheduled_message="CS501 full", scheduled_reason="Unschedulable")
    store = Store(waiting)
    first = World(room)
    first.scheduler.pod_changed(waiting)
    (bind,) = first.binds()
    return store, room, bind


@pytest.mark.parametrize("when", ["before the fence", "after the fence", "with the next Binding"])
def test_a_binding_that_comes_late_oversells_nothing_whenever_it_comes(when):
    store, room, late = stuck()
    more_urgent = pod("q", resource_version="6", priority=100)
    store.pods[more_urgent.uid] = more_urgent
    world = leader(store, room)
    assert world.binds() == []
    if when == "before the fence":
        bound = store.executes(late)
        assert bound is not None
        world.moves("q")  # 409 for p
        world.pods[bound.uid] = bound
        world.scheduler.pod_changed(bound)
        assert world.binds() == []
        world.serves("p")
        assert world.binds() == []
        assert world.holders("n1") == {"uid-p"}
        return
    assert sorted(world.moves()) == ["p", "q"]
    store.pods |= world.pods
    assert store.pods[late.pod.uid].scheduled_message == "CS501 full"
    if when == "with the next Binding":
        (bind,) = world.binds()
        assert (bind.pod.name, store.executes(late)) == ("q", None)
        assert store.executes(bind) is not None
    assert store.executes(late) is None


def test_nobody_gets_room_while_one_that_waits_may_still_be_bound():
    store, room, _ = stuck()
    world = leader(store, room, node("n2", memory=1000))
    world.adds(pod("new"))
    assert world.binds() == []
    assert world.moves("nobody") == []
    assert (world.binds(), world.actions(Touch)) == ([], [])
    world.passes(1.0)
    assert world.moves() == ["p"]
    assert {bind.pod.name for bind in world.binds()} == {"p", "new"}


def test_a_pod_that_has_been_told_nothing_is_told_who_decides_it():
    store = Store(pod("p"))
    world = leader(store, node("n1"))
    assert world.binds() == []
    (move,) = world.actions(Touch)
    assert (move.wait, move.version) == (WILL_BE_DECIDED, "1")


def test_a_write_that_changed_nothing_fences_nothing():
    store, room, _ = stuck()
    world = leader(store, room)
    world.plan()
    (move,) = world.actions(Touch)
    world.scheduler.moved(move.pod.uid, move.version, world.seen("p"))
    assert world.binds() == []
    world.passes(1.0)
    assert world.moves() == ["p"]


@pytest.mark.parametrize("change", ["changes", "goes", "bound"])
def test_what_the_mirror_shows_of_a_pod_fences_it_as_well(change):
    store, room, late = stuck()
    world = leader(store, room)
    if change == "changes":
        world.shows(world.seen("p"), annotations={"a": "b"})
    elif change == "goes":
        world.gone("p")
    else:
        world.shows_bound(late)
    world.adds(pod("q"))
    assert world.moves() == []
    assert world.scheduler.settle()


def test_nothing_is_written_while_nobody_could_get_room_and_all_before_the_lease_is_released():
    store, _, _ = stuck()
    world = leader(store, node("n1", memory=10))
    assert (world.binds(), world.actions(Touch)) == ([], [])
    assert not world.scheduler.settle()
    assert world.moves() == ["p"]
    assert world.scheduler.settle()


def test_a_leader_with_an_attempt_that_is_not_settled_does_not_release_the_lease():
    world = World(node("n1"))
    world.adds(pod("p"))
    (bind,) = world.binds()
    assert not world.scheduler.settle()
    world.loses(bind)
    assert not world.scheduler.settle()
    world.reads_back(world.seen("p"))
    assert not world.scheduler.settle()
    world.writes_fence()
    assert world.scheduler.settle()


def test_a_pod_of_a_name_that_was_given_up_is_moved_too():
    store = Store(pod("p", scheduler_name="volcano"), pod("other", scheduler_name="default-scheduler"))
    world = leader(store, node("n1"))
    world.adds(pod("q"))
    world.plan()
    assert world.moves() == ["p"]
    assert [bind.pod.name for bind in world.binds()] == ["q"]


def test_ten_thousand_pods_are_moved_a_few_at_a_time():
    store = Store(*(pod(f"p{at}", constraints=on("nowhere")) for at in range(200)))
    world = leader(store, node("n1"))
    world.adds(pod("q"))
    world.plan()
    moved, rounds = 0, 0
    while found := world.moves():
        moved, rounds = moved + len(found), rounds + 1
        assert len(found) <= 64
    assert (moved, rounds) == (200, 4)
    assert [bind.pod.name for bind in world.binds()] == ["q"]


def test_a_condition_that_is_written_for_another_reason_fences_a_pod_as_well():
    store, _, _ = stuck()
    world = leader(store, node("n1", memory=10))
    world.plan()
    world.version += 1
    version = str(world.version)
    world.scheduler.condition_written(store.pods["uid-p"].uid, "CS501 fuller", None, "5", version)
    world.shows(world.seen("p"), resource_version=version)
    assert world.scheduler.settle()
