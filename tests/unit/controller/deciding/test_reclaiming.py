"""A queue takes back what it deserves from queues that hold more, in the cases of Volcano's documents and beside them.

Source of the cases: volcano, docs/design/hierarchical-queue-on-capacity-plugin.md ("Unit test scenarios") and
docs/design/capacity-scheduling.md. Here the queues above count always, as there with an `ancestorReclaimLevel` as
large as the tree is deep, and what queues deserve is cut to what there is.
"""

from collections import Counter
from types import MappingProxyType

import pytest

from controller.actions import Preempt
from controller.deciding.victims import OF_QUEUES
from core.groups import GroupSpec, QueueSpec
from core.model import Container, GroupKey, GroupKind, Requirement
from core.wire.policies import DisruptionBudget
from tests.support.worlds.world import NUMBER, World, node, pod

GROUP = "scheduling.k8s.io/group-name"
KEPT = {"volcano.sh/preemptable": "false"}


class Cluster:
    """Cards of one size, queues, and pods of which each asks for whole cards."""

    def __init__(self, cards, queues, *, nodes=1, least=1, gangs=MappingProxyType({}), budgets=(), **settings):
        given = {"reclaim": True, "preemption_delay_s": 0.0, "preemption_wait_s": 100.0}
        self.world = World(*(node(f"n{at}", cards=cards, slots=1) for at in range(nodes)), **{**given, **settings})
        specs = [
            GroupSpec(
                key=GroupKey(GroupKind.VOLCANO, "default", one.name),
                uid=one.name,
                resource_version="1",
                queue=one.name,
                min_member=gangs.get(one.name, least),
            )
            for one in queues
        ]
        self.world.groups_are(*specs, queues=queues)
        self.world.scheduler.cluster.occupants.budgets_replaced(budgets)

    def adds(self, queue, *names, cards=1, **fields):
        fields["annotations"] = {GROUP: queue, **fields.get("annotations", {})}
        self.world.adds(*(pod(name, number=cards, **fields) for name in names))
        self.world.placed()

    def asked(self, seconds=10.0):
        """Who is asked to leave by then; they do, one after the other."""
        found = []
        for _ in range(int(seconds)):
            self.world.passes(1.0)
            for one in self.world.actions(Preempt):
                self.world.scheduler.preempting.asked(one)
                for target, _ in one.victims:
                    found.append(target.name)
                    self.world.gone(target.name)
            self.world.placed()
        return found

    def placed(self):
        return {one.name for one in self.world.pods.values() if one.node_name}


def queue(name, parent="", deserved=0, **fields):
    return QueueSpec(name=name, parent=parent, deserved={NUMBER: deserved} if deserved else {}, **fields)


PROJECTS = [
    queue("p1", deserved=1, capability={NUMBER: 2}),
    queue("p1-kept", "p1", deserved=1, capability={NUMBER: 1}),
    queue("p1-any", "p1"),
    queue("p2", deserved=3, capability={NUMBER: 4}),
    queue("p2-kept", "p2", deserved=3, capability={NUMBER: 3}),
    queue("p2-any", "p2"),
]


def test_case_1_a_child_takes_back_by_what_its_parent_deserves():
    found = Cluster(4, [queue("q1", deserved=1), queue("q11", "q1"), queue("q2")])
    found.adds("q2", "p1", cards=4)
    found.adds("q11", "p2")
    assert found.asked() == ["p1"]
    assert found.placed() == {"p2"}


def test_case_2_the_pod_of_the_lowest_priority_leaves_across_parents():
    found = Cluster(4, PROJECTS)
    for name, priority in (("v1", 3), ("v2", 2), ("v3", 4), ("v4", 1)):
        found.adds("p2-any", name, priority=priority)
    found.adds("p1-any", "p5")
    assert found.asked() == ["v4"]
    assert "p5" in found.placed()


def test_case_3_a_sibling_queue_leaves_first():
    found = Cluster(4, PROJECTS)
    found.adds("p2-any", "v1", "v2", priority=2)
    found.adds("p2-any", "v3", priority=1)
    found.adds("p1-any", "p5")
    found.adds("p2-kept", "p6")
    assert found.asked() == ["v3"]
    assert found.placed() == {"v1", "v2", "p5", "p6"}


def test_case_4_nobody_leaves_whose_queue_holds_no_more_than_it_deserves():
    queues = [
        queue("parent1", deserved=1),
        queue("child1", "parent1", deserved=1),
        queue("sibling", "parent1"),
        queue("parent2", deserved=1),
        queue("child2", "parent2", deserved=1),
    ]
    found = Cluster(2, queues)
    found.adds("child1", "p1")
    found.adds("sibling", "p3", annotations=KEPT)
    found.adds("child2", "p2")
    assert found.asked() == []


