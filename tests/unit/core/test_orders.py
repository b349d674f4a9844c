"""Sorted orders: what is dead is passed over, what comes back is there once, names keep their order."""

import random

from core.model import NodeName
from core.ordered import Ordered
from core.orders import Labels


def _walk(ordered, start=0):
    at, place = ordered.seek(start)
    keys = ordered.blocks[at][place:] if at < len(ordered.blocks) else []
    for block in ordered.blocks[at + 1 :]:
        keys = keys + block
    return [key for key in keys if key in ordered.values]


def test_it_holds_what_was_added_less_what_was_removed_in_order():
    chance = random.Random(5)
    ordered: Ordered[str] = Ordered()
    truth: set[int] = set()
    for _ in range(20_000):
        key = chance.randrange(3_000)
        if key in truth:
            ordered.remove(key)
            truth.remove(key)
        else:
            ordered.add(key, str(key))
            truth.add(key)
        if chance.random() < 0.001:
            start = chance.randrange(3_000)
            assert _walk(ordered, start) == sorted(key for key in truth if key >= start)
            for at in reversed(range(len(ordered.blocks))):
                ordered.tidy(at)
            assert sum(map(len, ordered.blocks)) == len(truth)
    assert _walk(ordered) == sorted(truth)


def test_a_key_that_comes_and_goes_does_not_pile_up():
    ordered: Ordered[str] = Ordered()
    for _ in range(10_000):
        ordered.add(7, "x")
        ordered.remove(7)
    assert sum(map(len, ordered.blocks)) == 1


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
    assert len(names) > 40
    assert sorted(names) == sorted(names, key=lambda one: labels.numbers[NodeName(one)])
