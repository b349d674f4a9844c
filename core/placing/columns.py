"""What the search reads of nodes, in columns: what is free for each dialect, marks of nodes, and bounds of scores.

Each node has the same row in all columns, and keeps it after it is gone; if too many nodes are gone, all columns are
made anew, with new `Rows`. Columns are brought up to date node by node. A whole cluster takes longer than a loop may
stand still, so callers with a loop do it in slices.
"""

from collections.abc import Callable, Collection, Hashable, Mapping
from struct import Struct
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from core.constraints.constraint import ChangeLog
from core.model import NodeName
from core.node_state import NodeState
from core.placing.decide import NodePolicy, Shape, most_of_others
from core.port.cards import NodeRoom
from core.port.dialect import AnyJudging
from core.settings import DialectName

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
# Rows of nodes, as numpy takes them: some numbers, or all from the first on.
Numbers = npt.NDArray[np.intp]
Some = Numbers | slice

# Of so many bits is a name's place, so that it and a tie make a whole number of 64.
PLACE_BITS: Final = 32
# Rows of nodes that are gone are kept until there are so many more of them than nodes.
_SPARE: Final = 256


class Rows:
    """The rows of all nodes, and a log of those that changed.

    Attributes:
        of: the row of each node; names: the reverse.
        places: where its name is among all names, by row; as of the last `settle`.
        capacity: how long arrays by row are to be, at least.
        log: the rows that changed.
    """

    def __init__(self, names: Collection[NodeName]) -> None:
        """Begin with *names*, as of now."""
        self.names: Final = sorted(names)
        self.of: Final = {name: row for row, name in enumerate(self.names)}
        self.capacity = len(self.names) + len(self.names) // 8 + 8
        self.places = np.arange(len(self.names))
        # All names; those that came since the last `settle` stand behind the others.
        self._sorted: Final = list(self.names)
        self.log: Final = RowLog()

    def __len__(self) -> int:
        return len(self.names)

    def is_crowded(self, nodes: int) -> bool:
        """Whether most rows, there being *nodes* nodes, are of nodes that are gone."""
        return len(self.names) > 2 * nodes + _SPARE

    def add(self, name: NodeName) -> int:
        """A row for *name*, which has none; its place is known once it is settled."""
        row = self.of[name] = len(self.names)
        self.names.append(name)
        self._sorted.append(name)
        if row >= self.capacity:
            self.capacity += self.capacity // 8 + 8
        return row

    def settle(self) -> bool:
        """Find the places of names that were added; whether there were any, so that all have others."""
        if len(self.places) == len(self.names):
            return False
        self._sorted.sort()
        self.places = np.empty(len(self.names), np.int64)
        self.places[[self.of[name] for name in self._sorted]] = np.arange(len(self.names))
        return True


class RowLog:
    """A `ChangeLog` of rows. Readers get a slice of an array: each shape reads it, often thousands of rows at once."""

    def __init__(self, most: int = 1 << 14) -> None:
        """Remember *most* changes, at least."""
        self._most: Final = most
        self._rows: Final = np.zeros(2 * most, np.intp)
        self._next: Final = self._rows.data
        self._end = 0
        self._cut = 0

    @property
    def cursor(self) -> int:
        """The position behind the last change."""
        return self._cut + self._end

    def add(self, row: int) -> None:
        """*row* changed."""
        if self._end == len(self._rows):
            self._rows[: self._most] = self._rows[self._most :]
            self._end -= self._most
            self._cut += self._most
        self._next[self._end] = row
        self._end += 1

    def since(self, cursor: int) -> Numbers | None:
        """The rows that changed since *cursor*, repeats included, until the next is added; None: too long ago."""
        return None if cursor < self._cut else self._rows[cursor - self._cut : self._end]


def grown(array: npt.NDArray[Any], capacity: int, fill: float) -> npt.NDArray[Any]:
    """*array*, by row, if it has *capacity* rows; else a longer copy, *fill* in what is new."""
    if len(array) >= capacity:
        return array
    longer = np.full((capacity, *array.shape[1:]), fill, array.dtype)
    longer[: len(array)] = array
    return longer


# What is free of a card that is not there.
NO_CARD: Final = -1.0

_Value = TypeVar("_Value", bound=Hashable)


