"""Shared cards: their fixed properties, what is in use and free on them, and the offer of those of a node."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, NamedTuple, TypeVar

from core.errors import InvalidRequestError, quoted
from core.model import Node
from core.port.cards import Hole, NodeRoom, Offer
from core.port.refusals import PASSING, CardFault, Complaint, Reason
from core.selection import Words
from core.settings import DialectName
from core.sharing import slices
from core.sharing.slices import Layout, Slice, Templates
from core.units import is_text, listed, parse_amount
from core.wire.hami_register import NO_CHARACTER

# Sharing modes of NVIDIA's cards: the library in the container limits it; the card is cut into MIG instances; MPS.
HAMI_CORE: Final = "hami-core"
MIG: Final = "mig"
MPS: Final = "mps"
MODES: Final[tuple[str, ...]] = (HAMI_CORE, MIG, MPS)


class Measures(NamedTuple):
    """What a protocol counts of cards, for people.

    unit: of memory. cores: whether a share has a part of the cores. whole: a share is a whole card.
    """

    unit: str = "MiB"
    cores: bool = True
    whole: bool = False


class Kind(NamedTuple):
    """The common properties of cards that answer requests alike.

    mode: the sharing mode; serves: the values of a mode that these cards serve, () for any. type: as registered.
    memory: in register units of *factor* MiB. cores: percent. slack: by how much a layout's slices exceed the
    memory, 0 if they do not. templates: None if shares are not cut by templates. unit: of cores, for people. module: so
    many cards, at positions next to each other, are allocated as a whole. ringed: each card is in a ring. by_share: the
    card has its own number of cores, of which requests have percent.
    """

    mode: str
    serves: tuple[str, ...]
    type: str
    memory: int
    cores: int = 100
    factor: int = 1
    layout: Layout = ()
    slack: int = 0
    templates: Templates | None = None
    unit: str = "%"
    module: int = 1
    ringed: bool = False
    by_share: bool = False

    def __hash__(self) -> int:
        """Return a hash without layouts and templates, which are large and follow from the type."""
        return hash((self.mode, self.serves, self.type, self.memory, self.cores))

    @property
    def sells_cores(self) -> bool:
        """Whether shares have a part of the cores that they ask for; templates bring their own."""
        return self.templates is None or not self.templates.counted

    def serves_any(self, modes: tuple[str, ...]) -> bool:
        """Return whether cards of this kind serve one of *modes*."""
        if not self.serves or modes == self.serves:
            return True
        return any(mode in self.serves for mode in modes)


class Sliced(NamedTuple):
    """MIG cards of one kind that would give the next share the same slice.

    slices: as `canonical` returns them. used, free: memory, in register units.
    """

    kind: Kind
    slices: tuple[Slice, ...]
    used: int
    free: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """Everything about a card that does not change while it fills.

    position: its index for users and in assignments. slots: how many shares it can hold. memory: in register units of
    the kind's factor. cores: percent of one card. label: its type for people. fault: why it accepts nothing, None if it
    does; problem: the same for people, or what else they should know. ordered: whether *position* will mean the same
    card later. numa: its NUMA node. links: scores of its links to other cards, by their uuids. ring: the ring of cards
    that it is in, where the kind has rings. group: what cards of one board, or node, have in common, "" for nothing.
    policy: what the device plugin says that the pods there have in common, "" for nothing. told: what assignments tell
    of it besides, such as its type.
    """

    uuid: str
    position: int
    slots: int
    memory: int
    cores: int
    words: Words
    label: str
    kind: Kind
    fault: Reason | None = None
    problem: str = ""
    ordered: bool = True
    numa: int = 0
    links: tuple[tuple[str, int], ...] = ()
    ring: int = 0
    group: str = ""
    policy: str = ""
    told: str = ""


class Card(NamedTuple):
    """One card and what is in use on it.

    slices: MIG slices in use. marks: words of its holders that may exclude other pods, once per holder. Both are
    sorted, so the order of takes does not matter. unread: the number of entries that name this card without an amount;
    with any, it accepts nothing new. counted: what is in use of all that the kind's templates count.
    """

    fixed: Fixed
    used_slots: int = 0
    used_memory: int = 0
    used_cores: int = 0
    slices: tuple[Slice, ...] = ()
    marks: tuple[str, ...] = ()
    unread: int = 0
    counted: tuple[int, ...] = ()


@lru_cache(maxsize=1 << 10)
def shared(kind: Kind) -> Kind:
    """Return one object for all equal kinds, because kinds are compared at every change of a node."""
    return kind


def with_fault(card: Card, fault: Reason | None, problem: str) -> Card:
    """Return *card* with another fault."""
    return card._replace(fixed=replace(card.fixed, fault=fault, problem=problem))


def kept_out(card: Card, fault: CardFault | None) -> Card:
    """Return *card* with *fault*, unless it has another one."""
    return with_fault(card, *fault) if fault is not None and card.fixed.fault is None else card


def healed(card: Card) -> Card:
    """Return *card* as if it were healthy, and the order of the node's cards known, unless it cannot recover."""
    found = with_fault(card, None, "") if card.fixed.fault in PASSING else card
    return found if found.fixed.ordered else found._replace(fixed=replace(found.fixed, ordered=True))


