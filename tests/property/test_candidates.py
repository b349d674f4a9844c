"""The search answers exactly what looking at every node would."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.constraints.constraint import NodeSet
from core.ledger import Ledger
from core.model import Image, Node, NodeConstraints, NodeName, Pod, PodUid, Taint
from core.placing.candidates import Candidates
from core.placing.decide import NodePolicy, Shape, scan
from core.settings import NodeWeights, Policy, Settings, Tables
from tests.support.devices.catalogs import catalog_of
from tests.support.devices.toy import Toy, ToyRequest
from tests.support.judging.asking import asking
from tests.support.worlds.placed import reserve

KINDS = ("a", "b")
ZONES = ("x", "y")

nodes = st.builds(
    lambda cards, zone, cpu, tainted: (cards, zone, cpu, tainted),
    st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from((8, 8, 16))), min_size=1, max_size=4),
    st.sampled_from(ZONES),
    st.integers(1, 6),
    st.booleans(),
)
shapes = st.builds(
    lambda memory, cores, cards, kind, zone, cpu: Shape(
        dialect=Toy.name,
        request=ToyRequest(memory, cores, cards, kind),
        amounts=(("cpu", cpu * 1000), ("pods", 1)),
        asked=asking(NodeConstraints(selector=(("zone", zone),) if zone else ())),
    ),
    st.integers(1, 16),
    st.sampled_from((0, 30, 60)),
    st.sampled_from((1, 1, 1, 2, 3)),
    st.sampled_from(("", "", "a")),
    st.sampled_from(("", "", "x")),
    st.integers(0, 2),
)


def _node(number: int, what) -> Node:
    cards, zone, cpu, tainted = what
    return Node(
        name=NodeName(f"n{number}"),
        labels={"zone": zone},
        annotations={"toy.example/cards": ",".join(f"{kind}:{total}" for kind, total in cards)},
        allocatable={"cpu": str(cpu), "pods": "6"},
        taints=(Taint(key="t", effect="NoSchedule"),) if tainted else (),
    )


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from((Policy.BINPACK, Policy.SPREAD, Policy.INDEX)),
    st.sampled_from((1, 1, 3, 0)),
    st.sampled_from((NodeWeights(), NodeWeights(), NodeWeights(binpack=2), NodeWeights(least_requested=1, balanced=1))),
    st.lists(nodes, min_size=1, max_size=16),
    st.lists(shapes, min_size=1, max_size=4),
    st.lists(
        st.tuples(st.sampled_from("ppppprnx"), st.integers(0, 99), nodes, st.integers(0, 3)),
        max_size=60,
    ),
)
def test_the_best_candidate_is_the_best_of_all(policy, weight, others, first, some_shapes, steps):
    ledger = Ledger(catalog_of(Toy()), Tables(), Settings())
    for number, what in enumerate(first):
        ledger.set_node(_node(number, what))
    rule = NodePolicy(policy, weight, others)
    candidates = Candidates(ledger, rule, at_once=2)
    placed: list[PodUid] = []
    for number, (step, pick, what, skip) in enumerate(steps):
        shape = some_shapes[pick % len(some_shapes)]
        passed_over = frozenset(NodeName(f"n{n}") for n in range(skip)) if skip > 1 else frozenset()
        if number % 3 == 0 and not candidates.is_prepared(shape):
            for at, _ in enumerate(candidates.prepare(shape)):
                ledger.set_node(_node(100 + at, what))
            assert candidates.is_prepared(shape)
        if step == "p":
            found = candidates.best(shape, passed_over)
            assert found == scan(ledger, rule, shape, passed_over)
            if found is not None:
                placed.append(reserve(ledger, f"p{number}", shape, found))
        elif step == "r" and placed:
            ledger.release(placed.pop(pick % len(placed)))
        elif step == "n":
            ledger.set_node(_node(pick % (len(first) + 2), what))
        elif step == "x":
            ledger.remove_node(NodeName(f"n{pick % len(first)}"))


@pytest.mark.parametrize("seed", range(10))
def test_nodes_that_are_left_out_for_a_while_are_asked_when_they_are_not(seed):
    """A crowd of nodes comes and goes, as those whose plugins are busy do; walks remember past them."""
    chance = random.Random(seed)

    def some_node():
        cards = [(chance.choice("aab"), chance.choice((8, 16))) for _ in range(chance.randint(1, 4))]
        return cards, chance.choice(ZONES), chance.randint(1, 6), False

    ledger = Ledger(catalog_of(Toy()), Tables(), Settings())
    for number in range(80):
        ledger.set_node(_node(number, some_node()))
    rule = NodePolicy(chance.choice((Policy.BINPACK, Policy.SPREAD)), 1)
    candidates = Candidates(ledger, rule)
    wanted = [
        Shape(
            dialect=Toy.name,
            request=ToyRequest(chance.randint(1, 16), 0, chance.choice((1, 2))),
            amounts=(("pods", 1),),
            asked=asking(),
        )
        for _ in range(2)
    ]
    crowd = NodeSet()
    for number in range(120):
        shape = chance.choice(wanted)
        left_out = crowd if chance.random() < 0.8 else None
        found = candidates.best(shape, left_out=left_out)
        assert found == scan(ledger, rule, shape, frozenset(left_out or ()))
        if found is not None and chance.random() < 0.8:
            reserve(ledger, f"p{number}", shape, found)
            crowd.add(found.node)
        if crowd and chance.random() < 0.3:
            crowd.discard(chance.choice(sorted(crowd)))
        if chance.random() < 0.02:
            crowd = NodeSet()


@pytest.mark.parametrize("seed", range(40))
def test_of_the_best_nodes_the_one_with_the_images_is_found(seed):
    """Images come and go, and so do pods and nodes; in all of it the best is that of a scan, which keeps nothing."""
    chance = random.Random(seed)
    weights = chance.choice((NodeWeights(), NodeWeights(), NodeWeights(least_requested=1)))
    rule = NodePolicy(chance.choice((Policy.BINPACK, Policy.SPREAD)), chance.choice((1, 0)), weights)
    ledger = Ledger(catalog_of(Toy()), Tables(), Settings(node_weights=weights))
    candidates = Candidates(ledger, rule, at_once=2)
    zone = NodeConstraints(selector=(("zone", "x"),))
    wanted = [
        Shape(dialect=Toy.name, request=ToyRequest(memory, 0, cards), amounts=(("pods", 1),), asked=asking(constraints))
        for memory, cards, constraints in ((4, 1, NodeConstraints()), (3, 2, NodeConstraints()), (4, 1, zone))
    ]
    placed: list[PodUid] = []
    moved = 0
    for number in range(150):
        step = chance.random()
        if number < 12 or step < 0.15:
            has = tuple(Image((one,), 900 * 2**20) for one in "abc" if chance.random() < 0.4)
            node = _node(
                chance.randrange(12),
                ([("a", 8), (chance.choice(KINDS), 8), ("a", 16)], chance.choice(ZONES), 64, False),
            )
            ledger.set_node(replace(node, images=has))
        elif step < 0.2:
            ledger.remove_node(NodeName(f"n{chance.randrange(12)}"))
        elif step < 0.35 and placed:
            ledger.release(placed.pop(chance.randrange(len(placed))))
        else:
            shape = chance.choice(wanted)
            pod = Pod(uid=PodUid("q"), namespace="d", name="q", images=chance.choice((("a",), ("b",), ("a", "c"))))
            liking = ledger.images.liking(pod)
            passed_over = frozenset(NodeName(f"n{chance.randrange(12)}") for _ in range(chance.choice((0, 0, 3))))
            found = candidates.best(shape, passed_over, liking)
            assert found == scan(ledger, rule, shape, passed_over, liking=liking)
            if found is not None:
                without = candidates.best(shape, passed_over)
                moved += without is not None and found.node != without.node
                placed.append(reserve(ledger, f"p{number}", shape, found))
    assert moved
