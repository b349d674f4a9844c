"""The port: what a dialect answers.

Every dialect reads nodes and pods (`Reads`), places (`Places`), bounds the score of a node (`Bounds`), accounts
(`Accounts`) and shows (`Shows`): fifteen methods. All else has an answer already (`Usual`).
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from core.model import AnyPod, Node, Pod
from core.port.cards import Bound, CardShare, CardWish, Held, Hole, NodeRoom, Offer, Placed, Tally, Want, Wording
from core.port.handoff import InFlight, Stamp
from core.port.names import Names
from core.port.refusals import Complaint, Fault, Reason, Shortfall, Violation
from core.port.typevars import (
    AssignmentT,
    AssignmentT_contra,
    CardT,
    CardT_contra,
    RequestT,
    RequestT_co,
    RequestT_contra,
)
from core.settings import DialectName, Policy
from core.tables import Tables
from core.warnings import AdmissionWarning


class Reads(Protocol[CardT, RequestT_co, AssignmentT]):
    """Reading nodes and pods."""

    name: DialectName

    def names(self, tables: Tables) -> Names:
        """Return its resources, annotations and other names."""
        ...

    def offer(self, node: Node, tables: Tables) -> Offer[CardT] | Complaint | None:
        """Return the cards of *node*; None if it does not use this protocol; a complaint if its data is unusable."""
        ...

    def request(self, pod: AnyPod, tables: Tables) -> RequestT_co | tuple[Violation, ...] | None:
        """Return what *pod* requests in this protocol; None if nothing; violations if the request is invalid."""
        ...

    def held(self, pod: Pod, cards: Sequence[CardT], tables: Tables) -> Held[AssignmentT] | None:
        """Return what a *pod* bound by any scheduler holds by its annotations; None if nothing of this protocol."""
        ...


class Places(Protocol[CardT_contra, RequestT, AssignmentT]):
    """Choosing cards of a node for a request, and explaining refusals."""

    def place(self, cards: Sequence[CardT_contra], request: RequestT, policy: Policy) -> Placed[AssignmentT] | None:
        """Return the cards of one node that *request* gets under *policy*, or None; deterministic, reads only."""
        ...

    def shortfalls(self, cards: Sequence[CardT_contra], request: RequestT) -> tuple[Shortfall, ...]:
        """Return why `place` returns None, card by card with numbers; at least one entry whenever it does."""
        ...

    def relaxed(self, cards: Sequence[CardT_contra], request: RequestT, reason: Reason, amount: int) -> RequestT | None:
        """Return *request* with at most *amount* for each container of what *reason* counts; None: impossible.

        reason: MEMORY, CORES or CARD_COUNT, with amount in the unit of that `Shortfall`, for *cards* of one node; or
        one of `core.port.refusals.WISHES`, which is dropped, whatever the amount. The caller judges whether it fits.
        """
        ...


class Bounds(Protocol[CardT_contra, RequestT_contra]):
    """Bounding the score of a node, so that not every node has to be judged."""

    def room(self, cards: Sequence[CardT_contra]) -> NodeRoom:
        """Return the summary of a node's cards for bounds."""
        ...

    def want(self, request: RequestT_contra, kind: Hashable, policy: Policy) -> Want | None:
        """Return what *request* needs from cards of *kind*; None if such a card can never serve it."""
        ...

    def bound(self, request: RequestT_contra, policy: Policy) -> Bound:
        """Return how many cards *request* needs at once, and what bounds its score."""
        ...


class Accounts(Protocol[CardT, AssignmentT_contra]):
    """Accounting the use of cards."""

    def take(self, cards: tuple[CardT, ...], assignment: AssignmentT_contra) -> tuple[CardT, ...]:
        """Return the cards after *assignment* is added; the order of calls does not matter."""
        ...

    def give_back(self, cards: tuple[CardT, ...], assignment: AssignmentT_contra) -> tuple[CardT, ...]:
        """Return the cards after *assignment* is released; exactly undoes `take`."""
        ...

    def overcommitted(self, cards: Sequence[CardT]) -> tuple[str, ...]:
        """Return the cards that hold more than they have, each as a sentence with numbers."""
        ...


class Shows(Protocol[CardT_contra, AssignmentT_contra]):
    """Showing cards and holdings to people."""

    def tally(self, cards: Sequence[CardT_contra]) -> tuple[Tally, ...]:
        """Return every card with its use, for people; card ids as in `describe`."""
        ...

    def describe(self, assignment: AssignmentT_contra, cards: Sequence[CardT_contra]) -> tuple[CardShare, ...]:
        """Return what *assignment* holds, card by card, for people."""
        ...


class Judging(
    Places[CardT_contra, RequestT, AssignmentT],
    Bounds[CardT_contra, RequestT],
    Protocol[CardT_contra, RequestT, AssignmentT],
):
    """Choosing cards and comparing nodes; also used for pods without cards."""


class CardStock(Protocol[RequestT_contra]):
    """The unused cards of a dialect in the whole cluster."""

    def types(self) -> frozenset[str]:
        """Return the names of their types."""
        ...

    def takes(self, request: RequestT_contra) -> bool | None:
        """Return whether an empty node takes *request*; None if uncertain."""
        ...


