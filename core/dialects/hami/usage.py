"""Assignments on the wire: what a pod holds, and what a Binding says.

Source: protocol reference, hami 1.9, 4.7, 5.1, 5.2 and 8; every segment counts, init containers by their peak, sidecars
beside all others (HN-1, HN-2).
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final

from core.dialects.hami import keys, mig
from core.errors import InvalidRequestError
from core.model import Pod
from core.port.cards import Held
from core.sharing.account import Assignment, Entry, assigned
from core.sharing.card import MIG, Card
from core.tables import HamiTable, Tables
from core.wire import entries
from core.wire.entries import Unread, Written

_SEPARATOR: Final = ";"


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
    unread: list[tuple[int, str]] = []
    closes = ""
    for at, segment in enumerate(segments):
        for device, one in enumerate(segment):
            uuid = one.name.partition("[")[0]
            slot = by_uuid.get(uuid, -1)
            mode = cards[slot].fixed.kind.mode if slot >= 0 else ""
            if isinstance(one, Unread):
                if slot < 0 and cards:
                    told = f"'{one.text[:64]}', which cannot be read and names no card of the node; delete the pod"
                    closes = closes or f"pod {pod.key}: {field} holds {told}"
                unread.append((slot, uuid))
                continue
            entry = Entry(slot, uuid, places[at], one.memory, one.cores, one.memory)
            known = reserved.get((at, device)) if reserved is not None else None
            if known is not None and known.uuid == uuid and uuid == one.name and mode in ("", MIG):
                entry = entry._replace(profile=known.profile, slice=known.slice)
            elif mode == MIG:
                unread.append((slot, uuid))
            found.append(entry)
    if _names_others(reserved, by_uuid):
        unread += [(at, card.fixed.uuid) for at, card in enumerate(cards) if card.fixed.kind.mode == MIG]
    # Shares of cards that are gone close nothing: whoever comes back is registered as it then is.
    count = max(len(segments), len(pod.init_containers) + len(pod.containers))
    return Held(assignment=assigned(count, found, ending, unread=unread, is_started=pod.init_done), closes=closes)


def _reserved(pod: Pod) -> mig.Reservations | None:
    text = pod.annotations.get(keys.RESERVATIONS)
    return {} if text is None else mig.decode_reservations(text)


def _names_others(reserved: mig.Reservations | None, slots: Mapping[str, int]) -> bool:
    return bool(slots) and any(one.uuid not in slots for one in (reserved or {}).values())


def decode_segments(text: str, field: str) -> list[list[Written | Unread]]:
    """Read an assignment; padding without a name is dropped, the rest stays.

    Raises:
        InvalidRequestError: as `entries.decode_segments`.
    """
    # Upstream skips what has no comma, and up to v2.5 wrote ``,,0,0`` for containers without a card.
    return [
        [one for one in segment if one.name and _has_fields(one)] for segment in entries.decode_segments(text, field)
    ]


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


def reservations_text(assignment: Assignment) -> str:
    """Return the instances that the plugin must make of MIG cards, "" if there are none."""
    found: list[dict[str, object]] = []
    devices: dict[int, int] = {}
    for one in assignment.entries:
        device = devices.get(one.container, 0)
        devices[one.container] = device + 1
        if one.slice is not None:
            found.append(
                {
                    "containerIndex": one.container,
                    "deviceIndex": device,
                    "gpuUUID": one.uuid,
                    "profile": one.profile,
                    "placement": {"start": one.slice.start, "size": one.slice.size},
                }
            )
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False) if found else ""
