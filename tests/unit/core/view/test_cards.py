"""What is not known of cards is said to be unknown, and is never counted as nothing."""

from dataclasses import replace

import pytest

from cli import text
from core.catalog import standard_catalog
from core.ledger import Ledger
from core.settings import DialectName, Settings, Tables
from core.view.cards import Cards, cards_of, switched_off, with_removed
from tests.support.worlds.world import node


def seen(*names: str) -> Cards:
    ledger = Ledger(standard_catalog(), Tables(), Settings())
    for name in names:
        ledger.set_node(node(name, memory=4000))
    return cards_of(ledger)


def held(*, amount: int | None, cores_pct: int | None) -> list[dict[str, object]]:
    part = {"card": "n1-0", "protocol": "vgpu", "share": "a share", "amount": amount, "cores_pct": cores_pct}
    return [{"pod": "default/p", "node": "n1", "node_ready": True, "left_s": 5.0, "cards": [part]}]


@pytest.mark.parametrize(("amount", "cores_pct"), [(None, 10), (1000, None), (None, None)])
def test_what_a_holder_takes_and_nobody_knows_makes_the_sums_unknown(amount: int | None, cores_pct: int | None):
    found = with_removed(seen("n1", "n2"), held(amount=amount, cores_pct=cores_pct))
    (card,), (total,) = found.nodes[0].cards, found.totals
    assert (card.used, card.cores_pct) == (amount, cores_pct) == (total.used, total.cores_pct)
    assert (total.total, total.idle) == (8000, 1)


def test_a_card_of_unknown_use_is_not_idle_though_its_holder_is_hidden():
    found = with_removed(seen("n1"), held(amount=None, cores_pct=None), namespace="theirs")
    assert (found.nodes[0].cards[0].held_by, found.totals[0].idle) == ((), 0)


def test_the_table_says_unknown():
    found = with_removed(seen("n1", "n2"), held(amount=None, cores_pct=None))
    lines = text.cards_table(found, all_nodes=True).splitlines()
    assert ["unknown/4000 MiB" in line for line in lines] == [False, True, False, False]
    assert "unknown/8000 MiB" in lines[-1]
    card = replace(found.nodes[0].cards[0], used=5000)
    over = replace(found, nodes=(replace(found.nodes[0], cards=(card,)),))
    assert "5000/4000 MiB OVER" in text.cards_table(over, all_nodes=True)


def test_ways_of_sharing_that_are_switched_off_are_noted_if_nodes_have_their_cards():
    def told(settings: Settings, *names: str) -> tuple[str, ...]:
        ledger = Ledger(standard_catalog(), Tables(), settings)
        for name in names:
            ledger.set_node(node(name, memory=4000))
        return switched_off(ledger)

    off = Settings(
        dialects=frozenset({DialectName("whole_gpu")}), switched_off=((DialectName("vgpu"), "'x' of y is not true"),)
    )
    assert told(off, "n1", "n2") == (
        "vgpu is switched off: 'x' of y is not true; the cards of 2 nodes get no new pods by it",
    )
    assert told(replace(off, switched_off=()), "n1") == (
        "vgpu is switched off; the cards of one node get no new pods by it",
    )
    assert told(off) == told(Settings(), "n1") == ()
    assert told(replace(off, dialects=frozenset({DialectName("vgpu")})), "n1") == ()
