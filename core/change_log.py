"""A log of changed names in order, and a set of nodes with one, for readers with positions of their own."""

from collections.abc import Iterable, Iterator
from typing import Final

from core.model import NodeName

_LOG_MAX: Final = 1 << 10


class ChangeLog:
    """The latest changes. Beyond *most*, the older half is dropped; readers behind it must read everything again."""

    __slots__ = ("_cut", "_most", "_names")

    def __init__(self, most: int) -> None:
        self._most: Final = most
        self._names: list[NodeName] = []
        self._cut = 0

    def __len__(self) -> int:
        """Return the number of logged changes."""
        return len(self._names)

    @property
    def cursor(self) -> int:
        """The position after the last change."""
        return self._cut + len(self._names)

    def since(self, cursor: int) -> list[NodeName] | None:
        """Return the changes since *cursor*, oldest first, with repetitions; None if some were dropped."""
        return None if cursor < self._cut else self._names[cursor - self._cut :]

    def add(self, name: NodeName) -> None:
        """Log a change of *name*."""
        self._names.append(name)
        if len(self._names) > self._most:
            self._drop(len(self._names) // 2)

    def extend(self, names: Iterable[NodeName]) -> None:
        """Log changes of all *names*."""
        self._names += names
        if len(self._names) > self._most:
            self._drop(len(self._names) - self._most // 2)

    def forget(self) -> None:
        """Make every reader read everything again, because anything may have changed."""
        self._cut = self.cursor + 1
        self._names = []

    def _drop(self, count: int) -> None:
        del self._names[:count]
        self._cut += count


class NodeSet:
    """A set of nodes with many readers; log: the added and removed ones, from the first on."""

    __slots__ = ("_names", "log")

    def __init__(self, names: Iterable[NodeName] = ()) -> None:
        self._names: Final[set[NodeName]] = set()
        self.log: Final = ChangeLog(_LOG_MAX)
        for name in names:
            self.add(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[NodeName]:
        return iter(self._names)

    def add(self, name: NodeName) -> None:
        """Add *name*."""
        if name not in self._names:
            self._names.add(name)
            self.log.add(name)

    def discard(self, name: NodeName) -> None:
        """Remove *name*."""
        if name in self._names:
            self._names.remove(name)
            self.log.add(name)
