"""Assignments: what they say on the wire, what they take of cards, and what is left.

Source: protocol reference, hami 1.9, 4.7, 5.1, 5.2 and 8; every segment counts, init containers by their peak, sidecars
beside all others (HN-1, HN-2).
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from core.dialects.hami import keys, mig
from core.dialects.hami.cards import Card, Fixed, Kind, label_of
from core.errors import InvalidRequestError
from core.model import Pod
from core.port.cards import CardShare, Held, Hole, NodeRoom, Tally
from core.port.refusals import Reason
from core.tables import HamiTable, Tables
from core.units import MAX_INT32
from core.wire.entries import Entry as Written
from core.wire.entries import Unread, entries, text_of
from core.wire.reading import check_length

_SEPARATOR: Final = ";"
# A pod has no more containers with cards, and hardly one of them more cards than a node has.
_MAX_DEVICES: Final = 512


class Entry(NamedTuple):
    """One share of one container, as the wire has it; profile and slice of a MIG instance, "" and None without."""

    container: int
    uuid: str
    memory_mib: int
    cores: int
    profile: str = ""
    slice: mig.Slice | None = None


class Charge(NamedTuple):
    """What one card loses to the pod at its peak; unread: entries that do not say what they take.

    slot: where the card stood among the node's cards, a hint only.
    """

    slot: int
    uuid: str
    slots: int
    memory: int
    cores: int
    slices: tuple[mig.Slice, ...] = ()
    unread: int = 0


class Assignment(NamedTuple):
    """What one pod holds on one node: entries by container, charges by card; segments: its containers in all."""

    segments: int
    entries: tuple[Entry, ...]
    charges: tuple[Charge, ...]


def assigned(
    segments: int,
    found: Sequence[Entry],
    ending: frozenset[int],
    slots: Mapping[str, int],
    unread: Sequence[str] = (),
    *,
    is_started: bool = False,
) -> Assignment:
    """The assignment of entries *found*, with what cards lose to it.

    Args:
        segments: how many containers the pod has.
        found: its shares, by container.
        ending: the containers that end before the others start.
        slots: where cards stand, by uuid.
        unread: the cards of entries that do not say what they take.
        is_started: those have ended.
    """
    peaks: dict[str, list[int]] = {}
    beside: dict[str, list[int]] = {}
    slices: dict[str, dict[tuple[mig.Slice, bool], None]] = {}
    # Sidecars stay; an init container runs beside those that came before it; all the others run beside them all.
    for container, uuid, memory, cores, _, place in found:
        initial = container in ending
        if place is not None:
            # Instances are made one after the other and stay; an init container may use that of another (HN-21).
            taken = slices.setdefault(uuid, {})
            if not (initial and ((place, False) in taken or (place, True) in taken)):
                taken.pop((place, True), None)
                taken[place, initial] = None
        running = beside.get(uuid, _IDLE)
        now = [running[0] + 1, running[1] + memory, running[2] + cores]
        if initial and is_started:
            now = list(running)
        elif not initial:
            beside[uuid] = now
        peaks[uuid] = list(map(max, peaks.get(uuid, _IDLE), now))
    for uuid in unread:
        peaks.setdefault(uuid, list(_IDLE))
    charges = [
        Charge(
            slots.get(uuid, -1),
            uuid,
            used,
            memory,
            cores,
            tuple(sorted(place for place, _ in slices.get(uuid, ()))),
            unread.count(uuid),
        )
        for uuid, (used, memory, cores) in peaks.items()
    ]
    return Assignment(segments, tuple(found), tuple(sorted(charges)))


_IDLE: Final = (0, 0, 0)


def held(pod: Pod, cards: Sequence[Card], tables: Tables) -> Held[Assignment] | None:
    """What bound *pod* holds by its annotations, whoever bound it; None if they name no card.

    A card that the node does not have is kept and counts on none. An entry that cannot be read closes the card that it
    names, or the node if it names none; so does a share of a MIG card of which nobody knows the instance.
    """
    text = pod.annotations.get(keys.ALLOCATED)
    if text is None or not text.replace(":", "").replace(_SEPARATOR, "").strip():
        return None
    field = f"annotation {keys.ALLOCATED}"
    try:
        segments = decode_segments(text, field)
    except InvalidRequestError as error:
        return Held(assignment=Assignment(0, (), ()), closes=f"pod {pod.key}: {error}")
    if not any(segments):
        return None
    by_uuid = {card.fixed.uuid: slot for slot, card in reversed(tuple(enumerate(cards)))}
    places, ending = _places(pod, segments, tables.hami)
    reserved = _reserved(pod)
    found: list[Entry] = []
    unread: list[str] = []
    closes = ""
    for at, segment in enumerate(segments):
        for device, one in enumerate(segment):
            uuid = one.name.partition("[")[0]
            fixed = cards[by_uuid[uuid]].fixed if uuid in by_uuid else None
            if isinstance(one, Unread):
                if fixed is None and cards:
                    told = f"'{one.text[:64]}', which cannot be read and names no card of the node; delete the pod"
                    closes = closes or f"pod {pod.key}: {field} holds {told}"
                unread.append(uuid)
                continue
            entry = Entry(places[at], uuid, one.memory, one.cores)
            known = reserved.get((at, device)) if reserved is not None else None
            if known is not None and known.uuid == uuid and uuid == one.name and _may_be_cut(fixed):
                entry = entry._replace(profile=known.profile, slice=known.slice)
            elif fixed is not None and fixed.mode == keys.MIG:
                unread.append(uuid)
            found.append(entry)
    if _names_others(reserved, by_uuid):
        unread += [card.fixed.uuid for card in cards if card.fixed.mode == keys.MIG]
    # Shares of cards that are gone close nothing: whoever comes back is registered as it then is.
    count = max(len(segments), len(pod.init_containers) + len(pod.containers))
    return Held(assignment=assigned(count, found, ending, by_uuid, unread, is_started=pod.init_done), closes=closes)


def _may_be_cut(fixed: Fixed | None) -> bool:
    return fixed is None or fixed.mode == keys.MIG


def _reserved(pod: Pod) -> mig.Reservations | None:
    text = pod.annotations.get(keys.RESERVATIONS)
    return {} if text is None else mig.decode_reservations(text)


def _names_others(reserved: mig.Reservations | None, slots: Mapping[str, int]) -> bool:
    return bool(slots) and any(one.uuid not in slots for one in (reserved or {}).values())


def decode_segments(text: str, field: str) -> list[list[Written | Unread]]:
    """Read an assignment, one segment per container; padding without a name is dropped, the rest stays.

    Raises:
        InvalidRequestError: longer than an annotation may be, or of more devices than a pod can have.
    """
    check_length(text, field)
    if max(text.count(":"), text.count(_SEPARATOR)) > _MAX_DEVICES:
        raise InvalidRequestError(field, text, f"no more than {_MAX_DEVICES} devices of one pod are read")
    pieces = text.split(_SEPARATOR)
    if not pieces[-1].strip():
        pieces.pop()
    # Upstream passes over what has no comma, and up to v2.5 wrote ``,,0,0`` for containers without a card.
    return [[one for one in entries(piece, MAX_INT32) if one.name and _has_fields(one)] for piece in pieces]


def _has_fields(one: Written | Unread) -> bool:
    return isinstance(one, Written) or "," in one.text


def _places(pod: Pod, segments: Sequence[Sequence[object]], table: HamiTable) -> tuple[dict[int, int], frozenset[int]]:
    """Of which container of *pod* each segment is (hami 5.2), and which of those end before the others start."""
    inits, apps = len(pod.init_containers), len(pod.containers)
    ends = frozenset(at for at, one in enumerate(pod.init_containers) if not one.sidecar)
    plain = {at: at for at in range(len(segments))}
    if len(segments) == inits + apps:
        return plain, ends
    if len(segments) == apps or not inits:
        return {at: inits + at for at in range(len(segments))}, frozenset()
    asking = [
        at
        for at, one in enumerate((*pod.init_containers, *pod.containers))
        if one.amount(table.count_resource) not in (None, "0")
    ]
    filled = [at for at, segment in enumerate(segments) if segment]
    if len(filled) == len(asking):
        return {**plain, **dict(zip(filled, asking, strict=True))}, ends
    return {at: inits + at for at in range(len(segments))}, frozenset()


def wire_text(assignment: Assignment) -> str:
    """The value of both device annotations: one segment per container, empty ones included (hami 2.5)."""
    segments: list[list[tuple[str, str, int, int]]] = [[] for _ in range(assignment.segments)]
    for container, uuid, memory, cores, _, _ in assignment.entries:
        segments[container].append((uuid, keys.NVIDIA, memory, cores))
    return "".join(text_of(one) + _SEPARATOR for one in segments)


def reservations_text(assignment: Assignment) -> str:
    """What the plugin is to make of MIG cards, "" where it has nothing to make."""
    found: list[dict[str, object]] = []
    devices: dict[int, int] = {}
    for container, uuid, _, _, profile, place in assignment.entries:
        device = devices.get(container, 0)
        devices[container] = device + 1
        if place is not None:
            found.append(
                {
                    "containerIndex": container,
                    "deviceIndex": device,
                    "gpuUUID": uuid,
                    "profile": profile,
                    "placement": {"start": place[0], "size": place[1]},
                }
            )
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False) if found else ""


def take(cards: tuple[Card, ...], assignment: Assignment) -> tuple[Card, ...]:
    """The cards after *assignment* is in use on them; cards that are gone count nowhere."""
    after = list(cards)
    for charge in assignment.charges:
        slot = _slot(after, charge)
        if slot >= 0:
            fixed, slots, memory, cores, slices, unread = after[slot]
            after[slot] = Card(
                fixed,
                slots + charge.slots,
                memory + charge.memory,
                cores + charge.cores,
                tuple(sorted((*slices, *charge.slices))) if charge.slices else slices,
                unread + charge.unread,
            )
    return tuple(after)


def with_slices(cards: tuple[Card, ...], entries: Sequence[Entry], slots: Mapping[str, int]) -> tuple[Card, ...]:
    """*cards* with the instances of *entries* made on them, and nothing else in use."""
    after = list(cards)
    for entry in entries:
        if entry.slice is not None:
            card = after[slots[entry.uuid]]
            after[slots[entry.uuid]] = card._replace(slices=tuple(sorted((*card.slices, entry.slice))))
    return tuple(after)


def give_back(cards: tuple[Card, ...], assignment: Assignment) -> tuple[Card, ...]:
    """The cards after *assignment* is given back; undoes `take` exactly."""
    after = list(cards)
    for charge in assignment.charges:
        slot = _slot(after, charge)
        if slot >= 0:
            fixed, slots, memory, cores, slices, unread = after[slot]
            left = list(slices)
            for one in charge.slices:
                left.remove(one)
            after[slot] = Card(
                fixed,
                slots - charge.slots,
                memory - charge.memory,
                cores - charge.cores,
                tuple(left),
                unread - charge.unread,
            )
    return tuple(after)


def _slot(cards: list[Card], charge: Charge) -> int:
    slot = charge.slot
    if 0 <= slot < len(cards) and cards[slot].fixed.uuid == charge.uuid:
        return slot
    return next((slot for slot, card in enumerate(cards) if card.fixed.uuid == charge.uuid), -1)


def room(cards: Sequence[Card]) -> NodeRoom:
    """What bounds need: cards that can take nothing more have no room, those that are cut several.

    One container may get as many instances of one card as have a place beside each other.
    """
    idle = used = total = 0
    kinds: list[Kind] = []
    frees: list[int] = []
    spares: list[int] = []
    for fixed, used_slots, used_memory, used_cores, slices, unread in cards:
        used += used_memory
        total += fixed.memory
        if fixed.fault is not None or unread:
            continue
        if not used_slots:
            idle += 1
        free, spare = fixed.memory - used_memory, fixed.cores - used_cores
        # All cores promised is nothing left, for those too that ask for none.
        if free > 0 and spare > 0 and used_slots < fixed.slots:
            times = min(fixed.slots - used_slots, mig.most(fixed.profiles, slices)) if fixed.profiles else 1
            kinds += [fixed.kind] * times
            frees += [free] * times
            spares += [spare] * times
    return NodeRoom(idle, used * 1_000_000 // total if total else 0, kinds, frees, spares)


def idle_cards(cards: Sequence[Card]) -> int:
    """How many of *cards* nobody uses and a pod could, as `room` counts them."""
    return sum([not card.used_slots and card.fixed.fault is None and not card.unread for card in cards])


def holes(cards: Sequence[Card]) -> tuple[Hole, ...]:
    """What is left of each card to be sold, its cores beside its memory; nothing of one that has no share left."""
    found: list[Hole] = []
    for fixed, used_slots, used_memory, used_cores, slices, unread in cards:
        is_open = fixed.fault is None and not unread and used_slots < fixed.slots
        if slices and mig.conflicting(slices):
            is_open = False
        free = fixed.memory - used_memory if is_open else 0
        # Memory and cores of instances are rounded: of a card that is cut, its memory tells.
        is_cut = fixed.mode == keys.MIG
        spare_pct = 100 if is_cut else (fixed.cores - used_cores) * 100 // max(fixed.cores, 1)
        found.append(Hole(fixed.kind, free, fixed.memory, spare_pct))
    return tuple(found)


def overcommitted(cards: Sequence[Card]) -> tuple[str, ...]:
    """The cards that hold more than they have, in numbers."""
    found: list[str] = []
    for fixed, used_slots, used_memory, used_cores, slices, _ in cards:
        if fixed.fault is Reason.UNUSABLE:
            continue
        # Memory and cores of instances are rounded: of a card that is cut its slices alone count.
        if used_memory > fixed.memory and fixed.mode != keys.MIG:
            found.append(f"{fixed.uuid} holds {used_memory} MiB of {fixed.memory} MiB")
        if used_cores > fixed.cores and fixed.mode != keys.MIG:
            found.append(f"{fixed.uuid} holds {used_cores} % of its {fixed.cores} % cores")
        if used_slots > fixed.slots:
            found.append(f"{fixed.uuid} holds {used_slots} shares of {fixed.slots}")
        if mig.conflicting(slices):
            shown = ", ".join(f"{start}+{size}" for start, size in slices)
            found.append(f"{fixed.uuid} holds MIG instances that cannot exist together: {shown}")
    return tuple(found)


def tally(cards: Sequence[Card]) -> tuple[Tally, ...]:
    """Every card with its memory in use in MiB, for people."""
    return tuple(
        Tally(
            card=card.fixed.uuid,
            label=label_of(card.fixed),
            used=card.used_memory,
            total=card.fixed.memory,
            unit="MiB",
            cores_pct=None if card.fixed.mode == keys.MIG else card.used_cores,
            note=card.fixed.problem or ("" if card.fixed.mode == keys.HAMI_CORE else card.fixed.mode),
            mode=card.fixed.mode,
            healthy=card.fixed.fault is None,
        )
        for card in cards
    )


def described(assignment: Assignment) -> tuple[CardShare, ...]:
    """What each entry holds of its card, for people."""
    shares = [
        CardShare(one.uuid, _share(one), one.memory_mib, None if one.slice else one.cores) for one in assignment.entries
    ]
    shares += [
        CardShare(one.uuid, "an entry that does not say what it takes: the whole card")
        for one in assignment.charges
        if one.unread
    ]
    return tuple(shares)


def _share(entry: Entry) -> str:
    share = f"{entry.memory_mib} MiB"
    if entry.slice is not None:
        return f"{share} as {entry.profile} at {entry.slice[0]}"
    return f"{share}, {entry.cores} % cores" if entry.cores else share
