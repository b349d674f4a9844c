"""Reading a large cluster in slices while it goes on changing, and what is kept of all that was asked."""

import gc
import tracemalloc
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from core.catalog import standard_catalog
from core.constraints.constraint import Constraints
from core.ledger import Ledger
from core.model import Container, Node, NodeConstraints, NodeName, Pod, PodUid, Toleration
from core.placing.candidates import Candidates
from core.placing.columns import Columns
from core.placing.decide import NodePolicy, Shape, node_policy, scan, shape_of
from core.settings import NodeWeights, Policy, Settings, Tables
from tests.support.devices.catalogs import catalog_of
from tests.support.devices.toy import Toy, ToyRequest
from tests.support.judging.asking import asking
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
        asked=asking(),
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
    assert pauses >= 4
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
            asked=asking(),
        )
        for width in (cards, 2)
    ]
    for shape in shapes:
        candidates.best(shape)
    for number in range(850):
        ledger.set_node(_node(number, labels={"seen": "twice"}))
    first, second = shapes
    assert not candidates.is_prepared(first)
    assert not candidates.is_prepared(second)
    assert sum(1 for _ in candidates.prepare(first)) >= 4
    # Both are answered from the same columns; but for who asks for several cards nodes with several kinds are judged.
    judged = [candidates.judged, *(candidates.judged for _ in candidates.prepare(second)), candidates.judged]
    assert max(after - before for before, after in pairwise(judged)) <= 200
    for shape in (first, second):
        assert candidates.is_prepared(shape)
        assert candidates.best(shape) == scan(ledger, rule, shape)


@pytest.mark.parametrize("others", [NodeWeights(), NodeWeights(binpack=1)])
def test_a_shape_that_every_node_refuses_is_judged_in_slices(others):
    ledger = Ledger(catalog_of(Toy()), Tables(), Settings())
    for number in range(900):
        ledger.set_node(_node(number))
    candidates = Candidates(ledger, NodePolicy(Policy.BINPACK, 1, others))
    shape = Shape(dialect=Toy.name, request=ToyRequest(7, 0, 1), amounts=(("cpu", 9000),), asked=asking())
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
    shape = Shape(dialect=Toy.name, request=ToyRequest(7, 0, 1), amounts=(), asked=asking())
    asked: list[str] = []
    admits = Constraints.admits

    def counted(self, constraints, facts):
        asked.append(facts.name)
        return admits(self, constraints, facts)

    monkeypatch.setattr(Constraints, "admits", counted)
    for _ in Candidates(ledger, NodePolicy(Policy.BINPACK, 1)).prepare(shape):
        pass
    assert sorted(asked) == sorted(ledger.states)


def test_a_node_that_goes_while_columns_are_read_is_not_found_though_the_log_was_cut(monkeypatch):
    monkeypatch.setattr("core.ledger._LOG_MAX", 8)
    ledger = Ledger(catalog_of(Toy()), Tables(), Settings())
    for number in range(300):
        ledger.set_node(_node(number))
    shape = Shape(dialect=Toy.name, request=ToyRequest(1, 0, 1), amounts=(), asked=asking())
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
        asked=asking(),
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


def packing(nodes: int) -> tuple[Ledger, NodePolicy, list[Shape]]:
    """A cluster of which nothing bounds how good a node is, and two shapes."""
    settings = Settings(policy=Policy.PACK)
    ledger = Ledger(standard_catalog(), Tables(), settings)
    for number in range(nodes):
        ledger.set_node(vgpu_node(f"n{number:05}", cards=2))
    return ledger, node_policy(settings), [tolerating(number, ledger) for number in range(2)]


def test_nodes_that_change_again_and_again_are_judged_once_and_others_not_at_all():
    ledger, policy, (shape, _) = packing(60)
    candidates = Candidates(ledger, policy)
    assert candidates.best(shape) == scan(ledger, policy, shape)
    before = candidates.judged
    for number in range(300):
        ledger.recount(NodeName(f"n{number % 3:05}"))
    assert candidates.best(shape) == scan(ledger, policy, shape)
    assert candidates.judged <= before + 4


