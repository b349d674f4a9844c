"""What only some dialects answer: roles of their own, of which the others have nothing."""

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
    """What is known of a dialect's cards in the whole cluster, nothing in use."""

    def types(self) -> frozenset[str]:
        """What they are called."""
        ...

    def takes(self, request: RequestT_contra) -> bool | None:
        """Whether an empty node takes *request*; None where that is not certain."""
        ...


@runtime_checkable
class Locking(Protocol):
    """What a dialect adds whose device plugin is told the pod by a lock on the node; the others have nothing of it.

    - Before a Binding is sent: `lock` with the pod as *wanted*. None: the lock names it, go on. A step: write it,
      then go on (409, or an outcome unknown: read the node, ask again). A wait: the pod waits its turn.
    - When a Binding was certainly not written, and whenever the node's lock, or a pod of this dialect that is or was
      on the node, changes or goes: `lock` without *wanted*. A step: write it.

    pods are those in flight on the node, those being bound to it now, and the pod that `lock_owner` names, if it exists
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
        served: Sequence[Pod] = (),
        releasing: Sequence[Pod] = (),
    ) -> LockStep | LockWait | None:
        """What is to be written to the node's lock now, or why *wanted* must wait; None: nothing.

        seen_s: since when the lock says what it says, by the clock of *now_s*: a later time in it is wrong.
        served: with *wanted*, the pods with cards that are on the node and not in flight.
        releasing: pods that were served, or failed, so lately that the plugin may still be dropping their lock. Such a
        lock is left alone: old plugins delete what is there by then, whoever has it.
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
class Registering(Protocol):
    """What a dialect adds whose device plugin may write two registers in turns (hami HN-31); the others write one."""

    def register(self, node: Node) -> str:
        """What stands on *node* of its cards, "" where nothing does."""
        ...

    def figures(self, text: str) -> Mapping[str, tuple[int, ...]]:
        """How much each card of the register *text* has, by its id, each figure the better the more; {} if unread."""
        ...

    def held_to(self, node: Node, figures: Mapping[str, tuple[int, ...]]) -> Node:
        """*node* as if its register gave the cards of *figures* no more than these, and named no others."""
        ...


@runtime_checkable
class Lasting(Protocol):
    """What a dialect adds whose register outlasts its plugin, so that another may answer kubelet for its cards."""

    def deserted(self, node: Node) -> Complaint:
        """That *node* has a register and no pod of the plugin, which other nodes have; and what to do."""
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

    def paired(self, tables: Tables) -> frozenset[str]:
        """Of those that count cards the ones by which cards are only given in pairs: 1 means 2."""
        del tables
        return frozenset()

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

    def runtime_classes(self, tables: Tables) -> frozenset[str]:
        """The runtime classes that `completed` gives pods that name none."""
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

    def warnings(self, pod: AnyPod, request: RequestT_contra, tables: Tables) -> Iterator[AdmissionWarning]:
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
        """*cards*, nothing in use, as they would be if those that may get over it by themselves were well."""
        ...

    def well(self, cards: tuple[CardT, ...]) -> frozenset[str]:
        """The names of those of *cards* that are not said to be unhealthy; unsteady ones are well."""
        ...

    def kept_out(self, cards: tuple[CardT, ...], faults: Mapping[str, Fault]) -> tuple[CardT, ...]:
        """*cards*, nothing in use, with nothing new for those that are named in *faults* and could be used."""
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
class Metering(Protocol[CardT_contra, AssignmentT_contra]):
    """Totals of resources that a pod asks for per card; for all other resources the sums are known without it."""

    def sold(self, cards: Sequence[CardT_contra], tables: Tables) -> Mapping[str, int]:
        """How much of these resources healthy *cards* have in all, in their units, whatever is in use."""
        ...

    def metered(self, assignment: AssignmentT_contra, tables: Tables) -> Mapping[str, int]:
        """What *assignment* takes of these resources in all, in their units: what queues and quotas count."""
        ...

    def budgeted(self, tables: Tables) -> Sequence[str]:
        """Those of these resources of which a ResourceQuota says, under ``limits.``, how much a namespace may have."""
        ...


@runtime_checkable
class Worded(Protocol):
    """How a pod writes a wish in this protocol."""

    def worded(self, wish: CardWish, tables: Tables) -> Sequence[Wording]:
        """Every way to write *wish*, one for each kind of card if kinds have resources of their own; () for none."""
        ...
