"""What is special about the share plugin's cards.

Source: protocol reference, nvidia 3.11 to 3.13; the lowest index first unless a policy is asked for (S30, S31).
"""

from collections.abc import Sequence

from core.settings import Policy
from core.sharing.account import Entry
from core.sharing.card import Card, Measures
from core.sharing.order import Ranking
from core.sharing.request import Order, Request
from core.sharing.rules import Rules


class MemoryRules(Rules):
    """The rules of cards that are shared by memory alone."""

    measures = Measures(cores=False)

    def ranking(self, wanted: Order, policy: Policy) -> Ranking:
        """Return the order of *policy*: the fullest, the one with the fewest pods, or the first."""
        del wanted
        match policy:
            case Policy.BINPACK:
                return lambda _, card: (-card.used_memory,)
            case Policy.SPREAD:
                return lambda _, card: (card.used_slots,)
            case _:
                return lambda slot, _: (slot,)

    def score(self, cards: Sequence[Card], entries: Sequence[Entry], request: Request, policy: Policy) -> float:
        """Return whether the pod gets an idle card."""
        del request
        return 100.0 if policy is Policy.SPREAD and not cards[entries[0].slot].used_slots else 0.0


class WholeRules(MemoryRules):
    """The rules of cards that are sold whole: idle ones are alike, and no node is better than another."""

    measures = Measures(unit="card", cores=False, whole=True)

    def score(self, cards: Sequence[Card], entries: Sequence[Entry], request: Request, policy: Policy) -> float:
        """Return 0."""
        del cards, entries, request, policy
        return 0.0

    def idle_score(self, request: Request, idle: int, policy: Policy) -> float:
        """Return 0."""
        del request, idle, policy
        return 0.0
