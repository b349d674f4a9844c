"""Assignments on the wire: what a pod holds, and what a Binding says.

Source: protocol reference, hami 1.9, 4.7, 5.1, 5.2 and 8.
"""

import json
from collections.abc import Collection, Sequence

from core.dialects.hami import keys, mig
from core.dialects.hami.table import HamiTable
from core.model import Pod
from core.port.cards import Held
from core.sharing import wire
from core.sharing.account import Assignment, Entry
from core.sharing.card import MIG, Card
from core.tables import Tables
from core.wire.entries import Written


def held(pod: Pod, cards: Sequence[Card], tables: Tables) -> Held[Assignment] | None:
    """What bound *pod* holds by its annotations, whoever bound it; None if they name no card.

    A share of a MIG card of which nobody knows the instance closes the card.
    """
    reserved = _reserved(pod)
    unread: list[tuple[int, str]] = []
    if _names_others(reserved, [card.fixed.uuid for card in cards]):
        unread = [(at, card.fixed.uuid) for at, card in enumerate(cards) if card.fixed.kind.mode == MIG]

    def finish(at: int, device: int, one: Written, entry: Entry, card: Card | None) -> tuple[Entry, bool]:
        known = reserved.get((at, device)) if reserved is not None else None
        mode = card.fixed.kind.mode if card is not None else ""
        if known is not None and known.uuid == entry.uuid == one.name and mode in ("", MIG):
            return entry._replace(profile=known.profile, slice=known.slice), True
        return entry, mode != MIG

    return wire.held(pod, cards, keys.ALLOCATED, (tables.of(HamiTable).count_resource,), finish=finish, unread=unread)


def _reserved(pod: Pod) -> mig.Reservations | None:
    text = pod.annotations.get(keys.RESERVATIONS)
    return {} if text is None else mig.decode_reservations(text)


def _names_others(reserved: mig.Reservations | None, uuids: Collection[str]) -> bool:
    return bool(uuids) and any(one.uuid not in uuids for one in (reserved or {}).values())


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