def at_best(card: Card, at: int) -> Card:
    """Return *card*, the one at *at*, as healthy and in service, with the same name as its like on other nodes.

    An unusable card keeps its id, because the id may be the reason.
    """
    found = healed(card)
    if found.fixed.fault is Reason.UNUSABLE:
        return found
    if found.fixed.fault is Reason.CORDONED:
        found = with_fault(found, None, "")
    return found._replace(fixed=replace(found.fixed, uuid=f"card {at}", links=()))


_Record = TypeVar("_Record")
# What separates entries and fields of an assignment, and what stands for half a character.
_SYNTAX: Final = frozenset(",:;[" + NO_CHARACTER)


def allocatable(node: Node, resource: str) -> int:
    """Return how much of *resource* is allocatable on *node*; 0 of what is absent or cannot be read."""
    try:
        return parse_amount(node.allocatable.get(resource, "0"), resource)
    except InvalidRequestError:
        return 0


def registered(
    dialect: DialectName, text: str, key: str, decode: Callable[[str, str], tuple[_Record, ...]]
) -> tuple[_Record, ...] | Complaint:
    """Return the cards in the register *text* of annotation *key*; a complaint if it cannot be read or names none."""
    field = f"annotation {key}"
    try:
        records = decode(text, field)
    except InvalidRequestError as error:
        return Complaint(dialect=dialect, field=error.field, problem=f"found {error.found}; {error.remedy}")
    return records or Complaint(dialect=dialect, field=field, problem="it names no card")


def offered(dialect: DialectName, cards: Sequence[Card], complaints: Sequence[Complaint] = ()) -> Offer[Card]:
    """Return the offer of *cards*, with *complaints* and one for each card that cannot be used."""
    unusable = [
        Complaint(dialect=dialect, field=f"card {quoted(card.fixed.uuid)}", problem=card.fixed.problem)
        for card in cards
        if card.fixed.fault is Reason.UNUSABLE
    ]
    return Offer(cards=tuple(cards), complaints=(*complaints, *unusable))


# The cards of its node, by id, that take nothing new (hami 1.3).
CORDON: Final = "hami.io/device-cordon"
# How many cordoned ids that no card has a complaint names.
_NAMED: Final = 3


def _cordoned(node: Node) -> frozenset[str]:
    return frozenset(filter(None, map(str.strip, node.annotations.get(CORDON, "").split(","))))


def without_cordoned(cards: Sequence[Card], node: Node) -> tuple[Card, ...]:
    """Return *cards* of *node*; the cordoned ones take nothing new."""
    cordoned = _cordoned(node)
    if not cordoned:
        return tuple(cards)
    fault = CardFault(Reason.CORDONED, f"annotation {CORDON} of its node names it")
    return tuple([kept_out(card, fault) if card.fixed.uuid in cordoned else card for card in cards])


def cordoned_in_vain(dialect: DialectName, cards: Sequence[Card], node: Node) -> tuple[Complaint, ...]:
    """Return the complaint about cordoned ids that no card of *node* has; *cards*: all of its cards."""
    unknown = _cordoned(node).difference([card.fixed.uuid for card in cards])
    if not unknown:
        return ()
    named = listed([quoted(uuid) for uuid in sorted(unknown)], _NAMED)
    problem = f"no card of the node has the UUID {named}, so that cordons none; copy UUIDs from kubectl cards get"
    remedy = "correct the annotation, or remove what is not there"
    return (Complaint(dialect=dialect, field=f"annotation {CORDON}", problem=problem, remedy=remedy, closes=False),)


def misnamed(uuid: str, *, repeated: bool = False) -> str:
    """Return why an assignment cannot name the card *uuid*, for people; "" if it can."""
    if repeated or not uuid:
        return "the register names it twice" if uuid else "it has no uuid"
    if _SYNTAX.isdisjoint(uuid) and is_text(uuid):
        return ""
    return f"its id {quoted(uuid)} cannot be written into an assignment"


def room(cards: Sequence[Card], *, several: bool, serves_full: bool) -> NodeRoom:
    """Return the summary of a node's cards; those that can take nothing more have no room.

    A cut card has room once for each slice of it that one container can get. several, serves_full: as in `Rules`.
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
        elif spare <= 0 and not serves_full:
            # If all cores are promised, nothing is left, even for requests without cores.
            continue
        if kind.layout:
            free, times = _free_slices(card, several=several)
            if times and not several:
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


def _free_slices(card: Card, *, several: bool) -> tuple[int, int]:
    """Return (the memory for one more slice of *card*, which is cut; how many slices one container can get of it)."""
    fixed, layout, taken = card.fixed, card.fixed.kind.layout, card.slices
    free = fixed.memory - card.used_memory
    if fixed.kind.slack:
        largest = slices.largest_free(layout, taken)
        free = max(free, largest.charge if largest is not None else 0)
    if free <= 0:
        return 0, 0
    return free, min(fixed.slots - card.used_slots, slices.most(layout, taken)) if several else 1


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
