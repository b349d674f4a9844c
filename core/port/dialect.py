"""The port: what a dialect answers.

Every dialect chooses cards (`Judging`), and reads, accounts and shows what is there (`Accounting`): sixteen methods.
All else has an answer already (`Usual`).
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, TypeVar

from core.model import AnyPod, Node, NodeName, Pod, ReviewedPod
from core.port.cards import Bound, CardShare, CardWish, Held, Hole, NodeRoom, Offer, Placed, Tally, Want, Wording
from core.port.handoff import InFlight, Stamp
from core.port.refusals import CardFault, Complaint, Reason, Shortfall, Violation
from core.settings import DialectName, Policy, Tables
from core.warnings import AdmissionWarning


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The names of one protocol under one configuration; what is left empty, it does not have.

    resources: by which containers request its cards. uncounted: those that are never compared with a node's
    allocatable. assignment_keys: pod annotations that only schedulers and device plugins write. repeats: by those that
    HAMi's webhook writes when a pod is created, the resource whose amount they repeat. preferences:
    annotations by which users select cards, which may change until the pod is bound.
    counts: by each resource for a part of a card, the resource that counts cards. fills: by the latter, the default
    count if it is not 1; 0 for none. paired: resources that count cards which are allocated only in pairs: 1 means 2.
    memories: by each resource that counts cards, the resource for the memory of each. units: by each resource for
    memory that is a number of units, the MiB of one; ``1Gi`` of it is rejected. budgeted: metered resources that a
    ResourceQuota can limit for a namespace under ``limits.``.
    totals: resources for a part of a card whose amount is that of all cards of a container together.
    quantities: resources with amounts such as ``4Gi``, with the MiB of a unit without suffix; all others are whole
    numbers.
    runtime_classes: those that its pods get if they name none.
    beginnings: how further annotations and resources begin by which a bound pod can hold its cards. A pod with none of
    these, none of *assignment_keys* and none of *resources* does not concern the protocol (`Catalog.concerned`).
    """

    resources: frozenset[str] = frozenset()
    uncounted: frozenset[str] = frozenset()
    assignment_keys: frozenset[str] = frozenset()
    repeats: Mapping[str, str] = field(default_factory=dict)
    preferences: frozenset[str] = frozenset()
    counts: Mapping[str, str] = field(default_factory=dict)
    fills: Mapping[str, int] = field(default_factory=dict)
    paired: frozenset[str] = frozenset()
    memories: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, int] = field(default_factory=dict)
    budgeted: tuple[str, ...] = ()
    totals: frozenset[str] = frozenset()
    quantities: Mapping[str, int] = field(default_factory=dict)
    runtime_classes: frozenset[str] = frozenset()
    beginnings: tuple[str, ...] = ()


# A dialect's own values; of protocols that only receive them, or only return them.
CardT = TypeVar("CardT")
RequestT = TypeVar("RequestT")
AssignmentT = TypeVar("AssignmentT")
_CardT_contra = TypeVar("_CardT_contra", contravariant=True)
_RequestT_contra = TypeVar("_RequestT_contra", contravariant=True)
_RequestT_co = TypeVar("_RequestT_co", covariant=True)


class Judging(Protocol[_CardT_contra, RequestT, AssignmentT]):
    """Choosing cards of a node, and bounding its score so that few nodes are judged; also for pods without cards."""

    def place(self, cards: Sequence[_CardT_contra], request: RequestT, policy: Policy) -> Placed[AssignmentT] | None:
        """Return the cards of one node that *request* gets under *policy*, or None; deterministic, reads only."""

    def stands(self, cards: Sequence[_CardT_contra], request: RequestT, assignment: AssignmentT) -> bool:
        """Return whether *cards*, of which *request* was promised *assignment*, can still serve it.

        The cards must be able to give these shares, and none may hold more than it has. Pods that came later and may
        join are no obstacle, because some rules depend on who was first. A better card is no reason to move.
        """

    def shortfalls(self, cards: Sequence[_CardT_contra], request: RequestT) -> tuple[Shortfall, ...]:
        """Return why `place` returns None, card by card with numbers; at least one entry whenever it does."""

    def relaxed(
        self, cards: Sequence[_CardT_contra], request: RequestT, reason: Reason, amount: int
    ) -> RequestT | None:
        """Return *request* with at most *amount* for each container of what *reason* counts; None: impossible.

        reason: MEMORY, CORES or CARD_COUNT, with amount in the unit of that `Shortfall`, for *cards* of one node; or
        one of `core.port.refusals.WISHES`, which is dropped, whatever the amount. The caller judges whether it fits.
        """

    def room(self, cards: Sequence[_CardT_contra]) -> NodeRoom:
        """Return the summary of a node's cards for bounds."""

    def want(self, request: RequestT, kind: Hashable, policy: Policy) -> Want | None:
        """Return what *request* needs from cards of *kind*; None if such a card can never serve it."""

    def bound(self, request: RequestT, policy: Policy) -> Bound:
        """Return how many cards *request* needs at once, and what bounds its score."""


