"""Which cards of a node a request gets, and why it gets none.

Source: protocol reference, hami 4.3 to 4.8, with the defects HN-4, HN-7, HN-8, HN-14, HN-21 done as they say.
"""

from collections.abc import Hashable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from core.dialects.hami import keys, mig, orders, usage
from core.dialects.hami.cards import Card, Fixed, Kind, label_of
from core.dialects.hami.orders import Ranking
from core.dialects.hami.requests import EVEN, Ask, Request
from core.dialects.hami.usage import Assignment, Entry
from core.port.cards import Hole, Placed, Want
from core.port.refusals import Reason, Shortfall
from core.selection import ANY_CARD, type_words
from core.settings import CARD_POLICIES, Policy

_NO_ENDING: Final[frozenset[int]] = frozenset()


class _Pick(NamedTuple):
    """One container's shares; lent: they are instances of another container."""

    ask: Ask
    entries: list[Entry]
    lent: bool = False


class _Stuck(NamedTuple):
    """The first container that finds no cards, and the cards as it found them."""

    ask: Ask
    cards: Sequence[Card]


def place(cards: Sequence[Card], request: Request, policy: Policy) -> Placed[Assignment] | None:
    """The cards that *request* gets under *policy*, or None; all containers or none."""
    picks = _picks(cards, request, policy)
    if isinstance(picks, _Stuck):
        return None
    entries = [entry for pick in sorted(picks, key=lambda one: one.ask.container) for entry in pick.entries]
    ending = frozenset(ask.container for ask in request.asks if ask.initial) or _NO_ENDING
    slots = _slots(cards)
    assignment = usage.assigned(request.segments, entries, ending, slots)
    return Placed(assignment, _score(cards, entries, slots, request, policy))


def left(card: Card, request: Request) -> Hole | None:
    """What would be left of *card* if *request*, which is for one card, got it; None if it does not take that."""
    ask = request.asks[0]
    if refusal(card, ask, request) is not None:
        return None
    entry = _entry(card, ask)
    slices = card.slices if entry.slice is None else tuple(sorted((*card.slices, entry.slice)))
    after = Card(
        card.fixed,
        card.used_slots + 1,
        card.used_memory + entry.memory_mib,
        card.used_cores + entry.cores,
        slices,
        card.unread,
    )
    return usage.holes((after,))[0]


def alone(cards: Sequence[Card], request: Request, slot: int) -> Placed[Assignment]:
    """What *request*, which is for one card, gets of the card at *slot*, which takes it."""
    ask = request.asks[0]
    ending = frozenset({ask.container}) if ask.initial else _NO_ENDING
    return Placed(usage.assigned(request.segments, [_entry(cards[slot], ask)], ending, _slots(cards)), 0.0)


def _slots(cards: Sequence[Card]) -> dict[str, int]:
    return {card.fixed.uuid: slot for slot, card in enumerate(cards)}


def _picks(cards: Sequence[Card], request: Request, policy: Policy) -> list[_Pick] | _Stuck:
    """Cards for all containers: those that run together beside each other, each that ends beside sidecars before it.

    Instances of MIG cards are made one after the other and stay, so that those of all containers stand beside each
    other; an init container uses those of another that asks the same (HN-21).
    """
    rank = orders.ranking(request.order, policy)
    if len(request.asks) == 1:
        ask = request.asks[0]
        entries = _pick(cards, ask, request, rank)
        return _Stuck(ask, cards) if entries is None else [_Pick(ask, entries)]
    picks: list[_Pick] = []
    slots = _slots(cards)
    filled = tuple(cards)
    for ask in request.asks:
        lent = _lent(picks, ask) if ask.initial else None
        if lent is not None:
            picks.append(_Pick(ask, lent, lent=True))
            continue
        seen = tuple(map(_during_start, filled, _beside(cards, picks, ask, slots))) if ask.initial else filled
        entries = _pick(seen, ask, request, rank)
        if entries is None:
            return _Stuck(ask, seen)
        picks.append(_Pick(ask, entries))
        if ask.initial:
            filled = usage.with_slices(filled, entries, slots)
        else:
            filled = usage.take(filled, usage.assigned(0, entries, _NO_ENDING, slots))
    return picks


def _beside(cards: Sequence[Card], picks: Sequence[_Pick], ask: Ask, slots: dict[str, int]) -> tuple[Card, ...]:
    """*cards* with the shares of the sidecars that have started when the init container of *ask* runs."""
    running = [entry for other, entries, _ in picks if _outlasts(other, ask) for entry in entries]
    return usage.take(tuple(cards), usage.assigned(0, running, _NO_ENDING, slots))


