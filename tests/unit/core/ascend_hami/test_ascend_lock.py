"""Whose turn it is on a node: what the plugin is still to serve, and the lock that tells it."""

import pytest

from core.model import Node, NodeName, Phase, Pod, PodUid
from core.port.handoff import LockQuestion, LockStep, LockWait, Progress
from tests.support.devices.ascend import DIALECT, NODE_LOCK, TABLES

KEY = "hami.io/mutex.lock"
NOW = 1787303731
TIME = "2026-08-21T09:15:31Z"
LEFT = "U0,Ascend310P,3072,0:;"


def node(lock=None):
    return Node(name=NodeName("node-a"), annotations={} if lock is None else {KEY: lock})


def pod(name="p", phase="allocating", left=LEFT, node_name="node-a", **fields):
    notes = {"hami.io/bind-phase": phase, "hami.io/Ascend310P-devices-to-allocate": left} if phase else {}
    return Pod(uid=PodUid(name), namespace="ns", name=name, node_name=node_name, annotations=notes, **fields)


def take(lock, pods=(), wanted=None, now_s=NOW):
    return NODE_LOCK.lock(node(lock), LockQuestion(pods, now_s, TABLES, wanted or pod("new", "", node_name="")))


def tend(lock, *pods, now_s=NOW):
    return NODE_LOCK.lock(node(lock), LockQuestion(pods, now_s, TABLES))


def step(name):
    return LockStep(key=KEY, value=f"{TIME},ns,{name}")


DROP = LockStep(key=KEY, value=None)


def test_the_dialect_locks():
    assert NODE_LOCK.lock_key == KEY


def test_a_free_node_is_locked_for_the_pod_that_is_to_be_bound():
    assert take(None) == step("new")


def test_a_lock_for_the_pod_itself_is_enough_until_it_is_old():
    assert take(f"{TIME},ns,new") is None
    assert take("2026-08-21T09:10:31Z,ns,new") == step("new")


@pytest.mark.parametrize(
    "lock", [f"{TIME},ns,p", "2026-08-21T17:15:31+08:00,ns,p", "2026-08-21T09:15:31.999999999Z,ns,p"]
)
def test_a_pod_waits_for_another_one_to_be_served(lock):
    assert isinstance(take(lock, [pod()]), LockWait)


def test_a_pod_that_another_scheduler_is_about_to_bind_keeps_its_lock():
    other = pod("other", "", node_name="")
    found = take(f"{TIME},ns,other", [other])
    assert isinstance(found, LockWait)
    assert found.until_s == NOW + 300
    assert take(f"{TIME},ns,other", [other], now_s=NOW + 300) == LockStep(key=KEY, value="2026-08-21T09:20:31Z,ns,new")
    assert tend(f"{TIME},ns,other", other) is None


def test_a_pod_waits_while_the_plugin_serves_one_that_has_no_lock():
    assert isinstance(take(None, [pod()]), LockWait)


@pytest.mark.parametrize(
    "owner",
    [
        None,
        pod("p", "", node_name="", deleting=True),
        pod(phase="failed", left=";;"),
        pod(phase="success", left=";;"),
        pod()._replace(phase=Phase.FAILED),
        pod(started=True),
    ],
    ids=["gone", "deleted before it was bound", "failed", "served", "terminal", "started"],
)
def test_a_lock_whose_pod_needs_it_no_more_is_taken_over_or_dropped(owner):
    pods = [] if owner is None else [owner]
    assert take(f"{TIME},ns,p", pods) == step("new")
    assert tend(f"{TIME},ns,p", *pods) == DROP