class Accounting(Protocol[CardT, _RequestT_co, AssignmentT]):
    """Reading nodes and pods, accounting the use of cards, and showing it to people."""

    name: DialectName

    def names(self, tables: Tables) -> Names:
        """Return its resources, annotations and other names."""

    def offer(self, node: Node, tables: Tables) -> Offer[CardT] | Complaint | None:
        """Return the cards of *node*; None if it does not use this protocol; a complaint if its data is unusable."""

    def request(self, pod: AnyPod, tables: Tables) -> _RequestT_co | tuple[Violation, ...] | None:
        """Return what *pod* requests in this protocol; None if nothing; violations if the request is invalid."""

    def held(self, pod: Pod, cards: Sequence[CardT], tables: Tables) -> Held[AssignmentT] | None:
        """Return what a *pod* bound by any scheduler holds by its annotations; None if nothing of this protocol.

        Only asked of pods that `names` concerns, as `Usual.in_flight` is.
        """

    def take(self, cards: tuple[CardT, ...], assignment: AssignmentT) -> tuple[CardT, ...]:
        """Return the cards after *assignment* is added; the order of calls does not matter."""

    def give_back(self, cards: tuple[CardT, ...], assignment: AssignmentT) -> tuple[CardT, ...]:
        """Return the cards after *assignment* is released; exactly undoes `take`."""

    def overcommitted(self, cards: Sequence[CardT]) -> tuple[str, ...]:
        """Return the cards that hold more than they have, each as a sentence with numbers."""

    def tally(self, cards: Sequence[CardT]) -> tuple[Tally, ...]:
        """Return every card with its use, for people; card ids as in `describe`."""

    def describe(self, assignment: AssignmentT, cards: Sequence[CardT]) -> tuple[CardShare, ...]:
        """Return what *assignment* holds, card by card, for people."""


class CardStock(Protocol[_RequestT_contra]):
    """The unused cards of a dialect in the whole cluster."""

    def types(self) -> frozenset[str]:
        """Return the names of their types."""

    def takes(self, request: _RequestT_contra) -> bool | None:
        """Return whether an empty node takes *request*; None if uncertain."""


