"""Device plugins whose own pods say that they do not run."""

import json

import pytest

from controller.actions import Lock
from controller.handing_over.closed_nodes import GONE_S, LEFT_S, NOT_READY_S
from core.explaining import explain
from core.model import NodeName, Pod, PodUid
from core.settings import DialectName, Policy
from core.waiting import Cause
from tests.support.worlds.world import World, node, pod


def plugin(uid="plugin", **fields):
    given = {
        "uid": PodUid(uid),
        "namespace": "kube-system",
        "name": uid,
        "owner": "DaemonSet/volcano-device-plugin",
        "service_account": "volcano-device-plugin",
        "node_name": "n1",
        "ready": True,
    }
    return Pod(**(given | fields))


def world_with(*plugins):
    world = World(node("n1"))
    for one in plugins:
        world.shows(one)
    return world


def goes(world):
    del world.pods[PodUid("plugin")]
    world.scheduler.pod_gone(PodUid("plugin"))


def test_nothing_is_bound_while_the_pod_of_the_plugin_is_not_ready_and_it_is_told_at_once():
    world = world_with(plugin())
    world.shows(plugin(), ready=False)
    world.adds(pod("a"))
    assert world.binds() == []
    assert world.stage("a") == "turn"
    assert world.wait("a").message.startswith("CS513 ")
    assert "its device plugin's pod kube-system/plugin is not ready" in world.wait("a").text
    assert PodUid("uid-a") in world.scheduler.cluster.unreported
    world.passes(5.0)
    assert world.binds() == []
    world.shows(plugin(), ready=True)
    assert [bind.pod.name for bind in world.binds()] == ["a"]


@pytest.mark.parametrize(
    "other",
    [
        plugin(ready=False, node_name="n2"),
        plugin(ready=False, owner="ReplicaSet/mine"),
        plugin(ready=False, service_account="default"),
        plugin(ready=False, namespace="elsewhere"),
        plugin(ready=False, service_account="hami-device-plugin"),
    ],
    ids=["another node", "no DaemonSet", "another account", "another namespace", "another protocol"],
)
def test_where_no_pod_of_the_plugin_is_seen_nothing_changes(other):
    world = world_with(other)
    world.adds(pod("a"))
    assert len(world.binds()) == 1


def test_another_node_is_taken_while_the_plugin_of_the_best_is_away():
    world = World(node("n1"), node("n2"))
    world.shows(plugin(ready=False))
    world.adds(pod("a"), pod("b"))
    found = world.placed()
    assert (found["a"], found["b"]) == ("n2", "n2")


@pytest.mark.parametrize("how", ["deleted", "being deleted", "evicted"])
def test_a_plugin_that_goes_is_away_until_the_next_is_ready(how):
    world = world_with(plugin())
    if how == "deleted":
        goes(world)
    else:
        world.shows(plugin(), deleting=how == "being deleted", phase="Failed" if how == "evicted" else "Running")
    world.adds(pod("a"))
    assert world.binds() == []
    world.shows(plugin("next", ready=False))
    world.passes(1.0)
    assert world.binds() == []
    world.shows(plugin("next"))
    assert len(world.binds()) == 1


def test_kubelet_is_believed_after_its_longest_silence():
    gone, broken = world_with(plugin()), world_with(plugin(ready=False))
    goes(gone)
    for world, after_s in ((gone, GONE_S), (broken, NOT_READY_S)):
        world.adds(pod("a"))
        world.passes(after_s - 0.5)
        assert world.binds() == []
        world.passes(1.0)
        (bind,) = world.binds()
        world.accepts(bind)
        world.serves("a")
    # That it is still not ready is no news.
    broken.shows(plugin(ready=False))
    broken.adds(pod("b", memory=1001))
    assert len(broken.binds()) == 1


def test_one_of_two_plugins_that_runs_is_enough():
    world = world_with(plugin(), plugin("old", deleting=True, ready=False))
    world.adds(pod("a"))
    assert len(world.binds()) == 1


@pytest.mark.parametrize("how", [{"deleting": True}, {"ready": False}])
def test_a_plugin_that_its_daemon_set_has_left_is_still_followed(how):
    """As by kubectl delete --cascade=orphan."""
    world = world_with(plugin())
    world.shows(plugin(owner=""))
    world.shows(plugin(owner=""), **how)
    world.adds(pod("a"))
    assert world.binds() == []