@pytest.mark.parametrize("owner", [pod(phase="success", left=";;"), pod(phase="failed", left=";;")])
def test_a_lock_that_its_plugin_may_still_be_dropping_is_left_alone_also_once_its_pod_is_gone(owner):
    wanted = pod("new", "", node_name="")
    for pods in ([owner], []):
        found = NODE_LOCK.lock(node(f"{TIME},ns,p"), LockQuestion(pods, NOW, TABLES, wanted, releasing=[owner]))
        assert isinstance(found, LockWait)
        assert NODE_LOCK.lock(node(f"{TIME},ns,p"), LockQuestion(pods, NOW, TABLES, releasing=[owner])) is None
    assert NODE_LOCK.lock(node(None), LockQuestion([owner], NOW, TABLES, wanted, releasing=[owner])) == step("new")


def test_a_pod_that_is_deleted_while_it_is_admitted_keeps_its_lock():
    assert isinstance(take(f"{TIME},ns,p", [pod(deleting=True)]), LockWait)
    assert tend(f"{TIME},ns,p", pod(deleting=True)) is None


def test_a_lock_that_names_nobody_is_waited_for_and_taken_over_when_it_is_old():
    assert isinstance(take(TIME), LockWait)
    assert take("2026-08-21T09:10:31Z") == step("new")
    assert tend(TIME) is None


@pytest.mark.parametrize("lock", ["a,b", "a,b,c,d", "x" * 2000])
def test_a_lock_that_the_plugin_cannot_read_is_replaced_or_dropped(lock):
    assert take(lock) == step("new")
    assert tend(lock) == DROP


def test_a_lock_without_a_time_that_can_be_read_is_old():
    assert take("yesterday,ns,p", [pod("p", "", node_name="")]) == step("new")


def test_the_lock_is_renewed_for_a_pod_with_containers_left():
    half = pod(phase="success", left=f";{LEFT};")
    assert tend(None, half) == step("p")
    assert tend(f"{TIME},ns,p", half) is None
    assert tend(None, pod(phase="success", left=";;;")) is None


def test_nobody_is_guessed_where_two_pods_wait_and_none_was_served():
    assert tend(None, pod("a"), pod("b")) is None
    assert tend(None, pod("a"), pod("b", phase="success")) == step("b")


def test_the_owner_of_a_lock_is_told():
    assert NODE_LOCK.lock_owner(node(f"{TIME},ns,p")) == "ns/p"
    assert [NODE_LOCK.lock_owner(node(lock)) for lock in (None, TIME, "a,b")] == ["", "", ""]


# ---------------------------------------------------------------------- in flight


@pytest.mark.parametrize(
    ("found", "progress"),
    [
        (pod(), Progress.WAITING),
        (pod(phase="success", left=f";{LEFT}"), Progress.WAITING),
        (pod(phase="failed"), Progress.WAITING),
        (pod(phase="success", left=";;"), Progress.DONE),
        (pod(phase="failed", left=";;"), Progress.FAILED),
        (pod(started=True), Progress.DONE),
        (pod(deleting=True), Progress.WAITING),
        (pod()._replace(phase=Phase.FAILED), Progress.FAILED),
    ],
    ids=["bound", "first served", "taken for another", "served", "failed", "started", "deleting", "terminal"],
)
def test_a_pod_is_in_flight_until_no_device_is_left_to_it(found, progress):
    seen = DIALECT.in_flight(found, TABLES)
    assert seen is not None
    assert seen.progress is progress
    assert bool(seen.confusable) == (progress is Progress.WAITING)


@pytest.mark.parametrize("found", [pod(node_name=""), pod(phase="")], ids=["unbound", "not annotated"])
def test_a_pod_that_the_plugin_never_looks_at_is_not_in_flight(found):
    assert DIALECT.in_flight(found, TABLES) is None


def test_pods_of_different_chip_types_wait_for_each_other():
    other = pod()._replace(
        annotations={"hami.io/bind-phase": "allocating", "hami.io/Ascend910B4-1-devices-to-allocate": LEFT}
    )
    first, second = DIALECT.in_flight(pod(), TABLES), DIALECT.in_flight(other, TABLES)
    assert first is not None
    assert second is not None
    assert first.confusable & second.confusable
