"""Pods that mind other pods: where they go, what they are told, and what has them tried again."""

import pytest

from core.explaining import explain
from core.groups import GroupSpec, QueueSpec
from core.model import GroupKey, GroupKind, PeerTerm, PeerTerms, Requirement, Spread
from core.settings import Policy
from core.waiting import Cause
from core.wire.policies import Namespace
from tests.support.worlds.world import World, node, pod

ZONE, HOST = "zone", "kubernetes.io/hostname"


def app(name):
    return (Requirement(key="app", operator="In", values=(name,)),)


def apart(name, key=HOST, **fields):
    return PeerTerms(anti_affinity=(PeerTerm(topology_key=key, selector=app(name), **fields),))


def near(name, key=ZONE):
    return PeerTerms(affinity=(PeerTerm(topology_key=key, selector=app(name)),))


def nodes(*names):
    """Nodes of which the name's first letter is the zone."""
    return [node(name, labels={ZONE: name[0], HOST: name}) for name in names]


def there(name, where, labels, **fields):
    return pod(name, limits={}, scheduler_name="other", node_name=where, labels=labels, **fields)


def refused(world, name):
    shape = world.entry(name).shape
    assert shape is not None
    return explain.wait(explain.refused(world.ledger, shape, Policy.BINPACK))


def test_what_a_running_pod_forbids_keeps_others_off_until_it_is_gone():
    world = World(*nodes("a1", "a2"))
    world.adds(there("guard", "a1", {"app": "guard"}, peers=apart("web", ZONE)))
    world.adds(pod("p", labels={"app": "web"}), pod("q", labels={"app": "db"}))
    assert world.placed().keys() == {"guard", "q"}
    wait = refused(world, "p")
    assert wait.cause is Cause.WAITING_FOR_NODE
    assert "2 anti-affinity of another pod by zone" in wait.text
    assert "Wait until a1 shares its zone with no such pod" in wait.text
    # Another node of the zone opens by it.
    world.gone("guard")
    world.passes(0.1)
    assert "p" in world.placed()


def test_who_waits_like_others_is_read_again_when_a_running_pod_comes_to_forbid_it():
    world = World(node("a1", memory=1000, labels={ZONE: "a"}))
    world.adds(pod("first"), pod("web", labels={"app": "web"}), pod("db", labels={"app": "db"}))
    assert world.placed().keys() == {"first"}
    world.adds(there("guard", "a1", {}, peers=apart("web", ZONE)))
    world.gone("first")
    world.passes(0.1)
    assert world.placed().keys() == {"guard", "db"}
    assert "anti-affinity of another pod by zone" in refused(world, "web").text


def test_pods_that_keep_apart_go_to_different_nodes_though_none_is_shown_yet():
    world = World(*nodes("a1", "a2"))
    some = [pod(f"p{number}", labels={"app": "web"}, peers=apart("web")) for number in range(3)]
    world.adds(*some)
    assert sorted(bind.node for bind in world.binds()) == ["a1", "a2"]
    assert "2 pod anti-affinity by kubernetes.io/hostname" in refused(world, "p2").text


def test_a_new_node_helps_who_keeps_apart_by_hosts_and_not_who_does_by_zones():
    for key, cause in ((HOST, Cause.UNSCHEDULABLE), (ZONE, Cause.WAITING_FOR_NODE)):
        world = World(*nodes("a1"))
        world.adds(*[pod(f"p{number}", labels={"app": "web"}, peers=apart("web", key)) for number in range(2)])
        assert world.placed().keys() == {"p0"}
        assert refused(world, "p1").cause is cause


def test_a_pod_waits_for_the_pod_that_it_is_to_be_beside():
    world = World(*nodes("a1", "b1"))
    world.adds(pod("p", labels={"app": "web"}, peers=near("db")))
    assert world.binds() == []
    assert "2 pod affinity by zone" in refused(world, "p").text
    world.adds(there("db", "b1", {"app": "db"}))
    world.passes(0.1)
    assert [bind.node for bind in world.binds()] == ["b1"]


def test_a_pod_that_is_labelled_otherwise_may_be_what_another_waits_for():
    world = World(*nodes("a1", "b1"))
    world.adds(there("db", "b1", {"app": "cache"}), pod("p", peers=near("db")))
    assert world.binds() == []
    world.shows(world.seen("db"), labels={"app": "db"})
    world.passes(0.1)
    assert [bind.node for bind in world.binds()] == ["b1"]


def test_pods_are_spread_over_zones():
    world = World(*nodes("a1", "a2", "b1"))
    spread = PeerTerms(spread=(Spread(topology_key=ZONE, selector=app("web")),))
    world.adds(*[pod(f"p{number}", labels={"app": "web"}, peers=spread) for number in range(4)])
    assert sorted(where[0] for where in world.placed().values()) == ["a", "a", "b", "b"]
    world.scheduler.nodes.changed(node("b1", labels={ZONE: "b", HOST: "b1"}, unschedulable=True, version="2"))
    world.adds(pod("p4", labels={"app": "web"}, peers=spread), pod("p5", labels={"app": "web"}, peers=spread))
    assert world.placed()["p4"][0] == "a"
    told = refused(world, "p5").text
    assert "2 topology spread by zone" in told
    assert "1 unschedulable (cordoned)" in told
    world.gone("p4")
    world.passes(0.1)
    assert world.placed()["p5"][0] == "a"


def test_an_empty_selector_spreads_nobody():
    world = World(*nodes("a1", "b1"))
    world.adds(there("web", "a1", {"app": "web"}))
    spread = PeerTerms(spread=(Spread(topology_key=ZONE, selector=()),))
    # Of two in zone a and none in zone b a third would be too many.
    world.adds(*[pod(f"p{number}", labels={"app": "web"}, peers=spread) for number in range(3)])
    assert set(world.placed().values()) == {"a1"}


