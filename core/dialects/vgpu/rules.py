"""What is special about cards of the vGPU protocol: how they compare and score, and pods that keep apart.

Source: protocol reference, nvidia 3.5, 3.8, 3.9, 3.13.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from core.dialects.vgpu import keys
from core.port.refusals import Reason, Shortfall
from core.settings import Policy
from core.sharing import account
from core.sharing.account import Entry
from core.sharing.card import MIG, Card
from core.sharing.order import BY_USE, Ranking
from core.sharing.request import Ask, Order, Request
from core.sharing.rules import Rules

_GROUP: Final = "group "
_RULE: Final = "rule "
_UNORDERED: Final = f"the node's device plugin may change the order of its cards; name them with {keys.USE_UUID}"


def marks_of(group: str, rules: Sequence[int]) -> tuple[str, ...]:
    """Return what a pod of pod group *group*, "" without one, that matches the exclusive *rules* carries to cards."""
    return tuple(sorted([_GROUP + group] * bool(group) + [f"{_RULE}{one}" for one in rules]))


def without_group(marks: tuple[str, ...]) -> tuple[str, ...]:
    """Return *marks* of a share of nothing, which keeps no pod of its group away."""
    return tuple([one for one in marks if not one.startswith(_GROUP)])


class VgpuRules(Rules):
    """The rules of the vGPU protocol; limits are applied in bus order in a container, so entries are too (S33)."""

    by_position = True

    def refuse(self, card: Card, ask: Ask, request: Request) -> Reason | None:
        """Return that a pod of the same group, or of the same exclusive rule, is on the card."""
        met = set(request.marks).intersection(card.marks)
        if any(one.startswith(_RULE) for one in met) and card.fixed.kind.mode != MIG:
            return Reason.RULE
        return Reason.GROUP if any(one.startswith(_GROUP) for one in met) else None

    def shortfall(self, card: Card, ask: Ask, request: Request, reason: Reason) -> Shortfall | None:
        """See `Rules`."""
        match reason:
            case Reason.GROUP:
                group = next((one for one in request.marks if one.startswith(_GROUP)), _GROUP)
                detail = f"a pod of {group} is on the card"
            case Reason.RULE:
                detail = "a pod of the same exclusive rule is on the card"
            case Reason.UNORDERED:
                detail = _UNORDERED
            case _:
                return None
        return Shortfall(card.fixed.uuid, reason, detail=detail)

    def ranking(self, wanted: Order, policy: Policy) -> Ranking:
        """Return the order of upstream: the fullest, the one with the fewest shares, or the last."""
        return BY_USE.get(policy, lambda slot, _: (-slot,))

    def score(self, cards: Sequence[Card], entries: Sequence[Entry], request: Request, policy: Policy) -> float:
        """Return the sum of what the containers score one after the other."""
        if policy not in (Policy.BINPACK, Policy.SPREAD):
            return 0.0
        total = 0.0
        filled = tuple(cards)
        for _, some in groupby(entries, key=lambda one: one.container):
            shares = list(some)
            if policy is Policy.SPREAD:
                # A card scores by what it was before it took the share (S10).
                total += 100.0 * sum([not filled[one.slot].used_slots for one in shares])
            else:
                # Slices can fill a card beyond its memory; no bound of several containers knows by how much.
                total += min(account.fullness(filled, shares), 100.0 * len(shares))
            if len(request.asks) > 1:
                filled = account.take(filled, account.assigned(0, shares))
        return total

    def idle_score(self, request: Request, idle: int, policy: Policy) -> float:
        """See `Rules`; slices can fill cards to the last."""
        if policy is Policy.BINPACK:
            return 100.0 * sum([ask.number for ask in request.asks])
        return super().idle_score(request, idle, policy)
