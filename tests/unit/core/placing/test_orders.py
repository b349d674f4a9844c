"""Sorted orders: who stands where after much coming and going, names in order, kinds told apart."""

import random

from core.model import NodeName
from core.placing.ordered import Key, Labels, Ordered, Row, Seat
from core.placing.orders import Bound, Kinds, Windows
from core.port.cards import NodeRoom, Room, Want


def _read(ordered):
    return {
        (row.summed, row.free, row.spare): list(row.seats)
        for summed in ordered.sums
        for row in ordered.by_sum[summed]
        if row.summed == summed
    }


def test_it_holds_what_was_added_less_what_was_removed_in_order():
    chance = random.Random(5)
    ordered = Ordered()
    truth: dict[tuple[Key, Seat], Row] = {}
    for _ in range(20_000):
        key, seat = (chance.randrange(20), chance.randrange(3), 0), chance.randrange(-9, 9)
        row = truth.pop((key, seat), None)
        if row is None:
            truth[key, seat] = ordered.add(key, seat)
        else:
            row.remove(seat)
    keys = {key for key, _ in truth}
    assert _read(ordered) == {key: sorted(seat for k, seat in truth if k == key) for key in keys}
    assert ordered.sums == sorted({summed for summed, _, _ in keys})


def test_nothing_is_left_of_what_came_and_went():
    ordered = Ordered()
    for number in range(100):
        ordered.add((number, 0, 0), 7).remove(7)
    assert ordered.sums == []
    assert ordered.by_sum == {}


def test_labels_keep_the_order_of_names_until_no_gap_is_left():
    labels = Labels([NodeName("a"), NodeName("z")])
    names = ["a", "z"]
    added = True
    name = "a"
    while added:
        name += "a"
        added = labels.add(NodeName(name))
        if added:
            names.append(name)
    assert len(names) > 36
    assert sorted(names) == sorted(names, key=lambda one: labels.seat(0, NodeName(one)))


def test_a_seat_tells_its_tie_and_its_name():
    labels = Labels([NodeName("a"), NodeName("b")])
    assert labels.add(NodeName("c"))
    for tie in (-1_000_000, -1, 0, 1_000_000):
        assert [labels.who(labels.seat(tie, NodeName(name))) for name in "abc"] == [(tie, n) for n in "abc"]
        assert labels.seat(tie, NodeName("c")) < labels.seat(tie + 1, NodeName("a"))


def test_kinds_within_a_kind_are_told_apart_for_one_card_only():
    kinds = Kinds()
    rooms = (Room("a", 4, 10), Room("a", 3, 20, "a with a slice"), Room("b", 2, 30))
    stand = kinds.stand(NodeRoom(1, 0, rooms), 0)
    assert {kinds.kinds[kind]: cards for kind, cards in stand.one.items()} == {
        "a": [(4, 10)],
        "a with a slice": [(3, 20)],
        "b": [(2, 30)],
    }
    assert {kinds.kinds[kind]: cards for kind, cards in stand.several.items()} == {
        "a": [(3, 20), (4, 10)],
        "b": [(2, 30)],
    }


def test_a_walk_skips_what_is_too_poor_and_who_is_passed_over_and_goes_on_behind_a_bound():
    labels = Labels([NodeName(name) for name in "abcd"])
    family, kinds = Windows(1, labels), Kinds()
    for name, free, spare in (("a", 8, 100), ("b", 5, 100), ("c", 5, 10), ("d", 5, 100)):
        family.put(NodeName(name), kinds.stand(NodeRoom(0, 0, (Room("k", free, spare),)), 0))
    (step,) = family.steps(0, lambda kind: Want(4, 50, 10, 10), 1)
    left_out: list[Bound] = []
    found = list(step.walk(labels, {NodeName("d")}, None, left_out))
    assert [(bound[0], bound[2]) for bound in found] == [(-50.0, "b"), (-20.0, "a")]
    assert [bound[2] for bound in left_out] == ["d"]
    assert [bound[2] for bound in step.walk(labels, set(), found[0], [])] == ["d", "a"]
