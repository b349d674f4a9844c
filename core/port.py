"""What a device protocol must answer: the one interface behind which every dialect stands.

To add a protocol, write one folder in core/dialects that exports a `DialectSpec`, and name it in core/catalog.py;
nothing else knows what a card of that protocol looks like. A dialect is a stateless object: every method is a
pure function of its arguments.

What every dialect answers stands in six roles: it reads nodes and pods (`Reads`), places (`Places`), bounds how good a
node could be (`Bounds`), accounts (`Accounts`), hands over (`HandsOver`) and shows (`Shows`). What only some have are
roles of their own, and the others have nothing of them.

Three values belong to the dialect alone and are opaque to everybody else (frozen, hashable, compared by value):
its *card* (one accelerator with what is in use on it), its *request* (all that a pod asks of it, selectors and
preferences included, already parsed) and its *assignment* (which cards a pod holds, and how much of each).
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

from core.model import AnyPod, Node, NodeName, Pod, PodUid
from core.settings import DialectName, Policy, Tables
from core.warnings import AdmissionWarning

CardT = TypeVar("CardT")
RequestT = TypeVar("RequestT")
AssignmentT = TypeVar("AssignmentT")
ScaleT = TypeVar("ScaleT")
RequestT_co = TypeVar("RequestT_co", covariant=True)
# Of roles that are given such values and hand none back.
CardT_contra = TypeVar("CardT_contra", contravariant=True)
RequestT_contra = TypeVar("RequestT_contra", contravariant=True)
AssignmentT_contra = TypeVar("AssignmentT_contra", contravariant=True)


class Reason(StrEnum):
    """Why a card, or a node, cannot take a request."""

    MEMORY = "memory"
    CORES = "cores"
    SLOTS = "slots"
    EXCLUSIVE = "exclusive"
    PROMISED = "cores promised"
    UNHEALTHY = "unhealthy"
    UNSTEADY = "unsteady"
    CORDONED = "cordoned"
    TYPE = "type"
    UUID = "uuid"
    INDEX = "index"
    MODE = "mode"
    GROUP = "group"
    RULE = "rule"
    LAYOUT = "layout"
    TEMPLATE = "template"
    BUSY = "busy"
    HANDOVER = "hand-over"
    CARD_COUNT = "card count"
    UNUSABLE = "unusable"


# What a card may get over by itself.
NOT_HEALTHY: Final = frozenset({Reason.UNHEALTHY, Reason.UNSTEADY})
# Why a card that becomes unhealthy again and again takes nothing new although it is well now, for people.
UNSTEADY: Final = "it became unhealthy again and again, and has not stayed well for long enough since"


class Shortfall(NamedTuple):
    """One card, and what it lacked: wanted and free in the dialect's *unit* (0 and 0 where no amount is meant)."""

    card: str
    reason: Reason
    wanted: int = 0
    free: int = 0
    unit: str = ""
    detail: str = ""


class Room(NamedTuple):
    """A card that could still take something, as the shared indices see it.

    A card of which one container may get several shares has as many of them. kind: cards of one kind answer alike to
    selectors and have one total, so that *free* alone bounds their score. free: the largest amount one more share could
    have, in the dialect's unit; spare: what is left of the second dimension (percent of cores; constant where a
    protocol has none). narrow: a kind within *kind*, of which `want` tells more, where what a share takes depends on
    more than *free*; such cards have *free* in common. None where *kind* says all. *kind* is asked where a request may
    get cards of several such kinds.
    """

    kind: Hashable
    free: int
    spare: int
    narrow: Hashable = None


class Want(NamedTuple):
    """What a request asks of cards of one kind, as far as an index can tell; never more than is truly needed.

    Each card needs at least *free* and *spare*. A placement on cards of this kind whose free amounts sum to f before
    it scores at most ``100.0 * (numerator - f) / total``; where one container asks, the score is
    computed by exactly that expression, so that equal figures are equal floats.
    """

    free: int
    spare: int
    numerator: float
    total: int


