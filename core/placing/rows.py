"""Numbers for nodes: each has the same row in every array that is kept of all of them, and a place among the names.

A node keeps its row after it is gone. If too many nodes are gone, all arrays must be replaced, with new `Rows`.
"""

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
        self.log: Final = Log()

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
