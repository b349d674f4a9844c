"""Assignments on the wire: what a pod holds, and what a Binding says.

Source: protocol reference, nvidia 1.10, 3.6; every entry counts (S2), MIG slices count by their size.
"""

from collections.abc import Sequence

from core.dialects.vgpu import keys, mig
from core.dialects.vgpu.pod_devices import NVIDIA, decode_pod_devices
from core.dialects.vgpu.requests import group_of, matched_rules
from core.dialects.vgpu.rules import marks_of, without_group
from core.errors import InvalidRequestError
from core.model import Pod
from core.port.cards import Held
from core.sharing.account import Assignment, Entry, assigned
from core.sharing.card import MIG, Card
from core.sharing.slices import UNKNOWN, card_id, profile_at
from core.tables import Tables
from core.wire.entries import Unread, Written


def held(pod: Pod, cards: Sequence[Card], tables: Tables) -> Held[Assignment] | None:
    """Return what bound *pod* holds by its annotations, whichever scheduler bound it; None if they name no card.

    An unreadable entry takes the whole card that it names. If it names no card of the node, the node is closed, because
    it may mean any card. A readable entry for a card that is gone does not count.
    """
    text = pod.annotations.get(keys.IDS)
    if text is None:
        return None
    try:
        segments = decode_pod_devices(text)
    except InvalidRequestError as error:
        return Held(assignment=Assignment(0, (), ()), closes=f"pod {pod.key}: {error}")
    if not any(segments):
        return None
    slots = {card.fixed.uuid: slot for slot, card in reversed(tuple(enumerate(cards)))}
    entries: list[Entry] = []
    unread: list[tuple[int, str]] = []
    closes = ""
    for container, segment in enumerate(segments):
        for one in segment:
            uuid = one.name if one.name in slots else mig.card_of(one.name)
            slot = slots.get(uuid, -1)
            if isinstance(one, Written):
                entries.append(_entry(one, uuid, slot, container, cards))
            elif slot >= 0:
                unread.append((slot, uuid))
            elif cards:
                closes = closes or _closes(pod, one)
    marks = marks_of(group_of(pod), matched_rules(pod, tables))
    found = assigned(len(segments), entries, marks=marks, unread=unread)
    charges = [
        one if one.memory or one.cores else one._replace(marks=without_group(one.marks)) for one in found.charges
    ]
    return Held(assignment=found._replace(charges=tuple(charges)), closes=closes)


def segments_of(assignment: Assignment) -> list[list[Written]]:
    """Return what is assigned, one segment for each container up to the last with a card (S24)."""
    segments: list[list[Written]] = [[] for _ in range(assignment.segments)]
    for one in assignment.entries:
        segments[one.container].append(Written(card_id(one.uuid, one.slice), NVIDIA, one.memory, one.cores))
    return segments


def _entry(one: Written, uuid: str, slot: int, container: int, cards: Sequence[Card]) -> Entry:
    if slot < 0 or cards[slot].fixed.kind.mode != MIG:
        # A slice of a card that is not cut any more, or not yet again: it takes what it says, and nothing joins it.
        cut = UNKNOWN if slot >= 0 and uuid != one.name else None
        return Entry(slot, uuid, container, one.memory, one.cores, one.memory, cut)
    # On a MIG card only slices of its layouts can be counted; all else closes the card (S32).
    named = mig.decode_slice_id(one.name)
    profile = profile_at(cards[slot].fixed.kind.layout, named[1]) if named is not None else None
    if named is None or profile is None:
        return Entry(slot, uuid, container, one.memory, one.cores, one.memory, UNKNOWN)
    return Entry(slot, uuid, container, one.memory, one.cores, profile.charge, named[1], profile.name)


def _closes(pod: Pod, one: Unread) -> str:
    return (
        f"pod {pod.key}: annotation {keys.IDS} holds '{one.text[:64]}', which cannot be read and names no card "
        "of the node; delete the pod"
    )
