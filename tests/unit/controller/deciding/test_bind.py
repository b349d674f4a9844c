import json
from dataclasses import replace

import pytest

from controller.actions import Lock
from controller.handing_over.collision import RELEASE_S
from controller.handing_over.locks import TimeLock
from core import hami_lock
from core.model import Phase, PodUid
from core.port.handoff import LockQuestion, LockStep, LockWait
from core.settings import Policy, Tables
from core.units import time_text
from tests.support.devices import ascend
from tests.support.worlds.world import START_UNIX_S, World, node, pod

WORD = "Ascend310P"
LATER = "2027-01-15T08:00:00Z"  # START_UNIX_S


def npu_node(version="1", **annotations):
    found = ascend.node(WORD, ("U0", "U1"))
    have = {**found.allocatable, "pods": "110", "cpu": "8", "memory": "8Gi"}
    notes = {**found.annotations, **annotations}
    return replace(found, resource_version=version, annotations=notes, allocatable=have, capacity=have)


def npu_pod(name):
    return ascend.pod(
        WORD, (1, 3072), uid=PodUid(f"uid-{name}"), name=name, resource_version="1", scheduler_name="cardshare"
    )


def both_node(version="1", **annotations):
    """A node with chips and with GPUs of HAMi's, whose plugins go by one lock."""
    card = {"id": "G0", "count": 10, "devmem": 8000, "devcore": 100, "type": "NVIDIA T4", "health": True}
    found = npu_node(version, **{"hami.io/node-nvidia-register": json.dumps([card])}, **annotations)
    have = {**found.allocatable, "nvidia.com/gpu": "10"}
    return replace(found, allocatable=have, capacity=have)


def gpu_pod(name):
    return pod(name, limits={"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"})


def lock_of(name, time=LATER):
    return {hami_lock.LOCK: f"{time},default,{name}"}


def asked(world):
    world.plan()
    return world.actions(Lock)


def chip_of(world, name):
    placement = world.entry(name).placement
    assert placement is not None
    return placement.assignment.entries[0].uuid


def judged(world, action, seen, named=None):
    return world.scheduler.locks.step(action, seen, named)


def test_a_node_is_locked_for_a_pod_before_it_is_bound():
    world = World(npu_node())
    world.adds(npu_pod("a"))
    assert world.binds() == []
    (action,) = world.actions(Lock)
    assert world.stage("a") == "locking"
    assert judged(world, action, npu_node()) == LockStep(key=hami_lock.LOCK, value=f"{LATER},default,a")
    world.scheduler.locks.locked(action)
    (bind,) = world.binds()
    assert bind.annotations["hami.io/vgpu-node"] == "node-a"
    world.scheduler.nodes.changed(npu_node("2", **lock_of("a")))
    world.accepts(bind)
    assert asked(world) == []
    assert world.scheduler.cluster.queue.in_flight == 0


def test_a_pod_waits_while_its_node_is_locked_for_a_pod_of_another_scheduler():
    world = World(npu_node(**lock_of("theirs")))
    world.actions(Lock)
    world.adds(npu_pod("a"))
    (action,) = [one for one in asked(world) if one.pod]
    theirs = npu_pod("theirs")._replace(scheduler_name="hami-scheduler")
    found = judged(world, action, npu_node(**lock_of("theirs")), theirs)
    assert isinstance(found, LockWait)
    assert found.reason.endswith("is held for another pod")
    world.scheduler.locks.not_locked(action, found.reason)
    assert (world.stage("a"), world.holders("node-a")) == ("resting", set())
    assert "is held for another pod" in world.wait("a").text
    assert PodUid("uid-a") in world.scheduler.cluster.unreported
    world.scheduler.nodes.changed(npu_node("2"))
    world.plan()
    assert world.stage("a") == "locking"


