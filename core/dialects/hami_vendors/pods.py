"""The pods of one vendor: what they ask for and hold, and how far the plugin is with them.

Positions of all containers count (VN-1), and only types that the pod asked for are written (VN-35).

Source: protocol reference, hami-vendors 1, 2.2, 2.3, 2.6, 3 and 6, with VN-8 done as it says and types matched by whole
words.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from core import hami_lock
from core.dialects.hami_vendors.vendor import Vendor
from core.errors import InvalidRequestError, quoted
from core.model import AnyPod, Container, Pod
from core.port.cards import CardWish, Held
from core.port.handoff import InFlight, Progress, Stamp
from core.port.refusals import Reason, Violation
from core.selection import CardSelection
from core.sharing import account
from core.sharing.account import Assignment, Entry, Written, assigned
from core.sharing.card import Card
from core.sharing.order import order_of
from core.sharing.request import (
    Ask,
    Place,
    Request,
    Resources,
    containers_of,
    places_of,
    selection_of,
    uncounted_shares,
)
from core.sharing.slices import Profile
from core.units import MAX_INT32, parse_count, parse_memory

# Nobody but the user knows how many slices have so much memory (VN-27).
_SLICES: Final = "the number of slices"


def request(vendor: Vendor, named: Resources, pod: AnyPod) -> Request | tuple[Violation, ...] | None:
    """Return what *pod* asks; None if nothing, violations if it may not ask so."""
    asked = readable_request(vendor, named, pod)
    wanted = _SLICES if vendor.cards.slices else "1"
    violations = (
        *(asked if asked is not None and not isinstance(asked, Request) else ()),
        *(uncounted_shares(containers_of(pod), named, wanted) if vendor.limits.asks is None else ()),
        *_unservable(vendor, named, pod),
    )
    return tuple(dict.fromkeys(violations)) or asked


def readable_request(vendor: Vendor, named: Resources, pod: AnyPod) -> Request | tuple[Violation, ...] | None:
    """Return what *pod* asks, as HAMi's scheduler reads it."""
    violations: list[Violation] = []
    places = places_of(pod, violations)
    if vendor.limits.asks is not None:
        asks = vendor.limits.asks(named, places)
    else:
        asks = [ask for place in places if (ask := _ask(vendor, named, place)) is not None]
    if not asks and not violations:
        return None
    found = Request(
        asks=tuple(sorted(asks, key=_when)),
        segments=len(pod.init_containers) + len(pod.containers),
        selection=_selection(vendor, pod, violations),
        order=order_of(pod.annotations, violations),
        # Where suffixes are read, any MiB can be asked for.
        mib_per_unit=named.mib_per_unit if vendor.limits.memory_mib is None else 1,
    )
    if vendor.wishes.adapt is not None:
        found = vendor.wishes.adapt(pod, found, violations)
    return tuple(violations) if violations else found


def relaxed(vendor: Vendor, found: Request) -> Request:
    """Return *found*, in which containers ask for less memory, with the cores that come with it."""
    if not vendor.limits.rounds_up:
        return found
    return found._replace(asks=tuple([ask._replace(cores=_of_steps(vendor, ask.memory)) for ask in found.asks]))


def _selection(vendor: Vendor, pod: AnyPod, violations: list[Violation]) -> CardSelection:
    select, too = vendor.limits.select, vendor.limits.select_too
    found = selection_of(pod.annotations, select.use, select.avoid, violations, types=vendor.limits.types)
    if not too.use or pod.annotations.keys().isdisjoint(too):
        return found
    # Both must accept a card.
    other = selection_of(pod.annotations, too.use, too.avoid, violations, types=vendor.limits.types)
    rejected = found.no_use_uuids | other.no_use_uuids
    if found.use_uuids and other.use_uuids:
        rejected |= found.use_uuids ^ other.use_uuids
    return found._replace(use_uuids=found.use_uuids | other.use_uuids, no_use_uuids=rejected)


def may_ask(vendor: Vendor, request: Request, reason: Reason, amount: int) -> bool:
    """Return whether the containers of *request* may ask for *amount* of what *reason* counts: MiB, cores, or cards."""
    if reason is Reason.CARD_COUNT and vendor.limits.counts:
        return amount in vendor.limits.counts
    if reason not in (Reason.MEMORY, Reason.CORES):
        return True
    if vendor.cards.slices or vendor.limits.asks is not None:
        return False
    if vendor.limits.several_are_whole and any(ask.number > 1 for ask in request.asks):
        return False
    if reason is Reason.CORES:
        return amount >= vendor.limits.least_cores and not vendor.limits.rounds_up
    return not vendor.limits.steps or amount in [step * vendor.limits.mib_per_unit for step in vendor.limits.steps]


