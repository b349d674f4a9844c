"""Decides which pods go where now: takes them from the queue one by one, and whoever was refused once that could help.

Synchronous, and the owner's alone to call: nothing here waits between a decision and its reservation. What it takes for
that is in files of their own: finding nodes (`search`), nodes that are kept for others (`barring`), what is promised
and sent (`promises`), whose turn it is on busy nodes (`turns`), groups (`gangs`) and who was refused (`asking`).
"""

from collections import deque
from collections.abc import Callable, Iterator
from math import inf
from typing import Final, Protocol

from controller.actions import Action
from controller.deciding import plan as steps
from controller.deciding.asking import Asking
from controller.deciding.asks import Capped
from controller.deciding.barring import Barring
from controller.deciding.gangs import Gangs
from controller.deciding.lifecycle import Entry, Lifecycle, Told
from controller.deciding.promises import Promises
from controller.deciding.search import Search
from controller.deciding.state import State
from controller.deciding.turns import Turns
from controller.deciding.units import Gang, Units
from controller.grouping.books import spender_of
from controller.grouping.groups import Groups
from core.errors import NodeInvariantError
from core.history.pods import What
from core.ledger import Ledger, Placement
from core.model import Pod, PodUid
from core.placing.fairness import Over, taken
from core.placing.shape import Shape
from core.settings import Settings
from core.tables import Tables
from core.waiting import code_in


class Chore(Protocol):
    """What time alone brings about."""

    def next_s(self) -> float:
        """When it may do so next, monotonic."""
        ...

    def look(self, now_s: float) -> None:
        """Do what is due."""
        ...


