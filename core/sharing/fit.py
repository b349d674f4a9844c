"""Which cards of a node a request gets, and why a card refuses it; all shared cards follow the same order of rules.

`Rules` has what one dialect does differently from the others; each rule has the default that most dialects use. The
bounds of a node's score follow from free amounts, what a request needs of them, and what is left of each card.

Source: protocol reference, nvidia 3.3 to 3.6, 3.13; hami 4.3 to 4.8.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from core.port.cards import Hole, Placed, Want
from core.port.refusals import Reason, Shortfall
from core.selection import ANY_CARD, type_words
from core.settings import Policy
from core.sharing import account, order, slices
from core.sharing.account import Assignment, Entry, assigned, closed, record, take, with_slices
from core.sharing.account import cut as cut_card
from core.sharing.card import MIG, Card, Kind, Measures, Sliced, holes
from core.sharing.order import Linked, Rank, Ranking
from core.sharing.request import ANY_ORDER, EVEN, Ask, Order, Request
from core.sharing.slices import Profile

# How Volcano's scheduler compares cards: the fullest, or the one with the fewest shares.
BY_USE: Final[Mapping[Policy, Ranking]] = {
    Policy.BINPACK: lambda _, card: (-card.used_memory,),
    Policy.SPREAD: lambda _, card: (card.used_slots,),
}


class Rules:
    """The rules of a dialect for shared cards.

    Attributes:
        several: one container can get several slices of one card.
        by_position: the cards of a container are written by position, whatever their rank.
        measures: what is counted of cards.
        apart: the containers of a pod get different cards; an init container can use those of another container.
        on_one_card: the containers of a pod get the same one card, init containers too.
        restricts: `restricted` says whether a card with shares takes another one.
        chooses: `choose` says which of the cards that fit a container gets, and `unchosen` why none.
        serves_full: `beside_full` says who may join a card of which all cores are promised.
    """

    several: bool = False
    by_position: bool = False
    measures: Measures = Measures()
    apart: bool = False
    on_one_card: bool = False
    restricts: bool = False
    chooses: bool = False
    serves_full: bool = False

    def beside_full(self, request: Request) -> bool:
        """Return whether *request*, which asks for no cores, may join a card of which all cores are promised."""
        return False

    def restricted(self, card: Card, memory: int) -> str:
        """Return why *card*, which has shares, must not serve another with *memory*, for people; "" if it may."""
        return ""

    def own_marks(self, request: Request) -> tuple[str, ...]:
        """Return which marks of a pod are on its cards while its other containers get theirs; usually none."""
        return ()

    def choose(self, cards: Sequence[Card], slots: Sequence[int], ask: Ask, request: Request) -> Sequence[int] | None:
        """Return which of *slots*, which fit and are in order, the container of *ask* gets; None if none."""
        return slots[: ask.number] if len(slots) >= ask.number else None

    def unchosen(self, cards: Sequence[Card], ask: Ask) -> tuple[Reason, str]:
        """Return why `choose` returned None for *ask* although enough of *cards* fit, and a text about it."""
        return Reason.RULE, ""

    def counted(self, ask: Ask) -> tuple[int, str]:
        """Return what *ask* counts, for people: how much of it each of its cards is, and the unit."""
        return 1, "cards"

    def refuse(self, card: Card, ask: Ask, request: Request) -> Reason | None:
        """Return why *card* must not serve *ask*, None if it may; called if both have marks, or *ask* a template."""
        return None

    def shortfall(self, card: Card, ask: Ask, request: Request, reason: Reason) -> Shortfall | None:
        """Return why *card* refused *ask* for *reason*; None to say it as all dialects do."""
        return None

    def groups(self, cards: Sequence[Card], ranked: Sequence[tuple[Rank, int]], request: Request) -> list[list[int]]:
        """Return the slots of cards that fit in the order in which they are tried; one container has those of a group.

        *ranked*: the slots with their ranks, in order.
        """
        return order.in_groups(cards, [slot for _, slot in ranked], request.order)

    def together(self, cards: Sequence[Card], request: Request) -> str:
        """Return a text for people on which cards can be one container's; "" if any can."""
        return "of one NUMA node" if request.order.bound else ""

    def ranking(self, wanted: Order, policy: Policy) -> Ranking | None:
        """Return how cards compare; None if each container gets the first ones that fit, whatever else is asked."""
        return order.ranking(wanted, policy)

    def fullness(self, cards: Sequence[Card], entries: Sequence[Entry]) -> float:
        """Return the score of a node on which a request gets *entries*, if free amounts bound it; see `Want`."""
        return account.fullness(cards, entries)

    def prefers(self, request: Request) -> bool:
        """Return whether `preference` counts for *request*: nothing bounds it, so all changed nodes are judged."""
        return False

    def preference(self, cards: Sequence[Card], entries: Sequence[Entry], request: Request, word: str) -> float:
        """Return what *entries* add to the score of a node if nodes compare by *word*, besides what is free."""
        return 0.0

    def bound(self, request: Request, kind: Kind, want: Want) -> Want:
        """Return *want* of cards of *kind* with the bound of the score by `fullness`."""
        return want

    def score(self, cards: Sequence[Card], entries: Sequence[Entry], request: Request, policy: Policy) -> float:
        """Return the score of a node on which *request* gets *entries*, if free amounts do not bound it."""
        idle = sum([not card.used_slots and card.fixed.fault is None and not card.unread for card in cards])
        return self.idle_score(request, idle, policy)

    def idle_score(self, request: Request, idle: int, policy: Policy) -> float:
        """Return the highest score of a node with *idle* idle cards, if free amounts do not bound it."""
        asked = sum([ask.number for ask in request.asks])
        match order.of_nodes(request.order, policy):
            case order.SPREAD:
                return 100.0 * min(idle, asked)
            case order.BINPACK:
                # Nodes whose numbers of idle cards have equal bit lengths tie; the rest of their use decides.
                return 100.0 * asked / (1 + idle.bit_length())
            case _:
                return 0.0


