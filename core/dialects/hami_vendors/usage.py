"""Assignments on the wire, and how far the plugin is with them.

Source: protocol reference, hami-vendors 1, 2.6 and 6; positions of all containers count (VN-1), and only types that the
pod asked for are written (VN-35).
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Final

from core import hami_lock
from core.dialects.hami_vendors.vendor import Vendor
from core.errors import InvalidRequestError
from core.model import Container, Pod
from core.port.cards import Held
from core.port.handoff import InFlight, Progress, Stamp
from core.sharing import wire
from core.sharing.card import Assignment, Card, Entry, assigned
from core.sharing.request import Resources
from core.sharing.wire import Written
from core.units import parse_count

# Instead of the cards of pods that have no assignment, where only their number counts.
_BY_KUBELET: Final = "chosen by kubelet"


def held(vendor: Vendor, named: Resources, pod: Pod, cards: Sequence[Card]) -> Held[Assignment] | None:
    """Return what bound *pod* holds by its annotations, whoever bound it; None if they name no card."""

    def finish(at: int, device: int, one: Written, entry: Entry, card: Card | None) -> tuple[Entry, bool]:
        if vendor.handoff.codec is not None:
            return vendor.handoff.codec.read(pod, named, entry, one, card)
        if vendor.cards.whole is not None:
            return entry._replace(memory=1, cores=0, charge=1), True
        return entry._replace(told=one.type) if vendor.handoff.writes_type else entry, True

    key = vendor.handoff.allocated
    if vendor.handoff.counts_either:
        # Its plugin erases one of them, and some pods have only one.
        key = max(key, vendor.handoff.to_allocate, key=lambda one: pod.annotations.get(one, "").count(","))
    marks = vendor.wishes.marks(pod.annotations) if vendor.wishes.marks is not None else ()
    found = wire.held(pod, cards, key, (named.cards,), finish=finish, marks=marks)
    if found is None and vendor.handoff.kubelet_chooses:
        # Another scheduler needs no annotation for them, and kubelet's account says how many are left.
        numbers = [(at, _number(named, one)) for at, one in enumerate((*pod.init_containers, *pod.containers))]
        entries = [Entry(-1, _BY_KUBELET, at, number, 0, number) for at, number in numbers if number]
        return Held(assignment=assigned(len(numbers), entries)) if entries else None
    return found


def annotations(vendor: Vendor, named: Resources, assignment: Assignment, stamp: Stamp) -> Mapping[str, str]:
    """Return what the Binding must carry."""
    keys = [key for key in (vendor.handoff.allocated, vendor.handoff.to_allocate) if key]
    found = wire.bound(keys, text(vendor, assignment), stamp)
    if vendor.handoff.told is not None:
        found.update(vendor.handoff.told(assignment, stamp, named))
    return found


def text(vendor: Vendor, assignment: Assignment) -> str:
    """Return *assignment* as it is written."""
    if vendor.handoff.codec is not None:
        assignment = assignment._replace(entries=tuple(map(vendor.handoff.codec.written, assignment.entries)))
    return wire.wire_text(assignment, vendor.word, vendor.cards.whole)


def in_flight(vendor: Vendor, named: Resources, pod: Pod) -> InFlight | None:
    """Return *pod* between its Binding and its last device; None if the plugin never serves it."""
    if (
        vendor.handoff.kubelet_chooses
        or (vendor.handoff.to_allocate or vendor.handoff.allocated) not in pod.annotations
    ):
        return None
    if vendor.handoff.locks:
        found = hami_lock.in_flight(pod)
        if found is None or not (vendor.handoff.captures and pod.finished):
            return found
        left = pod.annotations.get(hami_lock.BIND_PHASE) == hami_lock.ALLOCATING
        cleanup = {hami_lock.BIND_PHASE: hami_lock.FAILED} if left else None
        return InFlight(pod=pod.uid, progress=Progress.FAILED, confusable=frozenset(), cleanup=cleanup)
    if not pod.node_name:
        return None
    marks: frozenset[Hashable] = frozenset({vendor.word})
    if vendor.cards.slices:
        marks = frozenset([(vendor.word, size) for size in sizes(named, pod.containers)])
        if not marks:
            return None
    if pod.finished or _is_served(vendor, pod):
        progress = Progress.FAILED if pod.finished else Progress.DONE
        return InFlight(pod=pod.uid, progress=progress, confusable=frozenset())
    return InFlight(pod=pod.uid, progress=Progress.WAITING, confusable=marks)


def _is_served(vendor: Vendor, pod: Pod) -> bool:
    # Kubelet accepts a pod once all its containers have their devices; it may never start, as with an unknown image.
    if pod.started or (pod.start_s and not vendor.handoff.served_keys):
        return True
    return any(pod.annotations.get(key) == "true" for key in vendor.handoff.served_keys)


def sizes(named: Resources, containers: Sequence[Container]) -> frozenset[int]:
    """Return of how many slices the instances are that kubelet asks the plugin for, one for each container."""
    return frozenset([_number(named, one) for one in containers]) - {0}


def _number(named: Resources, one: Container) -> int:
    try:
        return parse_count(one.amount(named.cards) or "", "")
    except InvalidRequestError:
        return 0
