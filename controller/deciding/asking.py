"""Asks for those that are refused whether they fit now, once something opened that could let them in."""

from collections.abc import Iterator, Set
from math import inf
from typing import Final

from controller.deciding.asks import Capped, shapes_of
from controller.deciding.barring import Barring
from controller.deciding.search import Search
from controller.deciding.state import State
from controller.deciding.units import Units
from core.model import NodeName
from core.placing.gang import Together
from core.placing.shape import Shape
from core.topology.peers import Peers

# What pods take opens nothing, so that nobody is asked for it; that their room is gone is told so often.
_TELL_S: Final = 30.0
_COUNTED_AT_ONCE: Final = 64


class Asking:
    """Wakes those that were refused, one by one."""

    def __init__(self, state: State, search: Search, units: Units, barring: Barring) -> None:
        """Begin with nobody."""
        self._state: Final = state
        self._search: Final = search
        self._units: Final = units
        self._wakes: Final = state.wakes
        self._barring: Final = barring
        self._retried_s = state.clock()
        self._told_s = state.clock()
        self._told_cursor = state.ledger.cursor
        self._to_count: list[Capped] = []

    def next(self, now_s: float) -> bool:
        """Ask for one of those that are refused whether it fits now; False if there is nothing to ask."""
        life, wakes = self._state.life, self._wakes
        self.hear()
        life.wake_next()
        for freed in self._units.freed():
            life.wake(freed)
        if wakes.is_due(now_s):
            wakes.begin((one for one in life.refused_asks() if not isinstance(one, Capped)), now_s)
        ask = wakes.next(self._state.clock())
        if ask is None:
            return False
        if isinstance(ask, Together):
            self._ask_together(ask)
        elif isinstance(ask, Shape):
            if wakes.opened_for(ask) is not None or self._search.candidates.is_prepared(ask):
                self._ask(ask)
            else:
                self._search.begin(self._prepare_to_ask(ask))
        return True

    def retry(self, now_s: float) -> None:
        """After a while, ask for all of them, whatever was missed; and have them told what has been taken meanwhile."""
        cursor = self._state.ledger.cursor
        if now_s >= self._told_s + _TELL_S and cursor != self._told_cursor:
            self._told_s, self._told_cursor = now_s, cursor
            self._wakes.tell_anew()
            self._to_count = [ask for ask in self._state.life.refused_asks() if isinstance(ask, Capped)]
        self._count_some()
        if now_s >= self._retried_s + self._state.settings.refused_retry_s:
            self._retried_s = now_s
            self._wakes.hear_of_all()
            self._state.books.free_all()

    def _count_some(self) -> None:
        """Have some of those whose queue or namespace has too little left told how much that is now."""
        state = self._state
        for _ in range(min(_COUNTED_AT_ONCE, len(self._to_count))):
            ask = self._to_count.pop()
            wait = self._units.counted_anew(ask)
            if wait is None:
                continue
            for entry in state.life.refused_pods(ask):
                state.life.hold_up(entry, wait)
                state.unreported[entry.pod.uid] = None

    def retry_due_s(self) -> float:
        """When to do that, monotonic."""
        if not self._state.life.is_refusing:
            return inf
        if self._to_count:
            return self._state.clock()
        due_s = self._retried_s + self._state.settings.refused_retry_s
        return due_s if self._told_cursor == self._state.ledger.cursor else min(due_s, self._told_s + _TELL_S)

    def hear(self) -> None:
        """Take in which nodes opened."""
        ledger = self._state.ledger
        for opened in (ledger.opened, self._state.handoff.opened):
            if opened:
                self._wakes.hear(opened)
                opened.clear()
        freed = ledger.topology.freed()
        if freed is None or freed:
            self._wakes.stir(lambda ask: any(_is_among(shape, freed) for shape in shapes_of(ask)))

    # ------------------------------------------------------------------ one of them

    def _ask_together(self, asks: Together) -> None:
        if not self._state.life.refuses(asks):
            self._wakes.forget(asks)
            self._units.forget(asks)
        elif self._units.may_fit(asks, _less(self._wakes.opened_for(asks), self._barring.to_first(asks))):
            self._state.life.wake(asks)
        else:
            self._wakes.still_refused(asks)

    def _prepare_to_ask(self, shape: Shape) -> Iterator[None]:
        """Order the cluster for refused pods of which too much has changed; it is asked whatever has changed since."""
        yield from self._search.candidates.prepare(shape)
        self._ask(shape)

    def _ask(self, shape: Shape) -> None:
        if not self._state.life.refuses(shape):
            self._wakes.forget(shape)
            return
        barred = self._barring.to_first(shape)
        opened = _less(self._wakes.opened_for(shape), barred)
        if opened is None:
            fits = self._search.best(shape, barred) is not None
        else:
            fits = any(self._search.takes(shape, name) for name in opened)
        if fits:
            self._state.life.wake(shape)
        else:
            self._wakes.still_refused(shape)


def _less(opened: Set[NodeName] | None, barred: frozenset[NodeName]) -> Set[NodeName] | None:
    return opened if opened is None or not barred else opened - barred


def _is_among(shape: Shape, freed: Set[Peers] | None) -> bool:
    return shape.peers is not None and (freed is None or shape.peers in freed)
