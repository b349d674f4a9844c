"""What one dialect does differently from the others; each rule has the default that most dialects use."""

from collections.abc import Mapping, Sequence
from typing import Final

from core.port.cards import Want
from core.port.refusals import Reason, Shortfall
from core.settings import Policy
from core.sharing import account, order
from core.sharing.account import Entry
from core.sharing.card import Card, Kind, Measures
from core.sharing.order import Rank, Ranking
from core.sharing.request import Ask, Order, Request

# How Volcano's scheduler compares cards: the fullest, or the one with the fewest shares.
BY_USE: Final[Mapping[Policy, Ranking]] = {
    Policy.BINPACK: lambda _, card: (-card.used_memory,),
    Policy.SPREAD: lambda _, card: (card.used_slots,),
}


class Rules:
    """The rules of a dialect for shared cards.

    Attributes:
        several: one container can get several slices of one card.
        by_position: the cards of a container are written by position, whatever their rank.
        measures: what is counted of cards.
        apart: the containers of a pod get different cards; an init container can use those of another container.
        on_one_card: the containers of a pod get the same one card, init containers too.
        restricts: `restricted` says whether a card with shares takes another one.
        chooses: `choose` says which of the cards that fit a container gets, and `unchosen` why none.
        serves_full: `beside_full` says who may join a card of which all cores are promised.
    """

    several: bool = False
    by_position: bool = False
    measures: Measures = Measures()
    apart: bool = False
    on_one_card: bool = False
    restricts: bool = False
    chooses: bool = False
    serves_full: bool = False

    def beside_full(self, request: Request) -> bool:
        """Return whether *request*, which asks for no cores, may join a card of which all cores are promised."""
        return False

    def restricted(self, card: Card, memory: int) -> str:
        """Return why *card*, which has shares, must not serve another with *memory*, for people; "" if it may."""
        return ""

    def own_marks(self, request: Request) -> tuple[str, ...]:
        """Return which marks of a pod are on its cards while its other containers get theirs; usually none."""
        return ()

    def choose(self, cards: Sequence[Card], slots: Sequence[int], ask: Ask, request: Request) -> Sequence[int] | None:
        """Return which of *slots*, which fit and are in order, the container of *ask* gets; None if none."""
        return slots[: ask.number] if len(slots) >= ask.number else None

    def unchosen(self, cards: Sequence[Card], ask: Ask) -> tuple[Reason, str]:
        """Return why `choose` returned None for *ask* although enough of *cards* fit, and a text about it."""
        return Reason.RULE, ""

    def counted(self, ask: Ask) -> tuple[int, str]:
        """Return what *ask* counts, for people: how much of it each of its cards is, and the unit."""
        return 1, "cards"

    def refuse(self, card: Card, ask: Ask, request: Request) -> Reason | None:
        """Return why *card* must not serve *ask*, None if it may; called if both have marks, or *ask* a template."""
        return None

    def shortfall(self, card: Card, ask: Ask, request: Request, reason: Reason) -> Shortfall | None:
        """Return why *card* refused *ask* for *reason*; None to say it as all dialects do."""
        return None

    def groups(self, cards: Sequence[Card], ranked: Sequence[tuple[Rank, int]], request: Request) -> list[list[int]]:
        """Return the slots of cards that fit in the order in which they are tried; one container has those of a group.

        *ranked*: the slots with their ranks, in order.
        """
        return order.in_groups(cards, [slot for _, slot in ranked], request.order)

    def together(self, cards: Sequence[Card], request: Request) -> str:
        """Return a text for people on which cards can be one container's; "" if any can."""
        return "of one NUMA node" if request.order.bound else ""

    def ranking(self, wanted: Order, policy: Policy) -> Ranking | None:
        """Return how cards compare; None if each container gets the first ones that fit, whatever else is asked."""
        return order.ranking(wanted, policy)

    def fullness(self, cards: Sequence[Card], entries: Sequence[Entry]) -> float:
        """Return the score of a node on which a request gets *entries*, if free amounts bound it; see `Want`."""
        return account.fullness(cards, entries)

    def prefers(self, request: Request) -> bool:
        """Return whether `preference` counts for *request*: nothing bounds it, so all changed nodes are judged."""
        return False

    def preference(self, cards: Sequence[Card], entries: Sequence[Entry], request: Request, word: str) -> float:
        """Return what *entries* add to the score of a node if nodes compare by *word*, besides what is free."""
        return 0.0

    def bound(self, request: Request, kind: Kind, want: Want) -> Want:
        """Return *want* of cards of *kind* with the bound of the score by `fullness`."""
        return want

    def score(self, cards: Sequence[Card], entries: Sequence[Entry], request: Request, policy: Policy) -> float:
        """Return the score of a node on which *request* gets *entries*, if free amounts do not bound it."""
        idle = sum([not card.used_slots and card.fixed.fault is None and not card.unread for card in cards])
        return self.idle_score(request, idle, policy)

    def idle_score(self, request: Request, idle: int, policy: Policy) -> float:
        """Return the highest score of a node with *idle* idle cards, if free amounts do not bound it."""
        asked = sum([ask.number for ask in request.asks])
        match order.of_nodes(request.order, policy):
            case order.SPREAD:
                return 100.0 * min(idle, asked)
            case order.BINPACK:
                # Nodes whose numbers of idle cards have equal bit lengths tie; the rest of their use decides.
                return 100.0 * asked / (1 + idle.bit_length())
            case _:
                return 0.0
