"""Pods of a lower priority are asked to leave for who finds no room, and what becomes free is kept for it."""

from typing import Any

import pytest

from controller.actions import Announce, Preempt, Unnominate
from core.groups import GroupKey, GroupKind, GroupSpec, NetworkTopology, QueueSpec
from core.model import NodeConstraints, Phase, Requirement
from core.wire.disruptions import DisruptionBudget
from tests.support.worlds.world import NUMBER, World, node, pod

MIB = 10_000
GROUP = "scheduling.k8s.io/group-name"
ON: dict[str, Any] = {"preemption": True, "preemption_delay_s": 30.0, "preemption_wait_s": 100.0}


def placed(found):
    """Who is placed, once a second has passed."""
    found.passes(1.0)
    return found.placed().keys()


def world(*nodes, budgets=(), **settings):
    found = World(*(nodes or (node("n1"),)), **{**ON, **settings})
    found.has_no_kind()
    found.scheduler.cluster.occupants.budgets_replaced(budgets)
    return found


def full(found, *names, **fields):
    """Fill cards with pods of priority 0."""
    for name in names:
        found.adds(pod(name, memory=MIB, **fields))
        found.placed()


def asks(found):
    """Who is asked to leave now, by who they leave for."""
    asked = found.actions(Preempt)
    return {one.nomination.removeprefix("uid-"): [target.name for target, _ in one.victims] for one in asked}


def leaves(found, name):
    found.shows(found.seen(name), deleting=True)


def waits(found, seconds=31.0):
    found.plan()
    found.passes(seconds)


def test_after_the_delay_others_are_asked_to_leave_and_their_room_is_kept():
    found = world()
    full(found, "low")
    found.adds(pod("high", memory=MIB, priority=10))
    found.plan()
    found.passes(29.0)
    assert not found.actions(Preempt)
    found.passes(2.0)
    (action,) = found.actions(Preempt)
    assert [(target.name, where) for target, where in action.nominated] == [("high", "n1")]
    assert [(target.name, target.namespace, where) for target, where in action.victims] == [("low", "default", "n1")]
    assert found.wait("high").message.startswith("CS515 1 pod of a lower priority is being evicted from node n1")
    assert "Preempting" in {one.reason for one in found.announced()}
    found.scheduler.preempting.asked(action.nomination)
    leaves(found, "low")
    found.passes(50.0)
    # Nobody who comes after it takes the room; who comes before it does.
    found.adds(pod("between", memory=MIB, priority=5))
    found.gone("low")
    assert placed(found) == {"high"}
    found.passes(1.0)
    assert not len(found.scheduler.reservations.nominations)
    assert found.metrics.preemptions.labels("placed")._value.get() == 1


def test_for_many_at_once_room_is_made_within_seconds():
    many = 40
    found = world(*(node(f"n{at:02d}") for at in range(many)))
    full(found, *(f"low{at:02d}" for at in range(many)))
    for at in range(many):
        found.adds(pod(f"high{at:02d}", memory=MIB, priority=10))
    waits(found)
    for _ in range(many):
        found.passes(0.02)
    asked = asks(found)
    assert len(asked) == many
    assert sorted(name for names in asked.values() for name in names) == [f"low{at:02d}" for at in range(many)]


def test_nobody_leaves_for_a_pod_that_fits_beside_the_one_for_whom_another_leaves():
    found = world(*(node(f"n{at}", cards=4) for at in range(3)))
    full(found, *(f"low-{at}" for at in range(3)), number=4)
    found.adds(*(pod(f"high-{at}", memory=MIB, priority=10) for at in range(6)))
    waits(found)
    for _ in range(10):
        found.passes(0.1)
    asked = asks(found)
    assert {name: names for name, names in asked.items() if names} == {"high-0": ["low-0"], "high-4": ["low-1"]}
    assert len(asked) == 6
    for name in asked:
        found.scheduler.preempting.asked(f"uid-{name}")
    for at in range(2):
        leaves(found, f"low-{at}")
        found.gone(f"low-{at}")
    # Whoever comes first goes first; then the others are placed beside it.
    for _ in range(6):
        placed(found)
    assert {f"high-{at}" for at in range(6)} <= {one.name for one in found.pods.values() if one.node_name}
    assert asks(found) == {}
    assert not len(found.scheduler.reservations.nominations)


