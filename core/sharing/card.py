"""Shared cards: their fixed properties, what is in use on them, and what pods hold of them."""

from bisect import insort
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, NamedTuple, TypeVar

from core.errors import InvalidRequestError, quoted
from core.model import Node
from core.port.cards import CardShare, Offer, Tally
from core.port.refusals import PASSING, CardFault, Complaint, Reason
from core.selection import Words
from core.settings import DialectName
from core.sharing import slices as _slices
from core.sharing.slices import UNKNOWN, Layout, Slice, Templates
from core.units import counted, is_text, parse_amount
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
        """Return whether cards of this kind serve one of *modes*; () are all."""
        if not modes or not self.serves or modes == self.serves:
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


def misnamed(uuid: str, *, repeated: bool = False) -> str:
    """Return why an assignment cannot name the card *uuid*, for people; "" if it can."""
    if repeated or not uuid:
        return "the register names it twice" if uuid else "it has no uuid"
    if _SYNTAX.isdisjoint(uuid) and is_text(uuid):
        return ""
    return f"its id {quoted(uuid)} cannot be written into an assignment"


_Item = TypeVar("_Item", str, Slice)
# Makes a record, a NamedTuple, of all its figures in order; calling its class takes twice as long. It is used where a
# decision makes most of its records.
record: Final = tuple.__new__


class Entry(NamedTuple):
    """One container's share of one card.

    slot: where the card was in the node's cards, a hint only. memory: as written, charge: what the card loses, both in
    register units. slice: of MIG, None without; profile: the name of the slice or template, "" without. counted: what
    else the card loses. told: as in `Fixed`.
    """

    slot: int
    uuid: str
    container: int
    memory: int
    cores: int
    charge: int
    slice: Slice | None = None
    profile: str = ""
    counted: tuple[int, ...] = ()
    told: str = ""

    @property
    def name(self) -> str:
        """The uuid of its card; with the slice, if slices have names."""
        taken = self.slice
        return f"{self.uuid}[{taken.group}-{taken.start}]" if taken is not None and taken.group else self.uuid


class Charge(NamedTuple):
    """What one card loses to a pod at its peak.

    slot: as in `Entry`. marks, counted: as in `Card`. unread: entries that do not say what they take.
    """

    slot: int
    uuid: str
    slots: int
    memory: int
    cores: int
    slices: tuple[Slice, ...] = ()
    marks: tuple[str, ...] = ()
    unread: int = 0
    counted: tuple[int, ...] = ()


class Assignment(NamedTuple):
    """What one pod holds on one node: entries by container, charges by card; segments: containers on the wire.

    type: the type of the cards, for protocols with other keys for each; "" for those with the same.
    """

    segments: int
    entries: tuple[Entry, ...]
    charges: tuple[Charge, ...]
    type: str = ""


class _Use:
    """What containers that run together take of one card."""

    __slots__ = ("cores", "counted", "memory", "slots")

    def __init__(self) -> None:
        self.slots = 0
        self.memory = 0
        self.cores = 0
        self.counted: tuple[int, ...] = ()

    def add(self, entry: Entry, times: int) -> None:
        self.slots += times
        self.memory += times * entry.charge
        self.cores += times * entry.cores
        if entry.counted:
            self.counted = _sum(self.counted, entry.counted, times)

    def rise(self, other: "_Use") -> None:
        """Become at least *other*."""
        self.slots = max(self.slots, other.slots)
        self.memory = max(self.memory, other.memory)
        self.cores = max(self.cores, other.cores)
        if other.counted:
            here = self.counted or other.counted
            self.counted = tuple([max(one, another) for one, another in zip(here, other.counted, strict=True)])


def _sum(one: tuple[int, ...], other: tuple[int, ...], times: int) -> tuple[int, ...]:
    """Return *one*, () for nothing, and *times* *other*."""
    if not one:
        return tuple([times * more for more in other])
    return tuple([figure + times * other[at] for at, figure in enumerate(one)])


