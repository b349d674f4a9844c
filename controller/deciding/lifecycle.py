"""The stages of a pending pod, the states of its Bindings, and the events that lead from one to the next.

`TABLE` has all events of a pod, `ATTEMPTS` all news about a write that was sent for it. An event outside its table is a
bug, and the recorded state of the pod is wrong (`UndefinedEventError`): a test fails; in production that pod is read
again, and all others continue.

A write that names a version of its object takes effect only while the object has that version. So no outcome is judged
by the clock. An attempt without a certain answer is over once its object has a later version, or is gone. If a read
still shows the version that the attempt named, another write (a fence) changes it, and then the attempt is over. Until
then everything stays reserved: every release calls `Attempts.check_settled`.

The same holds for earlier leaders. A pod that was waiting when this leader began may be bound by an earlier leader, as
long as it has the same version; pods that began to wait later are unknown to earlier leaders, which send nothing any
more. Before the first Binding, `Fencing` changes the versions of all these pods, by writing their conditions.
docs/maintainers/pod-lifecycle.md shows both tables.
"""

from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from heapq import heappop, heappush
from math import inf
from typing import Final, Generic, NamedTuple, TypeVar

from controller.actions import Action, Touch, target_of
from core.constraints.quota import Account
from core.errors import InvariantError
from core.ledger import Placement
from core.model import Pod, PodUid, Standing, order
from core.placing.decide import Shape
from core.placing.gang import Together
from core.units import counted, time_text
from core.waiting import Cause, Wait


@dataclass(frozen=True, slots=True)
class Capped:
    """A shape that nodes would take, but for which one of *limits*, a queue's or namespace's, has too little left."""

    limits: tuple[Account, ...]
    shape: Shape


Ask = Shape | Together | Capped


def shapes_of(ask: Ask) -> Iterable[Shape]:
    """Return the shapes of *ask*."""
    match ask:
        case Shape():
            return (ask,)
        case Together():
            return ask.shapes
        case Capped(shape=shape):
            return (shape,)


Order = tuple[int, int, int, int]


class EventResource(StrEnum):
    """The kinds of events, besides changes of nodes, for which pods wait."""

    LOCK = "lock"
    STORAGE = "storage"


class ClusterEvent(NamedTuple):
    """A change of the lock of node *name*, or of the claim, volume or class *name* (see `storage_event`)."""

    resource: EventResource
    name: str


def storage_event(kind: str, name: str) -> ClusterEvent:
    """Return the event that the claim, volume or class *name* changed."""
    return ClusterEvent(EventResource.STORAGE, f"{kind} {name}")


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


class StageEvent(StrEnum):
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
TABLE: Final[Mapping[tuple[Stage | None, StageEvent], Stage | None]] = {
    (None, StageEvent.SEEN): Stage.READY,
    **{(stage, StageEvent.QUEUE): Stage.READY for stage in (*_UNSENT, *_ANSWERED)},
    **{(stage, StageEvent.HOLD): Stage.HELD for stage in (*_UNSENT, *_ANSWERED)},
    **{(stage, StageEvent.BACK_OFF): Stage.RESTING for stage in (*_UNSENT, *_ANSWERED)},
    (Stage.READY, StageEvent.REFUSE): Stage.REFUSED,
    (Stage.READY, StageEvent.PREPARE): Stage.PREPARING,
    (Stage.PREPARING, StageEvent.LINE_UP): Stage.TURN,
    (Stage.PREPARING, StageEvent.LOCK): Stage.LOCKING,
    (Stage.PREPARING, StageEvent.BIND): Stage.BINDING,
    (Stage.READY, StageEvent.LINE_UP): Stage.TURN,
    (Stage.TURN, StageEvent.LINE_UP): Stage.TURN,
    (Stage.READY, StageEvent.LOCK): Stage.LOCKING,
    (Stage.TURN, StageEvent.LOCK): Stage.LOCKING,
    (Stage.READY, StageEvent.BIND): Stage.BINDING,
    (Stage.TURN, StageEvent.BIND): Stage.BINDING,
    (Stage.LOCKING, StageEvent.BIND): Stage.BINDING,
    (Stage.BINDING, StageEvent.WRITTEN): Stage.BOUND,
    (Stage.BINDING, StageEvent.DOUBT): Stage.SETTLING,
    **{(stage, StageEvent.LEAVE): None for stage in Stage},
    **{(stage, StageEvent.MISTRUST): Stage.SETTLING for stage in Stage},
}

