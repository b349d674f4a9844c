"""What a device plugin could mistake one pod for another by, on the node at hand.

Source: protocol reference, nvidia 2.9, 5.2 (P1, P20), 7.2.
"""

from collections.abc import Hashable
from typing import Final, NamedTuple

from core.model import NodeName
from core.port.handoff import LockMark
from core.settings import DialectName


class CollisionKey(NamedTuple):
    """By what the plugin of *dialect* knows a pod: two pods with a common mark are never in flight together.

    The marks of a dialect are its own, but for `LockMark`.
    """

    dialect: DialectName | None
    marks: frozenset[Hashable]


# Of a pod without cards: no plugin serves it.
NO_COLLISION: Final = CollisionKey(None, frozenset())


class Collisions:
    """Whom the plugin of each node can tell apart."""

    def __init__(self) -> None:
        # Nodes whose plugin goes by time alone: to it, all pods of the dialect are one.
        self._blind: Final[set[tuple[NodeName, DialectName]]] = set()

    def set_blind(self, node: NodeName, dialect: DialectName, *, blind: bool) -> bool:
        """Note whether the plugin of *dialect* on *node* tells no pod from another; True if that is news."""
        key = (node, dialect)
        if blind == (key in self._blind):
            return False
        if blind:
            self._blind.add(key)
        else:
            self._blind.discard(key)
        return True

    def is_blind(self, node: NodeName, dialect: DialectName) -> bool:
        """Whether the plugin of *dialect* on *node* tells no pod from another."""
        return (node, dialect) in self._blind

    def forget(self, node: NodeName) -> None:
        """The node is gone."""
        self._blind.difference_update([key for key in self._blind if key[0] == node])

    def alike(self, node: NodeName, one: CollisionKey, other: CollisionKey) -> bool:
        """Whether the plugin on *node* could mistake a pod with keys *one* for a pod with keys *other*."""
        if one.dialect is not other.dialect:
            return any(isinstance(mark, LockMark) for mark in one.marks & other.marks)
        if not (one.marks and other.marks):
            return False
        return not one.marks.isdisjoint(other.marks) or (node, one.dialect) in self._blind
