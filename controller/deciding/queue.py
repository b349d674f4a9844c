"""The scheduling queue: which pod is decided next, which rest until when, which wait refused, and what wakes them.

Pods stand in lines, one for each queue of theirs: the line whose turn it is comes first, and in it priority, then age.
A pod that nothing fits is kept by what it asks, so that one question wakes all that ask the same. A pod is kept under
the ticket of its last move: an older ticket is nothing any more.

Pods that no node takes wait by their shape, and units by what they ask together, for a node to open. The ledger says
which nodes did (`Ledger.opened`): something was freed there, or its labels, taints, cards or configuration changed; a
promise opens nothing. Only those nodes are asked, by the verdict that decides, and only for who has not heard of them
yet. Pods that wait for something else say for what (`ClusterEvent`), and are read again once it has happened.
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
    Event,
    Order,
    Stage,
    Told,
    UndefinedEventError,
)
from core.ledger import Placement
from core.model import NodeName, Pod, PodUid
from core.placing.shape import Shape
from core.placing.standing import Standing
from core.waiting import Wait
from kube.versions import is_newer

# A condition that stood for so long does not change again and again.
_CALM_S: Final = 600.0
_ANY: Final = float("inf")


# Where a pod stands: by its order, under a ticket.
_Item = tuple[Order, int, PodUid]


class _Row:
    """Pods in their order, line by line."""

    def __init__(self, is_current: Callable[[PodUid, int], bool], rank: Callable[[str], Any]) -> None:
        self._is_current: Final = is_current
        self._rank: Final = rank
        self._heaps: Final[dict[str, list[_Item]]] = {}
        self._size = 0

    def push(self, line: str, item: _Item, most: float) -> None:
        """Add a pod; those that have left are thrown out where there are more than *most* items."""
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
        """The first pod of the line whose turn it is, which is taken out if *pop*."""
        for line, heap in list(self._heaps.items()):
            while heap and not self._is_current(heap[0][2], heap[0][1]):
                heapq.heappop(heap)
                self._size -= 1
            if not heap:
                del self._heaps[line]
        if not self._heaps:
            return None
        heap = self._heaps[min(self._heaps, key=self._rank) if len(self._heaps) > 1 else next(iter(self._heaps))]
        if not pop:
            return heap[0][2]
        self._size -= 1
        return heapq.heappop(heap)[2]

    def __len__(self) -> int:
        """How many items there are, with those of pods that have left."""
        return self._size

    def __iter__(self) -> Iterator[PodUid]:
        return (uid for heap in self._heaps.values() for _, ticket, uid in heap if self._is_current(uid, ticket))


class SchedulingQueue:
    """All pending pods of ours, each in one stage."""

    def __init__(
        self,
        line_of: Callable[[Pod], str] = lambda _: "",
        rank: Callable[[str], Any] = lambda line: line,
        standing_of: Callable[[Pod], Standing] = lambda pod: Standing(pod.priority, pod.preempts),
    ) -> None:
        """Begin with none.

        Args:
            line_of: which line a pod stands in.
            rank: of lines, which has its turn first: the lower one.
            standing_of: how important a pod is, with its group.
        """
        # How many pods stand in each line.
        self.lines: Final[dict[str, int]] = {}
        self._line_of: Final = line_of
        self._standing_of: Final = standing_of
        self._entries: Final[dict[PodUid, Entry]] = {}
        self._counts: Final = dict.fromkeys(Stage, 0)
        self._rank: Final = rank
        self._ready: Final = _Row(self._is_current, rank)
        # Those that rest, by when they are due.
        self._resting: Final[list[tuple[float, int, PodUid]]] = []
        # By what is asked: how many pods wait, and in which order (with those that have left).
        self._refused: Final[dict[Ask, _Row]] = {}
        self._waiting: Final[dict[Ask, int]] = {}
        self._tickets = 0
        self._arrivals = 0
        # What pods were woken for that were not refused for it: what woke them may help the next one.
        self._passed_on: list[Ask] = []
        # By what pods are refused for: who was woken for it last.
        self._woken: Final[dict[Ask, PodUid]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def get(self, uid: PodUid) -> Entry | None:
        """The entry of a pod."""
        return self._entries.get(uid)

    def counts(self) -> Mapping[Stage, int]:
        """How many pods are in each stage."""
        return self._counts

    @property
    def in_flight(self) -> int:
        """How many Bindings, or the locks before them, are on their way."""
        return self._counts[Stage.LOCKING] + self._counts[Stage.BINDING]

    # ------------------------------------------------------------------ stages

    def seen(self, pod: Pod, told: Told | None = None) -> Entry:
        """A pod of ours that is not known appeared; whoever calls this says at once where it waits."""
        known = self._entries.get(pod.uid)
        if known is not None:
            raise UndefinedEventError(pod.uid, pod.key, known.stage, Event.SEEN)
        self._arrivals += 1
        standing = self._standing_of(pod)
        entry = Entry(pod=pod, told=told, arrival=self._arrivals, line=self._line_of(pod), standing=standing)
        self.lines[entry.line] = self.lines.get(entry.line, 0) + 1
        self._entries[pod.uid] = entry
        self._counts[entry.stage] += 1
        return entry

    def ready(self, entry: Entry) -> None:
        """Let *entry* be decided as soon as its order says."""
        self._move(entry, Event.QUEUE)
        self._stand(entry)
        self._ready.push(entry.line, (entry.order, entry.ticket, entry.pod.uid), _ANY)

    def refuse(self, entry: Entry, ask: Ask, now_s: float, wait: Wait | None = None) -> None:
        """Keep *entry* until something frees that could help who asks *ask*; *wait*: why, if that is known."""
        if entry.woken == ask:
            self._end_wake(entry)
        self._move(entry, Event.REFUSE)
        entry.wait = wait
        entry.parked = ask
        if entry.refused_s is None:
            entry.refused_s = now_s
        self._waiting[ask] = self._waiting.get(ask, 0) + 1
        row = self._refused.get(ask)
        if row is None:
            row = self._refused[ask] = _Row(self._is_current, self._rank)
        row.push(entry.line, (entry.order, entry.ticket, entry.pod.uid), 2 * self._waiting[ask] + 16)

    def back_off(self, entry: Entry, until_s: float) -> None:
        """Let *entry* be decided after *until_s* (monotonic), not before."""
        self._move(entry, Event.BACK_OFF)
        heapq.heappush(self._resting, (until_s, entry.ticket, entry.pod.uid))

    def hold(self, entry: Entry) -> None:
        """Keep *entry* until it changes."""
        self._move(entry, Event.HOLD)

    def prepare(self, entry: Entry, wait: Wait) -> None:
        """What *entry* needs on the node where it is reserved is made ready first; *wait* says what."""
        self._move(entry, Event.PREPARE)
        entry.wait = wait

    def line_up(self, entry: Entry, now_s: float) -> None:
        """*entry* waits its turn on the node where it is reserved."""
        self._move(entry, Event.LINE_UP)
        if entry.turn_s is None:
            entry.turn_s = now_s

    def lock(self, entry: Entry) -> None:
        """The node is being locked for *entry*, before its next Binding."""
        self._move(entry, Event.LOCK)
        entry.attempt += 1

    def bind(self, entry: Entry) -> None:
        """The next Binding of *entry* is sent."""
        if entry.stage is not Stage.LOCKING:
            entry.attempt += 1
        self._move(entry, Event.BIND)

    def written(self, entry: Entry) -> None:
        """The Binding was written; the mirror will show it."""
        self._move(entry, Event.WRITTEN)
        entry.failures = 0

    def doubt(self, entry: Entry, wait: Wait | None) -> None:
        """It is not known what became of the Binding, or of the pod; *wait* says why, if the user should know."""
        self._move(entry, Event.DOUBT)
        entry.wait = wait

    def mistrust(self, entry: Entry) -> None:
        """Something happened to the pod that cannot: it is read, and nothing is believed of it until then."""
        self._move(entry, Event.MISTRUST)
        entry.wait = None

    def leave(self, uid: PodUid) -> Entry | None:
        """Forget a pod; its entry, if there was one."""
        entry = self._entries.get(uid)
        if entry is not None:
            self._move(entry, Event.LEAVE)
        return entry

    def _move(self, entry: Entry, event: Event) -> None:
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
        """One of the pods refused for *ask* has left."""
        self._waiting[ask] -= 1
        if not self._waiting[ask]:
            del self._waiting[ask]
            self._refused.pop(ask, None)

    def _stand(self, entry: Entry) -> None:
        """Let *entry* stand in the line that is its by now, by the priority that it has by now."""
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

    # ------------------------------------------------------------------ what an entry says

    def take(self, entry: Entry, pod: Pod) -> None:
        """*pod* is what the entry's pod is now."""
        entry.pod, entry.newest = pod, None

    def note(self, entry: Entry, pod: Pod) -> None:
        """*pod* was seen while something that was sent is not settled: that is what it is afterwards."""
        if entry.newest is None or not is_newer(entry.newest.resource_version, pod.resource_version):
            entry.newest = pod

    def moved_on(self, entry: Entry, version: str) -> None:
        """The pod is as it was, in another *version*: a write of our own made it."""
        entry.pod = entry.pod._replace(resource_version=version)

    def asks(self, entry: Entry, shape: Shape | None, wait: Wait | None = None) -> None:
        """What the pod asks, if that is known; *wait*: why it is not decided."""
        if entry.woken is not None and entry.woken != shape:
            self._passed_on.append(entry.woken)
            self._end_wake(entry)
        entry.shape, entry.wait = shape, wait

    def hold_up(self, entry: Entry, wait: Wait | None) -> None:
        """Why the pod is not bound yet; None: there is nothing to say but why its shape is refused."""
        entry.wait = wait

    def reserve(self, entry: Entry, placement: Placement) -> None:
        """*placement* is reserved for the pod."""
        entry.placement, entry.wait, entry.refused_s = placement, None, None

    def unreserve(self, entry: Entry) -> None:
        """Nothing is reserved for the pod any more."""
        entry.placement = None

    def failed(self, entry: Entry) -> None:
        """A write for the pod failed."""
        entry.failures += 1

    def changed(self, entry: Entry) -> None:
        """The pod asks something else: what failed before says nothing of it."""
        entry.failures, entry.refused_s = 0, None
        if entry.told is not None:
            entry.told = replace(entry.told, times=0)

    def tell(self, entry: Entry, told: Told) -> None:
        """The pod's condition says *told*; the same text once more (a fence) is no change, and counts as none."""
        before = entry.told
        if before is not None and before.text == told.text:
            return
        if before is not None and before.why is not None and before.why == told.why:
            told = replace(told, since_s=before.changed_s, times=before.times)
        elif before is not None and told.at_s < before.changed_s + _CALM_S:
            told = replace(told, times=before.times + 1)
        entry.told = told

    # ------------------------------------------------------------------ asking

    def pop(self, now_s: float) -> Entry | None:
        """The pod to decide now; it stays in stage READY until it is put elsewhere."""
        while self._resting and self._resting[0][0] <= now_s:
            _, ticket, uid = heapq.heappop(self._resting)
            if self._is_current(uid, ticket):
                self.ready(self._entries[uid])
        found = self._ready.first(pop=True)
        return self._entries[found] if found is not None else None

    def next_due_s(self) -> float | None:
        """When the next resting pod is due, monotonic."""
        return self._resting[0][0] if self._resting else None

    def refused_asks(self) -> list[Ask]:
        """What pods are refused for."""
        return list(self._refused)

    def refuses(self, ask: Ask) -> bool:
        """Whether pods are refused for *ask*."""
        return ask in self._refused

    @property
    def is_refusing(self) -> bool:
        """Whether any pod is refused."""
        return bool(self._refused)

    def refused_pods(self, ask: Ask) -> list[Entry]:
        """The pods refused for *ask*, in no order."""
        return [self._entries[uid] for uid in self._refused.get(ask, ())]

    def first_refused(self, ask: Ask) -> Entry | None:
        """The first pod refused for *ask*, which stays refused; None if there is none."""
        row = self._refused.get(ask)
        uid = row.first(pop=False) if row is not None else None
        return self._entries[uid] if uid is not None else None

    def wake(self, ask: Ask) -> bool:
        """Let the first pod refused for *ask* be decided; False if there is none."""
        row = self._refused.get(ask)
        uid = row.first(pop=True) if row is not None else None
        if uid is None:
            return False
        self._wake(self._entries[uid], ask)
        return True

    def wake_one(self, entry: Entry) -> None:
        """Let *entry*, which is refused, be decided, whoever else is refused for the same."""
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
        """Whether *entry* is decided though others are refused for *ask*: it is woken, or comes before who is."""
        woken = self._entries.get(self._woken.get(ask, entry.pod.uid))
        return entry.woken == ask or (woken is not None and woken.woken == ask and entry.order < woken.order)

    def wake_next(self) -> None:
        """Wake the next pod where the one that was woken was not refused again."""
        while self._passed_on:
            self.wake(self._passed_on.pop())

    def _is_current(self, uid: PodUid, ticket: int) -> bool:
        entry = self._entries.get(uid)
        return entry is not None and entry.ticket == ticket


