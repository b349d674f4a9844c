"""Nodes known to have too long a line, so that they are not looked at again until something ends there."""

from typing import Final

from controller.handing_over.collision import CollisionKey
from core.model import NodeName
from core.node_set import NodeSet

_NOBODY: Final = NodeSet()


class Crowds:
    """Which nodes would let a pod wait for longer than so many seconds, by what plugins could mistake it for."""

    def __init__(self) -> None:
        # CollisionKey -> seconds -> the nodes known to let wait for longer. A node of some seconds is in all sets of
        # fewer, too.
        self._nodes: Final[dict[CollisionKey, dict[float, NodeSet]]] = {}
        self._keys: Final[dict[NodeName, set[CollisionKey]]] = {}

    def add(self, node: NodeName, keys: CollisionKey, beyond_s: float) -> None:
        """A pod with *keys* would wait on *node* for longer than *beyond_s*."""
        self.beyond(keys, beyond_s)
        for limit_s, nodes in self._nodes.setdefault(keys, {beyond_s: NodeSet()}).items():
            if limit_s <= beyond_s:
                nodes.add(node)
        self._keys.setdefault(node, set()).add(keys)

    def beyond(self, keys: CollisionKey, limit_s: float) -> NodeSet:
        """The nodes known to let a pod with *keys* wait for longer than *limit_s*."""
        by_limit = self._nodes.get(keys)
        if by_limit is None:
            return _NOBODY
        found = by_limit.get(limit_s)
        if found is None:
            longer = (node for beyond_s, nodes in by_limit.items() if beyond_s > limit_s for node in nodes)
            found = by_limit[limit_s] = NodeSet(longer)
        return found

    def forget(self, node: NodeName) -> None:
        """Something ended on *node*: it may be tried again."""
        for keys in self._keys.pop(node, ()):
            by_limit = self._nodes[keys]
            for nodes in by_limit.values():
                nodes.discard(node)
            if not any(by_limit.values()):
                del self._nodes[keys]