def test_a_lock_of_a_pod_that_is_gone_is_dropped():
    world = World()
    world.scheduler.nodes.changed(npu_node(**lock_of("dead")))
    (action,) = asked(world)
    assert action.pod is None
    assert judged(world, action, npu_node(**lock_of("dead"))) == LockStep(key=hami_lock.LOCK, value=None)
    alive = npu_pod("dead")._replace(scheduler_name="hami-scheduler")
    assert judged(world, action, npu_node(**lock_of("dead")), alive) is None
    world.scheduler.locks.locked(action)
    world.scheduler.nodes.changed(npu_node("3"))
    assert asked(world) == []


def test_the_lock_is_taken_again_while_containers_of_its_pod_are_left():
    world = World(npu_node())
    world.adds(npu_pod("a"))
    (action,) = asked(world)
    world.scheduler.locks.locked(action)
    (bind,) = world.binds()
    world.scheduler.nodes.changed(npu_node("2", **lock_of("a")))
    bound = world.accepts(bind)
    assert asked(world) == []
    world.shows(bound, annotations={**bound.annotations, hami_lock.BIND_PHASE: hami_lock.SUCCESS})
    world.scheduler.nodes.changed(npu_node("3"))
    (again,) = asked(world)
    assert again.pod is None
    step = judged(world, again, npu_node("3"))
    assert isinstance(step, LockStep)
    assert str(step.value).endswith(",default,a")
    world.scheduler.locks.written(again, step)
    world.shows(bound, phase=Phase.FAILED)
    assert judged(world, again, npu_node("4", **lock_of("a"))) == LockStep(key=hami_lock.LOCK, value=None)


def test_plugins_that_go_by_one_lock_serve_one_pod_at_a_time_between_them():
    world = World(both_node())
    world.adds(npu_pod("a"), gpu_pod("b"))
    (action,) = asked(world)
    world.scheduler.locks.locked(action)
    (bind,) = world.binds()
    world.scheduler.outcomes.bound(
        bind.pod.uid, bind.attempt
    )  # the mirror is late, and the plugin has dropped the lock
    world.scheduler.nodes.changed(both_node("3"))
    assert asked(world) == []
    assert world.stage("b") == "turn"
    bound = world.shows_bound(bind)
    done = {key: ";;" for key in bound.annotations if key.endswith("-to-allocate")}
    world.shows(bound, annotations={**bound.annotations, **done, hami_lock.BIND_PHASE: hami_lock.SUCCESS})
    world.now_s += 1.0
    (action,) = [one for one in asked(world) if one.pod]
    assert action.pod.name == "b"


@pytest.mark.parametrize(("name", "calls", "waits"), [("z", 2, True), ("z", 1, False), ("a", 2, False)])
def test_a_pod_of_several_containers_is_not_bound_beside_one_that_the_plugin_would_serve_in_its_stead(
    name, calls, waits
):
    """The plugin drops the lock after each container, and then takes the first by name that is Pending (D-1, D-2)."""
    world = World(npu_node())
    world.adds(npu_pod("m"))
    (action,) = asked(world)
    world.scheduler.locks.locked(action)
    (bind,) = world.binds()
    bound = world.accepts(bind)
    done = {f"hami.io/{WORD}-devices-to-allocate": ";;", hami_lock.BIND_PHASE: hami_lock.SUCCESS}
    pulling = world.shows(bound, annotations={**bound.annotations, **done})
    world.now_s += 1.0
    several = ascend.pod(WORD, *[(1, 3072)] * calls).containers
    world.adds(npu_pod(name)._replace(containers=several))
    (action,) = [one for one in asked(world) if one.pod]
    if waits:
        assert isinstance(judged(world, action, npu_node("4")), LockWait)
        world.shows(pulling, started=True, phase=Phase.RUNNING)
    assert isinstance(judged(world, action, npu_node("4")), LockStep)


