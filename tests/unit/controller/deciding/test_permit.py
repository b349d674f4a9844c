"""Who waits for a turn: nobody who was sent, each in turn for a shorter line, and everybody told what is true now."""

from dataclasses import replace

import pytest

from core.groups import GroupSpec, NetworkTopology, SubGroups
from core.model import GroupKey, GroupKind, NodeConstraints, NodeName, Phase, PodUid
from core.settings import Policy
from core.waiting import Cause
from tests.support.worlds.world import World, node, on, pod

GANG = {"scheduling.k8s.io/group-name": "g", "scheduling.volcano.sh/group-min-member": "3"}
ZONE_A = NodeConstraints(selector=(("zone", "a"),))


@pytest.fixture
def sent_late():
    """Of a gang without cards, more members than Bindings may be in flight: the third waited, and is sent."""
    world = World(node("n1"), bind_in_flight_max=2)
    world.has_no_kind()
    world.adds(*[pod(f"m{at}", limits={"cpu": "1"}, annotations=GANG) for at in range(3)])
    first, second = world.binds()
    world.accepts(first)
    assert len(world.binds()) == 1
    world.accepts(second)
    return world


def one_is_served(world, **changes):
    """Something ends on the node, so that its line is looked at; its node *changes* before."""
    world.adds(pod("x"))
    (bind,) = world.binds()
    world.accepts(bind)
    if changes:
        world.scheduler.nodes.changed(node("n1", version="2", **changes))
    world.serves("x")
    world.plan()


def test_a_pod_without_cards_that_was_sent_waits_in_no_line(sent_late):
    assert sent_late.scheduler.cluster.handoff.waiting == 0
    one_is_served(sent_late)
    assert sent_late.stage("m2") == "binding"


def test_nothing_of_a_pod_without_cards_that_was_sent_is_taken_back(sent_late):
    one_is_served(sent_late, unschedulable=True)
    assert "uid-m2" in sent_late.holders("n1")


# ---------------------------------------------------------------------- nodes that change


def lined_up(*names, **fields):
    """Two nodes where *names*, one on each, wait for a turn behind a pod that is not served yet; and where each is."""
    world = World(*(node(name, labels={"name": name}) for name in ("n1", "n2")))
    world.has_no_kind()
    world.adds(*(pod(f"before-{name}", constraints=on(name)) for name in ("n1", "n2")))
    for bind in world.binds():
        world.accepts(bind)
    world.adds(*(pod(name, memory=8_000, **fields) for name in names))
    world.plan()
    assert {world.stage(name) for name in names} == {"turn"}
    return world, {world.ledger.node_of(PodUid(f"uid-{name}")): name for name in names}


def loses(world, name, how):
    if how == "gone":
        world.scheduler.nodes.gone(NodeName(name))
    else:
        world.scheduler.nodes.changed(node(name, version="2", labels={"name": name}, unschedulable=True))


@pytest.mark.parametrize("how", ["cordoned", "gone"])
def test_a_pod_in_the_line_of_a_node_that_takes_it_no_more_goes_elsewhere_at_once(how):
    world, where = lined_up("p")
    (before,) = where
    loses(world, before, how)
    world.plan()
    assert world.stage("p") == "turn"
    assert world.ledger.node_of(PodUid("uid-p")) != before


@pytest.mark.parametrize("how", ["cordoned", "gone"])
@pytest.mark.parametrize("least", [2, 1])
def test_no_member_of_a_gang_is_bound_while_too_few_have_a_place(how, least):
    group = {**GANG, "scheduling.volcano.sh/group-min-member": "2"}
    world, where = lined_up("m0", "m1", annotations=group)
    world.groups_are(GroupSpec(key=GroupKey(GroupKind.VOLCANO, "default", "g"), uid="uid-g", min_member=least))
    loses(world, "n1", how)
    world.plan()
    world.serves("before-n2")
    world.passes(1.0)
    assert [bind.pod.name for bind in world.binds()] == ([where["n2"]] if least == 1 else [])


# ---------------------------------------------------------------------- long lines


def crowd(policy, count=80):
    """So many wait that can go nowhere else, on one node."""
    world = World(node("a1", cards=8, slots=100, labels={"zone": "a"}), policy=policy)
    world.has_no_kind()
    world.adds(*[pod(f"p{at:03d}", memory=10, constraints=ZONE_A, created_s=at) for at in range(count)])
    return world


def lives(world, seconds, serves_s=20.0):
    """Time passes; the plugin serves one pod every *serves_s*."""
    flying = []
    for step in range(int(seconds / 0.25)):
        for bind in world.binds():
            world.accepts(bind)
            flying.append(bind.pod.name)
        world.now_s += 0.25
        if step % int(serves_s / 0.25) == 0 and flying:
            world.serves(flying.pop(0))
    world.plan()


