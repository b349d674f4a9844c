"""What docs/maintainers/adding-a-constraint.md says is true: a constraint is one value, and one line registers it."""

from operator import attrgetter
from typing import Any

import pytest

from controller.deciding.lifecycle import storage_event
from controller.deciding.queue import Requeue
from core import audit
from core.catalog import standard_catalog
from core.constraints.constraint import Constraint, Constraints, Obstacle, ReadScope
from core.constraints.every import every
from core.explaining import explain
from core.explaining.refusal import refusal_on
from core.ledger import Ledger
from core.model import NodeName, Taint
from core.placing.candidates import Candidates
from core.placing.crowd import Crowd, Occupant
from core.placing.decide import NodePolicy, Shape, decide, scan, shape_of, still_fits, takes
from core.placing.gang import Member, Unit
from core.placing.preemption import victims_for
from core.settings import NodeWeights, Policy, Settings, Tables
from tests.support.worlds.world import finished, node, pod

WATTS = "example.com/watts"


def left(facts, held):
    return int(facts.labels.get(WATTS, "0")) - (held or 0)


def lacks(watts, facts, held):
    if left(facts, held) < watts:
        yield Obstacle("too little power", f"other pods there use {watts - left(facts, held)} W less")


# A node supplies as many watts as its label says, and a pod uses as many as its own label says.
POWER = Constraint(
    name="power",
    reads=ReadScope.USE,
    signature=lambda asking: int(asking.labels[WATTS]) if WATTS in asking.labels else None,
    filter=lambda watts, facts, held: left(facts, held) >= watts,
    explain=lacks,
    reserve=lambda held, watts: (held or 0) + watts,
    release=lambda held, watts: held - watts,
    woken_by=lambda asking: [("powerplans", asking.namespace)],
)


def other_rack(rack, facts, held):
    del held
    if facts.labels.get("rack") != rack:
        yield Obstacle("another rack", instead="leave out the rack")


# A pod may require a rack, and avoids nodes with a taint that says that they are hot.
RACK = Constraint(
    name="rack",
    reads=ReadScope.NODE,
    signature=lambda asking: asking.labels.get("rack"),
    filter=lambda rack, facts, held: facts.labels.get("rack") == rack,
    explain=other_rack,
    score=lambda rack, facts, weights: -100.0 * any(one.key == "hot" for one in facts.taints),
)
# A pod may prefer nodes of a colour, and is placed without it.
COLOUR = Constraint(
    name="colour",
    reads=ReadScope.NODE,
    signature=lambda asking: None,
    filter=lambda asked, facts, held: True,
    explain=lambda asked, facts, held: (),
    prefers=lambda asking, weights: asking.labels.get("colour"),
    rate=lambda colour, facts, weights: 100.0 * (facts.labels.get("colour") == colour),
    most=lambda colour, weights: 100.0,
)
RULE = NodePolicy(Policy.SPREAD, 1)


class Cluster:
    """A ledger with these constraints, and what finds nodes in it."""

    def __init__(self, **watts):
        self.ledger = Ledger(
            standard_catalog(), Tables(), Settings(), constraints=lambda *known: (*every(*known), POWER, RACK, COLOUR)
        )
        for name, supply in watts.items():
            self.label(name, **{WATTS: str(supply)})
        self.candidates = Candidates(self.ledger, RULE)

    def label(self, name, taints=(), **labels):
        self.ledger.set_node(node(name, labels=labels, taints=taints))

    def shape(self, asking):
        found = shape_of(asking, self.ledger)
        assert isinstance(found, Shape)
        return found

    def place(self, asking):
        """The pod's placement, promised; None if no node takes it. The search and the exact verdicts agree."""
        shape = self.shape(asking)
        placement = decide(self.candidates, asking, shape)
        exact = scan(self.ledger, RULE, shape)
        assert (placement and placement.node) == (exact and exact.node)
        for state in self.ledger.states.values():
            told = refusal_on(self.ledger, shape, state, RULE.cards)
            assert takes(self.ledger, shape, state, RULE.cards) == (told is None)
        if placement is not None:
            self.ledger.reserve(placement)
            assert still_fits(self.ledger, shape, placement)
            assert audit.arithmetic(self.ledger, placement.node) == ()
        return placement and placement.node

    def why(self, asking):
        return explain.sentence(explain.refused(self.ledger, self.shape(asking), RULE.cards))


def using(name, watts):
    return pod(name, labels={WATTS: str(watts)})


def test_only_pods_that_state_something_are_asked():
    asked = []
    name_tag = Constraint(
        name="name tag",
        reads=ReadScope.NODE,
        stated=attrgetter("labels"),
        signature=lambda asking: asked.append(asking.name),
        filter=lambda tag, facts, held: True,
        explain=lambda tag, facts, held: (),
        prefers=lambda asking, weights: asked.append(asking.name),
        woken_by=lambda asking: [("tags", asking.name)],
    )
    constraints = Constraints([name_tag])
    plain, tagged = pod("plain"), pod("tagged", labels={"tag": "x"})
    for one in (plain, tagged):
        constraints.asked_by(one, NodeWeights())
    assert set(asked) == {"tagged"}
    assert constraints.woken_by(plain) == []
    assert constraints.woken_by(tagged) == [("tags", "tagged")]


