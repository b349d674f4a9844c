"""A pending pod's life and its Bindings' lives: the stages, what leads from one to the next, and what each entry says.

`TABLE` says all that may happen to a pod, `ATTEMPTS` all that may be heard of what was sent for it. What is not in them
is a mistake of ours, and the pod is not what it is thought to be: `UndefinedEventError`, which ends a test; in service
the pod is read, and everything else goes on.

A write that names a version of its object can be written only while the object is in that version. So nothing is judged
by the clock: an attempt without a certain answer is over once its object is seen in a later version, or gone; while
reads show the very version that it named, something is written that moves the version (a fence), and then it is over.
Until then all that it promised stays promised: `Attempts.check_settled` stands before every release.

The same holds for what earlier leaders sent: a pod that was waiting when this leader began, and is in the same version
still, may be bound by an earlier leader at any moment; once it is in another version it never is. Whoever began to wait
later is unknown to earlier leaders, which send nothing any more. The first pod that is to get room has them all moved
(`Fencing`), by a write of their conditions that names their version, and goes once that is done.
"""

from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from heapq import heappop, heappush
from math import inf
from typing import Final, Generic, NamedTuple, TypeVar

from controller.actions import Action, Move, target_of
from core.constraints.quota import Account
from core.errors import InvariantError
from core.ledger import Placement
from core.model import Pod, PodUid
from core.placing.gang import Together
from core.placing.shape import Shape
from core.placing.standing import Standing, order
from core.waiting import Cause, Wait


@dataclass(frozen=True, slots=True)
class Capped:
    """A shape that nodes would take, and of which one of the accounts that limit it has too little left."""

    limits: tuple[Account, ...]
    shape: Shape


Ask = Shape | Together | Capped


def shapes_of(ask: Ask) -> Iterable[Shape]:
    """The shapes of all who ask so."""
    match ask:
        case Shape():
            return (ask,)
        case Together():
            return ask.shapes
        case Capped(shape=shape):
            return (shape,)


Order = tuple[int, bool, int, int]


class EventResource(StrEnum):
    """What pods wait for besides nodes, by a name."""

    LOCK = "lock"
    STORAGE = "storage"


class ClusterEvent(NamedTuple):
    """Something that changed: the lock of node *name*; or a claim, volume or class, *name* by its kind."""

    resource: EventResource
    name: str


def storage_event(kind: str, name: str) -> ClusterEvent:
    """A claim, volume or class changed."""
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
BEFORE_TURN: Final = (Stage.READY, Stage.PREPARING, Stage.TURN, Stage.LOCKING)


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
    """One pending pod; read by all, written by `SchedulingQueue` alone.

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
    def has_place(self) -> bool:
        """Whether it is promised a place, or being sent to one."""
        return self.placement is not None or self.stage in UNSETTLED

    @property
    def waits_for_others(self) -> bool:
        """Whether it waits until more of its group are there, or until they fit together."""
        if self.shape is None:
            return False
        if self.stage is Stage.REFUSED:
            return isinstance(self.parked, Together)
        return self.stage is Stage.HELD and self.wait is not None and self.wait.cause is Cause.WAITING_FOR_GROUP

    @property
    def order(self) -> Order:
        """Priority, then groups that lack members, then age; of pods of one second, the one that was seen first."""
        return (*order(self.standing, self.pod), self.arrival)


# ---------------------------------------------------------------------- what was sent


_K = TypeVar("_K", bound=Hashable)


class AttemptState(StrEnum):
    """What is known of an attempt."""

    SENT = "sent"
    UNKNOWN = "unknown"
    FENCING = "fencing"
    DEAD = "dead"
    WRITTEN = "written"


class News(StrEnum):
    """What is heard of an attempt: answers of the API server, and what shows its object."""

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
    """The attempts of which the outcome is not known, one at a time for each object."""

    def __init__(self) -> None:
        self._open: Final[dict[_K, _Attempt]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def send(self, key: _K, version: str) -> None:
        """A write to *key* is sent that names *version* of it."""
        self.check_settled(key)
        self._open[key] = _Attempt(version)

    def state(self, key: _K) -> AttemptState | None:
        """What is known of the attempt on *key*; None if none is open."""
        attempt = self._open.get(key)
        return attempt.state if attempt is not None else None

    def version(self, key: _K) -> str:
        """The version that the attempt on *key* names, "" if none is open."""
        attempt = self._open.get(key)
        return attempt.version if attempt is not None else ""

    def hear(self, key: _K, news: News) -> AttemptState:
        """Take *news* of the open attempt on *key*; what is known of it then.

        Raises:
            InvariantError: none is open, or the news cannot be of it.
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
        """What *key* names does not exist any more, or cannot be written over: nothing can become of an attempt."""
        self._open.pop(key, None)

    def check_settled(self, key: _K) -> None:
        """Make sure that nothing sent to *key* may still be written.

        Raises:
            InvariantError: it may.
        """
        attempt = self._open.get(key)
        if attempt is not None:
            raise InvariantError(f"what was sent to {key} is {attempt.state}, and must not be released")