def test_a_pod_that_waits_already_is_told_within_a_second_that_its_node_takes_none():
    world = world_with(plugin())
    world.adds(pod("a"), pod("b"))
    (bind,) = world.binds()
    world.accepts(bind)
    assert world.stage("b") == "turn"
    assert world.entry("b").wait is None
    world.shows(plugin(), ready=False)
    world.passes(1.0)
    assert "is not ready" in world.wait("b").text


HAMI = DialectName("hami")
# Nodes are looked at so often.
LOOK_S = 5.0


def hamis(name, allocatable=20, **fields):
    """A node with two cards that HAMi's plugin has registered."""
    plain = {"count": 10, "devmem": 16_000, "devcore": 100, "type": "NVIDIA-T4", "mode": "hami-core", "health": True}
    cards = [plain | {"id": f"{name}-{at}", "index": at} for at in range(2)]
    have = {"nvidia.com/gpu": str(allocatable), "cpu": "64", "memory": "256Gi", "pods": "110"}
    register = {"hami.io/node-nvidia-register": json.dumps(cards)}
    given = {"annotations": register, "labels": {"gpu": "on"}, "capacity": have, "allocatable": have}
    return node(name, **(given | fields))


def hamis_plugin(on, uid="", **fields):
    account = "hami-device-plugin"
    given = {"owner": f"DaemonSet/{account}", "service_account": account, "node_name": on}
    return plugin(uid or f"hami-{on}", **(given | fields))


def share(name):
    return pod(name, limits={"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"})


def place_of(world, name):
    """Where a pod has its place: it is bound once its node is locked."""
    world.plan()
    placement = world.entry(name).placement
    return placement.node if placement is not None else ""


def told(world, name, *, in_full=False):
    refused = explain.refused(world.ledger, world.entry(name).shape, Policy.BINPACK)
    return explain.report(refused) if in_full else explain.wait(refused)


def goes_from(world, on):
    del world.pods[PodUid(f"hami-{on}")]
    world.scheduler.pod_gone(PodUid(f"hami-{on}"))


def closed(world):
    return {str(name) for name, state in world.ledger.states.items() if HAMI in state.closed}


def unusable(world):
    return [one for one in world.announced() if one.reason == "CardsUnusable"]


def hami_world(*nodes, running=()):
    world = World(*nodes)
    for name in running:
        world.shows(hamis_plugin(name))
    return world


def test_no_share_is_sold_on_a_node_without_hamis_plugin_while_others_have_it():
    world = hami_world(hamis("n1"), running=["other"])
    world.passes(LEFT_S + LOOK_S)
    (event,) = unusable(world)
    assert (event.about.kind, event.about.name) == ("Node", "n1")
    assert "kubectl label node n1 gpu- && kubectl annotate node n1 hami.io/node-nvidia-register-" in event.message
    world.adds(share("a"))
    assert place_of(world, "a") == ""
    assert told(world, "a").cause is Cause.UNSCHEDULABLE
    assert "the device plugin of n1 runs there again" in told(world, "a").text
    assert "n1: without its device plugin, which runs on other nodes" in told(world, "a", in_full=True)
    # It is told once.
    world.passes(LOOK_S)
    assert unusable(world) == []
    # Its plugin is there again: it serves at once.
    world.shows(hamis_plugin("n1", ready=False))
    world.passes(LOOK_S)
    assert place_of(world, "a") == ""
    world.shows(hamis_plugin("n1"))
    assert place_of(world, "a") == "n1"
    assert closed(world) == set()
    assert world.scheduler.nodes.complaints == {}


def test_its_cards_are_not_sold_whole_either_and_who_has_shares_there_keeps_them():
    world = hami_world(hamis("n1"), running=["n1", "other"])
    world.adds(share("a"))
    assert place_of(world, "a") == "n1"
    (lock,) = world.actions(Lock)
    world.scheduler.locks.locked(lock)
    (bind,) = world.binds()
    world.accepts(bind)
    goes_from(world, "n1")
    world.passes(LEFT_S + LOOK_S)
    assert closed(world) == {"n1"}
    assert set(world.ledger.states[NodeName("n1")].offers) == {HAMI}
    assert world.holders("n1") == {"uid-a"}
    assert world.audited() == []


