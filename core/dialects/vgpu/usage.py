"""Assignments: what they say on the wire, what they take of cards, and what is left.

Source: protocol reference, nvidia 4.2; every entry counts (S2), MIG slices count by their size (3.6).
"""

from bisect import insort
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from core.dialects.vgpu import keys, mig
from core.dialects.vgpu.cards import Card, Kind, Sliced
from core.dialects.vgpu.pod_devices import (
    NVIDIA,
    Assigned,
    Unreadable,
    decode_pod_devices,
    encode_pod_devices,
)
from core.dialects.vgpu.requests import group_of, matched_rules
from core.errors import InvalidRequestError
from core.model import Pod
from core.port.cards import CardShare, Held, Hole, NodeRoom, Tally
from core.port.refusals import Reason
from core.tables import Tables

# What a card keeps sorted: groups, rules, slices.
_Item = TypeVar("_Item", str, int, mig.Slice)


class Entry(NamedTuple):
    """One share of one card.

    slot: where the card stood in the node's cards, a hint only. memory is what the wire says, charge what the card
    loses, both in register units. slice: the MIG slice, None without. readable: False takes the whole card.
    """

    slot: int
    uuid: str
    container: int
    memory: int
    cores: int
    charge: int
    slice: mig.Slice | None = None
    readable: bool = True


class Assignment(NamedTuple):
    """What one pod holds on one node: entries by container and register index; group and rules as others see them."""

    entries: tuple[Entry, ...]
    group: str = ""
    rules: tuple[int, ...] = ()


def held(pod: Pod, cards: Sequence[Card], tables: Tables) -> Held[Assignment] | None:
    """What bound *pod* holds by its annotations, whoever bound it; None if they name no card.

    An entry that cannot be read takes the whole card it names. One that names no card of the node counts nowhere,
    if it can be read (the card is gone); if not, the node is closed, for it may mean any card.
    """
    text = pod.annotations.get(keys.IDS)
    if text is None:
        return None
    group, rules = group_of(pod), matched_rules(pod, tables)
    try:
        segments = decode_pod_devices(text)
    except InvalidRequestError as error:
        return Held(assignment=Assignment((), group, rules), closes=f"pod {pod.key}: {error}")
    if not any(segments):
        return None
    slots = {card.fixed.uuid: slot for slot, card in reversed(tuple(enumerate(cards)))}
    entries: list[Entry] = []
    closes = ""
    for container, segment in enumerate(segments):
        for one in segment:
            uuid = one.card_id if one.card_id in slots else mig.card_of(one.card_id)
            slot = slots.get(uuid, -1)
            if isinstance(one, Assigned):
                entries.append(_entry(one, uuid, slot, container, cards))
            elif slot >= 0:
                entries.append(Entry(slot, uuid, container, 0, 0, 0, None, readable=False))
            elif cards:
                closes = closes or _closes(pod, one)
    return Held(assignment=Assignment(tuple(entries), group, rules), closes=closes)


def wire_text(assignment: Assignment) -> str:
    """The value of ``vgpu-ids-new``."""
    return encode_pod_devices(segments_of(assignment))


def segments_of(assignment: Assignment) -> list[list[Assigned]]:
    """What is assigned, one segment per container up to the last with a card (S24)."""
    last = max((entry.container for entry in assignment.entries), default=-1)
    segments: list[list[Assigned]] = [[] for _ in range(last + 1)]
    for entry in assignment.entries:
        segments[entry.container].append(Assigned(_card_id(entry), NVIDIA, entry.memory, entry.cores))
    return segments


def take(cards: tuple[Card, ...], assignment: Assignment) -> tuple[Card, ...]:
    """The cards after *assignment* is in use on them; entries of cards that are gone count nowhere."""
    after = list(cards)
    group, new_rules = assignment.group, assignment.rules
    for entry in assignment.entries:
        slot = _slot(after, entry)
        if slot < 0:
            continue
        fixed, used_slots, used_memory, used_cores, groups, rules, slices, unread = after[slot]
        if not entry.readable:
            after[slot] = Card(fixed, used_slots, used_memory, used_cores, groups, rules, slices, unread + 1)
            continue
        if group and (entry.charge or entry.cores):
            groups = _with(groups, group)
        for rule in new_rules:
            rules = _with(rules, rule)
        if entry.slice is not None:
            slices = _with(slices, entry.slice)
        after[slot] = Card(
            fixed,
            used_slots + 1,
            used_memory + entry.charge,
            used_cores + entry.cores,
            groups,
            rules,
            slices,
            unread,
        )
    return tuple(after)


