"""Which cards of a node a request gets, and why it gets none.

Source: protocol reference, nvidia 3.3 to 3.6, 3.13, with its defects (nvidia 5.1) done as they say.
"""

from collections.abc import Hashable, Sequence
from typing import Final

from core.dialects.vgpu import keys, mig, usage
from core.dialects.vgpu.cards import Card, Fixed, Kind, Sliced
from core.dialects.vgpu.requests import Ask, Request
from core.dialects.vgpu.usage import Assignment, Entry
from core.port.cards import Hole, Placed, Want
from core.port.refusals import Reason, Shortfall
from core.selection import ANY_CARD, type_words
from core.settings import CARD_POLICIES, Policy

_BINPACK: Final = Policy.BINPACK
_SPREAD: Final = Policy.SPREAD
_UNORDERED: Final = f"the node's device plugin may change the order of its cards; name them with {keys.USE_UUID}"


# One container's cards as entries in register order, and what they score.
_Picked = tuple[list[Entry], float]


def place(cards: Sequence[Card], request: Request, policy: Policy) -> Placed[Assignment] | None:
    """The cards that *request* gets under *policy*, or None; all containers or none."""
    asks = request.asks
    if len(asks) == 1:
        picked = _pick(cards, asks[0], request, policy)
        return None if picked is None else _placed(request, *picked)
    entries: list[Entry] = []
    score = 0.0
    filled = tuple(cards)
    for ask in asks:
        picked = _pick(filled, ask, request, policy)
        if picked is None:
            return None
        more, of_these = picked
        entries += more
        # Slices may fill a card beyond what its driver reports; no bound of several containers knows by how much.
        score += min(of_these, 100.0 * ask.number)
        # Without group and rules: a pod does not keep itself from its own cards.
        filled = usage.take(filled, Assignment(tuple(more)))
    return _placed(request, entries, score)


def _placed(request: Request, entries: list[Entry], score: float) -> Placed[Assignment]:
    return Placed(Assignment(tuple(entries), request.group, request.rules), score)


def left(card: Card, request: Request) -> Hole | None:
    """What would be left of *card* if *request*, which is for one card, got it; None if it does not take that."""
    ask = request.asks[0]
    if refusal(card, ask, request) is not None:
        return None
    fixed = card.fixed
    charge, _ = _charged(card, ask)
    free = fixed.memory - card.used_memory - charge if card.used_slots + 1 < fixed.slots else 0
    return Hole(fixed.kind, free, fixed.memory, 100 - card.used_cores - ask.cores)


def alone(cards: Sequence[Card], request: Request, slot: int) -> Placed[Assignment]:
    """What *request*, which is for one card, gets of the card at *slot*, which takes it."""
    return _placed(request, *_picked(cards, [slot], request.asks[0], _BINPACK))


def _pick(cards: Sequence[Card], ask: Ask, request: Request, policy: Policy) -> _Picked | None:
    fitting: list[tuple[int, int]] = []
    number, percent, need = ask.number, ask.percent, ask.memory
    for slot, card in enumerate(cards):
        # What is quick comes first, without a call: this loop is where decisions spend their time.
        if not percent and card.fixed.memory - card.used_memory < need and not card.fixed.kind.slack:
            continue
        rank = -card.used_memory if policy is _BINPACK else card.used_slots if policy is _SPREAD else -slot
        if number > 1:
            if refusal(card, ask, request) is None:
                fitting.append((rank, slot))
        elif (not fitting or rank < fitting[0][0]) and refusal(card, ask, request) is None:
            fitting = [(rank, slot)]
    if len(fitting) < number:
        return None
    fitting.sort()
    # Limits are applied in bus order inside the container, so entries stand in register order (S33).
    return _picked(cards, sorted([slot for _, slot in fitting[:number]]), ask, policy)