class Behind:
    """The nodes that changed, or were given a row, since they were last read."""

    def __init__(self, rows: Rows, log: ChangeLog, cursor: int = -1) -> None:
        """Begin at *cursor* of *log*; -1: with all nodes."""
        self._rows: Final = rows
        self._log: Final = log
        self._cursor = cursor
        self._row = len(rows)
        self._names: Final[dict[NodeName, None]] = {}

    def __len__(self) -> int:
        if self._cursor != self._log.cursor:
            changed = self._log.since(self._cursor)
            self._names.update(dict.fromkeys(self._rows.names if changed is None else changed))
            self._cursor = self._log.cursor
        if self._row != len(self._rows):
            self._names.update(dict.fromkeys(self._rows.names[self._row :]))
            self._row = len(self._rows)
        return len(self._names)

    def take(self, most: int | None) -> list[tuple[int, NodeName]]:
        """Return the next *most* of them with their rows, and count them as read; None: all."""
        count = len(self)
        names = [self._names.popitem()[0] for _ in range(count if most is None else min(most, count))]
        if not self._names:
            self._names.clear()  # what is taken out one by one leaves its room behind
        return [(self._rows.of[name], name) for name in names if name in self._rows.of]


class Columns:
    """What is free on all nodes in one dialect, a row per node: see `core.port.cards.NodeRoom`.

    Attributes:
        behind: the nodes to read.
        kind: by row, the number of the node's kind of cards (the narrower if it has two).
        idle: by row, the number of its count of idle cards.
        cells: by row, what is free of each of *width* cards, then what each can spare; `NO_CARD` without a card.
        kind_of_card: by row and card, the number of its kind, if there are nodes with several kinds; mixed: the rows
            whose wider kinds differ.
        seats: what orders equal scores, the smallest first: the tie, then the place among the names.
        kinds, idles: by number.
    """

    def __init__(
        self,
        rows: Rows,
        log: ChangeLog,
        states: Mapping[NodeName, NodeState],
        dialect: DialectName | None,
        judging: AnyJudging,
        *,
        tie_ppm: Callable[[int], int],
    ) -> None:
        """Begin with *states* to be read; *log*: which changed. tie_ppm: settles equal scores by the used share."""
        self.rows: Final = rows
        self.behind: Final = Behind(rows, log)
        self._states: Final = states
        self._dialect: Final = dialect
        self._judging: Final = judging
        self._tie_ppm: Final = tie_ppm
        self.width = 1
        self.kind: Ints = np.zeros(rows.capacity, np.int64)
        self.idle: Ints = np.zeros(rows.capacity, np.int64)
        self.cells: Floats = np.full((rows.capacity, 2), NO_CARD)
        self.seats: Ints = np.zeros(rows.capacity, np.int64)
        self.kind_of_card: Ints | None = None
        self.mixed: Flags = np.zeros(rows.capacity, np.bool_)
        self.kinds: Final[list[Hashable]] = []
        self.idles: Final[list[int]] = []
        self._numbers: Final[dict[Hashable, int]] = {}
        self._idle_numbers: Final[dict[int, int]] = {}
        self._view()

    def _view(self) -> None:
        """Open the arrays for single values: numpy itself takes several times as long to write one."""
        self._kind, self._idle, self._seats = self.kind.data, self.idle.data, self.seats.data
        self._cells, self._row = self.cells.data, Struct(f"{2 * self.width}d")

    @property
    def size_bytes(self) -> int:
        """What it takes of memory."""
        by_card = 0 if self.kind_of_card is None else self.kind_of_card.nbytes
        return sum([one.nbytes for one in (self.kind, self.idle, self.cells, self.seats, self.mixed)]) + by_card

    def tie(self, row: int) -> int:
        """What settles equal scores of the node of *row*, before its name."""
        return self._seats[row] >> PLACE_BITS

    def seat_anew(self) -> None:
        """Take in that names have other places."""
        places = self.rows.places[: len(self.seats)]
        seats = self.seats[: len(places)]
        seats[:] = (seats >> PLACE_BITS << PLACE_BITS) + places

    def there(self, refuses: Flags) -> int:
        """How many nodes have a card that takes something, without those that *refuses* has."""
        size = min(len(self.seats), len(refuses))
        free = self.cells[:size, : self.width]
        return int(((free != NO_CARD).any(1) & ~refuses[:size]).sum())

    def catch_up(self, most: int | None = None) -> None:
        """Read *most* of the nodes that changed; None: all."""
        for row, name in self.behind.take(most):
            self._read(row, self._states.get(name))

    def _read(self, row: int, state: NodeState | None) -> None:
        if row >= len(self.seats):
            self._grow(self.width)
        cards = () if state is None or self._dialect in state.closed else state.cards(self._dialect)
        if not cards:
            self.cells[row] = NO_CARD
            return
        room = self._judging.room(cards)
        if len(room.free) > self.width:
            self._grow(len(room.free))
        kinds: list[int] = []
        last: Hashable = None
        number = 0
        for kind in room.kinds if room.narrow is None else room.narrow:
            # Cards of one node are mostly of one kind, whose hash is then not asked for again.
            if kind is not last and kind != last:
                last, number = kind, _number(kind, self._numbers, self.kinds)
            kinds.append(number)
        none = [NO_CARD] * (self.width - len(kinds))
        self._kind[row] = number
        self._idle[row] = _number(room.idle, self._idle_numbers, self.idles)
        self._row.pack_into(self._cells, row * self._row.size, *room.free, *none, *room.spare, *none)
        self._seats[row] = (self._tie_ppm(room.used_ppm) << PLACE_BITS) + int(self.rows.places[row])
        if self.kind_of_card is not None or kinds.count(number) < len(kinds):
            self._tell_apart(row, kinds + [number] * len(none), room)

    def _tell_apart(self, row: int, kinds: list[int], room: NodeRoom) -> None:
        """Record the kind of each card of a node, because some node has cards of several kinds."""
        if self.kind_of_card is None:
            self.kind_of_card = np.repeat(self.kind[:, None], self.width, 1)
        self.kind_of_card[row] = kinds
        self.mixed[row] = any(kind != room.kinds[0] for kind in room.kinds)

    def _grow(self, width: int) -> None:
        """Have a row for each node, and *width* cards."""
        size = self.rows.capacity
        more = (0, size - len(self.seats)), (0, width - self.width)
        halves = self.cells[:, : self.width], self.cells[:, self.width :]
        self.cells = np.concatenate([np.pad(one, more, constant_values=NO_CARD) for one in halves], 1)
        self.width = width
        self.kind, self.idle = grown(self.kind, size, 0), grown(self.idle, size, 0)
        self.seats, self.mixed = grown(self.seats, size, 0), grown(self.mixed, size, 0)
        if self.kind_of_card is not None:
            self.kind_of_card = np.pad(self.kind_of_card, more, mode="edge")
        self._view()


