"""Pods of a lower priority are asked to leave for who finds no room, and what becomes free is kept for it."""

import json
from dataclasses import replace
from typing import Any

import pytest

from controller.acting.evicting import POLICY_REST_S
from controller.actions import Announce, Preempt, Target, Unnominate
from core.groups import GroupSpec, NetworkTopology, QueueSpec, SubGroups
from core.model import GroupKey, GroupKind, NodeConstraints, NodeName, Phase, PodUid, Requirement
from core.wire.policies import DisruptionBudget, ResourceQuota, decode_disruption_budget
from tests.support.worlds.world import MEMORY, NUMBER, World, node, on, pod

MIB = 10_000
GROUP = "scheduling.k8s.io/group-name"
APP_X = (Requirement(key="app", operator="In", values=("x",)),)
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


def evicting(found, name):
    """The action by which others leave for *name*, or its group."""
    (made,) = [one for one in found.scheduler.reservations.nominations if one.uid == f"uid-{name}"]
    victims = tuple((Target(uid=uid, namespace="default", name=uid), NodeName("")) for uid in made.victims)
    return Preempt(nomination=made.uid, attempt=made.attempt, nominated=(), victims=victims)


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
    assert "Preempting" not in {one.reason for one in found.announced()}
    found.scheduler.preempting.asked(action)
    assert found.wait("high").message.startswith("CS515 1 pod of a lower priority is being evicted from node n1")
    assert "Preempting" in {one.reason for one in found.announced()}
    leaves(found, "low")
    found.passes(50.0)
    # Nobody who comes after it takes the room; who comes before it does.
    found.adds(pod("between", memory=MIB, priority=5))
    found.gone("low")
    assert placed(found) == {"high"}
    found.passes(1.0)
    assert not len(found.scheduler.reservations.nominations)
    assert found.metrics.preemptions.labels("placed")._value.get() == 1


def test_for_many_room_is_made_within_seconds_though_for_few_at_once():
    many = 40
    found = world(*(node(f"n{at:02d}") for at in range(many)))
    full(found, *(f"low{at:02d}" for at in range(many)))
    for at in range(many):
        found.adds(pod(f"high{at:02d}", memory=MIB, priority=10))
    waits(found)
    asked = dict[str, list[str]]()
    for _ in range(many):
        found.passes(0.02)
        now = asks(found)
        assert len(now) <= 8
        asked |= now
        for name in now:
            found.scheduler.preempting.asked(evicting(found, name))
    assert sorted(name for names in asked.values() for name in names) == [f"low{at:02d}" for at in range(many)]


def test_an_answer_to_an_earlier_preemption_of_the_same_pods_is_none_to_the_present_one():
    found = world()
    full(found, "low")
    found.adds(pod("high", memory=MIB, priority=10))
    waits(found)
    (first,) = found.actions(Preempt)
    again = []
    for _ in range(6):
        found.passes(30.0)
        again += found.actions(Preempt)
    second = again[0]
    assert (second.nominated, second.victims) == (first.nominated, first.victims)
    found.scheduler.preempting.asked(first)
    assert found.scheduler.preempting.asking == 1
    found.scheduler.preempting.refused(first, None)
    assert not found.scheduler.preempting.needs(first)
    assert found.scheduler.preempting.needs(second)


class Slow(World):
    """Each look at the clock takes a while."""

    look_s = 0.0

    @property
    def now_s(self):
        self._now_s += self.look_s
        return self._now_s

    @now_s.setter
    def now_s(self, now_s):
        self._now_s = now_s


def test_of_very_many_asks_the_next_is_chosen_in_slices_between_which_pods_may_be_decided():
    found = Slow(node("n1"), **ON)
    found.has_no_kind()
    found.scheduler.cluster.occupants.budgets_replaced(())
    full(found, "low")
    found.adds(*(pod(f"high{at:03}", memory=MIB - at, priority=10) for at in range(500)))
    found.plan()
    found.now_s += 31.0
    found.look_s = 0.002
    preempting, looks = found.scheduler.preempting, 0
    while not (asked := asks(found)):
        if looks == 2:
            found.gone("high499")
        preempting.look(found.now_s)
        looks += 1
        assert looks < 30
    assert looks > 4
    assert asked == {"high000": ["low"]}


def test_many_searches_in_vain_do_not_hold_up_the_next():
    found = world()
    full(found, "low")
    found.adds(*(pod(f"high{at:03}", memory=MIB + 1 + at, priority=10) for at in range(100)))
    found.adds(pod("last", memory=MIB, priority=9))
    waits(found)
    for _ in range(101):
        found.passes(0.01)
    assert asks(found) == {"last": ["low"]}


def test_who_was_never_searched_for_comes_before_others_that_ask_the_same_and_were_in_vain():
    found = world(node("n1"), node("n2"))
    queued(found, "g", cards=9)
    full(found, "mine", priority=10, annotations={GROUP: "g"})
    full(found, "low", priority=5)
    # Queue g holds more than the other queue, so it comes later.
    found.adds(pod("high", memory=MIB, priority=10, annotations={GROUP: "g"}), pod("other", memory=MIB))
    found.adds(*(pod(f"large{at}", memory=MIB + 1 + at, priority=9) for at in range(3)))
    # There is time for one search a minute, and by then each former one has rested.
    for _ in range(6):
        found.passes(61.0)
    assert asks(found) == {"high": ["low"]}


def test_nobody_is_asked_while_eight_are():
    found = world(*(node(f"n{at:02d}") for at in range(12)))
    full(found, *(f"low{at:02d}" for at in range(12)))
    found.adds(*(pod(f"high{at:02d}", memory=MIB, priority=10) for at in range(12)))
    waits(found)
    for _ in range(20):
        found.passes(1.0)
    assert len(asks(found)) == 8


