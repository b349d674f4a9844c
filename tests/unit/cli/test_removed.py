"""`kubectl cards get --controller` shows what pods that were removed by force still hold."""

import json

from cli import text
from controller.reporting.answers import held
from core.catalog import standard_catalog
from core.ledger import Ledger
from core.settings import Settings, Tables
from core.view.cards import Cards, cards_of, with_removed
from tests.support.worlds.world import World, node, pod


def shown(*, ready: bool = True, namespace: str = "") -> Cards:
    """What ``get`` shows of a node with a pod of 1000 MiB that was removed by force, and nothing else."""
    world = World(node("n1", memory=4000))
    world.adds(pod("p"))
    world.placed()
    if not ready:
        world.scheduler.nodes.changed(node("n1", memory=4000, ready=False, version="2"))
    world.gone("p", by_force=True)
    answer = json.loads(json.dumps(held(world.scheduler, world.now_s)))
    seen = Ledger(standard_catalog(), Tables(), Settings())
    seen.set_node(node("n1", memory=4000, ready=ready))
    return with_removed(cards_of(seen), answer["held"], namespace)


def test_their_cards_are_in_use_and_the_holder_says_for_how_long():
    found = shown()
    (card,) = found.nodes[0].cards
    assert (card.used, card.total, found.totals[0].used, found.totals[0].idle) == (1000, 4000, 1000, 0)
    (share,) = card.held_by
    assert (share.pod, share.amount, share.removed) == ("default/p", 1000, True)
    assert "default/p (1000 MiB, removed by force, held 5 s more)" in text.cards_table(found, all_nodes=True)


def test_a_node_that_is_not_ready_says_what_they_wait_for():
    assert "held until n1 is ready again" in text.cards_table(shown(ready=False), all_nodes=True)


def test_names_of_another_namespace_stay_hidden_and_the_card_is_in_use_all_the_same():
    (card,) = shown(namespace="theirs").nodes[0].cards
    assert (card.used, card.held_by) == (1000, ())


def test_nothing_is_held_of_a_pod_that_has_ended():
    world = World(node("n1"))
    world.adds(pod("p"))
    world.placed()
    world.gone("p")
    assert held(world.scheduler, world.now_s) == {"held": []}
