"""What the commands show, as lines for a terminal; pure. Whatever the cluster says, no line controls the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cli.view import Card, Cards, Event, Explained, Node
from core.errors import escaped

_HEADER = ("NODE", "CARD", "TYPE", "USED", "CORES", "HELD BY")


def cards_table(found: Cards, *, all_nodes: bool) -> str:
    """One line for each card: what is used of its total, percent of its cores, and who holds how much.

    Args:
        found: the cards.
        all_nodes: no nodes were named.
    """
    rows = [_row(node, card) for node in found.nodes for card in node.cards]
    remarks = [f"{node.name}: {remark}" for node in found.nodes for remark in node.remarks]
    remarks += [f"node {name}: there is none of that name" for name in found.missing]
    lines = [*_aligned((_HEADER, *rows))] if rows else []
    lines += map(escaped, remarks)
    lines = lines or [escaped(_no_cards(() if all_nodes else found.nodes))]
    return "\n".join([*lines, *(escaped(f"note: {note}") for note in found.notes)])


def explanation(found: Explained) -> str:
    """Where a pod is, or why it waits; its events, oldest first."""
    events = ["Events:", *map(_event, found.events)] if found.events else []
    return "\n".join(map(escaped, (found.text, *events)))


def answer(pod: str, told: Mapping[str, Any]) -> str:
    """The controller's own words on a pod, which are of several lines."""
    code = f"{told['code']} " if told.get("code") else ""
    return "\n".join(escaped(line) for line in f"{pod}: {code}{told.get('text', '')}".split("\n"))


def _no_cards(asked: Sequence[Node]) -> str:
    if not asked:
        return "no node offers cards; see whether the device plugins run and have registered"
    names = ", ".join(node.name for node in asked)
    return f"no cards on {names}; see whether the device plugin runs there and has registered"


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    shown = [tuple(escaped(cell) for cell in row) for row in rows]
    widths = [max(len(row[i]) for row in shown) for i in range(len(_HEADER))]
    for row in shown:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _row(node: Node, card: Card) -> tuple[str, ...]:
    held = ", ".join(f"{one.pod} ({one.share})" for one in card.held_by)
    if not card.offered:
        return node.name, card.id, f"not offered ({card.protocol})", "-", "-", held
    label = f"{card.type} ({card.note})" if card.note else card.type
    cores = "-" if card.cores_pct is None else f"{card.cores_pct}%"
    return node.name, card.id, label, _used(card), cores, held


def _used(card: Card) -> str:
    over = " OVER" if (card.used or 0) > (card.total or 0) else ""
    return f"{card.used}/{card.total} {card.unit}{over}"


def _event(event: Event) -> str:
    times = f" (x{event.count})" if event.count > 1 else ""
    return f"  {event.time or '-':<20}  {event.reason}: {event.message}{times}"
