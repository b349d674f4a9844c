"""Admits waiting PodGroups after changes that could help one; a chore of the cycle."""

from collections.abc import Callable
from typing import Final

from controller.grouping.admitting import add
from controller.grouping.groups import Groups
from core.ledger import Ledger

# Interval between checks while pods come and go; summing 5,000 nodes takes some milliseconds.
_PAUSE_S: Final = 0.5
# Interval between checks after a change of a group or queue.
_SOON_S: Final = 0.05
_NEVER: Final = float("inf")


class Enqueue:
    """Checks waiting groups after changes of groups, queues or the cluster."""

    def __init__(self, groups: Groups, ledger: Ledger, clock: Callable[[], float]) -> None:
        self._groups: Final = groups
        self._ledger: Final = ledger
        self._clock: Final = clock
        self._looked_s = -_NEVER
        self._cursor = -1
        self._version = -1
        self._sums: tuple[dict[str, int], dict[str, int]] = ({}, {})
        self._sold: dict[str, int] | None = None

    def next_s(self) -> float:
        """Return the earliest time of the next check, monotonic."""
        groups = self._groups
        if not groups.wanting or groups.queues_served is None:
            return _NEVER
        if groups.version != self._version:
            return self._looked_s + _SOON_S
        return self._looked_s + _PAUSE_S if self._ledger.cursor != self._cursor else _NEVER

    def look(self, now_s: float) -> None:
        """Admit the groups that fit."""
        if now_s >= self._looked_s + _PAUSE_S or self._cursor < 0:
            self._cursor = self._ledger.cursor
            self._sums, self._sold = self._add_up(), None
        self._looked_s, self._version = now_s, self._groups.version
        self._groups.admit(*self._sums, self._cards)

    def _add_up(self) -> tuple[dict[str, int], dict[str, int]]:
        total: dict[str, int] = {}
        used: dict[str, int] = {}
        for state in self._ledger.states.values():
            if state.facts.ready and not state.facts.unschedulable:
                add(total, state.facts.allocatable)
                add(used, state.used)
        return total, used

    def _cards(self) -> dict[str, int]:
        """Return the amounts of metered resources on cards of schedulable nodes; computed on demand."""
        if self._sold is None:
            self._sold = {}
            for state in self._ledger.states.values():
                if state.facts.ready and not state.facts.unschedulable:
                    for name, dialect in self._ledger.catalog.dialects.items():
                        add(self._sold, dialect.sold(state.offers.get(name, ()), self._ledger.tables))
        return self._sold