def _picked(cards: Sequence[Card], slots: list[int], ask: Ask, policy: Policy) -> _Picked:
    entries: list[Entry] = []
    used = idle = 0
    shares = 0.0
    total, is_one_total = cards[slots[0]].fixed.memory, True
    for slot in slots:
        card = cards[slot]
        fixed = card.fixed
        charge, taken = _charged(card, ask)
        entries.append(Entry(slot, fixed.uuid, ask.container, wanted(ask, fixed), ask.cores, charge, taken))
        after = card.used_memory + charge
        used += after
        is_one_total = is_one_total and fixed.memory == total
        shares += 100.0 * after / fixed.memory
        idle += not card.used_slots
    if policy is _BINPACK:
        # Cards of one total score as `want` bounds them, to the last bit.
        return entries, 100.0 * used / total if is_one_total else shares
    # A card scores under spread by what it was before it took the share (S10).
    return entries, 100.0 * idle if policy is _SPREAD else 0.0


def _charged(card: Card, ask: Ask) -> tuple[int, mig.Slice | None]:
    """What *card* loses to *ask* in register units, and the slice that it gets there, if it is one."""
    fixed = card.fixed
    need = wanted(ask, fixed)
    if fixed.layout:
        chosen = mig.choose(fixed.layout, card.slices, need * fixed.kind.factor)
        if chosen is not None:
            return chosen.charge, chosen.slice
    return need, None


def wanted(ask: Ask, fixed: Fixed) -> int:
    """What *ask* takes of a card in register units; a percentage never comes to nothing.

    The whole of a MIG card is its largest slice, where that is smaller than the card (S9).
    """
    if not ask.percent:
        return ask.memory
    return _part(ask.percent, fixed.memory, fixed.layout, fixed.kind.factor)