class Hole(NamedTuple):
    """What is left of a card to be sold, *free* of *total* in the dialect's unit; 0 of one that takes nothing new.

    size: cards of one size are parted alike. spare_pct: percent that are left of what else is shared of it (cores, AI
    CPUs), whichever is scarcest. cards: how many such cards there are.
    """

    size: Hashable
    free: int
    total: int
    spare_pct: int = 100
    cards: int = 1


class Tally(NamedTuple):
    """One card as people count it: *used* of *total* in *unit*, and what is special.

    cores_pct is the percent of its cores in use, None where the protocol does not count them so. mode: how it is
    shared, where the protocol knows several ways. healthy: False for a card that takes nothing; note says why.
    """

    card: str
    label: str
    used: int
    total: int
    unit: str
    cores_pct: int | None = None
    note: str = ""
    mode: str = ""
    healthy: bool = True


class CardShare(NamedTuple):
    """What one assignment holds of one card, in words: ("GPU-v0", "4096 MiB, 25 % cores").

    amount is in the unit of the card's `Tally`, None where it cannot be told; cores_pct in percent of its cores, None
    where the protocol does not count them so.
    """

    card: str
    text: str
    amount: int | None = None
    cores_pct: int | None = None


class NodeRoom(NamedTuple):
    """A node's cards in one dialect, summed up: idle cards, used share in parts per million, and the rooms."""

    idle: int
    used_ppm: int
    rooms: tuple[Room, ...]


