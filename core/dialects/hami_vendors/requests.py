"""What a pod asks of the cards of one vendor.

Source: protocol reference, hami-vendors 2.2, 2.3 and 3, with VN-8 done as it says and types matched by whole words.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from core.dialects.hami_vendors.vendor import Vendor
from core.errors import InvalidRequestError, quoted
from core.model import AnyPod, Container
from core.port.cards import CardWish
from core.port.refusals import Reason, Violation
from core.sharing.request import Ask, Place, Request, places_of, selection_of, uncounted_shares
from core.sharing.resources import Resources
from core.sharing.wishes import order_of
from core.units import MAX_INT32, parse_count, parse_memory


def request(vendor: Vendor, named: Resources, pod: AnyPod) -> Request | tuple[Violation, ...] | None:
    """Return what *pod* asks; None if nothing, violations if it may not ask so."""
    asked = readable_request(vendor, named, pod)
    violations = (
        *(asked if asked is not None and not isinstance(asked, Request) else ()),
        *uncounted_shares(pod, named),
        *_unservable(vendor, named, pod),
    )
    return tuple(dict.fromkeys(violations)) or asked


def readable_request(vendor: Vendor, named: Resources, pod: AnyPod) -> Request | tuple[Violation, ...] | None:
    """Return what *pod* asks, as HAMi's scheduler reads it."""
    violations: list[Violation] = []
    asks = [ask for place in places_of(pod, violations) if (ask := _ask(vendor, named, place)) is not None]
    if not asks and not violations:
        return None
    select, types = vendor.select, vendor.types
    found = Request(
        asks=tuple(sorted(asks, key=_when)),
        segments=len(pod.init_containers) + len(pod.containers),
        selection=selection_of(pod.annotations, select.use, select.avoid, violations, types=types),
        order=order_of(pod.annotations, violations),
    )
    return tuple(violations) if violations else found


def may_ask(vendor: Vendor, request: Request, reason: Reason, amount: int) -> bool:
    """Return whether the containers of *request* may ask for *amount* of what *reason* counts: MiB, cores, or cards."""
    if reason not in (Reason.MEMORY, Reason.CORES):
        return True
    if vendor.several_are_whole and any(ask.number > 1 for ask in request.asks):
        return False
    if reason is Reason.CORES:
        return amount >= vendor.least_cores
    return not vendor.steps or amount in [step * vendor.mib_per_unit for step in vendor.steps]


def wish_of(vendor: Vendor, wish: CardWish) -> CardWish | None:
    """Return *wish* in the amounts of *vendor*, cores in its own unit; None if its plugin serves no such request."""
    is_part = wish.memory_mib is not None or wish.cores_pct not in (None, 100)
    if (vendor.counts and wish.cards not in vendor.counts) or (vendor.companions and wish.memory_mib is None):
        return None
    if vendor.several_are_whole and wish.cards > 1:
        # Cores of whole cards need no words.
        return None if is_part else wish._replace(cores_pct=None)
    memory_mib, cores = wish.memory_mib, wish.cores_pct
    if memory_mib is not None and vendor.steps:
        unit = vendor.mib_per_unit
        memory_mib = next((step * unit for step in vendor.steps if step * unit >= memory_mib), memory_mib)
    if cores is None and vendor.companions:
        cores = vendor.default_cores
    if cores is not None:
        cores = -(-cores * vendor.most_cores // 100)
    return wish._replace(memory_mib=memory_mib, cores_pct=cores)


def _when(ask: Ask) -> tuple[bool, bool]:
    return ask.initial, ask.sidecar


def _ask(vendor: Vendor, named: Resources, place: Place) -> Ask | None:
    figures = place.figures
    number = figures.read(named.cards, "CS101")
    if not number:
        return None
    if vendor.whole is not None:
        return Ask(place.container, number, 1, 0, 0, place.initial, place.sidecar)
    parts = number if vendor.per_container else 1
    unit = named.mib_per_unit
    as_memory = partial(parse_memory, mib_per_unit=unit)
    memory = (figures.read(named.memory, "CS101", maximum=MAX_INT32 // unit, parse=as_memory) or 0) // parts * unit
    # HAMi's webhook writes all cores of several cards together for some vendors, and those of one for others.
    most = vendor.most_cores
    cores = figures.read(named.cores, "CS103", vendor.least_cores, most * number if vendor.several_are_whole else most)
    cores = vendor.default_cores if cores is None else min(cores // parts, most)
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
    if vendor.one_container:
        yield from _one_container(named, asking)
    for one in asking:
        yield from _of_container(vendor, named, one)


def _one_container(named: Resources, asking: Sequence[_Asking]) -> Iterator[Violation]:
    initial = next((one for one in asking if one.role != "container"), None)
    if initial is not None:
        field = f'{initial.role} "{initial.container.name}"'
        remedy = f"ask for {named.cards} in a normal container; init containers get no card"
        yield Violation(code="CS205", field=field, found="", remedy=remedy)
    elif len(asking) > 1:
        field = "containers " + ", ".join([f'"{one.container.name}"' for one in asking])
        remedy = f"only one container of a pod may ask for {named.cards}; use one pod for each"
        yield Violation(code="CS204", field=field, found="", remedy=remedy)


def _of_container(vendor: Vendor, named: Resources, one: _Asking) -> Iterator[Violation]:
    number = one.figure(named.cards)
    found = quoted(one.container.amount(named.cards) or "")
    if vendor.counts and number not in vendor.counts:
        known = " or ".join(map(str, vendor.counts))
        yield Violation(code="CS203", field=one.at(named.cards), found=found, remedy=f"write {known}; no other fits")
    if vendor.companions:
        for name in named.parts:
            if not one.figure(name):
                remedy = f"write it with {named.cards}; the plugin fails without it, and so do all later pods there"
                yield Violation(code="CS203", field=one.at(name), found="", remedy=remedy)
    memory = one.figure(named.memory)
    if vendor.steps and number == 1 and memory and memory not in vendor.steps:
        remedy = f"write one of {', '.join(map(str, vendor.steps))}"
        found = quoted(one.container.amount(named.memory) or "")
        yield Violation(code="CS101", field=one.at(named.memory), found=found, remedy=remedy)
    if vendor.several_are_whole and number > 1:
        for name, whole in ((named.memory, vendor.steps[-1] if vendor.steps else 0), (named.cores, vendor.most_cores)):
            figure = one.figure(name)
            if figure and figure not in (whole * number, 0 if vendor.per_container else whole):
                found = quoted(one.container.amount(name) or "")
                remedy = "leave it out; a container gets several cards only whole"
                yield Violation(code="CS207", field=one.at(name), found=found, remedy=remedy)