class Badges:
    """Tracks the badges of pods."""

    def __init__(self):
        self.on = {}

    def put(self, asking, node):
        self.on[asking.uid] = asking.labels["badge"]

    def drop(self, uid):
        self.on.pop(uid, None)

    def is_current(self, asking, asked):
        return True


def test_a_pod_that_states_nothing_any_more_is_not_tracked():
    badges: Any = Badges()
    badge = Constraint(
        name="badge",
        reads=ReadScope.PODS,
        stated=lambda asking: asking.labels.get("badge"),
        signature=lambda asking: asking.labels["badge"],
        filter=lambda asked, facts, held: True,
        explain=lambda asked, facts, held: (),
        tracker=badges,
    )
    constraints = Constraints([badge])
    constraints.put(pod("p", labels={"badge": "x"}), NodeName("n1"))
    assert [*badges.on.values()] == ["x"]
    constraints.put(pod("p"), NodeName("n1"))
    assert badges.on == {}


def test_pods_reserve_what_they_use_and_release_it():
    cluster = Cluster(n1=100)
    assert [cluster.place(using(name, 60)) for name in "ab"] == ["n1", None]
    assert cluster.place(pod("c")) == "n1"
    assert cluster.ledger.fork().states[NodeName("n1")].held == {"power": 60}
    cluster.ledger.release(using("a", 60).uid)
    assert cluster.place(using("b", 60)) == "n1"
    bound = using("d", 7)._replace(node_name="n1")
    cluster.ledger.count(bound)
    assert cluster.ledger.states[NodeName("n1")].held == {"power": 67}


def test_a_node_of_another_rack_is_filtered_and_a_hot_one_comes_last():
    cluster = Cluster(n1=0)
    cluster.label("n1", (Taint(key="hot", effect="Warning"),), rack="a")
    cluster.label("n2", rack="a")
    cluster.label("n3", rack="b")
    asking = [pod(name, labels={"rack": "a"}, memory=6000) for name in "pqr"]
    assert [cluster.place(one) for one in asking] == ["n2", "n1", None]


def test_a_preference_orders_the_nodes_and_refuses_none():
    cluster = Cluster(n1=0)
    cluster.label("n2", colour="red")
    cluster.label("n3", colour="blue")
    asking = [pod(name, labels={"colour": "red"}, memory=6000) for name in "pqr"]
    assert [cluster.place(one) for one in asking] == ["n2", "n1", "n3"]
    assert cluster.shape(asking[0]) != cluster.shape(pod("s", memory=6000))


def test_a_refusal_says_what_is_missing_and_what_would_help():
    cluster = Cluster(n1=100)
    cluster.place(using("a", 60))
    assert "1 too little power" in cluster.why(using("b", 60))
    assert "Wait until other pods there use 20 W less" in cluster.why(using("b", 60))
    assert cluster.why(pod("p", labels={"rack": "a"})).endswith("Leave out the rack.")


@pytest.mark.parametrize("change", ["another pod ends", "the node changes"])
def test_a_refused_pod_is_asked_about_when_its_node_opens(change):
    cluster = Cluster(n1=100)
    cluster.place(using("a", 60))
    shape = cluster.shape(using("b", 60))
    cluster.ledger.opened.clear()
    if change == "another pod ends":
        cluster.ledger.release(using("a", 60).uid)
    else:
        cluster.label("n1", **{WATTS: "200"})
    assert list(cluster.ledger.opened) == ["n1"]
    assert takes(cluster.ledger, shape, cluster.ledger.states[NodeName("n1")], RULE.cards)


def test_a_pod_is_read_again_when_something_else_changes_that_it_waits_for():
    cluster, wakes = Cluster(n1=100), Requeue()
    asking = using("p", 1)
    wakes.wait_for(asking.uid, *[storage_event(*one) for one in cluster.ledger.constraints.woken_by(asking)])
    assert wakes.happened(storage_event("powerplans", "default")) == [asking.uid]


def test_pods_of_lower_priority_leave_for_it():
    cluster = Cluster(n1=100)
    cluster.place(using("a", 60))
    asking = using("p", 60)
    unit = Unit(members=(Member(pod=asking, shape=cluster.shape(asking)),))
    crowd = Crowd({using("a", 60).uid: Occupant(priority=0)}, {})
    found = finished(victims_for(cluster.ledger.fork(), RULE, unit, crowd, priority=1))
    assert found is not None
    assert found.victims == (using("a", 60).uid,)