def assigned(
    segments: int,
    entries: Sequence[Entry],
    ending: Collection[int] = (),
    marks: tuple[str, ...] = (),
    unread: Sequence[tuple[int, str]] = (),
    *,
    card_type: str = "",
    is_started: bool = False,
) -> Assignment:
    """Return the assignment of *entries*, with what cards lose to it.

    Args:
        segments: how many containers are written.
        entries: the shares, by container.
        ending: the containers that end before the others start.
        marks: what the pod puts on each card on which it has a share.
        unread: (slot, uuid) of the card of each entry that does not say what it takes.
        card_type: see `Assignment`.
        is_started: the containers in *ending* have ended.
    """
    if not (ending or unread):
        if len(entries) == 1:
            return record(Assignment, (segments, tuple(entries), (_charge(entries[0], marks),), card_type))
        if len({one.uuid for one in entries}) == len(entries):
            charges = sorted([_charge(one, marks) for one in entries])
            return record(Assignment, (segments, tuple(entries), tuple(charges), card_type))
    slots: dict[str, int] = {uuid: slot for slot, uuid in unread}
    peaks: dict[str, _Use] = {uuid: _Use() for _, uuid in unread}
    running: dict[str, _Use] = {}
    ended: list[Entry] = []
    # Sidecars stay; an init container runs beside those before it; all others run beside them.
    for one in entries:
        if ended and ended[0].container != one.container:
            for other in ended:
                running[other.uuid].add(other, -1)
            ended.clear()
        uuid = one.uuid
        slots[uuid] = one.slot
        now = running.setdefault(uuid, _Use())
        ends = one.container in ending
        if not (ends and is_started):
            now.add(one, 1)
        peaks.setdefault(uuid, _Use()).rise(now)
        if ends and not is_started:
            ended.append(one)
    names = [uuid for _, uuid in unread]
    cut = _slices_of(entries, ending)
    peak = [
        Charge(
            slots[uuid],
            uuid,
            use.slots,
            use.memory,
            use.cores,
            tuple(sorted(cut.get(uuid, ()))),
            marks if use.slots else (),
            names.count(uuid),
            use.counted,
        )
        for uuid, use in peaks.items()
    ]
    return Assignment(segments, tuple(entries), tuple(sorted(peak)), card_type)


def _charge(one: Entry, marks: tuple[str, ...]) -> Charge:
    """Return what a card loses to *one*, its only entry."""
    cut = () if one.slice is None else (one.slice,)
    return record(Charge, (one.slot, one.uuid, 1, one.charge, one.cores, cut, marks, 0, one.counted))


def _slices_of(entries: Sequence[Entry], ending: Collection[int]) -> dict[str, list[Slice]]:
    """Return the slices of each card; an init container can use one of another container (HN-21)."""
    found: dict[str, list[Slice]] = {}
    for one in entries:
        if one.slice is not None and one.container not in ending:
            found.setdefault(one.uuid, []).append(one.slice)
    for one in entries:
        if one.slice is not None and one.container in ending:
            taken = found.setdefault(one.uuid, [])
            if one.slice not in taken:
                taken.append(one.slice)
    return found


def take(cards: tuple[Card, ...], assignment: Assignment) -> tuple[Card, ...]:
    """Return the cards with *assignment* in use; cards that are gone do not count."""
    return _changed(cards, assignment, 1)


def give_back(cards: tuple[Card, ...], assignment: Assignment) -> tuple[Card, ...]:
    """Return the cards without *assignment*; undoes `take` exactly."""
    return _changed(cards, assignment, -1)


def _changed(cards: tuple[Card, ...], assignment: Assignment, sign: int) -> tuple[Card, ...]:
    after = list(cards)
    for charge in assignment.charges:
        slot, uuid = charge.slot, charge.uuid
        if not (0 <= slot < len(after) and after[slot].fixed.uuid == uuid):
            slot = next((at for at, card in enumerate(after) if card.fixed.uuid == uuid), -1)
        if slot >= 0:
            card = after[slot]
            after[slot] = record(
                Card,
                (
                    card.fixed,
                    card.used_slots + sign * charge.slots,
                    card.used_memory + sign * charge.memory,
                    card.used_cores + sign * charge.cores,
                    _items(card.slices, charge.slices, sign) if charge.slices else card.slices,
                    _items(card.marks, charge.marks, sign) if charge.marks else card.marks,
                    card.unread + sign * charge.unread,
                    _sum(card.counted, charge.counted, sign) if card.counted and charge.counted else card.counted,
                ),
            )
    return tuple(after)


def with_slices(cards: tuple[Card, ...], entries: Sequence[Entry]) -> tuple[Card, ...]:
    """Return *cards* with the slices of *entries* made on them, and nothing else in use."""
    after = list(cards)
    for one in entries:
        if one.slice is not None:
            after[one.slot] = cut(after[one.slot], one.slice)
    return tuple(after)


def cut(card: Card, taken: Slice) -> Card:
    """Return *card* with one more slice."""
    return card._replace(slices=_items(card.slices, (taken,), 1))


def _items(items: tuple[_Item, ...], change: tuple[_Item, ...], sign: int) -> tuple[_Item, ...]:
    """Return *items*, sorted, with those of *change*, or without them if *sign* is negative."""
    if sign > 0 and (not items or change[0] >= items[-1]):
        return items + change
    found = list(items)
    for item in change:
        if sign > 0:
            insort(found, item)
        else:
            found.remove(item)
    return tuple(found)


def closed(cards: Sequence[Card], slots: Collection[int], reason: Reason, problem: str) -> tuple[Card, ...]:
    """Return *cards*, where those at *slots* take nothing more of the pod, for *reason*, which is *problem*."""
    return tuple([with_fault(card, reason, problem) if slot in slots else card for slot, card in enumerate(cards)])


