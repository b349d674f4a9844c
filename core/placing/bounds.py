"""How good each node could at best be for one shape, by the columns of its dialect."""

from collections.abc import Hashable
from typing import Any, Final

import numpy as np

from core.placing.columns import Columns
from core.placing.rows import Floats, Ints, Some
from core.placing.score import NodePolicy, most_of_others
from core.placing.shape import Shape
from core.port.dialect import AnyJudging

REFUSED: Final = float("inf")
# More than any card has free.
_NEVER: Final = float(1 << 62)


class Bounds:
    """What one shape wants of the cards of each kind, and what that makes of rows.

    A bound is a negated score (`core.placing.score.Rank.minus_score`), so the smallest is the best; `REFUSED` is that
    of a node that takes the shape for no score.
    """

    def __init__(self, shape: Shape, columns: Columns, judging: AnyJudging, policy: NodePolicy) -> None:
        self._shape: Final = shape
        self._columns: Final = columns
        self._judging: Final = judging
        self._policy: Final = policy
        self._bound: Final = judging.bound(shape.request, policy.cards)
        self._by_free: Final = bool(policy.weight) and self._bound.by_free
        self._width: Final = self._bound.width
        self._others: Final = most_of_others(policy, shape.preferred)
        # By number of kind what is needed of a card of it, and what it makes of the score; by number of idle cards, as
        # the columns have these, the negated score.
        self._free, self._spare, self._numerator, self._total, self._by_idle = (np.zeros(0) for _ in range(5))
        self._minds_spare = False

    @property
    def leaves_open(self) -> bool:
        """Whether there may be rows without a bound of their score."""
        return self._policy.tables is not None or (self._width > 1 and self._columns.kind_of_card is not None)

    def of(self, rows: Some) -> Floats:
        """The bounds of *rows*: what the shape's static constraints say of them is not asked."""
        columns = self._columns
        if len(self._free) < len(columns.kinds):
            self._learn(columns.kinds[len(self._free) :])
        # What belongs together is read from one place, and calculated card by card.
        cells = _at(columns.cells, rows).T.copy()
        if not len(self._free) or self._width > columns.width:
            return np.full(cells.shape[1], REFUSED)
        # Where each node has cards of one kind, one number tells it.
        kind = _at(columns.kind, rows) if columns.kind_of_card is None else _at(columns.kind_of_card, rows).T.copy()
        free, spare = cells[: columns.width], cells[columns.width :]
        short = free < self._free.take(kind)
        if self._minds_spare:
            short |= spare < self._spare.take(kind)
        if self._by_free and self._policy.tables is None:
            np.putmask(free, short, REFUSED)
            found = self._of_cards(rows, kind, free)
            if self._shape.dialect is None:
                # More than enough is as good as enough.
                found = np.maximum(found, self._of_node(_at(columns.idle, rows)))
        else:
            fails = short.all(0) if self._width == 1 else short.sum(0) > columns.width - self._width
            found = self._of_node(_at(columns.idle, rows))
            found[fails] = REFUSED
        return found - self._others if self._others else found

    def _of_cards(self, rows: Some, kind: Ints, free: Floats) -> Floats:
        """By what is *free* on as many cards as the shape asks at once: the least, for these are scored best."""
        columns = self._columns
        numerator, total = self._numerator.take(kind), self._total.take(kind)
        if columns.kind_of_card is None:
            return self._minus_score(_least(free, self._width), numerator, total)
        if self._width == 1:
            one: Floats = self._minus_score(free, numerator, total).min(0)
            return one
        several = self._minus_score(_least(free, self._width), numerator.max(0), total.max(0))
        # No sum of free amounts bounds the score of cards of several kinds.
        several[_at(columns.mixed, rows) & (several < REFUSED)] = -REFUSED
        return several

    def _minus_score(self, free: Floats, numerator: Floats, total: Floats) -> Floats:
        """The formula of `core.port.cards.Want`, negated, each step as there; of an infinite amount it is that."""
        found: Floats = free - numerator
        found *= 100.0
        found /= total
        if self._policy.weight != 1:
            found *= self._policy.weight
        return found

    def _of_node(self, idle: Ints) -> Floats:
        """By the number of its idle cards alone; without a bound where what is lost on a node counts."""
        policy = self._policy
        if policy.tables is not None:
            return np.full(len(idle), -REFUSED)
        counts = self._columns.idles[len(self._by_idle) :]
        if counts:
            scores = [-self._bound.idle_score(count) * policy.weight for count in counts]
            self._by_idle = np.append(self._by_idle, scores)
        found: Floats = self._by_idle.take(idle)
        return found

    def _learn(self, kinds: list[Hashable]) -> None:
        """What the shape wants of cards of *kinds*, the next ones."""
        wants = [self._judging.want(self._shape.request, kind, self._policy.cards) for kind in kinds]
        free = [_NEVER if want is None else min(want.free, _NEVER) for want in wants]
        spare = [0.0 if want is None else min(want.spare, _NEVER) for want in wants]
        self._free = np.append(self._free, free)
        self._spare = np.append(self._spare, spare)
        self._minds_spare = bool(self._spare.any())
        self._numerator = np.append(self._numerator, [0.0 if want is None else float(want.numerator) for want in wants])
        self._total = np.append(self._total, [1.0 if want is None else float(want.total) for want in wants])


def _least(free: Floats, count: int) -> Floats:
    """The sum of the *count* least of each node."""
    found: Floats = free.min(0) if count == 1 else np.partition(free, count - 1, 0)[:count].sum(0)
    return found


def _at(array: Any, rows: Some) -> Any:
    """*rows* of *array*; a third of the time of indexing by an array."""
    return array[rows] if isinstance(rows, slice) else array.take(rows, 0)
