"""What queues deserve, against a twin that shares out in rounds as the document says, and one that tries every case."""

from fractions import Fraction
from itertools import product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from core.groups import QueueSpec
from core.placing.queues import QueueTree, deserved

CPU = "cpu"
# weight, capability (None = none), guarantee, what is asked
queues = st.lists(
    st.tuples(st.integers(1, 5), st.none() | st.integers(0, 40), st.integers(0, 12), st.integers(0, 60)),
    min_size=1,
    max_size=4,
)


def asked_of(total, wanted):
    tree = QueueTree(
        QueueSpec(
            name=f"q{at}",
            weight=weight,
            capability={} if limit is None else {CPU: limit},
            guarantee={CPU: least} if least else {},
        )
        for at, (weight, limit, least, _) in enumerate(wanted)
    )
    found = deserved({CPU: total}, {f"q{at}": {CPU: asked} for at, (*_, asked) in enumerate(wanted)}, tree)
    return [found.amounts.get(f"q{at}", {}).get(CPU, 0.0) for at in range(len(wanted))]


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


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 100), queues, st.sampled_from([2**30, 10**12 + 39]))
def test_large_amounts_are_shared_out_as_small_ones_and_whole_shares_are_found_whole(total, wanted, unit):
    assume(any(asked for *_, asked in wanted))
    limits = bounds(total, wanted)
    assume(sum(low for low, _ in limits) <= total <= sum(high for _, high in limits))
    expected = by_cases(total, wanted)
    assert expected is not None
    large = [
        (weight, None if limit is None else limit * unit, least * unit, asked * unit)
        for weight, limit, least, asked in wanted
    ]
    for found, one in zip(asked_of(total * unit, large), expected, strict=True):
        share = one * unit
        assert found == (int(share) if share.denominator == 1 else pytest.approx(float(share), rel=1e-15))


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 100), queues)
def test_nobody_deserves_less_than_its_guarantee_or_more_than_it_may_hold_and_asks(total, wanted):
    assume(any(asked for *_, asked in wanted))
    for found, (low, high) in zip(asked_of(total, wanted), bounds(total, wanted), strict=True):
        assert low <= found <= high


def test_the_share_is_that_of_the_resource_of_which_most_is_held():
    tree = QueueTree([QueueSpec(name="a", weight=1), QueueSpec(name="b", weight=3)])
    asked = {name: {CPU: 100, "memory": 100} for name in "ab"}
    found = deserved({CPU: 40, "memory": 80, "pods": 10}, asked, tree)
    assert found.amounts == {"a": {CPU: 10.0, "memory": 20.0}, "b": {CPU: 30.0, "memory": 60.0}}
    assert found.share("a", {CPU: 5, "memory": 15}) == 0.75
    assert found.share("b", {"memory": 15}) == 0.25
    assert found.share("unknown", {CPU: 5}) == 0.0


# parent (a queue of a lower number, or none), weight, capability, guarantee, deserved, what is asked
trees = st.lists(
    st.tuples(
        st.none() | st.integers(0, 6),
        st.integers(1, 4),
        st.none() | st.integers(0, 40),
        st.sampled_from((0, 0, 3, 8)),
        st.sampled_from((0, 0, 5, 20)),
        st.integers(0, 40),
    ),
    min_size=1,
    max_size=7,
)


