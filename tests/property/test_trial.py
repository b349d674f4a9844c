"""A trial that is not kept leaves no trace, and one that is kept is as if it had not been a trial.

The twin is a deep copy of the ledger, in which the same is done outright or not at all.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import InvariantError
from core.ledger import Ledger, Placement
from core.model import Container, Node, NodeName, Pod, PodUid
from core.placing.candidates import Candidates
from core.placing.decide import NodePolicy, Shape, scan
from core.settings import Policy, Settings, Tables
from tests.support.devices.catalogs import catalog_of
from tests.support.devices.toy import HELD, Toy, ToyRequest
from tests.support.judging.asking import asking

RULE = NodePolicy(Policy.BINPACK, 1)
SHAPES = tuple(
    Shape(
        dialect=Toy.name,
        request=ToyRequest(memory, cores, cards),
        amounts=(("cpu", 1000), ("pods", 1)),
        asked=asking(),
    )
    for memory, cores, cards in ((3, 0, 1), (5, 60, 1), (2, 10, 2))
)

steps = st.lists(
    st.one_of(
        st.tuples(st.just("reserve"), st.integers(0, 9), st.integers(0, 2)),
        st.tuples(st.just("release"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("ask"), st.just(0), st.integers(0, 2)),
    ),
    max_size=12,
)
# Of several trials one after another: what is done, whether it is kept, and a trial inside it.
trials = st.lists(st.tuples(steps, st.booleans(), st.one_of(st.none(), st.tuples(steps, st.booleans()))), max_size=5)


def ledger_of(nodes):
    made = Ledger(catalog_of(Toy()), Tables(), Settings())
    for number in range(nodes):
        cards = {"toy.example/cards": "a:8,a:8"}
        made.set_node(Node(name=NodeName(f"n{number}"), annotations=cards, allocatable={"cpu": "5", "pods": "6"}))
    for number, held in enumerate(("0/3/0", "1/2/10", "0/1/0")):
        made.count(
            Pod(
                uid=PodUid(f"p{number}"), namespace="d", name=f"p{number}", node_name=f"n{number % nodes}",
                annotations={HELD: held}, containers=(Container(name="c"),),
            )
        )  # fmt: skip
    return made


def act(ledger, candidates, done):
    for what, pod, number in done:
        shape, uid = SHAPES[number], PodUid(f"p{pod}")
        if what == "release":
            ledger.release(uid)
            continue
        found = candidates.best(shape)
        assert found == scan(ledger, RULE, shape)
        if what == "reserve" and found is not None and ledger.node_of(uid) is None:
            ledger.reserve(
                Placement(
                    pod=uid, pod_key=f"d/p{pod}", node=found.node, dialect=shape.dialect,
                    assignment=found.placed.assignment, amounts=shape.taken,
                )
            )  # fmt: skip


def content(ledger):
    """All that a ledger knows, but for versions, which it numbers itself."""
    return (
        {name: state._replace(version=0) for name, state in ledger.states.items()},
        {name: list(ledger.holders(name).items()) for name in ledger.states},
        [(ledger.node_of(PodUid(f"p{n}")), ledger.counted(PodUid(f"p{n}"))) for n in range(10)],
        {uid: placement.assignment for uid, placement in ledger._promised.items()},
    )


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 4), trials)
def test_a_trial_is_all_or_nothing(nodes, some):
    ledger = ledger_of(nodes)
    candidates = Candidates(ledger, RULE)
    for done, kept, inner in some:
        twin = ledger.fork()
        there = Candidates(twin, RULE)
        states = dict(ledger.states)
        with ledger.trial() as trial:
            act(ledger, candidates, done)
            if inner is not None:
                inside, inner_kept = inner
                with ledger.trial() as another:
                    act(ledger, candidates, inside)
                    if inner_kept:
                        another.keep()
            if kept:
                trial.keep()
        if kept:
            act(twin, there, done)
            if inner is not None and inner_kept:
                act(twin, there, inside)
        else:
            assert all(ledger.states[name] is state for name, state in states.items())
        assert content(ledger) == content(twin)
        for shape in SHAPES:
            assert candidates.best(shape) == scan(ledger, RULE, shape) == scan(twin, RULE, shape)


def break_off(ledger):
    with ledger.trial() as trial:
        ledger.release(PodUid("p0"))
        trial.keep()
        raise ZeroDivisionError


def test_a_trial_that_fails_is_put_back():
    ledger = ledger_of(2)
    before = content(ledger)
    with pytest.raises(ZeroDivisionError):
        break_off(ledger)
    assert content(ledger) == before


def test_every_change_is_in_the_log_and_no_entry_is_taken_out_of_it():
    ledger = ledger_of(2)
    cursor = ledger.cursor
    with ledger.trial():
        ledger.release(PodUid("p0"))
        inside = ledger.cursor
    assert ledger.changes_since(cursor) == ["n0", "n0"]
    assert ledger.changes_since(inside) == ["n0"]


@pytest.mark.parametrize(
    "change",
    [
        lambda ledger: ledger.set_node(Node(name=NodeName("n9"))),
        lambda ledger: ledger.remove_node(NodeName("n0")),
        lambda ledger: ledger.count(Pod(uid=PodUid("x"), namespace="d", name="x", node_name="n0")),
        lambda ledger: ledger.set_aside(NodeName("n0"), "why"),
        lambda ledger: next(ledger.configure(Tables(), Settings())),
        lambda ledger: ledger.fork(),
    ],
    ids=["node", "gone", "count", "aside", "configure", "fork"],
)
def test_the_cluster_itself_does_not_change_in_a_trial(change):
    ledger = ledger_of(1)
    with pytest.raises(InvariantError, match="middle of a trial"), ledger.trial():
        change(ledger)
