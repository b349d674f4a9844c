"""Laws of MindCluster's decisions, on random nodes that random pods have come to."""

from itertools import combinations, permutations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from core.dialects.mindcluster import keys
from core.dialects.mindcluster.chips import Assignment, Share, chip
from core.dialects.mindcluster.dialect import MindCluster
from core.dialects.mindcluster.holding import decode_assigned, encode_assigned, held
from core.dialects.mindcluster.requests import Request
from core.dialects.mindcluster.templates import DECISIONS, TEMPLATES
from core.ledger import Ledger
from core.model import PodUid
from core.placing.candidates import Candidates
from core.placing.decide import decide, shape_of
from core.placing.score import NodePolicy
from core.placing.shape import scan
from core.settings import DialectName, Policy, Settings
from core.tables import Tables
from tests.support.devices.catalogs import catalog_of
from tests.support.devices.mindcluster import npu_bound, npu_chips, npu_node, npu_pod

DIALECT: Any = MindCluster()
SETTINGS = Settings(dialects=frozenset({DialectName("mindcluster")}))

slices = st.builds(lambda key: Request(key[0], DECISIONS[key]), st.sampled_from(sorted(DECISIONS)))
requests = st.one_of(slices, slices, st.builds(lambda cores: Request(cores, None), st.sampled_from((8, 16, 10, 24))))
shares = st.builds(
    Share, st.sampled_from([*TEMPLATES, *TEMPLATES, "", "?"]), st.integers(-1, 3), st.sampled_from((True, True, False))
)
assignments = st.builds(
    lambda at, share: Assignment(tuple(sorted(at)), share),
    st.frozensets(st.integers(0, 4), min_size=1, max_size=2),
    shares,
)


@given(st.lists(assignments, max_size=6), st.randoms())
def test_the_order_of_takes_leaves_no_trace_and_give_back_undoes_them(held_here, chance):
    empty = npu_chips(npu_node(4))
    one_way, other_way = empty, empty
    for assignment in held_here:
        one_way = DIALECT.take(one_way, assignment)
    shuffled = list(held_here)
    chance.shuffle(shuffled)
    for assignment in shuffled:
        other_way = DIALECT.take(other_way, assignment)
    assert one_way == other_way
    for assignment in held_here:
        one_way = DIALECT.give_back(one_way, assignment)
    assert one_way == empty


@settings(max_examples=300, deadline=None)
@given(st.sampled_from((8, 10)), st.integers(1, 4), st.lists(st.tuples(requests, st.booleans(), st.integers(0, 3))))
def test_no_chip_is_promised_beyond_what_it_has_and_refused_only_where_nothing_fits(per_chip, chips, asked):
    cards = npu_chips(npu_node(chips, per_chip=per_chip))
    for request, reported, vgroup in asked:
        placed = DIALECT.place(cards, request, Policy.BINPACK)
        assert (placed is not None) is _fits_somewhere(cards, request)
        if placed is None:
            assert DIALECT.shortfalls(cards, request)
            continue
        cards = DIALECT.take(cards, placed.assignment)
        assert DIALECT.overcommitted(cards) == ()
        if reported:
            cards = DIALECT.give_back(cards, placed.assignment)
            share = placed.assignment.share._replace(
                settled=True, vgroup=vgroup if placed.assignment.share.template else -1
            )
            cards = DIALECT.take(cards, placed.assignment._replace(share=share))


def _fits_somewhere(cards, request) -> bool:
    """Every way to serve *request*, tried out: the rules of ascend 3.5 to 3.8 said once more, slowly."""
    flight = {s.template for one in cards for s in one.shares if s.template and not s.settled}
    if request.choice is None:
        number, rest = divmod(request.cores, cards[0].fixed.cores)
        empty = [one for one in cards if not one.shares]
        return not rest and not flight and any(True for _ in combinations(empty, number))
    for template in (request.choice.template, request.choice.downgraded):
        if template is None:
            continue
        if any(_joins(one, template) for one in cards):
            # A node that has room for the better template gives no worse one, even while that is being handed over.
            return flight <= {template.name}
    return False


