"""What one dialect does differently from the others; each rule has the default that most dialects use."""

from collections.abc import Sequence

from core.port.cards import Want
from core.port.refusals import Reason, Shortfall
from core.settings import Policy
from core.sharing import account, order
from core.sharing.account import Entry
from core.sharing.card import Card, Kind, Measures
from core.sharing.order import Rank, Ranking
from core.sharing.request import Ask, Order, Request


class Rules:
    """The rules of a dialect for shared cards.

    Attributes:
        several: one container can get several slices of one card.
        by_position: the cards of a container are written by position, whatever their rank.
        measures: what is counted of cards.
        apart: the containers of a pod get different cards; an init container can use those of another container.
        on_one_card: the containers of a pod get the same one card, init containers too.
        restricts: `restricted` says whether a card with shares takes another one.
        chooses: `choose` says which of the cards that fit a container gets; chosen_by: for people, why none.
    """

    several: bool = False
    by_position: bool = False
    measures: Measures = Measures()
    apart: bool = False
    on_one_card: bool = False
    restricts: bool = False
    chooses: bool = False
    chosen_by: str = ""

    def restricted(self, card: Card, memory: int) -> str:
        """Return why *card*, which has shares, must not serve another with *memory*, for people; "" if it may."""
        del card, memory
        return ""

    def choose(self, cards: Sequence[Card], slots: Sequence[int], number: int, wanted: Order) -> Sequence[int] | None:
        """Return which *number* of *slots*, which fit and are in order, a container gets; None if none."""
        del cards, wanted
        return slots[:number] if len(slots) >= number else None

    def refuse(self, card: Card, ask: Ask, request: Request) -> Reason | None:
        """Return why *card* must not serve *ask*, None if it may; called if both have marks, or *ask* a template."""
        del card, ask, request
        return None

    def shortfall(self, card: Card, ask: Ask, request: Request, reason: Reason) -> Shortfall | None:
        """Return why *card* refused *ask* for *reason*; None to say it as all dialects do."""
        del card, ask, request, reason
        return None

    def groups(self, cards: Sequence[Card], ranked: Sequence[tuple[Rank, int]], request: Request) -> list[list[int]]:
        """Return the slots of cards that fit in the order in which they are tried; one container has those of a group.

        *ranked*: the slots with their ranks, in order.
        """
        return order.in_groups(cards, [slot for _, slot in ranked], request.order)

    def together(self, cards: Sequence[Card], request: Request) -> str:
        """Return a text for people on which cards can be one container's; "" if any can."""
        del cards
        return "of one NUMA node" if request.order.bound else ""

    def ranking(self, wanted: Order, policy: Policy) -> Ranking:
        """Return how cards compare."""
        return order.ranking(wanted, policy)

    def fullness(self, cards: Sequence[Card], entries: Sequence[Entry]) -> float:
        """Return the score of a node on which a request gets *entries*, if free amounts bound it; see `Want`."""
        return account.fullness(cards, entries)

    def bound(self, request: Request, kind: Kind, want: Want) -> Want:
        """Return *want* of cards of *kind* with the bound of the score by `fullness`."""
        del request, kind
        return want

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
