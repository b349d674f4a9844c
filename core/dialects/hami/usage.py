"""Assignments on the wire: what a pod holds, and what a Binding says.

Source: protocol reference, hami 1.5, 1.9, 2.5, 3.2, 4.7, 5.1, 5.2 and 8.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from core import hami_lock
from core.dialects.hami import keys
from core.dialects.hami.table import HamiTable
from core.model import NodeName, Pod
from core.port.cards import Held
from core.port.handoff import InFlight, Stamp
from core.settings import Tables
from core.sharing import wire
from core.sharing.card import MIG, Assignment, Card, Entry
from core.sharing.slices import Slice
from core.sharing.wire import Written
from core.wire import hami_reservations as reservations
from core.wire.hami_reservations import Instance

# The longest value of a label; a longer one would make every later write to the pod fail (HN-15).
_LABEL_CHARS: Final = 63


def held(pod: Pod, cards: Sequence[Card], tables: Tables) -> Held[Assignment] | None:
    """What bound *pod* holds by its annotations, whoever bound it; None if they name no card.

    A share of a MIG card of which nobody knows the instance closes the card.
    """
    if keys.ALLOCATED not in pod.annotations:
        return None
    text = pod.annotations.get(keys.RESERVATIONS)
    reserved: Mapping[tuple[int, int], Instance] = (reservations.decode(text) if text is not None else None) or {}
    uuids = {card.fixed.uuid for card in cards} if reserved else set()
    unread: list[tuple[int, str]] = []
    if uuids and any(one.uuid not in uuids for one in reserved.values()):
        unread = [(at, card.fixed.uuid) for at, card in enumerate(cards) if card.fixed.kind.mode == MIG]

    def finish(at: int, device: int, one: Written, entry: Entry, card: Card | None) -> tuple[Entry, bool]:
        known = reserved.get((at, device))
        mode = card.fixed.kind.mode if card is not None else ""
        if known is not None and known.uuid == entry.uuid == one.name and mode in ("", MIG):
            return entry._replace(profile=known.profile, slice=Slice("", known.start, known.size)), True
        return entry, mode != MIG

    counts = (tables.of(HamiTable).named.cards,)
    return wire.held(pod, cards, keys.ALLOCATED, counts, finish=finish, unread=unread)


def annotations(assignment: Assignment, stamp: Stamp, tables: Tables) -> Mapping[str, str]:
    """What the Binding must carry; MIG instances are named only where there are some."""
    found = wire.bound((keys.TO_ALLOCATE, keys.ALLOCATED), wire.wire_text(assignment, keys.NVIDIA), stamp)
    made = _instances(assignment)
    return {**found, keys.RESERVATIONS: reservations.encode(made)} if made else found


def labels(node: NodeName) -> Mapping[str, str]:
    """Return the label by which the plugin's monitor finds the pods of *node*; none if the name is too long for one."""
    return {hami_lock.NODE: node} if len(node) <= _LABEL_CHARS else {}


def _instances(assignment: Assignment) -> list[Instance]:
    """The instances that the plugin must make."""
    found: list[Instance] = []
    devices: dict[int, int] = {}
    for one in assignment.entries:
        device = devices.get(one.container, 0)
        devices[one.container] = device + 1
        if one.slice is not None:
            place = one.slice
            found.append(Instance(one.container, device, one.uuid, one.profile, place.start, place.size))
    return found


def in_flight(pod: Pod, tables: Tables) -> InFlight | None:
    """*pod* as the plugin sees it; None if it never serves it."""
    return hami_lock.in_flight(pod) if keys.TO_ALLOCATE in pod.annotations else None