def test_another_leaves_for_a_pod_that_waited_in_vain_for_what_others_left():
    found = world(node("n1", cards=2), node("n2", cards=2))
    full(found, "low-0", "low-1", number=2)
    found.adds(*(pod(f"high-{at}", memory=MIB, priority=10) for at in range(2)))
    waits(found)
    found.passes(0.1)
    assert asks(found) == {"high-0": ["low-0"], "high-1": []}
    for at in range(2):
        found.scheduler.preempting.asked(f"uid-high-{at}")
    leaves(found, "low-0")
    found.adds(pod("higher", memory=MIB, priority=20))
    found.plan()
    found.gone("low-0")
    assert placed(found) == {"low-1", "higher", "high-0"}
    for _ in range(8):
        found.passes(1.0)
    assert asks(found) == {"high-1": ["low-1"]}


def test_a_pod_before_it_takes_the_room():
    found = world()
    full(found, "low")
    found.adds(pod("high", memory=MIB, priority=10))
    waits(found)
    found.scheduler.preempting.asked("uid-high")
    leaves(found, "low")
    found.adds(pod("higher", memory=MIB, priority=20))
    found.plan()
    found.gone("low")
    assert placed(found) == {"higher"}
    found.passes(6.0)
    assert not len(found.scheduler.reservations.nominations)
    assert [one.pod.name for one in found.actions(Unnominate)] == ["high"]


def test_no_nodes_are_kept_free_for_another_where_others_are_leaving():
    """Else they leave in vain: who comes first needs more, and who they leave for may not go there any more."""
    found = world(node("n1", cards=2), node("small", memory=500), keep_free_after_s=35.0, keep_free_for_s=500.0)
    full(found, "low-0", "low-1")
    found.adds(pod("large", memory=MIB, number=2, priority=10, preempts=False), pod("high", memory=MIB, priority=5))
    waits(found)
    (leaving,) = asks(found)["high"]
    found.scheduler.preempting.asked("uid-high")
    leaves(found, leaving)
    found.adds(pod("after-it", memory=500))
    assert "after-it" in placed(found)
    found.passes(10.0)
    found.gone(leaving)
    assert "high" in placed(found)
    # Later they are.
    found.passes(1.0)
    found.passes(40.0)
    assert found.scheduler.reservations.keeping_free.kept is not None


def test_lower_pods_do_not_take_what_others_left_for_a_higher_one():
    """Without the nomination, the room of the first victim would go to whoever asks for as little."""
    found = world(node("n1", cards=2))
    full(found, "low-0", "low-1")
    found.adds(pod("high", memory=MIB, number=2, priority=10))
    waits(found)
    assert asks(found) == {"high": ["low-0", "low-1"]}
    found.scheduler.preempting.asked("uid-high")
    leaves(found, "low-0")
    leaves(found, "low-1")
    found.gone("low-0")
    found.adds(pod("small", memory=MIB))
    assert placed(found) == {"low-1"}
    found.gone("low-1")
    assert placed(found) == {"high"}


@pytest.mark.parametrize(
    ("high", "low", "settings"),
    [
        ({"priority": 10}, {}, {"preemption": False}),
        ({"priority": 10, "preempts": False}, {}, {}),
        ({"priority": 0}, {}, {}),
        ({"priority": 10}, {"priority": 10}, {}),
        ({"priority": 2_000_000_001}, {"priority": 2_000_000_000}, {}),
        ({"priority": 10}, {"namespace": "kube-system"}, {}),
        ({"priority": 10}, {"annotations": {"kubernetes.io/config.mirror": "x"}}, {}),
    ],
)
def test_who_does_not_leave(high, low, settings):
    found = world(**settings)
    full(found, "low", **low)
    found.adds(pod("high", memory=MIB, **high))
    waits(found)
    found.passes(100.0)
    assert not found.actions(Preempt)


