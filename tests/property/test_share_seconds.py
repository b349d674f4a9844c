"""The time of cards adds up to the millisecond, whatever comes and goes, in every protocol at once."""

from collections import Counter
from collections.abc import Iterator

import pytest

from controller.reporting.share_seconds import ShareSeconds
from core.card_time import CARD, CardTimePart, fitted, shares_of
from core.model import NodeName
from core.settings import Policy
from tests.property.test_mixed_cluster import World, cards_of
from tests.support.devices.vendors import PORTS

STEPS = 600
# The machines' cards, as the cluster was made; where two dialects sell the same, whose count it is.
CARDS = {
    "t4": {4}, "mps": {2}, "mig": {4}, "a30": {2}, "share": {4}, "number": {4}, "gpus": {8}, "both": {2, 8},
    "hami": {4}, "torn": {2}, "b3": {8}, "mind": {4}, "mixed-1": {4}, "mixed-2": {7},
    **{port.name: {len(cards_of(port.vendor))} for port in PORTS},
}  # fmt: skip


def figures(text: Iterator[str]) -> dict[str, int]:
    """Billionths of a second by labels, as they are exposed."""
    lines = (line.rpartition(" ") for line in "".join(text).splitlines() if not line.startswith("#"))
    return {labels: int(value.replace(".", "")) for labels, _, value in lines}


@pytest.mark.parametrize(("seed", "by_owner"), [(1, True), (2, False)])
def test_what_is_told_adds_up_to_the_time_of_all_cards(seed: int, by_owner: bool):
    world = World(seed, Policy.BINPACK)
    seconds, at_ms, wanted = ShareSeconds(lambda: world.ledger), 5, 0
    parts: Counter[CardTimePart] = Counter()
    for step in range(STEPS):
        for _ in seconds.follow(at_ms, by_owner=by_owner):
            pass
        shares = {name: shares_of(world.ledger, name, by_owner=by_owner) for name in world.ledger.states}
        for name, of_node in shares.items():
            assert sum(of_node.values()) in {CARD * count for count in CARDS[name]}, name
            assert min(of_node.values()) > 0
            parts.update(one.part for one in of_node)
        passed_ms = world.chance.randrange(1, 10_000)
        wanted += passed_ms * sum(sum(of_node.values()) for of_node in shares.values())
        at_ms += passed_ms
        assert sum(figures(seconds.series(at_ms)).values()) == wanted
        world.arrive(step)
        if world.unserved and world.chance.random() < 0.7:
            world.serve()
        for _ in range(world.chance.choice((0, 0, 1, 1, 3))):
            world.leave()
        if world.chance.random() < 0.05:
            world.fails_a_card()
    assert set(parts) == set(CardTimePart)


def test_a_node_that_comes_and_goes_counts_while_it_is_there_and_a_pause_counts_nothing():
    world = World(1, Policy.BINPACK)
    seconds, all_cards = ShareSeconds(lambda: world.ledger), 0

    def follow(at_ms: int) -> None:
        for _ in seconds.follow(at_ms, by_owner=False):
            pass

    follow(0)
    all_cards = sum(figures(seconds.series(1)).values()) // CARD
    world.ledger.remove_node(NodeName("b3"))
    follow(1000)
    world.ledger.set_node(world.nodes[NodeName("b3")])
    follow(3000)
    seconds.pause(4000)
    assert sum(figures(seconds.series(9000)).values()) == CARD * (all_cards * 4000 - 8 * 2000)
    follow(9000)
    assert sum(figures(seconds.series(9500)).values()) == CARD * (all_cards * 4500 - 8 * 2000)


def test_a_pod_that_changes_no_card_has_no_node_looked_at():
    world = World(1, Policy.BINPACK)
    seconds = ShareSeconds(lambda: world.ledger)
    assert len(list(seconds.follow(0, by_owner=False))) == len(world.nodes)
    world.ledger.recount(NodeName("t4"))
    world.arrive(1)
    assert len(list(seconds.follow(1, by_owner=False))) <= 2
    assert list(seconds.follow(2, by_owner=False)) == []


@pytest.mark.parametrize(
    ("wishes", "parts"),
    [([], []), ([3, 4], [3, 4]), ([10, 10, 10], [4, 3, 3]), ([7, 14], [3, 7]), ([1, 100], [0, 10])],
)
def test_wishes_beyond_a_card_become_parts_of_it(wishes: list[int], parts: list[int]):
    assert fitted(wishes, 10) == parts


def test_once_owners_are_told_apart_every_node_is_looked_at():
    world = World(1, Policy.BINPACK)
    seconds = ShareSeconds(lambda: world.ledger)
    for by_owner in (False, True):
        assert len(list(seconds.follow(0, by_owner=by_owner))) == len(world.nodes)