def _part(percent: int, memory: int, layout: mig.Layout, factor: int) -> int:
    if percent == 100 and layout:
        return min(memory, mig.largest_mib(layout) // factor)
    return memory * percent // 100 or 1


def refusal(card: Card, ask: Ask, request: Request) -> Reason | None:
    """Why *card* cannot take *ask*; None if it can."""
    fixed, used_slots, used_memory, used_cores, groups, rules, slices, unread = card
    if fixed.fault is not None:
        return fixed.fault
    if unread:
        return Reason.UNUSABLE
    if request.mode and not _in_mode(request.mode, fixed.mode):
        return Reason.MODE
    selection = request.selection
    if selection is not ANY_CARD:
        if selection.indices and not fixed.ordered:
            return Reason.UNORDERED
        refused = selection.accepts(fixed.words, fixed.uuid, fixed.position)
        if refused is not None:
            return refused
    if used_slots >= fixed.slots:
        return Reason.SLOTS
    if rules and request.rules and fixed.mode != keys.MIG and not set(rules).isdisjoint(request.rules):
        return Reason.RULE
    if groups and request.group and request.group in groups:
        return Reason.GROUP
    need = ask.memory if not ask.percent else wanted(ask, fixed)
    # The slices of a cut card may be larger together than what its driver reports: they alone decide.
    if fixed.memory - used_memory < need and not (fixed.kind.slack and _has_slice(fixed, slices, need)):
        return Reason.LAYOUT if slices else Reason.MEMORY
    cores = ask.cores
    if used_cores + cores > 100:
        return Reason.CORES
    if used_slots and cores == 100:
        return Reason.EXCLUSIVE
    if used_slots and used_cores == 100 and cores == 0:
        return Reason.PROMISED
    if slices and mig.conflicting(slices):
        return Reason.UNUSABLE
    if fixed.layout and mig.choose(fixed.layout, slices, need * fixed.kind.factor) is None:
        return Reason.LAYOUT
    return None


def _has_slice(fixed: Fixed, slices: tuple[mig.Slice, ...], need: int) -> bool:
    if slices and mig.conflicting(slices):
        return False
    return mig.choose(fixed.layout, slices, need * fixed.kind.factor) is not None


def shortfalls(cards: Sequence[Card], request: Request) -> tuple[Shortfall, ...]:
    """Why `place` answers None: every card that refuses the first container without room, in numbers."""
    # Which cards the first containers take depends on the policy, and with it what is left for the next ones.
    for policy in CARD_POLICIES:
        filled = tuple(cards)
        for ask in request.asks:
            picked = _pick(filled, ask, request, policy)
            if picked is None:
                return _shortfalls(filled, ask, request)
            filled = usage.take(filled, Assignment(tuple(picked[0])))
    return ()


def _shortfalls(cards: Sequence[Card], ask: Ask, request: Request) -> tuple[Shortfall, ...]:
    found: list[Shortfall] = []
    fitting = 0
    for card in cards:
        reason = refusal(card, ask, request)
        if reason is None:
            fitting += 1
        else:
            found.append(_shortfall(card, ask, request, reason))
    if fitting or not found:
        # Some cards fit, but not as many as one container wants: it never gets two shares of one card.
        found.insert(0, Shortfall("", Reason.CARD_COUNT, ask.number, fitting, "cards"))
    return tuple(found)


def _shortfall(card: Card, ask: Ask, request: Request, reason: Reason) -> Shortfall:
    fixed = card.fixed
    factor = fixed.kind.factor
    match reason:
        case Reason.MEMORY:
            free = max(fixed.memory - card.used_memory, 0) * factor
            # Of a card in mode mig only whole slices can be had.
            free = min(free, _largest_free_slice(card)) if fixed.layout else free
            return Shortfall(fixed.uuid, reason, wanted(ask, fixed) * factor, free, "MiB", mib_per_unit=factor)
        case Reason.LAYOUT:
            largest, detail = _largest_free_slice(card), _layout_detail(card)
            return Shortfall(fixed.uuid, reason, wanted(ask, fixed) * factor, largest, "MiB", detail, factor)
        case Reason.CORES:
            return Shortfall(fixed.uuid, reason, ask.cores, max(100 - card.used_cores, 0), "%")
        case Reason.EXCLUSIVE:
            return Shortfall(fixed.uuid, reason, ask.cores, 100 - card.used_cores, "%", "needs a card of its own")
        case Reason.PROMISED:
            return Shortfall(fixed.uuid, reason, detail="100 % of its cores are promised to the pods there")
        case Reason.SLOTS:
            return Shortfall(fixed.uuid, reason, 1, max(fixed.slots - card.used_slots, 0), "shares")
        case Reason.MODE:
            detail = fixed.problem or f"wants {request.mode}, the card is in {fixed.mode}"
            return Shortfall(fixed.uuid, reason, detail=detail)
        case Reason.TYPE:
            return Shortfall(fixed.uuid, reason, detail=fixed.kind.type.removeprefix("NVIDIA-"))
        case Reason.INDEX:
            return Shortfall(fixed.uuid, reason, unit="position", detail=f"it is card {fixed.position}")
        case Reason.UNORDERED:
            return Shortfall(fixed.uuid, reason, detail=_UNORDERED)
        case Reason.GROUP:
            return Shortfall(fixed.uuid, reason, detail=f"a pod of group {request.group} is on the card")
        case Reason.RULE:
            return Shortfall(fixed.uuid, reason, detail="a pod of the same exclusive rule is on the card")
        case Reason.UNUSABLE:
            return Shortfall(fixed.uuid, reason, detail=fixed.problem or _unusable_detail(card))
        case _:
            return Shortfall(fixed.uuid, reason, detail=fixed.problem)


def _unusable_detail(card: Card) -> str:
    if card.unread:
        return "a pod's assignment names the card but cannot be read"
    return "MIG slices are in use that cannot exist together"


def _layout_detail(card: Card) -> str:
    return f"the card is laid out as {card.slices[0][0]}" if card.slices else "no layout has a slice so large"


def _largest_free_slice(card: Card) -> int:
    sizes = {profile.memory_mib for group in card.fixed.layout for profile in group.profiles}
    return max((size for size in sizes if mig.choose(card.fixed.layout, card.slices, size) is not None), default=0)


def _in_mode(asked: str, offered: str) -> bool:
    # Cards in mode mps are limited as hami-core cards are (nvidia 2.6), so both words may ask for them.
    return asked == offered or (asked == keys.HAMI_CORE and offered == keys.MPS)


def relaxed(cards: Sequence[Card], request: Request, reason: Reason, amount: int) -> Request | None:
    """*request*, no container asking for more than *amount*: cards, MiB or percent of cores."""
    match reason:
        case Reason.MODE:
            return request._replace(mode="")
        case Reason.TYPE | Reason.UUID | Reason.INDEX | Reason.UNORDERED:
            return request._replace(selection=request.selection.without(reason))
        case Reason.CARD_COUNT:
            asks = [ask._replace(number=min(ask.number, amount)) for ask in request.asks]
        case Reason.CORES:
            asks = [ask._replace(cores=min(ask.cores, amount)) for ask in request.asks]
        case _:
            factors = {card.fixed.kind.factor for card in cards}
            memory = amount // max(factors, default=1)
            if not memory:
                return None
            asks = [
                ask._replace(memory=memory, percent=0) if ask.percent or ask.memory > memory else ask
                for ask in request.asks
            ]
    return request._replace(asks=tuple(asks))


def width(request: Request) -> int:
    """How many different cards of one node *request* needs at once."""
    return max(ask.number for ask in request.asks)


def want(request: Request, kind: Hashable) -> Want | None:
    """What *request* asks of cards of *kind*; None if such a card can never serve it."""
    if isinstance(kind, Sliced):
        return _want_of_sliced(request, kind)
    if not isinstance(kind, Kind):
        return None
    if request.mode and not _in_mode(request.mode, kind.mode):
        return None
    if request.selection is not ANY_CARD and not request.selection.accepts_type(type_words(kind.type)):
        return None
    needs = [_need(ask, kind) for ask in request.asks]
    # Such a card may be for the smallest of the containers alone.
    if min(needs) > kind.memory + kind.slack:
        return None
    spare = min(ask.cores for ask in request.asks)
    if len(needs) > 1:
        return Want(min(needs), spare, len(needs) * 2 * kind.memory, kind.memory)
    number = request.asks[0].number
    charge = needs[0]
    if kind.layout:
        sizes = mig.charges(kind.layout, charge * kind.factor)
        if not sizes:
            return None
        # The slice may be larger than the request.
        # What is free of it may be told higher than its memory leaves: see `usage.room`.
        charge = max(sizes) + kind.slack
    return Want(needs[0], spare, number * (kind.memory + charge), kind.memory)


def _want_of_sliced(request: Request, sliced: Sliced) -> Want | None:
    """The same of MIG cards whose slices are known: they have one score, which is that of the slice they give."""
    kind, slices, used, free = sliced
    rough = want(request, kind)
    if rough is None or len(request.asks) > 1:
        return rough
    chosen = mig.choose(kind.layout, slices, rough.free * kind.factor)
    if chosen is None or rough.free > free:
        return None
    return Want(free, rough.spare, request.asks[0].number * (used + free + chosen.charge), kind.memory)


def _need(ask: Ask, kind: Kind) -> int:
    return _part(ask.percent, kind.memory, kind.layout, kind.factor) if ask.percent else ask.memory


def bounded(request: Request, policy: Policy) -> bool:
    """Whether `want` bounds the score by free amounts: under binpack, where one container asks."""
    return policy is _BINPACK and len(request.asks) == 1


def idle_score(request: Request, idle: int, policy: Policy) -> float:
    """The highest score that a node with *idle* idle cards can reach where `bounded` is False."""
    asked = sum(ask.number for ask in request.asks)
    if policy is _SPREAD:
        return 100.0 * min(idle, asked)
    return 100.0 * asked if policy is _BINPACK else 0.0
