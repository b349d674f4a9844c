"""What the owner wants done outside: values that `act` takes apart; each answers with one call back to the owner."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from core.claims import Claim, Volume
from core.model import NodeName, Pod, PodUid
from core.node_state import Offers
from core.nodefit import NodeFacts
from core.settings import DialectName
from core.waiting import Wait


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Which pod is meant: its place, and its uid, so that a namesake is left alone."""

    uid: PodUid
    namespace: str
    name: str

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """Bind a pod in the version that was decided on. where: the node and its cards, for people."""

    pod: Target
    attempt: int
    version: str
    node: NodeName
    annotations: Mapping[str, str]
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """Lock a node for a pod that is to be bound there; pod None: only put right what its lock says.

    facts, offers: what the node was, and offered, when the pod was judged; the ledger's own values.
    """

    node: NodeName
    dialect: DialectName
    pod: Target | None = None
    attempt: int = 0
    facts: NodeFacts | None = field(default=None, compare=False, repr=False)
    offers: Offers | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPod:
    """Read a pod after *delay_s* and say what it is now; attempt: the Binding that this is to settle."""

    pod: Target
    attempt: int
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOwner:
    """Read the *owner*, kind/name, of pods and say how many of them it wants placed together."""

    namespace: str
    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """Write a pod's condition, of this version only, so that nothing sent before can be written any more.

    wait: what the condition says; first: it says something else than that the pod waits, up to now.
    """

    pod: Target
    attempt: int
    version: str
    wait: Wait
    first: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Move a waiting pod out of *version*, by its condition, so that no Binding that names it can be written any more.

    wait: what the condition says; None: it stays as it is but for its time.
    """

    pod: Target
    version: str
    wait: Wait | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Clear:
    """Overwrite annotations of a pod that its device plugin will never serve, or is not to serve by them.

    version: of a pod on no node, which may be bound meanwhile, as it was seen; "" for any.
    """

    pod: Target
    annotations: Mapping[str, str]
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preempt:
    """Say of pods on which nodes room is being made for them, then ask others to leave: all of them, or none.

    nomination: of whose room this is. victims: with the node that each is on.
    """

    nomination: PodUid
    nominated: tuple[tuple[Target, NodeName], ...]
    victims: tuple[tuple[Target, NodeName], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unnominate:
    """Say no more of a pod that room is being made for it."""

    pod: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectNode:
    """Say on which node the volume of a claim is to be made, "" for none, by compare-and-swap."""

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
    """The object that an event is about."""

    kind: str
    name: str
    uid: str
    namespace: str = ""
    api_version: str = "v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Announce:
    """Write an event, if it can be done."""

    about: Subject
    reason: str
    message: str
    warning: bool = True


Action = (
    Bind | Lock | ReadPod | ReadOwner | Fence | Move | Clear | Preempt | Unnominate | SelectNode | GiveVolume | Announce
)


def target_of(pod: Pod) -> Target:
    """Which pod is meant."""
    return Target(uid=pod.uid, namespace=pod.namespace, name=pod.name)


def about_pod(pod: Pod | Target) -> Subject:
    """What an event about *pod* is about."""
    return Subject(kind="Pod", namespace=pod.namespace, name=pod.name, uid=pod.uid)
