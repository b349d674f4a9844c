"""What one dialect does differently from the others; each rule has the default that most dialects use."""

from collections.abc import Sequence

from core.port.refusals import Reason
from core.settings import Policy
from core.sharing import order
from core.sharing.account import Entry
from core.sharing.card import Card, Measures
from core.sharing.order import Ranking
from core.sharing.request import Order, Request


class Rules:
    """The rules of a dialect for shared cards.

    Attributes:
        several: one container can get several slices of one card.
        by_position: the cards of a container are written by position, whatever their rank.
        measures: what is counted of cards.
    """

    several: bool = False
    by_position: bool = False
    measures: Measures = Measures()

    def refuse(self, card: Card, request: Request) -> Reason | None:
        """Return why *card* must not serve *request*, None if it may; called only if both have marks."""
        del card, request
        return None

    def detail(self, reason: Reason, request: Request) -> str:
        """Return a text for people on why `refuse` returned *reason*."""
        del reason, request
        return ""

    def ranking(self, wanted: Order, policy: Policy) -> Ranking:
        """Return how cards compare."""
        return order.ranking(wanted, policy)

    def score(self, cards: Sequence[Card], entries: Sequence[Entry], request: Request, policy: Policy) -> float:
        """Return the score of a node on which *request* gets *entries*, if free amounts do not bound it."""
        del entries
        idle = sum([not card.used_slots and card.fixed.fault is None and not card.unread for card in cards])
        return self.idle_score(request, idle, policy)

    def idle_score(self, request: Request, idle: int, policy: Policy) -> float:
        """Return the highest score of a node with *idle* idle cards, if free amounts do not bound it."""
        asked = sum([ask.number for ask in request.asks])
        match request.order.nodes or str(policy):
            case order.SPREAD:
                return 100.0 * min(idle, asked)
            case order.BINPACK:
                # Nodes whose numbers of idle cards have equal bit lengths tie; the rest of their use decides.
                return 100.0 * asked / (1 + idle.bit_length())
            case _:
                return 0.0
