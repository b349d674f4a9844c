"""Bounds of a node's score: free amounts, what a request needs of them, and what is left of each card."""

from collections.abc import Hashable, Sequence

from core.port.cards import Hole, NodeRoom, Want
from core.selection import ANY_CARD, type_words
from core.settings import Policy
from core.sharing import order, slices
from core.sharing.card import Card, Kind, Sliced
from core.sharing.request import ANY_ORDER, EVEN, Ask, Request
from core.sharing.rules import Rules
from core.sharing.slices import Profile


def room(rules: Rules, cards: Sequence[Card]) -> NodeRoom:
    """Return the summary of a node's cards; those that can take nothing more have no room.

    A cut card has room once for each slice of it that one container can get.
    """
    idle = used = total = 0
    kinds: list[Kind] = []
    frees: list[int] = []
    spares: list[int] = []
    narrow: list[Sliced | Kind] | None = None
    for card in cards:
        fixed, used_slots, used_memory = card.fixed, card.used_slots, card.used_memory
        used += used_memory
        total += fixed.memory
        if fixed.fault is not None or card.unread:
            continue
        if not used_slots:
            idle += 1
        kind, free = fixed.kind, fixed.memory - used_memory
        if used_slots >= fixed.slots or (card.slices and slices.conflicting(card.slices)):
            continue
        spare, templates = fixed.cores - card.used_cores, kind.templates
        if templates is not None and templates.counted:
            # A template may need nothing of what else is counted.
            at = templates.scarce
            spare = max(spare if at < 0 else templates.counted[at] - card.counted[at], 0)
        elif spare <= 0 and not rules.serves_full:
            # If all cores are promised, nothing is left, even for requests without cores.
            continue
        if kind.layout:
            free, times = _free_slices(rules, card)
            if times and not rules.several:
                # What a share takes of such a card depends on the slices in use, not on what is free.
                narrow = list(kinds) if narrow is None else narrow
                narrow.append(Sliced(kind, slices.canonical(kind.layout, card.slices), used_memory, free))
            kinds += [kind] * times
            frees += [free] * times
            spares += [spare] * times
        elif free > 0:
            if narrow is not None:
                narrow.append(kind)
            kinds.append(kind)
            frees.append(free)
            spares.append(spare)
    return NodeRoom(idle, used * 1_000_000 // total if total else 0, kinds, frees, spares, narrow)


def _free_slices(rules: Rules, card: Card) -> tuple[int, int]:
    """Return (the memory for one more slice of *card*, which is cut; how many slices one container can get of it)."""
    fixed, layout, taken = card.fixed, card.fixed.kind.layout, card.slices
    free = fixed.memory - card.used_memory
    if fixed.kind.slack:
        largest = slices.largest_free(layout, taken)
        free = max(free, largest.charge if largest is not None else 0)
    if free <= 0:
        return 0, 0
    return free, min(fixed.slots - card.used_slots, slices.most(layout, taken)) if rules.several else 1


def holes(cards: Sequence[Card]) -> tuple[Hole, ...]:
    """Return the free memory and cores of each card; none for a card that has no share left."""
    return tuple([_hole(card) for card in cards])


def _hole(card: Card) -> Hole:
    fixed, kind = card.fixed, card.fixed.kind
    is_open = fixed.fault is None and not card.unread and card.used_slots < fixed.slots
    if card.slices and slices.conflicting(card.slices):
        is_open = False
    free = fixed.memory - card.used_memory if is_open else 0
    return Hole(kind, free, fixed.memory, _spare_pct(card))


def _spare_pct(card: Card) -> int:
    """Return how much is left of what the card shares beside memory."""
    fixed, kind = card.fixed, card.fixed.kind
    if card.counted and kind.templates is not None:
        spare_pct = 100
        for at, total in enumerate(kind.templates.counted):
            if total:
                spare_pct = min(spare_pct, (total - card.counted[at]) * 100 // total)
        return spare_pct
    if kind.layout and slices.have_cores(kind.layout):
        return 100
    return (fixed.cores - card.used_cores) * 100 // max(fixed.cores, 1)


def want(rules: Rules, request: Request, kind: Hashable) -> Want | None:
    """Return what *request* needs of cards of *kind*; None if such a card can never serve it."""
    if isinstance(kind, Sliced):
        return _want_of_sliced(rules, request, kind)
    if not isinstance(kind, Kind) or not kind.serves_any(request.modes):
        return None
    if request.type and request.type != kind.type:
        return None
    if request.selection is not ANY_CARD and not request.selection.accepts_type(type_words(kind.type)):
        return None
    needs = [part(ask, kind, kind.memory) for ask in request.asks]
    # Such a card may serve only the smallest of the containers.
    least = min(needs)
    if least > kind.memory + kind.slack:
        return None
    templates = kind.templates
    if templates is None or templates.scarce < 0:
        spare = min([cores_of(ask, kind) for ask in request.asks])
    else:
        at = templates.scarce
        spare = min([cut.counted[at] if (cut := template(ask, kind)) is not None else 0 for ask in request.asks])
    asked = sum([ask.number for ask in request.asks])
    charge, times = max(needs), asked
    if kind.layout:
        sizes = slices.charges(kind.layout, least * kind.factor)
        if not sizes:
            return None
        # The slice may be larger than the request, and the free amount may be reported as higher; see `room`.
        charge = max(sizes) + kind.slack
        if rules.several:
            # Each slice of one card counts those before it as in use.
            times = asked * (asked + 1) // 2
    return rules.bound(request, kind, Want(least, spare, asked * kind.memory + times * charge, kind.memory))


def _want_of_sliced(rules: Rules, request: Request, sliced: Sliced) -> Want | None:
    """Return the same for MIG cards with known slices: their only score is that of the slice that they give."""
    kind = sliced.kind
    rough = want(rules, request, kind)
    if rough is None or len(request.asks) > 1:
        return rough
    chosen = slices.choose(kind.layout, sliced.slices, rough.free * kind.factor)
    if chosen is None or rough.free > sliced.free:
        return None
    after = sliced.used + sliced.free + chosen.profile.charge
    return Want(sliced.free, rough.spare, request.asks[0].number * after, kind.memory)


def part(ask: Ask, kind: Kind, memory: int) -> int:
    """Return what *ask* takes of a card with *memory*, in register units; at least 1 for a percentage.

    The whole of a cut card is its largest slice, if that is smaller than the card (nvidia S9, hami HN-7).
    """
    if not ask.percent:
        return ask.memory
    if (cut := template(ask, kind)) is not None:
        return cut.charge
    if ask.percent == 100 and kind.layout:
        return min(memory, slices.largest_mib(kind.layout) // kind.factor)
    return memory * ask.percent // 100 or 1


def template(ask: Ask, kind: Kind) -> Profile | None:
    """Return the template by which *ask* is cut on a card of *kind*; None without one."""
    if ask.profile is None or kind.templates is None:
        return None
    return kind.templates.whole if ask.percent else ask.profile


def cores_of(ask: Ask, kind: Kind) -> int:
    """Return what *ask* takes of the cores of a card of *kind*; at least 1 of those that are asked for by percent."""
    return max(kind.cores * ask.cores // 100, 1) if kind.by_share else ask.cores


def bounded(request: Request, policy: Policy) -> bool:
    """Return whether free amounts bound the score: one container asks, and the fullest card is preferred."""
    wanted = request.order
    if wanted is ANY_ORDER:
        return policy is Policy.BINPACK and len(request.asks) == 1
    return (
        (wanted.nodes or str(policy)) == order.BINPACK
        and order.policies_of(wanted, policy) == (order.BINPACK,)
        and wanted.weights == EVEN
        and len(request.asks) == 1
    )
