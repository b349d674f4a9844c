"""Which names changed, in the order in which they did, for readers who each know how far they have read."""

from collections.abc import Iterable
from typing import Final

from core.model import NodeName


class ChangeLog:
    """The last changes: of more than *most* the older half is forgotten, and who is behind it reads everything anew."""

    __slots__ = ("_cut", "_most", "_names")

    def __init__(self, most: int) -> None:
        self._most: Final = most
        self._names: list[NodeName] = []
        self._cut = 0

    def __len__(self) -> int:
        """How many changes are remembered."""
        return len(self._names)

    @property
    def cursor(self) -> int:
        """The position behind the last change."""
        return self._cut + len(self._names)

    def since(self, cursor: int) -> list[NodeName] | None:
        """What changed since *cursor*, oldest first, repeats included; None if that is too long ago."""
        return None if cursor < self._cut else self._names[cursor - self._cut :]

    def add(self, name: NodeName) -> None:
        """*name* changed."""
        self._names.append(name)
        if len(self._names) > self._most:
            self._drop(len(self._names) // 2)

    def extend(self, names: Iterable[NodeName]) -> None:
        """All *names* changed."""
        self._names += names
        if len(self._names) > self._most:
            self._drop(len(self._names) - self._most // 2)

    def forget(self) -> None:
        """Everything may have changed: every reader is to read anew."""
        self._cut = self.cursor + 1
        self._names = []

    def _drop(self, count: int) -> None:
        del self._names[:count]
        self._cut += count
