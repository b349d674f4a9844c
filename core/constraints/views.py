"""Nodes that refuse a pod because of pods elsewhere, kept up by what changes."""

from typing import Final

from core.change_log import ChangeLog
from core.model import NodeName

# The number of changed nodes that are logged individually.
_LOG_MAX: Final = 1 << 12


class Follower:
    """What is kept up as pods come and go; dirty: the nodes on which something changed since the last refresh."""

    __slots__ = ("dirty",)

    def __init__(self) -> None:
        self.dirty: dict[NodeName, None] = {}


class View(Follower):
    """The nodes that refuse pods with one signature, each with the number of its reasons.

    opened, shut: nodes that accept such pods again, or no longer, since the last `forget_changes`. log: the same, for
    readers that each remember how far they have read.
    """

    __slots__ = ("blocked", "log", "opened", "shut")

    def __init__(self) -> None:
        super().__init__()
        self.blocked: Final[dict[NodeName, int]] = {}
        self.opened: Final[set[NodeName]] = set()
        self.shut: Final[set[NodeName]] = set()
        self.log: Final = ChangeLog(_LOG_MAX)

    def flip(self, name: NodeName, by: set[NodeName], *, refused: bool) -> None:
        """Record that the reason that refuses the nodes *by* now refuses *name*, or no longer does."""
        count = self.blocked.get(name, 0)
        if refused:
            by.add(name)
            self.blocked[name] = count + 1
            if not count:
                self._note(name, self.opened, self.shut)
            return
        by.discard(name)
        if count > 1:
            self.blocked[name] = count - 1
        else:
            del self.blocked[name]
            self._note(name, self.shut, self.opened)

    def _note(self, name: NodeName, before: set[NodeName], now: set[NodeName]) -> None:
        self.log.add(name)
        if name in before:
            before.discard(name)
        else:
            now.add(name)

    def forget_changes(self) -> None:
        """Empty `opened` and `shut`, which were read."""
        self.opened.clear()
        self.shut.clear()