def want(rules: Rules, request: Request, kind: Hashable) -> Want | None:
    """Return what *request* needs of cards of *kind*; None if such a card can never serve it."""
    if isinstance(kind, Sliced):
        return _want_of_sliced(rules, request, kind)
    if not isinstance(kind, Kind) or (request.modes and not kind.serves_any(request.modes)):
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


_NO_ENDING: Final[frozenset[int]] = frozenset()
_OTHER_CARD: Final = "the containers of the pod share one card, and it is another"
_OTHER_SIZE: Final = (
    "another container of the pod has a slice of another size there, and all slices of a card have one size"
)
OTHER_CONTAINER: Final = "another container of the pod takes it"


class Pick(NamedTuple):
    """One container's shares; lent: they are slices of another container."""

    ask: Ask
    entries: list[Entry]
    lent: bool = False


class Stuck(NamedTuple):
    """The first container that finds no cards, and the cards as it found them."""

    ask: Ask
    cards: Sequence[Card]


def place(rules: Rules, cards: Sequence[Card], request: Request, policy: Policy) -> Placed[Assignment] | None:
    """Return the cards that *request* gets under *policy*, or None; all containers or none."""
    entries: list[Entry] | None
    ending = _NO_ENDING
    if len(request.asks) == 1:
        # Most requests: decisions spend their time here. One container has the same peak whether it ends or not.
        entries = _pick(rules, cards, request.asks[0], request, rules.ranking(request.order, policy))
        if entries is None:
            return None
    else:
        picks = picks_of(rules, cards, request, policy)
        if isinstance(picks, Stuck):
            return None
        entries = [one for pick in sorted(picks, key=_container_of) for one in pick.entries]
        ending = frozenset([ask.container for ask in request.asks if ask.initial])
    assignment = assigned(request.segments, entries, ending, request.marks, card_type=request.type)
    if rules.prefers(request):
        score = rules.preference(cards, entries, request, order.of_nodes(request.order, policy))
        return Placed(assignment, score + rules.score(cards, entries, request, policy))
    if bounded(request, policy):
        return record(Placed, (assignment, rules.fullness(cards, entries)))
    return record(Placed, (assignment, rules.score(cards, entries, request, policy)))


def _container_of(pick: Pick) -> int:
    return pick.ask.container


def left(rules: Rules, card: Card, request: Request) -> Hole | None:
    """Return what is left of *card* after *request*, which is for one card; None if the card does not take it."""
    ask = request.asks[0]
    if refusal(rules, card, ask, request) is not None:
        return None
    # Whatever the card's place, it is the only one here.
    taken = assigned(0, [_entry(0, card, ask)])
    return holes(take((card,), taken))[0]


