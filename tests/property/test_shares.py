"""What queues deserve, against a twin that shares out in rounds as the document says, and one that tries every case."""

from fractions import Fraction
from itertools import product

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from core.groups import QueueSpec
from core.placing.shares import Wants, deserved

CPU = "cpu"
# weight, capability (None = none), guarantee, what is asked
queues = st.lists(
    st.tuples(st.integers(1, 5), st.none() | st.integers(0, 40), st.integers(0, 12), st.integers(0, 60)),
    min_size=1,
    max_size=4,
)


def asked_of(total, wanted):
    wants = {
        f"q{at}": Wants(
            queue=QueueSpec(
                name=f"q{at}",
                weight=weight,
                capability={} if limit is None else {CPU: limit},
                guarantee={CPU: least} if least else {},
            ),
            asked={CPU: asked},
        )
        for at, (weight, limit, least, asked) in enumerate(wanted)
    }
    found = deserved({CPU: total}, wants)
    return [found.amounts[f"q{at}"].get(CPU, 0.0) for at in range(len(wanted))]


def bounds(total, wanted):
    """(least, most) that each may have: realCapability cut to what is asked, and the guarantee."""
    guaranteed = sum(least for _, _, least, _ in wanted)
    found = []
    for _, limit, least, asked in wanted:
        real = max(total - guaranteed + least, least)
        real = real if limit is None else min(real, limit)
        found.append((least, max(min(real, asked), least)))
    return found


def in_rounds(total, wanted):
    """As the document has it: what remains by weight, cut to the limits; who is full leaves the rounds."""
    most = [high for _, high in bounds(total, wanted)]
    given_ = [Fraction(0)] * len(wanted)
    remaining, open_ = Fraction(total), set(range(len(wanted)))
    while remaining and open_:
        weights = sum(wanted[at][0] for at in open_)
        portions = {at: remaining * wanted[at][0] / weights for at in open_}
        for at, portion in portions.items():
            more = min(portion, most[at] - given_[at])
            given_[at] += more
            remaining -= more
            if given_[at] == most[at]:
                open_.discard(at)
    return given_


def by_cases(total, wanted):
    """Every way in which each could be at its least, at its most, or between: the one in which all agrees."""
    limits = bounds(total, wanted)
    for case in product(("least", "most", "grows"), repeat=len(wanted)):
        fixed = sum(limits[at][0 if how == "least" else 1] for at, how in enumerate(case) if how != "grows")
        weight = sum(wanted[at][0] for at, how in enumerate(case) if how == "grows")
        level = Fraction(total - fixed, weight) if weight else None
        if level is None and fixed != total:
            continue
        if level is None:
            # Any level at which those at their most would want more, and those at their least no more.
            low = max(
                [Fraction(limits[at][1], wanted[at][0]) for at, how in enumerate(case) if how == "most"], default=0
            )
            high = min(
                [Fraction(limits[at][0], wanted[at][0]) for at, how in enumerate(case) if how == "least"],
                default=low,
            )
            if low > high:
                continue
            level = Fraction(low)
        values = []
        for at, how in enumerate(case):
            low_, high_ = limits[at]
            wanted_ = level * wanted[at][0]
            fits = {"least": wanted_ <= low_, "most": wanted_ >= high_, "grows": low_ <= wanted_ <= high_}[how]
            if not fits:
                break
            values.append(Fraction({"least": low_, "most": high_}.get(how, wanted_)))
        else:
            return values
    return None


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 100), queues)
def test_without_guarantees_queues_deserve_what_rounds_by_weight_give(total, wanted):
    assume(any(asked for *_, asked in wanted))
    wanted = [(weight, limit, 0, asked) for weight, limit, _, asked in wanted]
    assert asked_of(total, wanted) == [float(one) for one in in_rounds(total, wanted)]


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 100), queues)
def test_with_guarantees_all_that_there_is_is_shared_out_at_one_level(total, wanted):
    assume(any(asked for *_, asked in wanted))
    limits = bounds(total, wanted)
    assume(sum(low for low, _ in limits) <= total <= sum(high for _, high in limits))
    expected = by_cases(total, wanted)
    assert expected is not None
    assert asked_of(total, wanted) == [float(one) for one in expected]


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 100), queues)
def test_nobody_deserves_less_than_its_guarantee_or_more_than_it_may_hold_and_asks(total, wanted):
    assume(any(asked for *_, asked in wanted))
    for found, (low, high) in zip(asked_of(total, wanted), bounds(total, wanted), strict=True):
        assert low <= found <= high


def test_the_share_is_that_of_the_resource_of_which_most_is_held():
    wants = {
        name: Wants(queue=QueueSpec(name=name, weight=weight), asked={CPU: 100, "memory": 100})
        for name, weight in (("a", 1), ("b", 3))
    }
    found = deserved({CPU: 40, "memory": 80, "pods": 10}, wants)
    assert found.amounts == {"a": {CPU: 10.0, "memory": 20.0}, "b": {CPU: 30.0, "memory": 60.0}}
    assert found.share("a", {CPU: 5, "memory": 15}) == 0.75
    assert found.share("b", {"memory": 15}) == 0.25
    assert found.share("unknown", {CPU: 5}) == 0.0
