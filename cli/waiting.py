"""``kubectl cards waiting`` and ``queues``: fetch waiting pods, what determines their order, and queues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from cli.cluster import BOUND, PODS, Reads, answered, empty_holdings, fetch_holdings, list_objects
from cli.options import By
from cli.text import NONE, UNKNOWN, aligned, noted
from core.configuration import OWN_MAP
from core.constraints.quota import shown
from core.errors import escaped
from core.groups import GroupSpec, QueueSpec
from core.ledger import Ledger
from core.model import GroupKey, GroupKind, Pod, group_of
from core.view.queues import QueueAmount, Queues, QueueState, queues_of
from core.view.waiting import Lines, Waiting, WaitingPod, WaitingQueue, WaitingReason, has_place, waiting, waits
from core.wire.groups import group_in, queue_in
from core.wire.pods import decode_pod
from core.wire.policies import PriorityClass, decode_priority_class
from kube.calls import namespace_path
from kube.errors import ApiError, ApiForbiddenError, ApiNotFoundError
from kube.kinds import APIS, PODGROUPS, QUEUES_PATH

_T = TypeVar("_T")
UNBOUND: Final = {"fieldSelector": "spec.nodeName="}
CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"


async def fetch_waiting(transport: Reads, namespace: str, own_map: str = OWN_MAP) -> Waiting:
    """The pods that wait in *namespace*, "" for all: those that cardshare decides, and others that ask for cards.

    Raises:
        ApiError: pods may not be listed there, or the server does not answer.
    """
    holdings = await empty_holdings(transport, own_map)
    ledger, notes = holdings.ledger, [*holdings.notes]

    is_everywhere = True
    try:
        found = await list_objects(transport, PODS, decode_pod, UNBOUND)
    except ApiForbiddenError:
        if not namespace:
            raise
        is_everywhere = False
        found = await list_objects(transport, f"{namespace_path(namespace)}/pods", decode_pod, UNBOUND)
        notes.append("you may not list pods in all namespaces; places in line are not known")
    pods = [pod for pod in found if waits(pod) and is_shown(pod, ledger)]
    lines = await fetch_lines(transport, pods, "" if is_everywhere else namespace, notes)
    return waiting(pods, lines, is_ours=partial(is_ours, ledger=ledger), namespace=namespace, notes=notes)


def is_ours(pod: Pod, ledger: Ledger) -> bool:
    """Return whether cardshare schedules *pod*."""
    return pod.scheduler_name in ledger.settings.scheduler_names


def is_shown(pod: Pod, ledger: Ledger) -> bool:
    """Return whether *pod* is listed if it waits: cardshare schedules it, or it requests cards."""
    return is_ours(pod, ledger) or ledger.catalog.request_of(pod, ledger.tables, ledger.settings) is not None


async def fetch_lines(
    transport: Reads,
    pods: Sequence[Pod],
    namespace: str,
    notes: list[str],
    *,
    bound: Sequence[Pod] | None = None,
) -> Lines:
    """Return what determines the order of *pods*, which are all waiting pods, or those of *namespace* if given.

    bound: pods on nodes, whose groups are read too; None if they are still to be listed, for members alone.
    """
    keys = {key for pod in (*pods, *(bound or ())) if (key := group_of(pod)) is not None}
    lines = Lines(is_complete=not namespace)
    groups: dict[GroupKey, GroupSpec] = {}
    for kind in GroupKind:
        if any(key.kind is kind for key in keys):
            try:
                groups |= {one.key: one for one in await _fetch_groups(transport, kind, namespace)}
            except ApiError as e:
                lines = replace(lines, unread={*lines.unread, kind}, is_complete=False)
                notes.append(groups_unread(kind, str(answered(e))))
    lines = replace(lines, groups=groups)
    if not groups or not lines.is_complete:
        return lines
    bound = await list_objects(transport, PODS, decode_pod, BOUND) if bound is None else bound
    members = members_of(bound)
    try:
        classes = {one.name: one for one in await _fetch_classes(transport, groups.values())}
    except ApiError as e:
        notes.append(classes_unread(str(answered(e))))
        return replace(lines, is_complete=False)
    return replace(lines, members=members, classes=classes)


async def _fetch_groups(transport: Reads, kind: GroupKind, namespace: str) -> Sequence[GroupSpec]:
    """Return the groups of *kind*; none if the kind is not installed."""
    for path in group_paths(kind, namespace):
        try:
            return await list_objects(transport, path, partial(group_in, kind))
        except ApiNotFoundError:
            continue
    return ()


def group_paths(kind: GroupKind, namespace: str) -> tuple[str, ...]:
    """Return the paths of the groups of *kind* in *namespace*, "" for all, newest version first."""
    within = f"/namespaces/{namespace}" if namespace else ""
    return tuple(f"{api}{within}/{PODGROUPS}" for api in APIS[kind])


def groups_unread(kind: GroupKind, why: str) -> str:
    """Return the note that groups of *kind* cannot be read."""
    return f"PodGroups of {kind} are not read ({why}); queues and places are not known"


def classes_unread(why: str) -> str:
    """Return the note that priority classes cannot be read."""
    return f"PriorityClasses are not read ({why}); places in line are not known"


async def _fetch_classes(transport: Reads, groups: Iterable[GroupSpec]) -> Sequence[PriorityClass]:
    if not any(one.priority_class for one in groups):
        return ()
    return await list_objects(transport, CLASSES, decode_priority_class)


def members_of(bound: Iterable[Pod]) -> Mapping[GroupKey, int]:
    """Return, by group, how many of its pods count for its minimum."""
    return Counter(key for pod in bound if has_place(pod) and (key := group_of(pod)) is not None)


_PODS = ("POD", "CODE", "REASON", "SINCE", "QUEUE", "PLACE", "NEAREST", "WHAT HELPS")
_REASONS = ("CODE", "REASON", "PODS", "OLDEST", "FIRST", "WHAT HELPS")
_QUEUES = ("QUEUE", "PODS", "OLDEST", "NEXT", "REASONS")


def waiting_table(found: Waiting, by: By, namespace: str) -> str:
    """Format *found* by pod, reason or queue, with headings; *namespace*: the listed namespace, "" for all."""
    if not found.pods:
        where = f"in namespace {namespace}" if namespace else "in any namespace"
        lines = [escaped(f"no pod waits {where}")]
    else:
        lines = list(aligned([*_rows(found, by)]))
    return noted(lines, found.notes)


def _rows(found: Waiting, by: By) -> Iterator[Sequence[str]]:
    match by:
        case By.POD:
            yield _PODS
            yield from map(_pod, found.pods)
        case By.REASON:
            yield _REASONS
            yield from map(_reason, found.reasons)
        case By.QUEUE:
            yield _QUEUES
            yield from map(_queue, found.queues)


def _pod(one: WaitingPod) -> Sequence[str]:
    return (
        one.pod,
        one.code or NONE,
        one.reason or NONE,
        one.since or UNKNOWN,
        one.queue or NONE,
        NONE if one.place is None else f"{one.place}/{one.line}",
        one.nearest or NONE,
        one.change or NONE,
    )


def _reason(one: WaitingReason) -> Sequence[str]:
    more = one.pods - len(one.first)
    first = ", ".join(one.first) + (f" and {more} more" if more else "")
    return one.code or NONE, one.reason or NONE, str(one.pods), one.oldest or UNKNOWN, first, one.change or NONE


def _queue(one: WaitingQueue) -> Sequence[str]:
    reasons = ", ".join(f"{count} {reason or 'not decided yet'}" for reason, count in one.reasons.items())
    return one.queue or NONE, str(one.pods), one.oldest or UNKNOWN, one.next or NONE, reasons


async def fetch_queues(transport: Reads, own_map: str = OWN_MAP) -> Queues:
    """The queues, what their pods hold, and who waits.

    Raises:
        ApiError: queues, nodes or pods may not be listed, or the server does not answer.
    """
    specs = await _fetch_specs(transport)
    holdings = await fetch_holdings(transport, own_map=own_map)
    notes = list(holdings.notes)
    unbound = await list_objects(transport, PODS, decode_pod, UNBOUND)
    pods = [pod for pod in unbound if waits(pod) and is_shown(pod, holdings.ledger)]
    lines = await fetch_lines(transport, pods, "", notes, bound=holdings.pods)
    found = waiting(pods, lines, is_ours=partial(is_ours, ledger=holdings.ledger))
    return queues_of(specs, holdings.ledger, holdings.pods, lines=lines, waiting=found, notes=notes)


async def _fetch_specs(transport: Reads) -> Sequence[QueueSpec]:
    """Return all queues; none if Volcano's kinds are not installed."""
    try:
        return await list_objects(transport, QUEUES_PATH, queue_in)
    except ApiNotFoundError:
        return ()


_QUEUE_HEADER = ("QUEUE", "STATE", "WAITING", "NEXT", "RESOURCE", "HOLDS", "GUARANTEE", "DESERVED", "CAPABILITY")
_NO_QUEUE = "there are no queues, so no queue limits pods"


def queues_table(found: Queues) -> str:
    """Format one line per queue and resource."""
    rows = [row for queue in found.queues for row in _queue_rows(queue)]
    lines = [*aligned([_QUEUE_HEADER, *rows])] if rows else [_NO_QUEUE]
    return noted(lines, found.notes)


def _queue_rows(queue: QueueState) -> Iterator[Sequence[str]]:
    waiting = UNKNOWN if queue.waiting is None else str(queue.waiting)
    first = (queue.name, queue.state or NONE, waiting, queue.next or NONE)
    for one in queue.amounts:
        yield *first, one.resource, *_figures(one)
        first = ("", "", "", "")
    if not queue.amounts:
        yield *first, *[NONE] * 5


def _figures(one: QueueAmount) -> Iterator[str]:
    yield UNKNOWN if one.holds is None else shown(one.resource, one.holds)
    for amount in (one.guarantee, one.deserved, one.capability):
        yield NONE if amount is None else shown(one.resource, amount)