def _outlasts(other: Ask, ask: Ask) -> bool:
    """Whether *other* runs beside the init container of *ask*: a sidecar that stands before it in the list."""
    return other.sidecar and other.container < ask.container


def _during_start(filled: Card, beside: Card) -> Card:
    """A card as an init container finds it: instances of all containers are there, or are still to be made."""
    return beside._replace(slices=filled.slices) if filled.slices else beside


def _lent(picks: Sequence[_Pick], ask: Ask) -> list[Entry] | None:
    for other, entries, lent in picks:
        # Who was lent his has them of another, who is asked too.
        may_lend = other[1:5] == ask[1:5] and not lent and not _outlasts(other, ask)
        if may_lend and all(one.slice is not None for one in entries):
            return [one._replace(container=ask.container) for one in entries]
    return None


def _pick(cards: Sequence[Card], ask: Ask, request: Request, rank: Ranking) -> list[Entry] | None:
    fitting: list[int] = []
    need = ask.memory
    for slot, card in enumerate(cards):
        # The commonest obstacle first, without a call: this loop is where decisions spend their time.
        if card.fixed.memory - card.used_memory >= need and refusal(card, ask, request) is None:
            fitting.append(slot)
    if not fitting:
        return None
    if ask.number == 1 and not request.order.linked:
        best = fitting[0] if len(fitting) == 1 else min(fitting, key=lambda slot: rank(slot, cards[slot]))
        return [_entry(cards[best], ask)]
    fitting.sort(key=lambda slot: rank(slot, cards[slot]))
    # Cards of a node that is cut are not chosen by their links (HN-14).
    linked = request.order.linked and not any(card.fixed.mode == keys.MIG for card in cards)
    best_links: orders.Linked | None = None
    for group in _groups(cards, fitting, bound=request.order.bound):
        if not linked:
            entries = _collected(cards, group, ask, request)
            if entries is not None:
                return entries
        elif len(group) >= ask.number:
            found = orders.linked(cards, group, ask.number, len(request.asks))
            if best_links is None or found.quality > best_links.quality:
                best_links = found
    return None if best_links is None else [_entry(cards[slot], ask) for slot in best_links.slots]


def _groups(cards: Sequence[Card], slots: list[int], *, bound: bool) -> Iterator[list[int]]:
    """All *slots*, or those of each NUMA node by themselves, in the order in which they are visited."""
    if not bound:
        yield slots
        return
    for _, group in groupby(slots, key=lambda slot: cards[slot].fixed.numa):
        yield list(group)


def _collected(cards: Sequence[Card], slots: Sequence[int], ask: Ask, request: Request) -> list[Entry] | None:
    """The first shares of *slots*; a card that is cut is asked again as long as it has an instance left."""
    entries: list[Entry] = []
    for slot in slots:
        card = cards[slot]
        left = card.fixed.slots - card.used_slots
        while len(entries) < ask.number and left and refusal(card, ask, request) is None:
            entry = _entry(card, ask)
            entries.append(entry)
            if entry.slice is None:
                break
            # What instances of one container may take beside each other their places say, not their memory and cores.
            card = card._replace(slices=tuple(sorted((*card.slices, entry.slice))))
            left -= 1
        if len(entries) == ask.number:
            return entries
    return None


def _entry(card: Card, ask: Ask) -> Entry:
    fixed = card.fixed
    need = wanted(ask, fixed)
    if fixed.profiles:
        chosen = mig.choose(fixed.profiles, card.slices, need)
        if chosen is not None:
            profile = chosen.profile
            return Entry(ask.container, fixed.uuid, profile.memory_mib, profile.cores, profile.name, chosen.slice)
    return Entry(ask.container, fixed.uuid, need, ask.cores)


def wanted(ask: Ask, fixed: Fixed) -> int:
    """What *ask* takes of a card in MiB; a percentage never comes to nothing, which the plugin takes for no limit.

    All of a card that is cut is its largest instance, which is less than the card has (HN-7).
    """
    return _part(ask, fixed.memory, fixed.profiles)


def _part(ask: Ask, memory: int, profiles: mig.Profiles) -> int:
    if not ask.percent:
        return ask.memory
    if ask.percent == 100 and profiles:
        return min(memory, mig.largest_mib(profiles))
    return memory * ask.percent // 100 or 1