def fullness(cards: Sequence[Card], entries: Sequence[Entry]) -> float:
    """Return the sum of how full the cards are after *entries*, in percent; as `Want` bounds it, to the last bit."""
    if len(entries) == 1:
        card = cards[entries[0].slot]
        return 100.0 * (card.used_memory + entries[0].charge) / card.fixed.memory
    used = 0
    shares: list[float] = []
    totals: list[int] = []
    more: dict[int, int] = {}
    for one in entries:
        card = cards[one.slot]
        more[one.slot] = more.get(one.slot, 0) + one.charge
        after, total = card.used_memory + more[one.slot], card.fixed.memory
        used += after
        shares.append(100.0 * after / total)
        totals.append(total)
    return 100.0 * used / totals[0] if len(set(totals)) == 1 else sum(shares)


def overcommitted(cards: Sequence[Card], measures: Measures) -> tuple[str, ...]:
    """Return a sentence with numbers for each card that holds more than it has."""
    found: list[str] = []
    for card in cards:
        fixed = card.fixed
        if (
            card.used_memory <= fixed.memory
            and card.used_cores <= fixed.cores
            and card.used_slots <= fixed.slots
            and not (card.slices or card.counted)
        ):
            # Most cards: this is asked of every node that changes.
            continue
        if fixed.fault is Reason.UNUSABLE:
            continue
        if measures.whole:
            if card.used_slots > fixed.slots:
                found.append(f"{fixed.uuid} is held whole by {card.used_slots} pods")
            continue
        # The slices of a cut card can together exceed its memory, so only they count.
        if card.used_memory > fixed.memory and not (card.slices or fixed.kind.layout):
            factor = fixed.kind.factor
            unit = measures.unit
            found.append(f"{fixed.uuid} holds {card.used_memory * factor} {unit} of {fixed.memory * factor} {unit}")
        if card.used_cores > fixed.cores and not _slices.have_cores(fixed.kind.layout):
            unit = fixed.kind.unit
            total = f"of its {fixed.cores} % cores" if unit == "%" else f"of {fixed.cores}"
            found.append(f"{fixed.uuid} holds {card.used_cores} {unit} {total}")
        if (templates := fixed.kind.templates) is not None:
            for at, used in enumerate(card.counted):
                if used > templates.counted[at] > 0:
                    found.append(f"{fixed.uuid} holds {used} {templates.units[at]} of {templates.counted[at]}")
        if card.used_slots > fixed.slots:
            found.append(f"{fixed.uuid} holds {card.used_slots} shares of {fixed.slots}")
        if card.slices and _slices.conflicting(card.slices):
            shown = ", ".join([_slices.shown(one) for one in card.slices])
            found.append(f"{fixed.uuid} holds slices that cannot exist together: {shown}")
    return tuple(found)


def tallied(card: Card, measures: Measures) -> Tally:
    """Return *card* with its memory in use, for people."""
    fixed, kind = card.fixed, card.fixed.kind
    return Tally(
        card=fixed.uuid,
        label=fixed.label,
        used=card.used_memory * kind.factor,
        total=fixed.memory * kind.factor,
        unit=measures.unit,
        cores_pct=_percent(card.used_cores, kind) if measures.cores and kind.mode != MIG else None,
        note=fixed.problem or (kind.mode if kind.serves and kind.mode != HAMI_CORE else ""),
        mode=kind.mode,
        healthy=fixed.fault is None,
    )


def described(assignment: Assignment, cards: Sequence[Card], measures: Measures) -> tuple[CardShare, ...]:
    """Return what *assignment* holds of each card, for people."""
    kinds = {card.fixed.uuid: card.fixed.kind for card in cards}
    shares: list[CardShare] = []
    for one in assignment.entries:
        kind = kinds.get(one.uuid, _UNKNOWN_KIND)
        amount = one.charge * kind.factor if one.uuid in kinds else None
        has_cores = measures.cores and one.slice is None and not one.profile
        cores_pct = _percent(one.cores, kind) if has_cores else None
        shares.append(CardShare(one.name, _share(one, kind, measures), amount, cores_pct, one.uuid))
    shares += [
        CardShare(one.uuid, "an entry that does not say what it takes: the whole card", of=one.uuid)
        for one in assignment.charges
        if one.unread
    ]
    return tuple(shares)


def _percent(cores: int, kind: Kind) -> int | None:
    """Return a figure of cores of a card of *kind* in percent; None if its cores are not told like this."""
    return cores if kind.unit == "%" else None


# Of a card that is gone.
_UNKNOWN_KIND: Final = Kind("", (), "", 0)


def _share(entry: Entry, kind: Kind, measures: Measures) -> str:
    factor = kind.factor
    share = "the whole card" if measures.whole else counted(entry.memory * factor, measures.unit)
    if entry.slice is not None and entry.slice != UNKNOWN:
        if entry.charge == entry.memory and entry.profile:
            return f"{share} as {entry.profile} at {entry.slice.start}"
        share += f" in a slice of {entry.charge * factor} MiB" + (f" ({entry.profile})" if entry.profile else "")
    elif entry.profile:
        return f"{share} as {entry.profile}"
    return f"{share}, {entry.cores} {'% cores' if kind.unit == '%' else kind.unit}" if entry.cores else share
