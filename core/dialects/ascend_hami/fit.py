"""Which chips of a node a request gets, and why it gets none.

Source: protocol reference, ascend 4.4 to 4.6, 4.8, 4.10, with the defects H-2, H-5, H-9, H-11, H-12, H-15, H-16 done
as they say.
"""

from collections.abc import Hashable, Sequence
from typing import Final, NamedTuple

from core.dialects.ascend_hami import keys, usage
from core.dialects.ascend_hami.cards import Card, Cut, Fixed, Kind, cores_total
from core.dialects.ascend_hami.requests import MODULE, Ask, Request
from core.dialects.ascend_hami.usage import Assignment, Charge, Entry, charge_of
from core.port.cards import Hole, Placed, Want
from core.port.refusals import WISHES, Reason, Shortfall
from core.selection import ANY_CARD
from core.settings import CARD_POLICIES, Policy

_BINPACK: Final = Policy.BINPACK
_SPREAD: Final = Policy.SPREAD
_NONE_TAKEN: Final[frozenset[int]] = frozenset()
# What chips of one ring add to a node's score (ascend 4.8).
_RING_BONUS: Final = 10


def place(cards: Sequence[Card], request: Request, policy: Policy) -> Placed[Assignment] | None:
    """The chips that *request* gets under *policy*, or None; all containers or none."""
    asks = request.asks
    if len(asks) == 1:
        ask = asks[0]
        slots = _pick(cards, ask, request, policy, _NONE_TAKEN)
        if slots is None:
            return None
        entries, charges = _shares(cards, slots, ask, request)
        # Entries keep the order of the rings; charges have one order, so that what is held equals what was placed.
        charges.sort()
        assignment = Assignment(request.word, request.soft, request.segments, tuple(entries), tuple(charges))
        return Placed(assignment, _single_score(cards, slots, policy))
    picks = _picks(cards, request, policy)
    return None if isinstance(picks, _Stuck) else _placed(cards, picks, request, policy)


def left(card: Card, request: Request) -> Hole | None:
    """What would be left of *card* if *request*, which is for one chip, got it; None if it does not take that."""
    ask = request.asks[0]
    if refusal(card, ask, request) is not None:
        return None
    charge = charge_of(0, card.fixed.uuid, wanted(ask, card.fixed, soft=request.soft), ask.cores, soft=request.soft)
    return usage.holes(usage.take((card,), Assignment(request.word, request.soft, 0, (), (charge,))))[0]


def alone(cards: Sequence[Card], request: Request, slot: int) -> Placed[Assignment]:
    """What *request*, which is for one chip, gets of the chip at *slot*, which takes it."""
    entries, charges = _shares(cards, [slot], request.asks[0], request)
    assignment = Assignment(request.word, request.soft, request.segments, tuple(entries), tuple(charges))
    return Placed(assignment, _single_score(cards, [slot], _BINPACK))


class _Stuck(NamedTuple):
    """The first container that finds no chips, and the chips that its pod's other containers have."""

    ask: Ask
    taken: frozenset[int]


class _Pick(NamedTuple):
    """One container's chips; shared: another container of the pod pays for them."""

    ask: Ask
    slots: list[int]
    shared: bool


def _picks(cards: Sequence[Card], request: Request, policy: Policy) -> list[_Pick] | _Stuck:
    """Different chips for all containers that run together: the plugin knows one template per pod and chip (D-8).

    An init container uses the chips of one that asks the same and does not run beside it.
    """
    picks: list[_Pick] = []
    taken: frozenset[int] = _NONE_TAKEN
    for ask in request.asks:
        lender = _lender(picks, ask) if ask.initial else None
        if lender is not None:
            picks.append(_Pick(ask, lender[: ask.number], shared=True))
            continue
        slots = _pick(cards, ask, request, policy, taken)
        if slots is None:
            return _Stuck(ask, taken)
        taken |= frozenset(slots)
        picks.append(_Pick(ask, slots, shared=False))
    return picks