class Usual(Accounting[CardT, RequestT, AssignmentT], Protocol[CardT, RequestT, AssignmentT]):
    """What most protocols answer alike; a dialect writes only what is special about its own.

    So, by default: kubelet tells the device plugin which devices a container gets; cards have no unique ids, and none
    is reported unhealthy; they serve requests in one mode; and policy `pack` is binpack.
    """

    # ------------------------------------------------------------------ handing over

    def annotations(self, assignment: AssignmentT, stamp: Stamp, tables: Tables) -> Mapping[str, str]:
        """Return the annotations of the Binding."""
        return {}

    def labels(self, node: NodeName) -> Mapping[str, str]:
        """Return the labels of a Binding to *node*; API servers before Kubernetes 1.35 ignore them."""
        return {}

    def next_stamp(self, pods: Sequence[Pod], now_s: int) -> int:
        """Return an ordering stamp above those of all pods of the node that still have to be served."""
        return now_s

    def confusable(self, request: RequestT) -> frozenset[Hashable]:
        """Return by what the device plugin could confuse a pod with *request* (see `InFlight`)."""
        return frozenset()

    def in_flight(self, pod: Pod, tables: Tables) -> InFlight | None:
        """Return *pod* as the plugin sees it, bound or not, by any annotations; None if it is never served."""
        return None

    # ------------------------------------------------------------------ names and health of cards

    def identities(self, cards: Sequence[CardT]) -> tuple[str, ...]:
        """Return the globally unique ids of *cards*; two nodes with the same id cannot both be right."""
        return ()

    def at_best(self, cards: tuple[CardT, ...]) -> tuple[CardT, ...]:
        """Return the unused *cards*, all present and healthy, with equal names for equal cards."""
        return cards

    def healed(self, cards: tuple[CardT, ...]) -> tuple[CardT, ...]:
        """Return the unused *cards* as if those that may recover by themselves were healthy."""
        return cards

    def well(self, cards: tuple[CardT, ...]) -> frozenset[str] | None:
        """Return the names of *cards* that are not reported unhealthy, unsteady ones included; None without names."""
        return None

    def kept_out(self, cards: tuple[CardT, ...], faults: Mapping[str, CardFault]) -> tuple[CardT, ...]:
        """Return the unused *cards*, with those in *faults* that are usable closed for new pods."""
        return cards

    # ------------------------------------------------------------------ several modes

    def ways(self, request: RequestT) -> tuple[tuple[str, RequestT], ...]:
        """Return every mode in which cards can serve *request*, with it limited to that; () if it names one."""
        return ()

    # ------------------------------------------------------------------ choosing by expected loss (policy `pack`)

    def holes(self, cards: Sequence[CardT]) -> tuple[Hole, ...]:
        """Return the unsold rests of *cards*, in order; indistinguishable cards may be one entry."""
        return ()

    def packs(self, request: RequestT) -> bool:
        """Return whether nodes are chosen by `holes`: the pod has no order of nodes of its own."""
        return False

    def left(self, cards: Sequence[CardT], request: RequestT) -> Sequence[Hole | None] | None:
        """Return the rest of each card after *request* is placed there, None of a card that does not take it.

        Nothing for a request that is not for one card, or that has its own order of cards.
        """
        return None

    def alone(self, cards: Sequence[CardT], request: RequestT, slot: int) -> Placed[AssignmentT] | None:
        """Return what *request* gets of the card at *slot*, if `left` has a rest of it."""
        return None

    # ------------------------------------------------------------------ totals of what pods request for each card

    def sold(self, cards: Sequence[CardT], tables: Tables) -> Mapping[str, int]:
        """Return how much of metered resources healthy *cards* have in total, in their units, whatever is in use."""
        return {}

    def metered(self, assignment: AssignmentT, tables: Tables) -> Mapping[str, int]:
        """Return the totals of resources that *assignment* uses per card, in their units, as queues and quotas count.

        Other resources need only a sum.
        """
        return {}

    # ------------------------------------------------------------------ admission, and words for people

    def completed(
        self, pod: ReviewedPod, request: RequestT, tables: Tables
    ) -> tuple[ReviewedPod, tuple[AdmissionWarning, ...]]:
        """Return *pod* with what it needs besides its request, whatever its scheduler; idempotent."""
        return pod, ()

    def recognised(self, request: RequestT, tables: Tables) -> frozenset[str]:
        """Return the preferences of any dialect that are read, or rejected by name, for a pod with *request*."""
        return self.names(tables).preferences

    def warnings(self, pod: AnyPod, request: RequestT, tables: Tables) -> Iterable[AdmissionWarning]:
        """Return warnings for parts of the final, normalized *pod* without effect, or with another than suggested."""
        return ()

    def advice(
        self, pod: AnyPod, request: RequestT, tables: Tables, stock: CardStock[RequestT] | None
    ) -> Iterable[AdmissionWarning]:
        """Return what *pod* with *request* gets from *stock*, None if unknown, if it is more than its owner wrote."""
        return ()

    def worded(self, wish: CardWish, tables: Tables) -> Sequence[Wording]:
        """Return every form of *wish*, one per kind of card if kinds have their own resources; () if there is none."""
        return ()


class Dialect(
    Judging[CardT, RequestT, AssignmentT],
    Usual[CardT, RequestT, AssignmentT],
    Protocol[CardT, RequestT, AssignmentT],
):
    """One device protocol; see the package docstring."""


# For code that does not depend on the dialect and passes its values on unread.
AnyDialect: TypeAlias = Dialect[Any, Any, Any]
AnyJudging: TypeAlias = Judging[Any, Any, Any]
