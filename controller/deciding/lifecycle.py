"""A pending pod's life: the stages it may be in, what leads from one to the next, and the only code that writes it.

`TABLE` says all that may happen. What is not in it is a mistake of ours, and the pod is not what it is thought to be:
`UndefinedEventError`, which ends a test; in service the pod is read, and everything else goes on. How many pods are in
flight is counted from the stages, and by nothing else.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from controller.deciding.asks import Ask
from controller.deciding.queue import Order, Queue
from core.errors import InvariantError
from core.ledger import Placement
from core.model import Pod, PodUid
from core.placing.shape import Shape
from core.placing.standing import Standing, order
from core.waiting import Wait
from kube.versions import is_newer


class Stage(StrEnum):
    """Where a pending pod stands; also the words of the metric that counts them."""

    READY = "ready"
    REFUSED = "refused"
    HELD = "held"
    RESTING = "resting"
    PREPARING = "preparing"
    TURN = "turn"
    LOCKING = "locking"
    BINDING = "binding"
    SETTLING = "settling"
    BOUND = "bound"


class Event(StrEnum):
    """What happens to a pending pod."""

    SEEN = "seen"
    QUEUE = "queue"
    REFUSE = "refuse"
    HOLD = "hold"
    BACK_OFF = "back off"
    PREPARE = "prepare"
    LINE_UP = "line up"
    LOCK = "lock"
    BIND = "bind"
    WRITTEN = "written"
    DOUBT = "doubt"
    LEAVE = "leave"
    MISTRUST = "mistrust"


_UNSENT: Final = (Stage.READY, Stage.REFUSED, Stage.HELD, Stage.RESTING, Stage.PREPARING, Stage.TURN)
_ANSWERED: Final = (Stage.LOCKING, Stage.BINDING, Stage.SETTLING)

# (stage, event) -> stage; None is a pod that is not in the queue.
TABLE: Final[Mapping[tuple[Stage | None, Event], Stage | None]] = {
    (None, Event.SEEN): Stage.READY,
    **{(stage, Event.QUEUE): Stage.READY for stage in (*_UNSENT, *_ANSWERED)},
    **{(stage, Event.HOLD): Stage.HELD for stage in (*_UNSENT, *_ANSWERED)},
    **{(stage, Event.BACK_OFF): Stage.RESTING for stage in (*_UNSENT, *_ANSWERED)},
    (Stage.READY, Event.REFUSE): Stage.REFUSED,
    (Stage.READY, Event.PREPARE): Stage.PREPARING,
    (Stage.PREPARING, Event.LINE_UP): Stage.TURN,
    (Stage.PREPARING, Event.LOCK): Stage.LOCKING,
    (Stage.PREPARING, Event.BIND): Stage.BINDING,
    (Stage.READY, Event.LINE_UP): Stage.TURN,
    (Stage.TURN, Event.LINE_UP): Stage.TURN,
    (Stage.READY, Event.LOCK): Stage.LOCKING,
    (Stage.TURN, Event.LOCK): Stage.LOCKING,
    (Stage.READY, Event.BIND): Stage.BINDING,
    (Stage.TURN, Event.BIND): Stage.BINDING,
    (Stage.LOCKING, Event.BIND): Stage.BINDING,
    (Stage.BINDING, Event.WRITTEN): Stage.BOUND,
    (Stage.BINDING, Event.DOUBT): Stage.SETTLING,
    **{(stage, Event.LEAVE): None for stage in Stage},
    **{(stage, Event.MISTRUST): Stage.SETTLING for stage in Stage},
}

# Stages in which something was sent for the pod: what the mirror shows of it on no node counts once that is settled.
UNSETTLED: Final = frozenset({*_ANSWERED, Stage.BOUND})
# Stages in which a pod's turn has not come, or is found to be another's.
_BEFORE_TURN: Final = (Stage.READY, Stage.PREPARING, Stage.TURN, Stage.LOCKING)
# A condition that stood for so long does not change again and again.
_CALM_S: Final = 600.0


class UndefinedEventError(InvariantError):
    """Something happened to a pod that cannot happen to one in its stage."""

    def __init__(self, uid: PodUid, key: str, stage: Stage | None, event: Event) -> None:
        self.uid = uid
        self.stage = stage
        self.event = event
        super().__init__(f"pod {key} is {stage or 'not known'}, where '{event}' cannot happen")


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The text of the last condition that was written, or found; when (monotonic), and what of it is not numbers.

    since_s: when more than numbers changed last; None: with the text. times: how often in a row it did soon before.
    """

    text: str
    at_s: float
    why: Hashable = None
    since_s: float | None = None
    times: int = 0

    @property
    def changed_s(self) -> float:
        """When more than numbers of it changed last."""
        return self.at_s if self.since_s is None else self.since_s