class Usual(Reads[CardT, RequestT, AssignmentT], Protocol[CardT, RequestT, AssignmentT]):
    """What most protocols answer alike; a dialect writes only what is special about its own.

    So, by default: kubelet tells the device plugin which devices a container gets; cards have no unique ids, and none
    is reported unhealthy; they serve requests in one mode; and policy `pack` is binpack.
    """

    # ------------------------------------------------------------------ handing over

    def annotations(self, assignment: AssignmentT, stamp: Stamp, tables: Tables) -> Mapping[str, str]:
        """Return the annotations of the Binding."""
        del assignment, stamp, tables
        return {}

    def next_stamp(self, pods: Sequence[Pod], now_s: int) -> int:
        """Return an ordering stamp above those of all pods of the node that still have to be served."""
        del pods
        return now_s

    def confusable(self, request: RequestT) -> frozenset[Hashable]:
        """Return by what the device plugin could confuse a pod with *request* (see `InFlight`)."""
        del request
        return frozenset()

    def in_flight(self, pod: Pod, tables: Tables) -> InFlight | None:
        """Return *pod* as the plugin sees it, bound or not, by any annotations; None if it is never served."""
        del pod, tables
        return None

    # ------------------------------------------------------------------ names and health of cards

    def identities(self, cards: Sequence[CardT]) -> tuple[str, ...]:
        """Return the globally unique ids of *cards*; two nodes with the same id cannot both be right."""
        del cards
        return ()

    def at_best(self, cards: tuple[CardT, ...]) -> tuple[CardT, ...]:
        """Return the unused *cards*, all present and healthy, with equal names for equal cards."""
        return cards

    def healed(self, cards: tuple[CardT, ...]) -> tuple[CardT, ...]:
        """Return the unused *cards* as if those that may recover by themselves were healthy."""
        return cards

    def well(self, cards: tuple[CardT, ...]) -> frozenset[str] | None:
        """Return the names of *cards* that are not reported unhealthy, unsteady ones included; None without names."""
        del cards
        return None

    def kept_out(self, cards: tuple[CardT, ...], faults: Mapping[str, Fault]) -> tuple[CardT, ...]:
        """Return the unused *cards*, with those in *faults* that are usable closed for new pods."""
        del faults
        return cards

    # ------------------------------------------------------------------ several modes

    def ways(self, request: RequestT) -> tuple[tuple[str, RequestT], ...]:
        """Return every mode in which cards can serve *request*, with it limited to that; () if it names one."""
        del request
        return ()

    # ------------------------------------------------------------------ choosing by expected loss (policy `pack`)

    def holes(self, cards: Sequence[CardT]) -> tuple[Hole, ...]:
        """Return the unsold rests of *cards*, in order; indistinguishable cards may be one entry."""
        del cards
        return ()

    def packs(self, request: RequestT) -> bool:
        """Return whether nodes are chosen by `holes`: the pod has no order of nodes of its own."""
        del request
        return False

    def by_card(self, request: RequestT) -> bool:
        """Return whether *request* is for one card, and each is tried: only then are `left` and `alone` called."""
        del request
        return False

    def left(self, cards: Sequence[CardT], request: RequestT, slot: int) -> Hole | None:
        """Return the rest of the card at *slot* after *request* is placed there; None if it does not take it."""
        del cards, request, slot
        return None

    def alone(self, cards: Sequence[CardT], request: RequestT, slot: int) -> Placed[AssignmentT] | None:
        """Return what *request* gets of the card at *slot*; None if it does not take it."""
        del cards, request, slot
        return None

    # ------------------------------------------------------------------ totals of what pods request for each card

    def sold(self, cards: Sequence[CardT], tables: Tables) -> Mapping[str, int]:
        """Return how much of metered resources healthy *cards* have in total, in their units, whatever is in use."""
        del cards, tables
        return {}

    def metered(self, assignment: AssignmentT, tables: Tables) -> Mapping[str, int]:
        """Return the totals of resources that *assignment* uses per card, in their units, as queues and quotas count.

        Other resources need only a sum.
        """
        del assignment, tables
        return {}

    # ------------------------------------------------------------------ admission, and words for people

    def completed(self, pod: Pod, request: RequestT, tables: Tables) -> tuple[Pod, tuple[AdmissionWarning, ...]]:
        """Return *pod* with what it needs besides its request, whatever its scheduler; idempotent."""
        del request, tables
        return pod, ()

    def recognised(self, request: RequestT, tables: Tables) -> frozenset[str]:
        """Return the preferences of any dialect that are read, or rejected by name, for a pod with *request*."""
        del request
        return self.names(tables).preferences

    def warnings(self, pod: AnyPod, request: RequestT, tables: Tables) -> Iterable[AdmissionWarning]:
        """Return warnings for parts of the final, normalized *pod* without effect, or with another than suggested."""
        del pod, request, tables
        return ()

    def advice(
        self, request: RequestT, tables: Tables, stock: CardStock[RequestT] | None
    ) -> Iterable[AdmissionWarning]:
        """Return what the owner of a pod with *request* should know about its result from *stock*, None if unknown."""
        del request, tables, stock
        return ()

    def worded(self, wish: CardWish, tables: Tables) -> Sequence[Wording]:
        """Return every form of *wish*, one per kind of card if kinds have their own resources; () if there is none."""
        del wish, tables
        return ()


class Dialect(
    Judging[CardT, RequestT, AssignmentT],
    Accounts[CardT, AssignmentT],
    Shows[CardT, AssignmentT],
    Usual[CardT, RequestT, AssignmentT],
    Protocol[CardT, RequestT, AssignmentT],
):
    """One device protocol in its roles. Cards, requests and assignments are its own; see the package docstring."""


# For code that does not depend on the dialect and passes its values on unread.
AnyDialect: TypeAlias = Dialect[Any, Any, Any]
AnyJudging: TypeAlias = Judging[Any, Any, Any]
