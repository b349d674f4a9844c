"""What pods hold of shared cards: the written entries, what the cards lose to them, and how people see both."""

from bisect import insort
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple, TypeVar

from core.port.cards import CardShare, Tally
from core.port.refusals import Reason
from core.sharing import slices as _slices
from core.sharing.card import HAMI_CORE, MIG, Card, Kind, Measures, with_fault
from core.sharing.slices import UNKNOWN, Slice
from core.units import counted

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