class Placed(NamedTuple, Generic[AssignmentT]):
    """A placement on one node: the dialect's assignment, and the raw device score (upstream's, before rounding)."""

    assignment: AssignmentT
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One thing wrong with what a pod asks: where, what was found, what to write instead.

    code is stable (CS1xx a value, CS2xx a combination, CS3xx protection, CS4xx cannot fit).
    """

    code: str
    field: str
    found: str
    remedy: str

    def __str__(self) -> str:
        """The sentence for people."""
        return f"{self.field}: found {self.found}; {self.remedy}" if self.found else f"{self.field}: {self.remedy}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """A node whose device data cannot be used: the node is set aside for this dialect, the others go on."""

    dialect: DialectName
    field: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer(Generic[CardT]):
    """The cards that a node offers in one dialect, nothing in use; complaints name single cards left out."""

    cards: tuple[CardT, ...]
    complaints: tuple[Complaint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Held(Generic[AssignmentT]):
    """What a bound pod holds. closes: why the node may take nothing new until this pod is gone, or ""."""

    assignment: AssignmentT
    closes: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """What the hand-off supplies for a Binding: node name, Unix seconds and nanoseconds, the ordering stamp.

    order is the value that makes the plugin find this pod last among those in flight on the node
    (seconds for vGPU, nanoseconds for the share plugin and MindCluster); see `Dialect.next_stamp`.
    """

    node: NodeName
    now_s: int
    order: int


class Progress(StrEnum):
    """Where a pod stands between its Binding and its devices."""

    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """One pod that the device plugin could still serve.

    confusable: what the plugin could mistake it by; two pods of a node with a common element are never in flight
    together. cleanup: annotations to clear on a pod that will never be served (a dead one stays a candidate).
    node: whose plugin looks for it, where its annotations say so; "" = the node that it is bound to.
    """

    pod: PodUid
    progress: Progress
    confusable: frozenset[Hashable]
    cleanup: Mapping[str, str] | None = None
    node: str = ""


class Modes(NamedTuple):
    """The annotation by which a pod says how its cards are shared, and its words."""

    key: str
    words: tuple[str, ...]


class CardLists(NamedTuple):
    """Two annotations with ids of cards, joined by commas: those that a pod wants, and those that it avoids."""

    use: str
    avoid: str


class Place(NamedTuple):
    """Where ConfigMaps with documents of nodes are: a name for people, the namespace, the label that tells them."""

    title: str
    namespace: str
    selector: str


class NodeDocuments(NamedTuple):
    """What ConfigMaps say of nodes beside their annotations: where they are, and what one says.

    read: (node, document, text) for everything that the ConfigMap of this name and these texts says of nodes, nothing
    for any other; raises InvalidRequestError where it cannot be read.
    """

    places: tuple[Place, ...]
    read: Callable[[str, Mapping[str, str]], Iterator[tuple[str, str, str]]]


class Series(NamedTuple):
    """A series of Prometheus, one figure for each card, or each pod and card: its whole name, and what it tells.

    labels: how those of the card and of its node are called. pod_labels: how that of a pod is, namespace/name, or those
    of its namespace and of its name.
    """

    name: str
    text: str
    labels: tuple[str, str] = ("devID", "NodeName")
    pod_labels: tuple[str] | tuple[str, str] = ("podName",)


class CardStock(Protocol[RequestT_contra]):
    """What is known of a dialect's cards in the whole cluster, nothing in use."""

    def types(self) -> frozenset[str]:
        """What they are called."""
        ...

    def takes(self, request: RequestT_contra) -> bool | None:
        """Whether an empty node takes *request*; None where that is not certain."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DialectSpec(Generic[CardT, RequestT, AssignmentT]):
    """All of one dialect: its folder exports one, and the catalog lists them.

    port: what it answers. cards: whose they are; dialects of one maker sell the same cards of a node, each by its own
    count. switch: the argument of Volcano's deviceshare plugin that switches it on, "" where it has none; old_switch:
    the predicates plugin had it up to v1.8.2. plugin_accounts: user names of its device plugins, a trailing ``*`` is a
    prefix. time_lock: the annotation of a node by which two schedulers keep apart, "" where there is none; a plugin
    that reads its lock answers for itself (`Locking`). modes: by which words its pods choose how a card is shared, None
    where it is shared in one way only. card_lists: the annotations in which users list ids of cards. machine_keys:
    annotations that other machines write beside its assignment. key_prefixes: how its keys and resources begin.
    documents: what ConfigMaps say of its nodes, None where none does. instead_of: the dialect that sells by the same
    resource on nodes that this one does not serve, None where there is none. ignored: the label, and its value, of pods
    that admission does not complete, "" where there is none.
    """

    port: "Dialect[CardT, RequestT, AssignmentT]"
    cards: str
    switch: str = ""
    old_switch: bool = False
    plugin_accounts: tuple[str, ...] = ()
    time_lock: str = ""
    modes: Modes | None = None
    card_lists: tuple[CardLists, ...] = ()
    machine_keys: frozenset[str] = frozenset()
    key_prefixes: tuple[str, ...] = ()
    documents: "NodeDocuments | None" = None
    instead_of: DialectName | None = None
    ignored: tuple[str, str] = ("", "")

    @property
    def name(self) -> DialectName:
        """Its name."""
        return self.port.name


class Reads(Protocol[CardT, RequestT_co, AssignmentT]):
    """What a dialect reads of nodes and pods."""

    name: DialectName

    def resources(self, tables: Tables) -> frozenset[str]:
        """Every resource name by which a container asks for this dialect's cards."""
        ...

    def uncounted(self, tables: Tables) -> frozenset[str]:
        """Those of its resources that are never compared with a node's allocatable."""
        ...

    def assignment_keys(self, tables: Tables) -> frozenset[str]:
        """Pod annotations that only schedulers and device plugins write."""
        ...

    def offer(self, node: Node, tables: Tables) -> Offer[CardT] | Complaint | None:
        """The cards of *node*; None if it does not speak this protocol; a complaint if its data cannot be used."""
        ...

    def request(self, pod: AnyPod, tables: Tables) -> RequestT_co | tuple[Violation, ...] | None:
        """What *pod* asks in this protocol; None if nothing; violations if it may not be asked so."""
        ...

    def held(self, pod: Pod, cards: Sequence[CardT], tables: Tables) -> Held[AssignmentT] | None:
        """What bound *pod* holds by its annotations, whoever bound it; None if nothing of this protocol."""
        ...


