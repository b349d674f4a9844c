"""Optional roles, each implemented by only some dialects."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, runtime_checkable

from core.model import AnyPod, Node, Pod
from core.port.cards import CardWish, Hole, Placed, Series, Wording
from core.port.handoff import LockStep, LockWait
from core.port.refusals import Complaint, Fault
from core.port.typevars import AssignmentT, AssignmentT_contra, CardT, CardT_contra, RequestT, RequestT_contra, ScaleT
from core.tables import Tables
from core.warnings import AdmissionWarning


class CardStock(Protocol[RequestT_contra]):
    """The unused cards of a dialect in the whole cluster."""

    def types(self) -> frozenset[str]:
        """Return the names of their types."""
        ...

    def takes(self, request: RequestT_contra) -> bool | None:
        """Return whether an empty node takes *request*; None if uncertain."""
        ...


@runtime_checkable
class Locking(Protocol):
    """Optional role of a dialect whose device plugin finds its pod by a lock on the node.

    - Before a Binding is sent: call `lock` with the pod as *wanted*. None: the lock names it, continue. A step: write
      it, then continue (409, or an unknown outcome: read the node, call again). A wait: the pod waits its turn.
    - When a Binding was certainly not written, and whenever the node's lock, or a pod of this dialect that is or was on
      the node, changes or is removed: call `lock` without *wanted*. A step: write it.

    pods: those in flight on the node, those being bound to it now, and the pod that `lock_owner` names, if it exists
    and another scheduler will bind it; a pod of cardshare whose Binding was not written is not among them.
    """

    def lock_owner(self, node: Node) -> str:
        """Return namespace/name of the pod for which the node is locked, "" if there is none or it is unknown."""
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
        served: Sequence[Pod] = (),
        releasing: Sequence[Pod] = (),
    ) -> LockStep | LockWait | None:
        """Return what to write to the node's lock now, or why *wanted* must wait; None: nothing.

        seen_s: since when the lock is unchanged, by the clock of *now_s*: a later time in it is wrong.
        served: with *wanted*, the pods with cards on the node that are not in flight.
        releasing: pods that were served or failed so recently that the plugin may still release their lock. Such a lock
        is left alone, because old plugins then delete any lock.
        """
        ...


@runtime_checkable
class Rotating(Protocol):
    """Optional role of a dialect whose device plugin handles one container at a time.

    The Binding shows the plugin the first container; `core.names.SEGMENT_QUEUE` keeps the rest. Admission calls
    `rotate` at every change of a pod by a trusted account while the queue is not empty.
    """

    def rotate(self, old: Mapping[str, str], new: Mapping[str, str]) -> Mapping[str, str | None]:
        """Return what to add to the write that changes annotations *old* to *new*; None = remove.

        Empty unless the write is the plugin's mark that a container was served; empty for its own result.
        """
        ...


@runtime_checkable
class Beating(Protocol):
    """Optional role of a dialect whose device plugin, in some versions, writes a heartbeat to its node.

    The dialect does not track time: the caller knows for how long a heartbeat has not changed.
    """

    def beat(self, node: Node) -> str:
        """Return what such a version last wrote on *node*, "" if nothing; it differs with every heartbeat."""
        ...

    def without_beat(self, node: Node) -> Node:
        """Return *node* as it counts if its heartbeat is left over from a version that no longer runs."""
        ...

    def is_blind(self, node: Node) -> bool:
        """Return whether the plugin of *node* may be unable to distinguish pods, so that any two are confusable."""
        ...

    def retirement(self, pod: Pod) -> Mapping[str, str]:
        """Return annotations with which a blind plugin skips *pod*, which is served or dead; {} if it already does."""
        ...


@runtime_checkable
class Reporting(Protocol):
    """Optional role of a dialect whose device plugin reports what it gave a pod, which decides what it places next."""

    def report(self, pod: Pod) -> Mapping[str, str]:
        """Return the annotations that the plugin adds to bound *pod* when it serves it; {} if it has done so."""
        ...


@runtime_checkable
class Registering(Protocol):
    """Optional role of a dialect whose device plugin may alternate between two registers (hami HN-31)."""

    def register(self, node: Node) -> str:
        """Return the register of *node*, "" if there is none."""
        ...

    def figures(self, text: str) -> Mapping[str, tuple[int, ...]]:
        """Return the figures of each card in the register *text* by its id, larger is better; {} if unreadable."""
        ...

    def held_to(self, node: Node, figures: Mapping[str, tuple[int, ...]]) -> Node:
        """Return *node* with its register limited to the cards and amounts of *figures*."""
        ...


@runtime_checkable
class Lasting(Protocol):
    """Optional role of a dialect whose register outlasts its plugin, so that another plugin may serve its cards."""

    def deserted(self, node: Node) -> Complaint:
        """Return the complaint that *node* has a register but no pod of the plugin, which other nodes have."""
        ...


@runtime_checkable
class Marking(Protocol):
    """Optional role of a dialect whose device plugin marks its progress on a pod."""

    def marks(self) -> frozenset[str]:
        """Return annotations that do not describe holdings, so no `held` reads them."""
        ...


@runtime_checkable
class Scaled(Protocol[CardT_contra, AssignmentT_contra, ScaleT]):
    """Optional role of a dialect whose assignments have figures in a unit of the node.

    The unit is stored beside each holding, and written with the Binding. After a change of its unit, a node accepts
    nothing new of the dialect until every holding in the old unit is gone.
    """

    def scale(self, node: Node | None, cards: Sequence[CardT_contra], tables: Tables) -> ScaleT:
        """Return the meaning of figures on *node* (None: gone) with *cards*; empty if it currently offers none."""
        ...

    def rescaled(self, assignment: AssignmentT_contra, since: ScaleT, now: ScaleT) -> tuple[ScaleT, str]:
        """Return (the scale for *assignment*, counted by *since*; why it cannot be counted by *now*, or "")."""
        ...

    def scale_told(self, assignment: AssignmentT_contra, scale: ScaleT) -> Mapping[str, str]:
        """Return annotations of the Binding that store *scale* for other processes."""
        ...

    def scale_read(self, pod: Pod, assignment: AssignmentT_contra, now: ScaleT) -> ScaleT | None:
        """Return the scale stored on bound *pod*, or *now* if both mean the same for its cards; None if absent."""
        ...


@runtime_checkable
class Choosing(Protocol[CardT_contra, RequestT, AssignmentT_contra]):
    """Optional role of a dialect whose cards can serve a request in several modes, and whose pods may omit the mode."""

    def ways(self, request: RequestT) -> tuple[tuple[str, RequestT], ...]:
        """Return every mode with *request* limited to it; () if the request itself names one."""
        ...

    def way(self, assignment: AssignmentT_contra, cards: Sequence[CardT_contra]) -> str:
        """Return the mode in which *assignment* is served, "" if its cards are gone."""
        ...


@runtime_checkable
class Identifying(Protocol[CardT_contra]):
    """Optional role of a dialect whose cards have globally unique ids."""

    def identities(self, cards: Sequence[CardT_contra]) -> tuple[str, ...]:
        """Return the ids of *cards*; two nodes with the same id cannot both be right."""
        ...


@runtime_checkable
class Counting(Protocol):
    """Optional role of a dialect whose containers may request a part of a card without a count."""

    def counts(self, tables: Tables) -> Mapping[str, str]:
        """Return, by each resource for a part of a card, the resource that counts cards; its default is 1."""
        ...

    def paired(self, tables: Tables) -> frozenset[str]:
        """Return the resources that count cards which are allocated only in pairs: 1 means 2."""
        del tables
        return frozenset()

    def memories(self, tables: Tables) -> Mapping[str, str]:
        """Return, by each resource that counts cards, the resource for the memory of each in MiB."""
        ...


@runtime_checkable
class Furnishing(Protocol[RequestT_contra]):
    """Optional role of a dialect whose pods need more than they request."""

    def labels(self) -> frozenset[str]:
        """Return the labels that are read only from its pods."""
        ...

    def completed(self, pod: Pod, request: RequestT_contra, tables: Tables) -> tuple[Pod, tuple[AdmissionWarning, ...]]:
        """Return *pod* with its additional needs, whatever its scheduler; idempotent."""
        ...

    def runtime_classes(self, tables: Tables) -> frozenset[str]:
        """Return the runtime classes that `completed` sets on pods without one."""
        ...


@runtime_checkable
class Reading(Protocol[RequestT_contra]):
    """Optional role of a dialect that reads more of a pod than its resources."""

    def preferences(self, tables: Tables) -> frozenset[str]:
        """Return the annotations by which users select cards, which may change until the pod is bound."""
        ...

    def recognised(self, request: RequestT_contra, tables: Tables) -> frozenset[str]:
        """Return the preferences of any dialect that are read, or rejected by name, for a pod with *request*."""
        ...

    def warnings(self, pod: AnyPod, request: RequestT_contra, tables: Tables) -> Iterator[AdmissionWarning]:
        """Yield warnings for parts of the final, normalized *pod* without effect, or with another than suggested."""
        ...


@runtime_checkable
class Advising(Protocol[RequestT]):
    """Optional role of a dialect that may allocate more, or less, than requested."""

    def advice(
        self, request: RequestT, tables: Tables, stock: CardStock[RequestT] | None
    ) -> Iterator[AdmissionWarning]:
        """Yield what the owner of a pod with *request* should know about its result from *stock*, None if unknown."""
        ...


@runtime_checkable
class Exposing(Protocol[CardT_contra, AssignmentT_contra]):
    """Optional role of a dialect whose cards have established series of metrics."""

    def card_series(self) -> tuple[Series, ...]:
        """Return the series with one figure for each card."""
        ...

    def pod_series(self) -> tuple[Series, ...]:
        """Return the series with one figure for each card of a pod."""
        ...

    def card_figures(self, card: CardT_contra) -> tuple[str, tuple[int, ...]]:
        """Return the id of *card*, and its figures in the order of `card_series`."""
        ...

    def pod_figures(self, assignment: AssignmentT_contra) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield what *assignment* uses by card id, in the order of `pod_series`; several entries of one card add up."""
        ...


