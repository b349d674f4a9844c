"""What the search reads of nodes, in columns: per dialect a table of what is free, per set of constraints a mask.

Each has a row per node (`core.placing.rows`), and is brought up to date node by node: a whole cluster takes longer than
a loop may stand still, so whoever has a loop to keep running has it done in slices.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Final, TypeVar

import numpy as np

from core import nodefit
from core.change_log import ChangeLog
from core.model import NodeConstraints, NodeName
from core.node_state import NodeState
from core.placing.rows import PLACE_BITS, Flags, Ints, Rows, grown
from core.port.cards import NodeRoom
from core.port.dialect import AnyJudging
from core.settings import DialectName

# What is free of a card that is not there.
NO_CARD: Final = -1
# Where `Columns.cells` has what.
KIND: Final = 0
IDLE: Final = 1
FREE: Final = 2

_Value = TypeVar("_Value", bound=Hashable)


class Table:
    """What is kept of nodes; behind: those that changed since they were last read."""

    def __init__(self, rows: Rows, states: Mapping[NodeName, NodeState]) -> None:
        self.rows: Final = rows
        self.states: Final = states
        self.behind: Final[dict[NodeName, None]] = dict.fromkeys(states)

    def catch_up(self, most: int | None = None) -> None:
        """Read *most* of the nodes that changed; None: all."""
        for _ in range(len(self.behind) if most is None else min(most, len(self.behind))):
            name = self.behind.popitem()[0]
            row = self.rows.of.get(name)
            if row is not None:
                self.read(row, self.states.get(name))
        if not self.behind:
            self.behind.clear()  # what is taken out one by one leaves its room behind

    def read(self, row: int, state: NodeState | None) -> None:
        """Take in the node of *row* as it is; None: it is gone."""
        raise NotImplementedError  # each kind of table has its own; an ABC has no registry where it is compiled (0010)


class Columns(Table):
    """What is free on all nodes in one dialect, a row per node: see `core.port.cards.NodeRoom`.

    Attributes:
        cells: by row the number of the node's kind (the narrower if it has two), that of how many of its cards are
            idle, and what is free of each of *width* rooms, `NO_CARD` where there is none; spare: what each can spare.
        width: how many rooms a row has.
        kind: by row and room the number of its kind, where there are nodes with rooms of several, however narrow;
            mixed: the rows of which it is the wider kind that differs.
        seats: what settles equal scores, the smallest first: the tie, then the place among the names.
        kinds, idle: by number.
    """

    def __init__(
        self,
        rows: Rows,
        states: Mapping[NodeName, NodeState],
        dialect: DialectName | None,
        judging: AnyJudging,
        tie_ppm: Callable[[int], int],
    ) -> None:
        """Begin with *states* to be read; *tie_ppm*: settles equal scores by the used share."""
        super().__init__(rows, states)
        self._dialect: Final = dialect
        self._judging: Final = judging
        self._tie_ppm: Final = tie_ppm
        self.width = 1
        self.cells: Ints = np.full((rows.capacity, FREE + 1), NO_CARD, np.int64)
        self.spare: Ints = np.full((rows.capacity, 1), NO_CARD, np.int64)
        self.seats: Ints = np.zeros(rows.capacity, np.int64)
        self.kind: Ints | None = None
        self.mixed: Flags = np.zeros(rows.capacity, np.bool_)
        self.kinds: Final[list[Hashable]] = []
        self.idle: Final[list[int]] = []
        self._numbers: Final[dict[Hashable, int]] = {}
        self._idle_numbers: Final[dict[int, int]] = {}

    @property
    def size_bytes(self) -> int:
        """What it takes of memory."""
        kind = 0 if self.kind is None else self.kind.nbytes
        return self.cells.nbytes + self.spare.nbytes + self.seats.nbytes + self.mixed.nbytes + kind

    def tie(self, row: int) -> int:
        """What settles equal scores of the node of *row*, before its name."""
        return int(self.seats[row]) >> PLACE_BITS

    def seat_anew(self) -> None:
        """Take in that names have other places."""
        places = self.rows.places[: len(self.seats)]
        seats = self.seats[: len(places)]
        seats[:] = (seats >> PLACE_BITS << PLACE_BITS) + places

    def there(self, refuses: Flags) -> int:
        """How many nodes have a room, without those that *refuses* has."""
        size = min(len(self.seats), len(refuses))
        free = self.cells[:size, FREE:]
        return int(((free != NO_CARD).any(1) & ~refuses[:size]).sum())

    def read(self, row: int, state: NodeState | None) -> None:
        """Take in the node of *row* as it is; None: it is gone."""
        if row >= len(self.seats):
            self._grow(self.width)
        cards = () if state is None or self._dialect in state.closed else state.cards(self._dialect)
        if not cards:
            self.cells[row, FREE:] = NO_CARD
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
        self.cells[row] = [number, _number(room.idle, self._idle_numbers, self.idle), *room.free, *none]
        self.spare[row] = [*room.spare, *none]
        self.seats[row] = (self._tie_ppm(room.used_ppm) << PLACE_BITS) + int(self.rows.places[row])
        if self.kind is not None or kinds.count(number) < len(kinds):
            self._tell_apart(row, kinds + [number] * len(none), room)

    def _tell_apart(self, row: int, kinds: list[int], room: NodeRoom) -> None:
        """Note the kind of each room of a node, of which there are several, or were on some node."""
        if self.kind is None:
            self.kind = np.repeat(self.cells[:, KIND : KIND + 1], self.width, 1)
        self.kind[row] = kinds
        self.mixed[row] = any(kind != room.kinds[0] for kind in room.kinds)

    def _grow(self, width: int) -> None:
        """Have a row for each node, and *width* rooms."""
        size, before = self.rows.capacity, self.width
        more = (0, size - len(self.seats)), (0, width - before)
        self.cells, self.spare = (np.pad(one, more, constant_values=NO_CARD) for one in (self.cells, self.spare))
        self.width = width
        self.seats, self.mixed = grown(self.seats, size, 0), grown(self.mixed, size, 0)
        if self.kind is not None:
            self.kind = np.pad(self.kind, more, mode="edge")


class Mask(Table):
    """Which nodes one set of static constraints refuses, by row; users: how many shapes have them."""

    def __init__(self, rows: Rows, states: Mapping[NodeName, NodeState], constraints: NodeConstraints) -> None:
        """Begin with *states* to be read."""
        super().__init__(rows, states)
        self._constraints: Final = constraints
        self.refuses: Flags = np.ones(rows.capacity, np.bool_)
        self.users = 0

    def read(self, row: int, state: NodeState | None) -> None:
        """Take in the node of *row* as it is; None: it is gone."""
        if row >= len(self.refuses):
            self.refuses = grown(self.refuses, self.rows.capacity, 1)
        self.refuses[row] = state is None or nodefit.admits(self._constraints, state.facts) is not None


class Marks:
    """What somebody says of each node, by row, as far as *log* tells of whom that changed; 0 at first."""

    def __init__(self, rows: Rows, log: ChangeLog, say: Callable[[NodeName], int]) -> None:
        """Begin with what is said of all nodes now."""
        self._rows: Final = rows
        self._log: Final = log
        self._say: Final = say
        self._numbers: Ints = np.zeros(rows.capacity, np.int64)
        self._cursor = -1

    def follow(self) -> Ints:
        """What is said of each row now."""
        self._numbers = grown(self._numbers, self._rows.capacity, 0)
        changed = self._log.since(self._cursor)
        self._cursor = self._log.cursor
        for name in self._rows.names if changed is None else changed:
            row = self._rows.of.get(name)
            if row is not None:
                self._numbers[row] = self._say(name)
        return self._numbers


def _number(found: _Value, numbers: dict[_Value, int], values: list[_Value]) -> int:
    """The number of *found* among *values*, which are numbered as they come."""
    number = numbers.get(found)
    if number is None:
        number = numbers[found] = len(values)
        values.append(found)
    return number
