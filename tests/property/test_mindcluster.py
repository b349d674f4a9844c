"""Laws of MindCluster's decisions, on random nodes that random pods have come to."""

from itertools import combinations, permutations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from core.dialects.mindcluster.dialect import MindCluster
from core.dialects.mindcluster.pods import Request
from core.dialects.mindcluster.templates import DECISIONS, TEMPLATES
from core.settings import Policy
from tests.support.devices.mindcluster import npu_chips, npu_node

DIALECT: Any = MindCluster()

slices = st.builds(lambda key: Request(key[0], DECISIONS[key]), st.sampled_from(sorted(DECISIONS)))
requests = st.one_of(slices, slices, st.builds(lambda cores: Request(cores, None), st.sampled_from((8, 16, 10, 24))))


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
