"""The sum of one type's cards: how much is free, and how much of it one request can get. Pure.

Fields may be added; renaming a field or changing its meaning requires another *version* of the containing answer.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core.view.cards import WHOLE, Card, Node, count_of, idle_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """The cards of one *type* under one *protocol*, on all nodes.

    cards: those that device plugins currently offer. idle: healthy and unused ones. unhealthy: those that accept no new
    pods.
    used, total, free: in *unit*; None if the value of a card is unknown. free: on healthy cards. stranded: the part of
    *free* on stranded cards. largest: the most that is free on one other card. fragmented_pct: the percentage of *free*
    that no request for a whole card can get, because it is stranded or on a card in part use.
    """

    protocol: str
    type: str
    unit: str
    cards: int
    idle: int
    unhealthy: int
    used: int | None
    total: int | None
    free: int | None
    stranded: int | None
    largest: int | None
    fragmented_pct: int | None


def kinds_of(nodes: Iterable[Node]) -> tuple[Kind, ...]:
    """Return the cards of *nodes* by protocol and type, ordered by name."""
    found: dict[tuple[str, str, str], list[Card]] = {}
    for node in nodes:
        for card in node.cards:
            if card.offered:
                found.setdefault((card.protocol, card.type, card.unit), []).append(card)
    return tuple(_kind(*key, cards) for key, cards in sorted(found.items()))


def _kind(protocol: str, label: str, unit: str, cards: Sequence[Card]) -> Kind:
    healthy = [card for card in cards if card.healthy]
    is_known = all(card.used is not None and card.total is not None for card in cards)
    usable = [card for card in healthy if not card.stranded]
    free = sum(map(_free, healthy))
    whole = sum(_free(card) for card in usable if card.mode == WHOLE or idle_of(card))
    return Kind(
        protocol=protocol,
        type=label,
        unit=unit,
        cards=sum(map(count_of, cards)),
        idle=sum(map(idle_of, cards)),
        unhealthy=sum(map(count_of, cards)) - sum(map(count_of, healthy)),
        used=sum(card.used or 0 for card in cards) if is_known else None,
        total=sum(card.total or 0 for card in cards) if is_known else None,
        free=free if is_known else None,
        stranded=free - sum(map(_free, usable)) if is_known else None,
        largest=max(map(_free, usable), default=0) if is_known else None,
        fragmented_pct=-(-100 * (free - whole) // max(free, 1)) if is_known else None,
    )


def _free(card: Card) -> int:
    return max((card.total or 0) - (card.used or 0), 0)
