"""The last day as a chart: what cards were used for, and how many pods waited. Pure.

Fields may be added; renaming a field or changing its meaning requires another *version*.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final

from core.history.minutes import MINUTES_MAX, OTHERS, Minute, Sums
from core.units import time_text
from core.view.cards import VERSION

_MINUTE_S: Final = 60
_POINTS_MAX: Final = 288
# Minutes of one point; with the last of them, a day has as many points as there may be.
_STEPS: Final = (1, 2, 5)
# What is stored for others arrives so late; a record that ends earlier has a gap until now.
_LATE: Final = 5
# More rows of cards, and of waiting pods, are added up.
_ROWS_MAX: Final = 24

Points = tuple[int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CardTrend:
    """Cards of one dialect and type at each point, in thousandths of a card; None if unknown.

    promised: what pods hold or are promised. idle: what a pod could still get. stranded: what no pod can get. ``*``:
    several types, added up.
    """

    dialect: str
    type: str
    promised: Points
    idle: Points
    stranded: Points


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitTrend:
    """The number of waiting pods of one dialect and queue at the end of each point; None if unknown.

    dialect: "" for pods without cards. queue: None if the reader may not see queues. ``*``: several, added up.
    """

    dialect: str
    queue: str | None
    pods: Points


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """At most a day in points of *step_s* seconds.

    since: when the first point begins, None if there are none. observed: how many minutes are known of each; if none
    are, its figures are unknown. as_of: when the record was stored, None if it was not. notes: why it cannot be read.
    """

    version: int = VERSION
    since: str | None = None
    step_s: int = _MINUTE_S
    observed: tuple[int, ...] = ()
    cards: tuple[CardTrend, ...] = ()
    waiting: tuple[WaitTrend, ...] = ()
    as_of: str | None = None
    notes: tuple[str, ...] = ()


def trend(minutes: Iterable[Minute], now_s: float, *, as_of_s: float | None = None, notes: Sequence[str] = ()) -> Trend:
    """Return *minutes* as points until *now_s* (Unix seconds); *as_of_s*: when they were stored, None if unknown."""
    as_of = None if as_of_s is None else time_text(as_of_s)
    known = {one.at: one.sums for one in minutes}
    if not known:
        return Trend(as_of=as_of, notes=tuple(notes))
    last, now = max(known), int(now_s) // _MINUTE_S
    if last < now - _LATE:
        last = now - 1
    first = max(min(known), last - MINUTES_MAX + 1)
    step = next(one for one in _STEPS if last - first < one * _POINTS_MAX)
    points = [
        [known[minute] for minute in range(at, at + step) if minute in known] for at in range(first, last + 1, step)
    ]
    cards, waiting = dict[_Name, list[Sums]](), dict[_Name, list[Sums]]()
    for at, observed in enumerate(points):
        for minute in observed:
            _add(cards, at, len(points), ((key.dialect, key.type, sums) for key, sums in minute.items() if key.type))
        if observed:
            rows = ((key.dialect, key.queue, sums) for key, sums in observed[-1].items() if sums.waiting)
            _add(waiting, at, len(points), rows)

    def means(sums: Iterable[int]) -> Points:
        return tuple(
            sum_ms // (len(observed) * _MINUTE_S) if observed else None
            for sum_ms, observed in zip(sums, points, strict=True)
        )

    return Trend(
        since=time_text(first * _MINUTE_S),
        step_s=step * _MINUTE_S,
        observed=tuple(map(len, points)),
        cards=tuple(
            CardTrend(
                dialect=dialect,
                type=label,
                promised=means(one.promised_ms for one in row),
                idle=means(one.idle_ms for one in row),
                stranded=means(one.stranded_ms for one in row),
            )
            for (dialect, label), row in _largest(cards)
        ),
        waiting=tuple(
            WaitTrend(
                dialect=dialect,
                queue=queue,
                pods=tuple(one.waiting if observed else None for one, observed in zip(row, points, strict=True)),
            )
            for (dialect, queue), row in _largest(waiting)
        ),
        as_of=as_of,
        notes=tuple(notes),
    )


def trend_for(found: Trend, *, queues: bool, notes: Sequence[str]) -> Trend:
    """Return *found* for a reader who may see only some: with other *notes*, and without *queues* if it is False."""
    if queues:
        return replace(found, notes=tuple(notes))
    sums: dict[str, Points] = {}
    for one in found.waiting:
        before = sums.get(one.dialect)
        sums[one.dialect] = one.pods if before is None else tuple(map(_plus, before, one.pods))
    waiting = tuple(WaitTrend(dialect=dialect, queue=None, pods=pods) for dialect, pods in sums.items())
    return replace(found, waiting=waiting, notes=tuple(notes))


_Name = tuple[str, str]
_NONE: Final = Sums()


def _add(rows: dict[_Name, list[Sums]], at: int, points: int, found: Iterable[tuple[str, str, Sums]]) -> None:
    """Add what was *found* to point *at* of its rows."""
    for dialect, name, sums in found:
        row = rows.setdefault((dialect, name), [_NONE] * points)
        row[at] = row[at].plus(sums)


def _largest(rows: Mapping[_Name, list[Sums]]) -> list[tuple[_Name, list[Sums]]]:
    """Return the rows by name; of too many, the smallest are one."""
    order = sorted(rows, key=lambda name: (-sum(map(sum, rows[name])), name))
    if len(order) <= _ROWS_MAX:
        return sorted(rows.items())
    kept = sorted(order[: _ROWS_MAX - 1])
    rest = [rows[name] for name in order[_ROWS_MAX - 1 :]]
    others = [reduce(Sums.plus, at) for at in zip(*rest, strict=True)]
    return [*((name, rows[name]) for name in kept), ((OTHERS, OTHERS), others)]


def _plus(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other
