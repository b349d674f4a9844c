"""Nodes that have just joined, and will have cards: their device plugins have not registered these yet.

Pods that wait meanwhile are told so, and not that a new node would help: an autoscaler would buy a second one for whom
it has bought the first. Which nodes will have cards is told by others of the same machine type, now or before, and by
the kinds of nodes that settings describe.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from core.ledger import Ledger
from core.model import Node, NodeName
from core.placing.kinds import INSTANCE_TYPE


class Newcomers:
    """Which nodes are awaited, and until when."""

    def __init__(self, ledger: Ledger, wall: Callable[[], float]) -> None:
        """Begin with none; *wall*: Unix seconds."""
        self._ledger: Final = ledger
        self._wall: Final = wall
        # Until when each node that is there is awaited, monotonic; 0 of those that are not.
        self._until_s: Final[dict[NodeName, float]] = {}
        # The machine types of nodes that have cards, or had some.
        self._with_cards: Final[set[str]] = set()

    def shown(self, node: Node, now_s: float) -> Node:
        """*node*, and whether its cards are awaited."""
        until_s = self._until_s.get(node.name)
        if until_s is None:
            until_s = self._until_s[node.name] = self._first_seen(node, now_s)
        return replace(node, joining=True) if now_s < until_s else node

    def _first_seen(self, node: Node, now_s: float) -> float:
        new_s = self._ledger.settings.new_node_s
        # Where the API server's clock is ahead, it is new for no longer.
        left_s = min(node.created_s + new_s - self._wall(), new_s)
        return now_s + left_s if left_s > 0 and self._will_have_cards(node) else 0.0

    def _will_have_cards(self, node: Node) -> bool:
        if any(
            kind.labels and node.labels.items() >= dict(kind.labels).items()
            for kind in self._ledger.settings.node_kinds
        ):
            return True
        return node.labels.get(INSTANCE_TYPE, "") in self._with_cards

    def settled(self, now_s: float) -> list[Node]:
        """The nodes that came to be awaited no more since this was last asked, as they now count."""
        over = [name for name, until_s in self._until_s.items() if 0.0 < until_s <= now_s]
        self._until_s.update(dict.fromkeys(over, 0.0))
        nodes = [self._ledger.node(name) for name in over]
        return [replace(node, joining=False) for node in nodes if node is not None and node.joining]

    def counted(self, name: NodeName) -> None:
        """The ledger took in what the node is now: if it has cards, others of its machine type will have some."""
        state = self._ledger.states.get(name)
        if state is not None and any(state.offers.values()):
            machine = state.facts.labels.get(INSTANCE_TYPE, "")
            if machine:
                self._with_cards.add(machine)

    def leaves(self, name: NodeName) -> None:
        """The node is about to be forgotten."""
        self._until_s.pop(name, None)
        self.counted(name)
