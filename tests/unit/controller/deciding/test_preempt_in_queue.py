"""Pods of the same queue and of a lower priority leave for one whose queue may hold no more, as Volcano's `preempt`.

Source: volcano, pkg/scheduler/actions/preempt ("Preemption between Jobs within Queue"): victims are evicted until the
queue may hold the pod and the node has room. Here they may be on any node.
"""

from typing import Any

import pytest

from controller.actions import Preempt
from core.groups import GroupSpec, QueueSpec
from core.model import GroupKey, GroupKind, Phase, Requirement
from core.wire.policies import DisruptionBudget, ResourceQuota
from tests.support.worlds.world import MEMORY, NUMBER, World, node, on, pod

MIB = 10_000
GROUP = "scheduling.k8s.io/group-name"
ON: dict[str, Any] = {"preemption": True, "preemption_delay_s": 30.0, "preemption_wait_s": 100.0}
KEPT = {"volcano.sh/preemptable": "false"}


class Cluster:
    """Queues with whole cards on nodes; a pod of a group is of the group's queue."""

    def __init__(self, *nodes, budgets=(), queues=(("team", "", 2),), least=None, **settings):
        self.world = World(*nodes, **{**ON, **settings})
        self.world.has_no_kind()
        specs = [
            GroupSpec(
                key=GroupKey(GroupKind.VOLCANO, "default", group),
                uid=group,
                resource_version="1",
                min_member=(least or {}).get(group, 1),
                queue=name,
            )
            for name, _, _ in queues
            for group in (name, f"{name}-gang")
        ]
        self.queues = [
            QueueSpec(
                name=name,
                parent=parent,
                capability={NUMBER: cards} if cards is not None else {},
            )
            for name, parent, cards in queues
        ]
        self.world.groups_are(*specs, queues=self.queues)
        self.world.scheduler.cluster.occupants.budgets_replaced(budgets)

    def adds(self, *names, group="team", priority=0, cards=1, annotations=None, **fields):
        """Show pods of *group*, none if it is "", and place those that fit."""
        of = {GROUP: group} if group else {}
        for name in names:
            more = {"memory": MIB, "number": cards, **fields}
            self.world.adds(pod(name, priority=priority, annotations={**of, **(annotations or {})}, **more))
            self.world.placed()

    def waits(self, seconds=31.0):
        self.world.plan()
        self.world.passes(seconds)
        for _ in range(3):
            self.world.passes(1.0)

    def asked(self):
        """Who is asked to leave for whom, since the last question."""
        self.actions = self.world.actions(Preempt)
        return {
            one.nomination.removeprefix("uid-"): sorted(target.name for target, _ in one.victims)
            for one in self.actions
        }

    def accepts(self):
        for one in self.actions:
            self.world.scheduler.preempting.asked(one)

    def leaves(self, name):
        self.world.shows(self.world.seen(name), deleting=True)

    def placed(self):
        """Who is on which node, a second later."""
        self.world.passes(1.0)
        return self.world.placed()


def named(name, cards=1):
    return node(name, cards=cards, labels={"name": name})


def nodes(many=3):
    return [named(f"n{at}") for at in range(many)]


def test_the_least_important_pod_of_the_queue_leaves_although_nodes_have_room():
    found = Cluster(*nodes(4))
    found.adds("other", group="", priority=-1)
    found.adds("low", priority=1)
    found.adds("mid", priority=2)
    found.adds("high", priority=10)
    assert found.world.wait("high").message.startswith("CS530 waits because queue team has too little capacity")
    found.waits()
    assert found.asked() == {"high": ["low"]}
    where = found.world.seen("low").node_name
    found.accepts()
    assert found.world.wait("high").message.startswith(
        f"CS515 1 pod of a lower priority is being evicted from node {where}; their capacity is reserved for it"
    )
    found.leaves("low")
    assert "high" not in found.placed()
    found.world.gone("low")
    assert "high" in found.placed()
    found.waits(1.0)
    assert not len(found.world.scheduler.reservations.nominations)
    assert found.asked() == {}


def test_those_who_come_back_take_nothing_of_what_others_of_the_queue_still_have_to_leave():
    found = Cluster(*nodes(2), named("n2", cards=2))
    found.adds("low-0", constraints=on("n0"), priority=1)
    found.adds("low-1", constraints=on("n1"), priority=1)
    found.adds("high", priority=10, cards=2, constraints=on("n2"))
    found.waits()
    assert found.asked() == {"high": ["low-0", "low-1"]}
    found.accepts()
    for name in ("low-0", "low-1"):
        found.leaves(name)
    found.adds("again-0", "again-1", priority=1)
    found.world.gone("low-0")
    for _ in range(3):
        assert not found.placed().keys() & {"again-0", "again-1", "high"}
    found.adds("first", priority=11)
    assert "first" in found.placed()
    found.world.gone("first")
    found.world.gone("low-1")
    assert found.placed().keys() == {"high"}
    found.waits()
    assert found.placed().keys() == {"high"}
    assert found.asked() == {}


