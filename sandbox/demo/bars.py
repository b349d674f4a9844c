"""One card and its holders as a line of text; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_BAR_CHARS: Final = 24
_FULL, _EMPTY = "█", "░"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one pod holds of one card, in the card's unit.

    cores_pct: 0 = no limit. template: the template of its slice, "" if there is none.
    """

    pod: str
    amount: int
    cores_pct: int = 0
    template: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardBar:
    """One card: total in *unit* (MiB, AI cores, or whole cards), and what each pod holds.

    clash: two of its slices cannot exist together.
    """

    node: str
    card: str
    label: str
    total: int
    unit: str
    parts: tuple[Part, ...] = ()
    clash: bool = False

    @property
    def used(self) -> int:
        """The sum of all parts."""
        return sum(part.amount for part in self.parts)

    @property
    def overcommitted(self) -> bool:
        """Whether more is promised than the card has."""
        return self.clash or self.used > self.total or sum(part.cores_pct for part in self.parts) > 100


def lines(bars: Sequence[CardBar], *, most_parts: int | None = None) -> tuple[str, ...]:
    """Return the bars as text, by node and kind; each with at most *most_parts* holders, None = all."""
    drawn: list[str] = []
    width = max((len(bar.card) for bar in bars), default=0)
    head = ""
    for bar in bars:
        if head != (head := f"{bar.node}  ({bar.label})"):
            drawn.append(head)
        drawn.append(f"  {bar.card:<{width}} {_bar(bar)} {_amounts(bar)}{_parts(bar, most_parts)}")
    return tuple(drawn)


def _bar(bar: CardBar) -> str:
    # Never empty while something is used, and never full while something is free.
    filled = min(_BAR_CHARS, max(bar.used > 0, bar.used * _BAR_CHARS // bar.total)) if bar.total else 0
    return _FULL * filled + _EMPTY * (_BAR_CHARS - filled)


def _amounts(bar: CardBar) -> str:
    return f"{bar.used:>5} of {bar.total:>5} {bar.unit}"


def _parts(bar: CardBar, most: int | None) -> str:
    if not bar.parts:
        return ""
    told = ", ".join(f"{part.pod} {part.amount}{_detail(part)}" for part in bar.parts[:most])
    if more := len(bar.parts) - len(bar.parts[:most]):
        told += f" and {more} more"
    return f"   {told}" + ("   OVERCOMMITTED" if bar.overcommitted else "")


def _detail(part: Part) -> str:
    if part.template:
        return f" ({part.template})"
    return f" ({part.cores_pct} % of compute)" if part.cores_pct else ""