def test_a_lock_whose_binding_was_refused_is_put_right():
    world = World(npu_node())
    world.adds(npu_pod("a"))
    (action,) = asked(world)
    world.scheduler.locks.locked(action)
    (bind,) = world.binds()
    world.scheduler.nodes.changed(npu_node("2", **lock_of("a")))
    assert asked(world) == []
    world.scheduler.outcomes.refused(bind.pod.uid, bind.attempt)
    (tend,) = world.actions(Lock)
    assert judged(world, tend, npu_node("2", **lock_of("a")), npu_pod("a")) == LockStep(key=hami_lock.LOCK, value=None)


def test_a_pod_that_goes_while_its_node_is_being_locked_leaves_nothing_behind():
    world = World(npu_node())
    world.adds(npu_pod("a"))
    (action,) = asked(world)
    world.gone("a")
    assert isinstance(judged(world, action, npu_node()), LockWait)
    world.scheduler.locks.not_locked(action, "")
    assert (
        world.scheduler.cluster.queue.in_flight,
        world.scheduler.cluster.handoff.in_flight,
        world.holders("node-a"),
    ) == (
        0,
        0,
        set(),
    )


@pytest.mark.parametrize("on", [True, False])
def test_the_lock_of_volcanos_scheduler_is_taken_where_that_is_asked_for(on):
    world = World(node("n1"), node_lock=on)
    world.adds(pod("a"))
    actions = asked(world)
    if not on:
        assert (actions, world.stage("a")) == ([], "binding")
        return
    assert judged(world, actions[0], node("n1")) == LockStep(key="hamivgpu", value=LATER)


def test_the_lock_of_volcanos_scheduler_is_taken_beside_pods_that_were_served():
    world = World(node("n1"), node_lock=True)
    world.adds(pod("a"))
    (action,) = asked(world)
    world.scheduler.locks.locked(action)
    (bind,) = world.binds()
    world.accepts(bind)
    world.serves("a")
    world.adds(pod("b"))
    (action,) = [one for one in asked(world) if one.pod]
    assert isinstance(judged(world, action, node("n1")), LockStep)


@pytest.mark.parametrize(
    ("value", "free"),
    [
        ("2027-01-15T07:56:00Z", False),
        ("2027-01-15T15:56:00+08:00", False),
        ("2027-01-15T07:55:00Z", True),
        ("2027-01-15T08:06:00Z", False),
        ("2099-01-01T00:00:00Z", False),
        ("soon", True),
        ("", True),
    ],
)
def test_a_time_lock_holds_for_five_minutes_if_it_is_a_time(value, free):
    lock, one = TimeLock("gpu"), node("n1", annotations={"gpu": value})
    found = lock.lock(one, LockQuestion((), START_UNIX_S, Tables(), pod("a")))
    assert isinstance(found, LockStep) is free


@pytest.mark.parametrize("time", ["2027-01-15T08:04:00Z", "2099-01-01T00:00:00Z"])
def test_42_a_lock_from_the_future_is_over_five_minutes_after_it_was_first_seen(time):
    for lock, locked in (
        (TimeLock("gpu"), node("n1", annotations={"gpu": time})),
        (ascend.NODE_LOCK, npu_node(**{hami_lock.LOCK: time})),
    ):
        for seen_s, free in ((START_UNIX_S, False), (START_UNIX_S - 299, False), (START_UNIX_S - 300, True)):
            found = lock.lock(locked, LockQuestion((), START_UNIX_S, ascend.TABLES, npu_pod("a"), seen_s=seen_s))
            assert isinstance(found, LockStep) is free
            assert free or (isinstance(found, LockWait) and found.until_s == seen_s + 300)


def test_42_a_lock_that_a_clock_ahead_calls_old_is_over_once_it_was_seen_for_longer_than_a_binding_takes():
    time = time_text(START_UNIX_S - 3600)
    waiting = npu_pod("b")
    for lock, locked in (
        (TimeLock("gpu"), node("n1", annotations={"gpu": time})),
        (ascend.NODE_LOCK, npu_node(**{hami_lock.LOCK: time})),
        (ascend.NODE_LOCK, npu_node(**{hami_lock.LOCK: f"{time},{waiting.namespace},{waiting.name}"})),
    ):
        pods = (waiting,) if lock is not None and lock.lock_owner(locked) else ()
        for seen_s, free in ((START_UNIX_S, False), (START_UNIX_S - 29, False), (START_UNIX_S - 30, True)):
            asked = LockQuestion(pods, START_UNIX_S, ascend.TABLES, npu_pod("a"), seen_s=seen_s)
            found = lock.lock(locked, asked)
            assert isinstance(found, LockStep) is free
            assert free or (isinstance(found, LockWait) and found.until_s == seen_s + 30)


