"""The PriorityClass of a PodGroup counts for its pods, which may name none themselves."""

from dataclasses import replace
from typing import Any

import pytest

from controller.actions import Inbox, Preempt
from controller.reporting.answers import answer
from core.groups import GroupSpec, QueueSpec
from core.model import GroupKey, GroupKind
from core.wire.policies import PriorityClass
from tests.support.worlds.world import World, node, pod

MIB = 10_000
KEY = GroupKey(GroupKind.VOLCANO, "default", "g")
IN_G: dict[str, Any] = {"annotations": {"scheduling.k8s.io/group-name": "g"}, "memory": MIB}
HIGH, LOW = PriorityClass("high", 100), PriorityClass("low", 1)


def group(name="high", version="1"):
    return GroupSpec(key=KEY, uid="u", resource_version=version, min_member=1, priority_class=name)


def world(*classes, of_group="high", **settings):
    found = World(node("n1"), **settings)
    found.scheduler.cluster.groups.classes.replaced(classes)
    found.groups_are(group(of_group), queues=[QueueSpec(name="default")])
    found.scheduler.cluster.occupants.budgets_replaced(())
    return found


def first(found):
    """Who takes the only card of the two that want it."""
    (name,) = found.placed()
    return name


@pytest.mark.parametrize(
    ("classes", "own", "takes_it"),
    [((HIGH, LOW), 5, "member"), ((HIGH, LOW), 200, "alone"), ((), 5, "alone")],
    ids=["the class of the group", "the higher one of the two", "a class that does not exist"],
)
def test_members_stand_in_line_by_the_class_of_their_group(classes, own, takes_it):
    found = world(*classes)
    found.adds(pod("alone", memory=MIB, priority=own), pod("member", **IN_G))
    assert first(found) == takes_it


def test_a_member_keeps_its_own_priority_if_that_is_higher():
    found = world(HIGH, LOW, of_group="low")
    found.adds(pod("alone", memory=MIB, priority=5), pod("member", **IN_G, priority=9))
    assert first(found) == "member"


@pytest.mark.parametrize("how", ["group", "class", "class deleted"])
def test_a_change_of_the_group_or_of_its_class_counts_at_once(how):
    found = world(HIGH, LOW)
    found.adds(pod("blocker", memory=MIB, priority=1000))
    found.placed()
    found.adds(pod("alone", memory=MIB, priority=5), pod("member", **IN_G))
    found.placed()
    if how == "group":
        found.scheduler.cluster.groups.changed(group("low", version="2"))
    elif how == "class":
        found.scheduler.cluster.groups.classes.put(PriorityClass("high", 1))
    else:
        found.scheduler.cluster.groups.classes.gone(HIGH)
    found.gone("blocker")
    found.passes(1.0)
    assert first(found) == "alone"


def evicted(found, after_s=31.0):
    found.plan()
    found.passes(after_s)
    return [target.name for one in found.actions(Preempt) for target, _ in one.victims]


@pytest.mark.parametrize(("policy", "leave"), [(True, ["low"]), (False, [])], ids=["PreemptLowerPriority", "Never"])
def test_others_leave_for_a_group_of_a_higher_class(policy, leave):
    found = world(PriorityClass("high", 100, preempts=policy), preemption=True, preemption_delay_s=30.0)
    found.adds(pod("low", memory=MIB, priority=5))
    found.placed()
    found.adds(pod("member", **IN_G))
    assert evicted(found) == leave


def test_members_of_a_group_of_a_higher_class_do_not_leave_for_a_pod_of_a_lower_priority():
    found = world(HIGH, preemption=True, preemption_delay_s=30.0)
    found.adds(pod("member", **IN_G))
    found.placed()
    found.adds(pod("alone", memory=MIB, priority=50))
    assert evicted(found) == []
    found.scheduler.cluster.groups.classes.put(PriorityClass("high", 10))
    assert evicted(found, after_s=600.0) == ["member"]


NATIVE = GroupKey(GroupKind.NATIVE, "default", "g")


def native(*more, **fields):
    """A world in which a group of Kubernetes' own says *fields* of itself."""
    found = World(node("n1"), *more, preemption=True, preemption_delay_s=30.0)
    spec = GroupSpec(key=NATIVE, uid="u", resource_version="1", queue="", **fields)
    found.groups_are(spec, kind=GroupKind.NATIVE)
    found.scheduler.cluster.occupants.budgets_replaced(())
    return found, spec


@pytest.mark.parametrize(("preempts", "leave"), [(True, ["low"]), (False, [])])
def test_the_priority_that_a_group_of_kubernetes_own_says_counts_without_its_class(preempts, leave):
    found, _ = native(min_member=1, priority=100, preempts=preempts, priority_class="unknown")
    found.adds(pod("low", memory=MIB, priority=5))
    found.placed()
    found.adds(pod("member", memory=MIB, scheduling_group="g"))
    assert evicted(found) == leave


@pytest.mark.parametrize(
    ("least", "whole", "leave"), [(2, None, 2), (2, False, 1), (2, True, 2), (0, None, 1), (0, True, 2)]
)
def test_a_group_leaves_whole_if_it_says_so_or_is_a_gang_that_says_nothing(least, whole, leave):
    found, _ = native(node("n2"), min_member=least, disrupted_together=whole)
    found.adds(*(pod(name, memory=MIB, scheduling_group="g") for name in "ab"))
    assert len(found.placed()) == 2
    found.adds(pod("high", memory=MIB, priority=5))
    assert len(evicted(found)) == leave


def test_a_minimum_that_is_lowered_later_counts_at_once():
    found, spec = native(min_member=2)
    found.adds(pod("a", memory=MIB, scheduling_group="g"))
    assert not found.placed()
    found.scheduler.cluster.groups.changed(replace(spec, min_member=1, resource_version="2"))
    found.passes(1.0)
    assert list(found.placed()) == ["a"]


async def test_an_explanation_names_the_field_that_raised_the_priority():
    found, _ = native(min_member=2, priority=100)
    found.adds(pod("member", memory=MIB, scheduling_group="g"))
    said = await answer(found.scheduler, Inbox(float), unasked, "default/member")
    assert "priority is 100, from spec.priority of its PodGroup" in said["text"]


async def unasked(shape):
    raise AssertionError(shape)


async def test_an_explanation_names_the_class_that_raised_the_priority():
    found = world(HIGH)
    found.adds(pod("member", **IN_G))
    said = await answer(found.scheduler, Inbox(float), unasked, "default/member")
    assert said["priority"] == 100
    assert "priority is 100, from the PriorityClass 'high' of its group" in said["text"]