def refusal(card: Card, ask: Ask, request: Request) -> Reason | None:
    """Why *card* cannot take *ask*; None if it can."""
    fixed, used_slots, used_memory, used_cores, slices, unread = card
    if fixed.fault is not None:
        return fixed.fault
    if unread:
        return Reason.UNUSABLE
    if request.modes and fixed.mode not in request.modes and not fixed.untold:
        return Reason.MODE
    selection = request.selection
    if selection is not ANY_CARD:
        refused = selection.accepts(fixed.words, fixed.uuid, fixed.position)
        if refused is not None:
            return refused
    if used_slots >= fixed.slots:
        return Reason.SLOTS
    if used_slots and request.order.exclusive:
        return Reason.BUSY
    need = wanted(ask, fixed) if ask.percent else ask.memory
    if fixed.memory - used_memory < need:
        return Reason.LAYOUT if slices else Reason.MEMORY
    cores = ask.cores
    if fixed.cores - used_cores < cores:
        return Reason.CORES
    if used_slots and cores == fixed.cores == 100:
        return Reason.EXCLUSIVE
    if used_cores == fixed.cores and not cores:
        return Reason.PROMISED
    if fixed.profiles:
        if mig.conflicting(slices):
            return Reason.UNUSABLE
        if mig.choose(fixed.profiles, slices, need) is None:
            return Reason.LAYOUT
    return None


def _score(
    cards: Sequence[Card], entries: Sequence[Entry], slots: dict[str, int], request: Request, policy: Policy
) -> float:
    """How good the node is; the fullest under binpack by the expression of `want`, to the last bit."""
    if not bounded(request, policy):
        return idle_score(request, usage.idle_cards(cards), policy)
    used = 0
    shares: list[float] = []
    totals: list[int] = []
    filled: dict[int, int] = {}
    for entry in entries:
        slot = slots[entry.uuid]
        filled[slot] = filled.get(slot, 0) + entry.memory_mib
        after, total = cards[slot].used_memory + filled[slot], cards[slot].fixed.memory
        used += after
        shares.append(100.0 * after / total)
        totals.append(total)
    return 100.0 * used / totals[0] if len(set(totals)) == 1 else sum(shares)


def shortfalls(cards: Sequence[Card], request: Request) -> tuple[Shortfall, ...]:
    """Why `place` answers None: every card that refuses the first container without room, in numbers."""
    # Which cards the first containers take depends on the policy, and with it what is left for the next ones.
    for policy in CARD_POLICIES:
        picks = _picks(cards, request, policy)
        if isinstance(picks, _Stuck):
            return _shortfalls(picks, request)
    return ()


def _shortfalls(stuck: _Stuck, request: Request) -> tuple[Shortfall, ...]:
    found: list[Shortfall] = []
    fitting: list[Card] = []
    for card in stuck.cards:
        reason = refusal(card, stuck.ask, request)
        if reason is None:
            fitting.append(card)
        else:
            found.append(_shortfall(card, stuck.ask, reason, request))
    if fitting or not found:
        groups: dict[int, int] = {}
        for card in fitting:
            group = card.fixed.numa if request.order.bound else 0
            groups[group] = groups.get(group, 0) + 1
        where = "of one NUMA node" if request.order.bound else ""
        most = max(groups.values(), default=0)
        found.insert(0, Shortfall("", Reason.CARD_COUNT, stuck.ask.number, most, "cards", where))
    return tuple(found)


