"""Numbers for nodes: each has the same row in every array that is kept of all of them, and a place among the names.

A row stays a node's own also after it is gone. When too many are gone, all arrays are to be made anew with new `Rows`.
"""

from bisect import bisect_left
from collections.abc import Collection
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from core.model import NodeName

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
# Rows of nodes, as numpy takes them: some numbers, or all from the first on.
Numbers = npt.NDArray[np.intp]
Some = Numbers | slice

# Names have numbers below this, so that one and a tie make a whole number of 64 bits.
PLACE_BITS: Final = 42
_PLACES: Final = 1 << PLACE_BITS
# Between a name and one added behind, or before, all others: room for half a million of them, with two between each.
_STEP: Final = 1 << 21
# Rows of nodes that are gone are kept until there are so many more of them than nodes.
_SPARE: Final = 256


class Rows:
    """The rows of all nodes, and a log of those that changed.

    Attributes:
        of: the row of each node; names: the reverse.
        places: in the order of the names, by row; another list when all have new ones.
        capacity: how long arrays by row are to be, at least.
        log: the rows that changed.
    """

    def __init__(self, names: Collection[NodeName]) -> None:
        """Begin with *names*, as of now."""
        self._sorted = sorted(names)
        self.names: Final = list(self._sorted)
        self.of: Final = {name: row for row, name in enumerate(self._sorted)}
        self.capacity = len(self._sorted) + len(self._sorted) // 8 + 8
        self.places = [0] * len(self._sorted)
        self._spread()
        self.log: Final = Log()

    def __len__(self) -> int:
        return len(self.names)

    def is_crowded(self, nodes: int) -> bool:
        """Whether most rows, there being *nodes* nodes, are of nodes that are gone."""
        return len(self.names) > 2 * nodes + _SPARE

    def add(self, name: NodeName) -> int:
        """A row for *name*, which has none; where no number is left there, all names get others."""
        at = bisect_left(self._sorted, name)
        while (place := self._place(at)) is None:
            self._spread()
        row = self.of[name] = len(self.names)
        self._sorted.insert(at, name)
        self.names.append(name)
        self.places.append(place)
        if row >= self.capacity:
            self.capacity += self.capacity // 8 + 8
        return row

    def _place(self, at: int) -> int | None:
        """A number for who is to stand at *at* among the names; None if there is none left."""
        below = self.places[self.of[self._sorted[at - 1]]] if at else 0
        above = self.places[self.of[self._sorted[at]]] if at < len(self._sorted) else _PLACES
        if at == len(self._sorted):
            place = below + min(_STEP, (above - below) // 2)
        elif at == 0:
            place = above - min(_STEP, above // 2)
        else:
            place = (below + above) // 2
        return None if place in (below, above) else place

    def _spread(self) -> None:
        """Give all names numbers as far apart as can be, in a new list."""
        # Both ends are kept free: a list of nodes comes in the order of their names, each behind the one before.
        first, last = _PLACES // 4, _PLACES // 4 * 3
        step = (last - first) // (len(self._sorted) + 1)
        places = [0] * len(self.places)
        for at, name in enumerate(self._sorted, start=1):
            places[self.of[name]] = first + step * at
        self.places = places


class Log:
    """Which rows changed, in the order in which they did; the oldest are forgotten."""

    def __init__(self, most: int = 1 << 14) -> None:
        """Remember *most* changes, at least."""
        self._most: Final = most
        self._rows: Final = np.zeros(2 * most, np.intp)
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
        self._rows[self._end] = row
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
