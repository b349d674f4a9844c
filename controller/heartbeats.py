"""Heartbeats that some device plugin versions write to their nodes, and whether they are still being written.

The vGPU plugin up to v1.12.0 rewrites a handshake every 30 s; main writes none and leaves an old one in place. So its
presence shows nothing, but its age does: the local time since its last observed change, never the writer's clock.
Right after a start no age is known, so every heartbeat counts as current.
Source: protocol reference, nvidia 7.2, 7.3; facts 3.3, case 41.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from core.catalog import Catalog
from core.model import Node, NodeName
from core.settings import DialectName

# Four heartbeat intervals of the plugin, so that one or two may be lost.
STALE_S: Final = 120.0


class _Beat(NamedTuple):
    value: str
    since_s: float


class Heartbeats:
    """The last heartbeat of every node.

    Attributes:
        blind: called for every node shown: name, dialect, and whether its plugin cannot distinguish pods.
    """

    def __init__(self, catalog: Catalog, blind: Callable[[NodeName, DialectName, bool], None]) -> None:
        self._keys: Final = {one.name: one.heartbeat.key for one in catalog.specs if one.heartbeat is not None}
        self._blind: Final = blind
        self._last: Final[dict[NodeName, dict[DialectName, _Beat]]] = {}

    def shown(self, node: Node, now_s: float) -> Node:
        """Return *node* without stale heartbeats."""
        for name, key in self._keys.items():
            value = node.annotations.get(key, "")
            known = self._last.get(node.name, {})
            if not value:
                known.pop(name, None)
            elif name not in known or known[name].value != value:
                known = self._last.setdefault(node.name, {})
                known[name] = _Beat(value, now_s)
            elif now_s >= known[name].since_s + STALE_S:
                node = replace(node, annotations={one: text for one, text in node.annotations.items() if one != key})
            self._blind(node.name, name, key in node.annotations)
        return node

    def forget(self, name: NodeName) -> None:
        """Forget a removed node."""
        self._last.pop(name, None)

    def stale(self, nodes: Callable[[NodeName], Node | None], now_s: float) -> list[Node]:
        """Return the nodes whose heartbeat became stale since they were last shown, in their current form."""
        found: list[Node] = []
        for name, beats in self._last.items():
            if any(now_s >= beat.since_s + STALE_S for beat in beats.values()):
                node = nodes(name)
                if node is not None and any(node.annotations.get(self._keys[one]) for one in beats):
                    found.append(self.shown(node, now_s))
        return found