def test_case_7_nobody_leaves_where_a_queue_above_holds_no_more_than_it_deserves():
    queues = [
        queue("grand-a", deserved=2),
        queue("queue-a", "grand-a", deserved=2),
        queue("grand-b", deserved=3),
        queue("queue-b", "grand-b", deserved=1),
    ]
    found = Cluster(2, queues)
    found.adds("queue-b", "victim", cards=2)
    found.adds("queue-a", "reclaimer", cards=2)
    assert found.asked() == []


@pytest.mark.parametrize(
    "queues",
    [
        [queue("p", deserved=4), queue("a", "p"), queue("b", "p")],
        [queue("g", deserved=2), queue("pa", "g"), queue("a", "pa"), queue("pb", "g"), queue("b", "pb")],
        [queue("g", deserved=1), queue("pb", "g", deserved=1), queue("b", "pb"), queue("a", "g")],
    ],
    ids=["case-8", "case-9", "case-10"],
)
def test_nobody_leaves_where_the_unit_is_more_than_its_queue_deserves(queues):
    found = Cluster(2, queues)
    found.adds("b", "victim", cards=2)
    found.adds("a", "reclaimer", cards=2)
    assert found.asked() == []


def test_case_11_nobody_leaves_for_more_than_there_is_of_what_is_deserved():
    queues = [
        queue("sp", deserved=1),
        queue("shallow", "sp", deserved=1),
        queue("dg", deserved=2),
        queue("dp", "dg", deserved=1),
        queue("deep", "dp", deserved=1),
    ]
    found = Cluster(2, queues)
    found.adds("deep", "victim", cards=2)
    found.adds("shallow", "reclaimer")
    assert found.asked() == []


def test_a_queue_lends_what_it_deserves_and_takes_it_back_but_no_more():
    found = Cluster(8, [queue("q1", deserved=2), queue("q2", deserved=6)])
    found.adds("q1", *(f"a{at}" for at in range(8)))
    assert len(found.placed()) == 8
    found.adds("q2", *(f"b{at}" for at in range(8)))
    assert len(found.asked(60.0)) == 6
    assert Counter(name[0] for name in found.placed()) == {"a": 2, "b": 6}


def test_what_was_taken_is_never_taken_back_although_those_who_left_come_again_with_a_higher_priority():
    found = Cluster(8, [queue("q1", deserved=4), queue("q2", deserved=4)])
    found.adds("q1", *(f"a{at}" for at in range(8)), priority=100)
    found.adds("q2", *(f"b{at}" for at in range(8)))
    came = 0
    for _ in range(20):
        for _ in found.asked(3.0):
            found.world.adds(pod(f"a-again{came}", priority=100, annotations={GROUP: "q1"}))
            came += 1
    assert came == 4
    assert Counter(name[0] for name in found.placed()) == {"a": 4, "b": 4}