def _lender(picks: Sequence[_Pick], ask: Ask) -> list[int] | None:
    for one in picks:
        same = one.ask.cut == ask.cut and one.ask.cores == ask.cores and one.ask.number >= ask.number
        runs_beside = one.ask.sidecar and one.ask.container < ask.container
        # Who shares them has them of another, who is asked too.
        if same and not runs_beside and not one.shared:
            return one.slots
    return None


def _pick(cards: Sequence[Card], ask: Ask, request: Request, policy: Policy, taken: frozenset[int]) -> list[int] | None:
    """The slots of the chips for one container, in the order in which they are told to the plugin."""
    fitting: list[tuple[float, int]] = []
    cut, number = ask.cut, ask.number
    need = cut.memory_mib if cut is not None else 0
    for slot, card in enumerate(cards):
        # The commonest obstacle first, without a call: this loop is where decisions spend their time.
        fixed, used_memory = card.fixed, card.used_memory
        if fixed.memory - used_memory < need or (taken and slot in taken):
            continue
        if refusal(card, ask, request) is None:
            if policy is _BINPACK:
                fitting.append((-used_memory / fixed.memory, slot))
            elif policy is _SPREAD:
                fitting.append((1.0 if card.used_slots else 0.0, slot))
            else:
                fitting.append((0.0, slot))
    if request.paired:
        fitting = _whole_modules(cards, fitting)
    if len(fitting) < number:
        return None
    if request.paired:
        return [slot for _, slot in fitting[:number]]
    if number == 1:
        # The size of a ring says nothing about one chip (H-16).
        return [min(fitting)[1]]
    fitting.sort()
    return _by_rings(cards, [slot for _, slot in fitting])[:number]