def test_nobody_leaves_before_disruption_budgets_are_known():
    found = world()
    found.scheduler.cluster.occupants.forget_budgets()
    full(found, "low")
    found.adds(pod("high", memory=MIB, priority=10))
    waits(found)
    assert not found.actions(Preempt)
    found.scheduler.cluster.occupants.budgets_replaced(())
    found.passes(1.0)
    assert asks(found) == {"high": ["low"]}


def test_a_budget_sends_it_elsewhere_and_a_refused_eviction_does_too():
    app = {"app": "x"}
    selector = (Requirement(key="app", operator="In", values=("x",)),)
    found = world(node("n1"), node("n2"), budgets=[DisruptionBudget("default", "b", selector)])
    full(found, "guarded", labels=app)
    full(found, "free", priority=1)
    found.adds(pod("high", memory=MIB, priority=10))
    waits(found)
    assert asks(found) == {"high": ["free"]}
    # The API server knows of a budget that we do not.
    found.scheduler.preempting.refused("uid-high", "uid-free", 0.0)
    assert [one.pod.name for one in found.actions(Unnominate)] == ["high"]
    found.passes(1.0)
    assert asks(found) == {"high": ["guarded"]}
    found.scheduler.preempting.refused("uid-high", "uid-guarded", 0.0)
    found.passes(10.0)
    assert asks(found) == {}
    found.passes(100.0)
    assert asks(found) == {"high": ["free"]}


def test_a_victim_that_never_goes_is_given_up_and_not_counted_on_again():
    found = world(node("n1"), node("n2"))
    full(found, "a", "b")
    found.adds(pod("high", memory=MIB, priority=10))
    waits(found)
    ((_, (victim,)),) = asks(found).items()
    found.scheduler.preempting.asked("uid-high")
    leaves(found, victim)
    found.passes(99.0)
    assert len(found.scheduler.reservations.nominations) == 1
    found.passes(10.0)
    ((_, (other,)),) = asks(found).items()
    assert {victim, other} == {"a", "b"}


def test_who_is_gone_leaves_no_claim_behind():
    found = world()
    full(found, "low")
    found.adds(pod("high", memory=MIB, priority=10))
    waits(found)
    found.scheduler.preempting.asked("uid-high")
    leaves(found, "low")
    found.gone("high")
    found.adds(pod("other", memory=MIB))
    found.passes(1.0)
    found.gone("low")
    assert placed(found) == {"other"}


def test_switched_off_nothing_is_kept():
    found = world()
    full(found, "low")
    found.adds(pod("high", memory=MIB, priority=10))
    waits(found)
    found.configures()
    found.passes(1.0)
    assert not len(found.scheduler.reservations.nominations)


def test_another_process_goes_on_keeping_the_room():
    found = world()
    held = {"volcano.sh/vgpu-ids-new": "n1-0,NVIDIA,10000,0:"}
    found.adds(pod("low", memory=MIB, node_name="n1", annotations=held))
    found.shows(found.seen("low"), deleting=True, phase=Phase.RUNNING, started=True)
    found.adds(pod("high", memory=MIB, priority=10, nominated_node="n1"))
    found.adds(pod("small", memory=1000))
    found.plan()
    found.passes(1.0)
    assert found.wait("high").message.startswith("CS515 pods of a lower priority were evicted from node n1")
    found.passes(50.0)
    found.gone("low")
    assert placed(found) == {"high"}
    assert not found.actions(Preempt)


def test_another_process_has_nobody_else_leave_for_a_gang_of_which_some_have_their_room():
    """The third of the gang is more than its minimum: no room is made for it."""
    found = world(*(node(f"n{at}") for at in range(1, 6)))
    key = GroupKey(GroupKind.VOLCANO, "default", "new")
    found.groups_are(GroupSpec(key=key, uid="g", resource_version="1", min_member=2))
    for at in range(1, 6):
        held = {"volcano.sh/vgpu-ids-new": f"n{at}-0,NVIDIA,10000,0:"}
        found.adds(pod(f"low-{at}", memory=MIB, node_name=f"n{at}", annotations=held))
        found.shows(found.seen(f"low-{at}"), deleting=at < 3, phase=Phase.RUNNING, started=True)
    gang: dict[str, Any] = {"memory": MIB, "priority": 10, "annotations": {GROUP: "new"}}
    found.adds(*(pod(f"new-{at}", nominated_node=f"n{at}" if at < 3 else "", **gang) for at in range(1, 4)))
    waits(found)
    for _ in range(5):
        found.passes(1.0)
    assert asks(found) == {}
    for at in range(1, 3):
        found.gone(f"low-{at}")
    assert {"new-1", "new-2"} <= placed(found)