class Planner:
    """Ledger, queue and hand-off, and what is decided on them.

    Attributes:
        state: all that is decided on; its ledger, life, handoff, wakes, actions and unreported are here, too.
        search: which node is the best.
        units: gangs, and why they are refused.
        barring: who may not go where.
        promises: what is reserved and sent.
        turns: who waits for whom on which node.
        chores: what time brings about.
    """

    def __init__(self, state: State, groups: Groups, read: Callable[[Entry], None]) -> None:
        """Begin with nothing.

        Args:
            state: all that is decided on.
            groups: whose members are placed together.
            read: reads again what a pod asks whose shape is not known, and puts it where that leads.
        """
        self.state: Final = state
        self.ledger: Final[Ledger] = state.ledger
        self.life: Final[Lifecycle] = state.life
        self.handoff: Final = state.handoff
        self.actions: Final[deque[Action]] = state.actions
        self.unreported: Final[dict[PodUid, None]] = state.unreported
        self.search: Final = Search(state)
        self.wakes: Final = state.wakes
        self.units: Final = Units(groups, state.life, state.books, self.search.room_on)
        self.barring: Final = Barring(state, self.search, self.units)
        self.promises: Final = Promises(state, self.barring.reserved)
        self.turns: Final = Turns(state, self.search, self.promises, self.barring, self.units)
        self.chores: Final[list[Chore]] = [state.handoff, state.fencing, self.barring.keeping_free, state.lines]
        self._gangs: Final = Gangs(state, self.search, self.units, self.barring, self.turns)
        self._asking: Final = Asking(state, self.search, self.units, self.barring)
        self._read: Final = read
        deque(self.search.prime(), maxlen=0)

    @property
    def settings(self) -> Settings:
        """The operator's, as they are in force."""
        return self.state.settings

    def configure(self, tables: Tables, settings: Settings) -> Iterator[None]:
        """Decide under another configuration, after the last of the slices in which everything is judged anew."""
        yield from self.search.configure(tables, settings)
        self.promises.locks.configure(settings)
        self.handoff.tables, self.handoff.settings = tables, settings
        self.barring.keeping_free.settings = settings

    def plan(self, until_s: float) -> bool:
        """Decide what can be decided before *until_s* (monotonic); True if there is more to do at once."""
        now_s = self.state.clock()
        self._look_around(now_s)
        self.turns.give(now_s)
        while self.state.has_room:
            if not (self.search.go_on() or self._asking.next(now_s)):
                entry = self.units.begun() or self.life.pop(now_s)
                if entry is None:
                    return False
                try:
                    self._decide(entry, now_s)
                except NodeInvariantError as error:
                    self.search.set_aside(error)
                    self.life.ready(entry)
            if self.state.clock() >= until_s:
                return True
        return False

    def _look_around(self, now_s: float) -> None:
        """What time and the hand-off bring about."""
        for took_s in self.handoff.seconds:
            self.state.metrics.handoff_s.observe(took_s)
        self.handoff.seconds.clear()
        for chore in self.chores:
            if chore.next_s() <= now_s:
                chore.look(now_s)
        self.turns.look_for_silence(now_s)
        self._asking.retry(now_s)

    def next_due_s(self) -> float:
        """When `plan` has something to do again although nothing happens, monotonic."""
        due_s = [self.turns.due_s(), self._asking.retry_due_s()]
        self._asking.hear()
        if self.state.has_room:
            resting_s = self.life.next_due_s()
            due_s += [inf if resting_s is None else resting_s, self.wakes.due_s(self.state.clock())]
        return min((*due_s, *(chore.next_s() for chore in self.chores)))

    # ------------------------------------------------------------------ one pod

    def _decide(self, entry: Entry, now_s: float) -> None:
        shape = entry.shape
        if shape is None:
            self._read(entry)
            return
        found = self.units.gang(entry)
        if self._reads_anew(entry, found) or self._is_refused_already(entry, shape, found):
            return
        shapes = (shape,) if found is None else found.asks.shapes
        unprepared = self.search.unprepared(shapes)
        if unprepared is not None:
            self.search.begin(self.search.prepared(unprepared))
            self.life.ready(entry)
            return
        self.search.decided(shapes)
        self.state.metrics.decisions.inc()
        if found is not None:
            self._gangs.decide(found, now_s)
            return
        self._decide_pod(entry, shape, now_s)

    def _reads_anew(self, entry: Entry, found: Gang | None) -> bool:
        """Whether other pods have come, or gone, that keep this one off, or one of its gang: then it is read again."""
        topology = self.ledger.topology
        stale = [
            one
            for one in ((entry,) if found is None else found.waiting)
            if one.shape is not None and not topology.is_current(one.pod, one.shape.peers)
        ]
        for one in stale:
            self._read(one)
        if stale and entry not in stale:
            self.life.ready(entry)
        return bool(stale)

    def _is_refused_already(self, entry: Entry, shape: Shape, found: Gang | None) -> bool:
        """Whether others are refused for the same, and nothing has opened or one before it is woken for that."""
        if self.barring.rooms() and not self.barring.to(entry):
            return False  # it may go where those before it may not
        if found is not None:
            if not found.is_complete or self.life.is_tried(entry, found.asks) or not self.life.refuses(found.asks):
                return False
            self._gangs.refuse(found)
            return True
        if self.life.refuses(shape) and not self.life.is_tried(entry, shape):
            self._refuse(entry, shape)
            return True
        cap = self.units.cap(entry)
        if cap is not None and self.life.refuses(cap) and not self.life.is_tried(entry, cap):
            self._refuse_over(entry, cap)
            return True
        return False

    def _decide_pod(self, entry: Entry, shape: Shape, now_s: float) -> None:
        """Place a pod that is decided alone."""
        keys = self.state.keys(shape)
        step = steps.next_step(self.turns.wish(entry, shape, keys), self.search.candidates, self.handoff, now_s)
        if isinstance(step, steps.Nowhere):
            self._refuse(entry, shape)
            self.wakes.refused(shape, step.silent)
            return
        cap = self.units.cap(entry)
        over = self.over(entry.pod, step) if cap is not None else ()
        if over and cap is not None:
            self.units.capped(cap, entry.pod, over)
            self._refuse_over(entry, cap)
            return
        self.turns.place(entry, step, keys, now_s)

    def over(self, pod: Pod, placement: Placement) -> tuple[Over, ...]:
        """Of what the queue or namespace of *pod* has too little left for *placement*."""
        left = self.state.books.budget(spender_of(pod))
        return () if left is None else left.lacks(taken(self.ledger, pod, placement.dialect, placement.assignment))

    def _refuse(self, entry: Entry, shape: Shape) -> None:
        """Let a pod wait that no node takes."""
        self.life.refuse(entry, shape, self.state.clock())
        self.unreported[entry.pod.uid] = None

    def _refuse_over(self, entry: Entry, cap: Capped) -> None:
        """Let a pod wait of which its queue or namespace has too little left."""
        refusal = self.units.refusal(cap)
        self.life.refuse(entry, cap, self.state.clock(), refusal.wait if refusal is not None else None)
        self.unreported[entry.pod.uid] = None

    def told(self, entry: Entry, told: Told) -> None:
        """The pod's condition says *told*."""
        code = code_in(told.text)
        if code and (entry.told is None or code_in(entry.told.text) != code):
            self.state.metrics.refusals.labels(code).inc()
        self.state.recording.note(entry.pod, What.WAITS, told.text, code)
        self.life.tell(entry, told)