@runtime_checkable
class Healing(Protocol[CardT]):
    """Optional role of a dialect whose nodes report unhealthy cards."""

    def healed(self, cards: tuple[CardT, ...]) -> tuple[CardT, ...]:
        """Return the unused *cards* as if those that may recover by themselves were healthy."""
        ...

    def well(self, cards: tuple[CardT, ...]) -> frozenset[str]:
        """Return the names of *cards* that are not reported unhealthy; unsteady ones count as healthy."""
        ...

    def kept_out(self, cards: tuple[CardT, ...], faults: Mapping[str, Fault]) -> tuple[CardT, ...]:
        """Return the unused *cards*, with those in *faults* that are usable closed for new pods."""
        ...


@runtime_checkable
class Typical(Protocol[CardT]):
    """Optional role of a dialect whose cards have names or can be unhealthy; nodes are compared without both."""

    def at_best(self, cards: tuple[CardT, ...]) -> tuple[CardT, ...]:
        """Return the unused *cards*, all present and healthy, with equal names for equal cards."""
        ...


@runtime_checkable
class Packing(Protocol[CardT_contra, RequestT_contra]):
    """Optional role of a dialect whose nodes and cards can be chosen by expected loss; others use binpack."""

    def holes(self, cards: Sequence[CardT_contra]) -> tuple[Hole, ...]:
        """Return the unsold rests of *cards*, in order; indistinguishable cards may be one entry."""
        ...

    def packs(self, request: RequestT_contra) -> bool:
        """Return whether the pod has no order of nodes of its own."""
        del request
        return True