def test_a_claim_of_before_without_anybody_leaving_ends():
    found = world()
    full(found, "low")
    found.adds(pod("high", memory=MIB, priority=10, nominated_node="n1"))
    found.plan()
    for _ in range(7):
        found.passes(1.0)
    assert not len(found.scheduler.reservations.nominations)
    assert [one.pod.name for one in found.actions(Unnominate)] == ["high"]


def test_a_gang_has_room_made_on_several_nodes_and_a_gang_leaves_whole():
    found = world(node("n1"), node("n2"), node("n3"))
    keys = [GroupKey(GroupKind.VOLCANO, "default", name) for name in ("old", "new")]
    found.groups_are(*(GroupSpec(key=key, uid=key.name, resource_version="1", min_member=2) for key in keys))
    found.adds(*(pod(f"old-{at}", memory=MIB, annotations={GROUP: "old"}) for at in range(2)))
    found.placed()
    found.adds(pod("one", memory=MIB, priority=1))
    found.placed()
    found.adds(*(pod(f"new-{at}", memory=MIB, priority=10, annotations={GROUP: "new"}) for at in range(2)))
    waits(found)
    (action,) = found.actions(Preempt)
    assert sorted(target.name for target, _ in action.victims) == ["old-0", "old-1"]
    assert sorted(target.name for target, _ in action.nominated) == ["new-0", "new-1"]
    assert {found.wait(f"new-{at}").cause.code for at in range(2)} == {"CS515"}
    found.scheduler.preempting.asked(action.nomination)
    for at in range(2):
        leaves(found, f"old-{at}")
    found.passes(1.0)
    found.gone("old-0")
    found.adds(pod("small", memory=MIB))
    assert "small" not in placed(found)
    found.gone("old-1")
    assert {"new-0", "new-1"} <= placed(found)
    assert [one for one in found.actions(Announce) if one.reason == "Preempting"]


def queued(found, *members, cards, least=1):
    """Show a group for each of *members* in one queue, which may hold *cards*."""
    keys = [GroupKey(GroupKind.VOLCANO, "default", name) for name in members]
    specs = [GroupSpec(key=key, uid=key.name, resource_version="1", min_member=least, queue="team") for key in keys]
    found.groups_are(*specs, queues=[QueueSpec(name="team", capability={NUMBER: cards})])


def test_nobody_leaves_for_a_pod_whose_queue_has_no_room_for_it_then():
    found = world(node("n1"), node("n2"))
    queued(found, "g", cards=1)
    found.adds(pod("mine", memory=MIB, priority=10, annotations={GROUP: "g"}))
    found.placed()
    full(found, "low")
    found.adds(pod("high", memory=MIB, priority=10, annotations={GROUP: "g"}))
    waits(found)
    found.passes(100.0)
    assert asks(found) == {}
    found.gone("mine")
    assert "high" in placed(found)


def test_a_pod_of_the_same_queue_leaves_its_part_of_that_too():
    found = world()
    queued(found, "g", cards=1)
    full(found, "low", annotations={GROUP: "g"})
    found.adds(pod("high", memory=MIB, priority=10, annotations={GROUP: "g"}))
    waits(found)
    assert asks(found) == {"high": ["low"]}
    found.scheduler.preempting.asked("uid-high")
    leaves(found, "low")
    found.gone("low")
    assert placed(found) == {"high"}