def give_back(cards: tuple[Card, ...], assignment: Assignment) -> tuple[Card, ...]:
    """The cards after *assignment* is given back; undoes `take` exactly."""
    after = list(cards)
    group, old_rules = assignment.group, assignment.rules
    for entry in assignment.entries:
        slot = _slot(after, entry)
        if slot < 0:
            continue
        fixed, used_slots, used_memory, used_cores, groups, rules, slices, unread = after[slot]
        if not entry.readable:
            after[slot] = Card(fixed, used_slots, used_memory, used_cores, groups, rules, slices, unread - 1)
            continue
        if group and (entry.charge or entry.cores):
            groups = _without(groups, group)
        for rule in old_rules:
            rules = _without(rules, rule)
        if entry.slice is not None:
            slices = _without(slices, entry.slice)
        after[slot] = Card(
            fixed,
            used_slots - 1,
            used_memory - entry.charge,
            used_cores - entry.cores,
            groups,
            rules,
            slices,
            unread,
        )
    return tuple(after)


def room(cards: Sequence[Card]) -> NodeRoom:
    """What bounds need: cards that can take nothing more have no room."""
    idle = used = total = 0
    kinds: list[Kind] = []
    frees: list[int] = []
    spares: list[int] = []
    narrow: list[Sliced | Kind] | None = None
    for card in cards:
        fixed, used_memory = card.fixed, card.used_memory
        kind, layout = fixed.kind, fixed.layout
        used += used_memory
        total += fixed.memory
        if fixed.fault is not None or card.unread:
            continue
        if not card.used_slots:
            idle += 1
        if card.used_slots >= fixed.slots or card.used_cores >= 100 or (card.slices and mig.conflicting(card.slices)):
            continue
        free = fixed.memory - used_memory
        if kind.slack:
            free = max(free, mig.largest_free(layout, card.slices))
        if free > 0:
            if layout:
                # What a share takes of a MIG card depends on the slices in use, not on what is free.
                narrow = list(kinds) if narrow is None else narrow
                narrow.append(Sliced(kind, mig.canonical(layout, card.slices), used_memory, free))
            elif narrow is not None:
                narrow.append(kind)
            kinds.append(kind)
            frees.append(free)
            spares.append(100 - card.used_cores)
    return NodeRoom(idle, used * 1_000_000 // total if total else 0, kinds, frees, spares, narrow)


def holes(cards: Sequence[Card]) -> tuple[Hole, ...]:
    """What is left of each card to be sold, its cores beside its memory; nothing of one that has no share left."""
    found: list[Hole] = []
    for fixed, used_slots, used_memory, used_cores, _, _, slices, unread in cards:
        is_open = fixed.fault is None and not unread and used_slots < fixed.slots
        if slices and mig.conflicting(slices):
            is_open = False
        free = fixed.memory - used_memory if is_open else 0
        found.append(Hole(fixed.kind, free, fixed.memory, 100 - used_cores))
    return tuple(found)


def overcommitted(cards: Sequence[Card]) -> tuple[str, ...]:
    """The cards that hold more than they have, in numbers."""
    found: list[str] = []
    for fixed, used_slots, used_memory, used_cores, _, _, slices, _ in cards:
        factor = fixed.kind.factor
        # Slices may be larger together than what a driver reports of their card: of a cut card they alone count.
        if used_memory > fixed.memory and not slices and fixed.fault is not Reason.UNUSABLE:
            found.append(f"{fixed.uuid} holds {used_memory * factor} MiB of {fixed.memory * factor} MiB")
        if used_cores > 100:
            found.append(f"{fixed.uuid} holds {used_cores} % of its cores")
        if used_slots > fixed.slots and fixed.fault is not Reason.UNUSABLE:
            found.append(f"{fixed.uuid} holds {used_slots} shares of {fixed.slots}")
        if slices and mig.conflicting(slices):
            shown = ", ".join(f"{group or 'unknown'}-{position}" for group, position in slices)
            found.append(f"{fixed.uuid} holds MIG slices that cannot exist together: {shown}")
    return tuple(found)


def tally(cards: Sequence[Card]) -> tuple[Tally, ...]:
    """Every card with its memory in use in MiB, for people."""
    return tuple(
        Tally(
            card=card.fixed.uuid,
            label=card.fixed.kind.type.removeprefix("NVIDIA-"),
            used=card.used_memory * card.fixed.kind.factor,
            total=card.fixed.memory * card.fixed.kind.factor,
            unit="MiB",
            cores_pct=None if card.fixed.mode == keys.MIG else card.used_cores,
            note=card.fixed.problem or ("" if card.fixed.mode == keys.HAMI_CORE else card.fixed.mode),
            mode=card.fixed.mode,
            healthy=card.fixed.fault is None,
        )
        for card in cards
    )


def described(assignment: Assignment, cards: Sequence[Card]) -> tuple[CardShare, ...]:
    """What each entry holds of its card, for people."""
    kinds = {card.fixed.uuid: card.fixed.kind for card in cards}
    return tuple(_described(entry, kinds.get(entry.uuid)) for entry in assignment.entries)


def _described(entry: Entry, kind: Kind | None) -> CardShare:
    if not entry.readable:
        return CardShare(_card_id(entry), "an entry that cannot be read: the whole card", of=entry.uuid)
    amount = entry.charge * kind.factor if kind is not None else None
    return CardShare(_card_id(entry), _share(entry, kind), amount, None if entry.slice else entry.cores, entry.uuid)


def _entry(one: Assigned, uuid: str, slot: int, container: int, cards: Sequence[Card]) -> Entry:
    if slot < 0 or cards[slot].fixed.mode != keys.MIG:
        # A slice on a card that is not cut any more, or not yet again: it takes what it says, and nothing joins it.
        cut = mig.UNKNOWN if slot >= 0 and uuid != one.card_id else None
        return Entry(slot, uuid, container, one.memory, one.cores, one.memory, cut)
    # On a MIG card only a slice that the layouts know can be counted; all else closes the card (S32).
    named = mig.decode_slice_id(one.card_id)
    charge = mig.charge_of(cards[slot].fixed.layout, named.group, named.position) if named else None
    if named is None or charge is None:
        return Entry(slot, uuid, container, one.memory, one.cores, one.memory, mig.UNKNOWN)
    return Entry(slot, uuid, container, one.memory, one.cores, charge, (named.group, named.position))


def _closes(pod: Pod, one: Unreadable) -> str:
    return (
        f"pod {pod.key}: annotation {keys.IDS} holds '{one.text[:64]}', which cannot be read and names no card "
        "of the node; delete the pod"
    )


def _slot(cards: list[Card], entry: Entry) -> int:
    slot = entry.slot
    if 0 <= slot < len(cards) and cards[slot].fixed.uuid == entry.uuid:
        return slot
    return next((slot for slot, card in enumerate(cards) if card.fixed.uuid == entry.uuid), -1)


def _with(items: tuple[_Item, ...], item: _Item) -> tuple[_Item, ...]:
    if not items:
        return (item,)
    grown = list(items)
    insort(grown, item)
    return tuple(grown)


def _without(items: tuple[_Item, ...], item: _Item) -> tuple[_Item, ...]:
    shrunk = list(items)
    shrunk.remove(item)
    return tuple(shrunk)


def _card_id(entry: Entry) -> str:
    if entry.slice is None or entry.slice == mig.UNKNOWN:
        return entry.uuid
    return mig.encode_slice_id(entry.uuid, entry.slice)


def _share(entry: Entry, kind: Kind | None) -> str:
    factor = kind.factor if kind is not None else 1
    share = f"{entry.memory * factor} MiB"
    if entry.slice is not None and entry.slice != mig.UNKNOWN:
        profile = mig.profile_at(kind.layout, *entry.slice) if kind is not None else None
        share += f" in a slice of {entry.charge * factor} MiB" + (f" ({profile.name})" if profile is not None else "")
    return f"{share}, {entry.cores} % cores" if entry.cores else share