def test_a_pod_at_the_end_of_a_long_line_goes_to_a_node_that_comes_to_be_idle():
    world = crowd(Policy.SPREAD)
    lives(world, 5)
    world.adds(pod("x", memory=10, created_s=1000))
    lives(world, 10)
    assert world.stage("x") == "turn"
    world.scheduler.nodes.changed(node("b1", cards=8, slots=100, labels={"zone": "b"}))
    lives(world, 60)
    assert world.stage("x") == "none"


@pytest.mark.parametrize("policy", [Policy.SPREAD, Policy.BINPACK])
def test_everybody_in_a_long_line_is_told_why(policy):
    world = crowd(policy)
    lives(world, 30)
    waiting = [entry for entry in world.scheduler.cluster.queue if entry.stage.value == "turn"]
    assert len(waiting) > 64
    assert [entry.pod.name for entry in waiting if entry.wait is None] == []


@pytest.mark.parametrize("policy", [Policy.SPREAD, Policy.BINPACK, Policy.PACK])
@pytest.mark.parametrize("of_subgroup", [False, True])
def test_members_that_must_be_near_each_other_leave_no_long_line_for_another_domain(policy, of_subgroup):
    racks = [node(f"{rack}1", cards=8, slots=100, labels={"rack": rack}) for rack in "ab"]
    world = World(*racks, policy=policy, network_tiers=("rack",))
    near = NetworkTopology(hard=True, highest=1)
    key = GroupKey(GroupKind.VOLCANO, "default", "g")
    found = GroupSpec(key=key, uid="uid-g", min_member=12)
    if of_subgroup:
        found = replace(found, sub_groups=(SubGroups(name="w", size=12, network_topology=near),))
    world.groups_are(found if of_subgroup else replace(found, network_topology=near))
    group = {"scheduling.k8s.io/group-name": "g"}
    world.adds(*[pod(f"g{at:02d}", memory=10, annotations=group) for at in range(12)])
    lives(world, 40)
    assert len({world.ledger.node_of(one.uid) for one in world.pods.values()}) == 1


# ---------------------------------------------------------------------- a node that rests


def turned_away(world, name):
    """The kubelet turns a pod away, and what is to be cleared of it is."""
    reason, words = "UnexpectedAdmissionError", "no healthy devices present"
    world.shows(world.seen(name), phase=Phase.FAILED, status_reason=reason, status_message=words)
    for clear in world.clears():
        found = world.pods[clear.pod.uid]
        world.shows(found, annotations={**found.annotations, **clear.annotations})
        world.scheduler.cleared(clear.pod.uid, done=True)


def binds_in_time(world):
    while not (binds := world.binds()):
        world.passes(1.0)
    return binds


def resting(times):
    """A node that turned away so many pods in a row: it rests 5 s, then twice as long each time."""
    world = World(node("n1"))
    world.has_no_kind()
    for at in range(times):
        world.adds(pod(f"x{at}"))
        (bind,) = binds_in_time(world)
        world.accepts(bind)
        turned_away(world, f"x{at}")
    return world


def causes(world, name, seconds):
    """What a pod that waits is told, second by second."""
    found = []
    for _ in range(seconds):
        world.passes(1.0)
        entry = world.scheduler.cluster.queue.get(world.seen(name).uid)
        found.append(entry.wait.cause if entry is not None and entry.wait is not None else None)
    return found


def test_a_pod_in_line_is_told_when_its_node_comes_to_rest():
    world = resting(5)
    world.adds(pod("a"))
    (bind,) = binds_in_time(world)
    world.accepts(bind)
    world.adds(pod("b"))
    assert causes(world, "b", 20)[-1] is Cause.WAITING_FOR_TURN
    turned_away(world, "a")
    assert causes(world, "b", 10)[-1] is Cause.NODE_RESTS


def test_a_pod_in_line_is_told_when_its_node_rests_no_more():
    world = resting(3)
    world.adds(pod("a", created_s=1), pod("b", created_s=2))
    assert causes(world, "b", 18)[-1] is Cause.NODE_RESTS
    (bind,) = binds_in_time(world)
    world.accepts(bind)
    assert causes(world, "b", 10)[-1] is Cause.WAITING_FOR_TURN


@pytest.mark.parametrize("change", [{"unschedulable": True}, {"memory": 1500}], ids=["cordoned", "less memory"])
def test_a_pod_in_line_is_not_sent_to_a_node_that_does_not_take_it_any_more(change):
    world = World(node("n1", memory=10_000))
    world.adds(pod("a", memory=1000))
    (bind,) = world.binds()
    world.accepts(bind)
    world.adds(pod("b", memory=1000))
    assert world.binds() == []
    assert world.stage("b") == "turn"
    world.scheduler.nodes.changed(node("n1", version="2", **{"memory": 10_000, **change}))
    world.serves("a")
    assert world.binds() == []
    assert (world.stage("b"), world.holders("n1")) == ("refused", {"uid-a"})
