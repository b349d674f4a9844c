"""Whole cards: ``volcano.sh/gpu-number``.

Source: protocol reference, nvidia 2.3, 3.12; idle cards in ascending order, and the number alone makes a node (S30).
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from core.dialects.gpushare import cards as _cards
from core.dialects.gpushare import grammar, handoff
from core.dialects.gpushare.cards import Assignment, Card, Kind
from core.dialects.gpushare.grammar import MAX_CARDS, NUMBER_RESOURCE
from core.errors import InvalidRequestError, quoted
from core.model import Node, Pod
from core.names import WISHED_INDICES
from core.port import (
    Complaint,
    Held,
    InFlight,
    NodeRoom,
    Offer,
    Placed,
    Reason,
    Room,
    Shortfall,
    Stamp,
    Tally,
    Violation,
    Want,
)
from core.selection import ANY_CARD, CardSelection
from core.settings import DialectName, Policy, Tables


class Request(NamedTuple):
    """How many whole cards, for all containers together; amounts: of each of them."""

    cards: int
    amounts: tuple[int, ...]
    selection: CardSelection = ANY_CARD


class GpuNumber:
    """`core.port.Dialect` for the share plugin's number mode."""

    name: DialectName = DialectName.GPU_NUMBER

    def resources(self, tables: Tables) -> frozenset[str]:
        """Every resource name by which a container can ask for whole cards."""
        del tables
        return frozenset({NUMBER_RESOURCE})

    def uncounted(self, tables: Tables) -> frozenset[str]:
        """None: kubelet counts whole cards."""
        del tables
        return frozenset()

    def assignment_keys(self, tables: Tables) -> frozenset[str]:
        """Pod annotations that only schedulers and the plugin write."""
        del tables
        return grammar.ASSIGNMENT_KEYS

    def offer(self, node: Node, tables: Tables) -> Offer | Complaint | None:
        """The cards of a node; None if it has none, or shares their memory instead: no card is sold twice."""
        del tables
        try:
            capacity = grammar.capacity_of(node)
        except InvalidRequestError as error:
            return Complaint(dialect=self.name, field=error.field, problem=f"found {error.found}; {error.remedy}")
        if capacity is None or capacity.memory:
            return None
        return Offer(cards=_cards.cards_of(capacity, self.name))

    def request(self, pod: Pod, tables: Tables) -> Request | tuple[Violation, ...] | None:
        """What *pod* asks; None if nothing; violations if it may not be asked so."""
        del tables
        try:
            asked = readable_request(pod)
            if asked is None:
                return None
            return (*grammar.unservable(pod, NUMBER_RESOURCE), *_miscounted(asked, pod)) or asked
        except InvalidRequestError as error:
            return (grammar.violation_of(error, "CS105" if error.field.startswith("annotation") else "CS101"),)

    def held(self, pod: Pod, cards: Sequence[Card], tables: Tables) -> Held | None:
        """What bound *pod* holds by its annotations, whoever bound it."""
        del tables
        return _cards.held(pod, cards, NUMBER_RESOURCE)

    def place(self, cards: Sequence[Card], request: Request, policy: Policy) -> Placed | None:
        """The idle cards that *request* gets, lowest index first whatever the policy, or None."""
        del policy
        chosen: list[int] = []
        for card in cards:
            if not card.pods and _refusal(card, request.selection) is None:
                chosen.append(card.position)
                if len(chosen) == request.cards:
                    return Placed(Assignment(tuple(chosen), 0, len(request.amounts)), 0.0)
        return None

    def shortfalls(self, cards: Sequence[Card], request: Request) -> tuple[Shortfall, ...]:
        """Why `place` answers None: how many cards are idle, and what of the others."""
        refusals = [(card, _refusal(card, request.selection)) for card in cards]
        idle = sum(reason is None for _, reason in refusals)
        return (
            Shortfall("", Reason.CARD_COUNT, request.cards, idle, "idle cards"),
            *(Shortfall(card.title, reason) for card, reason in refusals if reason is not None),
        )

    def take(self, cards: tuple[Card, ...], assignment: Assignment) -> tuple[Card, ...]:
        """The cards after *assignment* is in use on them."""
        return _cards.take(cards, assignment)

    def give_back(self, cards: tuple[Card, ...], assignment: Assignment) -> tuple[Card, ...]:
        """The cards after *assignment* is given back."""
        return _cards.give_back(cards, assignment)

    def room(self, cards: Sequence[Card]) -> NodeRoom:
        """What the shared indices need: an idle card is one unit of room."""
        rooms = tuple(Room(card.kind, 1, 0) for card in cards if card.fault is None and not card.pods)
        busy = sum(card.pods > 0 for card in cards)
        return NodeRoom(len(rooms), busy * 1_000_000 // len(cards) if cards else 0, rooms)

    def width(self, request: Request) -> int:
        """How many cards of one node *request* needs at once."""
        return request.cards

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

    def overcommitted(self, cards: Sequence[Card]) -> tuple[str, ...]:
        """The cards that more than one pod holds."""
        return tuple(f"{card.title} is held whole by {card.pods} pods" for card in cards if card.pods > 1)

    def annotations(self, assignment: Assignment, stamp: Stamp, tables: Tables) -> Mapping[str, str]:
        """What the Binding must carry."""
        del tables
        return handoff.annotations(assignment, stamp)

    def next_order(self, pods: Sequence[Pod], now_s: int) -> int:
        """The time that is above that of every pod of the node that is still to be served."""
        return handoff.next_order(pods, now_s)

    def confusable(self, request: Request) -> frozenset[Hashable]:
        """What the plugin could mistake a pod with *request* by: the number of cards of a container."""
        return frozenset(handoff.mark(NUMBER_RESOURCE, amount) for amount in request.amounts)

    def rotate(self, old: Mapping[str, str], new: Mapping[str, str]) -> Mapping[str, str | None]:
        """What the plugin's write from *old* to *new* must carry besides: that containers are still to be served."""
        return handoff.rotate(old, new)

    def in_flight(self, pod: Pod, tables: Tables) -> InFlight | None:
        """*pod* as the plugin sees it; None if it never serves it."""
        del tables
        return handoff.in_flight(pod, NUMBER_RESOURCE)

    def tally(self, cards: Sequence[Card]) -> tuple[Tally, ...]:
        """Every card with how much of it is in use, for people."""
        return tuple(Tally(card.title, "whole cards", card.pods, 1, "card", note=card.fault or "") for card in cards)

    def describe(self, assignment: Assignment, cards: Sequence[Card]) -> tuple[tuple[str, str], ...]:
        """(card, what of it) per entry, for people."""
        del cards
        return tuple((f"GPU {index}", "the whole card") for index in assignment.indices)


def readable_request(pod: Pod) -> Request | None:
    """What *pod* asks, its containers as many as they are; None if nothing.

    Raises:
        InvalidRequestError: a figure or a list of cards cannot be read.
    """
    number = grammar.total_of(pod, NUMBER_RESOURCE)
    if not number:
        return None
    amounts = tuple(amount for one in pod.containers if (amount := grammar.amount_of(one, NUMBER_RESOURCE)))
    return Request(number, amounts, grammar.wish_of(pod.annotations))


def _refusal(card: Card, selection: CardSelection) -> Reason | None:
    if card.fault is not None:
        return card.fault
    if selection is not ANY_CARD:
        refused = selection.accepts((), "", card.position)
        if refused is not None:
            return refused
    return Reason.BUSY if card.pods else None


def _miscounted(asked: Request, pod: Pod) -> tuple[Violation, ...]:
    indices = asked.selection.indices
    if not indices or len(indices) == asked.cards:
        return ()
    return (
        Violation(
            code="CS106",
            field=f"annotation {WISHED_INDICES}",
            found=quoted(pod.annotations.get(WISHED_INDICES, "")),
            remedy=f"name exactly as many cards as {NUMBER_RESOURCE} asks for ({asked.cards})",
        ),
    )