def alone(rules: Rules, cards: Sequence[Card], request: Request, slot: int) -> Placed[Assignment]:
    """Return what *request*, which is for one card, gets of the card at *slot*, which takes it."""
    entry = _entry(slot, cards[slot], request.asks[0])
    assignment = assigned(request.segments, [entry], _NO_ENDING, request.marks, card_type=request.type)
    return record(Placed, (assignment, rules.fullness(cards, [entry])))


def picks_of(rules: Rules, cards: Sequence[Card], request: Request, policy: Policy) -> list[Pick] | Stuck:
    """Return cards for all containers: those that run together side by side, each that ends beside earlier sidecars.

    Slices are made one after the other and stay, so the slices of all containers are side by side; an init container
    uses those of another container that asks for the same (HN-21). Some protocols keep containers apart (ascend D-8).
    """
    rank = rules.ranking(request.order, policy)
    picks: list[Pick] = []
    filled = tuple(cards)
    for ask in request.asks:
        lent = _lent(rules, picks, ask) if ask.initial else None
        if lent is not None:
            picks.append(Pick(ask, lent, lent=True))
            continue
        waits = ask.initial and not rules.apart
        seen = _during_start(cards, filled, picks, ask) if waits else filled
        if waits and rules.restricts:
            # The plugin makes the slices of all containers before the first one starts.
            others = {one.slot for pick in picks for one in pick.entries if one.memory != ask.memory}
            seen = closed(seen, others, Reason.RULE, _OTHER_SIZE)
        entries = _pick(rules, seen, ask, request, rank)
        if entries is None:
            return Stuck(ask, seen)
        picks.append(Pick(ask, entries))
        if len(picks) == len(request.asks):
            break  # nobody asks for what is left now
        taken = {one.slot for one in entries}
        if rules.on_one_card:
            others = set(range(len(cards))) - taken
            filled = closed(filled, others, Reason.RULE, _OTHER_CARD)
            cards = closed(cards, others, Reason.RULE, _OTHER_CARD)
        if rules.apart:
            filled = closed(filled, taken, Reason.CONTAINERS, OTHER_CONTAINER)
        elif ask.initial:
            filled = with_slices(filled, entries)
        else:
            # Mostly without its marks: a pod does not exclude itself from its own cards.
            filled = take(filled, assigned(0, entries, marks=rules.own_marks(request)))
    return picks


def _during_start(cards: Sequence[Card], filled: Sequence[Card], picks: Sequence[Pick], ask: Ask) -> tuple[Card, ...]:
    """Return *cards* as the init container of *ask* finds them: with the shares of the sidecars that run beside it.

    The slices of all containers are made, or still to be made.
    """
    running = [one for pick in picks if _outlasts(pick.ask, ask) for one in pick.entries]
    beside = take(tuple(cards), assigned(0, running))
    return tuple(
        [one._replace(slices=later.slices) if later.slices else one for later, one in zip(filled, beside, strict=True)]
    )


def _outlasts(other: Ask, ask: Ask) -> bool:
    """Return whether *other* runs beside the init container of *ask*: an earlier sidecar."""
    return other.sidecar and other.container < ask.container


def _lent(rules: Rules, picks: Sequence[Pick], ask: Ask) -> list[Entry] | None:
    for pick in picks:
        other = pick.ask
        # A container with lent slices has them from another one, which is in *picks* too.
        if pick.lent or _outlasts(other, ask) or _share_of(other) != _share_of(ask):
            continue
        if (
            other.number >= ask.number
            if rules.apart
            else other.number == ask.number and all(one.slice is not None for one in pick.entries)
        ):
            return [one._replace(container=ask.container) for one in pick.entries[: ask.number]]
    return None


def _share_of(ask: Ask) -> Ask:
    """Return what *ask* wants of each of its cards."""
    return ask._replace(container=0, number=0, initial=False, sidecar=False)


def _pick(rules: Rules, cards: Sequence[Card], ask: Ask, request: Request, rank: Ranking | None) -> list[Entry] | None:
    if rank is None:
        return _first(rules, cards, ask, request)
    if ask.number == 1 and not rules.chooses and (request.order is ANY_ORDER or not order.is_linked(request.order)):
        return _best(rules, cards, ask, request, rank)
    ranked = [
        (rank(slot, cards[slot]), slot)
        for slot in _with_memory(cards, ask)
        if refusal(rules, cards[slot], ask, request) is None
    ]
    ranked.sort()
    if rules.chooses:
        chosen = rules.choose(cards, [slot for _, slot in ranked], ask, request)
        return None if chosen is None else [_entry(slot, cards[slot], ask) for slot in chosen]
    groups = rules.groups(cards, ranked, request)
    # Cards of a node that is cut are not chosen by their links (HN-14).
    if order.is_linked(request.order) and not any(card.fixed.kind.mode == MIG for card in cards):
        groups = _best_linked(cards, groups, ask, request)
    for group in groups:
        entries = _collected(rules, cards, group, ask, request)
        if entries is not None:
            return entries
    return None