def test_a_lock_with_an_unreadable_time_is_taken_at_once_as_the_plugin_fails_on_it():
    locked = npu_node(**{hami_lock.LOCK: "yesterday,default,b"})
    asked = LockQuestion((), START_UNIX_S, ascend.TABLES, npu_pod("a"), seen_s=START_UNIX_S)
    assert isinstance(ascend.NODE_LOCK.lock(locked, asked), LockStep)


def test_42_how_long_a_lock_was_seen_is_by_our_clock_whatever_the_wall_clock_does():
    world = World(npu_node(**{hami_lock.LOCK: "2099-01-01T00:00:00Z"}))
    world.adds(npu_pod("a"))
    world.plan()
    (action,) = world.actions(Lock)
    locked = npu_node(**{hami_lock.LOCK: "2099-01-01T00:00:00Z"})
    assert isinstance(judged(world, action, locked), LockWait)
    world.passes(299.0)
    assert isinstance(judged(world, action, locked), LockWait)
    world.passes(2.0)
    assert isinstance(judged(world, action, locked), LockStep)


def test_a_time_lock_of_ours_is_dropped_once_nothing_is_in_flight_and_another_s_never():
    lock, step = TimeLock("gpu"), LockStep(key="gpu", value=LATER)
    locked = node("n1", annotations={"gpu": LATER})
    assert lock.lock(locked, LockQuestion((), START_UNIX_S, Tables())) is None
    lock.written(locked.name, step)
    assert lock.lock(locked, LockQuestion((pod("a"),), START_UNIX_S, Tables())) is None
    assert lock.lock(locked, LockQuestion((), START_UNIX_S, Tables())) == LockStep(key="gpu", value=None)
    assert isinstance(lock.lock(locked, LockQuestion((pod("a"),), START_UNIX_S, Tables(), pod("b"))), LockWait)


@pytest.mark.parametrize("change", ["unhealthy", "another id", "cordoned", "lock only"])
def test_a_pod_is_judged_again_when_its_node_has_been_locked(change):
    world = World(npu_node())
    world.adds(npu_pod("a"))
    (action,) = asked(world)
    chip = chip_of(world, "a")
    seen = npu_node("2", **lock_of("a"))
    key, register = next((key, text) for key, text in seen.annotations.items() if "register" in key)
    devices = json.loads(register)
    for one in devices:
        if one["id"] == chip and change == "unhealthy":
            one["health"] = False
        elif one["id"] == chip and change == "another id":
            one["id"] = "U9"
    now = replace(seen, annotations={**seen.annotations, key: json.dumps(devices)}, unschedulable=change == "cordoned")
    judged(world, action, seen)
    world.scheduler.nodes.changed(now)
    world.scheduler.locks.locked(action)
    binds = world.binds()
    assert [bind.pod.name for bind in binds] == (["a"] if change == "lock only" else [])
    if change == "cordoned":
        assert (world.stage("a"), world.holders("node-a")) == ("refused", set())
    elif change != "lock only":
        assert chip_of(world, "a") != chip


def test_what_others_were_promised_while_a_node_was_locked_has_no_pod_choose_again():
    world = World(npu_node(), policy=Policy.SPREAD)
    world.adds(npu_pod("a"))
    (action,) = asked(world)
    world.adds(npu_pod("b"), npu_pod("c"))
    assert asked(world) == []
    world.gone("b")  # which had its place beside that of a
    world.scheduler.nodes.changed(npu_node("2", **lock_of("a")))
    world.scheduler.locks.locked(action)
    assert [bind.pod.name for bind in world.binds()] == ["a"]


