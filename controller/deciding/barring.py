"""Nodes that some pods are not placed on: kept free for who waits too long, or being cleared for who comes first."""

from typing import Final

from controller.deciding.asks import Ask
from controller.deciding.keeping_free import End, KeepingFree, Kept
from controller.deciding.lifecycle import Entry
from controller.deciding.nominations import Nominations
from controller.deciding.room import Room
from controller.deciding.search import Search
from controller.deciding.state import State
from controller.deciding.units import Units
from core.model import NodeName
from core.placing import keeping_free

_NOWHERE: Final = frozenset[NodeName]()


class Barring:
    """Who may not go where.

    Attributes:
        keeping_free: for whom nodes are kept free.
        nominations: for whom others were asked to leave.
    """

    def __init__(self, state: State, search: Search, units: Units) -> None:
        """Bar nothing."""
        self.nominations: Final = Nominations()
        self.keeping_free: Final = KeepingFree(
            state.life, state.settings, find=self._nodes_for, began=self._began, ended=self._ended
        )
        self._state: Final = state
        self._search: Final = search
        self._units: Final = units

    def rooms(self) -> list[Room]:
        """All that is kept for somebody."""
        kept = self.keeping_free.kept
        return [*self.nominations, kept] if kept is not None else [*self.nominations]

    def to(self, entry: Entry | None) -> frozenset[NodeName]:
        """The nodes that *entry* is not placed on now; of None all that are kept for others."""
        return _NOWHERE.union(*(one.nodes for one in self.rooms() if one.is_barred_to(entry)))

    def to_first(self, ask: Ask) -> frozenset[NodeName]:
        """The nodes that the first of those refused for *ask* is not placed on now."""
        return self.to(self._state.life.first_refused(ask)) if self.rooms() else _NOWHERE

    def to_new(self, priority: int) -> frozenset[NodeName]:
        """The nodes that a pod of *priority* would not be placed on were it created now."""
        return _NOWHERE.union(*(one.nodes for one in self.rooms() if one.is_barred_to_new(priority)))

    # ------------------------------------------------------------------ keeping free

    def reserved(self, entry: Entry) -> None:
        """*entry* has its place: who waits and comes before it was overtaken."""
        self.keeping_free.placed(entry, self._state.clock())

    def _nodes_for(self, ask: Ask, entry: Entry) -> frozenset[NodeName]:
        """The nodes that one who is refused would need; none if no nodes would do, or its queue has no room."""
        unit, refusal = self._units.unit(entry), self._units.refusal(ask)
        if not unit.members or (refusal is not None and refusal.over):
            return _NOWHERE
        answer = refusal.answer if refusal is not None else None
        # Where others are leaving for somebody, they would leave in vain.
        cleared = _NOWHERE.union(*(one.nodes for one in self.nominations if not one.is_for(entry)))
        ledger = self._state.ledger.fork()
        return keeping_free.nodes_for(ledger, self._search.policy, unit, answer, passed_over=cleared)

    def _began(self, kept: Kept) -> None:
        self._state.wakes.unreported[kept.ask] = None

    def _ended(self, kept: Kept, how: End) -> None:
        self._state.metrics.kept_free.labels(how.value).inc()
        self._state.wakes.hear(kept.nodes)
        if self._state.life.refuses(kept.ask):
            self._state.wakes.unreported[kept.ask] = None
