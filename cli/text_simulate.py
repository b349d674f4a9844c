"""Formats what would happen for a terminal; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cli.text import NONE, aligned
from core.errors import escaped
from core.units import counted
from core.view.simulated import Outcome, Simulated, SimulatedKind, SimulatedPod
from core.waiting import cause_of

_PODS = ("POD", "BECAUSE", "BEFORE", "OUTCOME", "NODE", "CARDS OR REASON")
_KINDS = ("PROTOCOL", "TYPE", "CARDS", "FREE", "STRANDED")
_UNKNOWN = "unknown"


def table(found: Simulated) -> str:
    """Format one line per affected pod, one per type of cards, and who would lose."""
    lines = [*aligned([_PODS, *map(_pod, found.pods)])] if found.pods else ["no pod would be placed or moved"]
    if found.kinds:
        lines += ["", *aligned([_KINDS, *map(_kind, found.kinds)])]
    return "\n".join([*lines, *(escaped(line) for line in _told(found))])


def _pod(one: SimulatedPod) -> Sequence[str]:
    return one.pod, one.because, one.before or NONE, one.outcome, one.node or NONE, _why(one) or NONE


def _why(one: SimulatedPod) -> str:
    if one.outcome == Outcome.ENDED:
        told = "nothing creates it again"
    elif one.outcome == Outcome.WAITS:
        cause = cause_of(one.code)
        # The remedy for all waits of a cause names nothing; the text does.
        is_own = bool(one.change) and (cause is None or one.change != cause.value.remedy)
        told = " ".join(filter(None, (one.code, one.change if is_own else one.text)))
    else:
        told = ", ".join(f"{part.card} ({part.share})" for part in one.cards)
    return f"evicted for {one.evicted_for}; {told}" if one.evicted_for else told


def _kind(one: SimulatedKind) -> Sequence[str]:
    return (
        one.protocol,
        one.type or NONE,
        _both(one.cards_before, one.cards_after),
        _both(one.free_before, one.free_after, one.unit),
        _both(one.stranded_before, one.stranded_after, one.unit),
    )


def _both(before: int | None, after: int | None, unit: str = "") -> str:
    was, now = (_UNKNOWN if one is None else str(one) for one in (before, after))
    amount = was if was == now else f"{was} -> {now}"
    return f"{amount} {unit}".rstrip() if amount != _UNKNOWN else amount


def _told(found: Simulated) -> Iterator[str]:
    if found.losing:
        yield f"{counted(found.losing, 'pods')} that {'runs' if found.losing == 1 else 'run'} now would not run"
    else:
        yield "every pod that runs now would run"
    if found.waiting:
        yield f"{counted(found.waiting, 'other pods')} would still wait"
    yield from (f"note: {note}" for note in found.notes)