def served(world, name, seen_version):
    """A pod is bound, locked for and served, as the mirror shows it; its plugin has not dropped the lock."""
    world.adds(npu_pod(name))
    (action,) = [one for one in asked(world) if one.pod]
    world.scheduler.locks.locked(action)
    (bind,) = world.binds()
    world.scheduler.nodes.changed(npu_node(seen_version, **lock_of(name)))
    bound = world.accepts(bind)
    done = {f"hami.io/{WORD}-devices-to-allocate": ";;", hami_lock.BIND_PHASE: hami_lock.SUCCESS}
    return world.shows(bound, annotations={**bound.annotations, **done})


def test_the_lock_of_a_pod_that_was_served_is_left_to_its_plugin_and_the_next_pod_keeps_its_turn():
    world = World(npu_node())
    served(world, "a", "2")
    world.adds(npu_pod("b"))
    assert asked(world) == []
    assert world.stage("b") == "turn"
    world.scheduler.nodes.changed(npu_node("3"))
    (action,) = asked(world)
    assert action.pod.name == "b"


def test_a_lock_that_the_mirror_does_not_show_any_more_or_not_yet_is_left_to_its_plugin():
    world = World(npu_node())
    pulling = served(world, "a", "2")
    world.scheduler.nodes.changed(npu_node("3"))  # so it was before the lock was taken
    world.adds(npu_pod("b"))
    (action,) = asked(world)
    locked = npu_node("4", **lock_of("a"))
    assert judged(world, action, locked, pulling) == hami_lock.RELEASING
    assert judged(world, Lock(node=locked.name, dialect=action.dialect), locked, pulling) is None


@pytest.mark.parametrize("how", ["started", "ended", "time passed"])
def test_a_lock_that_its_plugin_has_left_behind_is_dropped(how):
    world = World(npu_node())
    pulling = served(world, "a", "2")
    assert asked(world) == []
    if how == "started":
        world.shows(pulling, started=True, phase=Phase.RUNNING)
    elif how == "ended":
        world.shows(pulling, phase=Phase.FAILED)
    else:
        world.passes(RELEASE_S - 0.5)
        assert world.actions(Lock) == []
        world.passes(1.0)
    (action,) = asked(world)
    found = judged(world, action, npu_node("2", **lock_of("a")), world.seen("a"))
    assert (action.pod, found) == (None, LockStep(key=hami_lock.LOCK, value=None))


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_lock_is_left_to_its_plugin_by_a_process_that_begins_and_if_the_pod_goes(is_gone):
    world = World(npu_node())
    pulling = served(world, "a", "2")
    now = World(npu_node("2", **lock_of("a")))
    now.shows(pulling)
    if is_gone:
        now.gone("a")
    now.adds(npu_pod("b"))
    locks = asked(now)
    locked = npu_node("2", **lock_of("a"))
    for action in locks:
        found = judged(now, action, locked, None if is_gone else pulling)
        assert found == (hami_lock.RELEASING if action.pod else None)
    now.passes(RELEASE_S + 0.1)
    found = judged(now, Lock(node=locked.name, dialect=locks[0].dialect), locked, None if is_gone else pulling)
    assert found == LockStep(key=hami_lock.LOCK, value=None)


def test_a_time_lock_of_ours_is_left_to_the_plugin_that_has_served():
    lock = TimeLock("gpu")
    locked = node("n1", annotations={"gpu": LATER})
    lock.written(locked.name, LockStep(key="gpu", value=LATER))
    assert lock.lock(locked, LockQuestion((), START_UNIX_S, Tables(), releasing=[pod("a")])) is None
    assert (
        lock.lock(locked, LockQuestion((), START_UNIX_S, Tables(), pod("b"), releasing=[pod("a")]))
        == hami_lock.RELEASING
    )
