"""Nodes in order under sorted keys: who comes next from some key on, without a look at what comes before it."""

from array import array
from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Final

from core.model import NodeName

# What an entry of a node has free: sum, least of one card, spare. Where no amounts count, there is one key.
Key = tuple[int, int, int]
NO_KEY: Final[Key] = (0, 0, 0)

# Where a node stands among those of one key: its tie, then its name, as one number of 64 bits. Arrays of these lie in
# one piece of memory; to find a place among thousands of tuples takes five times as long, most of it cache misses.
Seat = int
_LABEL_BITS: Final = 42
_LABELS_END: Final = 1 << _LABEL_BITS
# Between a name and one added behind, or before, all others: room for half a million of them, with two between each.
_LABEL_STEP: Final = 1 << 21


class Labels:
    """Numbers for node names, in the order of the names, with gaps for names to come."""

    def __init__(self, names: Iterable[NodeName]) -> None:
        self._sorted = sorted(names)
        # Both ends are kept free: a list of nodes comes in the order of their names, each behind the one before.
        first, last = _LABELS_END // 4, _LABELS_END // 4 * 3
        step = (last - first) // (len(self._sorted) + 1)
        self._numbers = {name: first + step * at for at, name in enumerate(self._sorted, start=1)}
        self._names = {number: name for name, number in self._numbers.items()}

    def __len__(self) -> int:
        """How many names there are, those included that are not in use any more."""
        return len(self._sorted)

    def add(self, name: NodeName) -> bool:
        """Number *name*; False if there is no gap left where it belongs: then all names want new numbers."""
        if name in self._numbers:
            return True
        at = bisect_left(self._sorted, name)
        below = self._numbers[self._sorted[at - 1]] if at else 0
        above = self._numbers[self._sorted[at]] if at < len(self._sorted) else _LABELS_END
        if at == len(self._sorted):
            number = below + min(_LABEL_STEP, (above - below) // 2)
        elif at == 0:
            number = above - min(_LABEL_STEP, above // 2)
        else:
            number = (below + above) // 2
        if number in (below, above):
            return False
        self._sorted.insert(at, name)
        self._numbers[name], self._names[number] = number, name
        return True

    def seat(self, tie: int, name: NodeName) -> Seat:
        """Where *name* stands with *tie*, which is a million at most, of either sign."""
        return (tie << _LABEL_BITS) + self._numbers[name]

    def who(self, seat: Seat) -> tuple[int, NodeName]:
        """The tie and the name that *seat* was made of."""
        return seat >> _LABEL_BITS, self._names[seat & (_LABELS_END - 1)]


class Row:
    """The seats of the nodes that have one key in one order, ascending; gone with its last seat."""

    __slots__ = ("_order", "free", "seats", "spare", "summed")

    def __init__(self, order: "Ordered", key: Key) -> None:
        self._order: Final = order
        self.summed, self.free, self.spare = key
        self.seats: Final = array("q")

    def remove(self, seat: Seat) -> None:
        """Take out *seat*, which `Ordered.add` put here."""
        seats = self.seats
        del seats[bisect_left(seats, seat)]
        if not seats:
            self._order.drop(self)


class Ordered:
    """Rows in ascending order of their sums; a sum often has several.

    Nodes that have the same free amounts are many, and a reader whom a row does not suit passes over all of them at
    once. What is read here may be read as long as nothing is added or removed meanwhile.

    Attributes:
        sums: each once, ascending.
        by_sum: the rows of each sum, in no order.
    """

    __slots__ = ("_rows", "by_sum", "sums")

    def __init__(self) -> None:
        self.sums: Final[list[int]] = []
        self.by_sum: Final[dict[int, list[Row]]] = {}
        self._rows: Final[dict[Key, Row]] = {}

    def add(self, key: Key, seat: Seat) -> Row:
        """Let *seat*, which is not under *key*, stand there; the row in which it stands now."""
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = Row(self, key)
            rows = self.by_sum.get(row.summed)
            if rows is None:
                insort(self.sums, row.summed)
                self.by_sum[row.summed] = [row]
            else:
                rows.append(row)
        insort(row.seats, seat)
        return row

    def drop(self, row: Row) -> None:
        """Forget *row*, which is empty."""
        summed = row.summed
        del self._rows[summed, row.free, row.spare]
        rows = self.by_sum[summed]
        rows.remove(row)
        if not rows:
            del self.by_sum[summed]
            del self.sums[bisect_left(self.sums, summed)]
