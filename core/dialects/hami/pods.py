"""The pods of HAMi's protocol for NVIDIA cards: what they ask for and hold, and what a Binding says.

Source: protocol reference, hami 1.2, 1.4, 1.5, 1.9, 2.5, 3.2, 4.1, 4.4, 4.7, 5.1, 5.2, 6 and 8, with HN-11 and HN-12
done as they say and types matched by whole words.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from core import hami_lock
from core.dialects.hami import keys
from core.dialects.hami.table import HamiTable
from core.errors import quoted
from core.model import AnyPod, Container, NodeName, Pod, ReviewedPod
from core.port.cards import Held
from core.port.handoff import InFlight, Stamp
from core.port.refusals import Violation
from core.settings import Tables
from core.sharing import account, order
from core.sharing.account import Assignment, Entry, Written
from core.sharing.card import MIG, MODES, Card
from core.sharing.order import order_of, words
from core.sharing.request import (
    Ask,
    Place,
    Request,
    check_words,
    containers_of,
    judged,
    odd_memory,
    places_of,
    selection_of,
    uncounted_shares,
)
from core.sharing.slices import Slice
from core.units import FALSE, TRUE
from core.warnings import AdmissionWarning, limit_of, no_effect, with_runtime_class
from core.watched import CORE_POLICY, NVIDIA_DEVICES, TASK_PRIORITY, VOID
from core.wire import hami_reservations as reservations
from core.wire.hami_reservations import Instance


def request(pod: AnyPod, tables: Tables) -> Request | tuple[Violation, ...] | None:
    """What *pod* asks, if HAMi is meant and its plugin can be told so; see `readable_request`."""
    table = tables.of(HamiTable)
    if tables.is_claimed(table.named.cards) or not _means_hami(pod, table):
        return None
    return judged(readable_request(pod, table), _unservable(pod, table))


def _means_hami(pod: AnyPod, table: HamiTable) -> bool:
    """Whether a resource of HAMi's alone, or a word of its, is in *pod*; by the count alone NVIDIA may be meant too."""
    named: set[str] = set()
    for one in (*pod.containers, *pod.init_containers):
        named.update(one.limits, one.requests)
    if not (named - {table.named.cards}).isdisjoint(table.named.parts):
        return True
    if table.named.cards not in named:
        return False
    return (
        table.installed
        or table.named.cards != keys.GPU
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
    check_words(keys.MODE, modes, MODES, violations)
    found = Request(
        asks=tuple(sorted(asks, key=lambda ask: (ask.initial, ask.sidecar))),
        segments=len(pod.init_containers) + len(pod.containers),
        selection=selection_of(pod.annotations, keys.USE_UUID, keys.NO_USE_UUID, violations),
        modes=modes,
        order=order_of(pod.annotations, violations),
        mib_per_unit=table.named.mib_per_unit,
    )
    return tuple(violations) if violations else found


def _ask(place: Place, table: HamiTable) -> Ask | None:
    figures = place.figures
    number = figures.read(table.named.cards, "CS101")
    if not number:
        return None
    memory = figures.mib(table.named.memory, table.named.mib_per_unit) or 0
    percent = figures.read(table.named.percentage, "CS102", maximum=100) or 0
    cores = figures.read(table.named.cores, "CS103", maximum=100)
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
    yield from uncounted_shares(containers_of(pod), table.named)


_ALL_CORES: Final = "100"


def completed(pod: ReviewedPod, request: Request, tables: Tables) -> tuple[ReviewedPod, tuple[AdmissionWarning, ...]]:
    """CS117: with HAMi's runtime class; all cores for whoever gets all memory, and variables as HAMi's webhook sets."""
    table = tables.of(HamiTable)
    pod = pod._replace(
        containers=tuple([_with_variables(_with_cores(one, table), table) for one in pod.containers]),
        init_containers=tuple([_with_variables(_with_cores(one, table), table) for one in pod.init_containers]),
    )
    return with_runtime_class(pod, table.runtime_class, "as HAMi's device-config.yaml has it")


def _with_variables(one: Container, table: HamiTable) -> Container:
    """With the variables for its priority, and by the configuration how it keeps to its cores or that it sees no GPU.

    Those that it has stand.
    """
    has_share = not {*one.limits, *one.requests}.isdisjoint(table.named.all)
    wanted = {TASK_PRIORITY: one.amount(table.priority_resource)}
    if has_share and table.core_policy:
        wanted[CORE_POLICY] = table.core_policy
    if not has_share and table.hides_devices:
        wanted[NVIDIA_DEVICES] = VOID
    has = {name for name, _ in one.reach.env}
    more = tuple([(name, value) for name, value in wanted.items() if value is not None and name not in has])
    return one._replace(reach=one.reach._replace(env=(*one.reach.env, *more))) if more else one


def _with_cores(one: Container, table: HamiTable) -> Container:
    if one.amount(table.named.cards) in (None, "0") or one.amount(table.named.cores) is not None:
        return one
    if table.default_memory or table.default_cores:
        # A part of the card is meant where the operator says so (HN-11).
        return one
    percent = one.amount(table.named.percentage)
    if percent != "100" and (percent is not None or one.amount(table.named.memory) is not None):
        return one
    more = {table.named.cores: _ALL_CORES}
    return one._replace(limits={**one.limits, **more}, requests={**one.requests, **more})


def warnings(pod: AnyPod, request: Request, tables: Tables) -> Iterator[AdmissionWarning]:
    """CS116 and CS119 for *pod*."""
    table = tables.of(HamiTable)
    yield from odd_memory(pod, table.named, none_is_all=not table.default_memory)
    for one in (*pod.init_containers, *pod.containers):
        memory, percent = one.amount(table.named.memory), one.amount(table.named.percentage)
        if memory not in (None, "0") and percent not in (None, "0"):
            why = f"{table.named.memory} is given too"
            yield no_effect(limit_of(one, table.named.percentage), percent or "", why, "leave one of both out")
    numa = pod.annotations.get(order.NUMA_BIND)
    if numa is not None and numa not in TRUE and numa not in FALSE:
        yield no_effect(f"annotation {order.NUMA_BIND}", numa, "it is read as false", f"write {quoted('true')} to bind")


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
    return account.held(pod, cards, keys.ALLOCATED, counts, finish=finish, unread=unread)


def annotations(assignment: Assignment, stamp: Stamp, tables: Tables) -> Mapping[str, str]:
    """What the Binding must carry; MIG instances are named only where there are some."""
    found = account.bound((keys.TO_ALLOCATE, keys.ALLOCATED), account.wire_text(assignment, keys.NVIDIA), stamp)
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