@pytest.mark.parametrize("many", [1, 600])
def test_a_quota_of_one_namespace_holds_up_no_pod_of_another(many):
    found = world()
    found.scheduler.cluster.budgets.quotas.replaced([ResourceQuota("team", "q", {f"limits.{MEMORY}": MIB - 1}, {})])
    full(found, "low")
    found.adds(*(pod(f"theirs{at:03d}", namespace="team", memory=MIB, priority=10) for at in range(many)))
    found.adds(pod("high", memory=MIB, priority=10))
    waits(found)
    for _ in range(5):
        found.passes(1.0)
    assert asks(found) == {"high": ["low"]}


def asked_for_high(*others):
    """A world in which one is asked to leave for *high*, on n1 of two nodes, and the action by which it is."""
    found = world(node("n1"), node("n2"))
    full(found, "low", *others)
    found.adds(pod("high", memory=MIB, priority=10))
    waits(found)
    (action,) = found.actions(Preempt)
    return found, action


@pytest.mark.parametrize("why", ["gone", "placed", "node gone", "off", "another"])
def test_nobody_else_leaves_once_the_room_is_not_needed(why):
    found, action = asked_for_high("other")
    preempting = found.scheduler.preempting
    assert preempting.needs(action)
    ended = "in_vain"
    match why:
        case "gone":
            found.gone("high")
            ended = "gone"
        case "placed":
            where = found.seen("low").node_name
            full_of = next(one.name for one in found.pods.values() if one.node_name not in ("", where))
            found.gone(full_of)
            found.binds()
            ended = "placed"
        case "node gone":
            found.scheduler.nodes.gone(NodeName(found.seen("low").node_name))
        case "off":
            found.configures()
        case "another":
            found.scheduler.preempting.refused(action, None, 0.0)
            ended = "refused"
    assert not preempting.needs(action)
    preempting.unneeded(action)
    assert not len(found.scheduler.reservations.nominations)
    assert found.metrics.preemptions.labels(ended)._value.get() == 1


def test_a_later_nomination_of_the_same_pod_is_another():
    found, first = asked_for_high("other")
    found.scheduler.preempting.refused(first, first.victims[0][0].uid, 0.0)
    found.passes(1.0)
    (second,) = found.actions(Preempt)
    preempting = found.scheduler.preempting
    preempting.unneeded(first)
    assert not preempting.needs(first)
    assert preempting.needs(second)


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
        found.scheduler.preempting.asked(evicting(found, name))
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
        found.scheduler.preempting.asked(evicting(found, f"high-{at}"))
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
    found.scheduler.preempting.asked(evicting(found, "high"))
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
    found.scheduler.preempting.asked(evicting(found, "high"))
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
    found.scheduler.preempting.asked(evicting(found, "high"))
    leaves(found, "low-0")
    leaves(found, "low-1")
    found.gone("low-0")
    found.adds(pod("small", memory=MIB))
    assert placed(found) == {"low-1"}
    found.gone("low-1")
    assert placed(found) == {"high"}


def test_who_has_room_made_does_not_take_that_of_an_equal():
    found = world(node("n0"), node("n1"))
    full(found, "low-0", "low-1")
    found.adds(*(pod(f"high-{at}", memory=MIB, priority=10) for at in range(2)))
    waits(found)
    found.passes(1.0)
    asked = asks(found)
    for name in asked:
        found.scheduler.preempting.asked(evicting(found, name))
    (second,) = asked["high-1"]
    leaves(found, second)
    where = found.seen(second).node_name
    found.gone(second)
    found.passes(1.0)
    assert found.placed() == {**found.placed(), "high-1": where}
    assert "high-0" not in found.placed()
    (first,) = asked["high-0"]
    leaves(found, first)
    found.gone(first)
    found.passes(1.0)
    assert "high-0" in found.placed()


@pytest.mark.parametrize("many", [1, 2])
def test_what_is_told_stays_while_the_others_leave_one_by_one(many):
    found = world(*(node(f"n{at}", cards=2) for at in range(2)))
    group = {}
    if many == 2:
        group = {"annotations": {GROUP: "g"}}
        found.groups_are(GroupSpec(key=GroupKey(GroupKind.VOLCANO, "default", "g"), uid="g", min_member=2))
    full(found, *(f"low-{at}" for at in range(4)))
    found.adds(*(pod(f"high-{at}", memory=MIB, number=2, priority=10, **group) for at in range(2)))
    waits(found)
    found.passes(1.0)
    for name in asks(found):
        found.scheduler.preempting.asked(evicting(found, name))
    for at in range(4):
        leaves(found, f"low-{at}")
    for at in range(3):
        found.gone(f"low-{at}")
        for _ in range(5):
            found.passes(0.1)
        waiting = [found.scheduler.cluster.queue.get(PodUid(f"uid-high-{at}")) for at in range(2)]
        assert {one.wait.cause.code for one in waiting if one is not None and one.placement is None} == {"CS515"}
    found.gone("low-3")
    assert placed(found) == {"high-0", "high-1"}


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
        ({"priority": 10}, {"annotations": {"volcano.sh/preemptable": "false"}}, {}),
        ({"priority": 10}, {"labels": {"volcano.sh/preemptable": "False"}}, {}),
    ],
)
def test_who_does_not_leave(high, low, settings):
    found = world(**settings)
    full(found, "low", **low)
    found.adds(pod("high", memory=MIB, **high))
    waits(found)
    found.passes(100.0)
    assert not found.actions(Preempt)


def test_who_is_preemptable_by_its_annotation_leaves_whatever_its_label_says():
    found = world()
    key = "volcano.sh/preemptable"
    full(found, "low", annotations={key: "true"}, labels={key: "false"})
    found.adds(pod("high", memory=MIB, priority=10))
    waits(found)
    assert asks(found) == {"high": ["low"]}


