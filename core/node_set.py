"""A set of nodes with many readers; each reads only the changes since its last read."""

from collections.abc import Iterable, Iterator
from typing import Final

from core.change_log import ChangeLog
from core.model import NodeName

# A reader further behind reads all nodes again.
_LOG_MAX: Final = 1 << 10


class NodeSet:
    """Nodes; log: the added and removed ones, from the first on."""

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