def _with_memory(cards: Sequence[Card], ask: Ask) -> list[int]:
    """Return the slots of the cards with enough memory: the most common obstacle, so that few cards need `refusal`."""
    found: list[int] = []
    need = ask.memory
    known: Kind | None = None
    for slot, card in enumerate(cards):
        fixed = card.fixed
        if ask.percent and fixed.kind is not known:
            known = fixed.kind
            need = part(ask, known, known.memory)
        if fixed.memory - card.used_memory >= need or fixed.kind.slack:
            found.append(slot)
    return found


def _first(rules: Rules, cards: Sequence[Card], ask: Ask, request: Request) -> list[Entry] | None:
    """Return the shares of the first cards that take *ask*; no card is better than another."""
    chosen: list[Entry] = []
    for slot in _with_memory(cards, ask):
        card = cards[slot]
        if refusal(rules, card, ask, request) is None:
            chosen.append(_entry(slot, card, ask))
            if len(chosen) == ask.number:
                return chosen
    return None


def _best(rules: Rules, cards: Sequence[Card], ask: Ask, request: Request, rank: Ranking) -> list[Entry] | None:
    """Return the share of the first of the cards that take *ask*, which is for one card."""
    chosen = -1
    least: Rank = ()
    for slot in _with_memory(cards, ask):
        card = cards[slot]
        ranked = rank(slot, card)
        if (chosen < 0 or ranked < least) and refusal(rules, card, ask, request) is None:
            least, chosen = ranked, slot
    return [_entry(chosen, cards[chosen], ask)] if chosen >= 0 else None


def _best_linked(cards: Sequence[Card], groups: Iterable[list[int]], ask: Ask, request: Request) -> list[list[int]]:
    best: Linked | None = None
    for group in groups:
        if len(group) >= ask.number:
            found = order.linked(cards, group, ask.number, len(request.asks))
            if best is None or found.quality > best.quality:
                best = found
    return [] if best is None else [best.slots]


def _collected(
    rules: Rules, cards: Sequence[Card], slots: Sequence[int], ask: Ask, request: Request
) -> list[Entry] | None:
    """Return the first shares of *slots*; a card that is cut may give several, one for each slice that it has left."""
    chosen: list[Entry] = []
    if not rules.several:
        if len(slots) >= ask.number:
            chosen = [_entry(slot, cards[slot], ask) for slot in slots[: ask.number]]
        return (sorted(chosen) if rules.by_position else chosen) or None
    for slot in slots:
        card = cards[slot]
        entry = _entry(slot, card, ask)
        chosen.append(entry)
        shares = card.fixed.slots - card.used_slots
        while entry.slice is not None and len(chosen) < ask.number and shares > 1:
            # The places of several slices say what they can take together, not their memory and cores.
            card, shares = cut_card(card, entry.slice), shares - 1
            if refusal(rules, card, ask, request) is not None:
                break
            entry = _entry(slot, card, ask)
            chosen.append(entry)
        if len(chosen) == ask.number:
            return sorted(chosen) if rules.by_position else chosen
    return None


def _entry(slot: int, card: Card, ask: Ask) -> Entry:
    fixed, kind = card.fixed, card.fixed.kind
    # Each decision makes entries, and most requests need none of these three calls: asking first is cheaper.
    cut = template(ask, kind) if ask.profile is not None else None
    if cut is not None:
        memory = cut.charge
        return Entry(slot, fixed.uuid, ask.container, memory, ask.cores, memory, None, cut.name, cut.counted)
    need = wanted(ask, card) if ask.percent else ask.memory
    if kind.layout:
        chosen = slices.choose(kind.layout, card.slices, need * kind.factor)
        if chosen is not None:
            profile = chosen.profile
            memory, cores = (need, ask.cores) if profile.cores is None else (profile.memory_mib, profile.cores)
            return Entry(slot, fixed.uuid, ask.container, memory, cores, profile.charge, chosen.slice, profile.name)
    cores = cores_of(ask, kind) if kind.by_share else ask.cores
    return record(Entry, (slot, fixed.uuid, ask.container, need, cores, need, None, "", (), fixed.told))


