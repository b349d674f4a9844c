"""What pods hold of shared cards: the written entries, what the cards lose to them, and how people see both.

The entries are in annotations, as HAMi's device plugins share them. On the wire an entry is ``name,type,memory,cores``
followed by a colon; each dialect defines the meaning of its fields.

Source: protocol reference, hami 1.9, 2.5, 5.1, 5.2 and 8, ascend 4.7; every segment counts, init containers by their
peak, sidecars beside all others (HN-1, HN-2).
"""

from bisect import insort
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

from core import hami_lock
from core.errors import InvalidRequestError
from core.model import Pod
from core.port.cards import CardShare, Held, Tally
from core.port.handoff import Stamp
from core.port.refusals import Reason
from core.sharing import slices as _slices
from core.sharing.card import HAMI_CORE, MIG, Card, Kind, Measures, with_fault
from core.sharing.slices import UNKNOWN, Slice
from core.units import MAX_INT32, counted
from core.wire.reading import check_length

_Item = TypeVar("_Item", str, Slice)
# Makes a record, a NamedTuple, of all its figures in order; calling its class takes twice as long. It is used where a
# decision makes most of its records.
record: Final = tuple.__new__
UNREAD: Final = "what a pod there takes of the card is unknown"


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


def with_whole(assignment: Assignment, uuids: Collection[str]) -> Assignment:
    """Return *assignment*, of which nobody knows what it takes of the cards *uuids*, so that it takes them whole."""
    charges = [one._replace(unread=one.unread or 1) if one.uuid in uuids else one for one in assignment.charges]
    return assignment._replace(charges=tuple(charges))


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
    mode = kind.mode if kind.serves and kind.mode != HAMI_CORE else ""
    return Tally(
        card=fixed.uuid,
        label=fixed.label,
        used=card.used_memory * kind.factor,
        total=fixed.memory * kind.factor,
        unit=measures.unit,
        cores_pct=_percent(card.used_cores, kind) if measures.cores and kind.mode != MIG else None,
        note=fixed.problem or (UNREAD if card.unread else mode),
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


# ---------------------------------------------------------------------- on the wire


_SEPARATOR: Final = ";"
# A plugin that is done writes 2^64-1; nothing that large is a time.
_TIMES_END: Final = 2**62
# A pod has no more containers with cards, and hardly one of them has more cards than a node.
DEVICES_MAX: Final = 512


class Written(NamedTuple):
    """One entry, in the terms and units of its writer."""

    name: str
    type: str
    memory: int
    cores: int


class Unread(NamedTuple):
    """One entry that is not empty but unreadable; name is its first field."""

    name: str
    text: str


def entries(segment: str, most: int) -> Iterator[Written | Unread]:
    """Yield the entries of one container; their figures are whole numbers up to *most*."""
    for piece in segment.split(":"):
        if piece.strip():
            yield _entry(piece, most)


def segments_of(text: str, field: str, devices_max: int = DEVICES_MAX) -> list[list[Written | Unread]]:
    """Read an assignment of one segment for each container, each closed by a semicolon.

    Raises:
        InvalidRequestError: longer than an annotation may be, or of more than *devices_max* devices.
    """
    check_length(text, field)
    if max(text.count(":"), text.count(_SEPARATOR)) > devices_max:
        raise InvalidRequestError(field, text, f"no more than {devices_max} devices of one pod are read")
    pieces = text.split(_SEPARATOR)
    if not pieces[-1].strip():
        pieces.pop()
    return [list(entries(piece, MAX_INT32)) for piece in pieces]


def encode_segments(segments: Iterable[Iterable[tuple[str, str, int, int]]]) -> str:
    """Return the text of an assignment, one segment for each container, empty ones included."""
    written = ["".join([f"{name},{kind},{memory},{cores}:" for name, kind, memory, cores in one]) for one in segments]
    return "".join([one + _SEPARATOR for one in written])


def _entry(piece: str, most: int) -> Written | Unread:
    name, *others = piece.split(",")
    if len(others) >= 3:
        memory, cores = _figure(others[1], most), _figure(others[2], most)
        if memory is not None and cores is not None:
            return Written(name, others[0], memory, cores)
    return Unread(name, piece)


def _figure(text: str, most: int) -> int | None:
    if text.isascii() and text.isdigit() and len(text) <= 64:
        value = int(text)
        return value if value <= most else None
    return None


# Completes an entry: its segment, its device there, what is written, the entry so far, and its card, if it is there.
# False: the entry does not say what it takes.
Finish = Callable[[int, int, Written, Entry, Card | None], tuple[Entry, bool]]


class Listed(NamedTuple):
    """The entries of an assignment; unread: (slot, uuid) of cards of which nobody knows what it takes.

    closes: as in `Held`.
    """

    entries: list[Entry]
    unread: list[tuple[int, str]]
    closes: str


def listed(
    pod: Pod,
    cards: Sequence[Card],
    field: str,
    segments: Sequence[Sequence[Written | Unread]],
    places: Sequence[int],
    *,
    finish: Finish | None = None,
) -> Listed:
    """Return what *segments* of *field* list, each for the container in *places*; *finish* completes an entry."""
    by_uuid = {card.fixed.uuid: slot for slot, card in reversed(tuple(enumerate(cards)))}
    found: list[Entry] = []
    unread: list[tuple[int, str]] = []
    closes = ""
    for at, segment in enumerate(segments):
        for device, one in enumerate(segment):
            uuid = one.name if one.name in by_uuid else one.name.partition("[")[0]
            slot = by_uuid.get(uuid, -1)
            if isinstance(one, Unread):
                if slot < 0 and cards:
                    told = f"'{one.text[:64]}', which cannot be read and names no card of the node; delete the pod"
                    closes = closes or f"pod {pod.key}: {field} holds {told}"
                unread.append((slot, uuid))
                continue
            memory = one.memory
            entry = record(Entry, (slot, uuid, places[at], memory, one.cores, memory, None, "", (), ""))
            if finish is not None:
                entry, is_known = finish(at, device, one, entry, cards[slot] if slot >= 0 else None)
                if not is_known:
                    unread.append((slot, uuid))
            # Shares of cards that are gone close nothing: whoever comes back is registered as it then is.
            found.append(entry)
    return record(Listed, (found, unread, closes))


def wire_text(assignment: Assignment, card_type: str, whole: tuple[int, int] | None = None) -> str:
    """Return what HAMi's plugins read of *assignment*: one segment for each container, empty ones included.

    Args:
        assignment: what a pod gets.
        card_type: the type of cards of which *assignment* tells none.
        whole: the memory and cores of every entry, None for those in *assignment*.
    """
    segments: list[list[Written]] = [[] for _ in range(assignment.segments)]
    for one in assignment.entries:
        memory, cores = whole or (one.memory, one.cores)
        segments[one.container].append(Written(one.name, one.told or card_type, memory, cores))
    return encode_segments(segments)


def bound(assigned: Sequence[str], text: str, stamp: Stamp) -> dict[str, str]:
    """Return what a Binding carries for HAMi's plugins: *text* by each key of *assigned*, and whom the lock is for."""
    now = str(stamp.now_s)
    return dict.fromkeys(assigned, text) | {
        hami_lock.NODE: stamp.node,
        hami_lock.TIME: now,
        hami_lock.BIND_TIME: now,
        hami_lock.BIND_PHASE: hami_lock.ALLOCATING,
    }


def later(times: Iterable[str], now: int) -> int:
    """Return the first time after *now* and all *times*, as written; what cannot be read as a time does not count."""
    latest = now
    for text in times:
        if text.isascii() and text.isdigit() and len(text) <= 19:
            time = int(text)
            if latest < time < _TIMES_END:
                latest = time
    return latest + 1


def held(
    pod: Pod,
    cards: Sequence[Card],
    key: str,
    counts: Collection[str],
    *,
    finish: Finish | None = None,
    unread: Sequence[tuple[int, str]] = (),
    marks: tuple[str, ...] = (),
    devices_max: int = DEVICES_MAX,
) -> Held[Assignment] | None:
    """Return what bound *pod* holds of *cards* by its annotation *key*, whoever bound it; None if it names no card.

    A card that the node does not have is kept and counts on none. An entry that cannot be read closes the card that it
    names, or the node if it names none.

    Args:
        pod: the pod.
        cards: those of its node.
        key: the annotation.
        counts: the resources by which its containers ask for cards.
        finish: completes an entry.
        unread: (slot, uuid) of further cards of which nobody knows what *pod* takes.
        marks: what *pod* puts on its cards.
        devices_max: of how many entries no assignment has more; a longer one closes the node.
    """
    text = pod.annotations.get(key)
    if text is None or not names_any(text):
        return None
    field = f"annotation {key}"
    try:
        segments = decode_segments(text, field, devices_max)
    except InvalidRequestError as error:
        return Held(assignment=Assignment(0, (), ()), closes=f"pod {pod.key}: {error}")
    if not any(segments):
        return None
    places, ending = _places(pod, segments, counts)
    found = listed(pod, cards, field, segments, places, finish=finish)
    count = max(len(segments), len(pod.init_containers) + len(pod.containers))
    assignment = assigned(count, found.entries, ending, marks, [*found.unread, *unread], is_started=pod.init_done)
    return Held(assignment=assignment, closes=found.closes)


def names_any(text: str) -> bool:
    """Return whether an assignment has any entry, readable or not."""
    return bool(text.replace(":", "").replace(_SEPARATOR, "").strip())


def decode_segments(text: str, field: str, devices_max: int = DEVICES_MAX) -> list[list[Written | Unread]]:
    """Read an assignment; padding without a name is dropped, the rest stays.

    Raises:
        InvalidRequestError: as `segments_of`.
    """
    # Upstream skips what has no comma, and up to v2.5 wrote ``,,0,0`` for containers without a card.
    return [
        [one for one in segment if one.name and (isinstance(one, Written) or "," in one.text)]
        for segment in segments_of(text, field, devices_max)
    ]


def _places(
    pod: Pod, segments: Sequence[Sequence[object]], counts: Collection[str]
) -> tuple[Sequence[int], frozenset[int]]:
    """Of which container of *pod* each segment is (hami 5.2), and which of those end before the others start."""
    inits, apps, number = len(pod.init_containers), len(pod.containers), len(segments)
    ends = frozenset([at for at, one in enumerate(pod.init_containers) if not one.sidecar])
    if number == inits + apps:
        return range(number), ends
    of_apps = range(inits, inits + number)
    if number == apps or not inits:
        return of_apps, frozenset()
    asking = [
        at
        for at, one in enumerate((*pod.init_containers, *pod.containers))
        if any(one.amount(count) not in (None, "0") for count in counts)
    ]
    filled = [at for at, segment in enumerate(segments) if segment]
    if len(filled) != len(asking):
        return of_apps, frozenset()
    moved = dict(zip(filled, asking, strict=True))
    return [moved.get(at, at) for at in range(number)], ends
