"""Nodes that have just joined, and those that are about to go: what pods are told of them, and where these go."""

from dataclasses import replace

import pytest

from core.explaining import explain
from core.explaining.refusal import refusal_on
from core.model import NodeConstraints, NodeName, Taint, Toleration
from core.placing.kinds import Helping
from core.settings import NodeKind, Policy
from core.waiting import Cause
from tests.support.worlds.world import START_UNIX_S, World, node, pod

TYPE = "node.kubernetes.io/instance-type"
ANYTHING = NodeConstraints(tolerations=(Toleration(operator="Exists"),))


def bare(name, **fields):
    """A node of which no card is registered."""
    return node(name, annotations={}, **fields)


def newcomer(name, machine="gpu", **fields):
    return bare(name, created_s=START_UNIX_S, labels={TYPE: machine}, **fields)


def told(world, name="p"):
    return explain.wait(explain.refused(world.ledger, world.entry(name).shape, Policy.BINPACK))


def told_by(world, name="p"):
    """What the controller tells, which remembers nodes that are gone."""
    ledger, shape = world.ledger, world.entry(name).shape
    helping = Helping(world.scheduler.cluster.search.kinds, shape, Policy.BINPACK)
    found = [refusal_on(ledger, shape, state, Policy.BINPACK) for state in ledger.states.values()]
    return explain.wait(explain.summed([one for one in found if one is not None], len(found), helping.told()))


def full(*more):
    """A world of which the only card is in use, and what joins it."""
    world = World(node("n1", memory=1000, labels={TYPE: "gpu"}), *more)
    world.adds(pod("a"), pod("p"))
    assert world.placed().keys() == {"a"}
    return world


def test_who_waits_for_a_new_nodes_cards_is_told_so_until_they_are_late():
    world = full()
    assert told(world).cause is Cause.UNSCHEDULABLE
    world.scheduler.nodes.changed(newcomer("n2"))
    wait = told(world)
    assert wait.cause is Cause.NODE_JOINING
    assert "1 new, with no cards registered yet" in wait.text
    assert "until the device plugin of n2 has registered its cards" in wait.text
    world.passes(59.0)
    assert told(world).cause is Cause.NODE_JOINING
    world.passes(7.0)
    wait = told(world)
    assert wait.cause is Cause.UNSCHEDULABLE
    assert "1 no cards for vgpu" in wait.text


def test_a_pod_goes_to_a_new_node_once_its_cards_are_registered():
    world = full(newcomer("n2"))
    world.scheduler.nodes.changed(node("n2", created_s=START_UNIX_S, version="2"))
    world.passes(0.1)
    assert world.placed()["p"] == "n2"


def test_what_waits_is_told_anew_when_a_node_is_new_no_more():
    world = full(newcomer("n2"))
    world.passes(1.0)
    world.scheduler.cluster.requeue.unreported.clear()
    world.passes(65.0)
    assert world.entry("p").shape in world.scheduler.cluster.requeue.unreported


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(bare("n2"), id="made-long-ago"),
        pytest.param(newcomer("n2", "cpu"), id="of-a-type-without-cards"),
        pytest.param(newcomer("n2", deleting=True), id="going-again"),
    ],
)
def test_other_nodes_without_cards_keep_nobody_from_buying_one(other):
    world = full(other)
    assert told(world).cause is Cause.UNSCHEDULABLE


def test_a_new_node_whose_labels_are_not_those_that_the_pod_asks_for_is_not_waited_for():
    world = full(newcomer("n2"))
    world.adds(pod("q", constraints=NodeConstraints(selector=(("pool", "x"),))))
    assert told(world, "q").cause is Cause.NEVER_FITS


def test_no_node_is_new_where_settings_say_so():
    world = World(node("n1", labels={TYPE: "gpu"}), newcomer("n2"), new_node_s=0.0)
    world.adds(pod("p", memory=99_999))
    assert told(world).cause is Cause.NEVER_FITS


def test_the_first_node_of_a_kind_that_settings_describe_or_that_was_there_before_is_waited_for():
    described = NodeKind(name="pool", labels=(("pool", "x"),))
    world = World(bare("n2", created_s=START_UNIX_S, labels={"pool": "x", "zone": "a"}), node_kinds=(described,))
    world.adds(pod("p"))
    assert told(world).cause is Cause.NODE_JOINING
    world = World(node("n1", labels={TYPE: "gpu"}))
    world.scheduler.nodes.gone(NodeName("n1"))
    world.adds(pod("p"))
    wait = told_by(world)
    assert (wait.cause, wait.text.endswith("A new node of type gpu (1 x T4) would take it.")) == (
        Cause.UNSCHEDULABLE,
        True,
    )
    world.scheduler.nodes.changed(newcomer("n2"))
    assert told_by(world).cause is Cause.NODE_JOINING


MARKS = [
    pytest.param(
        {"taints": (Taint(key="ToBeDeletedByClusterAutoscaler", effect="NoSchedule"),)}, id="cluster-autoscaler"
    ),
    pytest.param({"taints": (Taint(key="karpenter.sh/disrupted", effect="NoSchedule"),)}, id="karpenter"),
    pytest.param({"deleting": True}, id="deleted"),
]


@pytest.mark.parametrize("mark", MARKS)
def test_a_node_that_is_about_to_be_removed_takes_nobody_whatever_they_tolerate(mark):
    world = World(node("n1", **mark))
    world.adds(pod("p", constraints=ANYTHING))
    wait = told(world)
    assert not world.placed()
    assert wait.cause is Cause.UNSCHEDULABLE
    assert "1 about to be removed (" in wait.text
    assert "until n1 is no longer about to be removed" in wait.text
    world.scheduler.nodes.changed(node("n1", version="2"))
    world.passes(0.1)
    assert world.placed() == {"p": "n1"}


def test_a_node_that_could_be_removed_later_takes_pods():
    soft = Taint(key="DeletionCandidateOfClusterAutoscaler", effect="PreferNoSchedule")
    world = World(node("n1", taints=(soft,)))
    world.adds(pod("p"))
    assert world.placed() == {"p": "n1"}


def test_a_pod_that_waits_its_turn_goes_elsewhere_when_its_node_is_to_be_removed():
    world = World(node("n1"))
    # The plugin could mistake the two for each other, so that the second waits.
    world.adds(pod("p"), pod("q"))
    (first,) = world.binds()
    assert world.stage("q") == "turn"
    world.scheduler.nodes.changed(node("n2"))
    world.scheduler.nodes.changed(replace(node("n1", version="2"), deleting=True))
    world.accepts(first)
    world.serves("p")
    world.passes(1.0)
    assert [(bind.pod.name, bind.node) for bind in world.binds()] == [("q", "n2")]