# Stages in which a write was sent for the pod. Until it is settled, changes that the watch shows without a node wait.
UNSETTLED: Final = frozenset({*_ANSWERED, Stage.BOUND})
# Stages in which a pod keeps the time since which it waits for its turn.
BEFORE_TURN: Final = (Stage.READY, Stage.PREPARING, Stage.TURN, Stage.LOCKING)


class UndefinedEventError(InvariantError):
    """An event that `TABLE` does not have for the stage of the pod."""

    def __init__(self, uid: PodUid, key: str, stage: Stage | None, event: StageEvent) -> None:
        self.uid = uid
        self.stage = stage
        self.event = event
        super().__init__(f"pod {key} is {stage or 'not known'}, where '{event}' cannot happen")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodCondition:
    """The last condition PodScheduled of a pod, written or found: its text, and its time (monotonic).

    why: its reason without numbers. since_s: when the reason last changed; None: with the text. times: how often in a
    row it changed again soon.
    """

    text: str
    at_s: float
    why: Hashable = None
    since_s: float | None = None
    times: int = 0

    @property
    def changed_s(self) -> float:
        """When the reason last changed, monotonic."""
        return self.at_s if self.since_s is None else self.since_s


@dataclass(slots=True, kw_only=True)
class Entry:
    """One pending pod; read by all, written by `SchedulingQueue` alone.

    Attributes:
        pod: the pod on which decisions are based; a Binding names its version.
        stage: its stage in `TABLE`.
        shape: its request and constraints; None while these are not known.
        wait: why it is not decided or not bound yet; None if there is no reason, or the refusal of its shape has it.
        placement: its reservation, if any.
        newest: its last change that the watch showed while a write was unsettled.
        attempt: the number of its last Binding, so that late answers to earlier ones are recognized.
        failures: failed writes in a row.
        refused_s: since when it is refused, however often it was tried, monotonic; None if it is not.
        turn_s: since when it waits for its turn, in the lines of any nodes, monotonic; None if it does not.
        condition: its last condition.
        room_until_s: until when capacity that evictions freed for it may be kept for it again, monotonic.
        woken: the ask for which it was woken as the first of the refused pods, until it is decided.
        line: the line of the scheduling queue that it stands in.
        standing: its importance, with that of its group, when it was last queued.
        ticket, parked, arrival: internal to `SchedulingQueue`; parked: the ask for which it is refused.
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
    condition: PodCondition | None = None
    room_until_s: float = inf
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
    def has_place(self) -> bool:
        """Whether it has a reservation, or a write for it is unsettled."""
        return self.placement is not None or self.stage in UNSETTLED

    @property
    def waits_for_others(self) -> bool:
        """Whether it waits for other members of its group, or until they fit together."""
        if self.shape is None:
            return False
        if self.stage is Stage.REFUSED:
            return isinstance(self.parked, Together)
        # A pod that waits for a claim which a pod outside its gang uses has no shape, so here members share the claim.
        causes = (Cause.WAITING_FOR_GROUP, Cause.CLAIM_IN_USE)
        return self.stage is Stage.HELD and self.wait is not None and self.wait.cause in causes

    @property
    def order(self) -> Order:
        """The sort key: priority, progress of its group, then age; in the same second, the first seen."""
        return (*order(self.standing, self.pod), self.arrival)


# ---------------------------------------------------------------------- what was sent


_K = TypeVar("_K", bound=Hashable)


class AttemptState(StrEnum):
    """The state of an attempt."""

    SENT = "sent"
    UNKNOWN = "unknown"
    FENCING = "fencing"
    DEAD = "dead"
    WRITTEN = "written"


class News(StrEnum):
    """News about an attempt: answers of the API server, and the state in which its object is seen."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    LOST = "lost"
    READ_OPEN = "read open"
    PASSED = "passed"
    FOUND = "found"


