"""Memory of one card: ``volcano.sh/gpu-memory``.

Source: protocol reference, nvidia 2.2, 3.11; lowest index first unless a policy is asked for (S31).
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from core.dialects.gpushare import cards as _cards
from core.dialects.gpushare import grammar, handoff
from core.dialects.gpushare.cards import Assignment, Card, Kind
from core.dialects.gpushare.grammar import MEMORY_RESOURCE
from core.errors import InvalidRequestError
from core.model import Node, Pod
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
    """Memory of one card in the plugin's unit, for all containers together; amounts: of each of them."""

    memory: int
    amounts: tuple[int, ...]
    selection: CardSelection = ANY_CARD


class GpuMemory:
    """`core.port.Dialect` for the share plugin's memory mode."""

    name: DialectName = DialectName.GPU_MEMORY

    def resources(self, tables: Tables) -> frozenset[str]:
        """Every resource name by which a container can ask for memory of a card."""
        del tables
        return frozenset({MEMORY_RESOURCE})

    def uncounted(self, tables: Tables) -> frozenset[str]:
        """None: kubelet counts the memory as the plugin advertises it."""
        del tables
        return frozenset()

    def assignment_keys(self, tables: Tables) -> frozenset[str]:
        """Pod annotations that only schedulers and the plugin write."""
        del tables
        return grammar.ASSIGNMENT_KEYS

    def offer(self, node: Node, tables: Tables) -> Offer | Complaint | None:
        """The cards of a node with memory to share; None if it has none."""
        del tables
        try:
            capacity = grammar.capacity_of(node)
        except InvalidRequestError as error:
            return Complaint(dialect=self.name, field=error.field, problem=f"found {error.found}; {error.remedy}")
        if capacity is None or not capacity.memory:
            return None
        return Offer(cards=_cards.cards_of(capacity, self.name))

    def request(self, pod: Pod, tables: Tables) -> Request | tuple[Violation, ...] | None:
        """What *pod* asks; None if nothing; violations if it may not be asked so."""
        del tables
        try:
            asked = readable_request(pod)
            if asked is None:
                return None
            return grammar.unservable(pod, MEMORY_RESOURCE) or asked
        except InvalidRequestError as error:
            return (grammar.violation_of(error, "CS105" if error.field.startswith("annotation") else "CS101"),)

    def held(self, pod: Pod, cards: Sequence[Card], tables: Tables) -> Held | None:
        """What bound *pod* holds by its annotations, whoever bound it."""
        del tables
        return _cards.held(pod, cards, MEMORY_RESOURCE)

    def place(self, cards: Sequence[Card], request: Request, policy: Policy) -> Placed | None:
        """The card that *request* gets under *policy*, or None: one card per pod, always."""
        memory, selection = request.memory, request.selection
        best: Card | None = None
        best_key = 0
        for card in cards:
            if card.memory - card.used_memory < memory or _refusal(card, memory, selection) is not None:
                continue
            if policy is Policy.BINPACK:
                key = -card.used_memory
            elif policy is Policy.SPREAD:
                key = card.pods
            else:
                key = 0
            if best is None or key < best_key:
                best, best_key = card, key
        if best is None:
            return None
        return Placed(Assignment((best.position,), memory, len(request.amounts)), _score(best, memory, policy))

    def shortfalls(self, cards: Sequence[Card], request: Request) -> tuple[Shortfall, ...]:
        """Why `place` answers None, card by card with numbers."""
        found: list[Shortfall] = []
        for card in cards:
            match _refusal(card, request.memory, request.selection):
                case None:
                    continue
                case Reason.MEMORY:
                    free = max(card.memory - card.used_memory, 0)
                    found.append(Shortfall(card.title, Reason.MEMORY, request.memory, free, "MiB"))
                case reason:
                    found.append(Shortfall(card.title, reason))
        return tuple(found) or (Shortfall("", Reason.CARD_COUNT, 1, 0, "cards"),)

    def take(self, cards: tuple[Card, ...], assignment: Assignment) -> tuple[Card, ...]:
        """The cards after *assignment* is in use on them."""
        return _cards.take(cards, assignment)

    def give_back(self, cards: tuple[Card, ...], assignment: Assignment) -> tuple[Card, ...]:
        """The cards after *assignment* is given back."""
        return _cards.give_back(cards, assignment)

    def room(self, cards: Sequence[Card]) -> NodeRoom:
        """What the shared indices need to know of a node's cards."""
        idle = used = total = 0
        rooms: list[Room] = []
        for _, kind, memory, fault, used_memory, pods in cards:
            used += used_memory
            total += memory
            if fault is None:
                if not pods:
                    idle += 1
                if used_memory < memory:
                    rooms.append(Room(kind, memory - used_memory, 0))
        return NodeRoom(idle, used * 1_000_000 // total if total else 0, tuple(rooms))

    def width(self, request: Request) -> int:
        """Always one card."""
        del request
        return 1

    def want(self, request: Request, kind: Hashable, policy: Policy) -> Want | None:
        """What *request* asks of cards of *kind*; None if such a card can never serve it."""
        del policy
        if not isinstance(kind, Kind) or request.memory > kind.memory:
            return None
        return Want(request.memory, 0, kind.memory + request.memory, kind.memory)

    def bounded(self, request: Request, policy: Policy) -> bool:
        """Whether `want` bounds the score by free amounts."""
        del request
        return policy is Policy.BINPACK

    def idle_score(self, request: Request, idle: int, policy: Policy) -> float:
        """With `bounded` False: the highest score that a node with *idle* idle cards can reach."""
        del request
        return 100.0 if idle and policy is Policy.SPREAD else 0.0

    def overcommitted(self, cards: Sequence[Card]) -> tuple[str, ...]:
        """The cards that hold more memory than they have."""
        return tuple(
            f"{card.title} holds {card.used_memory} MiB of {card.memory} MiB"
            for card in cards
            if card.used_memory > card.memory
        )

    def annotations(self, assignment: Assignment, stamp: Stamp, tables: Tables) -> Mapping[str, str]:
        """What the Binding must carry."""
        del tables
        return handoff.annotations(assignment, stamp)

    def next_order(self, pods: Sequence[Pod], now_s: int) -> int:
        """The time that is above that of every pod of the node that is still to be served."""
        return handoff.next_order(pods, now_s)

    def confusable(self, request: Request) -> frozenset[Hashable]:
        """What the plugin could mistake a pod with *request* by: the exact amount of a container."""
        return frozenset(handoff.mark(MEMORY_RESOURCE, amount) for amount in request.amounts)

    def rotate(self, old: Mapping[str, str], new: Mapping[str, str]) -> Mapping[str, str | None]:
        """What the plugin's write from *old* to *new* must carry besides: that containers are still to be served."""
        return handoff.rotate(old, new)

    def in_flight(self, pod: Pod, tables: Tables) -> InFlight | None:
        """*pod* as the plugin sees it; None if it never serves it."""
        del tables
        return handoff.in_flight(pod, MEMORY_RESOURCE)

    def tally(self, cards: Sequence[Card]) -> tuple[Tally, ...]:
        """Every card with how much of it is in use, for people."""
        return tuple(
            Tally(card.title, "shared by memory", card.used_memory, card.memory, "MiB", note=card.fault or "")
            for card in cards
        )

    def describe(self, assignment: Assignment, cards: Sequence[Card]) -> tuple[tuple[str, str], ...]:
        """(card, what of it) per entry, for people."""
        del cards
        return tuple((f"GPU {index}", f"{assignment.memory} MiB") for index in assignment.indices)


def readable_request(pod: Pod) -> Request | None:
    """What *pod* asks, its containers as many as they are; None if nothing.

    Raises:
        InvalidRequestError: a figure or a list of cards cannot be read.
    """
    memory = grammar.total_of(pod, MEMORY_RESOURCE)
    if not memory:
        return None
    amounts = tuple(amount for one in pod.containers if (amount := grammar.amount_of(one, MEMORY_RESOURCE)))
    return Request(memory, amounts, grammar.wish_of(pod.annotations))


def _refusal(card: Card, memory: int, selection: CardSelection) -> Reason | None:
    if card.fault is not None:
        return card.fault
    if selection is not ANY_CARD:
        refused = selection.accepts((), "", card.position)
        if refused is not None:
            return refused
    return Reason.MEMORY if card.memory - card.used_memory < memory else None


def _score(card: Card, memory: int, policy: Policy) -> float:
    if policy is Policy.BINPACK:
        return 100.0 * (card.used_memory + memory) / card.memory
    return 100.0 if policy is Policy.SPREAD and not card.pods else 0.0
