"""What columns say of how good a node could be: never worse than it is, and exact where one card is asked for."""

from random import Random

import numpy as np
import pytest

from core.catalog import standard_catalog
from core.constraints.constraint import ChangeLog
from core.ledger import Ledger
from core.model import Amounts, Node, NodeName
from core.placing.columns import REFUSED, Columns, Rows, ScoreBounds
from core.placing.decide import Found, NodePolicy, Shape, judged, ranked, shape_of
from core.placing.pack import NO_HOLE_VALUES
from core.settings import NodeWeights, Policy, Settings, Tables
from tests.bench.fleets import FLEETS
from tests.support.devices.catalogs import catalog_of
from tests.support.devices.toy import Toy, ToyRequest
from tests.support.judging.asking import asking
from tests.support.worlds.placed import reserve
from tests.support.worlds.world import node as vgpu_node
from tests.support.worlds.world import pod

POLICIES = (Policy.BINPACK, Policy.SPREAD, Policy.INDEX)


class Judge:
    """A ledger, and for each shape the bounds and the exact scores of its nodes."""

    def __init__(self, ledger, rule):
        self.ledger, self.rule = ledger, rule

    def columns(self, shape):
        rows = Rows(self.ledger.states)
        judging = self.ledger.catalog.judging(shape.dialect)
        columns = Columns(rows, ChangeLog(1), self.ledger.states, shape.dialect, judging, tie_ppm=self.rule.tie_ppm)
        columns.catch_up()
        return columns

    def bounds(self, shape):
        """The bound of each node by its name."""
        columns = self.columns(shape)
        bounds = ScoreBounds(shape, columns, self.ledger.catalog.judging(shape.dialect), self.rule)
        rows = columns.rows
        every = bounds.of(slice(0, len(rows)))
        # One row by itself is what it is among all, and in whatever order they are asked.
        assert [bounds.of(slice(row, row + 1))[0] for row in range(len(rows))] == every.tolist()
        assert bounds.of(np.arange(len(rows))[::-1]).tolist() == every[::-1].tolist()
        return {name: float(every[row]) for name, row in rows.of.items()}

    def exact(self, shape, name):
        """The negated score of a node; `REFUSED` where the shape does not fit."""
        state = self.ledger.states[name]
        placed = judged(self.ledger, self.rule, shape, state, None)
        if placed is None:
            return REFUSED
        return ranked(self.ledger, self.rule, shape, state, placed, tie_ppm=0).minus_score

    def fill(self, chance, shapes, count):
        """Promise *count* of *shapes*, each on some node that takes it."""
        for number in range(count):
            shape = chance.choice(shapes)
            for name in chance.sample(sorted(self.ledger.states), len(self.ledger.states)):
                placed = judged(self.ledger, self.rule, shape, self.ledger.states[name], None)
                if placed is not None:
                    rank = ranked(self.ledger, self.rule, shape, self.ledger.states[name], placed, tie_ppm=0)
                    reserve(self.ledger, f"p{number}", shape, Found(name, placed, rank))
                    break

    def hold(self, shapes):
        """Compare all bounds with what is exact; how many nodes take one of *shapes*."""
        taken = 0
        for shape in shapes:
            for name, bound in self.bounds(shape).items():
                exact = self.exact(shape, name)
                assert bound <= exact, (shape.request, name)
                taken += exact != REFUSED
        return taken


def toy_node(name, cards, **about):
    return Node(name=NodeName(name), annotations={"toy.example/cards": cards}, **about)


def toy_shape(amounts: Amounts = (), **asked):
    return Shape(dialect=Toy.name, request=ToyRequest(**asked), amounts=amounts, asked=asking())


def toys(chance, nodes, kinds=("x:8", "x:8", "x:16", "y:8")):
    """Nodes with cards of some of *kinds*, with room for other things."""
    ledger = Ledger(catalog_of(Toy()), Tables(), Settings())
    for number in range(nodes):
        some = chance.sample(kinds, chance.randint(1, len(kinds)))
        cards = ",".join(chance.choice(some) for _ in range(chance.randint(1, 6)))
        about = {"allocatable": {"pods": "99", "cpu": "8", "memory": "8Gi"}}
        ledger.set_node(toy_node(f"n{number}", cards, **about))
    return ledger


