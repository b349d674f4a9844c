"""A cluster in memory: decided by the controller's scheduler, with played writes."""

from dataclasses import replace

import pytest

from controller.simulating.cluster import SimulatedCluster
from core.groups import GroupSpec
from core.model import GroupKey, GroupKind, NodeName, PodUid
from core.settings import Settings, Tables
from core.wire.policies import DisruptionBudget
from tests.support.devices.mindcluster import npu_node, npu_pod
from tests.support.worlds.world import START_UNIX_S, node, pod

N1, N2 = NodeName("n1"), NodeName("n2")


def cluster(*nodes, pods=(), **settings):
    found = SimulatedCluster(Tables(), Settings(**settings), wall_s=START_UNIX_S)
    for one in nodes:
        found.set_node(one)
    found.add_pods(pods)
    found.settle()
    return found


def owned(name, **fields):
    return pod(name, owner="ReplicaSet/serve", **fields)


def places(found):
    return {one.name: one.node_name for one in found.pods.values()}


def test_pods_are_placed_and_started():
    found = cluster(node("n1"), pods=[pod("a", memory=4000), pod("b", memory=4000), pod("c", memory=4000)])
    assert places(found) == {"a": "n1", "b": "n1", "c": ""}
    assert all(one.started for one in found.pods.values() if one.node_name)
    assert found.scheduler.cluster.ledger.node_of(PodUid("uid-c")) is None


def test_drained_pods_go_elsewhere_and_keep_their_names():
    found = cluster(node("n1"), pods=[owned("a", memory=4000), owned("b", memory=8000), pod("alone", memory=1000)])
    was = places(found)
    found.set_node(node("n2", memory=10_000))
    found.drain(N1)
    found.settle()
    assert was == {"a": "n1", "b": "", "alone": "n1"}
    assert {one.name: one.node_name for one in found.pods.values()} == {"a": "n2", "b": ""} or places(found)[
        "b"
    ] == "n2"
    assert [one.name for one in found.ended.values()] == ["alone"]
    assert found.replaced.keys() == {PodUid("uid-a")}


def test_pods_of_daemon_sets_stay_on_a_drained_node_and_leave_with_a_removed_one():
    of_node = pod("agent", memory=1000, owner="DaemonSet/agent")
    found = cluster(node("n1"), pods=[of_node])
    found.drain(N1)
    found.settle()
    assert places(found) == {"agent": "n1"}
    found.remove_node(N1)
    found.settle()
    assert places(found) == {}
    assert found.replaced == {}


def test_the_assignment_of_a_pod_is_not_that_of_its_successor():
    found = cluster(node("n1"), pods=[owned("a")])
    found.drain(N1)
    found.settle()
    (waiting,) = found.pods.values()
    assert waiting.annotations == {}
    assert not waiting.started


def test_a_gang_is_placed_as_a_whole_or_not_at_all():
    found = cluster(node("n1", cards=2))
    key = GroupKey(GroupKind.VOLCANO, "default", "g")
    found.scheduler.cluster.groups.queues_replaced((), served=True)
    found.add_group(GroupSpec(key=key, uid="g", min_member=3))
    member = {"scheduling.k8s.io/group-name": "g"}
    found.add_pods(pod(f"m{at}", memory=10_000, annotations=member) for at in range(3))
    found.settle()
    assert set(places(found).values()) == {""}
    found.set_node(node("n2"))
    found.settle()
    assert "" not in places(found).values()


def budgets(found, *, allowed):
    found.scheduler.cluster.occupants.budgets_replaced([DisruptionBudget("default", "all", (), allowed)])


@pytest.mark.parametrize("allowed", [0, 1])
def test_victims_leave_within_their_disruption_budgets(allowed):
    found = cluster(node("n1"), pods=[owned("low", memory=8000)], preemption=True)
    budgets(found, allowed=allowed)
    found.add_pods([pod("high", memory=8000, priority=10)])
    found.settle()
    assert places(found) == ({"high": "n1", "low": ""} if allowed else {"high": "", "low": "n1"})
    assert list(found.preempted) == ([PodUid("uid-low")] if allowed else [])


def test_the_device_plugin_of_mindcluster_reports_each_slice_so_that_the_next_follows():
    found = cluster(npu_node(chips=1))
    found.add_pods(npu_pod(2, name=name, scheduler_name="cardshare", resource_version="1") for name in "abcde")
    found.settle()
    assert sorted(places(found).values()) == ["", *["node-a"] * 4]


def test_what_was_in_progress_is_completed():
    found = cluster(node("n1"))
    bound = pod("bound", memory=8000, node_name="n1", annotations=_assigned("n1-0", 8000))
    found.add_pods([bound, pod("leaving", memory=2000, deleting=True, node_name="n1"), pod("next", memory=9000)])
    found.begin()
    found.settle()
    assert found.pods[PodUid("uid-bound")].started
    assert places(found) == {"bound": "n1", "next": ""}


def _assigned(card, memory):
    return {
        "volcano.sh/vgpu-node": "n1",
        "volcano.sh/vgpu-time": "1",
        "volcano.sh/vgpu-ids-new": f"{card},NVIDIA,{memory},0:",
        "volcano.sh/devices-to-allocate": f"{card},NVIDIA,{memory},0:",
        "volcano.sh/bind-phase": "allocating",
    }


def test_a_cordoned_node_takes_pods_again():
    found = cluster(node("n1"))
    found.cordon(N1)
    found.add_pods([pod("a")])
    found.settle()
    assert places(found) == {"a": ""}
    found.uncordon(N1)
    found.settle()
    assert places(found) == {"a": "n1"}


def test_no_node_is_changed_that_does_not_exist():
    found = cluster(node("n1"))
    for change in (found.cordon, found.uncordon, found.drain, found.remove_node):
        with pytest.raises(LookupError, match="n2"):
            change(N2)


def test_locks_of_nodes_are_taken_and_released():
    found = cluster(replace(node("n1"), annotations={**node("n1").annotations}), node_lock=True)
    found.add_pods([pod("a"), pod("b")])
    found.settle()
    assert set(places(found).values()) == {"n1"}
    here = found.node(N1)
    assert here is not None
    assert not [key for key in here.annotations if "lock" in key]
