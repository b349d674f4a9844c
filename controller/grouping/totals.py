"""The total capacity of nodes, as far as pods can use it."""

from collections.abc import Callable, Mapping
from typing import Final

from core.ledger import Ledger
from core.model import NodeName, PodUid
from core.nodefit import NodeFacts

_NOTHING: Final[Mapping[str, int]] = {}


class Totals:
    """The capacity of schedulable nodes, and the holdings on other nodes, so that total minus holdings is what is free.

    Only changed nodes are counted again.
    """

    def __init__(self, ledger: Ledger, held: Callable[[PodUid], Mapping[str, int]]) -> None:
        """Begin with nothing; *held*: returns what a pod holds of its queue."""
        self._ledger: Final = ledger
        self._held: Final = held
        self._cursor = -1
        # The amounts of each node, and the facts that determine them; None if the node's pods determine them.
        self._nodes: Final[dict[NodeName, tuple[NodeFacts | None, Mapping[str, int]]]] = {}
        self._amounts: Final[dict[str, int]] = {}
        self._grew = False

    def amounts(self) -> Mapping[str, int]:
        """Return the current amounts by resource."""
        names = self._ledger.changes_since(self._cursor)
        self._cursor = self._ledger.cursor
        for name in dict.fromkeys((*self._nodes, *self._ledger.states) if names is None else names):
            self._count(name)
        return self._amounts

    def has_grown(self) -> bool:
        """Return whether any amount has grown since the last call."""
        self.amounts()
        grew, self._grew = self._grew, False
        return grew

    def _count(self, name: NodeName) -> None:
        state = self._ledger.states.get(name)
        facts, before = self._nodes.pop(name, (None, _NOTHING))
        now: Mapping[str, int] = _NOTHING
        if state is not None:
            takes_pods = state.facts.ready and not state.facts.unschedulable
            if not (takes_pods and facts is state.facts):
                now = state.facts.allocatable if takes_pods else self._held_on(name)
            else:
                now = before
            self._nodes[name] = state.facts if takes_pods else None, now
        if now is before:
            return
        for amounts, times in ((before, -1), (now, 1)):
            for resource, amount in amounts.items():
                self._amounts[resource] = self._amounts.get(resource, 0) + times * amount
        self._grew = self._grew or any(amount > before.get(resource, 0) for resource, amount in now.items())

    def _held_on(self, name: NodeName) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for uid in self._ledger.holders(name):
            for resource, amount in self._held(uid).items():
                found[resource] = found.get(resource, 0) + amount
        return found