def wish_of(vendor: Vendor, wish: CardWish) -> CardWish | None:
    """Return *wish* in the amounts of *vendor*, cores in its own unit; None if its plugin serves no such request."""
    if vendor.cards.slices:
        # How many slices that would be depends on the card.
        return None
    is_part = wish.memory_mib is not None or wish.cores_pct not in (None, 100)
    if (vendor.limits.counts and wish.cards not in vendor.limits.counts) or (
        vendor.limits.companions and wish.memory_mib is None
    ):
        return None
    if vendor.limits.asks is not None or (vendor.limits.several_are_whole and wish.cards > 1):
        # Cores of whole cards need no words.
        return None if is_part else wish._replace(cores_pct=None)
    memory_mib, cores = wish.memory_mib, wish.cores_pct
    if memory_mib is not None and vendor.limits.steps:
        unit = vendor.limits.mib_per_unit
        if memory_mib > vendor.limits.steps[-1] * unit:
            return None
        memory_mib = _stepped(vendor, -(-memory_mib // unit)) * unit
    if cores is None and vendor.limits.companions:
        cores = 100 if vendor.limits.all_cores else 0
    if cores is not None:
        cores = -(-cores * vendor.limits.most_cores // 100)
    return wish._replace(memory_mib=memory_mib, cores_pct=cores)


def _stepped(vendor: Vendor, units: int) -> int:
    """Return the next of the vendor's amounts of memory, or the largest."""
    return next((step for step in vendor.limits.steps if step >= units), vendor.limits.steps[-1])


def _of_steps(vendor: Vendor, memory: int) -> int:
    """Return the cores that come with *memory*, which is one of the vendor's steps in MiB: of the last, all."""
    return 100 * memory // (vendor.limits.steps[-1] * vendor.limits.mib_per_unit)


def _when(ask: Ask) -> tuple[bool, bool]:
    return ask.initial, ask.sidecar


def _ask(vendor: Vendor, named: Resources, place: Place) -> Ask | None:
    figures = place.figures
    number = figures.read(named.cards, "CS101")
    if not number:
        return None
    if vendor.cards.slices:
        # One instance of a card; the profile has the card judged by what it can be cut into.
        cut = Profile("", 0, number)
        return Ask(place.container, 1, number, 0, 0, place.initial, place.sidecar, profile=cut)
    if vendor.cards.whole is not None:
        return Ask(place.container, number, 1, 0, 0, place.initial, place.sidecar)
    parts = number if vendor.limits.per_container else 1
    unit = named.mib_per_unit
    if vendor.limits.memory_mib is not None:
        memory = figures.read(named.memory, "CS101", parse=vendor.limits.memory_mib) or 0
    else:
        as_memory = partial(parse_memory, mib_per_unit=unit)
        units = figures.read(named.memory, "CS101", maximum=MAX_INT32 // unit, parse=as_memory)
        if vendor.limits.rounds_up:
            memory = unit * (vendor.limits.steps[-1] if units is None else _stepped(vendor, units))
            return Ask(place.container, number, memory, 0, _of_steps(vendor, memory), place.initial, place.sidecar)
        memory = (units or 0) // parts * unit
    # HAMi's webhook writes all cores of several cards together for some vendors, and those of one for others.
    most = vendor.limits.most_cores
    cores = figures.read(
        named.cores, "CS103", vendor.limits.least_cores, most * number if vendor.limits.several_are_whole else most
    )
    cores = (most if vendor.limits.all_cores else 0) if cores is None else min(cores // parts, most)
    return Ask(place.container, number, memory, 0 if memory else 100, cores, place.initial, place.sidecar)


class _Asking(NamedTuple):
    """A container with cards: its role, and a text that says where its amounts are."""

    role: str
    container: Container

    def at(self, resource: str) -> str:
        return f'{self.role} "{self.container.name}": limit {resource}'

    def figure(self, resource: str) -> int:
        """Return its amount of *resource*, 0 if it is absent or no whole number; API servers write 4000 as 4k."""
        try:
            return parse_count(self.container.amount(resource) or "", "")
        except InvalidRequestError:
            return 0


def _unservable(vendor: Vendor, named: Resources, pod: AnyPod) -> Iterator[Violation]:
    """Yield what the plugin would not do as asked."""
    asking = [
        _Asking(role, one)
        for role, some in (("init container", pod.init_containers), ("container", pod.containers))
        for one in some
        if one.amount(named.cards) not in (None, "0")
    ]
    if vendor.limits.one_container:
        yield from _one_container(named, asking)
    elif vendor.cards.slices:
        yield from _no_init(named, asking)
    elif vendor.cards.rules.on_one_card and len(asking) > 1 and any(one.figure(named.cards) > 1 for one in asking):
        remedy = (
            f"write {named.cards}: 1 and a part of its memory in each; they share one card, or use one pod for each"
        )
        yield Violation(code="CS204", field=_names(asking), found="", remedy=remedy)
    for one in asking:
        yield from _of_container(vendor, named, one)
        if vendor.wishes.unservable is not None and (remedy := vendor.wishes.unservable(pod, one.figure(named.cards))):
            found = quoted(one.container.amount(named.cards) or "")
            yield Violation(code="CS203", field=one.at(named.cards), found=found, remedy=remedy)


def _no_init(named: Resources, asking: Sequence[_Asking]) -> Iterator[Violation]:
    initial = next((one for one in asking if one.role != "container"), None)
    if initial is not None:
        field = f'{initial.role} "{initial.container.name}"'
        remedy = f"ask for {named.cards} in a normal container; init containers get no card"
        yield Violation(code="CS205", field=field, found="", remedy=remedy)


def _one_container(named: Resources, asking: Sequence[_Asking]) -> Iterator[Violation]:
    violations = tuple(_no_init(named, asking))
    yield from violations
    if len(asking) > 1 and not violations:
        remedy = f"only one container of a pod may ask for {named.cards}; use one pod for each"
        yield Violation(code="CS204", field=_names(asking), found="", remedy=remedy)


def _names(asking: Sequence[_Asking]) -> str:
    return "containers " + ", ".join([f'"{one.container.name}"' for one in asking])


def _beside_steps(vendor: Vendor, number: int, memory: int | None) -> str:
    """Return what to write instead of *memory* units of each of *number* cards, "" if the vendor serves them.

    Kubelet does not call a plugin that counts parts for 0 of them.
    """
    if vendor.limits.rounds_up:
        return (
            f"write at most {vendor.limits.steps[-1]}, which is all of a card"
            if memory is not None and memory > vendor.limits.steps[-1]
            else ""
        )
    if vendor.limits.steps and number == 1 and memory is not None and memory not in vendor.limits.steps:
        return f"write one of {', '.join(map(str, vendor.limits.steps))}"
    return ""


def _of_container(vendor: Vendor, named: Resources, one: _Asking) -> Iterator[Violation]:
    number = one.figure(named.cards)
    found = quoted(one.container.amount(named.cards) or "")
    if vendor.limits.counts and number not in vendor.limits.counts:
        known = " or ".join(map(str, vendor.limits.counts))
        yield Violation(code="CS203", field=one.at(named.cards), found=found, remedy=f"write {known}; no other fits")
    if vendor.limits.companions:
        for name in named.parts:
            if not (one.container.amount(name) or "").strip("0"):
                remedy = f"write it with {named.cards}; the plugin fails without it, and so do all later pods there"
                yield Violation(code="CS203", field=one.at(name), found="", remedy=remedy)
    if vendor.limits.asks is not None and number and one.figure(named.cores):
        # Kubelet would ask the plugin for both (VN-30).
        found = quoted(one.container.amount(named.cores) or "")
        remedy = f"leave it out; {named.cards} has all cores of each"
        yield Violation(code="CS203", field=one.at(named.cores), found=found, remedy=remedy)
    is_none = one.container.amount(named.memory) == "0"
    remedy = _beside_steps(vendor, number, one.figure(named.memory) or (0 if is_none else None))
    if remedy:
        found = quoted(one.container.amount(named.memory) or "")
        yield Violation(code="CS101", field=one.at(named.memory), found=found, remedy=remedy)
    if vendor.limits.several_are_whole and number > 1:
        for name, whole in (
            (named.memory, vendor.limits.steps[-1] if vendor.limits.steps else 0),
            (named.cores, vendor.limits.most_cores),
        ):
            figure = one.figure(name)
            if figure and figure not in (whole * number, 0 if vendor.limits.per_container else whole):
                found = quoted(one.container.amount(name) or "")
                remedy = "leave it out; a container gets several cards only whole"
                yield Violation(code="CS207", field=one.at(name), found=found, remedy=remedy)


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
    found = account.held(pod, cards, key, (named.cards,), finish=finish, marks=marks)
    if found is None and vendor.handoff.kubelet_chooses:
        # Another scheduler needs no annotation for them, and kubelet's account says how many are left.
        numbers = [(at, _number(named, one)) for at, one in enumerate((*pod.init_containers, *pod.containers))]
        entries = [Entry(-1, _BY_KUBELET, at, number, 0, number) for at, number in numbers if number]
        return Held(assignment=assigned(len(numbers), entries)) if entries else None
    return found


def annotations(vendor: Vendor, named: Resources, assignment: Assignment, stamp: Stamp) -> Mapping[str, str]:
    """Return what the Binding must carry."""
    keys = [key for key in (vendor.handoff.allocated, vendor.handoff.to_allocate) if key]
    found = account.bound(keys, text(vendor, assignment), stamp)
    if vendor.handoff.told is not None:
        found.update(vendor.handoff.told(assignment, stamp, named))
    return found


def text(vendor: Vendor, assignment: Assignment) -> str:
    """Return *assignment* as it is written."""
    if vendor.handoff.codec is not None:
        assignment = assignment._replace(entries=tuple(map(vendor.handoff.codec.written, assignment.entries)))
    return account.wire_text(assignment, vendor.word, vendor.cards.whole)


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
