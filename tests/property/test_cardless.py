"""Pods without cards: the best node is found as for others, and every resource is counted once."""

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from core.ledger import Ledger
from core.model import Container, Node, NodeName, Pod, PodUid
from core.placing.candidates import Candidates
from core.placing.decide import NodePolicy, Shape, decide, scan, shape_of, still_fits
from core.settings import NodeWeights, Policy, Settings, Tables
from tests.support.devices.catalogs import catalog_of
from tests.support.devices.toy import MEMORY, Toy

nodes = st.tuples(st.integers(0, 8), st.integers(0, 8), st.sampled_from((None, None, "a:8", "a:8,a:8")))
pods = st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from((0, 0, 0, 3)))
# Placed, released, a node changed.
steps = st.lists(st.tuples(st.sampled_from("ppppprn"), st.integers(0, 20), pods, nodes), max_size=40)


def node(number, what):
    cpu, memory, cards = what
    return Node(
        name=NodeName(f"n{number}"),
        annotations={"toy.example/cards": cards} if cards else {},
        allocatable={"cpu": str(cpu), "memory": f"{memory}Gi", "pods": "5"},
    )


def pod(name, what):
    cpu, memory, cards = what
    amounts = {"cpu": str(cpu), "memory": f"{memory}Gi"} | ({MEMORY: str(cards)} if cards else {})
    containers = (Container(name="c", limits=amounts, requests=amounts),)
    return Pod(uid=PodUid(name), namespace="d", name=name, containers=containers)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from((Policy.BINPACK, Policy.SPREAD, Policy.INDEX)),
    st.sampled_from((1, 3, 0)),
    st.sampled_from((NodeWeights(), NodeWeights(), NodeWeights(least_requested=1, balanced=1))),
    st.lists(nodes, min_size=1, max_size=8),
    steps,
)
def test_the_node_is_the_best_of_all_and_nothing_is_counted_twice(policy, weight, others, first, some):
    ledger = Ledger(catalog_of(Toy()), Tables(), Settings())
    rule = NodePolicy(policy, weight, others)
    candidates = Candidates(ledger, rule)
    there = dict(enumerate(first))
    # What each pod takes, and where, by this test's own count.
    held: dict[PodUid, tuple[int, tuple[int, int, int]]] = {}

    def left(number):
        cpu, memory, _ = there[number]
        on = [what for at, what in held.values() if at == number]
        return cpu - sum(c for c, _, _ in on), memory - sum(m for _, m, _ in on), 5 - len(on)

    def lack(number, free, asked):
        """How much of its cpu or memory the free cards of a node would lack, of two thirds of their part."""
        cards = [int(one.split(":")[1]) for one in (there[number][2] or "").split(",") if one]
        taken = sum(what[2] for at, what in held.values() if at == number)
        part = Fraction(2, 3) * max(1 - Fraction(taken, sum(cards)), Fraction(0))
        each = zip(free[:2], asked[:2], there[number][:2], strict=True)
        return max(Fraction(0), *(part - Fraction(has - wants, all_) for has, wants, all_ in each if all_))

    for number, what in there.items():
        ledger.set_node(node(number, what))
    for at, (step, pick, asked, what) in enumerate(some):
        if step == "n":
            there[pick % len(first)] = what
            ledger.set_node(node(pick % len(first), what))
        elif step == "r" and held:
            uid = sorted(held)[pick % len(held)]
            del held[uid]
            ledger.release(uid)
        elif step == "p":
            made = pod(f"p{at}", asked)
            shape = shape_of(made, ledger)
            assert isinstance(shape, Shape)
            found = scan(ledger, rule, shape)
            assert candidates.best(shape) == found
            fitting = {
                n
                for n in there
                if all(not wants or has >= wants for has, wants in zip(left(n), (*asked[:2], 1), strict=True))
            }
            if not asked[2]:
                assert (found is None) == (not fitting)
            if found is None:
                continue
            assert int(found.node[1:]) in fitting
            if not asked[2] and not others and weight:
                bare = {n for n in fitting if there[n][2] is None}
                assert not bare or int(found.node[1:]) in bare
                if not bare:
                    lacks = {n: lack(n, left(n), asked) for n in fitting}
                    assert lacks[int(found.node[1:])] <= min(lacks.values()) + Fraction(1, 100_000)
            placement = decide(candidates, made, shape)
            assert placement is not None
            ledger.reserve(placement)
            assert still_fits(ledger, shape, placement)
            held[made.uid] = int(placement.node[1:]), asked


def test_a_pod_without_cards_holds_no_cards_and_closes_nothing():
    ledger = Ledger(catalog_of(Toy()), Tables(), Settings())
    ledger.set_node(node(0, (8, 8, "a:8")))
    before = ledger.states[NodeName("n0")]
    made = pod("p", (2, 2, 0))
    shape = shape_of(made, ledger)
    assert isinstance(shape, Shape)
    placement = decide(Candidates(ledger, NodePolicy(Policy.BINPACK, 1)), made, shape)
    assert placement is not None
    ledger.reserve(placement)
    after = ledger.states[NodeName("n0")]
    assert (after.offers, after.closed) == (before.offers, before.closed)
    assert after.used == {"cpu": 2000, "memory": 2 * 2**30, "pods": 1}
    holding = ledger.holding(made.uid)
    assert holding is not None
    assert (holding.dialect, holding.parts) == (None, ())


def test_a_node_that_is_set_aside_takes_pods_without_cards_no_more():
    ledger = Ledger(catalog_of(Toy()), Tables(), Settings())
    ledger.set_node(node(0, (8, 8, None)))
    candidates = Candidates(ledger, NodePolicy(Policy.BINPACK, 1))
    shape = shape_of(pod("p", (1, 1, 0)), ledger)
    assert isinstance(shape, Shape)
    assert candidates.best(shape) is not None
    ledger.set_aside(NodeName("n0"), "it contradicts itself")
    assert candidates.best(shape) is None
