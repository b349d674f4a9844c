"""Pending pods of ours: which is decided next, and what the others wait for.

Order is priority, then age. A pod that nothing fits is kept by its shape, so that one question wakes all that ask the
same. Keys are kept, not events: what a pod is now stands in its `Entry`, however often it changed.
"""

import heapq
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from core.ledger import Placement
from core.model import Pod, PodUid
from core.shape import Shape

Order = tuple[int, int, int]


class Stage(StrEnum):
    """Where a pending pod stands; also the words of the metric that counts them."""

    READY = "ready"
    REFUSED = "refused"
    HELD = "held"
    RESTING = "resting"
    TURN = "turn"
    READING = "reading"
    LOCKING = "locking"
    BINDING = "binding"
    UNSURE = "unsure"
    BOUND = "bound"


# Stages in which a call is to tell what is true of the pod: what the mirror shows of it unbound may be older than that.
UNSETTLED: Final = frozenset({Stage.READING, Stage.LOCKING, Stage.BINDING, Stage.UNSURE, Stage.BOUND})


@dataclass(slots=True, kw_only=True)
class Entry:
    """One pending pod.

    version: the resourceVersion that a Binding names. held: why it is not decided, or not bound yet, "" if there is
    nothing to say. attempt: counts Bindings, so that a late outcome is known for what it is. failures: of writes, in a
    row. turn_s: since when it waits in a node's line. told, told_s, told_why: the text of the last condition that was
    written, or found, when (monotonic), and what of it is not numbers. placement: what is reserved for it. ticket,
    parked, arrival: the queue's own.
    """

    pod: Pod
    version: str
    shape: Shape | None = None
    held: str = ""
    stage: Stage = Stage.READY
    placement: Placement | None = None
    attempt: int = 0
    failures: int = 0
    due_s: float = 0.0
    turn_s: float = 0.0
    told: str = ""
    told_s: float = 0.0
    told_why: Hashable = None
    ticket: int = 0
    parked: Shape | None = None
    arrival: int = 0

    @property
    def order(self) -> Order:
        """Priority, then age; of pods created in one second, the one that was seen first."""
        return (-self.pod.priority, self.pod.created_s, self.arrival)


class Queue:
    """All pending pods of ours, each in one stage."""

    def __init__(self) -> None:
        self._entries: dict[PodUid, Entry] = {}
        self._ready: list[tuple[Order, int, PodUid]] = []
        self._resting: list[tuple[float, int, PodUid]] = []
        # Per shape: how many pods wait, and in which order (with entries of pods that have left).
        self._refused: dict[Shape, list[tuple[Order, int, PodUid]]] = {}
        self._waiting: dict[Shape, int] = {}
        self._tickets = 0
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def get(self, uid: PodUid) -> Entry | None:
        """The entry of a pod."""
        return self._entries.get(uid)

    def counts(self) -> dict[Stage, int]:
        """How many pods are in each stage."""
        counts = dict.fromkeys(Stage, 0)
        for entry in self._entries.values():
            counts[entry.stage] += 1
        return counts

    # ------------------------------------------------------------------ stages

    def ready(self, entry: Entry) -> None:
        """Let *entry* be decided as soon as its order says."""
        ticket = self._move(entry, Stage.READY)
        heapq.heappush(self._ready, (entry.order, ticket, entry.pod.uid))

    def refuse(self, entry: Entry, shape: Shape) -> None:
        """Keep *entry* until something frees that its shape could use."""
        ticket = self._move(entry, Stage.REFUSED)
        entry.parked = shape
        self._waiting[shape] = self._waiting.get(shape, 0) + 1
        waiting = self._refused.setdefault(shape, [])
        if len(waiting) > 2 * self._waiting[shape] + 16:
            waiting[:] = [item for item in waiting if self._current(item[2], item[1]) is not None]
            heapq.heapify(waiting)
        heapq.heappush(waiting, (entry.order, ticket, entry.pod.uid))

    def rest(self, entry: Entry, until_s: float) -> None:
        """Let *entry* be decided after *until_s* (monotonic), not before."""
        ticket = self._move(entry, Stage.RESTING)
        entry.due_s = until_s
        heapq.heappush(self._resting, (until_s, ticket, entry.pod.uid))

    def hold(self, entry: Entry) -> None:
        """Keep *entry* until it changes."""
        self._move(entry, Stage.HELD)

    def set(self, entry: Entry, stage: Stage) -> None:
        """Put *entry* in a stage of which this queue keeps no order."""
        self._move(entry, stage)

    def remove(self, uid: PodUid) -> Entry | None:
        """Forget a pod; its entry, if there was one."""
        entry = self._entries.pop(uid, None)
        if entry is not None:
            self._unpark(entry)
            entry.ticket = -1
        return entry

    def _move(self, entry: Entry, stage: Stage) -> int:
        self._unpark(entry)
        self._tickets += 1
        entry.ticket = self._tickets
        entry.stage = stage
        if not entry.arrival:
            self._arrivals += 1
            entry.arrival = self._arrivals
        self._entries[entry.pod.uid] = entry
        return self._tickets

    def _unpark(self, entry: Entry) -> None:
        shape, entry.parked = entry.parked, None
        if shape is None:
            return
        self._waiting[shape] -= 1
        if not self._waiting[shape]:
            del self._waiting[shape]
            self._refused.pop(shape, None)

    # ------------------------------------------------------------------ asking

    def pop(self, now_s: float) -> Entry | None:
        """The pod to decide now; it stays in stage READY until it is put elsewhere."""
        while self._resting and self._resting[0][0] <= now_s:
            _, ticket, uid = heapq.heappop(self._resting)
            entry = self._current(uid, ticket)
            if entry is not None:
                self.ready(entry)
        while self._ready:
            _, ticket, uid = heapq.heappop(self._ready)
            entry = self._current(uid, ticket)
            if entry is not None:
                return entry
        return None

    def next_due_s(self) -> float | None:
        """When the next resting pod is due, monotonic."""
        return self._resting[0][0] if self._resting else None

    def refused_shapes(self) -> list[Shape]:
        """The shapes that pods are refused for."""
        return list(self._refused)

    def refuses(self, shape: Shape) -> bool:
        """Whether pods are refused for *shape*."""
        return shape in self._refused

    @property
    def is_refusing(self) -> bool:
        """Whether any pod is refused."""
        return bool(self._refused)

    def refused_pods(self, shape: Shape) -> list[Entry]:
        """The pods refused for *shape*, in no order."""
        found = (self._current(uid, ticket) for _, ticket, uid in self._refused.get(shape, ()))
        return [entry for entry in found if entry is not None]

    def wake(self, shape: Shape) -> bool:
        """Let the first pod refused for *shape* be decided; False if there is none."""
        waiting = self._refused.get(shape)
        while waiting:
            _, ticket, uid = heapq.heappop(waiting)
            entry = self._current(uid, ticket)
            if entry is not None:
                self.ready(entry)
                return True
        return False

    def _current(self, uid: PodUid, ticket: int) -> Entry | None:
        entry = self._entries.get(uid)
        return entry if entry is not None and entry.ticket == ticket else None
