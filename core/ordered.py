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

# Keys without seats are dropped when there are more than so many, and a quarter of all.
_LEFT_MIN: Final = 32


class Labels:
    """Numbers for node names, in the order of the names, with gaps for names to come."""

    def __init__(self, names: Iterable[NodeName]) -> None:
        self._sorted = sorted(names)
        # Both ends are kept free: a list of nodes comes in the order of their names, each behind the one before.
        first, last = _LABELS_END // 4, _LABELS_END // 4 * 3
        step = (last - first) // (len(self._sorted) + 1)
        self._numbers = {name: first + step * at for at, name in enumerate(self._sorted, start=1)}
        self._names = {number: name for name, number in self._numbers.items()}

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


class Ordered:
    """Keys in ascending order, and under each the seats of its nodes in ascending order.

    Nodes that have the same free amounts are many, and a reader whom a key does not suit passes over all of them at
    once. *keys* and *seats* may be read as long as nothing is added or removed meanwhile; a key may have no seats left.
    """

    __slots__ = ("_left", "keys", "seats")

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self.seats: dict[Key, array[Seat]] = {}
        # How often a key lost its last seat since those without were last dropped.
        self._left = 0

    def add(self, key: Key, seat: Seat) -> "array[Seat]":
        """Let *seat*, which is not under *key*, stand there; the seats that it is now one of."""
        seats = self.seats.get(key)
        if seats is None:
            insort(self.keys, key)
            seats = self.seats[key] = array("q")
        seats.insert(bisect_left(seats, seat), seat)
        return seats

    def remove(self, seats: "array[Seat]", seat: Seat) -> None:
        """Take *seat* out of *seats*, which `add` told.

        A key that loses its last seat stays, because it often gets another one soon; dropping some together is cheaper.
        """
        del seats[bisect_left(seats, seat)]
        if not seats:
            self._left += 1
            if self._left > _LEFT_MIN + len(self.keys) // 4:
                self._left = 0
                self.seats = {key: some for key, some in self.seats.items() if some}
                self.keys = [key for key in self.keys if key in self.seats]