def _shortfall(card: Card, ask: Ask, reason: Reason, request: Request) -> Shortfall:
    fixed = card.fixed
    match reason:
        case Reason.MEMORY:
            free = max(fixed.memory - card.used_memory, 0)
            # Of a card that is cut only whole instances can be had.
            free = min(free, mig.largest_free_mib(fixed.profiles, card.slices)) if fixed.profiles else free
            return Shortfall(fixed.uuid, reason, wanted(ask, fixed), free, "MiB")
        case Reason.LAYOUT:
            free = mig.largest_free_mib(fixed.profiles, card.slices)
            shown = ", ".join(f"{start}+{size}" for start, size in card.slices)
            detail = f"instances stand at {shown}" if shown else "no instance is so large"
            return Shortfall(fixed.uuid, reason, wanted(ask, fixed), free, "MiB", detail)
        case Reason.CORES:
            return Shortfall(fixed.uuid, reason, ask.cores, max(fixed.cores - card.used_cores, 0), "%")
        case Reason.EXCLUSIVE:
            free = max(fixed.cores - card.used_cores, 0)
            return Shortfall(fixed.uuid, reason, ask.cores, free, "%", "needs a card of its own")
        case Reason.PROMISED:
            return Shortfall(fixed.uuid, reason, detail="all of its cores are promised to the pods there")
        case Reason.BUSY:
            return Shortfall(fixed.uuid, reason, detail=f"{keys.MUTEX} wants a card that nobody uses")
        case Reason.SLOTS:
            return Shortfall(fixed.uuid, reason, 1, max(fixed.slots - card.used_slots, 0), "shares")
        case Reason.MODE:
            return Shortfall(
                fixed.uuid, reason, detail=f"wants {', '.join(request.modes)}, the card is in {fixed.mode}"
            )
        case Reason.TYPE:
            return Shortfall(fixed.uuid, reason, detail=label_of(fixed))
        case Reason.INDEX:
            return Shortfall(fixed.uuid, reason, unit="position", detail=f"it is card {fixed.position}")
        case Reason.UNUSABLE:
            return Shortfall(fixed.uuid, reason, detail=fixed.problem or _unusable_detail(card))
        case _:
            return Shortfall(fixed.uuid, reason, detail=fixed.problem)


def _unusable_detail(card: Card) -> str:
    if card.unread:
        return "a pod's assignment names the card and does not say what it takes of it"
    return "MIG instances are in use that cannot exist together"


def relaxed(cards: Sequence[Card], request: Request, reason: Reason, amount: int) -> Request | None:
    """*request*, no container asking for more than *amount*: cards, MiB or percent of cores."""
    del cards
    match reason:
        case Reason.MODE:
            return request._replace(modes=())
        case Reason.TYPE | Reason.UUID | Reason.INDEX | Reason.UNORDERED:
            return request._replace(selection=request.selection.without(reason))
        case Reason.CARD_COUNT:
            asks = [ask._replace(number=min(ask.number, amount)) for ask in request.asks]
        case Reason.CORES:
            asks = [ask._replace(cores=min(ask.cores, amount)) for ask in request.asks]
        case _:
            if not amount:
                return None
            asks = [
                ask._replace(memory=amount, percent=0) if ask.percent or ask.memory > amount else ask
                for ask in request.asks
            ]
    return request._replace(asks=tuple(asks))


def width(request: Request) -> int:
    """How many rooms of one node *request* needs at once; a card that is cut has several."""
    return max(ask.number for ask in request.asks)


def want(request: Request, kind: Hashable) -> Want | None:
    """What *request* asks of cards of *kind*; None if such a card can never serve it."""
    if not isinstance(kind, Kind):
        return None
    if request.selection is not ANY_CARD and not request.selection.accepts_type(type_words(kind.type)):
        return None
    if request.modes and kind.mode != keys.HAMI_CORE and kind.mode not in request.modes:
        return None
    needs = [_part(ask, kind.memory, kind.profiles) for ask in request.asks]
    if min(needs) > kind.memory:
        return None
    spare = min(ask.cores for ask in request.asks)
    asked = sum(ask.number for ask in request.asks)
    charges = asked * max(needs)
    if kind.profiles:
        largest = mig.largest_mib(kind.profiles)
        if largest < min(needs):
            return None
        # The instance may be larger than the request, and each of one card counts those before it as in use.
        charges = asked * (asked + 1) // 2 * largest
    return Want(min(needs), spare, asked * kind.memory + charges, kind.memory)


def bounded(request: Request, policy: Policy) -> bool:
    """Whether `want` bounds the score by free amounts: where one container asks, and the fullest card is sought."""
    order = request.order
    return (
        _node_policy(request, policy) == keys.BINPACK
        and orders.policies_of(order, policy) == (keys.BINPACK,)
        and order.weights == EVEN
        and len(request.asks) == 1
    )


def _node_policy(request: Request, policy: Policy) -> str:
    return request.order.nodes or str(policy)


def idle_score(request: Request, idle: int, policy: Policy) -> float:
    """The score of a node with *idle* idle cards where `bounded` is False."""
    asked = sum(ask.number for ask in request.asks)
    match _node_policy(request, policy):
        case keys.SPREAD:
            return 100.0 * min(idle, asked)
        case keys.BINPACK:
            # Nodes are taken together by the magnitude of their idle cards, and compared by what is in use otherwise.
            return 100.0 * asked / (1 + idle.bit_length())
        case _:
            return 0.0
