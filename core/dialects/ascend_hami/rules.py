"""What is special about Ascend chips: how they compare and score, rings and modules, and what is said of templates.

Source: protocol reference, ascend 4.4 to 4.6, 4.8, 4.10, with the defects H-2, H-5, H-9, H-11, H-12, H-15, H-16 done
as they say.
"""

from collections.abc import Sequence
from typing import Final

from core.dialects.ascend_hami import keys
from core.dialects.ascend_hami.table import WHOLE_CHIP
from core.port.cards import Want
from core.port.refusals import Reason, Shortfall
from core.settings import Policy
from core.sharing import fit
from core.sharing.account import Entry
from core.sharing.card import Card, Kind
from core.sharing.fit import Rules, template
from core.sharing.order import Rank, Ranking
from core.sharing.request import Ask, Order, Request

# What chips of one ring add to a node's score (ascend 4.8).
_RING_BONUS: Final = 10
# Percent of a chip, in soft slicing.
_ALL_CORES: Final = 100


def _cores_of_one(card: Card) -> int:
    """Return the cores of the only share of *card*, 0 if there are several."""
    return card.used_cores if card.used_slots == 1 else 0


class AscendRules(Rules):
    """The rules of the HAMi protocol for Ascend; the plugin knows one template per pod and chip (D-8)."""

    apart = True

    def refuse(self, card: Card, ask: Ask, request: Request) -> Reason | None:
        """Return that the chip is shared otherwise (H-12, ascend 4.10), or that parts of several are asked for."""
        marks, own = card.marks, request.marks[0]
        if marks and (marks[0] != own or marks[-1] != own):
            return Reason.MODE
        # On a chip that promises more than all of its cores, who asks for all of them is alone all the same.
        if card.fixed.cores > _ALL_CORES and card.used_slots and _ALL_CORES in (ask.cores, _cores_of_one(card)):
            return Reason.EXCLUSIVE
        if ask.profile is None or (ask.number == 1 and not ask.percent):
            return None
        kind = card.fixed.kind
        cut = template(ask, kind)
        if cut is None or cut.name == WHOLE_CHIP:
            return None
        if kind.mode == keys.SOFT_MODE:
            return Reason.MODE
        return Reason.TEMPLATE if ask.number > kind.module else None

    def shortfall(self, card: Card, ask: Ask, request: Request, reason: Reason) -> Shortfall | None:
        """See `Rules`; who asks for less memory gets a template, so that the largest that fits counts as free."""
        fixed = card.fixed
        templates, cut = fixed.kind.templates, template(ask, fixed.kind)
        match reason:
            case Reason.MODE:
                return Shortfall(fixed.uuid, reason, detail=_other_mode(card, ask))
            case Reason.EXCLUSIVE if ask.cores < _ALL_CORES:
                return Shortfall(fixed.uuid, Reason.PROMISED, detail="all of its cores are promised to the pod there")
            case Reason.EXCLUSIVE:
                free = min(fixed.cores - card.used_cores, _ALL_CORES - 1)
                return Shortfall(fixed.uuid, reason, ask.cores, free, "%", "needs a card of its own")
            case Reason.MEMORY if cut is not None and templates is not None:
                free = max(fixed.memory - card.used_memory, 0)
                if ask.number > 1:
                    # Less memory is no way out: several chips can only be had whole.
                    told = f"{free} of {fixed.memory} MiB free, must be idle"
                    return Shortfall(fixed.uuid, Reason.EXCLUSIVE, detail=told)
                fitting = max([one.charge for one in templates.profiles if one.charge <= free], default=0)
                told = f"{free} MiB free, {cut.charge} needed as {cut.name}"
                return Shortfall(fixed.uuid, reason, cut.charge, fitting, "MiB", told, request.mib_per_unit)
            case Reason.TEMPLATE if cut is not None and templates is not None:
                at = fit.lacking(card, cut)
                if at < 0:
                    return Shortfall(fixed.uuid, reason, detail="several chips can only be asked for whole")
                free = max(templates.counted[at] - card.counted[at], 0)
                return Shortfall(fixed.uuid, reason, cut.counted[at], free, templates.units[at], cut.name)
            case _:
                return None

    def groups(self, cards: Sequence[Card], ranked: Sequence[tuple[Rank, int]], request: Request) -> list[list[int]]:
        """Return the chips of whole modules, the best modules first; else by ring, the ring with most of them first."""
        kind = cards[ranked[0][1]].fixed.kind if ranked else None
        if kind is None or kind.module == 1:
            slots = [slot for _, slot in ranked]
            return [slots if kind is None or not kind.ringed else _by_rings(cards, slots)]
        modules: dict[int, list[tuple[int, float]]] = {}
        for rank, slot in ranked:
            modules.setdefault(cards[slot].fixed.position // kind.module, []).append((slot, rank[0]))
        whole = [sorted(one) for one in modules.values() if len(one) == kind.module]
        whole.sort(key=lambda one: (sum([rank for _, rank in one]), one))
        return [[slot for one in whole for slot, _ in one]]

    def together(self, cards: Sequence[Card], request: Request) -> str:
        """See `Rules`."""
        of_modules = any(card.fixed.kind.module > 1 for card in cards if card.fixed.kind.type == request.type)
        return "in whole modules of two" if of_modules else ""

    def ranking(self, wanted: Order, policy: Policy) -> Ranking:
        """Return the order of upstream: the fullest, the idle ones, or as they stand (H-5)."""
        match policy:
            case Policy.BINPACK:
                # The register may say 0 of a chip that takes nothing.
                return lambda slot, card: (-card.used_memory / card.fixed.memory if card.fixed.memory else 0.0,)
            case Policy.SPREAD:
                return lambda slot, card: (1.0 if card.used_slots else 0.0,)
            case _:
                return lambda slot, card: (0.0,)

    def fullness(self, cards: Sequence[Card], entries: Sequence[Entry]) -> float:
        """Return how full the chips are before the pod, by the expression of `bound`, to the last bit (H-9)."""
        if len(entries) == 1:
            card = cards[entries[0].slot]
            memory = card.fixed.memory
            numerator = _numerator(memory, 1, 1 if card.fixed.kind.ringed else 0)
            return 100.0 * (numerator - (memory - card.used_memory)) / memory
        slots = [one.slot for one in entries]
        memory = cards[slots[0]].fixed.memory
        if any(cards[slot].fixed.memory != memory for slot in slots):
            return _score(cards, [slots], Policy.BINPACK)
        free = sum([memory - cards[slot].used_memory for slot in slots])
        return 100.0 * (_numerator(memory, len(slots), _largest_ring(cards, slots)) - free) / (len(slots) * memory)

    def bound(self, request: Request, kind: Kind, want: Want) -> Want:
        """See `Rules`; chips of one ring have the whole bonus."""
        number = request.asks[0].number
        numerator = _numerator(kind.memory, number, number if kind.ringed else 0)
        return Want(want.free, want.spare, numerator, number * kind.memory)

    def score(self, cards: Sequence[Card], entries: Sequence[Entry], request: Request, policy: Policy) -> float:
        """Return the sum of the means of the containers' chips before the pod, and the bonus for one ring."""
        picks: list[list[int]] = []
        for ask in request.asks:
            slots = [one.slot for one in entries if one.container == ask.container]
            # An init container with the chips of another one adds nothing.
            if not any(slots[0] in other for other in picks):
                picks.append(slots)
        return _score(cards, picks, policy)

    def idle_score(self, request: Request, idle: int, policy: Policy) -> float:
        """See `Rules`."""
        asked = len(request.asks)
        bonus = float(_RING_BONUS) if request.type.startswith(keys.RINGED_PREFIX) else 0.0
        match policy:
            case Policy.SPREAD:
                return 100.0 * min(idle, asked) + bonus
            case Policy.BINPACK:
                return 100.0 * asked + bonus
            case _:
                return bonus


def _other_mode(card: Card, ask: Ask) -> str:
    is_soft = card.fixed.kind.mode == keys.SOFT_MODE
    if ask.profile is None:
        return (
            "a chip cut by templates takes no soft share"
            if is_soft
            else f"the node has no soft slicing; leave out annotation {keys.MODE}, and cores"
        )
    if keys.SOFT_MODE in card.marks:
        return "soft shares are on the chip"
    return f"the node slices softly; write annotation {keys.MODE}: {keys.SOFT}, or ask for whole chips"


def _by_rings(cards: Sequence[Card], slots: Sequence[int]) -> list[int]:
    """*slots* by ring, the ring with most of them first; inside a ring their order stays (ascend 4.6)."""
    rings: dict[int, list[int]] = {}
    for slot in slots:
        rings.setdefault(cards[slot].fixed.ring, []).append(slot)
    return [slot for ring in sorted(rings, key=lambda one: (-len(rings[one]), one)) for slot in rings[ring]]


def _numerator(memory: int, number: int, in_ring: int) -> float:
    """The memory of *number* chips and the bonus for *in_ring* of them in one ring, in MiB."""
    total = number * memory
    return total * (_RING_BONUS * number + in_ring) / (_RING_BONUS * number) if in_ring else total


def _score(cards: Sequence[Card], picks: Sequence[Sequence[int]], policy: Policy) -> float:
    score = sum([sum([_chip_score(cards[slot], policy) for slot in slots]) / len(slots) for slots in picks])
    everything = [slot for slots in picks for slot in slots]
    return score + float(_RING_BONUS) * _largest_ring(cards, everything) / len(everything)


def _chip_score(card: Card, policy: Policy) -> float:
    if policy is Policy.BINPACK:
        return 100.0 * card.used_memory / card.fixed.memory
    return 100.0 if policy is Policy.SPREAD and not card.used_slots else 0.0


def _largest_ring(cards: Sequence[Card], slots: Sequence[int]) -> int:
    """How many of *slots* are in the ring that has most of them; 0 without rings."""
    if not cards[slots[0]].fixed.kind.ringed:
        return 0
    rings = [cards[slot].fixed.ring for slot in slots]
    return max([rings.count(one) for one in set(rings)])