def _joins(one, template) -> bool:
    if any(not share.settled or not share.template for share in one.shares):
        return False
    held_here = [TEMPLATES[share.template] for share in one.shares]
    vgroups = len({share.vgroup for share in one.shares} - {-1})
    if (vgroups == 3 and template.cores >= 4) or (vgroups == 4 and template.cores >= 2):
        return False
    # Some order of allocation must lead through DVPP states that allow every step, this one last.
    return (
        sum(t.cores for t in held_here) + template.cores <= one.fixed.cores
        and sum(t.cpus for t in held_here) + template.cpus <= one.fixed.cpus
        and any(_dvpp_allows((*order, template)) for order in permutations(held_here))
    )


def _dvpp_allows(order) -> bool:
    used, free = "no", "yes"
    for template in order:
        match template.dvpp:
            case "yes" if free != "yes":
                return False
            case "null" if free == "no":
                return False
            case "yes":
                used, free = "yes", "no"
            case "null" if used != "yes":
                used, free = "null", "null"
    return True


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from((1, 1, 0)),
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from((8, 8, 10)), st.integers(0, 1)), min_size=1, max_size=8),
    st.lists(
        st.tuples(
            st.sampled_from("ppppwr"),
            st.tuples(st.sampled_from((1, 2, 2, 4, 4, 8, 16)), st.sampled_from(("low", "high"))),
            st.sampled_from((None, None, "yes", "no")),
            st.integers(0, 99),
        ),
        max_size=40,
    ),
)
def test_the_search_answers_what_looking_at_every_node_would(weight, nodes, steps):
    ledger = Ledger(catalog_of(DIALECT), Tables(), SETTINGS)
    for at, (chips, per_chip, ill) in enumerate(nodes):
        ledger.set_node(npu_node(chips, name=f"n{at}", per_chip=per_chip, unhealthy=(0,) if ill else ()))
    policy = NodePolicy(Policy.BINPACK, weight)
    candidates = Candidates(ledger, policy)
    here: dict[str, tuple[str, str, int]] = {}
    for at, (step, (cores, level), dvpp, pick) in enumerate(steps):
        if step == "p":
            pod = npu_pod(cores, dvpp if cores == 4 else None, level, name=f"p{at}")
            shape: Any = shape_of(pod, ledger)
            best = candidates.best(shape)
            assert best == scan(ledger, policy, shape)
            placement = decide(candidates, pod, shape)
            if placement is not None:
                ledger.reserve(placement)
                here[pod.name] = (placement.node, encode_assigned(placement.assignment), cores)
        elif here:
            name = sorted(here)[pick % len(here)]
            node, core, held_cores = here[name]
            if step == "r":
                ledger.release(PodUid(name))
                del here[name]
                continue
            real = _reported(core, pick % 4)
            ledger.count(npu_bound(core, real, name=name, cores=held_cores, node_name=node))
        for name in ledger.states:
            assert ledger.overcommitted(name) == ()


def _reported(core: str, vgroup: int) -> str:
    if "-" not in core:
        return ",".join(f"Ascend310P-{at}" for at in core.split(","))
    at, template = core.split("-")
    return f"Ascend310P-{TEMPLATES[template].device_type}-100-{at}_{vgroup}"


@given(assignments.filter(lambda a: (a.share.template in TEMPLATES and len(a.chips) == 1) or not a.share.template))
def test_what_is_written_is_read_back_as_the_same(assignment):
    found = decode_assigned(encode_assigned(assignment))
    assert (found.chips, found.template, found.readable) == (assignment.chips, assignment.share.template, True)


@given(st.text(max_size=40), st.text(max_size=40))
def test_no_text_of_a_bound_pod_breaks_the_reading(core, real):
    found = held(npu_bound(core, real))
    assert found is not None
    cards = DIALECT.take(npu_chips(npu_node(2)), found.assignment)
    assert DIALECT.give_back(cards, found.assignment) == npu_chips(npu_node(2))


@given(st.text(max_size=60))
def test_no_device_name_breaks_the_reading(name):
    keys.decode_device(name)
    assert chip(npu_chips(npu_node(1))[0].fixed).shares == ()
