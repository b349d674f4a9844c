"""The scheduler under the policy `pack`: what it learns, from whom, and what it decides by it."""

import pytest

from controller.actions import Inbox
from controller.reporting.answers import answer, learned, show_packing
from core.model import NodeName
from core.placing.pack import NO_HOLE_VALUES
from core.settings import Policy
from tests.support.worlds.world import World, node, pod


async def unasked(shape):
    raise AssertionError(shape)


def packed(*nodes, pods=60):
    """A world in which pods of 30 and 70 hundredths of a card came, and were placed or not."""
    world = World(*nodes, policy=Policy.PACK)
    for number in range(pods):
        world.adds(pod(f"p{number:03d}", memory=3000 if number % 2 else 7000))
    world.placed()
    return world


def on_cards(world, name):
    """What is used of each card of a node."""
    state = world.ledger.states[NodeName(name)]
    return [one.used for one in world.ledger.catalog.dialects["vgpu"].tally(state.cards("vgpu"))]


def test_a_share_goes_to_the_hole_that_is_of_its_size():
    world = packed(*(node(f"n{at:02d}", cards=4) for at in range(12)))
    assert world.scheduler.cluster.search.policy.tables is not NO_HOLE_VALUES
    # 48 cards: 30 of 70 and 30 of 30 that were put together wherever that was learnt, not 33 by themselves.
    assert sum(used == 10_000 for name in world.ledger.states for used in on_cards(world, name)) == 30


def test_a_hole_that_pods_ask_for_is_kept_from_those_who_would_spoil_it():
    # The tables come from pods that found no room; then a card is free to 70, another to 30.
    world = packed(node("n1", cards=1), node("n2", cards=1), pods=58)
    for number in range(58):
        world.gone(f"p{number:03d}")
    world.adds(pod("a", memory=3000))
    world.placed()
    (first,) = [name for name in ("n1", "n2") if on_cards(world, name) == [3000]]
    assert world.scheduler.cluster.search.policy.tables is not NO_HOLE_VALUES
    world.adds(pod("b", memory=7000))
    world.placed()
    assert on_cards(world, first) == [10_000]


def test_a_cluster_that_does_not_pack_learns_nothing():
    world = World(node("n1", cards=4), policy=Policy.BINPACK)
    for number in range(60):
        world.adds(pod(f"p{number}", memory=3000))
    world.placed()
    learning = world.scheduler.cluster.search.learning
    assert (learning.mix.seen, learning.is_due, learning.known) == (0, False, ())
    assert not any(learning.has_seen(uid) for uid in world.pods)


def test_a_pod_counts_once_and_bound_ones_count_after_a_restart():
    world = packed(*(node(f"n{at}", cards=4) for at in range(8)))
    assert world.scheduler.cluster.search.learning.mix.seen == 60
    again = World(*(node(f"n{at}", cards=4) for at in range(8)), policy=Policy.PACK)
    again.adds(*world.pods.values())
    again.plan()
    assert again.scheduler.cluster.search.learning.mix.seen == 60
    assert again.scheduler.cluster.search.policy.tables is not None
    assert (
        again.scheduler.cluster.search.policy.tables.by_size.keys()
        == world.scheduler.cluster.search.policy.tables.by_size.keys()
        != set()
    )


def test_bound_pods_count_when_the_policy_comes_to_be_pack_and_nothing_is_kept_when_it_goes():
    world = World(*(node(f"n{at}", cards=4) for at in range(8)), policy=Policy.BINPACK)
    for number in range(55):
        world.adds(pod(f"p{number}", memory=3000))
    world.placed()
    world.configures(policy=Policy.PACK)
    world.plan()
    assert (world.scheduler.cluster.search.learning.mix.seen, world.scheduler.cluster.search.learning.made_of) == (
        55,
        55,
    )
    world.configures(policy=Policy.SPREAD)
    world.plan()
    assert world.scheduler.cluster.search.learning.mix.seen == 0
    assert not world.scheduler.cluster.search.learns


def test_a_pod_that_is_gone_is_forgotten_and_what_it_asked_is_not():
    world = packed(node("n1", cards=4), pods=3)
    uid = world.seen("p001").uid
    world.gone("p001")
    assert not world.scheduler.cluster.search.learning.has_seen(uid)
    assert world.scheduler.cluster.search.learning.mix.seen == 3


async def test_a_bound_pod_is_told_what_is_lost_where_it_is_and_elsewhere():
    world = packed(*(node(f"n{at}", cards=4) for at in range(20)))
    found = await answer(world.scheduler, Inbox(float), unasked, "default/p001")
    assert "cards' worth of capacity on n" in found["packing"]
    assert "the best other node is n" in found["packing"]
    assert found["packing"] in found["text"]


def test_what_is_known_is_shown_card_by_card():
    world = packed(node("n1", cards=4), node("n2", cards=2))
    shown = learned(world.scheduler.cluster.search.learning)
    (one,) = shown["cards"]
    assert (shown["pods"], shown["requests"], one["dialect"], one["cards"]) == (60, 2, "vgpu", 6)
    # Halves of the pods ask 30 and 70: of a card that is free to 80, 10 are lost.
    assert one["loss"][80] == pytest.approx(10.0, abs=0.1)
    assert one["loss"][100] == pytest.approx(0.0, abs=0.1)
    show_packing(world.metrics, world.scheduler.cluster.search.learning)
    labels = {"dialect": "vgpu", "card": one["card"], "free_pct": "50"}
    assert world.metrics.registry.get_sample_value("cardshare_packing_loss", labels) == pytest.approx(0.2, abs=0.01)
    assert world.metrics.registry.get_sample_value("cardshare_packing_pods") == 60