@pytest.mark.parametrize("least", [1, 2])
def test_no_member_leaves_while_its_group_stays(least):
    found = world(node("n1", cards=2))
    key = GroupKey(GroupKind.VOLCANO, "default", "g")
    group = GroupSpec(key=key, uid="g", resource_version="1", min_member=least, stays=True)
    found.groups_are(group, queues=[QueueSpec(name="default")])
    found.adds(*(pod(f"low-{at}", memory=MIB, annotations={GROUP: "g"}) for at in range(2)))
    assert len(found.placed()) == 2
    found.adds(pod("high", memory=MIB, priority=10))
    waits(found)
    found.passes(60.0)
    assert not asks(found)
    found.scheduler.cluster.groups.changed(replace(group, resource_version="2", stays=False))
    waits(found, 60.0)
    assert [len(names) for names in asks(found).values()] == [least]


@pytest.mark.parametrize(("key", "counts"), [("note", False), ("cardshare.io/avoid-cards", True)])
def test_a_pod_has_waited_since_it_last_asked_otherwise_however_often_it_is_annotated(key, counts):
    found = world()
    full(found, "low")
    high = pod("high", memory=MIB, priority=10)
    found.adds(high)
    found.plan()
    leave: dict[str, list[str]] = {}
    for at in range(20):
        found.adds(high._replace(annotations={key: str(at + 1)}, resource_version=f"2{at:02}"))
        found.plan()
        found.passes(2.0)
        leave |= asks(found)
    assert leave == ({} if counts else {"high": ["low"]})


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


def test_whom_a_budget_covers_is_told_to_who_evicts():
    found = world(node("n1", cards=2), budgets=[DisruptionBudget("default", "b", APP_X, allowed=1)])
    full(found, "guarded", labels={"app": "x"})
    full(found, "free")
    found.adds(pod("high", memory=MIB, number=2, priority=10))
    waits(found)
    (action,) = found.actions(Preempt)
    assert {target.name for target, _ in action.victims} == {"guarded", "free"}
    assert action.guarded == {"uid-guarded"}


def test_a_budget_sends_it_elsewhere_and_a_refused_eviction_does_too():
    budget = DisruptionBudget("default", "b", APP_X)
    found = world(node("n1"), node("n2"), budgets=[budget])
    full(found, "guarded", labels={"app": "x"})
    full(found, "free", priority=1)
    found.adds(pod("high", memory=MIB, priority=10))
    waits(found)
    assert asks(found) == {"high": ["free"]}
    found.scheduler.cluster.occupants.budget_changed(budget._replace(allowed=1))
    # The API server knows of a budget that we do not.
    found.scheduler.preempting.refused(evicting(found, "high"), "uid-free", 0.0)
    assert [one.pod.name for one in found.actions(Unnominate)] == ["high"]
    found.passes(1.0)
    assert asks(found) == {"high": ["guarded"]}
    found.scheduler.preempting.refused(evicting(found, "high"), "uid-guarded", 0.0)
    found.passes(10.0)
    assert asks(found) == {}
    found.passes(100.0)
    assert asks(found) == {"high": ["guarded"]}


def test_pods_that_a_policy_keeps_hide_none_that_may_leave_and_are_not_tried_again_each_second():
    names = [f"kept-{at:02d}" for at in range(40)]
    found = world(*(node(f"n-{name}") for name in (*names, "free")))
    full(found, *names)
    full(found, "free", priority=5)
    found.adds(pod("high", memory=MIB, priority=10))
    waits(found)
    tried: list[str] = []
    while "free" not in tried and len(tried) < 200:
        for action in found.actions(Preempt):
            ((victim, _),) = action.victims
            tried.append(victim.name)
            found.scheduler.preempting.refused(action, victim.uid, POLICY_REST_S)
        found.passes(1.0)
    assert tried == [*names, "free"]
    found.passes(300.0)
    assert not found.actions(Preempt)


def test_what_a_budget_forbids_is_not_tried_and_the_budget_is_named():
    budget = DisruptionBudget("default", "b", APP_X)
    found = world(node("n1"), node("n2"), node("n3"), budgets=[budget])
    full(found, "a", "b", "c", labels={"app": "x"})
    found.adds(pod("high", memory=MIB, priority=10))
    waits(found)
    found.passes(300.0)
    assert asks(found) == {}
    assert found.entry("high").wait is None
    preempting = found.scheduler.preempting
    text = (
        "To evict pods of a lower priority would help, but a disruption budget forbids it: b allows 0 of 1 eviction; "
    )
    assert preempting.denied(found.entry("high")) == text + "this is tried again."
    # As soon as the budget allows one, one is asked to leave.
    found.scheduler.cluster.occupants.budget_changed(budget._replace(allowed=1))
    found.passes(60.0)
    found.passes(1.0)
    (action,) = found.actions(Preempt)
    preempting.asked(action)
    assert "Preempting" in {one.reason for one in found.announced()}
    assert preempting.denied(found.entry("high")) == ""


def test_neither_of_two_leaves_if_their_budget_allows_only_one():
    budget = DisruptionBudget("default", "b", APP_X, allowed=1)
    found = world(node("n1", cards=2), budgets=[budget])
    full(found, "one", "two", labels={"app": "x"})
    both: dict[str, Any] = {"memory": MIB, "number": 2}
    found.adds(pod("high", priority=10, **both), pod("other", namespace="tenant", priority=9, **both))
    waits(found)
    for _ in range(100):
        found.passes(1.0)
    assert asks(found) == {}
    denied = found.scheduler.preempting.denied
    assert "forbids it: b allows 1 of 2 evictions; this" in denied(found.entry("high"))
    assert "forbids it: one of another namespace allows 1 of 2 evictions; this" in denied(found.entry("other"))
    found.scheduler.cluster.occupants.budget_changed(budget._replace(allowed=2))
    found.passes(60.0)
    found.passes(1.0)
    assert asks(found) == {"high": ["one", "two"]}