def test_a_known_shape_for_which_much_has_to_be_judged_is_prepared_in_slices():
    ledger, policy, (shape, other) = packing(500)
    candidates = Candidates(ledger, policy)
    for one in (shape, other):
        candidates.best(one)
    for name in ledger.states:
        ledger.recount(name)
    # Another's ask reads the nodes, but judges them for itself alone.
    for _ in candidates.prepare(other):
        pass
    assert candidates.is_prepared(other)
    assert not candidates.is_prepared(shape)
    judged = [candidates.judged, *(candidates.judged for _ in candidates.prepare(shape)), candidates.judged]
    assert max(after - before for before, after in pairwise(judged)) <= 16
    assert candidates.is_prepared(shape)
    assert candidates.best(shape) == scan(ledger, policy, shape)
    assert candidates.judged <= judged[-1] + 1


def test_to_prepare_comes_to_an_end_however_much_changes_between_its_slices():
    ledger, policy, (shape, _) = packing(60)
    candidates = Candidates(ledger, policy)
    for _ in candidates.prepare(shape):
        for name in ledger.states:
            ledger.recount(name)
    assert candidates.best(shape) == scan(ledger, policy, shape)


@pytest.mark.interpreted(reason="compiled functions call each other without asking the class")
def test_what_is_read_while_a_shape_is_prepared_is_read_in_slices_though_all_is_begun_anew(monkeypatch):
    monkeypatch.setattr("core.ledger._LOG_MAX", 8)
    ledger, policy, (shape, _) = packing(500)
    candidates = Candidates(ledger, policy)
    read: list[int] = []
    catch_up = Columns.catch_up

    def counted(self, most=None):
        read.append(len(self.behind))
        catch_up(self, most)

    monkeypatch.setattr(Columns, "catch_up", counted)
    for at, _ in enumerate(candidates.prepare(shape)):
        if at == 5:
            for number in range(20):
                ledger.recount(NodeName(f"n{number:05}"))
            read.clear()
    assert len(read) > 3
    assert candidates.best(shape) == scan(ledger, policy, shape)


@pytest.mark.parametrize("name", ["n00005-{:04}", "n00005{:a>99}"])
def test_names_that_come_between_others_make_nobody_read_anew_what_is_known(name):
    ledger = filled(40, 2)
    policy = node_policy(Settings())
    candidates = Candidates(ledger, policy)
    shape, other = tolerating(0, ledger), tolerating(1, ledger)
    candidates.best(other)
    for number in range(120):
        ledger.set_node(vgpu_node(name.format(number), cards=2))
        assert candidates.best(shape) == scan(ledger, policy, shape)
        assert candidates.remembered.shapes == 2
    assert candidates.best(other) == scan(ledger, policy, other)


def test_a_pod_that_asks_more_than_64_bits_hold_finds_no_node():
    ledger = Ledger(standard_catalog(), Tables(), Settings())
    ledger.set_node(_node(1))
    policy = node_policy(Settings())
    huge = tuple(Container(name=name, limits={"memory": "7Ei", "cpu": "9P"}) for name in "ab")
    asking = Pod(uid=PodUid("p"), namespace="d", name="p", containers=huge)
    shape = shape_of(asking, ledger)
    assert isinstance(shape, Shape)
    assert Candidates(ledger, policy).best(shape) is None
    assert scan(ledger, policy, shape) is None


def test_what_is_kept_keeps_to_its_bytes_when_nodes_become_more():
    ledger = filled(40, 1)
    policy = node_policy(Settings())
    candidates = Candidates(ledger, policy, bytes_max=30_000)
    shapes = [tolerating(number, ledger) for number in range(30)]
    for shape in shapes:
        candidates.best(shape)
    assert candidates.remembered.shapes == 30
    for number in range(40, 400):
        ledger.set_node(vgpu_node(f"n{number:05}", cards=1))
        candidates.best(shapes[-1])
        assert candidates.remembered.size_bytes <= 30_000
    assert candidates.best(shapes[0]) == scan(ledger, policy, shapes[0])