@pytest.mark.parametrize("order", [("q2", "q3"), ("q3", "q2")], ids=" ".join)
@pytest.mark.parametrize("nodes", [1, 2])
def test_pods_of_the_queue_of_the_lowest_priority_leave_first_whatever_their_own(order, nodes):
    queues = [queue("q1", deserved=1), queue("q2", priority=5), queue("q3", priority=1)]
    found = Cluster(4 // nodes, queues, nodes=nodes)
    for name in order:
        found.adds(name, f"{name}-a", f"{name}-b", priority=9 if name == "q3" else 0)
    found.adds("q1", "p")
    (left,) = found.asked()
    assert left.startswith("q3")
    assert "p" in found.placed()


def test_priorities_of_queues_are_compared_from_the_top_of_the_tree_down():
    queues = [
        queue("q1", deserved=1),
        queue("low", priority=1),
        queue("low-10", "low", priority=10),
        queue("low-20", "low", priority=20),
        queue("high", priority=5),
        queue("high-1", "high", priority=1),
    ]
    found = Cluster(6, queues)
    for name in ("high-1", "low-10", "low-20"):
        found.adds(name, f"{name}-a", f"{name}-b")
    found.adds("q1", "p")
    (left,) = found.asked()
    assert left.startswith("low-10")


def test_pods_of_a_lower_priority_leave_before_any_are_taken_back():
    queues = [queue("q1", deserved=2), queue("q2", priority=9), queue("q3")]
    found = Cluster(4, queues, preemption=True)
    found.adds("q2", "a0", "a1", priority=1)
    found.adds("q3", "b0", "b1", priority=5)
    found.adds("q1", "p", priority=3)
    (left,) = found.asked()
    assert left.startswith("a")


def test_a_guarantee_is_never_taken():
    guaranteed = queue("q1", guarantee={NUMBER: 3})
    found = Cluster(4, [guaranteed, queue("q2", deserved=4)])
    found.adds("q1", *(f"a{at}" for at in range(4)))
    found.adds("q2", *(f"b{at}" for at in range(4)))
    assert len(found.asked(30.0)) == 1
    assert Counter(name[0] for name in found.placed()) == {"a": 3, "b": 1}


def test_a_whole_gang_leaves_for_a_whole_gang_or_nobody():
    found = Cluster(4, [queue("q1"), queue("q2", deserved=4)], nodes=2, least=4)
    found.adds("q1", *(f"a{at}" for at in range(8)))
    assert len(found.placed()) == 8
    found.adds("q2", "b0", "b1", "b2")
    assert found.asked() == []
    found.adds("q2", "b3")
    assert sorted(found.asked()) == [f"a{at}" for at in range(8)]
    assert {"b0", "b1", "b2", "b3"} <= found.placed()


def test_nobody_leaves_for_a_gang_if_their_queue_would_lose_more_on_several_nodes_than_it_may():
    queues = [queue("q1", deserved=2), queue("q2", deserved=2), queue("q3", reclaimable=False)]
    found = Cluster(1, queues, nodes=4, gangs={"q2": 2})
    found.adds("q1", "a0", "a1", "a2")
    found.adds("q3", "c0")
    found.adds("q2", "b0", "b1")
    assert found.asked() == []


def test_what_a_queue_loses_by_priority_counts_when_more_is_taken_back_for_the_same_gang():
    queues = [queue("q1", deserved=1), queue("q2", deserved=2), queue("q3", reclaimable=False)]
    found = Cluster(1, queues, nodes=3, gangs={"q2": 2}, preemption=True)
    found.adds("q3", "c0", priority=9)
    found.adds("q1", "a0", priority=1)
    found.adds("q1", "a1", priority=9)
    found.adds("q2", "b0", "b1", priority=5)
    assert found.asked() == []


@pytest.mark.parametrize("why", ["off", "not reclaimable", "parent not reclaimable", "kept", "no queue", "high"])
def test_nobody_leaves_who_is_kept(why):
    queues = [
        queue("top", reclaimable=why != "parent not reclaimable"),
        queue("q1", "top", reclaimable=why != "not reclaimable"),
        queue("q2", deserved=2),
    ]
    found = Cluster(2, queues, reclaim=why != "off", preemption=why == "off")
    fields = {"annotations": KEPT} if why == "kept" else {"priority": 2_000_000_000} if why == "high" else {}
    if why == "no queue":
        found.world.adds(pod("a0"), pod("a1"))
        found.world.placed()
    else:
        found.adds("q1", "a0", "a1", **fields)
    found.adds("q2", "b0")
    assert found.asked() == []


@pytest.mark.parametrize(("covered", "goes"), [("a0", "a1"), ("a1", "a0")])
def test_of_two_the_one_leaves_whose_disruption_budget_lets_it_go_and_it_is_said_why(covered, goes):
    selector = (Requirement(key="app", operator="In", values=("a",)),)
    budget = DisruptionBudget("default", "b", selector, 0)
    found = Cluster(2, [queue("q1"), queue("q2", deserved=1)], budgets=[budget])
    for name in ("a0", "a1"):
        found.adds("q1", name, labels={"app": "a"} if name == covered else {})
    found.adds("q2", "b0")
    found.world.passes(1.0)
    found.world.passes(1.0)
    (asked,) = found.world.actions(Preempt)
    assert [target.name for target, _ in asked.victims] == [goes]
    found.world.scheduler.preempting.asked(asked)
    assert f"1 pod {OF_QUEUES} is being evicted from node n0" in found.world.wait("b0").text


def test_a_pod_that_frees_nothing_of_use_keeps_no_other_from_leaving():
    # The queue may lose one card, and only the more important of its pods has the host port.
    def holding(card, *ports):
        limits = {NUMBER: str(card)}
        listens = tuple(("TCP", "", one) for one in ports)
        return (Container(name="main", limits=limits, requests=limits, host_ports=listens),)

    found = Cluster(2, [queue("q1"), queue("q2", deserved=1)])
    found.adds("q1", "a0", containers=holding(1))
    found.adds("q1", "a1", containers=holding(1, 80), priority=1)
    found.adds("q2", "b0", containers=holding(1, 80))
    assert found.asked() == ["a1"]
    assert found.placed() == {"a0", "b0"}