def test_what_was_kept_of_the_queue_is_free_again_once_the_pod_is_gone():
    found = Cluster(*nodes(2), named("n2", cards=2))
    found.adds("low-0", constraints=on("n0"), priority=1)
    found.adds("low-1", constraints=on("n1"), priority=1)
    found.adds("high", priority=10, cards=2, constraints=on("n2"))
    found.waits()
    assert found.asked() == {"high": ["low-0", "low-1"]}
    found.accepts()
    found.world.gone("low-0")
    found.adds("again", priority=1)
    assert "again" not in found.placed()
    found.world.gone("high")
    for _ in range(3):
        found.placed()
    assert "again" in found.placed()


@pytest.mark.parametrize(
    ("high", "low"),
    [
        ({"preempts": False}, {}),
        ({"priority": 1}, {}),
        ({}, {"annotations": KEPT}),
        ({}, {"group": "", "priority": 0}),
        ({}, {"priority": 2_000_000_000}),
        ({"cards": 3}, {}),
    ],
    ids=["never preempts", "equal", "not preemptable", "another queue", "critical", "more than the queue may hold"],
)
def test_nobody_leaves(high, low):
    found = Cluster(*nodes(2), named("n9", cards=3))
    found.adds("kept", priority=10, constraints=on("n0"))
    found.adds("low", **{"priority": 1, **low}, constraints=on("n1"))
    if low.get("group") == "":
        found.adds("kept-too", priority=10)
    found.adds("high", **{"priority": 10, "constraints": on("n9"), **high})
    found.waits(100.0)
    assert found.asked() == {}


def test_a_pod_of_the_queue_that_is_ending_anyway_makes_others_stay():
    found = Cluster(*nodes(3))
    found.adds("low-0", "low-1", priority=1)
    found.leaves("low-0")
    found.adds("high", priority=10)
    found.waits()
    assert found.asked() == {}
    found.world.gone("low-0")
    assert "high" in found.placed()


def test_who_frees_both_card_and_queue_leaves_rather_than_two():
    found = Cluster(*nodes(3))
    found.adds("other", group="", priority=-5)
    found.adds("low", priority=1)
    found.adds("mid", priority=2)
    found.adds("high", priority=10)
    found.waits()
    assert found.asked() == {"high": ["low"]}
    found.accepts()
    found.leaves("low")
    found.world.gone("low")
    assert "high" in found.placed()


def test_where_no_pod_of_the_queue_is_in_the_way_another_leaves_too():
    found = Cluster(*nodes(3))
    found.adds("other", group="", constraints=on("n0"))
    found.adds("low", priority=1, constraints=on("n1"))
    found.adds("mid", priority=2, constraints=on("n2"))
    found.adds("high", priority=10, constraints=on("n0"))
    found.waits()
    assert found.asked() == {"high": ["low", "other"]}
    found.accepts()
    assert "from nodes n0, n1;" in found.world.wait("high").message
    for name in ("other", "low"):
        found.leaves(name)
    found.world.gone("other")
    for _ in range(8):
        assert "high" not in found.placed()
    found.world.gone("low")
    for _ in range(3):
        found.placed()
    assert "high" in found.placed()


def test_no_more_leave_than_the_queue_needs():
    found = Cluster(*nodes(4), named("n9", cards=2), queues=(("team", "", 4),))
    found.adds("one", priority=1, constraints=on("n0"))
    found.adds("two", priority=2, cards=2, constraints=on("n9"))
    found.adds("three", priority=3, constraints=on("n1"))
    found.adds("high", priority=10, cards=2, constraints=on("n9"))
    found.waits()
    assert found.asked() == {"high": ["two"]}


def test_a_gang_of_the_queue_leaves_as_a_whole_and_for_a_gang():
    found = Cluster(*nodes(5), queues=(("team", "", 3),), least={"team-gang": 2})
    found.adds("gang-0", "gang-1", group="team-gang", priority=1)
    found.waits(1.0)
    found.adds("mid", priority=5)
    assert found.placed().keys() == {"gang-0", "gang-1", "mid"}
    found.adds("high", priority=10)
    found.waits()
    assert found.asked() == {"high": ["gang-0", "gang-1"]}