@runtime_checkable
class PackingByCard(Protocol[CardT_contra, RequestT_contra, AssignmentT]):
    """Addition to `Packing` for requests that may be for one card: then each card is tried separately."""

    def by_card(self, request: RequestT_contra) -> bool:
        """Return whether *request* is for one card and has no order of its own; then `left` and `alone` are called."""
        ...

    def left(self, cards: Sequence[CardT_contra], request: RequestT_contra, slot: int) -> Hole | None:
        """Return the rest of the card at *slot* after *request* is placed there; None if it does not take it."""
        ...

    def alone(self, cards: Sequence[CardT_contra], request: RequestT_contra, slot: int) -> Placed[AssignmentT]:
        """Return what *request* gets of the card at *slot*, which takes it."""
        ...


@runtime_checkable
class Metering(Protocol[CardT_contra, AssignmentT_contra]):
    """Totals of resources that a pod requests per card; other resources need only a sum."""

    def sold(self, cards: Sequence[CardT_contra], tables: Tables) -> Mapping[str, int]:
        """Return how much of these resources healthy *cards* have in total, in their units, whatever is in use."""
        ...

    def metered(self, assignment: AssignmentT_contra, tables: Tables) -> Mapping[str, int]:
        """Return how much of these resources *assignment* uses in total, in their units, as queues and quotas count."""
        ...

    def budgeted(self, tables: Tables) -> Sequence[str]:
        """Return those of these resources that a ResourceQuota can limit for a namespace under ``limits.``."""
        ...


@runtime_checkable
class Worded(Protocol):
    """How a pod writes a wish in this protocol."""

    def worded(self, wish: CardWish, tables: Tables) -> Sequence[Wording]:
        """Return every form of *wish*, one per kind of card if kinds have their own resources; () if there is none."""
        ...
