"""The six roles that every dialect implements.

It reads nodes and pods (`Reads`), places (`Places`), bounds the score of a node (`Bounds`), accounts (`Accounts`),
hands over (`HandsOver`) and shows (`Shows`).
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from core.model import AnyPod, Node, Pod
from core.port.cards import CardShare, Held, NodeRoom, Offer, Placed, Tally, Want
from core.port.handoff import InFlight, Stamp
from core.port.refusals import Complaint, Reason, Shortfall, Violation
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


class Reads(Protocol[CardT, RequestT_co, AssignmentT]):
    """Reading nodes and pods."""

    name: DialectName

    def resources(self, tables: Tables) -> frozenset[str]:
        """Return every resource name by which a container requests this dialect's cards."""
        ...

    def uncounted(self, tables: Tables) -> frozenset[str]:
        """Return its resources that are never compared with a node's allocatable."""
        ...

    def assignment_keys(self, tables: Tables) -> frozenset[str]:
        """Return pod annotations that only schedulers and device plugins write."""
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

    def width(self, request: RequestT_contra) -> int:
        """Return how many entries of `NodeRoom` *request* needs at once (its largest container's number), >= 1."""
        ...

    def want(self, request: RequestT_contra, kind: Hashable, policy: Policy) -> Want | None:
        """Return what *request* needs from cards of *kind*; None if such a card can never serve it."""
        ...

    def bounded(self, request: RequestT_contra, policy: Policy) -> bool:
        """Return whether `Want` bounds the score by free amounts; False: `idle_score` bounds it by idle cards alone."""
        ...

    def idle_score(self, request: RequestT_contra, idle: int, policy: Policy) -> float:
        """Return, if `bounded` is False, the highest score of a node with exactly *idle* idle cards.

        Called once for each number that occurs.
        """
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


class HandsOver(Protocol[RequestT_contra, AssignmentT_contra]):
    """Handing a placement over until the device plugin has served it."""

    def annotations(self, assignment: AssignmentT_contra, stamp: Stamp, tables: Tables) -> Mapping[str, str]:
        """Return the annotations of the Binding."""
        ...

    def next_stamp(self, pods: Sequence[Pod], now_s: int) -> int:
        """Return an ordering stamp above those of all pods of the node that still have to be served."""
        ...

    def confusable(self, request: RequestT_contra) -> frozenset[Hashable]:
        """Return by what the device plugin could confuse a pod with *request* (see `InFlight`)."""
        ...

    def in_flight(self, pod: Pod, tables: Tables) -> InFlight | None:
        """Return *pod* as the plugin sees it, bound or not, by any annotations; None if it is never served."""
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


class Dialect(
    Reads[CardT, RequestT, AssignmentT],
    Judging[CardT, RequestT, AssignmentT],
    Accounts[CardT, AssignmentT],
    HandsOver[RequestT, AssignmentT],
    Shows[CardT, AssignmentT],
    Protocol[CardT, RequestT, AssignmentT],
):
    """One device protocol in its roles. Cards, requests and assignments are its own; see the package docstring."""


# For code that does not depend on the dialect and passes its values on unread.
AnyDialect: TypeAlias = Dialect[Any, Any, Any]
AnyJudging: TypeAlias = Judging[Any, Any, Any]