@pytest.mark.parametrize(("members", "placed"), [(2, 2), (3, 0)])
def test_members_of_a_gang_mind_those_that_are_placed_with_them(members, placed):
    world = World(*nodes("a1", "a2"))
    key = GroupKey(GroupKind.VOLCANO, "default", "g")
    world.groups_are(
        GroupSpec(key=key, uid="uid-g", resource_version="1", min_member=members), queues=[QueueSpec(name="default")]
    )
    in_group = {"scheduling.k8s.io/group-name": "g"}
    some = [
        pod(f"p{number}", labels={"app": "web"}, peers=apart("web"), annotations=in_group) for number in range(members)
    ]
    world.adds(*some)
    binds = world.binds()
    assert len({bind.node for bind in binds}) == len(binds) == placed
    world.passes(1.0)
    assert world.binds() == []


def test_a_member_that_forbids_another_of_its_gang_is_minded_in_the_same_trial():
    world = World(*nodes("a1", "a2"))
    key = GroupKey(GroupKind.VOLCANO, "default", "g")
    world.groups_are(
        GroupSpec(key=key, uid="uid-g", resource_version="1", min_member=2), queues=[QueueSpec(name="default")]
    )
    in_group = {"scheduling.k8s.io/group-name": "g"}
    world.adds(
        pod("master", labels={"app": "master"}, peers=apart("worker"), annotations=in_group, priority=1),
        pod("worker", labels={"app": "worker"}, annotations=in_group),
    )
    assert sorted(bind.node for bind in world.binds()) == ["a1", "a2"]


def test_namespaces_are_told_apart_by_their_labels():
    world = World(*nodes("a1"))
    of_team = (Requirement(key="team", operator="In", values=("x",)),)
    world.scheduler.namespaces.replaced([Namespace("default", {"team": "y"})])
    world.adds(there("guard", "a1", {}, peers=apart("web", ZONE, namespace_selector=of_team)))
    world.adds(pod("p", labels={"app": "web"}))
    assert [bind.pod.name for bind in world.binds()] == ["p"]
    world.scheduler.namespaces.put(Namespace("default", {"team": "x"}))
    world.adds(pod("q", labels={"app": "web"}))
    assert world.binds() == []
    world.scheduler.namespaces.gone(Namespace("default", {}))
    assert "anti-affinity of another pod" in refused(world, "q").text


def test_a_reserved_pod_is_not_kept_off_by_itself():
    world = World(node("a1", labels={HOST: "a1"}))
    # Two that the plugin could mistake for each other, but for a label: the second waits its turn.
    world.adds(pod("p"), pod("q", labels={"app": "web"}, peers=apart("web")))
    (first,) = world.binds()
    assert world.stage("q") == "turn"
    world.accepts(first)
    world.serves("p")
    world.passes(1.0)
    assert [bind.pod.name for bind in world.binds()] == ["q"]


def test_who_waits_its_turn_is_placed_elsewhere_once_it_is_forbidden_there():
    world = World(*nodes("a1", "b1"))
    world.scheduler.nodes.changed(node("b1", labels={ZONE: "b", HOST: "b1"}, unschedulable=True, version="2"))
    world.adds(pod("p"), pod("q", labels={"app": "web"}))
    (first,) = world.binds()
    assert world.stage("q") == "turn"
    world.scheduler.nodes.changed(node("b1", labels={ZONE: "b", HOST: "b1"}, version="3"))
    world.adds(there("guard", "a1", {}, peers=apart("web")))
    world.accepts(first)
    world.serves("p")
    world.passes(1.0)
    assert [(bind.pod.name, bind.node) for bind in world.binds()] == [("q", "b1")]


def test_room_that_another_scheduler_made_is_left_to_its_pod():
    world = World(node("a1", allocatable={"cpu": "8", "pods": "9"}))
    theirs = pod("theirs", scheduler_name="other", nominated_node="a1", limits={"cpu": "6"})
    world.adds(theirs, pod("ours", limits={"cpu": "6"}))
    assert not world.placed()
    assert "1 insufficient cpu" in refused(world, "ours").text
    assert world.audited() == []
    # It goes elsewhere, and what was kept for it is free.
    world.shows(theirs, node_name="b1", nominated_node="")
    world.passes(0.1)
    assert world.placed()["ours"] == "a1"


def test_what_was_nominated_counts_once_when_it_is_bound_and_not_at_all_when_it_is_gone():
    world = World(node("a1", allocatable={"cpu": "8", "pods": "9"}))
    theirs = pod("theirs", scheduler_name="other", nominated_node="a1", limits={"cpu": "6"})
    world.adds(theirs)
    world.shows(theirs, node_name="a1")
    world.adds(pod("small", limits={"cpu": "2"}))
    assert world.placed().keys() == {"theirs", "small"}
    world.gone("theirs")
    world.adds(pod("next", limits={"cpu": "6"}))
    assert "next" in world.placed()


def test_who_was_kept_off_is_tried_again_once_its_namespace_is_another_by_its_labels():
    world = World(*nodes("a1"))
    of_team = (Requirement(key="team", operator="In", values=("x",)),)
    world.scheduler.namespaces.replaced([Namespace("default", {"team": "x"})])
    world.adds(there("guard", "a1", {}, peers=apart("web", ZONE, namespace_selector=of_team)))
    world.adds(pod("q", labels={"app": "web"}))
    assert world.binds() == []
    world.scheduler.namespaces.put(Namespace("default", {"team": "y"}))
    world.passes(1.0)
    assert [bind.pod.name for bind in world.binds()] == ["q"]
