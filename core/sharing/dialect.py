"""The part of the port that is the same for all dialects of shared cards."""

from collections.abc import Hashable, Mapping, Sequence

from core.port.cards import CardShare, Hole, NodeRoom, Placed, Tally, Want
from core.port.optional import Healing, Identifying, Packing, PackingByCard, Typical
from core.port.refusals import Fault, Reason, Shortfall
from core.settings import Policy
from core.sharing import account, bounds, fit
from core.sharing import card as _card
from core.sharing import request as _request
from core.sharing.account import Assignment
from core.sharing.card import Card
from core.sharing.request import Request
from core.sharing.rules import Rules


class SharedCards(
    Identifying[Card],
    Healing[Card],
    Typical[Card],
    Packing[Card, Request],
    PackingByCard[Card, Request, Assignment],
):
    """The roles of `core.port` that only depend on cards, requests and assignments; see there.

    Attributes:
        rules: what the dialect does differently.
    """

    rules: Rules = Rules()

    def identities(self, cards: Sequence[Card]) -> tuple[str, ...]:
        """Return the uuids."""
        return tuple([one.fixed.uuid for one in cards])

    def healed(self, cards: tuple[Card, ...]) -> tuple[Card, ...]:
        """See `Healing`."""
        return tuple([_card.healed(one) for one in cards])

    def well(self, cards: tuple[Card, ...]) -> frozenset[str]:
        """See `Healing`; cards are named by their uuids."""
        return frozenset([one.fixed.uuid for one in cards if one.fixed.fault is not Reason.UNHEALTHY])

    def kept_out(self, cards: tuple[Card, ...], faults: Mapping[str, Fault]) -> tuple[Card, ...]:
        """See `Healing`."""
        return tuple(
            [
                _card.with_fault(one, *faults[one.fixed.uuid])
                if one.fixed.uuid in faults and one.fixed.fault is None
                else one
                for one in cards
            ]
        )

    def at_best(self, cards: tuple[Card, ...]) -> tuple[Card, ...]:
        """See `Typical`."""
        return tuple([_card.at_best(one) for one in cards])

    def place(self, cards: Sequence[Card], request: Request, policy: Policy) -> Placed[Assignment] | None:
        """See `Places`."""
        return fit.place(self.rules, cards, request, policy)

    def shortfalls(self, cards: Sequence[Card], request: Request) -> tuple[Shortfall, ...]:
        """See `Places`."""
        return fit.shortfalls(self.rules, cards, request)

    def relaxed(self, cards: Sequence[Card], request: Request, reason: Reason, amount: int) -> Request | None:
        """See `Places`."""
        factors = [one.fixed.kind.factor for one in cards]
        return _request.relaxed(request, reason, amount, max(factors, default=1))

    def take(self, cards: tuple[Card, ...], assignment: Assignment) -> tuple[Card, ...]:
        """See `Accounts`."""
        return account.take(cards, assignment)

    def give_back(self, cards: tuple[Card, ...], assignment: Assignment) -> tuple[Card, ...]:
        """See `Accounts`."""
        return account.give_back(cards, assignment)

    def overcommitted(self, cards: Sequence[Card]) -> tuple[str, ...]:
        """See `Accounts`."""
        return account.overcommitted(cards)

    def room(self, cards: Sequence[Card]) -> NodeRoom:
        """See `Bounds`."""
        return bounds.room(self.rules, cards)

    def width(self, request: Request) -> int:
        """See `Bounds`."""
        return _request.width(request)

    def want(self, request: Request, kind: Hashable, policy: Policy) -> Want | None:
        """See `Bounds`."""
        del policy
        return bounds.want(self.rules, request, kind)

    def bounded(self, request: Request, policy: Policy) -> bool:
        """See `Bounds`."""
        return bounds.bounded(request, policy)

    def idle_score(self, request: Request, idle: int, policy: Policy) -> float:
        """See `Bounds`."""
        return self.rules.idle_score(request, idle, policy)

    def holes(self, cards: Sequence[Card]) -> tuple[Hole, ...]:
        """See `Packing`."""
        return bounds.holes(cards)

    def packs(self, request: Request) -> bool:
        """Return whether the pod leaves the order of nodes to the settings."""
        return not request.order.nodes

    def by_card(self, request: Request) -> bool:
        """Return whether one container asks for one card, and the pod leaves the order of cards to the settings."""
        wanted = request.order
        return len(request.asks) == 1 and request.asks[0].number == 1 and not (wanted.policies or wanted.bound)

    def left(self, cards: Sequence[Card], request: Request, slot: int) -> Hole | None:
        """See `PackingByCard`."""
        return fit.left(self.rules, cards[slot], request)

    def alone(self, cards: Sequence[Card], request: Request, slot: int) -> Placed[Assignment]:
        """See `PackingByCard`."""
        return fit.alone(cards, request, slot)

    def tally(self, cards: Sequence[Card]) -> tuple[Tally, ...]:
        """See `Shows`."""
        return account.tally(cards)

    def describe(self, assignment: Assignment, cards: Sequence[Card]) -> tuple[CardShare, ...]:
        """See `Shows`."""
        return account.described(assignment, cards)