@dataclass(slots=True, kw_only=True)
class Entry:
    """One pending pod; read by all, written by `Lifecycle` alone.

    Attributes:
        pod: as it was when it was last decided on, in the newest version that a Binding may name.
        stage: where it stands.
        shape: what it asks; None while that is not known.
        wait: why it is not decided, or not bound yet; None if there is nothing to say, or its shape's refusal says it.
        placement: what is reserved for it.
        newest: what it was last seen to be while something that was sent was not settled.
        attempt: counts Bindings, so that a late answer is known for what it is.
        failures: of writes, in a row.
        refused_s: since when it is refused (monotonic), again and again; None if it is not.
        turn_s: since when it waits for its turn, in the line of one node or another; None if it does not.
        told: what its condition says.
        woken: what it was woken for, as the first of those that are refused, until it is decided.
        line: the queue that it stands in line with.
        standing: how important it was when it last stood in line.
        ticket, parked, arrival: the queue's own.
    """

    pod: Pod
    stage: Stage = Stage.READY
    shape: Shape | None = None
    wait: Wait | None = None
    placement: Placement | None = None
    newest: Pod | None = None
    attempt: int = 0
    failures: int = 0
    refused_s: float | None = None
    turn_s: float | None = None
    told: Told | None = None
    woken: Ask | None = None
    line: str = ""
    standing: Standing
    ticket: int = 0
    parked: Ask | None = None
    arrival: int = 0

    @property
    def version(self) -> str:
        """The resourceVersion that a Binding names."""
        return self.pod.resource_version

    @property
    def order(self) -> Order:
        """Priority, then groups that lack members, then age; of pods of one second, the one that was seen first."""
        return (*order(self.standing, self.pod), self.arrival)


class Lifecycle:
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
        self._queue: Final = Queue(self._is_current, rank)
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
        self._queue.ready(entry.line, entry.order, entry.ticket, entry.pod.uid)

    def refuse(self, entry: Entry, ask: Ask, now_s: float, wait: Wait | None = None) -> None:
        """Keep *entry* until something frees that could help who asks *ask*; *wait*: why, if that is known."""
        if entry.woken == ask:
            self._end_wake(entry)
        self._move(entry, Event.REFUSE)
        entry.wait = wait
        entry.parked = ask
        if entry.refused_s is None:
            entry.refused_s = now_s
        self._queue.refuse(ask, entry.line, entry.order, entry.ticket, entry.pod.uid)

    def back_off(self, entry: Entry, until_s: float) -> None:
        """Let *entry* be decided after *until_s* (monotonic), not before."""
        self._move(entry, Event.BACK_OFF)
        self._queue.rest(until_s, entry.ticket, entry.pod.uid)

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
            self._queue.unpark(entry.parked)
            entry.parked = None
        if stage is not Stage.READY and entry.woken is not None:
            self._passed_on.append(entry.woken)
            self._end_wake(entry)
        if stage not in _BEFORE_TURN:
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
        for uid in self._queue.due(now_s):
            self.ready(self._entries[uid])
        found = self._queue.pop()
        return self._entries[found] if found is not None else None

    def next_due_s(self) -> float | None:
        """When the next resting pod is due, monotonic."""
        return self._queue.next_due_s()

    def refused_asks(self) -> list[Ask]:
        """What pods are refused for."""
        return self._queue.refused_asks()

    def refuses(self, ask: Ask) -> bool:
        """Whether pods are refused for *ask*."""
        return self._queue.refuses(ask)

    @property
    def is_refusing(self) -> bool:
        """Whether any pod is refused."""
        return self._queue.is_refusing

    def refused_pods(self, ask: Ask) -> list[Entry]:
        """The pods refused for *ask*, in no order."""
        return [self._entries[uid] for uid in self._queue.refused_pods(ask)]

    def first_refused(self, ask: Ask) -> Entry | None:
        """The first pod refused for *ask*, which stays refused; None if there is none."""
        uid = self._queue.first_refused(ask, pop=False)
        return self._entries[uid] if uid is not None else None

    def wake(self, ask: Ask) -> bool:
        """Let the first pod refused for *ask* be decided; False if there is none."""
        uid = self._queue.first_refused(ask, pop=True)
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
