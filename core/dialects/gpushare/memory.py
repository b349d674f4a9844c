"""Memory of one card: ``volcano.sh/gpu-memory``.

Source: protocol reference, nvidia 2.2, 3.11; lowest index first unless a policy is asked for (S31).
"""

from collections.abc import Hashable, Sequence
from typing import Final

from core.dialects.gpushare.cards import Assignment, Card, Kind, unit_of
from core.dialects.gpushare.grammar import MEMORY_RESOURCE, Request, relaxed
from core.dialects.gpushare.grammar import unit_of as unit_of_request
from core.dialects.gpushare.mode import Mode
from core.port.cards import CardShare, CardWish, Hole, NodeRoom, Placed, Tally, Want, Wording
from core.port.refusals import Reason, Shortfall
from core.port.spec import DialectSpec
from core.selection import ANY_CARD, CardSelection
from core.settings import DialectName, Policy
from core.tables import Tables


class GpuMemory(Mode):
    """`Dialect` of core.port for the share plugin's memory mode."""

    name = DialectName("gpu_memory")
    resource = MEMORY_RESOURCE

    def worded(self, wish: CardWish, tables: Tables) -> Sequence[Wording]:
        """See `core.port.optional.Worded`."""
        del tables
        if wish.memory_mib is None or wish.cards != 1 or wish.cores_pct is not None or wish.types:
            return ()
        return (Wording({MEMORY_RESOURCE: str(wish.memory_mib)}),)

    def place(self, cards: Sequence[Card], request: Request, policy: Policy) -> Placed[Assignment] | None:
        """The card that *request* gets under *policy*, or None: one card per pod, always."""
        memory, selection = request.total, request.selection
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
            match _refusal(card, request.total, request.selection):
                case None:
                    continue
                case Reason.MEMORY:
                    free = max(card.memory - card.used_memory, 0)
                    found.append(
                        Shortfall(card.title, Reason.MEMORY, request.total, free, unit_of_request(request, "MiB"))
                    )
                case reason:
                    found.append(Shortfall(card.title, reason, unit=unit_of(reason)))
        return tuple(found) or (Shortfall("", Reason.CARD_COUNT, 1, 0, "cards"),)

    def relaxed(self, cards: Sequence[Card], request: Request, reason: Reason, amount: int) -> Request | None:
        """*request* for no more than *amount* MiB in all."""
        del cards
        if reason is Reason.INDEX:
            return request._replace(selection=ANY_CARD)
        return relaxed(request, amount) if reason is Reason.MEMORY else None

    def room(self, cards: Sequence[Card]) -> NodeRoom:
        """What bounds need to know of a node's cards."""
        idle = used = total = 0
        kinds: list[Kind] = []
        frees: list[int] = []
        for _, kind, memory, fault, used_memory, pods in cards:
            used += used_memory
            total += memory
            if fault is None:
                if not pods:
                    idle += 1
                if used_memory < memory:
                    kinds.append(kind)
                    frees.append(memory - used_memory)
        return NodeRoom(idle, used * 1_000_000 // total if total else 0, kinds, frees, [0] * len(kinds))

    def width(self, request: Request) -> int:
        """Always one card."""
        del request
        return 1

    def want(self, request: Request, kind: Hashable, policy: Policy) -> Want | None:
        """What *request* asks of cards of *kind*; None if such a card can never serve it."""
        del policy
        if not isinstance(kind, Kind) or request.total > kind.memory:
            return None
        return Want(request.total, 0, kind.memory + request.total, kind.memory)

    def bounded(self, request: Request, policy: Policy) -> bool:
        """Whether `want` bounds the score by free amounts."""
        del request
        return policy is Policy.BINPACK

    def idle_score(self, request: Request, idle: int, policy: Policy) -> float:
        """With `bounded` False: the highest score that a node with *idle* idle cards can reach."""
        del request
        return 100.0 if idle and policy is Policy.SPREAD else 0.0

    def holes(self, cards: Sequence[Card]) -> tuple[Hole, ...]:
        """The memory that is left of each card."""
        return tuple(
            Hole(card.kind, card.memory - card.used_memory if card.fault is None else 0, card.memory) for card in cards
        )

    def by_card(self, request: Request) -> bool:
        """Always."""
        del request
        return True

    def left(self, cards: Sequence[Card], request: Request, slot: int) -> Hole | None:
        """The memory that would be left of the card at *slot*."""
        card = cards[slot]
        if _refusal(card, request.total, request.selection) is not None:
            return None
        return Hole(card.kind, card.memory - card.used_memory - request.total, card.memory)

    def alone(self, cards: Sequence[Card], request: Request, slot: int) -> Placed[Assignment]:
        """The memory of the card at *slot*."""
        card, memory = cards[slot], request.total
        assignment = Assignment((card.position,), memory, len(request.amounts))
        return Placed(assignment, _score(card, memory, Policy.BINPACK))

    def overcommitted(self, cards: Sequence[Card]) -> tuple[str, ...]:
        """The cards that hold more memory than they have."""
        return tuple(
            f"{card.title} holds {card.used_memory} MiB of {card.memory} MiB"
            for card in cards
            if card.used_memory > card.memory
        )

    def tally(self, cards: Sequence[Card]) -> tuple[Tally, ...]:
        """Every card with how much of it is in use, for people."""
        return tuple(
            Tally(
                card.title,
                "shared by memory",
                card.used_memory,
                card.memory,
                "MiB",
                note=card.fault or "",
                mode="memory",
                healthy=card.fault is None,
            )
            for card in cards
        )

    def describe(self, assignment: Assignment, cards: Sequence[Card]) -> tuple[CardShare, ...]:
        """What *assignment* holds of each of its cards, for people."""
        del cards
        memory = assignment.memory
        return tuple(CardShare(f"GPU {index}", f"{memory} MiB", memory) for index in assignment.indices)


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


DIALECT: Final = DialectSpec(
    port=GpuMemory(),
    cards="nvidia",
    key_prefixes=("volcano.sh/",),
    switch="GPUSharingEnable",
    old_switch=True,
    plugin_accounts=("system:serviceaccount:kube-system:volcano-device-plugin",),
    # Source: nvidia 2.7.
    time_lock="gpu",
)