class Places(Protocol[CardT_contra, RequestT, AssignmentT]):
    """Which cards of a node a request gets, and why it gets none."""

    def place(self, cards: Sequence[CardT_contra], request: RequestT, policy: Policy) -> Placed[AssignmentT] | None:
        """The cards of one node that *request* gets under *policy*, or None; reads only, deterministic."""
        ...

    def shortfalls(self, cards: Sequence[CardT_contra], request: RequestT) -> tuple[Shortfall, ...]:
        """Why `place` answers None, card by card with numbers; at least one entry whenever it does."""
        ...

    def relaxed(self, cards: Sequence[CardT_contra], request: RequestT, reason: Reason, amount: int) -> RequestT | None:
        """*request*, no container asking for more than *amount* of what *reason* counts; None: it cannot be asked so.

        reason: MEMORY, CORES or CARD_COUNT, amount in the unit of that `Shortfall`, for *cards* of one node. Whether it
        would be placed is for the caller to judge.
        """
        ...


class Bounds(Protocol[CardT_contra, RequestT_contra]):
    """How good a node could be at best, so that not every node has to be looked at."""

    def room(self, cards: Sequence[CardT_contra]) -> NodeRoom:
        """What the shared indices need to know of a node's cards."""
        ...

    def width(self, request: RequestT_contra) -> int:
        """How many rooms of one node *request* needs at once (its largest container's number), 1 or more."""
        ...

    def want(self, request: RequestT_contra, kind: Hashable, policy: Policy) -> Want | None:
        """What *request* asks of cards of *kind*; None if such a card can never serve it."""
        ...

    def bounded(self, request: RequestT_contra, policy: Policy) -> bool:
        """Whether `Want` bounds the score by free amounts; False: `idle_score` does, by idle cards alone."""
        ...

    def idle_score(self, request: RequestT_contra, idle: int, policy: Policy) -> float:
        """With `bounded` False: the highest score that a node with *idle* idle cards can reach."""
        ...


class Accounts(Protocol[CardT, AssignmentT_contra]):
    """What is in use on cards."""

    def take(self, cards: tuple[CardT, ...], assignment: AssignmentT_contra) -> tuple[CardT, ...]:
        """The cards after *assignment* is in use on them; order of takes does not matter."""
        ...

    def give_back(self, cards: tuple[CardT, ...], assignment: AssignmentT_contra) -> tuple[CardT, ...]:
        """The cards after *assignment* is given back; undoes `take` exactly."""
        ...

    def overcommitted(self, cards: Sequence[CardT]) -> tuple[str, ...]:
        """The cards that hold more than they have, each as a sentence with numbers."""
        ...


class HandsOver(Protocol[RequestT_contra, AssignmentT_contra]):
    """What becomes of a placement until the device plugin has served it."""

    def annotations(self, assignment: AssignmentT_contra, stamp: Stamp, tables: Tables) -> Mapping[str, str]:
        """What the Binding must carry."""
        ...

    def next_stamp(self, pods: Sequence[Pod], now_s: int) -> int:
        """The ordering stamp that is above that of every pod of the node that is still to be served."""
        ...

    def confusable(self, request: RequestT_contra) -> frozenset[Hashable]:
        """What the device plugin could mistake a pod with *request* by (see `InFlight`)."""
        ...

    def in_flight(self, pod: Pod, tables: Tables) -> InFlight | None:
        """*pod* as the plugin sees it, bound or not, whoever wrote its annotations; None if it never serves it."""
        ...


class Shows(Protocol[CardT_contra, AssignmentT_contra]):
    """What people see of cards and of what is held of them."""

    def tally(self, cards: Sequence[CardT_contra]) -> tuple[Tally, ...]:
        """Every card with how much of it is in use, for people; card ids as in `describe`."""
        ...

    def describe(self, assignment: AssignmentT_contra, cards: Sequence[CardT_contra]) -> tuple[CardShare, ...]:
        """What *assignment* holds, card by card, for people."""
        ...