def test_the_other_nodes_are_taken():
    world = hami_world(hamis("n1"), hamis("n2"), running=["n2"])
    world.passes(LEFT_S + LOOK_S)
    world.adds(share("a"), share("b"))
    assert {place_of(world, "a"), place_of(world, "b")} == {"n2"}


@pytest.mark.parametrize("seconds", [0.0, LEFT_S - LOOK_S], ids=["at a start", "soon after"])
def test_a_node_whose_plugin_may_still_be_seen_is_not_closed(seconds):
    world = hami_world(hamis("n1"), running=["other"])
    world.passes(seconds)
    assert closed(world) == set()


def test_a_rollout_of_the_plugin_closes_no_node():
    world = hami_world(hamis("n1"), hamis("n2"), running=["n1", "n2"])
    world.passes(1000.0)
    for name in ("n1", "n2"):
        goes_from(world, name)
        world.passes(LEFT_S - LOOK_S)
        assert closed(world) == set()
        world.shows(hamis_plugin(name, ready=False))
        world.passes(LEFT_S - LOOK_S)
        world.shows(hamis_plugin(name))
        world.passes(LEFT_S + LOOK_S)
    assert closed(world) == set()


@pytest.mark.parametrize(
    "other",
    [
        None,
        hamis_plugin("other", namespace="hami-system"),
        hamis_plugin("other", owner="", service_account="default"),
        plugin(node_name="other"),
    ],
    ids=["none", "another namespace", "a static pod", "another protocol's"],
)
def test_where_hamis_plugin_is_seen_nowhere_no_node_is_closed(other):
    world = World(hamis("n1"))
    if other is not None:
        world.shows(other)
    world.passes(LEFT_S + LOOK_S)
    world.adds(share("a"))
    assert place_of(world, "a") == "n1"


def test_once_it_is_seen_nowhere_any_more_the_nodes_open():
    world = hami_world(hamis("n1"), running=["other"])
    world.passes(LEFT_S + LOOK_S)
    assert closed(world) == {"n1"}
    goes_from(world, "other")
    world.passes(LOOK_S)
    assert closed(world) == set()


def test_nodes_of_other_protocols_need_no_plugin_of_hamis():
    world = hami_world(node("n1"), hamis("n2", annotations={}, allocatable=2), running=["other"])
    world.shows(plugin(node_name="other"))
    world.passes(LEFT_S + LOOK_S)
    assert [state.closed for state in world.ledger.states.values()] == [{}, {}]
    assert unusable(world) == []


def test_a_restart_of_the_other_plugin_opens_nothing():
    world = hami_world(hamis("n1"), running=["other"])
    world.passes(LEFT_S + LOOK_S)
    world.scheduler.nodes.changed(hamis("n1", allocatable=0, version="2"))
    world.passes(1.0)
    world.scheduler.nodes.changed(hamis("n1", version="3"))
    world.passes(1.0)
    assert closed(world) == {"n1"}


def test_the_commands_that_are_told_leave_the_node_to_nvidias_plugin():
    world = hami_world(hamis("n1"), running=["other"])
    world.passes(LEFT_S + LOOK_S)
    world.scheduler.nodes.changed(hamis("n1", annotations={}, labels={}, allocatable=2, version="2"))
    assert world.scheduler.nodes.complaints == {}
    assert closed(world) == set()
    world.adds(pod("a", limits={"nvidia.com/gpu": "1"}))
    assert [bind.node for bind in world.binds()] == ["n1"]


def test_a_node_that_is_gone_leaves_nothing():
    world = hami_world(hamis("n1"), running=["n1", "other"])
    world.scheduler.nodes.gone(NodeName("n1"))
    goes_from(world, "n1")
    world.passes(LEFT_S + LOOK_S)
    assert world.scheduler.cluster.handoff.plugins.left == set()
    world.scheduler.nodes.changed(hamis("n1", version="9"))
    world.passes(1.0)
    assert closed(world) == set()