def test_others_of_the_queue_leave_for_a_gang():
    found = Cluster(*nodes(5), queues=(("team", "", 3),), least={"team-gang": 2})
    found.adds("low-0", "low-1", priority=1)
    found.adds("mid", priority=5)
    found.adds("gang-0", "gang-1", group="team-gang", priority=10)
    found.waits()
    assert found.asked() == {"gang-0": ["low-0", "low-1"]}
    found.accepts()
    for name in ("low-0", "low-1"):
        found.leaves(name)
    found.world.gone("low-0")
    found.adds("again", priority=1)
    assert found.placed().keys() == {"low-1", "mid"}
    found.world.gone("low-1")
    for _ in range(2):
        found.placed()
    assert found.placed().keys() == {"mid", "gang-0", "gang-1"}


def test_a_disruption_budget_sends_the_choice_to_another_and_is_named_where_there_is_none():
    budget = DisruptionBudget("default", "b", (Requirement(key="app", operator="In", values=("a",)),), 0)
    found = Cluster(*nodes(4), budgets=[budget])
    found.adds("low", priority=1, labels={"app": "a"})
    found.adds("mid", priority=2)
    found.adds("high", priority=10)
    found.waits()
    assert found.asked() == {"high": ["mid"]}
    found.world.scheduler.preempting.refused(found.actions[0], found.actions[0].victims[0][0].uid)
    found.waits(5.0)
    assert found.asked() == {}
    denied = found.world.scheduler.preempting.denied(found.world.entry("high"))
    assert denied.startswith("To evict pods of a lower priority would help, but a disruption budget forbids it: b ")


def test_nobody_leaves_whom_only_a_quota_of_the_namespace_would_need():
    found = Cluster(*nodes(4), queues=(("team", "", 9),))
    found.world.scheduler.cluster.budgets.quotas.changed(
        ResourceQuota("default", "q", {f"limits.{MEMORY}": 2 * MIB}, {})
    )
    found.adds("low-0", "low-1", priority=1)
    found.adds("high", priority=10)
    assert found.world.wait("high").message.startswith("CS532")
    found.waits(100.0)
    assert found.asked() == {}


@pytest.mark.parametrize(("whose", "leaves"), [("team", {"high": ["low"]}), ("beside", {})])
def test_a_limit_of_the_queue_above_is_freed_by_pods_of_the_same_queue_alone(whose, leaves):
    found = Cluster(*nodes(4), queues=(("all", "", 2), ("team", "all", None), ("beside", "all", None)))
    found.adds("low", group=whose, priority=1)
    found.adds("mid", group="beside", priority=10)
    found.adds("high", priority=10)
    found.waits()
    assert found.asked() == leaves


def test_nobody_leaves_while_only_reclaim_is_on():
    found = Cluster(*nodes(4), preemption=False, reclaim=True)
    found.adds("low-0", "low-1", priority=1)
    found.adds("high", priority=10)
    found.waits(100.0)
    assert found.asked() == {}


def test_two_pods_have_two_leave_and_no_third():
    found = Cluster(*nodes(6), queues=(("team", "", 3),))
    found.adds("low-0", "low-1", "low-2", priority=1)
    found.adds("high-0", "high-1", priority=10)
    found.waits()
    for _ in range(6):
        found.world.passes(1.0)
    asked = found.asked()
    assert sorted(asked) == ["high-0", "high-1"]
    assert len({name for names in asked.values() for name in names}) == 2
    found.accepts()
    for names in asked.values():
        for name in names:
            found.leaves(name)
            found.world.gone(name)
    for _ in range(3):
        found.placed()
    assert found.placed().keys() >= {"high-0", "high-1"}
    assert len(found.placed()) == 3


def test_pods_of_one_shape_that_no_node_takes_hold_up_nobody_whose_queue_was_freed():
    found = Cluster(*nodes(3), queues=(("team", "", 2), ("beside", "", None)))
    found.adds("low", priority=1)
    found.adds("mid", priority=2)
    found.adds("high", priority=10)
    found.waits()
    assert found.asked() == {"high": ["low"]}
    found.accepts()
    found.adds("theirs-0", "theirs-1", group="beside", priority=20)
    found.leaves("low")
    assert "theirs-0" in found.placed()
    found.world.gone("low")
    assert "theirs-1" in found.placed()
    found.waits()
    assert "high" not in found.placed()