def wanted(ask: Ask, card: Card) -> int:
    """Return what *ask* takes of *card*, in register units."""
    return part(ask, card.fixed.kind, card.fixed.memory) if ask.percent else ask.memory


def refusal(rules: Rules, card: Card, ask: Ask, request: Request) -> Reason | None:
    """Return why *card* cannot take *ask*; None if it can."""
    fixed, kind = card.fixed, card.fixed.kind
    if request.type and request.type != kind.type:
        return Reason.TYPE
    if fixed.fault is not None:
        return fixed.fault
    if card.unread:
        return Reason.UNUSABLE
    if request.modes and not kind.serves_any(request.modes):
        return Reason.MODE
    selection = request.selection
    if selection is not ANY_CARD:
        if selection.indices and not fixed.ordered:
            return Reason.UNORDERED
        refused = selection.accepts(fixed.words, fixed.uuid, fixed.position)
        if refused is not None:
            return refused
    used_slots, used_cores = card.used_slots, card.used_cores
    if used_slots and request.order is not ANY_ORDER and order.is_exclusive(request.order):
        return Reason.BUSY
    if used_slots >= fixed.slots:
        return Reason.SLOTS
    if ask.profile is not None or (request.marks and card.marks):
        refused = rules.refuse(card, ask, request)
        if refused is not None:
            return refused
    cut = ask.profile
    if cut is not None and ask.percent:
        cut = template(ask, kind)
    need = cut.charge if cut is not None else wanted(ask, card) if ask.percent else ask.memory
    if rules.restricts and used_slots and rules.restricted(card, need):
        return Reason.RULE
    # The slices of a card can exceed together what its driver reports: then they alone decide.
    if fixed.memory - card.used_memory < need and not (
        kind.slack
        and not slices.conflicting(card.slices)
        and slices.choose(kind.layout, card.slices, need * kind.factor)
    ):
        return Reason.LAYOUT if card.slices else Reason.MEMORY
    cores, total = ask.cores if not kind.by_share else cores_of(ask, kind), fixed.cores
    if total - used_cores < cores:
        return Reason.CORES
    if used_slots and cores == total == 100:
        return Reason.EXCLUSIVE
    if not cores and used_cores == total and total and not (rules.serves_full and rules.beside_full(request)):
        return Reason.PROMISED
    if card.slices and slices.conflicting(card.slices):
        return Reason.UNUSABLE
    if kind.layout and slices.choose(kind.layout, card.slices, need * kind.factor) is None:
        return Reason.LAYOUT
    if card.counted and cut is not None and lacking(card, cut) >= 0:
        return Reason.TEMPLATE
    return None


def stands(rules: Rules, cards: Sequence[Card], request: Request, assignment: Assignment) -> bool:
    """Return whether the cards of *assignment* would each give that share if they were idle, and can with the others.

    They can if none holds too much, and nobody there excludes such a pod, or is excluded by it, whoever was first.
    """
    apart = _APART_LATER if rules.serves_full else _APART
    before = account.give_back(tuple(cards), assignment)
    for entry in assignment.entries:
        card = before[entry.slot] if entry.slot < len(before) else None
        if card is None or card.fixed.uuid != entry.uuid:
            return False
        idle = card._replace(used_slots=0, used_memory=0, used_cores=0, slices=(), marks=(), counted=())
        if not any(
            ask.container == entry.container
            and refusal(rules, idle, ask, request) is None
            and refusal(rules, card, ask, request) not in apart
            # Which slice of a card it is depends on those that were there.
            and (entry.slice is not None or _entry(entry.slot, idle, ask) == entry)
            for ask in request.asks
        ):
            return False
    return not account.overcommitted([cards[slot] for slot in {one.slot for one in assignment.entries}], rules.measures)


# Why pods cannot be on one card, in any order; and where some may join a card that another has whole.
_APART_LATER: Final = frozenset({Reason.MODE, Reason.RULE, Reason.GROUP})
_APART: Final = _APART_LATER | {Reason.EXCLUSIVE}


def lacking(card: Card, cut: Profile) -> int:
    """Return which of the counted figures of *card* is too small for template *cut*; -1 if none is."""
    templates = card.fixed.kind.templates
    if templates is not None and cut.counted:
        for at, total in enumerate(templates.counted):
            if total and card.counted[at] + cut.counted[at] > total:
                return at
    return -1