# (state, news) -> state. READ_OPEN: a read showed the version that the attempt named; PASSED: a later one, or no such
# object any more; FOUND: what the attempt wanted, or what it cannot be written over.
ATTEMPTS: Final[Mapping[tuple[AttemptState, News], AttemptState]] = {
    (AttemptState.SENT, News.ACCEPTED): AttemptState.WRITTEN,
    (AttemptState.SENT, News.REFUSED): AttemptState.DEAD,
    (AttemptState.SENT, News.LOST): AttemptState.UNKNOWN,
    (AttemptState.UNKNOWN, News.READ_OPEN): AttemptState.FENCING,
    (AttemptState.UNKNOWN, News.PASSED): AttemptState.DEAD,
    (AttemptState.FENCING, News.LOST): AttemptState.UNKNOWN,
    (AttemptState.FENCING, News.PASSED): AttemptState.DEAD,
    (AttemptState.SENT, News.FOUND): AttemptState.WRITTEN,
    (AttemptState.UNKNOWN, News.FOUND): AttemptState.WRITTEN,
    (AttemptState.FENCING, News.FOUND): AttemptState.WRITTEN,
}


@dataclass(slots=True)
class _Attempt:
    version: str
    state: AttemptState = AttemptState.SENT


class Attempts(Generic[_K]):
    """The attempts with an unknown outcome, at most one for each object."""

    def __init__(self) -> None:
        self._open: Final[dict[_K, _Attempt]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def send(self, key: _K, version: str) -> None:
        """Record that a write to *key* is sent, naming its *version*."""
        self.check_settled(key)
        self._open[key] = _Attempt(version)

    def state(self, key: _K) -> AttemptState | None:
        """Return the state of the attempt on *key*; None if none is open."""
        attempt = self._open.get(key)
        return attempt.state if attempt is not None else None

    def version(self, key: _K) -> str:
        """Return the version that the attempt on *key* names, "" if none is open."""
        attempt = self._open.get(key)
        return attempt.version if attempt is not None else ""

    def hear(self, key: _K, news: News) -> AttemptState:
        """Apply *news* to the open attempt on *key*; return its new state.

        Raises:
            InvariantError: no attempt is open, or `ATTEMPTS` does not have the news for its state.
        """
        attempt = self._open.get(key)
        state = ATTEMPTS.get((attempt.state, news)) if attempt is not None else None
        if attempt is None or state is None:
            known = attempt.state if attempt is not None else "settled"
            raise InvariantError(f"an attempt on {key} is {known}, of which '{news}' cannot be heard")
        attempt.state = state
        if state in (AttemptState.DEAD, AttemptState.WRITTEN):
            del self._open[key]
        return state

    def close(self, key: _K) -> None:
        """Forget the attempt on *key*, because its object is gone or cannot be changed by it any more."""
        self._open.pop(key, None)

    def check_settled(self, key: _K) -> None:
        """Check that no write that was sent to *key* can still take effect.

        Raises:
            InvariantError: one can.
        """
        attempt = self._open.get(key)
        if attempt is not None:
            raise InvariantError(f"what was sent to {key} is {attempt.state}, and must not be released")


# ---------------------------------------------------------------------- what an earlier leader sent


# The limit of concurrent writes.
_AT_ONCE: Final = 64
# Conditions have times in whole seconds, so a second write within one second changes nothing.
_FIRST_REST_S: Final = 1.0
_LAST_REST_S: Final = 15.0

# The condition of a pod that has none yet.
WILL_BE_DECIDED: Final = Wait(
    Cause.WAITING_FOR_DECISION,
    "will be decided by the current leader; no earlier request can bind it any more",
)


@dataclass(slots=True)
class _Unmoved:
    """since_s: of its first write without effect, monotonic; why: the failure of the last one, "" without any."""

    pod: Pod
    tries: int = 0
    since_s: float = 0.0
    why: str = ""


class Fencing:
    """The waiting pods for which an earlier leader may have sent a Binding; a chore, which repeats failed writes."""

    def __init__(self, actions: deque[Action]) -> None:
        """Begin with none; *actions*: receives the actions for the outside."""
        self._actions: Final = actions
        self._unmoved: Final[dict[PodUid, _Unmoved]] = {}
        self._to_move: Final[deque[PodUid]] = deque()
        self._under_way: Final[set[PodUid]] = set()
        self._resting: Final[list[tuple[float, PodUid]]] = []
        self._is_wanted = False

    def __len__(self) -> int:
        return len(self._unmoved)

    def __contains__(self, uid: object) -> bool:
        """Return whether an earlier leader may still bind a pod, or has bound it unseen."""
        return uid in self._unmoved

    def begin(self, waiting: Iterable[Pod]) -> None:
        """Note the pods *waiting* at the start of this leader's term, because an earlier leader may bind them."""
        for pod in waiting:
            self._unmoved[pod.uid] = _Unmoved(pod)
            self._to_move.append(pod.uid)
        if self._is_wanted:
            self._send()  # nothing is decided meanwhile, so no pod would request it

    @property
    def is_under_way(self) -> bool:
        """Whether versions are being changed, so that no Binding may be sent."""
        return self._is_wanted and bool(self._unmoved)

    def trouble(self, now_s: float, wall_s: float) -> str:
        """Return which pod keeps all Bindings waiting because writes to it fail, and since when; "" if none does.

        now_s, wall_s: monotonic, and Unix seconds.
        """
        failing = [one for one in self._unmoved.values() if one.why] if self._is_wanted else []
        if not failing:
            return ""
        first = min(failing, key=lambda one: (one.since_s, one.pod.key))
        others = f" and {counted(len(failing) - 1, 'other pods')}" if len(failing) > 1 else ""
        since = time_text(wall_s - (now_s - first.since_s))
        return (
            f"no pod is bound: since {since}, neither patch pods/status nor patch pods succeeds "
            f"for {first.pod.key}{others}, which an earlier leader may still bind: {first.why}"
        )

    def want(self) -> bool:
        """Request that the version of every noted pod is changed; return True once none is left."""
        if not self._unmoved:
            return True
        self._is_wanted = True
        self._send()
        return False

    # ------------------------------------------------------------------ outcomes

    def seen(self, uid: PodUid, version: str) -> None:
        """Note the *version* of a pod; if it has changed, the pod needs no fence."""
        found = self._unmoved.get(uid)
        if found is not None and found.pod.resource_version != version:
            self.gone(uid)

    def gone(self, uid: PodUid) -> None:
        """Forget a pod that no longer exists, or no longer has the noted version."""
        self._unmoved.pop(uid, None)
        self._end(uid)

    def failed(self, uid: PodUid, now_s: float, why: str = "") -> None:
        """Schedule another write, because the last one may have had no effect; *why*: "" if that ends by itself."""
        found = self._unmoved.get(uid)
        if found is not None:
            found.since_s, found.why = found.since_s if found.why else now_s, why
            rest_s = min(_FIRST_REST_S * 2.0 ** min(found.tries, 10), _LAST_REST_S)
            found.tries += 1
            heappush(self._resting, (now_s + rest_s, uid))
        self._end(uid)

    def _end(self, uid: PodUid) -> None:
        self._under_way.discard(uid)
        if self._is_wanted:
            self._send()

    def _send(self) -> None:
        while self._to_move and len(self._under_way) < _AT_ONCE:
            uid = self._to_move.popleft()
            found = self._unmoved.get(uid)
            if found is not None:
                self._under_way.add(uid)
                pod = found.pod
                wait = None if pod.scheduled_message else WILL_BE_DECIDED
                self._actions.append(Touch(pod=target_of(pod), version=pod.resource_version, wait=wait))

    # ------------------------------------------------------------------ time

    def next_s(self) -> float:
        """Return when the next write is repeated, monotonic."""
        return self._resting[0][0] if self._resting else inf

    def look(self, now_s: float) -> None:
        """Repeat the writes that are due."""
        while self._resting and self._resting[0][0] <= now_s:
            self._to_move.append(heappop(self._resting)[1])
        self._send()