@pytest.mark.parametrize(
    ("fields", "budget"),
    [
        ({"phase": Phase.PENDING, "ready": False}, {}),
        ({"ready": False}, {"frees_unready": True}),
        ({"ready": False}, {}),
        ({}, {"frees_unready": True}),
    ],
)
def test_a_budget_that_allows_none_keeps_no_pod_that_it_does_not_count(fields, budget):
    found = world(budgets=[DisruptionBudget("default", "b", APP_X, **budget)])
    full(found, "low", labels={"app": "x"})
    found.shows(found.seen("low"), **fields)
    found.adds(pod("high", memory=MIB, priority=10))
    waits(found)
    is_freed = fields.get("phase") is Phase.PENDING or (fields and budget)
    assert asks(found) == ({"high": ["low"]} if is_freed else {})


@pytest.mark.parametrize("gang", [False, True])
def test_that_a_budget_forbids_it_is_told_no_longer_than_evictions_would_help(gang):
    found = world(node("n1", cards=2), budgets=[DisruptionBudget("default", "b", APP_X)])
    full(found, "low", labels={"app": "x"})
    full(found, "other")
    found.groups_are(gang_of(2))
    named: dict[str, Any] = {"annotations": {GROUP: "new"}} if gang else {"number": 2}
    names = ["high-0", "high-1"] if gang else ["high"]
    found.adds(*(pod(name, memory=MIB, priority=10, **named) for name in names))
    waits(found)
    denied = found.scheduler.preempting.denied
    assert all("b allows 0 of 1 eviction;" in denied(found.entry(name)) for name in names)
    found.gone("other")
    full(found, "stays", priority=20)
    for _ in range(3):
        found.passes(60.0)
    assert found.seen("stays").node_name == "n1"
    assert [denied(found.entry(name)) for name in names] == [""] * len(names)


def test_that_a_budget_forbids_it_is_told_no_longer_than_the_victim_stays():
    found = world(budgets=[DisruptionBudget("default", "b", APP_X)])
    full(found, "low", labels={"app": "x"})
    found.adds(pod("high", memory=MIB, priority=10))
    waits(found)
    assert found.scheduler.preempting.denied(found.entry("high"))
    leaves(found, "low")
    for _ in range(2):
        found.passes(60.0)
    assert found.scheduler.preempting.denied(found.entry("high")) == ""


def test_a_pod_that_several_budgets_cover_does_not_leave():
    found = world(budgets=[DisruptionBudget("default", name, APP_X, 9, frees_unready=True) for name in "bc"])
    full(found, "low", labels={"app": "x"})
    found.shows(found.seen("low"), ready=False)
    found.adds(pod("high", memory=MIB, priority=10))
    waits(found)
    assert asks(found) == {}
    text = "forbids it: b, c select the same pod, and the API server evicts no such pod; this is tried again."
    assert text in found.scheduler.preempting.denied(found.entry("high"))


def test_a_pod_with_the_name_of_one_that_was_just_evicted_is_counted_as_any_other():
    # Two minutes long a budget shows the name of an evicted pod as soon as there is a pod of that name again.
    status = {"disruptionsAllowed": 0, "disruptedPods": {"web-0": "2026-01-01T00:00:00Z"}}
    spec = {"selector": {"matchLabels": {"app": "x"}}}
    body = {"metadata": {"name": "b", "namespace": "default"}, "spec": spec, "status": status}
    found = world(node("n1"), budgets=[decode_disruption_budget(json.dumps(body).encode())])
    full(found, "web-0", labels={"app": "x"})
    found.adds(pod("high", memory=MIB, priority=10))
    waits(found)
    assert asks(found) == {}
    assert "b allows 0 of 1 eviction;" in found.scheduler.preempting.denied(found.entry("high"))


@pytest.mark.parametrize("sees_it_leave", [False, True])
def test_what_a_budget_allows_is_promised_once_until_the_eviction_shows(sees_it_leave):
    budget = DisruptionBudget("default", "b", APP_X, allowed=1)
    found = world(node("n1"), node("n2"), budgets=[budget])
    full(found, "one", "two", labels={"app": "x"})
    found.adds(pod("high", memory=MIB, priority=10), pod("next", memory=MIB, priority=9))
    waits(found)
    found.passes(1.0)
    assert asks(found) == {"high": ["one"]}
    if sees_it_leave:
        leaves(found, "one")
    else:
        found.scheduler.cluster.occupants.budget_changed(budget._replace(disrupted=frozenset({"one"})))
    found.passes(60.0)
    found.passes(1.0)
    assert asks(found) == {"next": ["two"]}


def test_a_victim_that_never_goes_is_given_up_and_not_counted_on_again():
    found = world(node("n1"), node("n2"))
    full(found, "a", "b")
    found.adds(pod("high", memory=MIB, priority=10))
    waits(found)
    ((_, (victim,)),) = asks(found).items()
    found.scheduler.preempting.asked(evicting(found, "high"))
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
    found.scheduler.preempting.asked(evicting(found, "high"))
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


@pytest.mark.parametrize("settings", [{"preemption": False}, {}], ids=["preemption off", "preemption on"])
@pytest.mark.parametrize("named", ["n1", "gone"])
def test_a_nomination_behind_which_nothing_stands_is_removed_until_that_is_seen(settings, named):
    """Another scheduler left it: Cluster Autoscaler and Karpenter add no node for such a pod."""
    found = world(**settings)
    full(found, "low")
    found.adds(pod("high", memory=MIB, nominated_node=named))
    for _ in range(7):
        found.passes(1.0)
    assert found.stage("high") == "refused"
    found.actions(Unnominate)  # whose write fails
    found.shows(found.seen("high"), scheduled_reason="Unschedulable")
    assert [one.pod.name for one in found.actions(Unnominate)] == ["high"]
    found.shows(found.seen("high"), nominated_node="")
    found.shows(found.seen("high"), scheduled_reason="WaitingForNode")
    assert not found.actions(Unnominate)