class Marks:
    """What a function says of each node, by row; it is asked again for the nodes that a log names.

    Attributes:
        behind: the nodes for which it must be asked.
        said: its answers, by row.
        users: the number of shapes that use it, if that is counted.
    """

    def __init__(
        self, rows: Rows, log: ChangeLog, say: Callable[[NodeName], int], dtype: Any, *, is_blank: bool = False
    ) -> None:
        """Begin with all nodes to be asked for; *is_blank*: only with those of *log*, all others have 0."""
        self._rows: Final = rows
        self._say: Final = say
        self.behind: Final = Behind(rows, log, 0 if is_blank else -1)
        self.said: npt.NDArray[Any] = np.zeros(rows.capacity, dtype)
        self.users = 0

    def catch_up(self, most: int | None = None) -> None:
        """Ask for *most* of the nodes that changed; None: all."""
        self.said = grown(self.said, self._rows.capacity, 0)
        for row, name in self.behind.take(most):
            self.said[row] = self._say(name)


def _number(found: _Value, numbers: dict[_Value, int], values: list[_Value]) -> int:
    """Return the number of *found* among *values*, which are numbered in the order of their appearance."""
    number = numbers.get(found)
    if number is None:
        number = numbers[found] = len(values)
        values.append(found)
    return number


REFUSED: Final = float("inf")
# Methods of arrays do the same, but go through Python.
_all: Final = np.logical_and.reduce
_min: Final = np.minimum.reduce
_sum: Final = np.add.reduce
# More than any card has free.
_NEVER: Final = float(1 << 62)


