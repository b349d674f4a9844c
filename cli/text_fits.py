"""Formats how many pods fit for a terminal; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cli.text import NONE, aligned
from core.errors import escaped
from core.port.cards import CardWish
from core.units import counted
from core.view.fits import Fit, Fits

_HEADER = ("PROTOCOL", "TYPE", "PODS", "NODES")
_NO_WAY = "no node offers cards that a pod could ask for in this way; see kubectl cards get"


def table(found: Fits, wish: CardWish | None) -> str:
    """Format one line per form of request and card type, then the largest fit and what blocks the next pod.

    wish: the request; None for a manifest.
    """
    rows = [row for one in found.ways for row in _rows(one)]
    lines = [*aligned([_HEADER, *rows])] if rows else [_NO_WAY]
    lines += [escaped(line) for one in found.ways for line in _told(one, wish)]
    return "\n".join([*lines, *(escaped(f"note: {note}") for note in found.notes)])


def _rows(one: Fit) -> Iterator[Sequence[str]]:
    for part in one.types:
        yield one.protocol or NONE, part.type or NONE, str(part.pods), str(part.nodes)
    if not one.types:
        yield one.protocol or NONE, NONE, "0", "0"


def _told(one: Fit, wish: CardWish | None) -> Iterator[str]:
    name = one.protocol or "without cards"
    many = counted(one.pods, "pods")
    yield f"{name}: {'' if one.is_all else 'more than '}{many} {'fits' if one.pods == 1 else 'fit'}"
    if wish is not None:
        yield f"{name}: the largest pod that fits: {', or '.join(_largest(one, wish)) or 'none'}"
    if one.stops:
        yield f"{name}: the next pod does not fit: {' '.join(filter(None, (one.code, one.stops)))}"


def _largest(one: Fit, wish: CardWish) -> Iterator[str]:
    each = " on each" if wish.cards > 1 else ""
    if one.largest_memory_mib:
        yield f"{counted(wish.cards, 'cards')} with {one.largest_memory_mib} MiB{each}"
    if one.largest_cards and (one.largest_cards > wish.cards or not one.largest_memory_mib):
        each = " on each" if one.largest_cards > 1 else ""
        memory = f" with {wish.memory_mib} MiB{each}" if wish.memory_mib is not None else ""
        yield f"{counted(one.largest_cards, 'cards')}{memory}"