def test_a_nomination_behind_which_nothing_stands_is_removed_although_only_cardshare_writes_to_the_pod():
    """The watch's event of its own condition is passed over, so that shows no change of the pod."""
    found = world(preemption=False)
    full(found, "low")
    found.adds(pod("high", memory=MIB, nominated_node="n1"))
    found.passes(1.0)
    assert found.stage("high") == "refused"
    assert [one.pod.name for one in found.actions(Unnominate)] == ["high"]  # and that write fails
    for _ in range(3):
        found.passes(1.0)
    assert not found.actions(Unnominate)  # not with every decision
    shown = found.seen("high")
    found.scheduler.condition_written(shown.uid, "text", "why", shown.resource_version, "500")
    assert [one.pod.name for one in found.actions(Unnominate)] == ["high"]


def test_a_nomination_is_left_to_a_pod_that_is_about_to_be_placed():
    found = world(preemption=False)
    found.adds(pod("high", memory=MIB, nominated_node="n1"))
    found.shows(found.seen("high"), scheduled_reason="x")
    assert placed(found) == {"high"}
    assert not found.actions(Unnominate)


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
    found.scheduler.preempting.asked(action)
    assert {found.wait(f"new-{at}").cause.code for at in range(2)} == {"CS515"}
    found.adds(pod("old-2", memory=MIB, annotations={GROUP: "old"}))
    found.plan()
    assert "; 1 is ready, 2 more are leaving. Create 1 more" in found.wait("old-2").text
    found.scheduler.preempting.asked(action)
    for at in range(2):
        leaves(found, f"old-{at}")
    found.passes(1.0)
    found.gone("old-0")
    found.adds(pod("small", memory=MIB))
    assert "small" not in placed(found)
    found.gone("old-1")
    assert {"new-0", "new-1"} <= placed(found)
    assert [one for one in found.actions(Announce) if one.reason == "Preempting"]


