"""Preparing an order of a large cluster in slices, while the cluster goes on changing."""

import gc
import tracemalloc
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from core import nodefit
from core.catalog import standard_catalog
from core.ledger import Ledger
from core.model import Node, NodeConstraints, NodeName, Toleration
from core.placing.candidates import Candidates
from core.placing.decide import shape_of
from core.placing.score import NodePolicy, node_policy
from core.placing.shape import Shape, scan
from core.settings import NodeWeights, Policy, Settings
from core.tables import Tables
from tests.support.devices.catalogs import catalog_of
from tests.support.devices.toy import Toy, ToyRequest
from tests.support.worlds.placed import reserve
from tests.support.worlds.world import node as vgpu_node
from tests.support.worlds.world import pod


def _node(number: int, **about) -> Node:
    cards = ",".join(f"a:{8 + (number + card) % 5}" for card in range(4))
    return Node(
        name=NodeName(f"n{number:04d}"),
        annotations={"toy.example/cards": cards},
        allocatable={"pods": "9", "cpu": "8", "memory": "8Gi"},
        **about,
    )


@pytest.mark.parametrize("policy", [Policy.BINPACK, Policy.SPREAD])
@pytest.mark.parametrize("cards", [1, 3])
def test_what_changes_between_the_slices_is_not_missed(policy, cards):
    ledger = Ledger(catalog_of(Toy()), Tables(), Settings())
    for number in range(900):
        ledger.set_node(_node(number))
    rule = NodePolicy(policy, 1)
    candidates = Candidates(ledger, rule)
    shape = Shape(
        dialect=Toy.name,
        request=ToyRequest(7, 0, cards),
        amounts=(("pods", 1),),
        constraints=NodeConstraints(),
    )
    assert not candidates.is_prepared(shape)
    pauses = 0
    for at, _ in enumerate(candidates.prepare(shape)):
        pauses += 1
        ledger.remove_node(NodeName(f"n{at:04d}"))
        ledger.set_node(_node(890 - at, unschedulable=True))
        ledger.set_node(_node(2000 + at))
        found = scan(ledger, rule, shape)
        assert found is not None
        reserve(ledger, f"p{at}", shape, found)
    assert pauses >= 6
    assert candidates.is_prepared(shape)
    assert candidates.best(shape) == scan(ledger, rule, shape)


@pytest.mark.parametrize("cards", [1, 3])
def test_what_changed_meanwhile_is_caught_up_with_in_slices(cards):
    ledger = Ledger(catalog_of(Toy()), Tables(), Settings())
    for number in range(900):
        ledger.set_node(_node(number))
    rule = NodePolicy(Policy.BINPACK, 1)
    candidates = Candidates(ledger, rule)
    shapes = [
        Shape(
            dialect=Toy.name,
            request=ToyRequest(7, 0, width),
            amounts=(("pods", 1),),
            constraints=NodeConstraints(),
        )
        for width in (cards, 2)
    ]
    for shape in shapes:
        candidates.best(shape)
    for number in range(850):
        ledger.set_node(_node(number, labels={"seen": "twice"}))
    for shape in shapes:
        assert not candidates.is_prepared(shape)
        assert sum(1 for _ in candidates.prepare(shape)) >= 4
        assert candidates.is_prepared(shape)
        assert candidates.best(shape) == scan(ledger, rule, shape)


@pytest.mark.parametrize("others", [NodeWeights(), NodeWeights(binpack=1)])
def test_a_shape_that_every_node_refuses_is_judged_in_slices(others):
    ledger = Ledger(catalog_of(Toy()), Tables(), Settings())
    for number in range(900):
        ledger.set_node(_node(number))
    candidates = Candidates(ledger, NodePolicy(Policy.BINPACK, 1, others))
    shape = Shape(
        dialect=Toy.name, request=ToyRequest(7, 0, 1), amounts=(("cpu", 9000),), constraints=NodeConstraints()
    )
    judged = [0, *(candidates.judged for _ in candidates.prepare(shape)), candidates.judged]
    assert max(after - before for before, after in pairwise(judged)) <= 200
    assert candidates.judged == 900
    assert candidates.is_prepared(shape)
    assert candidates.best(shape) is None
    assert candidates.judged == 900


@pytest.mark.interpreted(reason="compiled functions call each other without asking the module")
def test_where_nothing_changes_every_node_is_admitted_once(monkeypatch):
    ledger = Ledger(catalog_of(Toy()), Tables(), Settings())
    for number in range(500):
        ledger.set_node(_node(number))
    shape = Shape(dialect=Toy.name, request=ToyRequest(7, 0, 1), amounts=(), constraints=NodeConstraints())
    asked: list[str] = []
    admits = nodefit.admits

    def counted(constraints, facts):
        asked.append(facts.name)
        return admits(constraints, facts)

    monkeypatch.setattr(nodefit, "admits", counted)
    for _ in Candidates(ledger, NodePolicy(Policy.BINPACK, 1)).prepare(shape):
        pass
    assert sorted(asked) == sorted(ledger.states)


