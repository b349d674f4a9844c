"""The scheduling queue: ready, backing off and refused pods, and the events that wake refused pods.

Ready pods stand in lines, one for each Queue of Volcano; pods without a group stand in that of `default`. The line
whose turn it is comes first, and in it the pod with the highest priority, then the oldest. Refused pods are kept by
their ask, so that one check serves all with the same ask. Each move of a pod gives it a new ticket; heap items with
older tickets are void.

A pod that no node takes waits by its shape, and a unit by its joint ask, until a node opens. The ledger lists these
nodes (`Ledger.opened`): something was freed there, or its labels, taints, cards or configuration changed; a reservation
opens nothing. Only these nodes are tried, with the exact verdict, and only for asks that were not yet tried on them.
Pods that wait for something else name it (`ClusterEvent`), and are read again after it.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import replace
from typing import Any, Final

from controller.deciding.lifecycle import (
    BEFORE_TURN,
    TABLE,
    Ask,
    ClusterEvent,
    Entry,
    Order,
    PodCondition,
    Stage,
    StageEvent,
    UndefinedEventError,
)
from core.ledger import Placement
from core.model import NodeName, Pod, PodUid, Standing
from core.placing.decide import Shape
from core.waiting import Wait
from kube.calls import is_newer

# A condition that lasted this long does not count as changing repeatedly.
_CALM_S: Final = 600.0
# Heaps may have as many void items as others, and these.
_VOID_SPARE: Final = 16

# A pod in a heap: its sort key, the ticket of its last move, and its uid.
_Item = tuple[Order, int, PodUid]


class _Row:
    """Pods in their order, with a heap for each line."""

    def __init__(self, is_current: Callable[[PodUid, int], bool], rank: Callable[[str], Any]) -> None:
        self._is_current: Final = is_current
        self._rank: Final = rank
        self._heaps: Final[dict[str, list[_Item]]] = {}
        self._size = 0

    def push(self, line: str, item: _Item, most: int) -> None:
        """Add a pod; if there are more than *most* items, void ones are removed first."""
        if self._size > most:
            for one, heap in list(self._heaps.items()):
                heap[:] = [item for item in heap if self._is_current(item[2], item[1])]
                heapq.heapify(heap)
                if not heap:
                    del self._heaps[one]
            self._size = sum(map(len, self._heaps.values()))
        heapq.heappush(self._heaps.setdefault(line, []), item)
        self._size += 1

    def first(self, *, pop: bool) -> PodUid | None:
        """Return the first pod of the line whose turn it is; remove it if *pop*."""
        while self._heaps:
            line = min(self._heaps, key=self._rank) if len(self._heaps) > 1 else next(iter(self._heaps))
            heap = self._heaps[line]
            while heap and not self._is_current(heap[0][2], heap[0][1]):
                heapq.heappop(heap)
                self._size -= 1
            if not heap:
                del self._heaps[line]
            elif not pop:
                return heap[0][2]
            else:
                self._size -= 1
                return heapq.heappop(heap)[2]
        return None

    def __len__(self) -> int:
        """Return the number of items, including void ones."""
        return self._size

    def __iter__(self) -> Iterator[PodUid]:
        return (uid for heap in self._heaps.values() for _, ticket, uid in heap if self._is_current(uid, ticket))


class SchedulingQueue:
    """All pending pods of cardshare's schedulers, each in one stage."""

    def __init__(
        self,
        line_of: Callable[[Pod], str] = lambda _: "",
        rank: Callable[[str], Any] = lambda line: line,
        standing_of: Callable[[Pod], Standing] = lambda pod: Standing(pod.priority, pod.preempts),
    ) -> None:
        """Begin with none.

        Args:
            line_of: returns the line of a pod.
            rank: returns the sort key of a line; the lowest has its turn first.
            standing_of: returns how important a pod is, with its group.
        """
        # The number of pods in each line, whatever their stage.
        self.lines: Final[dict[str, int]] = {}
        self._line_of: Final = line_of
        self._standing_of: Final = standing_of
        self._entries: Final[dict[PodUid, Entry]] = {}
        self._counts: Final = dict.fromkeys(Stage, 0)
        self._rank: Final = rank
        self._ready: Final = _Row(self._is_current, rank)
        # Pods that back off, by the time when they are due.
        self._resting: Final[list[tuple[float, int, PodUid]]] = []
        # Refused pods in their order, including void items, and their number, by ask.
        self._refused: Final[dict[Ask, _Row]] = {}
        self._waiting: Final[dict[Ask, int]] = {}
        self._tickets = 0
        self._arrivals = 0
        # Asks of woken pods that were not refused again: what woke them may help the next pod with that ask.
        self._passed_on: list[Ask] = []
        # The pod that was woken last for each ask.
        self._woken: Final[dict[Ask, PodUid]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def get(self, uid: PodUid) -> Entry | None:
        """Return the entry of a pod, if it is in the queue."""
        return self._entries.get(uid)

    def counts(self) -> Mapping[Stage, int]:
        """Return the number of pods in each stage."""
        return self._counts

    @property
    def in_flight(self) -> int:
        """The number of Bindings in progress, including the locks before them."""
        return self._counts[Stage.LOCKING] + self._counts[Stage.BINDING]

    # ------------------------------------------------------------------ stages

    def seen(self, pod: Pod, condition: PodCondition | None = None) -> Entry:
        """Add a pod that is not in the queue; the caller must move it to its stage at once."""
        known = self._entries.get(pod.uid)
        if known is not None:
            raise UndefinedEventError(pod.uid, pod.key, known.stage, StageEvent.SEEN)
        self._arrivals += 1
        standing = self._standing_of(pod)
        entry = Entry(pod=pod, condition=condition, arrival=self._arrivals, line=self._line_of(pod), standing=standing)
        self.lines[entry.line] = self.lines.get(entry.line, 0) + 1
        self._entries[pod.uid] = entry
        self._counts[entry.stage] += 1
        return entry

    def ready(self, entry: Entry) -> None:
        """Make *entry* ready: it is decided when its turn comes."""
        self._move(entry, StageEvent.QUEUE)
        self._stand(entry)
        item = (entry.order, entry.ticket, entry.pod.uid)
        self._ready.push(entry.line, item, 2 * self._counts[Stage.READY] + _VOID_SPARE)

    def refuse(self, entry: Entry, ask: Ask, now_s: float, wait: Wait | None = None) -> None:
        """Keep *entry* until something opens that could help *ask*; *wait*: the reason, if known."""
        if entry.woken == ask:
            self._end_wake(entry)
        self._move(entry, StageEvent.REFUSE)
        entry.wait = wait
        entry.parked = ask
        if entry.refused_s is None:
            entry.refused_s = now_s
        self._waiting[ask] = self._waiting.get(ask, 0) + 1
        row = self._refused.get(ask)
        if row is None:
            row = self._refused[ask] = _Row(self._is_current, self._rank)
        row.push(entry.line, (entry.order, entry.ticket, entry.pod.uid), 2 * self._waiting[ask] + _VOID_SPARE)

    def back_off(self, entry: Entry, until_s: float) -> None:
        """Make *entry* ready at *until_s*, monotonic."""
        self._move(entry, StageEvent.BACK_OFF)
        if len(self._resting) > 2 * self._counts[Stage.RESTING] + _VOID_SPARE:
            self._resting[:] = [item for item in self._resting if self._is_current(item[2], item[1])]
            heapq.heapify(self._resting)
        heapq.heappush(self._resting, (until_s, entry.ticket, entry.pod.uid))

    def hold(self, entry: Entry) -> None:
        """Keep *entry* until it changes."""
        self._move(entry, StageEvent.HOLD)

    def prepare(self, entry: Entry, wait: Wait) -> None:
        """Start the pre-bind of reserved *entry*; *wait*: what it waits for."""
        self._move(entry, StageEvent.PREPARE)
        entry.wait = wait

    def line_up(self, entry: Entry, now_s: float) -> None:
        """Let reserved *entry* wait its turn on its node."""
        self._move(entry, StageEvent.LINE_UP)
        if entry.turn_s is None:
            entry.turn_s = now_s

    def lock(self, entry: Entry) -> None:
        """Record that the node is being locked for *entry*, before its next Binding."""
        self._move(entry, StageEvent.LOCK)
        entry.attempt += 1

    def bind(self, entry: Entry) -> None:
        """Record that the next Binding of *entry* is sent."""
        if entry.stage is not Stage.LOCKING:
            entry.attempt += 1
        self._move(entry, StageEvent.BIND)

    def written(self, entry: Entry) -> None:
        """Record that the Binding was written; the watch will show it."""
        self._move(entry, StageEvent.WRITTEN)
        entry.failures = 0

    def doubt(self, entry: Entry, wait: Wait | None) -> None:
        """Record that the outcome of the Binding is unknown; *wait*: what to report to the user, if anything."""
        self._move(entry, StageEvent.DOUBT)
        entry.wait = wait

    def mistrust(self, entry: Entry) -> None:
        """Record that the state of the pod is wrong; nothing is done with it until it was read."""
        self._move(entry, StageEvent.MISTRUST)
        entry.wait = None

    def leave(self, uid: PodUid) -> Entry | None:
        """Remove a pod; return its entry, if any."""
        entry = self._entries.get(uid)
        if entry is not None:
            self._move(entry, StageEvent.LEAVE)
        return entry

    def _move(self, entry: Entry, event: StageEvent) -> None:
        stage = TABLE.get((entry.stage, event), entry)
        if stage is entry or entry.ticket < 0:
            raise UndefinedEventError(entry.pod.uid, entry.pod.key, entry.stage if entry.ticket >= 0 else None, event)
        if entry.parked is not None:
            self._unpark(entry.parked)
            entry.parked = None
        if stage is not Stage.READY and entry.woken is not None:
            self._passed_on.append(entry.woken)
            self._end_wake(entry)
        if stage not in BEFORE_TURN:
            entry.turn_s = None
        self._counts[entry.stage] -= 1
        if isinstance(stage, Stage):
            self._counts[stage] += 1
            self._tickets += 1
            entry.ticket = self._tickets
            entry.stage = stage
        else:
            entry.ticket = -1
            del self._entries[entry.pod.uid]
            self._leave_line(entry)

    def _unpark(self, ask: Ask) -> None:
        """Count one pod less that is refused for *ask*."""
        self._waiting[ask] -= 1
        if not self._waiting[ask]:
            del self._waiting[ask]
            self._refused.pop(ask, None)

    def _stand(self, entry: Entry) -> None:
        """Update the line and the priority of *entry*, which may have changed since it was last queued."""
        entry.standing = self._standing_of(entry.pod)
        line = self._line_of(entry.pod)
        if line != entry.line:
            self._leave_line(entry)
            entry.line = line
            self.lines[line] = self.lines.get(line, 0) + 1

    def _leave_line(self, entry: Entry) -> None:
        self.lines[entry.line] -= 1
        if not self.lines[entry.line]:
            del self.lines[entry.line]

    # ------------------------------------------------------------------ fields of an entry

    def take(self, entry: Entry, pod: Pod) -> None:
        """Replace the pod of *entry*."""
        entry.pod, entry.newest = pod, None

    def note(self, entry: Entry, pod: Pod) -> None:
        """Note a change of the pod while a write is unsettled; it applies once that is settled."""
        if entry.newest is None or not is_newer(entry.newest.resource_version, pod.resource_version):
            entry.newest = pod

    def moved_on(self, entry: Entry, version: str) -> None:
        """Set the *version* that the controller's own write gave the pod, which is otherwise unchanged."""
        entry.pod = entry.pod._replace(resource_version=version)

    def asks(self, entry: Entry, shape: Shape | None, wait: Wait | None = None) -> None:
        """Set the shape of the pod, None if unknown; *wait*: why it is not decided."""
        if entry.woken is not None and entry.woken != shape:
            self._passed_on.append(entry.woken)
            self._end_wake(entry)
        entry.shape, entry.wait = shape, wait

    def hold_up(self, entry: Entry, wait: Wait | None) -> None:
        """Set why the pod is not bound yet; None: the refusal of its shape is the reason."""
        entry.wait = wait

    def reserve(self, entry: Entry, placement: Placement) -> None:
        """Set the reservation of the pod."""
        entry.placement, entry.wait, entry.refused_s = placement, None, None

    def keep_room(self, entry: Entry, until_s: float) -> None:
        """Room that was made for the pod is kept again, if at all, until then at the latest (monotonic)."""
        entry.room_until_s = until_s

    def release(self, entry: Entry) -> None:
        """Remove the reservation of the pod."""
        entry.placement = None

    def failed(self, entry: Entry) -> None:
        """Count a failed write for the pod."""
        entry.failures += 1

    def changed(self, entry: Entry) -> None:
        """Reset failures and the time of refusal, because the pod's request has changed."""
        entry.failures, entry.refused_s = 0, None
        if entry.condition is not None:
            entry.condition = replace(entry.condition, times=0)

    def set_condition(self, entry: Entry, condition: PodCondition) -> None:
        """Set the condition that was written; the same text again, from a fence, counts as no change."""
        before = entry.condition
        if before is not None and before.text == condition.text:
            return
        if before is not None and before.why is not None and before.why == condition.why:
            condition = replace(condition, since_s=before.changed_s, times=before.times)
        elif before is not None and condition.at_s < before.changed_s + _CALM_S:
            condition = replace(condition, times=before.times + 1)
        entry.condition = condition

    # ------------------------------------------------------------------ popping and waking

    def pop(self, now_s: float) -> Entry | None:
        """Pop the pod to decide now; it stays in stage READY until the decision moves it."""
        while self._resting and self._resting[0][0] <= now_s:
            _, ticket, uid = heapq.heappop(self._resting)
            if self._is_current(uid, ticket):
                self.ready(self._entries[uid])
        found = self._ready.first(pop=True)
        return self._entries[found] if found is not None else None

    def next_due_s(self) -> float | None:
        """Return when the next pod has backed off, monotonic."""
        return self._resting[0][0] if self._resting else None

    def refused_asks(self) -> list[Ask]:
        """Return the asks for which pods are refused."""
        return list(self._refused)

    def refuses(self, ask: Ask) -> bool:
        """Return whether pods are refused for *ask*."""
        return ask in self._refused

    @property
    def is_refusing(self) -> bool:
        """Whether any pod is refused."""
        return bool(self._refused)

    def refused_pods(self, ask: Ask) -> list[Entry]:
        """Return the pods refused for *ask*, in no order."""
        return [self._entries[uid] for uid in self._refused.get(ask, ())]

    def first_refused(self, ask: Ask) -> Entry | None:
        """Return the first pod refused for *ask*, which stays refused; None if there is none."""
        row = self._refused.get(ask)
        uid = row.first(pop=False) if row is not None else None
        return self._entries[uid] if uid is not None else None

    def wake(self, ask: Ask) -> bool:
        """Make the first pod refused for *ask* ready; return False if there is none."""
        row = self._refused.get(ask)
        uid = row.first(pop=True) if row is not None else None
        if uid is None:
            return False
        self._wake(self._entries[uid], ask)
        return True

    def wake_one(self, entry: Entry) -> None:
        """Make refused *entry* ready, even if it is not the first with its ask."""
        if entry.parked is not None:
            self._wake(entry, entry.parked)

    def _wake(self, entry: Entry, ask: Ask) -> None:
        self.ready(entry)
        entry.woken = ask
        self._woken[ask] = entry.pod.uid

    def _end_wake(self, entry: Entry) -> None:
        if entry.woken is not None and self._woken.get(entry.woken) == entry.pod.uid:
            del self._woken[entry.woken]
        entry.woken = None

    def is_tried(self, entry: Entry, ask: Ask) -> bool:
        """Return whether to decide *entry* although *ask* is refused: it was woken, or comes before the woken pod."""
        woken = self._entries.get(self._woken.get(ask, entry.pod.uid))
        return entry.woken == ask or (woken is not None and woken.woken == ask and entry.order < woken.order)

    def wake_next(self) -> None:
        """Wake the next pod of each ask whose woken pod was not refused again."""
        while self._passed_on:
            self.wake(self._passed_on.pop())

    def _is_current(self, uid: PodUid, ticket: int) -> bool:
        entry = self._entries.get(uid)
        return entry is not None and entry.ticket == ticket


# ---------------------------------------------------------------------- requeue: which event wakes which pods


# Releases within this time are handled together.
_PAUSE_S: Final = 0.02
# Trying refused asks again takes at most a fifth of the time.
_PAUSE_PER_WORK: Final = 4.0
_NEVER: Final = float("inf")
# If more nodes than this opened, the search finds the best one instead, which follows all changes by itself.
_EACH_MAX: Final = 64
# The same, if so many openings are new to an ask that listing the nodes takes long.
_LATE_MAX: Final = 1024
_LOG_MAX: Final = 1 << 16


class Requeue:
    """On which opened nodes each refused ask was tried, and which pods wait for which event.

    Attributes:
        unreported: asks whose pods may not have the present reason in their conditions.
        silent: for each ask, the nodes that would fit if their device plugins were not silent.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self.unreported: Final[dict[Ask, None]] = {}
        self.silent: Final[dict[Ask, tuple[NodeName, ...]]] = {}
        # The nodes that opened, oldest first, from position *start* on; *heard*: the position up to which each ask was
        # tried.
        self._opened: list[NodeName] = []
        self._start = 0
        self._heard: Final[dict[Ask, int]] = {}
        self._since: dict[int, Set[NodeName]] = {}
        self._looked = 0
        # Whether asks must be tried although no node opened (`stir`).
        self._stirred = False
        self._to_ask: Final[dict[Ask, None]] = {}
        # When the present round of tries began; None until its first.
        self._begun_s: float | None = None
        self._next_s = 0.0
        # Asks that are not tried before a time, because a try takes long.
        self._rests: Final[dict[Ask, float]] = {}
        self._waiting: Final[dict[ClusterEvent, dict[PodUid, None]]] = {}
        self._awaited: Final[dict[PodUid, set[ClusterEvent]]] = {}

    # ------------------------------------------------------------------ nodes

    @property
    def _end(self) -> int:
        return self._start + len(self._opened)

    def hear(self, nodes: Iterable[NodeName]) -> None:
        """Note that *nodes* opened."""
        self._opened.extend(nodes)
        self._since.clear()
        if len(self._opened) > _LOG_MAX:
            self.hear_of_all()

    def hear_of_all(self) -> None:
        """Note that any node may have opened."""
        self._start = self._end + 1
        self._opened = []
        self._since.clear()

    def stir(self, helps: Callable[[Ask], bool]) -> None:
        """Note that any node may have opened for the asks that *helps* returns True for."""
        for ask in [ask for ask in self._heard if helps(ask)]:
            self._heard[ask] = -1
            self._stirred = True

    def refused(self, ask: Ask, silent: tuple[NodeName, ...]) -> None:
        """Note that no node takes *ask* now; silent: see the attribute."""
        self._heard[ask] = self._end
        self.unreported[ask] = None
        if silent:
            self.silent[ask] = silent
        else:
            self.silent.pop(ask, None)

    def still_refused(self, ask: Ask) -> None:
        """Note that no opened node takes *ask*; the figures in the conditions of its pods may be outdated."""
        self._heard[ask] = self._end
        self.unreported[ask] = None

    def tell_anew(self) -> None:
        """Report on all refused asks again, because their reasons may have changed although nothing opened."""
        self.unreported.update(dict.fromkeys(self._heard))

    def rest(self, ask: Ask, until_s: float) -> None:
        """Do not try *ask* before *until_s*, monotonic, because a try takes long."""
        self._rests[ask] = until_s

    def forget(self, ask: Ask) -> None:
        """Forget *ask*, for which no pod is refused any more."""
        self._rests.pop(ask, None)
        self.silent.pop(ask, None)
        self._heard.pop(ask, None)

    def opened_for(self, ask: Ask) -> Set[NodeName] | None:
        """Return the nodes that opened since *ask* was tried; None: any node may have."""
        heard = self._heard.get(ask, -1)
        if heard < self._start:
            return None
        if self._end - heard > _LATE_MAX:
            return None
        found = self._since.get(heard)
        if found is None:
            found = self._since[heard] = frozenset(self._opened[heard - self._start :])
        return found if len(found) <= _EACH_MAX else None

    def is_due(self, now_s: float) -> bool:
        """Return whether asks must be tried now."""
        return now_s >= self._next_s and (self._has_news or now_s >= self._rested_s)

    @property
    def _has_news(self) -> bool:
        return self._looked < self._end or self._stirred

    @property
    def _rested_s(self) -> float:
        """When the first resting ask that was not tried on all opened nodes is due, monotonic."""
        behind = (until_s for ask, until_s in self._rests.items() if self._heard.get(ask, -1) < self._end)
        return min(behind, default=_NEVER)

    def begin(self, asks: Iterable[Ask], now_s: float) -> None:
        """Begin a round over *asks*, which are all refused asks; those that were tried on all nodes are left out."""
        self._looked, self._stirred = self._end, False
        self._begun_s, self._next_s = None, now_s + _PAUSE_S
        refused = dict.fromkeys(asks)
        for ask in [ask for ask in self._heard if ask not in refused]:
            self.forget(ask)
        for ask in [ask for ask, until_s in self._rests.items() if until_s <= now_s]:
            del self._rests[ask]
        behind = [ask for ask in refused if self._heard.get(ask, -1) < self._end]
        self._to_ask.update((ask, None) for ask in behind if ask not in self._rests)
        # Openings that every ask was tried on are dropped.
        heard = min(self._heard.values(), default=self._end) - self._start
        if heard > 0:
            del self._opened[:heard]
            self._start += heard

    def next(self, now_s: float) -> Ask | None:
        """Return the next ask to try, if any."""
        if not self._to_ask:
            return None
        if self._begun_s is None:
            self._begun_s = now_s
        ask = next(iter(self._to_ask))
        del self._to_ask[ask]
        if not self._to_ask:
            self._next_s = max(self._next_s, now_s + _PAUSE_PER_WORK * (now_s - self._begun_s))
        return ask

    def due_s(self, now_s: float) -> float:
        """Return when the next ask is due, monotonic."""
        if self._to_ask:
            return now_s
        return self._next_s if self._has_news else max(self._next_s, self._rested_s)

    # ------------------------------------------------------------------ other events

    def wait_for(self, uid: PodUid, *events: ClusterEvent) -> None:
        """Let *uid* wait for any of *events*, until one happens or it leaves."""
        for one in events:
            self._waiting.setdefault(one, {})[uid] = None
            self._awaited.setdefault(uid, set()).add(one)

    def waiting(self, event: ClusterEvent) -> list[PodUid]:
        """Return the pods that wait for *event*, in the order in which they came; they continue to wait."""
        return list(self._waiting.get(event, ()))

    def happened(self, event: ClusterEvent) -> list[PodUid]:
        """Return the pods that waited for *event*, in the order in which they came; they wait for nothing any more."""
        found = list(self._waiting.get(event, ()))
        for uid in found:
            self.leave(uid)
        return found

    def leave(self, uid: PodUid) -> None:
        """Let *uid* wait for no event any more."""
        for one in self._awaited.pop(uid, ()):
            waiting = self._waiting[one]
            del waiting[uid]
            if not waiting:
                del self._waiting[one]
