"""What the search reads of nodes, in columns: what is free for each dialect, and marks of nodes.

Each column has a row for each node (`core.placing.rows`), and is brought up to date node by node. A whole cluster takes
longer than a loop may stand still, so callers with a loop do it in slices.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from core.change_log import ChangeLog
from core.model import NodeName
from core.node_state import NodeState
from core.placing.rows import PLACE_BITS, Flags, Floats, Ints, Rows, grown
from core.port.cards import NodeRoom
from core.port.dialect import AnyJudging
from core.settings import DialectName

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

    @property
    def size_bytes(self) -> int:
        """What it takes of memory."""
        by_card = 0 if self.kind_of_card is None else self.kind_of_card.nbytes
        return sum([one.nbytes for one in (self.kind, self.idle, self.cells, self.seats, self.mixed)]) + by_card

    def tie(self, row: int) -> int:
        """What settles equal scores of the node of *row*, before its name."""
        return int(self.seats[row]) >> PLACE_BITS

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
        self.kind[row] = number
        self.idle[row] = _number(room.idle, self._idle_numbers, self.idles)
        self.cells[row] = [*room.free, *none, *room.spare, *none]
        self.seats[row] = (self._tie_ppm(room.used_ppm) << PLACE_BITS) + int(self.rows.places[row])
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
