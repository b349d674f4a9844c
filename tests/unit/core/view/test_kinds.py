"""What is free of one type, and how much of it a request can get."""

from dataclasses import replace
from typing import Any

from core.catalog import standard_catalog
from core.ledger import Ledger
from core.model import Node, Pod
from core.settings import Settings, Tables
from core.view.cards import Card, Cards, Kind, cards_of, kinds_of, totals_of
from tests.support.worlds.world import node, pod


def seen(*nodes: Node, pods: tuple[Pod, ...] = ()) -> Cards:
    ledger = Ledger(standard_catalog(), Tables(), Settings())
    for one in nodes:
        ledger.set_node(one)
    for each in pods:
        ledger.count(each)
    return cards_of(ledger)


def bound(card: str, memory: int, cores: int = 0) -> Pod:
    assigned = {"volcano.sh/vgpu-ids-new": f"{card},NVIDIA,{memory},{cores}:"}
    return pod(f"on-{card}", node_name=card.partition("-")[0], annotations=assigned)


def only(found: Cards) -> Kind:
    (kind,) = kinds_of(found.nodes)
    return kind


def figures(kind: Kind) -> tuple[Any, ...]:
    return kind.free, kind.stranded, kind.largest, kind.fragmented_pct


def test_what_is_free_on_whole_cards_is_not_fragmented():
    assert figures(only(seen(node("n1", cards=2), pods=(bound("n1-0", 10_000),)))) == (10_000, 0, 10_000, 0)


def test_cards_that_are_requested_by_number_are_counted_each():
    pool = Card(id="GPUs", protocol="whole_gpu", used=3, total=8, unit="GPUs", mode="whole")
    broken = replace(pool, healthy=False, used=0)
    (kind,) = kinds_of([replace(seen(node("n1")).nodes[0], cards=(pool, broken))])
    (total,) = totals_of([pool, broken])
    for one in (kind, total):
        assert (one.cards, one.idle, one.unhealthy) == (16, 5, 8)


def test_what_is_free_beside_holders_is_fragmented():
    found = seen(node("n1", cards=3), pods=(bound("n1-0", 4_000), bound("n1-1", 7_000)))
    assert figures(only(found)) == (19_000, 0, 10_000, 48)  # 9000 of 19000


def test_memory_of_a_card_whose_cores_are_held_is_stranded():
    found = seen(node("n1"), pods=(bound("n1-0", 4_000, 100),))
    assert found.nodes[0].cards[0].stranded
    assert figures(only(found)) == (6_000, 6_000, 0, 100)


def test_a_card_without_a_rest_is_not_stranded():
    assert not seen(node("n1"), pods=(bound("n1-0", 10_000, 100),)).nodes[0].cards[0].stranded


def test_cards_of_a_cordoned_node_are_stranded_and_others_are_not():
    found = seen(node("n1", unschedulable=True), node("n2"), pods=(bound("n2-0", 1_000),))
    assert [one.cards[0].stranded for one in found.nodes] == [True, False]
    assert figures(only(found)) == (19_000, 10_000, 9_000, 100)


def test_figures_of_a_type_with_a_card_of_unknown_use_are_unknown():
    (one,) = seen(node("n1")).nodes
    (kind,) = kinds_of([replace(one, cards=(*one.cards, replace(one.cards[0], used=None)))])
    assert figures(kind) == (None, None, None, None)