@pytest.mark.parametrize(("whose", "many"), [({}, 1), ({"annotations": {GROUP: "g"}}, 2)])
def test_nobody_leaves_for_a_pod_whose_queue_is_full_once_those_before_it_have_their_room(whose, many):
    found = world(node("n1"), node("n2"))
    queued(found, "g", cards=2 if whose else 1)
    full(found, "low-0", "low-1", **whose)
    found.adds(*(pod(f"high-{at}", memory=MIB, priority=10, annotations={GROUP: "g"}) for at in range(2)))
    waits(found)
    for _ in range(9):
        found.passes(1.0)
    assert asks(found) == {f"high-{at}": [f"low-{at}"] for at in range(many)}


def test_nobody_leaves_for_a_gang_whose_queue_others_have_filled_since():
    found = world(node("n1"), node("n2"), node("small", cards=2, memory=500))
    queued(found, "g", "others", cards=2, least=2)
    full(found, "low-0", "low-1")
    found.adds(*(pod(f"high-{at}", memory=MIB, priority=10, annotations={GROUP: "g"}) for at in range(2)))
    found.plan()
    found.passes(10.0)
    found.adds(*(pod(f"other-{at}", memory=500, priority=1, annotations={GROUP: "others"}) for at in range(2)))
    assert {"other-0", "other-1"} <= placed(found)
    waits(found)
    found.passes(100.0)
    assert asks(found) == {}


def test_the_room_is_for_who_it_was_made_for_though_another_queue_has_its_turn():
    found = world(*(node(f"n{at}") for at in range(4)))
    queued(found, "g", cards=9)
    for at in range(3):
        full(found, f"mine-{at}", priority=10, annotations={GROUP: "g"})
    full(found, "low")
    found.adds(pod("high", memory=MIB, priority=10, annotations={GROUP: "g"}))
    found.adds(*(pod(f"other-{at}", memory=MIB) for at in range(2)))
    waits(found)
    found.passes(1.0)
    assert asks(found) == {"high": ["low"]}
    found.scheduler.preempting.asked("uid-high")
    leaves(found, "low")
    for _ in range(3):
        found.passes(1.0)
    found.gone("low")
    for _ in range(10):
        found.passes(1.0)
        found.placed()
    assert "high" in found.placed()


def test_who_was_not_tried_since_all_have_left_is_not_given_up():
    found = world()
    full(found, "low")
    found.adds(pod("high", memory=MIB, priority=10), pod("other", memory=MIB))
    waits(found)
    found.scheduler.preempting.asked("uid-high")
    leaves(found, "low")
    found.passes(1.0)
    # The process had no time for anything.
    found.gone("low")
    found.now_s += 30.0
    assert placed(found) == {"high"}
    assert not found.actions(Unnominate)


@pytest.mark.parametrize(("highest", "of", "there"), [(1, "a0 a1 b0 b1 c0", {"b"}), (2, "a0 a1 b0 c0", {"a", "b"})])
def test_those_who_leave_for_a_group_with_a_topology_are_of_one_domain_where_it_is_placed_then(highest, of, there):
    # Nobody leaves from a1, whose pod is as important; rack c is too small.
    labels = [{"node": name, "rack": name[0], "block": "2" if name[0] == "c" else "1"} for name in of.split()]
    found = world(*(node(one["node"], labels=one) for one in labels), network_tiers=("rack", "block"))
    for name in of.split():
        there_alone = NodeConstraints(selector=(("node", name),))
        found.adds(pod(f"on-{name}", memory=MIB, priority=10 * (name == "a1"), constraints=there_alone))
        found.placed()
    key, topology = GroupKey(GroupKind.VOLCANO, "default", "g"), NetworkTopology(hard=True, highest=highest)
    found.groups_are(GroupSpec(key=key, uid="u", min_member=2, network_topology=topology))
    found.adds(*(pod(f"g{at}", memory=MIB, priority=10, annotations={GROUP: "g"}) for at in range(2)))
    waits(found)
    ((first, victims),) = asks(found).items()
    assert {name.removeprefix("on-")[0] for name in victims} == there
    found.scheduler.preempting.asked(f"uid-{first}")
    for name in victims:
        leaves(found, name)
        found.gone(name)
    found.passes(1.0)
    assert {str(found.ledger.node_of(found.seen(f"g{at}").uid))[0] for at in range(2)} == there