class ScoreBounds:
    """What one shape wants of the cards of each kind, and what that makes of rows.

    A bound is a negated score (`core.placing.decide.Rank.minus_score`), so the smallest is the best; `REFUSED` is that
    of a node that takes the shape for no score.
    """

    def __init__(
        self, shape: Shape, columns: Columns, judging: AnyJudging, policy: NodePolicy, most_preferred: float = 0.0
    ) -> None:
        """Bound *shape*; *most_preferred*: by how much a node may be better by what it prefers (`Constraints.most`)."""
        self._shape: Final = shape
        self._columns: Final = columns
        self._judging: Final = judging
        self._policy: Final = policy
        self._bound: Final = judging.bound(shape.request, policy.cards)
        self._by_free: Final = bool(policy.weight) and self._bound.by_free
        self._width: Final = self._bound.width
        self._others: Final = most_of_others(policy.others, most_preferred)
        # By number of kind what is needed of a card of it, and what it makes of the score; by number of idle cards, as
        # the columns have these, the negated score.
        self._free, self._spare, self._numerator, self._total, self._by_idle = (np.zeros(0) for _ in range(5))
        self._minds_spare = False
        self._is_open: Final = policy.tables is not None or self._score_of_idle(1) == REFUSED

    @property
    def leaves_open(self) -> bool:
        """Whether there may be rows without a bound of their score."""
        return self._is_open or (self._width > 1 and self._columns.kind_of_card is not None)

    def of(self, rows: Some) -> Floats:
        """The bounds of *rows*: what the shape's static constraints say of them is not asked."""
        columns = self._columns
        if len(self._free) < len(columns.kinds):
            self._learn(columns.kinds[len(self._free) :])
        # What belongs together is read from one place, and calculated card by card.
        cells = at(columns.cells, rows).T.copy()
        if not len(self._free) or self._width > columns.width:
            return np.full(cells.shape[1], REFUSED)
        # Where each node has cards of one kind, one number tells it.
        kind = at(columns.kind, rows) if columns.kind_of_card is None else at(columns.kind_of_card, rows).T.copy()
        free, spare = cells[: columns.width], cells[columns.width :]
        short = free < self._free.take(kind)
        if self._minds_spare:
            short |= spare < self._spare.take(kind)
        if self._by_free and self._policy.tables is None:
            np.putmask(free, short, REFUSED)
            found = self._of_cards(rows, kind, free)
            if self._shape.dialect is None:
                # More than enough is as good as enough.
                found = np.maximum(found, self._of_node(at(columns.idle, rows)))
        else:
            spared = columns.width - self._width
            fails = _all(short, 0) if self._width == 1 else _sum(short, 0) > spared
            found = self._of_node(at(columns.idle, rows))
            np.putmask(found, fails, REFUSED)
        return found - self._others if self._others else found

    def _of_cards(self, rows: Some, kind: Ints, free: Floats) -> Floats:
        """By what is *free* on as many cards as the shape asks at once: the least, for these are scored best."""
        columns = self._columns
        numerator, total = self._numerator.take(kind), self._total.take(kind)
        if columns.kind_of_card is None:
            return self._minus_score(_least(free, self._width), numerator, total)
        if self._width == 1:
            one: Floats = _min(self._minus_score(free, numerator, total), 0)
            return one
        several = self._minus_score(_least(free, self._width), numerator.max(0), total.max(0))
        # No sum of free amounts bounds the score of cards of several kinds.
        several[at(columns.mixed, rows) & (several < REFUSED)] = -REFUSED
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
        if self._policy.tables is not None:
            return np.full(len(idle), -REFUSED)
        counts = self._columns.idles[len(self._by_idle) :]
        if counts:
            scores = [-self._score_of_idle(count) for count in counts]
            self._by_idle = np.append(self._by_idle, scores)
        found: Floats = self._by_idle.take(idle)
        return found

    def _score_of_idle(self, count: int) -> float:
        return self._bound.idle_score(count) * self._policy.weight if self._policy.weight else 0.0

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
    found: Floats = _min(free, 0) if count == 1 else _sum(np.partition(free, count - 1, 0)[:count], 0)
    return found


def at(array: Any, rows: Some) -> Any:
    """*rows* of *array*; a third of the time of indexing by an array."""
    return array[rows] if isinstance(rows, slice) else array.take(rows, 0)
