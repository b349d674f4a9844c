"""Whole cards: ``volcano.sh/gpu-number``.

Source: protocol reference, nvidia 2.3, 3.12; idle cards in ascending order, and the number alone makes a node (S30).
"""

from collections.abc import Hashable, Sequence
from typing import Final

from core.dialects.gpushare.cards import Assignment, Card, Kind, unit_of
from core.dialects.gpushare.grammar import MAX_CARDS, NUMBER_RESOURCE, Request, relaxed
from core.dialects.gpushare.grammar import unit_of as unit_of_request
from core.dialects.gpushare.mode import Mode
from core.errors import quoted
from core.model import AnyPod
from core.names import WISHED_INDICES
from core.port.cards import CardShare, CardWish, Hole, NodeRoom, Placed, Tally, Want, Wording
from core.port.refusals import Reason, Shortfall, Violation
from core.port.spec import DialectSpec
from core.selection import ANY_CARD, CardSelection
from core.settings import DialectName, Policy
from core.tables import Tables


class GpuNumber(Mode):
    """`Dialect` of core.port for the share plugin's number mode."""

    name = DialectName("gpu_number")
    resource = NUMBER_RESOURCE

    def worded(self, wish: CardWish, tables: Tables) -> Sequence[Wording]:
        """See `core.port.optional.Worded`."""
        del tables
        return (Wording({NUMBER_RESOURCE: str(wish.cards)}),) if wish.is_whole and not wish.types else ()

    def violations(self, asked: Request, pod: AnyPod) -> tuple[Violation, ...]:
        """Why *pod* may not ask what it asks, an index list of another length included."""
        return (*super().violations(asked, pod), *_miscounted(asked, pod))

    def place(self, cards: Sequence[Card], request: Request, policy: Policy) -> Placed[Assignment] | None:
        """The idle cards that *request* gets, lowest index first whatever the policy, or None."""
        del policy
        chosen: list[int] = []
        for card in cards:
            if not card.pods and _refusal(card, request.selection) is None:
                chosen.append(card.position)
                if len(chosen) == request.total:
                    return Placed(Assignment(tuple(chosen), 0, len(request.amounts)), 0.0)
        return None

    def shortfalls(self, cards: Sequence[Card], request: Request) -> tuple[Shortfall, ...]:
        """Why `place` answers None: how many cards are idle, and what of the others."""
        refusals = [(card, _refusal(card, request.selection)) for card in cards]
        idle = sum(reason is None for _, reason in refusals)
        return (
            Shortfall("", Reason.CARD_COUNT, request.total, idle, unit_of_request(request, "idle cards")),
            *(Shortfall(card.title, reason, unit=unit_of(reason)) for card, reason in refusals if reason is not None),
        )

    def relaxed(self, cards: Sequence[Card], request: Request, reason: Reason, amount: int) -> Request | None:
        """*request* for no more than *amount* cards in all."""
        del cards
        if reason is Reason.INDEX:
            return request._replace(selection=ANY_CARD)
        # Positions name as many cards as are asked for.
        if reason is not Reason.CARD_COUNT or request.selection.indices:
            return None
        return relaxed(request, amount)

    def room(self, cards: Sequence[Card]) -> NodeRoom:
        """What bounds need: an idle card is one unit of room."""
        kinds = [card.kind for card in cards if card.fault is None and not card.pods]
        busy = sum(card.pods > 0 for card in cards)
        idle = len(kinds)
        return NodeRoom(idle, busy * 1_000_000 // len(cards) if cards else 0, kinds, [1] * idle, [0] * idle)

    def width(self, request: Request) -> int:
        """How many cards of one node *request* needs at once."""
        return request.total

    def want(self, request: Request, kind: Hashable, policy: Policy) -> Want | None:
        """What *request* asks of cards of *kind*: that they are idle; scores are 0 and need no bound."""
        del request, policy
        return Want(1, 0, MAX_CARDS, 1) if isinstance(kind, Kind) else None

    def bounded(self, request: Request, policy: Policy) -> bool:
        """No: whole cards are counted, not measured."""
        del request, policy
        return False

    def idle_score(self, request: Request, idle: int, policy: Policy) -> float:
        """Upstream scores whole cards 0 (nvidia 3.13)."""
        del request, idle, policy
        return 0.0

    def holes(self, cards: Sequence[Card]) -> tuple[Hole, ...]:
        """All of each idle card."""
        return tuple(Hole(card.kind, int(card.fault is None and not card.pods), 1) for card in cards)

    def by_card(self, request: Request) -> bool:
        """Never: cards that are given whole are alike."""
        del request
        return False

    def left(self, cards: Sequence[Card], request: Request, slot: int) -> Hole | None:
        """Not asked."""
        del cards, request, slot
        return None

    def alone(self, cards: Sequence[Card], request: Request, slot: int) -> Placed[Assignment]:
        """The card at *slot*."""
        return Placed(Assignment((cards[slot].position,), 0, len(request.amounts)), 0.0)

    def overcommitted(self, cards: Sequence[Card]) -> tuple[str, ...]:
        """The cards that more than one pod holds."""
        return tuple(f"{card.title} is held whole by {card.pods} pods" for card in cards if card.pods > 1)

    def tally(self, cards: Sequence[Card]) -> tuple[Tally, ...]:
        """Every card with how much of it is in use, for people."""
        return tuple(_tally(card) for card in cards)

    def describe(self, assignment: Assignment, cards: Sequence[Card]) -> tuple[CardShare, ...]:
        """The cards of *assignment*, for people."""
        del cards
        return tuple(CardShare(f"GPU {index}", "the whole card", 1) for index in assignment.indices)


def _tally(card: Card) -> Tally:
    return Tally(
        card.title, "whole cards", card.pods, 1, "card", note=card.fault or "", mode="whole", healthy=card.fault is None
    )


def _refusal(card: Card, selection: CardSelection) -> Reason | None:
    if card.fault is not None:
        return card.fault
    if selection is not ANY_CARD:
        refused = selection.accepts((), "", card.position)
        if refused is not None:
            return refused
    return Reason.BUSY if card.pods else None


def _miscounted(asked: Request, pod: AnyPod) -> tuple[Violation, ...]:
    indices = asked.selection.indices
    if not indices or len(indices) == asked.total:
        return ()
    return (
        Violation(
            code="CS106",
            field=f"annotation {WISHED_INDICES}",
            found=quoted(pod.annotations.get(WISHED_INDICES, "")),
            remedy=f"name exactly as many cards as {NUMBER_RESOURCE} asks for ({asked.total})",
        ),
    )


DIALECT: Final = DialectSpec(
    port=GpuNumber(),
    cards="nvidia",
    key_prefixes=("volcano.sh/",),
    switch="GPUNumberEnable",
    old_switch=True,
    plugin_accounts=("system:serviceaccount:kube-system:volcano-device-plugin",),
)
