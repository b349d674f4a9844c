"""Pods without cards, from the queue to their Binding: as others, less all that has to do with device plugins."""

import pytest

from core.explaining import explain
from core.model import Container, NodeName
from core.settings import Policy
from core.waiting import Cause
from tests.support.worlds.world import World, node, pod

BARE = {"annotations": {}, "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"}}


def bare(name, **fields):
    return node(name, **{**BARE, "allocatable": BARE["capacity"], **fields})


def asks(name, cpu="1", **fields):
    amounts = {"cpu": cpu, "memory": "1Gi"}
    return pod(name, containers=(Container(name="main", limits=amounts, requests=amounts),), **fields)


def test_it_is_bound_with_no_annotation_and_waits_for_no_plugin():
    world = World(node("n1"))
    world.adds(asks("p"), asks("q"), pod("with-cards"))
    binds = {bind.pod.key: bind for bind in world.binds()}
    assert set(binds) == {"default/p", "default/q", "default/with-cards"}
    assert (binds["default/p"].node, dict(binds["default/p"].annotations), binds["default/p"].where) == ("n1", {}, "n1")
    assert dict(binds["default/with-cards"].annotations)


def test_nodes_without_cards_come_first():
    world = World(node("a"), bare("b"))
    world.adds(asks("p"))
    assert [bind.node for bind in world.binds()] == ["b"]


def test_it_waits_for_cpu_and_is_placed_when_another_ends():
    world = World(bare("n1"))
    world.adds(asks("holds", "3", node_name="n1"), asks("p", "2"))
    assert world.binds() == []
    assert world.stage("p") == "refused"
    world.gone("holds")
    world.passes(1.0)
    assert [bind.pod.key for bind in world.binds()] == ["default/p"]


def test_once_bound_it_is_counted_and_nothing_of_it_is_in_flight():
    world = World(bare("n1"))
    world.adds(asks("p", "3"))
    (bind,) = world.binds()
    world.accepts(bind)
    world.shows_bound(bind)
    assert world.ledger.states[NodeName("n1")].used["cpu"] == 3000
    assert not world.scheduler.cluster.handoff.in_flight
    world.adds(asks("q", "2"))
    assert world.binds() == []


@pytest.mark.parametrize("resource", ["volcano.sh/vgpu-number", "huawei.com/npu-core"])
def test_a_resource_of_cards_that_are_not_sold_by_it_is_not_passed_over(resource):
    """A device plugin gives cards out by it, whatever the configuration says."""
    world = World(node("n1"), dialects=frozenset())
    world.adds(pod("p", limits={resource: "1"}))
    assert world.binds() == []
    assert world.wait("p").cause in (Cause.SWITCHED_OFF, Cause.INVALID, Cause.NOT_SOLD)


def test_what_it_lacks_and_which_node_would_help_is_told():
    world = World(bare("n1"))
    world.adds(asks("holds", "3", node_name="n1"), asks("p", "2"))
    world.plan()
    shape = world.entry("p").shape
    assert shape is not None
    wait = explain.wait(explain.refused(world.ledger, shape, Policy.BINPACK))
    assert wait.cause is Cause.UNSCHEDULABLE
    assert "1 insufficient cpu" in wait.text
    assert "at most 1 cpu" in wait.text
    assert wait.text.endswith("A new node with 4 cpus and 8 Gi of memory would take it.")