@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize(("least", "is_needed"), [(2, False), (1, True)])
def test_nobody_else_leaves_for_a_gang_that_has_lost_a_member_it_needs(least, is_needed, is_there):
    found = world(node("n1"), node("n2"))
    full(found, "low-1", "low-2")
    key = GroupKey(GroupKind.VOLCANO, "default", "new")
    found.groups_are(GroupSpec(key=key, uid="new", resource_version="1", min_member=least + 1))
    found.adds(*(pod(f"new-{at}", memory=MIB // 2, priority=10, annotations={GROUP: "new"}) for at in range(3)))
    waits(found)
    (action,) = found.actions(Preempt)
    preempting = found.scheduler.preempting
    assert preempting.needs(action)
    if is_there:  # but invalid
        found.shows(found.seen("new-0"), annotations={GROUP: "new", "volcano.sh/vgpu-mode": "none"})
    else:
        found.gone("new-0")
    assert preempting.needs(action) is is_needed
    if not is_needed:
        preempting.unneeded(action)
        assert not len(found.scheduler.reservations.nominations)
        assert found.metrics.preemptions.labels("gone")._value.get() == 1


@pytest.mark.parametrize(("least", "is_needed"), [(2, False), (1, True)])
@pytest.mark.parametrize("how", ["gone", "failed", "leaving"])
def test_nobody_else_leaves_for_a_gang_that_has_lost_a_placed_member_it_needs(least, is_needed, how):
    found = world(node("n1"), node("n2"))
    full(found, "low")
    key = GroupKey(GroupKind.VOLCANO, "default", "new")
    spec = GroupSpec(key=key, uid="new", resource_version="1", min_member=1)
    found.groups_are(spec)
    found.adds(pod("new-0", memory=MIB, priority=10, annotations={GROUP: "new"}))
    found.placed()
    found.scheduler.cluster.groups.changed(replace(spec, min_member=2, resource_version="2"))
    found.adds(pod("new-1", memory=MIB, priority=10, annotations={GROUP: "new"}))
    waits(found)
    (action,) = found.actions(Preempt)
    preempting = found.scheduler.preempting
    assert preempting.needs(action)
    found.scheduler.cluster.groups.changed(replace(spec, min_member=least, resource_version="3"))
    if how == "failed":
        found.shows(found.seen("new-0"), phase=Phase.FAILED)
    elif how == "leaving":
        leaves(found, "new-0")
    else:
        found.gone("new-0", by_force=True)
    assert preempting.needs(action) is is_needed


def test_others_leave_for_a_gang_with_a_member_that_is_about_to_be_placed_again():
    found = world(node("n1"), node("n2"))
    full(found, "low")
    key = GroupKey(GroupKind.VOLCANO, "default", "new")
    spec = GroupSpec(key=key, uid="new", resource_version="1", min_member=1)
    found.groups_are(spec)
    found.adds(pod("new-0", memory=MIB, priority=10, annotations={GROUP: "new"}))
    (bind,) = found.binds()
    found.scheduler.cluster.groups.changed(replace(spec, min_member=2, resource_version="2"))
    found.adds(pod("new-1", memory=MIB, priority=10, annotations={GROUP: "new"}))
    waits(found)
    (action,) = found.actions(Preempt)
    found.scheduler.outcomes.refused(bind.pod.uid, bind.attempt, rest_s=10.0)
    assert found.stage("new-0") == "resting"
    assert found.scheduler.preempting.needs(action)


def gang_of(least, name="new", version="1"):
    key = GroupKey(GroupKind.VOLCANO, "default", name)
    return GroupSpec(key=key, uid=name, resource_version=version, min_member=least)


def test_nobody_else_leaves_for_a_subgroup_that_lost_a_member_though_one_of_another_backs_off():
    found = world(*(node(f"n{at}") for at in range(6)))
    full(found, "low-0", "low-1")
    found.groups_are(replace(gang_of(0), sub_groups=(SubGroups(name="w", keys=("part",), size=2, least=1),)))

    def adds(part):
        labels = {"part": str(part)}
        names = [f"new-{part}-{at}" for at in range(2)]
        found.adds(*(pod(name, memory=MIB, priority=10, annotations={GROUP: "new"}, labels=labels) for name in names))

    adds(0)
    found.placed()
    adds(1)
    bind, _ = found.binds()
    adds(2)
    waits(found)
    (action,) = found.actions(Preempt)
    assert {target.name for target, _ in action.nominated} == {"new-2-0", "new-2-1"}
    found.scheduler.outcomes.refused(bind.pod.uid, bind.attempt, rest_s=10.0)
    assert found.stage("new-1-0") == "resting"
    assert found.scheduler.preempting.needs(action)
    found.gone("new-2-1", by_force=True)
    assert not found.scheduler.preempting.needs(action)


@pytest.mark.parametrize("many", [2, 4])
def test_nobody_else_leaves_for_a_gang_whose_minimum_is_raised_above_the_room_that_is_made(many):
    found = world(*(node(f"n{at}") for at in range(4)))
    full(found, *(f"low-{at}" for at in range(4)))
    found.groups_are(gang_of(2))
    found.adds(*(pod(f"new-{at}", memory=MIB, priority=10, annotations={GROUP: "new"}) for at in range(many)))
    waits(found)
    (action,) = found.actions(Preempt)
    preempting = found.scheduler.preempting
    assert preempting.needs(action)
    found.scheduler.cluster.groups.changed(gang_of(4, version="2"))
    assert not preempting.needs(action)
    preempting.unneeded(action)
    assert not len(found.scheduler.reservations.nominations)
    waits(found)
    assert [len(victims) for victims in asks(found).values()] == [4] * (many == 4)


def test_others_still_leave_for_a_gang_whose_minimum_is_raised_to_those_for_whom_room_is_made():
    found = world(node("n1"), node("n2"))
    full(found, "low-1", "low-2")
    found.groups_are(gang_of(2))
    found.adds(*(pod(f"new-{at}", memory=MIB, priority=10, annotations={GROUP: "new"}) for at in range(2)))
    waits(found)
    (action,) = found.actions(Preempt)
    found.scheduler.cluster.groups.changed(gang_of(1, version="2"))
    found.scheduler.cluster.groups.changed(gang_of(2, version="3"))
    assert found.scheduler.preempting.needs(action)


def evicts_a_gang():
    """A world in which both pods of gang *old*, of which a third finds no room, are chosen to leave for *high*."""
    found = world(*(node(name, labels={"name": name}) for name in ("n1", "n2")))
    found.groups_are(gang_of(2, "old"))
    found.adds(*(pod(f"old-{at}", memory=MIB, annotations={GROUP: "old"}) for at in range(2)))
    found.placed()
    elsewhere: dict[str, Any] = {"annotations": {GROUP: "old"}, "constraints": on("n3")}
    found.adds(pod("old-2", memory=MIB, **elsewhere), pod("high", memory=MIB, priority=10, constraints=on("n1")))
    waits(found)
    (action,) = found.actions(Preempt)
    assert {target.name for target, _ in action.victims} == {"old-0", "old-1"}
    return found, action


def test_nobody_else_leaves_for_a_pod_that_fits_where_a_gang_is_chosen_to_leave():
    found, _ = evicts_a_gang()
    budget = DisruptionBudget("default", "b", (), allowed=2)
    found.scheduler.cluster.occupants.budgets_replaced([budget])
    found.adds(pod("next", memory=MIB, priority=9, constraints=on("n2")))
    waits(found)
    assert asks(found) == {}
    assert found.scheduler.preempting.denied(found.entry("next")) == ""
    for name in ("old-0", "old-1"):
        leaves(found, name)
        found.gone(name)
    assert placed(found) == {"high", "next"}


def test_no_further_member_joins_a_gang_that_is_chosen_to_leave():
    found, _ = evicts_a_gang()
    found.scheduler.nodes.changed(node("n3", labels={"name": "n3"}))
    found.passes(1.0)
    assert found.binds() == []
    assert found.wait("old-2").text.startswith("waits until 2 members of PodGroup default/old can be placed together")


def test_a_further_member_joins_a_gang_that_does_not_have_to_leave_after_all():
    found, action = evicts_a_gang()
    found.scheduler.nodes.changed(node("n3", labels={"name": "n3"}))
    found.passes(1.0)
    assert found.stage("old-2") == "held"
    found.scheduler.preempting.refused(action, PodUid("uid-old-0"), 0.0)
    assert placed(found) == {"old-0", "old-1", "old-2"}


def test_nobody_leaves_for_a_further_member_of_a_gang_that_is_chosen_to_leave():
    found = world(*(node(name, labels={"name": name}) for name in ("n1", "n2", "n3")))
    found.groups_are(gang_of(2, "old"))
    found.adds(*(pod(f"old-{at}", memory=MIB, priority=5, annotations={GROUP: "old"}) for at in range(2)))
    found.placed()
    full(found, "low")
    found.adds(pod("old-2", memory=MIB, priority=5, annotations={GROUP: "old"}))
    waits(found)
    (action,) = found.actions(Preempt)
    assert [target.name for target, _ in action.nominated] == ["old-2"]
    found.adds(pod("high", memory=MIB, priority=10, constraints=on("n1")))
    waits(found)
    (other,) = found.actions(Preempt)
    assert {target.name for target, _ in other.victims} == {"old-0", "old-1"}
    assert found.scheduler.preempting.needs(other)
    assert not found.scheduler.preempting.needs(action)


def test_preemptions_for_further_members_of_a_gang_end_when_the_gang_is_chosen_to_leave():
    found = world(*(node(name, labels={"name": name}) for name in ("n1", "n2", "n3", "n4")))
    found.groups_are(gang_of(2, "old"))
    found.adds(*(pod(f"old-{at}", memory=MIB, priority=5, annotations={GROUP: "old"}) for at in range(2)))
    found.placed()
    full(found, "low-1", "low-2")
    found.adds(*(pod(f"old-{2 + at}", memory=MIB, priority=5, annotations={GROUP: "old"}) for at in range(2)))
    waits(found)
    found.passes(3.0)
    assert {one.uid for one in found.scheduler.reservations.nominations} == {"uid-old-2", "uid-old-3"}
    found.adds(pod("high", memory=MIB, priority=10, constraints=on("n1")))
    waits(found)
    found.passes(1.0)
    assert not {"uid-old-2", "uid-old-3"} & {
        one.uid for one in found.scheduler.reservations.nominations if one.key is None
    }


@pytest.mark.parametrize("many", [1, 2])
def test_further_members_of_a_gang_that_is_chosen_to_leave_are_decided_as_a_gang_before_others_leave_for_them(many):
    found = world(*(node(name, labels={"name": name}) for name in ("n1", "n2", "n3", "n4")))
    found.groups_are(gang_of(2, "old"))
    found.adds(*(pod(f"old-{at}", memory=MIB, priority=5, annotations={GROUP: "old"}) for at in range(2)))
    found.placed()
    full(found, "low-1", "low-2")
    found.adds(*(pod(f"old-{2 + at}", memory=MIB, priority=5, annotations={GROUP: "old"}) for at in range(many)))
    found.adds(pod("high", memory=MIB, priority=10, constraints=on("n1")))
    waits(found)
    assert asks(found) == {"high": ["old-0", "old-1"]}
    for _ in range(3):
        waits(found)
    # Of two, one gets the room of a pod that leaves for another.
    assert list(asks(found).values()) == [["low-1"]] * (many == 2)
    keys = {one.uid: one.key for one in found.scheduler.reservations.nominations}
    of_group = {"uid-old-2": GroupKey(GroupKind.VOLCANO, "default", "old")}
    assert keys == {"uid-high": None} | (of_group if many == 2 else {})


def test_gangs_that_are_decided_again_because_a_quota_came_do_not_hold_up_the_next_search():
    groups = [f"gang-{at}" for at in range(4)]
    found = world(node("n1", labels={"name": "n1"}), node("n2", labels={"name": "n2"}))
    found.groups_are(*(gang_of(2, name) for name in groups))
    full(found, "first", priority=20, constraints=on("n1"))
    full(found, "low", constraints=on("n2"))
    for at, name in enumerate(groups):
        asked: dict[str, Any] = {"memory": 1 + at, "annotations": {GROUP: name}, "constraints": on("n1")}
        found.adds(*(pod(f"{name}-{part}", priority=10, **asked) for part in range(2)))
    found.adds(pod("last", memory=MIB, priority=5, constraints=on("n2")))
    waits(found, 29.0)
    found.scheduler.cluster.budgets.quotas.changed(ResourceQuota("default", "q", {f"limits.{MEMORY}": 100 * MIB}, {}))
    for _ in range(20):
        found.passes(0.1)
    assert asks(found) == {"last": ["low"]}


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
    found.scheduler.preempting.asked(evicting(found, "high"))
    leaves(found, "low")
    found.gone("low")
    assert placed(found) == {"high"}


@pytest.mark.parametrize(("cards", "leaves"), [(1, {}), (2, {"high": ["low"]})])
def test_nobody_leaves_for_a_pod_whose_namespace_has_too_little_quota(cards, leaves):
    found = world(node("n1"), node("n2"))
    found.scheduler.cluster.budgets.quotas.changed(ResourceQuota("mine", "q", {f"limits.{MEMORY}": cards * MIB}, {}))
    full(found, "own", namespace="mine", priority=10)
    full(found, "low")
    found.adds(pod("high", memory=MIB, priority=10, namespace="mine"))
    waits(found)
    for _ in range(5):
        found.passes(1.0)
    assert asks(found) == leaves


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
    found.adds(*(pod(f"other-{at}", memory=500, priority=10, annotations={GROUP: "others"}) for at in range(2)))
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
    found.scheduler.preempting.asked(evicting(found, "high"))
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
    found.scheduler.preempting.asked(evicting(found, "high"))
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
    found.scheduler.preempting.asked(evicting(found, first))
    for name in victims:
        leaves(found, name)
        found.gone(name)
    found.passes(1.0)
    assert {str(found.ledger.node_of(found.seen(f"g{at}").uid))[0] for at in range(2)} == there


def test_the_room_stays_for_it_while_its_binding_is_refused():
    found = world()
    full(found, "low")
    found.adds(pod("high", memory=MIB, priority=10))
    waits(found)
    found.scheduler.preempting.asked(evicting(found, "high"))
    found.shows(found.seen("high"), nominated_node="n1")
    leaves(found, "low")
    found.gone("low")
    (bind,) = found.binds()
    # It has its place, and no room has to be made any more.
    found.passes(2.0)
    assert not len(found.scheduler.reservations.nominations)
    found.adds(pod("small", memory=1000))
    found.scheduler.outcomes.refused(bind.pod.uid, bind.attempt, rest_s=3.0)
    assert found.binds() == []
    found.passes(3.0)
    assert placed(found) == {"high"}


@pytest.mark.parametrize("answer", ["asked", "refused"])
def test_the_answer_to_evictions_of_before_says_nothing_of_later_ones(answer):
    found, first = asked_for_high("other")
    preempting = found.scheduler.preempting
    found.scheduler.nodes.gone(NodeName(found.seen("low").node_name))
    for _ in range(3):
        found.passes(1.0)
    (second,) = found.actions(Preempt)
    if answer == "asked":
        preempting.asked(first)
    else:
        preempting.refused(first, first.victims[0][0].uid, 0.0)
    assert preempting.needs(second)
    assert preempting.asking == 1


def test_the_room_stays_no_longer_than_it_may_though_its_binding_is_refused_again_and_again():
    found = world()
    full(found, "low")
    found.adds(pod("high", memory=MIB, priority=10))
    waits(found)
    (action,) = found.actions(Preempt)
    found.scheduler.preempting.asked(action)
    found.shows(found.seen("high"), nominated_node="n1")
    leaves(found, "low")
    found.gone("low")
    found.adds(pod("small", memory=1000))
    bound = list[str]()
    since_s = found.now_s
    while "small" not in bound and found.now_s < since_s + 150:
        for bind in found.binds():
            bound.append(bind.pod.name)
            # The answer takes so long that the room counts as used.
            found.passes(1.0)
            if bind.pod.name == "high":
                found.scheduler.outcomes.refused(bind.pod.uid, bind.attempt, rest_s=3.0)
        found.passes(1.0)
    assert bound[-1] == "small"
    assert 95 <= found.now_s - since_s <= 105
    assert bound.count("high") > 5
    assert found.actions(Unnominate)


def test_what_a_pods_status_says_late_revives_no_room_that_has_ended():
    found, action = asked_for_high("other")
    found.scheduler.preempting.refused(action, action.victims[0][0].uid, 0.0)
    # The write of the nomination is seen after the answer of the eviction, which came at once.
    found.shows(found.seen("high"), nominated_node="n1")
    assert not len(found.scheduler.reservations.nominations)
    found.passes(1.0)
    (second,) = found.actions(Preempt)
    assert second.victims != action.victims


def test_who_has_room_made_goes_there_though_another_pod_is_leaving_that_node():
    found = world(node("n0", cards=2), node("n1", cards=2))
    full(found, "low-0", "low-1", "more-0", "more-1")
    found.adds(*(pod(f"high-{at}", memory=MIB, priority=10) for at in range(2)))
    waits(found)
    found.passes(1.0)
    asked = asks(found)
    for name, (victim,) in asked.items():
        found.scheduler.preempting.asked(evicting(found, name))
        leaves(found, victim)
    (second,) = asked["high-1"]
    where = found.seen(second).node_name
    (beside,) = [one.name for one in found.pods.values() if one.node_name == where and one.name != second]
    leaves(found, beside)
    found.gone(second)
    found.passes(1.0)
    assert found.placed().get("high-1") == where
    assert "high-0" not in found.placed()


def test_the_room_stays_though_its_binding_is_refused_while_others_are_asked_to_leave():
    found = world(node("n1", cards=2))
    full(found, "low", "other")
    found.adds(pod("high", memory=MIB, number=2, priority=10))
    waits(found)
    (action,) = found.actions(Preempt)
    for name in ("low", "other"):
        leaves(found, name)
        found.gone(name)
    (bind,) = found.binds()
    preempting = found.scheduler.preempting
    assert not preempting.needs(action)
    found.scheduler.outcomes.refused(bind.pod.uid, bind.attempt, rest_s=3.0)
    preempting.unneeded(action)
    found.adds(pod("small", memory=1000))
    assert found.binds() == []
    found.passes(3.0)
    assert placed(found) == {"high"}


def test_between_searches_nothing_is_due_while_disruption_budgets_are_unknown():
    found = world()
    full(found, "low")
    found.adds(*(pod(f"high{at}", memory=MIB + 1 + at, priority=10) for at in range(2)))
    preempting = found.scheduler.preempting
    waits(found)
    assert preempting.next_s() < found.now_s + 1.0  # another search follows as soon as its rest is over
    found.scheduler.cluster.occupants.forget_budgets()
    found.passes(0.5)
    assert preempting.next_s() > found.now_s


@pytest.mark.parametrize("ends", ["refused", "accepted"])
def test_who_is_only_to_leave_still_holds_its_group_in_its_domain(ends):
    found = world(
        *(node(f"n{zone}", labels={"zone": zone, "name": f"n{zone}"}) for zone in "ab"), network_tiers=("zone",)
    )
    key, topology = GroupKey(GroupKind.VOLCANO, "default", "g"), NetworkTopology(hard=True, highest=1)
    found.groups_are(GroupSpec(key=key, uid="u", min_member=1, network_topology=topology))
    full(found, "g0", annotations={GROUP: "g"}, constraints=on("nb"))
    full(found, "other", constraints=on("na"))
    found.adds(pod("high", memory=MIB, priority=10, constraints=on("nb")))
    waits(found)
    assert asks(found) == {"high": ["g0"]}
    found.adds(pod("g1", memory=MIB, annotations={GROUP: "g"}))
    found.gone("other")
    assert "g1" not in placed(found)
    if ends == "refused":
        found.scheduler.preempting.refused(evicting(found, "high"), PodUid("uid-g0"))
        assert "g1" not in placed(found)
    else:
        found.scheduler.preempting.asked(evicting(found, "high"))
        leaves(found, "g0")
        assert "g1" in placed(found)


def test_nobody_leaves_for_a_group_that_has_lost_a_member_that_had_succeeded():
    found = world(node("n1", cards=2))
    group = GroupSpec(key=GroupKey(GroupKind.VOLCANO, "default", "g"), uid="u", min_member=1)
    found.groups_are(group)
    for at, phase in enumerate((Phase.SUCCEEDED, Phase.RUNNING)):
        found.adds(pod(f"g{at}", memory=MIB, annotations={GROUP: "g"}, priority=10))
        (bind,) = found.binds()
        shown = found.accepts(bind)
        served = {**shown.annotations, "volcano.sh/devices-to-allocate": ""}
        found.shows(shown, annotations=served, phase=phase, started=True)
    full(found, "low")
    found.groups_are(replace(group, min_member=3, resource_version="2"))
    found.adds(pod("g2", memory=MIB, annotations={GROUP: "g"}, priority=10))
    waits(found)
    (action,) = found.actions(Preempt)
    assert [target.name for target, _ in action.victims] == ["low"]
    assert found.scheduler.preempting.needs(action)
    found.gone("g0")
    assert not found.scheduler.preempting.needs(action)
