"""Decides groups whose members are placed at once or not at all; `units` finds them, `core.placing.gang` places."""

from math import isinf
from typing import Final

from controller.deciding.barring import Barring
from controller.deciding.lifecycle import Stage
from controller.deciding.search import Search
from controller.deciding.state import State
from controller.deciding.turns import Turns
from controller.deciding.units import Gang, Units
from controller.handing_over.marks import Keys
from core.ledger import Placement
from core.model import NodeName
from core.placing import gang

# Trying refused gangs again takes no more than a fifth of the time.
_REST_PER_WORK: Final = 4.0


class Gangs:
    """What is decided of gangs."""

    def __init__(self, state: State, search: Search, units: Units, barring: Barring, turns: Turns) -> None:
        self._state: Final = state
        self._search: Final = search
        self._units: Final = units
        self._barring: Final = barring
        self._turns: Final = turns

    def decide(self, found: Gang, now_s: float) -> None:
        """Place enough members of a group at once, or none."""
        state = self._state
        if not found.is_complete:
            wait = found.incomplete_wait()
            for entry in found.waiting:
                state.hold(entry, wait)
            self._units.lacks(found, wait, now_s)
            return
        shared = state.ledger.topology.volumes.only_one_may_use([one.pod for one in found.waiting])
        if shared is not None:
            for entry in found.waiting:
                state.hold(entry, shared)
            return
        started_s = state.clock()
        answer, silent = self._place(found, now_s)
        if isinstance(answer, gang.Refused):
            self._units.refused(found, answer, silent)
            self.refuse(found)
            state.wakes.refused(found.asks, ())
            worked_s = state.clock() - started_s
            state.wakes.rest(found.asks, now_s + (1.0 + _REST_PER_WORK) * worked_s)
            return
        placements = {one.pod: one for one in answer}
        self._units.placed(found)
        passes_on = any(one.woken is not None for one in found.waiting)
        for entry in found.waiting:
            state.life.ready(entry)
            placement = placements.get(entry.pod.uid)
            if placement is not None and entry.shape is not None:
                self._turns.place(entry, placement, state.keys(entry.shape), now_s)
        if state.settings.policy.packs:
            for entry in found.waiting:
                self._turns.let_out(entry, now_s)
        if not passes_on and state.life.refuses(found.asks):
            state.life.wake(found.asks)  # another that asks the same may fit as well

    def _place(self, found: Gang, now_s: float) -> tuple[tuple[Placement, ...] | gang.Refused, frozenset[NodeName]]:
        """Reserve for enough members, on no node whose device plugin is silent; and which of these were in the way."""
        state = self._state
        silent: dict[Keys, set[NodeName]] = {}
        barred = self._barring.to(found.waiting[0])
        keys = {one.pod.uid: state.keys(one.shape) for one in found.unit.members}
        while True:
            with state.ledger.trial() as trial:
                answer = gang.place(
                    state.ledger,
                    self._search.candidates,
                    found.unit,
                    lambda shape: barred | silent.get(state.keys(shape), frozenset()),
                    state.books.budget(found.key),
                )
                placements = () if isinstance(answer, gang.Refused) else answer
                wrong = [one for one in placements if isinf(state.handoff.wait_s(one.node, keys[one.pod], now_s))]
                if not wrong:
                    trial.keep()
                    return answer, frozenset().union(*silent.values())
            for one in wrong:
                silent.setdefault(keys[one.pod], set()).add(one.node)

    def refuse(self, found: Gang) -> None:
        """Let all who wait of a gang that does not fit wait until it could."""
        life, refusal = self._state.life, self._units.refusal(found.asks)
        wait = refusal.wait if refusal is not None else None
        for entry in found.waiting:
            if entry.parked == found.asks:
                if wait is not None:
                    life.hold_up(entry, wait)
                continue
            if entry.stage is not Stage.READY:
                life.ready(entry)
            life.refuse(entry, found.asks, self._state.clock(), wait)
            self._state.unreported[entry.pod.uid] = None
        self._units.tell(found)
