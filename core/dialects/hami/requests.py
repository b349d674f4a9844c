"""What a pod asks for in HAMi's protocol for NVIDIA cards.

Source: protocol reference, hami 1.4, 4.1, 4.4 and 6, with HN-12 done as it says and types matched by whole words.
"""

from collections.abc import Iterator
from functools import partial

from core.dialects.hami import keys
from core.dialects.hami.table import HamiTable
from core.errors import quoted
from core.model import AnyPod
from core.port.refusals import Violation
from core.sharing.request import (
    Ask,
    Place,
    Request,
    check_words,
    containers_of,
    places_of,
    selection_of,
    uncounted_shares,
)
from core.sharing.resources import Resources
from core.sharing.wishes import order_of, words
from core.tables import Tables
from core.units import MAX_INT32, parse_memory


def request(pod: AnyPod, tables: Tables) -> Request | tuple[Violation, ...] | None:
    """What *pod* asks, if HAMi is meant and its plugin can be told so; see `readable_request`."""
    table = tables.of(HamiTable)
    if tables.is_claimed(table.count_resource) or not _means_hami(pod, table):
        return None
    asked = readable_request(pod, table)
    violations = (
        *(asked if asked is not None and not isinstance(asked, Request) else ()),
        *_unservable(pod, table),
    )
    if violations:
        return tuple(dict.fromkeys(violations))
    return asked


def _means_hami(pod: AnyPod, table: HamiTable) -> bool:
    """Whether a resource of HAMi's alone, or a word of its, is in *pod*; by the count alone NVIDIA may be meant too."""
    named: set[str] = set()
    for one in (*pod.containers, *pod.init_containers):
        named.update(one.limits, one.requests)
    if not table.resources.isdisjoint(named - {table.count_resource}):
        return True
    if table.count_resource not in named:
        return False
    return (
        table.installed
        or table.count_resource != keys.GPU
        or pod.scheduler_name == keys.SCHEDULER
        or not keys.OWN_WISHES.isdisjoint(pod.annotations)
    )


def readable_request(pod: AnyPod, table: HamiTable) -> Request | tuple[Violation, ...] | None:
    """What *pod* asks, as upstream's scheduler reads it; None if nothing, violations if it cannot be placed."""
    violations: list[Violation] = []
    asks = [ask for place in places_of(pod, violations) if (ask := _ask(place, table)) is not None]
    if not asks and not violations:
        return None
    modes = words(pod.annotations, keys.MODE)
    check_words(keys.MODE, modes, keys.MODES, violations)
    found = Request(
        asks=tuple(sorted(asks, key=lambda ask: (ask.initial, ask.sidecar))),
        segments=len(pod.init_containers) + len(pod.containers),
        selection=selection_of(pod.annotations, keys.USE_UUID, keys.NO_USE_UUID, violations),
        modes=modes,
        order=order_of(pod.annotations, violations),
    )
    return tuple(violations) if violations else found


def _ask(place: Place, table: HamiTable) -> Ask | None:
    figures = place.figures
    number = figures.read(table.count_resource, "CS101")
    if not number:
        return None
    factor = table.memory_factor
    as_memory = partial(parse_memory, mib_per_unit=factor)
    most = MAX_INT32 // factor
    memory = (figures.read(table.memory_resource, "CS101", maximum=most, parse=as_memory) or 0) * factor
    percent = figures.read(table.percentage_resource, "CS102", maximum=100) or 0
    cores = figures.read(table.cores_resource, "CS103", maximum=100)
    if not memory and not percent:
        memory, percent = table.default_memory, 0 if table.default_memory else 100
    if cores is None:
        cores = table.default_cores
    return Ask(place.container, number, memory, 0 if memory else percent, cores, place.initial, place.sidecar)


def _unservable(pod: AnyPod, table: HamiTable) -> Iterator[Violation]:
    """Priorities that the plugin does not know, and shares of no card."""
    for role, one in containers_of(pod):
        priority = one.amount(table.priority_resource)
        if priority not in (None, "0", "1"):
            field, remedy = f'{role} "{one.name}": limit {table.priority_resource}', "write 0 (high) or 1 (low)"
            yield Violation(code="CS304", field=field, found=quoted(priority or ""), remedy=remedy)
    yield from uncounted_shares(pod, resources_of(table))


def resources_of(table: HamiTable) -> Resources:
    """The names of *table*."""
    return Resources(
        table.count_resource,
        table.memory_resource,
        table.cores_resource,
        table.percentage_resource,
        table.memory_factor,
    )
