"""What every dialect answers, in six roles.

It reads nodes and pods (`Reads`), places (`Places`), bounds how good a node could be (`Bounds`), accounts (`Accounts`),
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

        reason: MEMORY, CORES or CARD_COUNT, amount in the unit of that `Shortfall`, for *cards* of one node; or one of
        `core.port.refusals.WISHES`, which is left out, whatever the amount. The caller judges whether it fits.
        """
        ...


class Bounds(Protocol[CardT_contra, RequestT_contra]):
    """How good a node could be at best, so that not every node has to be looked at."""

    def room(self, cards: Sequence[CardT_contra]) -> NodeRoom:
        """What bounds need to know of a node's cards."""
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
        """With `bounded` False: the highest score that a node with exactly *idle* idle cards can reach.

        Asked once for each number that a node has.
        """
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