def shared(total, drawn, order=None):
    queues = [
        QueueSpec(
            name=f"q{at}",
            parent="" if parent is None or parent >= at else f"q{parent}",
            weight=weight,
            capability={} if limit is None else {CPU: limit},
            guarantee={CPU: least} if least else {},
            deserved={CPU: due} if due else {},
        )
        for at, (parent, weight, limit, least, due, _) in enumerate(drawn)
    ]
    asked = {f"q{at}": {CPU: asked} for at, (*_, asked) in enumerate(drawn)}
    if order is not None:
        order.shuffle(queues)
        asked = dict(order.sample(sorted(asked.items()), len(asked)))
    tree = QueueTree(queues)
    found = deserved({CPU: total}, asked, tree)
    return tree, {name: found.amounts.get(name, {}).get(CPU, 0.0) for name in tree.queues}


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 100), trees, st.randoms(use_true_random=False))
def test_along_the_tree_nothing_is_given_twice_and_limits_and_guarantees_hold(total, drawn, order):
    assume(any(one[-1] for one in drawn))
    tree, found = shared(total, drawn)
    assert shared(total, drawn, order)[1] == found
    for name, amount in found.items():
        queue, guaranteed = tree.queues[name], tree.guaranteed.get(name, {}).get(CPU, 0)
        assert guaranteed <= amount
        assert amount <= max(queue.capability.get(CPU, amount), guaranteed)
        assert sum(found[child] for child in tree.children(name)) <= amount + 1e-9
    top = tree.children("root")
    assert sum(found[name] for name in top) <= max(total, tree.sums.get("root", {}).get(CPU, 0)) + 1e-9


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 100), trees)
def test_nothing_is_left_over_that_a_queue_may_have_and_asks(total, drawn):
    assume(any(one[-1] for one in drawn))
    tree, found = shared(total, drawn)
    if sum(found[name] for name in tree.children("root")) < total - 1e-9:
        # Then each has all that it and those below it ask, as far as they may hold it.
        def most(name):
            queue, (*_, asked) = tree.queues[name], drawn[int(name[1:])]
            want = asked + sum(most(child) for child in tree.children(name))
            return max(min(want, queue.capability.get(CPU, want)), tree.guaranteed.get(name, {}).get(CPU, 0))

        assert {name: found[name] for name in tree.children("root")} == {
            name: float(most(name)) for name in tree.children("root")
        }


@pytest.mark.parametrize(
    ("total", "queues", "expected"),
    [
        (64, [("p", "", 1, 0), ("a", "p", 1, 0), ("b", "p", 3, 0), ("c", "", 1, 0)], {"a": 8, "b": 24, "c": 32}),
        (64, [("a", "", 1, 40), ("b", "", 1, 24)], {"a": 40, "b": 24}),
        (32, [("a", "", 1, 40), ("b", "", 1, 24)], {"a": 20, "b": 12}),
        (128, [("a", "", 1, 40), ("b", "", 1, 24)], {"a": 80, "b": 48}),
        (64, [("a", "", 1, 40), ("b", "", 1, 0), ("c", "", 2, 0)], {"a": 40, "b": 8, "c": 16}),
    ],
    ids=["tree", "deserved", "too-little-of-it", "more-of-it", "the-rest-by-weight"],
)
def test_all_is_shared_out_as_the_queues_say_where_all_ask_for_all(total, queues, expected):
    tree = QueueTree(
        QueueSpec(name=name, parent=parent, weight=weight, deserved={CPU: due} if due else {})
        for name, parent, weight, due in queues
    )
    found = deserved({CPU: total}, {name: {CPU: 1000} for name in expected}, tree)
    assert {name: found.amounts[name][CPU] for name in expected} == expected


def test_what_does_not_want_its_deserved_leaves_it_to_the_others():
    tree = QueueTree([QueueSpec(name="a", deserved={CPU: 40}), QueueSpec(name="b", deserved={CPU: 24})])
    found = deserved({CPU: 64}, {"a": {CPU: 10}, "b": {CPU: 100}}, tree)
    assert found.amounts == {"a": {CPU: 10.0}, "b": {CPU: 54.0}}


@pytest.mark.parametrize("names", [("a",), ("a", "b"), ("a", "b", "c")])
def test_queues_whose_parents_lead_in_a_circle_stand_below_root(names):
    above = dict(zip(names, (*names[1:], names[0]), strict=True))
    tree = QueueTree([*(QueueSpec(name=one, parent=above[one]) for one in names), QueueSpec(name="z", parent="a")])
    assert tree.children("root") == list(names)
    assert tree.path("z") == ["a", "z"]
