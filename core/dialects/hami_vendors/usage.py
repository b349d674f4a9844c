"""Assignments on the wire, and how far the plugin is with them.

Source: protocol reference, hami-vendors 1, 2.6 and 6; positions of all containers count (VN-1), and only types that the
pod asked for are written (VN-35).
"""

from collections.abc import Mapping, Sequence

from core import hami_lock
from core.dialects.hami_vendors.vendor import Vendor
from core.model import Pod
from core.port.cards import Held
from core.port.handoff import InFlight, Progress, Stamp
from core.sharing import wire
from core.sharing.account import Assignment, Entry
from core.sharing.card import Card
from core.sharing.resources import Resources
from core.wire.entries import Written


def held(vendor: Vendor, named: Resources, pod: Pod, cards: Sequence[Card]) -> Held[Assignment] | None:
    """Return what bound *pod* holds by its annotations, whoever bound it; None if they name no card."""

    def finish(at: int, device: int, one: Written, entry: Entry, card: Card | None) -> tuple[Entry, bool]:
        del at, device, card
        if vendor.whole is not None:
            return entry._replace(memory=1, cores=0, charge=1), True
        return entry._replace(type=one.type) if vendor.writes_type else entry, True

    key = vendor.allocated
    if key not in pod.annotations and vendor.counts_either:
        key = vendor.to_allocate
    return wire.held(pod, cards, key, (named.cards,), finish=finish)


def annotations(vendor: Vendor, assignment: Assignment, stamp: Stamp) -> Mapping[str, str]:
    """Return what the Binding must carry."""
    keys = [key for key in (vendor.allocated, vendor.to_allocate) if key]
    found = wire.bound(keys, wire.wire_text(assignment, vendor.word, vendor.whole), stamp)
    if vendor.told is not None:
        found.update(vendor.told(assignment, stamp))
    return found


def in_flight(vendor: Vendor, pod: Pod) -> InFlight | None:
    """Return *pod* between its Binding and its last device; None if the plugin never serves it."""
    if (vendor.to_allocate or vendor.allocated) not in pod.annotations:
        return None
    if vendor.locks:
        found = hami_lock.in_flight(pod)
        if found is None or not (vendor.captures and pod.finished):
            return found
        left = pod.annotations.get(hami_lock.BIND_PHASE) == hami_lock.ALLOCATING
        cleanup = {hami_lock.BIND_PHASE: hami_lock.FAILED} if left else None
        return InFlight(pod=pod.uid, progress=Progress.FAILED, confusable=frozenset(), cleanup=cleanup)
    if not pod.node_name:
        return None
    if pod.finished or pod.started or (vendor.served is not None and vendor.served(pod)):
        progress = Progress.FAILED if pod.finished else Progress.DONE
        return InFlight(pod=pod.uid, progress=progress, confusable=frozenset())
    return InFlight(pod=pod.uid, progress=Progress.WAITING, confusable=frozenset({vendor.word}))