# ---------------------------------------------------------------------- who waits for what


# A burst of releases is one question.
_PAUSE_S: Final = 0.02
# Asking takes no more than a fifth of the time, however much is refused.
_PAUSE_PER_WORK: Final = 4.0
_NEVER: Final = float("inf")
# Of more nodes than these not each is asked about, but where it would go best, which knows what changed.
_EACH_MAX: Final = 64
# Nor where so much opened that to tell which they were takes long.
_LATE_MAX: Final = 1024
_LOG_MAX: Final = 1 << 16


class Requeue:
    """What each ask that is refused has heard of, and who waits for which event.

    Attributes:
        unreported: those of which the users may not know why.
        silent: for each, the nodes that would fit were their device plugins not silent.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self.unreported: Final[dict[Ask, None]] = {}
        self.silent: Final[dict[Ask, tuple[NodeName, ...]]] = {}
        # The nodes that opened, oldest first, from position *start* on; up to where each ask has heard.
        self._opened: list[NodeName] = []
        self._start = 0
        self._heard: Final[dict[Ask, int]] = {}
        self._since: dict[int, Set[NodeName]] = {}
        self._looked = 0
        # Some of those that have heard of all nodes have come to be asked about all the same.
        self._stirred = False
        self._to_ask: Final[dict[Ask, None]] = {}
        # Since when questions are put, without a pause; None until the first of them is named.
        self._begun_s: float | None = None
        self._next_s = 0.0
        # Which of them rest, until when.
        self._rests: Final[dict[Ask, float]] = {}
        self._waiting: Final[dict[ClusterEvent, dict[PodUid, None]]] = {}
        self._awaited: Final[dict[PodUid, set[ClusterEvent]]] = {}

    # ------------------------------------------------------------------ nodes

    @property
    def _end(self) -> int:
        return self._start + len(self._opened)

    @property
    def opened(self) -> int:
        """Another number whenever a node has opened."""
        return self._end

    def hear(self, nodes: Iterable[NodeName]) -> None:
        """These nodes opened."""
        self._opened.extend(nodes)
        self._since.clear()
        if len(self._opened) > _LOG_MAX:
            self.hear_of_all()

    def hear_of_all(self) -> None:
        """Any node may have opened."""
        self._start = self._end + 1
        self._opened = []
        self._since.clear()

    def stir(self, helps: Callable[[Ask], bool]) -> None:
        """Any node may have opened for those whom that *helps*."""
        for ask in [ask for ask in self._heard if helps(ask)]:
            self._heard[ask] = -1
            self._stirred = True

    def refused(self, ask: Ask, silent: tuple[NodeName, ...]) -> None:
        """No node takes *ask* now; silent: as above."""
        self._heard[ask] = self._end
        self.unreported[ask] = None
        if silent:
            self.silent[ask] = silent
        else:
            self.silent.pop(ask, None)

    def still_refused(self, ask: Ask) -> None:
        """No node that opened takes *ask*; numbers may have changed that its users were told."""
        self._heard[ask] = self._end
        self.unreported[ask] = None

    def tell_anew(self) -> None:
        """The users of all that are refused may not know why any more, though nothing opened."""
        self.unreported.update(dict.fromkeys(self._heard))

    def rest(self, ask: Ask, until_s: float) -> None:
        """Do not name *ask* before *until_s* (monotonic): to try it takes long."""
        self._rests[ask] = until_s

    def forget(self, ask: Ask) -> None:
        """No pod is refused for *ask* any more."""
        self._rests.pop(ask, None)
        self.silent.pop(ask, None)
        self._heard.pop(ask, None)

    def opened_for(self, ask: Ask) -> Set[NodeName] | None:
        """The nodes that opened since *ask* was refused; None: any may have."""
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
        """Whether there is something to ask about now."""
        return now_s >= self._next_s and (self._has_news or now_s >= self._rested_s)

    @property
    def _has_news(self) -> bool:
        return self._looked < self._end or self._stirred

    @property
    def _rested_s(self) -> float:
        """When the first that rests, and has not heard of all, has rested."""
        behind = (until_s for ask, until_s in self._rests.items() if self._heard.get(ask, -1) < self._end)
        return min(behind, default=_NEVER)

    def begin(self, asks: Iterable[Ask], now_s: float) -> None:
        """Begin to ask about those of *asks*, all that are refused, that have not heard of all."""
        self._looked, self._stirred = self._end, False
        self._begun_s, self._next_s = None, now_s + _PAUSE_S
        refused = dict.fromkeys(asks)
        for ask in [ask for ask in self._heard if ask not in refused]:
            self.forget(ask)
        for ask in [ask for ask, until_s in self._rests.items() if until_s <= now_s]:
            del self._rests[ask]
        behind = [ask for ask in refused if self._heard.get(ask, -1) < self._end]
        self._to_ask.update((ask, None) for ask in behind if ask not in self._rests)
        # What all have heard of is not kept.
        heard = min(self._heard.values(), default=self._end) - self._start
        if heard > 0:
            del self._opened[:heard]
            self._start += heard

    def next(self, now_s: float) -> Ask | None:
        """What to ask about next, or None."""
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
        """When there is something to ask, monotonic."""
        if self._to_ask:
            return now_s
        return self._next_s if self._has_news else max(self._next_s, self._rested_s)

    # ------------------------------------------------------------------ others

    def wait_for(self, uid: PodUid, *events: ClusterEvent) -> None:
        """Have *uid* named once one of *events* happens; until then, or until it is forgotten."""
        for one in events:
            self._waiting.setdefault(one, {})[uid] = None
            self._awaited.setdefault(uid, set()).add(one)

    def waiting(self, event: ClusterEvent) -> list[PodUid]:
        """Who waits for *event*, first come first; they go on doing so."""
        return list(self._waiting.get(event, ()))

    def happened(self, event: ClusterEvent) -> list[PodUid]:
        """Who waited for *event*, first come first; they wait for nothing any more."""
        found = list(self._waiting.get(event, ()))
        for uid in found:
            self.leave(uid)
        return found

    def leave(self, uid: PodUid) -> None:
        """*uid* waits for no event any more."""
        for one in self._awaited.pop(uid, ()):
            waiting = self._waiting[one]
            del waiting[uid]
            if not waiting:
                del self._waiting[one]