# ---------------------------------------------------------------------- what an earlier leader sent


# At a time. It takes less than Bindings, and ends sooner.
_AT_ONCE: Final = 64
# A condition tells seconds: what was written in the same one changes nothing.
_FIRST_REST_S: Final = 1.0
_LAST_REST_S: Final = 15.0

# Of a pod that nobody has told yet why it waits.
UNTOLD: Final = Wait(
    Cause.WAITING_FOR_DECISION,
    "will be decided by the current leader; no earlier request can bind it any more",
)


@dataclass(slots=True)
class _Unmoved:
    pod: Pod
    tries: int = 0


class Fencing:
    """The waiting pods that an earlier leader may have sent a Binding of; a chore, which tries again."""

    def __init__(self, actions: deque[Action]) -> None:
        """Begin with none; *actions*: what is to be done outside."""
        self._actions: Final = actions
        self._unmoved: Final[dict[PodUid, _Unmoved]] = {}
        self._to_move: Final[deque[PodUid]] = deque()
        self._under_way: Final[set[PodUid]] = set()
        self._resting: Final[list[tuple[float, PodUid]]] = []
        self._is_wanted = False

    def __len__(self) -> int:
        return len(self._unmoved)

    def begin(self, waiting: Iterable[Pod]) -> None:
        """This process leads from now on; *waiting*: the pods that an earlier leader may have wanted to bind."""
        for pod in waiting:
            self._unmoved[pod.uid] = _Unmoved(pod)
            self._to_move.append(pod.uid)

    @property
    def is_under_way(self) -> bool:
        """Whether pods are being moved, so that nobody gets room."""
        return self._is_wanted and bool(self._unmoved)

    def want(self) -> bool:
        """Somebody is to get room: have all moved; whether none is left to be."""
        if not self._unmoved:
            return True
        self._is_wanted = True
        self._send()
        return False

    # ------------------------------------------------------------------ what becomes of pods

    def seen(self, uid: PodUid, version: str) -> None:
        """The pod is in *version* now, or is bound in it."""
        found = self._unmoved.get(uid)
        if found is not None and found.pod.resource_version != version:
            self.gone(uid)

    def gone(self, uid: PodUid) -> None:
        """The pod does not exist any more, or cannot be bound in the version that it was in."""
        self._unmoved.pop(uid, None)
        self._end(uid)

    def failed(self, uid: PodUid, now_s: float) -> None:
        """The pod's condition was not written, or perhaps not, or it says what it said before."""
        found = self._unmoved.get(uid)
        if found is not None:
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
                wait = None if pod.scheduled_message else UNTOLD
                self._actions.append(Move(pod=target_of(pod), version=pod.resource_version, wait=wait))

    # ------------------------------------------------------------------ time

    def next_s(self) -> float:
        """When the next one is tried again, monotonic."""
        return self._resting[0][0] if self._resting else inf

    def look(self, now_s: float) -> None:
        """Try again what is due."""
        while self._resting and self._resting[0][0] <= now_s:
            self._to_move.append(heappop(self._resting)[1])
        self._send()
