"""What one dialect does differently from the others, and the bounds of a node's score that follow.

Each rule has the default that most dialects use. The bounds are free amounts, what a request needs of them, and what is
left of each card.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Final

from core.port.cards import Hole, NodeRoom, Want
from core.port.refusals import Reason, Shortfall
from core.selection import ANY_CARD, type_words
from core.settings import Policy
from core.sharing import account, order, slices
from core.sharing.account import Entry
from core.sharing.card import Card, Kind, Measures, Sliced
from core.sharing.order import Rank, Ranking
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
