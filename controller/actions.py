"""What goes between the scheduler's task and all others: actions to the outside, and through `Inbox` calls to it.

An action is a value. `act` performs each, and its outcome is a call again.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from core.claims import Claim, Volume
from core.model import NodeFacts, NodeName, Pod, PodUid
from core.node_state import Offers
from core.settings import DialectName
from core.waiting import Wait


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Identifies a pod by its name and its uid, so that a new pod of the same name is not affected."""

    uid: PodUid
    namespace: str
    name: str

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """Bind a pod in the version of the decision. where: the node and its cards, for people."""

    pod: Target
    attempt: int
    version: str
    node: NodeName
    annotations: Mapping[str, str]
    labels: Mapping[str, str]
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """Lock a node for a pod that will be bound there; pod None: only repair the lock.

    facts, offers: the node's state and offers when the pod was judged; the ledger's own values.
    """

    node: NodeName
    dialect: DialectName
    pod: Target | None = None
    attempt: int = 0
    facts: NodeFacts | None = field(default=None, compare=False, repr=False)
    offers: Offers | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPod:
    """Read a pod after *delay_s* and report its state; attempt: the Binding whose outcome this settles."""

    pod: Target
    attempt: int
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOwner:
    """Read the *owner*, kind/name, of pods and report how many of them it wants placed together."""

    namespace: str
    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """Write a pod's condition in this version only, so that no earlier write can take effect any more.

    wait: the condition's content; first: the condition does not yet say that the pod waits.
    """

    pod: Target
    attempt: int
    version: str
    wait: Wait
    first: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Touch:
    """Change a waiting pod's *version* by writing its condition, so that no Binding for that version can take effect.

    wait: the condition's content; None: only the condition's time changes.
    """

    pod: Target
    version: str
    wait: Wait | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Clear:
    """Overwrite annotations of a pod that its device plugin will never serve, or must not serve by them.

    version: the version in which the pod was seen on no node, because it may be bound in the meantime; "" for any.
    """

    pod: Target
    annotations: Mapping[str, str]
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preempt:
    """Nominate nodes for pods, then evict other pods: all of them, or none.

    nomination: the pod for which capacity is freed. attempt: which of its nominations asks this. victims: each with its
    node. guarded: the victims that a disruption budget covers.
    """

    nomination: PodUid
    attempt: int
    nominated: tuple[tuple[Target, NodeName], ...]
    victims: tuple[tuple[Target, NodeName], ...]
    guarded: frozenset[PodUid] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unnominate:
    """Remove a pod's nominated node."""

    pod: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectNode:
    """Set the node where the volume of a claim is provisioned, "" for none, by compare-and-swap."""

    claim: Claim
    node: str
    pod: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveVolume:
    """Reserve a volume for a claim, by compare-and-swap; Kubernetes' volume controller binds the two."""

    claim: Claim
    volume: Volume
    pod: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The object of an event."""

    kind: str
    name: str
    uid: str
    namespace: str = ""
    api_version: str = "v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Announce:
    """Write an event; best effort."""

    about: Subject
    reason: str
    message: str
    warning: bool = True


Action = (
    Bind
    | Lock
    | ReadPod
    | ReadOwner
    | Fence
    | Touch
    | Clear
    | Preempt
    | Unnominate
    | SelectNode
    | GiveVolume
    | Announce
)


def target_of(pod: Pod) -> Target:
    """Return the target for *pod*."""
    return Target(uid=pod.uid, namespace=pod.namespace, name=pod.name)


def about_pod(pod: Pod | Target) -> Subject:
    """Return the subject of an event on *pod*."""
    return Subject(kind="Pod", namespace=pod.namespace, name=pod.name, uid=pod.uid)


# ---------------------------------------------------------------------- calls to the scheduler


# One call of the scheduler. Long work is an iterator, whose steps run separately so that the loop is never blocked.
Message = Callable[[], Iterator[None] | None]

# Maximum number of waiting events. When it is reached, the watches wait, and the API server with them.
_ROOM: Final = 4096


class Inbox:
    """The bounded queue of calls to the scheduler; the scheduler's own task runs them one at a time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.filled: Final = asyncio.Event()
        self._clock: Final = clock
        self._messages: Final[deque[Message]] = deque()
        self._steps: Iterator[None] | None = None
        self._room: Final = asyncio.Event()

    def put(self, message: Message) -> None:
        """Add a call that must not wait, such as the outcome of an action."""
        self._messages.append(message)
        self.filled.set()

    async def put_in_time(self, message: Message) -> None:
        """Add an event; wait while the queue is full."""
        while len(self._messages) >= _ROOM:
            self._room.clear()
            await self._room.wait()
        self.put(message)

    async def put_and_wait(self, message: Message) -> None:
        """Add *message* and wait until the scheduler has completed it, or has given it up because of an error."""
        done = asyncio.Event()

        def steps() -> Iterator[None]:
            try:
                rest = message()
                if rest is not None:
                    yield from rest
            finally:
                done.set()

        await self.put_in_time(steps)
        await done.wait()

    @property
    def is_halfway(self) -> bool:
        """Whether a long call has begun and not ended, so that the scheduler's state is inconsistent."""
        return self._steps is not None

    async def settled(self) -> None:
        """Wait until no long call is in progress."""
        while self.is_halfway:
            await self.put_and_wait(lambda: None)

    def work(self, until_s: float) -> bool:
        """Run waiting calls until *until_s* (monotonic); return True if some are left."""
        while True:
            if self._steps is not None:
                try:
                    next(self._steps)
                except StopIteration:
                    self._steps = None
            elif self._messages:
                self._steps = self._messages.popleft()()
            else:
                self._room.set()
                return False
            if self._clock() >= until_s:
                if len(self._messages) < _ROOM:
                    self._room.set()
                return True
