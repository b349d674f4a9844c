"""A log of changed names in order, for readers with positions of their own."""

from collections.abc import Iterable
from typing import Final

from core.model import NodeName


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
