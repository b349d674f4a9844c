"""What nodes have in all, as far as pods may take it or hold it."""

from collections.abc import Callable, Mapping
from typing import Final

from core.ledger import Ledger
from core.model import NodeName, PodUid
from core.nodefit import NodeFacts

_NOTHING: Final[Mapping[str, int]] = {}


class Totals:
    """What nodes have that take pods, and of the others what is held there, so that the rest is what is free.

    Only nodes that changed are counted anew.
    """

    def __init__(self, ledger: Ledger, held: Callable[[PodUid], Mapping[str, int]]) -> None:
        """Begin with nothing; *held*: what a pod holds of its queue."""
        self._ledger: Final = ledger
        self._held: Final = held
        self._cursor = -1
        # Of each node what is counted; the facts that it follows from, None where pods on it decide.
        self._nodes: Final[dict[NodeName, tuple[NodeFacts | None, Mapping[str, int]]]] = {}
        self._amounts: Final[dict[str, int]] = {}
        self._grew = False

    def amounts(self) -> Mapping[str, int]:
        """By resource, as of now."""
        names = self._ledger.changes_since(self._cursor)
        self._cursor = self._ledger.cursor
        for name in dict.fromkeys((*self._nodes, *self._ledger.states) if names is None else names):
            self._count(name)
        return self._amounts

    def has_grown(self) -> bool:
        """Whether there is more of something than when this was last asked."""
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