def some_toys(chance, count):
    return [
        toy_shape(
            amounts=(("cpu", chance.choice((0, 500))), ("pods", 1)),
            memory=chance.randint(1, 10),
            cores=chance.choice((0, 0, 30, 60)),
            cards=chance.choice((1, 1, 2, 3)),
            kind=chance.choice(("", "", "x", "y")),
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("weight", [1, 3, 0])
@pytest.mark.parametrize(
    "others", [NodeWeights(), NodeWeights(binpack=2, balanced=1), NodeWeights(least_requested=1, most_requested=2)]
)
def test_no_bound_is_worse_than_what_a_toy_node_is(policy, weight, others, seed):
    chance = Random(seed)
    judge = Judge(toys(chance, 12), NodePolicy(policy, weight, others))
    shapes = some_toys(chance, 10)
    judge.fill(chance, shapes, chance.randint(0, 50))
    assert judge.hold(shapes)


@pytest.mark.parametrize("held", [0, 1, 3, 6, 9])
def test_what_is_asked_of_several_mig_cards_is_bounded_by_the_best_of_their_slices(held):
    fleet = FLEETS["vgpu-mig"]
    ledger = Ledger(standard_catalog(), fleet.tables, Settings())
    ledger.set_node(fleet.node(0))
    judge = Judge(ledger, NodePolicy(Policy.BINPACK, 1))
    single = [shape_of(pod("p", memory=memory, number=1), ledger) for memory in (4000, 9000, 18000)]
    judge.fill(Random(held), single, held)
    several = [shape_of(pod("p", memory=memory, number=number), ledger) for memory in (4000, 9000) for number in (2, 3)]
    assert judge.hold(several)
    assert not judge.columns(several[0]).mixed.any()


@pytest.mark.parametrize("seed", range(6))
def test_what_one_hami_core_card_is_asked_for_is_told_exactly(seed):
    chance = Random(seed)
    ledger = Ledger(standard_catalog(), Tables(), Settings())
    for number in range(10):
        ledger.set_node(vgpu_node(f"n{number}", cards=chance.randint(1, 8)))
    shapes = [shape_of(pod("p", memory=chance.randint(1, 8000), number=1), ledger) for _ in range(10)]
    judge = Judge(ledger, NodePolicy(Policy.BINPACK, chance.choice((1, 7))))
    judge.fill(chance, shapes, 60)
    fitting = 0
    for shape in shapes:
        for name, bound in judge.bounds(shape).items():
            exact = judge.exact(shape, name)
            # A card may refuse for what no column has; where it takes the shape, the figures are one float.
            assert exact in (bound, REFUSED)
            fitting += exact != REFUSED
    assert fitting


@pytest.mark.parametrize(
    ("asked", "bound"),
    [
        pytest.param({"memory": 3}, -50.0, id="the card with least room that has enough: 1 + 3 of 8"),
        pytest.param({"memory": 3, "cards": 2}, -87.5, id="two cards: 1 + 3 and 0 + 3 of 8"),
        pytest.param({"memory": 8, "cards": 2}, REFUSED, id="one of two is too full"),
        pytest.param({"memory": 1, "cards": 4}, REFUSED, id="more cards than there are"),
        pytest.param({"memory": 1, "kind": "y"}, REFUSED, id="no card of the kind"),
        pytest.param({"memory": 9}, REFUSED, id="more than a card has"),
    ],
)
def test_a_bound_is_what_the_fullest_cards_would_come_to(asked, bound):
    ledger = Ledger(catalog_of(Toy()), Tables(), Settings())
    ledger.set_node(toy_node("a", "x:8,x:8"))
    judge = Judge(ledger, NodePolicy(Policy.BINPACK, 1))
    judge.fill(Random(0), [toy_shape(memory=1)], 1)
    assert judge.bounds(toy_shape(**asked)) == {"a": bound}


def test_where_nothing_bounds_a_score_every_node_with_cards_enough_is_to_be_judged():
    ledger = Ledger(catalog_of(Toy()), Tables(), Settings())
    ledger.set_node(toy_node("a", "x:8,x:8"))
    ledger.set_node(toy_node("b", "x:8"))
    judge = Judge(ledger, NodePolicy(Policy.BINPACK, 1, tables=NO_HOLE_VALUES))
    assert judge.bounds(toy_shape(memory=3, cards=2)) == {"a": -REFUSED, "b": REFUSED}
    # Nor does free room where cards of one node are of several kinds and a pod asks for more than one.
    ledger.set_node(toy_node("c", "x:8,y:8"))
    mixed = Judge(ledger, NodePolicy(Policy.BINPACK, 1))
    assert mixed.bounds(toy_shape(memory=4, cards=2)) == {"a": -100.0, "b": REFUSED, "c": -REFUSED}


def test_without_any_card_nothing_fits():
    ledger = Ledger(catalog_of(Toy()), Tables(), Settings())
    ledger.set_node(toy_node("a", "x:0"))
    assert Judge(ledger, NodePolicy(Policy.BINPACK, 1)).bounds(toy_shape(memory=1)) == {"a": REFUSED}