def test_what_shapes_keep_of_kinds_of_cards_is_told():
    ledger = Ledger(standard_catalog(), Tables(), Settings())
    for number in range(2000):
        ledger.set_node(replace(_node(number), allocatable={"cpu": f"{8000 + number}m", "memory": "8Gi", "pods": "9"}))
    candidates = Candidates(ledger, node_policy(Settings()))
    asking = Pod(uid=PodUid("p"), namespace="d", name="p", containers=(Container(name="c", limits={"cpu": "1"}),))
    shapes = []
    for number in range(9):
        tolerations = (Toleration(key=f"k{number}", operator="Exists"),)
        shape = shape_of(asking._replace(constraints=NodeConstraints(tolerations=tolerations)), ledger)
        assert isinstance(shape, Shape)
        shapes.append(shape)
    candidates.best(shapes[0])
    gc.collect()
    tracemalloc.start()
    try:
        before = candidates.remembered.size_bytes
        for shape in shapes[1:]:
            candidates.best(shape)
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert 0.9 < taken / (candidates.remembered.size_bytes - before) < 1.3


def filled(nodes: int, cards: int) -> Ledger:
    """A ledger whose cards are filled so differently that hardly two nodes stand at one place."""
    chance = Random(1)
    ledger = Ledger(standard_catalog(), Tables(), Settings())
    for number in range(nodes):
        name = f"n{number:05}"
        ledger.set_node(vgpu_node(name, cards=cards))
        ids = "".join(f"{name}-{at},NVIDIA,{chance.randrange(1, 9000)},0:" for at in range(cards))
        ledger.count(pod(f"h{number}")._replace(node_name=name, annotations={"volcano.sh/vgpu-ids-new": ids}))
    return ledger


def tolerating(key: int, ledger: Ledger, **about) -> Shape:
    constraints = NodeConstraints(tolerations=(Toleration(key=f"k{key}", operator="Exists"),))
    shape = shape_of(pod("p", memory=500, constraints=constraints, **about), ledger)
    assert isinstance(shape, Shape)
    return shape


@pytest.mark.parametrize("width", [1, 2])
def test_a_shape_takes_hardly_more_memory_than_it_is_taken_for(width):
    ledger = filled(2000, 2)
    candidates = Candidates(ledger, node_policy(Settings()))
    candidates.best(tolerating(0, ledger, number=width))
    shapes = [tolerating(number, ledger, number=width) for number in range(1, 9)]
    gc.collect()
    tracemalloc.start()
    try:
        before = candidates.remembered.size_bytes
        for shape in shapes:
            candidates.best(shape)
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    told = candidates.remembered.size_bytes - before
    assert 0.9 < taken / told < 1.3


def test_what_is_told_of_the_columns_is_what_they_take():
    ledger = filled(2000, 8)
    shape = tolerating(0, ledger)
    candidates = Candidates(ledger, node_policy(Settings()))
    gc.collect()
    tracemalloc.start()
    try:
        candidates.best(shape)
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert 0.8 < taken / candidates.remembered.size_bytes < 1.3


def test_what_is_kept_keeps_to_its_bytes_and_shapes_that_are_asked_stay():
    ledger = filled(40, 4)
    policy = node_policy(Settings())
    alone = Candidates(ledger, policy)
    sizes = []
    for number in range(2):
        alone.best(tolerating(number, ledger))
        sizes.append(alone.remembered.size_bytes)
    most = sizes[0] + 4 * (sizes[1] - sizes[0])
    candidates = Candidates(ledger, policy, bytes_max=most)
    hot = tolerating(0, ledger)
    for number in range(1, 60):
        shape = tolerating(number, ledger)
        assert candidates.best(shape) == scan(ledger, policy, shape)
        assert candidates.remembered.size_bytes <= most
        assert candidates.best(hot) is not None
        assert candidates.is_prepared(hot)
        assert candidates.remembered.shapes == min(number + 1, 5)
    # A budget to which not even the columns keep is no reason to answer nothing.
    tight = Candidates(ledger, policy, bytes_max=1)
    assert [tight.best(tolerating(number, ledger)) is not None for number in range(3)] == [True] * 3
    assert tight.remembered.shapes == 1