def test_another_process_goes_on_keeping_what_the_queue_may_hold():
    found = Cluster(*nodes(2), named("n2", cards=2))
    for at in range(2):
        held = {"volcano.sh/vgpu-ids-new": f"n{at}-0,NVIDIA,10000,0:"}
        found.world.adds(pod(f"low-{at}", memory=MIB, node_name=f"n{at}", annotations={GROUP: "team", **held}))
        found.world.shows(found.world.seen(f"low-{at}"), deleting=True, phase=Phase.RUNNING, started=True)
    found.world.adds(
        pod("high", memory=MIB, number=2, priority=10, nominated_node="n2", annotations={GROUP: "team"}),
        pod("again", memory=MIB, annotations={GROUP: "team"}),
    )
    found.world.plan()
    found.world.passes(1.0)
    assert found.world.wait("high").message.startswith(
        "CS515 pods of a lower priority were evicted; their capacity is reserved for it"
    )
    found.world.passes(20.0)
    found.world.gone("low-0")
    for _ in range(8):
        assert "again" not in found.placed()
    found.world.gone("low-1")
    for _ in range(2):
        found.placed()
    assert found.placed().keys() == {"high"}
    assert found.asked() == {}


def test_following_what_an_earlier_leader_began_reads_no_group_but_those_of_leaving_pods(monkeypatch):
    found = Cluster(*nodes(2), named("n2", cards=2))
    held = {"volcano.sh/vgpu-ids-new": "n0-0,NVIDIA,10000,0:"}
    found.world.adds(pod("low", memory=MIB, node_name="n0", annotations={GROUP: "team", **held}))
    found.world.shows(found.world.seen("low"), deleting=True, phase=Phase.RUNNING, started=True)
    found.world.adds(pod("high", memory=MIB, number=2, priority=10, nominated_node="n2", annotations={GROUP: "team"}))
    found.world.plan()
    (nomination,) = found.world.scheduler.reservations.nominations
    groups = found.world.scheduler.cluster.groups
    monkeypatch.setattr(groups, "named", lambda: pytest.fail("all groups are read"))
    assert found.world.scheduler.preempting._leaving(nomination) == ["uid-low"]


def test_what_is_guaranteed_to_no_queue_is_kept_from_pods_of_other_queues_that_come_later():
    found = Cluster(*nodes(3), queues=(("team", "", None), ("beside", "", None)))
    cluster = found.world.scheduler.cluster
    total = cluster.budgets.totals.amounts()[NUMBER]
    cluster.groups.queue_changed(QueueSpec(name="kept", guarantee={NUMBER: total - 2}))
    found.adds("low", priority=1)
    found.adds("mid", priority=2)
    found.adds("high", priority=10)
    found.waits()
    assert found.asked() == {"high": ["low"]}
    found.accepts()
    found.leaves("low")
    found.adds("theirs", group="beside", priority=1)
    found.world.gone("low")
    for _ in range(2):
        found.placed()
    assert found.placed().keys() == {"mid", "high"}
    found.waits()
    assert found.asked() == {}


def test_those_for_whom_pods_leave_wait_also_for_others_of_the_queue_that_are_ending_anyway():
    found = Cluster(*nodes(2), named("n2", cards=2))
    found.adds("ending", constraints=on("n0"), priority=1)
    found.adds("low", constraints=on("n1"), priority=1)
    found.leaves("ending")
    found.adds("high", priority=10, cards=2, constraints=on("n2"))
    found.waits()
    assert found.asked() == {"high": ["low"]}
    found.accepts()
    found.leaves("low")
    found.adds("again", priority=1)
    found.world.gone("low")
    for _ in range(20):
        assert found.placed().keys() == {"ending"}
    found.world.gone("ending")
    for _ in range(3):
        found.placed()
    assert found.placed().keys() == {"high"}
    assert found.asked() == {}


def test_an_earlier_pod_takes_what_is_promised_to_a_later_one_although_others_leave_in_another_queue():
    found = Cluster(*nodes(3), named("n3", cards=2), queues=(("team", "", 2), ("beside", "", 1)))
    found.adds("low-0", constraints=on("n0"), priority=1)
    found.adds("low-1", constraints=on("n1"), priority=1)
    found.adds("theirs", constraints=on("n2"), group="beside", priority=1)
    found.adds("theirs-high", constraints=on("n2"), group="beside", priority=20)
    found.adds("high", priority=10, cards=2, constraints=on("n3"))
    found.waits()
    for _ in range(4):
        found.world.passes(1.0)
    assert found.asked() == {"theirs-high": ["theirs"], "high": ["low-0", "low-1"]}
    found.accepts()
    for name in ("low-0", "low-1"):
        found.leaves(name)
    found.adds("again", priority=1)
    found.world.gone("low-0")
    assert "again" not in found.placed()
    found.adds("first", priority=11)
    assert "first" in found.placed()