class Judging(
    Places[CardT_contra, RequestT, AssignmentT],
    Bounds[CardT_contra, RequestT],
    Protocol[CardT_contra, RequestT, AssignmentT],
):
    """Which cards of a node a request gets, and how nodes compare: what is asked of pods without cards too."""


class Dialect(
    Reads[CardT, RequestT, AssignmentT],
    Judging[CardT, RequestT, AssignmentT],
    Accounts[CardT, AssignmentT],
    HandsOver[RequestT, AssignmentT],
    Shows[CardT, AssignmentT],
    Protocol[CardT, RequestT, AssignmentT],
):
    """One device protocol, in its roles. Cards, requests and assignments are its own; see the module's text."""


# Where it does not matter which dialect it is: its values are handed on, and never looked into.
AnyDialect: TypeAlias = Dialect[Any, Any, Any]
AnyJudging: TypeAlias = Judging[Any, Any, Any]
AnySpec: TypeAlias = DialectSpec[Any, Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LockStep:
    """One annotation to write to a node, value None to remove it.

    Sent as a merge patch with the node's resourceVersion, so that of two writers one loses (409): then the node is
    read and asked about again.
    """

    key: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LockWait:
    """The node is locked for another: why, and the Unix second from which on the lock is anybody's (0: not known)."""

    reason: str
    until_s: int = 0


@runtime_checkable
class Locking(Protocol):
    """What a dialect adds whose device plugin is told the pod by a lock on the node; the others have nothing of it.

    - Before a Binding is sent: `lock` with the pod as *wanted*. None: the lock names it, go on. A step: write it,
      then go on (409, or an outcome unknown: read the node, ask again). A wait: the pod waits its turn.
    - When a Binding was certainly not written, and whenever the node's lock, or a pod of this dialect that is or was
      on the node, changes or goes: `lock` without *wanted*. A step: write it.

    pods are those bound to the node, those being bound to it now, and the pod that `lock_owner` names, if it exists
    and another scheduler is to bind it; a pod of ours whose Binding was not written is not among them.
    """

    def lock_owner(self, node: Node) -> str:
        """namespace/name of the pod for which the node is locked, "" if it is for none, or for nobody known."""
        ...

    @property
    def lock_key(self) -> str:
        """The node annotation that is the lock."""
        ...

    def lock(
        self,
        node: Node,
        pods: Sequence[Pod],
        now_s: int,
        tables: Tables,
        wanted: Pod | None = None,
        *,
        seen_s: int | None = None,
    ) -> LockStep | LockWait | None:
        """What is to be written to the node's lock now, or why *wanted* must wait; None: nothing.

        seen_s: since when the lock says what it says, by the clock of *now_s*: a later time in it is wrong.
        """
        ...


@runtime_checkable
class Rotating(Protocol):
    """What a dialect adds whose device plugin can be told of one container at a time; the others have nothing of it.

    The Binding shows the plugin the first container, the rest is kept back in `core.names.SEGMENT_QUEUE`. Admission
    asks at every change of a pod by a trusted account while something is kept back.
    """

    def rotate(self, old: Mapping[str, str], new: Mapping[str, str]) -> Mapping[str, str | None]:
        """What the write that turns annotations *old* into *new* must carry besides, None = to be removed.

        Nothing unless it is the plugin's mark that a container was served; nothing for its own result.
        """
        ...


@runtime_checkable
class Beating(Protocol):
    """What a dialect adds whose device plugin, in some versions, writes to its node again and again.

    Nothing here tells the time: who asks knows for how long a beat has been what it is.
    """

    def beat(self, node: Node) -> str:
        """What such a version last wrote on *node*, "" where it wrote nothing: another text with every beat."""
        ...

    def without_beat(self, node: Node) -> Node:
        """*node* as it counts when its beat is only left over from a version that is not there any more."""
        ...

    def is_blind(self, node: Node) -> bool:
        """Whether the plugin of *node* may tell pods apart by nothing at all: any two are confusable."""
        ...

    def retirement(self, pod: Pod) -> Mapping[str, str]:
        """What must stand on *pod*, which is served or dead, for a blind plugin to pass over it; {} if it does."""
        ...


@runtime_checkable
class Marking(Protocol):
    """What a dialect adds whose device plugin marks on a pod how far it is with it; the others have nothing of it."""

    def marks(self) -> frozenset[str]:
        """Annotations that say nothing of what a pod holds: `held` does not read them, neither here nor elsewhere."""
        ...


@runtime_checkable
class Scaled(Protocol[CardT_contra, AssignmentT_contra, ScaleT]):
    """What a dialect adds whose assignments hold figures in a unit that is the node's; the others have nothing of it.

    The unit is kept beside what is counted, and written with the Binding. A node whose unit has changed since takes
    nothing new of the dialect until everything that was counted in the other one is gone.
    """

    def scale(self, node: Node | None, cards: Sequence[CardT_contra], tables: Tables) -> ScaleT:
        """What figures mean on *node*, which is gone if None, with *cards*: none where it offers none just now."""
        ...

    def rescaled(self, assignment: AssignmentT_contra, since: ScaleT, now: ScaleT) -> tuple[ScaleT, str]:
        """(the scale to keep beside *assignment*, which was counted by *since*; why it cannot be counted by *now*)."""
        ...

    def scale_told(self, assignment: AssignmentT_contra, scale: ScaleT) -> Mapping[str, str]:
        """What the Binding carries of *scale*, so that another process knows it."""
        ...

    def scale_read(self, pod: Pod, assignment: AssignmentT_contra, now: ScaleT) -> ScaleT | None:
        """The scale that bound *pod* tells of, *now* if that says the same of its cards; None if it tells of none."""
        ...


@runtime_checkable
class Choosing(Protocol[CardT_contra, RequestT, AssignmentT_contra]):
    """What a dialect adds whose cards serve one request in several ways, of which a pod may leave the choice open."""

    def ways(self, request: RequestT) -> tuple[tuple[str, RequestT], ...]:
        """Every way by its word, with *request* held to it; () where the request itself names one."""
        ...

    def way(self, assignment: AssignmentT_contra, cards: Sequence[CardT_contra]) -> str:
        """The way in which *assignment* is served, "" where its cards are gone."""
        ...


@runtime_checkable
class Identifying(Protocol[CardT_contra]):
    """What a dialect adds whose cards have ids that no other card in the world has; the others have nothing of it."""

    def identities(self, cards: Sequence[CardT_contra]) -> tuple[str, ...]:
        """The ids of *cards*: two nodes that offer the same one cannot both be right."""
        ...


@runtime_checkable
class Counting(Protocol):
    """What a dialect adds of whose cards a container may name a part and no number; the others have nothing of it."""

    def counts(self, tables: Tables) -> Mapping[str, str]:
        """By each resource that says how much of a card, the one that counts cards: 1 where it is not given."""
        ...

    def memories(self, tables: Tables) -> Mapping[str, str]:
        """By each resource that counts cards, the one that says how much memory of each, in MiB."""
        ...


@runtime_checkable
class Furnishing(Protocol[RequestT_contra]):
    """What a dialect adds whose pods need more than they ask for; the others have nothing of it."""

    def labels(self) -> frozenset[str]:
        """The labels that are read of its pods, and of no others."""
        ...

    def completed(self, pod: Pod, request: RequestT_contra, tables: Tables) -> tuple[Pod, tuple[AdmissionWarning, ...]]:
        """*pod* with what it needs besides, whoever places it; done twice it changes nothing more."""
        ...


@runtime_checkable
class Reading(Protocol[RequestT_contra]):
    """What a dialect adds that reads more of a pod than its resources; the others have nothing of it."""

    def preferences(self, tables: Tables) -> frozenset[str]:
        """The annotations by which users say which cards they want, and how: free until it is bound."""
        ...

    def recognised(self, request: RequestT_contra, tables: Tables) -> frozenset[str]:
        """Of all dialects' preferences those that are read, or refused by name, of a pod with *request*."""
        ...

    def warnings(self, pod: Pod, request: RequestT_contra, tables: Tables) -> Iterator[AdmissionWarning]:
        """What of *pod* has no effect, or another than its words say; of the final state, resources plainly written."""
        ...


@runtime_checkable
class Advising(Protocol[RequestT]):
    """What a dialect adds that may give more, or less, than a request says; the others have nothing of it."""

    def advice(
        self, request: RequestT, tables: Tables, stock: CardStock[RequestT] | None
    ) -> Iterator[AdmissionWarning]:
        """What the owner of a pod with *request* should know of what it would get from *stock*, None if unknown."""
        ...


@runtime_checkable
class Exposing(Protocol[CardT_contra, AssignmentT_contra]):
    """What a dialect adds whose cards have series of metrics that others know; the others have nothing of it."""

    def card_series(self) -> tuple[Series, ...]:
        """Those with one figure for each card."""
        ...

    def pod_series(self) -> tuple[Series, ...]:
        """Those with one figure for each card of a pod."""
        ...

    def card_figures(self, card: CardT_contra) -> tuple[str, tuple[int, ...]]:
        """The id of *card*, and its figures in the order of `card_series`."""
        ...

    def pod_figures(self, assignment: AssignmentT_contra) -> Iterator[tuple[str, tuple[int, ...]]]:
        """What *assignment* takes of cards by their ids, in the order of `pod_series`; several of one card add up."""
        ...


@runtime_checkable
class Healing(Protocol[CardT]):
    """What a dialect adds whose nodes tell of cards that are unhealthy."""

    def healed(self, cards: tuple[CardT, ...]) -> tuple[CardT, ...]:
        """*cards*, nothing in use, as they would be if the unhealthy and unsteady ones were well."""
        ...

    def well(self, cards: tuple[CardT, ...]) -> frozenset[str]:
        """The names of those of *cards* that are not said to be unhealthy; unsteady ones are well."""
        ...

    def unsteady(self, cards: tuple[CardT, ...], names: frozenset[str]) -> tuple[CardT, ...]:
        """*cards*, nothing in use, with nothing new for those of *names* that could be used."""
        ...


@runtime_checkable
class Typical(Protocol[CardT]):
    """What a dialect adds whose cards have names, or can be unwell: nodes are compared without that."""

    def at_best(self, cards: tuple[CardT, ...]) -> tuple[CardT, ...]:
        """*cards*, nothing in use, every one there and well, and named alike wherever they are alike."""
        ...


@runtime_checkable
class Packing(Protocol[CardT_contra, RequestT_contra]):
    """What a dialect adds whose nodes and cards may be chosen by what is lost there; those of others by binpack."""

    def holes(self, cards: Sequence[CardT_contra]) -> tuple[Hole, ...]:
        """What is left of *cards*, in their order; cards that nobody tells apart may be one hole."""
        ...

    def packs(self, request: RequestT_contra) -> bool:
        """Whether the pod has no order of nodes of its own."""
        del request
        return True


@runtime_checkable
class PackingByCard(Protocol[CardT_contra, RequestT_contra, AssignmentT]):
    """What a dialect adds to `Packing` of which a request may be for one card: then each card is tried by itself."""

    def by_card(self, request: RequestT_contra) -> bool:
        """Whether *request* is for one card and in no order of its own: then `left` and `alone` are asked."""
        ...

    def left(self, cards: Sequence[CardT_contra], request: RequestT_contra, slot: int) -> Hole | None:
        """What would be left of the card at *slot* if *request* got it there; None if it does not take that."""
        ...

    def alone(self, cards: Sequence[CardT_contra], request: RequestT_contra, slot: int) -> Placed[AssignmentT]:
        """What *request* gets of the card at *slot*, which takes it."""
        ...


@runtime_checkable
class Metering(Protocol[AssignmentT_contra]):
    """What a dialect adds of whose resources a pod names what it wants of each card; of all others, sums are known."""

    def metered(self, assignment: AssignmentT_contra, tables: Tables) -> Mapping[str, int]:
        """What *assignment* takes of these resources in all, in their units: what queues count."""
        ...