def test_a_node_that_goes_while_an_index_is_made_is_not_walked_to_though_the_log_was_cut(monkeypatch):
    monkeypatch.setattr("core.ledger._LOG_MAX", 8)
    ledger = Ledger(catalog_of(Toy()), Tables(), Settings())
    for number in range(300):
        ledger.set_node(_node(number))
    shape = Shape(dialect=Toy.name, request=ToyRequest(1, 0, 1), amounts=(), constraints=NodeConstraints())
    rule = NodePolicy(Policy.BINPACK, 1)
    candidates = Candidates(ledger, rule)
    slices = candidates.prepare(shape)
    next(slices)
    for name in list(ledger.states)[:40]:
        ledger.remove_node(name)
    for _ in slices:
        pass
    assert candidates.best(shape) == scan(ledger, rule, shape)


def test_weights_of_other_resources_are_weighed_as_a_scan_does():
    ledger = Ledger(catalog_of(Toy()), Tables(), Settings())
    for number in range(50):
        ledger.set_node(_node(number))
    shape = Shape(
        dialect=Toy.name,
        request=ToyRequest(7),
        amounts=(("cpu", 1000), ("pods", 1)),
        constraints=NodeConstraints(),
    )
    rule = NodePolicy(Policy.BINPACK, 1, NodeWeights(least_requested=5))
    candidates = Candidates(ledger, rule)
    used = []
    for at in range(60):
        found = candidates.best(shape)
        assert found == scan(ledger, rule, shape)
        assert found is not None
        used.append(found.node)
        reserve(ledger, f"p{at}", shape, found)
    assert len(set(used)) > 10


def filled(nodes: int, cards: int) -> Ledger:
    """A ledger whose cards are filled so differently that hardly two nodes stand at one place."""
    chance = Random(1)
    ledger = Ledger(standard_catalog(), Tables(), Settings())
    for number in range(nodes):
        name = f"n{number:05}"
        ledger.set_node(vgpu_node(name, cards=cards))
        ids = "".join(f"{name}-{at},NVIDIA,{chance.randrange(1, 9000)},0:" for at in range(cards))
        ledger.count(replace(pod(f"h{number}"), node_name=name, annotations={"volcano.sh/vgpu-ids-new": ids}))
    return ledger


def tolerating(key: int, ledger: Ledger, **about) -> Shape:
    constraints = NodeConstraints(tolerations=(Toleration(key=f"k{key}", operator="Exists"),))
    shape = shape_of(pod("p", memory=500, constraints=constraints, **about), ledger)
    assert isinstance(shape, Shape)
    return shape


@pytest.mark.parametrize(("cards", "width"), [(1, 1), (8, 1), (8, 2), (16, 2)])
def test_an_index_takes_hardly_more_memory_than_it_is_taken_for(cards, width):
    ledger = filled(300, cards)
    candidates = Candidates(ledger, node_policy(Settings()))
    candidates.best(tolerating(0, ledger, number=width))
    gc.collect()
    tracemalloc.start()
    try:
        before = candidates.remembered.index_bytes
        for number in range(1, 6):
            candidates.best(tolerating(number, ledger, number=width))
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    told = candidates.remembered.index_bytes - before
    assert 0.4 < taken / told < 1.2


def test_indices_keep_to_their_bytes_and_those_that_are_asked_stay():
    ledger = filled(40, 4)
    policy = node_policy(Settings())
    alone = Candidates(ledger, policy)
    alone.best(tolerating(0, ledger))
    one = alone.remembered.index_bytes
    candidates = Candidates(ledger, policy, index_bytes_max=5 * one)
    hot = tolerating(0, ledger)
    for number in range(1, 60):
        shape = tolerating(number, ledger)
        assert candidates.best(shape) == scan(ledger, policy, shape)
        # What is made last may be asked before it is weighed.
        assert candidates.remembered.index_bytes <= 6 * one
        assert candidates.best(hot) is not None
        assert candidates.is_prepared(hot)
        assert candidates.remembered.shapes <= 6
    # A budget that not even one keeps to is no reason to answer nothing.
    tight = Candidates(ledger, policy, index_bytes_max=1)
    assert [tight.best(tolerating(number, ledger)) is not None for number in range(3)] == [True] * 3
    assert tight.remembered.shapes == 1


def test_verdicts_keep_to_their_number():
    ledger = filled(50, 1)
    policy = node_policy(Settings())
    candidates = Candidates(ledger, policy, verdicts_max=400)
    asked = [shape_of(pod("p", memory=9500 + number, number=1), ledger) for number in range(100)]
    for shape in asked:
        assert isinstance(shape, Shape)
        assert candidates.best(shape) == scan(ledger, policy, shape)
        assert candidates.remembered.verdicts <= 450
    for name in list(ledger.states):
        ledger.remove_node(name)
    assert candidates.best(asked[-1]) is None  # type: ignore[arg-type]
    assert candidates.remembered.verdicts == 0