def _whole_modules(cards: Sequence[Card], fitting: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """Those of *fitting* chips, by rank and slot, whose module fits as a whole, the best modules first (ascend 4.6)."""
    modules: dict[int, list[tuple[float, int]]] = {}
    for one in fitting:
        modules.setdefault(cards[one[1]].fixed.position // MODULE, []).append(one)
    whole = sorted((sum(rank for rank, _ in one), one) for one in modules.values() if len(one) == MODULE)
    return [chip for _, module in whole for chip in module]


def _by_rings(cards: Sequence[Card], slots: list[int]) -> list[int]:
    """*slots* by ring, the ring with most of them first; inside a ring their order stays (ascend 4.6)."""
    rings: dict[int, list[int]] = {}
    for slot in slots:
        network = cards[slot].fixed.network
        if network is None:
            return slots
        rings.setdefault(network, []).append(slot)
    return [slot for network in sorted(rings, key=lambda one: (-len(rings[one]), one)) for slot in rings[network]]


def _shares(cards: Sequence[Card], slots: list[int], ask: Ask, request: Request) -> tuple[list[Entry], list[Charge]]:
    entries: list[Entry] = []
    charges: list[Charge] = []
    for slot in slots:
        fixed = cards[slot].fixed
        cut = wanted(ask, fixed, soft=request.soft)
        entries.append(Entry(ask.container, fixed.uuid, cut.memory_mib, ask.cores, cut.template))
        charges.append(charge_of(slot, fixed.uuid, cut, ask.cores, soft=request.soft))
    return entries, charges


def _placed(cards: Sequence[Card], picks: Sequence[_Pick], request: Request, policy: Policy) -> Placed[Assignment]:
    entries: list[Entry] = []
    charges: list[Charge] = []
    paid: list[list[int]] = []
    for ask, slots, shared in sorted(picks, key=lambda one: one.ask.container):
        some, costs = _shares(cards, slots, ask, request)
        entries += some
        if not shared:
            charges += costs
            paid.append(slots)
    charges.sort()
    assignment = Assignment(request.word, request.soft, request.segments, tuple(entries), tuple(charges))
    return Placed(assignment, _score(cards, paid, policy))


def _single_score(cards: Sequence[Card], slots: list[int], policy: Policy) -> float:
    """What one container's chips score; under binpack by the expression of `want`, to the last bit."""
    fixed = cards[slots[0]].fixed
    number = len(slots)
    if number == 1 and policy is _BINPACK:
        total = fixed.memory
        in_ring = 0 if fixed.network is None else 1
        return 100.0 * (_numerator(total, 1, in_ring) - (total - cards[slots[0]].used_memory)) / total
    if policy is not _BINPACK or any(cards[slot].fixed.memory != fixed.memory for slot in slots):
        return _score(cards, [slots], policy)
    free = sum(fixed.memory - cards[slot].used_memory for slot in slots)
    total = number * fixed.memory
    return 100.0 * (_numerator(total, number, _largest_ring(cards, slots)) - free) / total


def _numerator(total: int, number: int, in_ring: int) -> float:
    """*total* of *number* chips and the bonus for *in_ring* of them in one ring, in MiB."""
    return total * (_RING_BONUS * number + in_ring) / (_RING_BONUS * number) if in_ring else total


def _score(cards: Sequence[Card], picks: Sequence[list[int]], policy: Policy) -> float:
    """The mean of every container's chips before the pod, summed, and the bonus for one ring (ascend 4.8, H-9)."""
    score = sum(sum(_chip_score(cards[slot], policy) for slot in slots) / len(slots) for slots in picks)
    everything = [slot for slots in picks for slot in slots]
    return score + float(_RING_BONUS) * _largest_ring(cards, everything) / len(everything)


def _chip_score(card: Card, policy: Policy) -> float:
    if policy is _BINPACK:
        return 100.0 * card.used_memory / card.fixed.memory
    return 100.0 if policy is _SPREAD and not card.used_slots else 0.0


def _largest_ring(cards: Sequence[Card], slots: Sequence[int]) -> int:
    """How many of *slots* are in the ring that has most of them; 0 without rings."""
    if len(slots) == 1:
        return 0 if cards[slots[0]].fixed.network is None else 1
    rings: dict[int, int] = {}
    for slot in slots:
        network = cards[slot].fixed.network
        if network is None:
            return 0
        rings[network] = rings.get(network, 0) + 1
    return max(rings.values())


def wanted(ask: Ask, fixed: Fixed, *, soft: bool) -> Cut:
    """What *ask* takes of a chip; without a figure all of it."""
    if ask.cut is not None:
        return ask.cut
    return Cut(fixed.memory) if soft else fixed.whole


def refusal(card: Card, ask: Ask, request: Request) -> Reason | None:
    """Return why *card* cannot take *ask*; None if it can."""
    fixed, used_slots, soft = card.fixed, card.used_slots, request.soft
    if fixed.word != request.word:
        return Reason.TYPE
    if fixed.fault is not None:
        return fixed.fault
    if card.unread:
        return Reason.UNUSABLE
    selection = request.selection
    if selection is not ANY_CARD and selection.accepts((), fixed.uuid, fixed.position) is not None:
        return Reason.UUID
    cut = wanted(ask, fixed, soft=soft)
    # Template slices and soft slices never share a chip (H-12), and soft pods need a soft node (ascend 4.10).
    if soft and (not fixed.soft or card.cuts):
        return Reason.MODE
    if not soft and (used_slots > card.cuts or (fixed.soft and cut.template)):
        return Reason.MODE
    if used_slots >= fixed.slots:
        return Reason.SLOTS
    if fixed.memory - card.used_memory < cut.memory_mib:
        return Reason.MEMORY
    total, used_cores, cores = cores_total(fixed, soft=soft), card.used_cores, ask.cores
    if total - used_cores < cores:
        return Reason.CORES
    if used_slots and ((total == cores == 100) or (used_cores == total and total and not cores)):
        return Reason.EXCLUSIVE
    if soft:
        return None
    if cut.template and ask.number > (MODULE if request.paired else 1):
        return Reason.TEMPLATE
    if fixed.ai_core and card.used_ai_core + cut.ai_core > fixed.ai_core:
        return Reason.TEMPLATE
    return Reason.TEMPLATE if fixed.ai_cpu and card.used_ai_cpu + cut.ai_cpu > fixed.ai_cpu else None


def shortfalls(cards: Sequence[Card], request: Request) -> tuple[Shortfall, ...]:
    """Why `place` answers None: every chip that refuses the first container without room, in numbers."""
    # Which chips the first containers take depends on the policy, and with it what is left for the next ones.
    for policy in CARD_POLICIES:
        picks = _picks(cards, request, policy)
        if isinstance(picks, _Stuck):
            return _shortfalls(cards, picks, request)
    return ()


def _shortfalls(cards: Sequence[Card], stuck: _Stuck, request: Request) -> tuple[Shortfall, ...]:
    found: list[Shortfall] = []
    fitting: list[tuple[float, int]] = []
    for slot, card in enumerate(cards):
        if slot in stuck.taken:
            found.append(Shortfall(card.fixed.uuid, Reason.BUSY, detail="another container of the pod takes it"))
            continue
        reason = refusal(card, stuck.ask, request)
        if reason is None:
            fitting.append((0.0, slot))
        else:
            found.append(_shortfall(card, stuck.ask, request, reason))
    if fitting or not found:
        count = len(_whole_modules(cards, fitting) if request.paired else fitting)
        detail = "in whole modules of two" if request.paired else ""
        found.insert(0, Shortfall("", Reason.CARD_COUNT, stuck.ask.number, count, "cards", detail))
    return tuple(found)


def _shortfall(card: Card, ask: Ask, request: Request, reason: Reason) -> Shortfall:
    fixed = card.fixed
    cut = wanted(ask, fixed, soft=request.soft)
    match reason:
        case Reason.MEMORY:
            return _memory_shortfall(card, ask, cut, soft=request.soft)
        case Reason.CORES:
            total = cores_total(fixed, soft=request.soft)
            unit = "%" if total == 100 else "AI cores"
            return Shortfall(fixed.uuid, reason, ask.cores, max(total - card.used_cores, 0), unit)
        case Reason.EXCLUSIVE:
            detail = "needs a chip of its own" if ask.cores else "all cores of the chip are promised"
            return Shortfall(fixed.uuid, reason, detail=detail)
        case Reason.SLOTS:
            return Shortfall(fixed.uuid, reason, 1, max(fixed.slots - card.used_slots, 0), "shares")
        case Reason.TEMPLATE:
            return _template_shortfall(card, ask, cut, reason)
        case Reason.MODE:
            return Shortfall(fixed.uuid, reason, detail=_mode_detail(card, request))
        case Reason.TYPE:
            return Shortfall(fixed.uuid, reason, detail=fixed.word)
        case Reason.UNUSABLE:
            detail = fixed.problem or "a pod's assignment names the chip but cannot be read"
            return Shortfall(fixed.uuid, reason, detail=detail)
        case _:
            return Shortfall(fixed.uuid, reason, detail=fixed.problem)


def _memory_shortfall(card: Card, ask: Ask, cut: Cut, *, soft: bool) -> Shortfall:
    fixed = card.fixed
    free = max(fixed.memory - card.used_memory, 0)
    if soft:
        return Shortfall(fixed.uuid, Reason.MEMORY, cut.memory_mib, free, "MiB")
    if ask.number > 1:
        # Less memory is no way out: several chips can only be had whole.
        return Shortfall(fixed.uuid, Reason.EXCLUSIVE, detail=f"{free} of {fixed.memory} MiB free, must be idle")
    # Whoever asks for less gets a template: what is free counts up to the largest that still fits.
    fitting = max((one.memory_mib for one in fixed.templates if one.memory_mib <= free), default=0)
    detail = f"{free} MiB free, {cut.memory_mib} needed as {cut.template or 'the whole chip'}"
    return Shortfall(fixed.uuid, Reason.MEMORY, cut.memory_mib, fitting, "MiB", detail)


def _template_shortfall(card: Card, ask: Ask, cut: Cut, reason: Reason) -> Shortfall:
    fixed = card.fixed
    if ask.number > 1 and cut.template:
        return Shortfall(fixed.uuid, reason, detail="several chips can only be asked for whole")
    if fixed.ai_core and card.used_ai_core + cut.ai_core > fixed.ai_core:
        free = max(fixed.ai_core - card.used_ai_core, 0)
        return Shortfall(fixed.uuid, reason, cut.ai_core, free, "AI cores", cut.template or "the whole chip")
    free = max(fixed.ai_cpu - card.used_ai_cpu, 0)
    return Shortfall(fixed.uuid, reason, cut.ai_cpu, free, "AI CPUs", cut.template or "the whole chip")


def _mode_detail(card: Card, request: Request) -> str:
    if request.soft:
        return "a chip cut by templates takes no soft share" if card.fixed.soft else "the node has no soft slicing"
    if card.used_slots > card.cuts:
        return "soft shares are on the chip"
    return "the node slices softly; ask for whole chips, or for soft slicing"


def relaxed(cards: Sequence[Card], request: Request, reason: Reason, amount: int) -> Request | None:
    """*request*, no container asking for more than *amount*: chips, MiB (a template, in template mode), cores."""
    if reason in WISHES:
        return _unwished(request, reason)
    asks: list[Ask] = []
    for ask in request.asks:
        cut, number, cores = ask.cut, ask.number, ask.cores
        match reason:
            case Reason.CARD_COUNT:
                number = min(number, amount)
                if request.paired and number % MODULE:
                    return None
            case Reason.CORES:
                cores = min(cores, amount)
            case _ if cut is None or cut.memory_mib > amount:
                cut = _cut_of(cards, request, amount)
                if cut is None:
                    return None
            case _:
                pass
        asks.append(ask._replace(cut=cut, number=number, cores=cores))
    return request._replace(asks=tuple(asks))


def _unwished(request: Request, wish: Reason) -> Request | None:
    """*request* without the chips that it names, or for whole chips instead of soft shares without figures."""
    if wish is Reason.MODE and request.soft and all(ask.cut is None and not ask.cores for ask in request.asks):
        return request._replace(soft=False)
    return request._replace(selection=ANY_CARD) if wish is Reason.UUID else None


def _cut_of(cards: Sequence[Card], request: Request, memory_mib: int) -> Cut | None:
    """What a container gets that asks for *memory_mib*, no more; None where that is no template's memory."""
    if request.soft:
        return Cut(memory_mib)
    for card in cards:
        if card.fixed.word == request.word:
            return next((cut for cut in card.fixed.templates if cut.memory_mib == memory_mib), None)
    return None


def width(request: Request) -> int:
    """How many different chips of one node *request* needs at once."""
    return max(ask.number for ask in request.asks)


def want(request: Request, kind: Hashable) -> Want | None:
    """What *request* asks of chips of *kind*; None if such a chip can never serve it."""
    if not isinstance(kind, Kind) or kind.word != request.word or (request.soft and not kind.soft):
        return None
    if not request.soft and kind.soft and any(ask.cut is not None and ask.cut.template for ask in request.asks):
        return None
    whole = Cut(kind.memory) if request.soft else kind.whole
    cuts = [ask.cut or whole for ask in request.asks]
    least = min(cut.memory_mib for cut in cuts)
    if least > kind.memory:
        return None
    if kind.soft:
        spare = min(ask.cores for ask in request.asks)
    elif kind.ai_cpu:
        spare = min(cut.ai_cpu for cut in cuts)
    else:
        spare = min(cut.ai_core for cut in cuts) if kind.ai_core else 0
    number = request.asks[0].number
    total = number * kind.memory
    numerator = _numerator(total, number, number if kind.ringed else 0)
    return Want(least, spare, numerator, total)


def bounded(request: Request, policy: Policy) -> bool:
    """Whether `want` bounds the score by free amounts: under binpack, where one container asks."""
    return policy is _BINPACK and len(request.asks) == 1


def idle_score(request: Request, idle: int, policy: Policy) -> float:
    """The highest score that a node with *idle* idle chips can reach where `bounded` is False."""
    asked = len(request.asks)
    bonus = float(_RING_BONUS) if request.word.startswith(keys.RINGED_PREFIX) else 0.0
    if policy is _SPREAD:
        return 100.0 * min(idle, asked) + bonus
    return 100.0 * asked + bonus if policy is _BINPACK else bonus
