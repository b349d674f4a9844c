"""What a pod asks for in HAMi's protocol for NVIDIA cards.

Source: protocol reference, hami 1.4, 4.1, 4.4 and 6, with HN-12 done as it says and types matched by whole words.
"""

from collections.abc import Iterator
from functools import partial
from typing import Final

from core.dialects.hami import keys
from core.errors import InvalidRequestError, quoted
from core.model import AnyPod
from core.port.refusals import Violation
from core.sharing.order import CARD_WORDS, NODE_WORDS
from core.sharing.request import (
    ANY_ORDER,
    EVEN,
    Ask,
    Order,
    Place,
    Request,
    Weights,
    check_words,
    containers_of,
    places_of,
    selection_of,
)
from core.tables import HamiTable, Tables
from core.units import MAX_INT32, parse_count, parse_memory


def request(pod: AnyPod, tables: Tables) -> Request | tuple[Violation, ...] | None:
    """What *pod* asks, if HAMi is meant and its plugin can be told so; see `readable_request`."""
    table = tables.hami
    if tables.sells_shares_as(table.count_resource) or not _means_hami(pod, table):
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
    modes = _words(pod, keys.MODE)
    check_words(keys.MODE, modes, keys.MODES, violations)
    found = Request(
        asks=tuple(sorted(asks, key=lambda ask: (ask.initial, ask.sidecar))),
        segments=len(pod.init_containers) + len(pod.containers),
        selection=selection_of(pod.annotations, keys.USE_UUID, keys.NO_USE_UUID, violations),
        modes=modes,
        order=_order(pod, violations),
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


def _words(pod: AnyPod, key: str) -> tuple[str, ...]:
    return tuple(word for item in pod.annotations.get(key, "").split(",") if (word := item.strip()))


def _order(pod: AnyPod, violations: list[Violation]) -> Order:
    annotations = pod.annotations
    policies = _words(pod, keys.CARD_POLICY)
    nodes = annotations.get(keys.NODE_POLICY, "").strip()
    check_words(keys.CARD_POLICY, policies, CARD_WORDS, violations)
    check_words(keys.NODE_POLICY, (nodes,) if nodes else (), NODE_WORDS, violations)
    found = Order(policies, _weights(pod, violations), annotations.get(keys.NUMA_BIND, "") in keys.TRUE, nodes)
    return ANY_ORDER if found == ANY_ORDER else found


_WEIGHT_REMEDY: Final = "write 'slot=1,core=1,memory=1' with whole numbers, not all of them 0"


def _weights(pod: AnyPod, violations: list[Violation]) -> Weights:
    text = pod.annotations.get(keys.WEIGHTS)
    if text is None:
        return EVEN
    pairs = [[part.strip() for part in item.split("=", 1)] for item in text[:256].split(",")]
    try:
        found = {name: parse_count(figure, "", MAX_INT32) for name, figure in pairs}
    except (InvalidRequestError, ValueError):
        found = {}
    if len(pairs) != len(found) or found.keys() != set(Weights._fields) or not any(found.values()):
        violations.append(
            Violation(code="CS105", field=f"annotation {keys.WEIGHTS}", found=quoted(text), remedy=_WEIGHT_REMEDY)
        )
        return EVEN
    return Weights(**found)


def _unservable(pod: AnyPod, table: HamiTable) -> Iterator[Violation]:
    """What kubelet or the plugin would not do as asked: no count, or shares of no card; and contradictions."""
    shares = (table.memory_resource, table.percentage_resource, table.cores_resource)
    for role, one in containers_of(pod):
        priority = one.amount(table.priority_resource)
        if priority not in (None, "0", "1"):
            field = f'{role} "{one.name}": limit {table.priority_resource}'
            yield Violation(code="CS304", field=field, found=quoted(priority or ""), remedy="write 0 (high) or 1 (low)")
        given = [key for key in shares if (text := one.amount(key)) is not None and text.strip("0")]
        field = f'{role} "{one.name}": limit {table.count_resource}'
        count = one.limits.get(table.count_resource)
        if count is None and (given or table.count_resource in one.requests):
            remedy = f"write {table.count_resource}: 1 as well; kubelet gives the container no card without it"
            yield Violation(code="CS203", field=field, found="", remedy=remedy)
        elif count is not None and not count.strip("0") and given:
            remedy = f"write {table.count_resource}: 1, or leave out {', '.join(given)} as well"
            yield Violation(code="CS203", field=field, found=quoted(count), remedy=remedy)
