"""Fetches the data for ``kubectl cards waiting``: the waiting pods, and what determines their order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from cli.cluster import BOUND, PODS, empty_holdings
from cli.reads import Reads
from core.errors import InvalidRequestError
from core.groups import GroupKey, GroupKind, GroupSpec, group_of
from core.ledger import Ledger
from core.model import Pod
from core.view.waiting import Lines, Waiting, has_place, waiting, waits
from core.wire.podgroups import decode_coscheduling_group, decode_native_group, decode_volcano_group, salvage_group
from core.wire.pods import decode_pod
from core.wire.priority_classes import PriorityClass, decode_priority_class
from kube.calls import namespace_path
from kube.errors import ApiError, ApiForbiddenError, ApiNotFoundError
from kube.groups import APIS, PODGROUPS
from kube.listing import list_all
from kube.objects import page_decoder

_T = TypeVar("_T")
UNBOUND: Final = {"fieldSelector": "spec.nodeName="}
CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
_DECODERS: Final[Mapping[GroupKind, Callable[[bytes], GroupSpec]]] = {
    GroupKind.VOLCANO: decode_volcano_group,
    GroupKind.NATIVE: decode_native_group,
    GroupKind.COSCHEDULING: decode_coscheduling_group,
}


async def fetch_waiting(transport: Reads, namespace: str) -> Waiting:
    """The pods that wait in *namespace*, "" for all: those that cardshare decides, and others that ask for cards.

    Raises:
        ApiError: pods may not be listed there, or the server does not answer.
    """
    holdings = await empty_holdings(transport)
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
                notes.append(groups_unread(kind, str(_answered(e))))
    lines = replace(lines, groups=groups)
    if not groups or not lines.is_complete:
        return lines
    bound = await list_objects(transport, PODS, decode_pod, BOUND) if bound is None else bound
    members = members_of(bound)
    try:
        classes = {one.name: one for one in await _fetch_classes(transport, groups.values())}
    except ApiError as e:
        notes.append(classes_unread(str(_answered(e))))
        return replace(lines, is_complete=False)
    return replace(lines, members=members, classes=classes)


async def _fetch_groups(transport: Reads, kind: GroupKind, namespace: str) -> Sequence[GroupSpec]:
    """Return the groups of *kind*; none if the kind is not installed."""
    for path in group_paths(kind, namespace):
        try:
            return await list_objects(transport, path, group_decoder(kind))
        except ApiNotFoundError:
            continue
    return ()


def group_paths(kind: GroupKind, namespace: str) -> tuple[str, ...]:
    """Return the paths of the groups of *kind* in *namespace*, "" for all, newest version first."""
    within = f"/namespaces/{namespace}" if namespace else ""
    return tuple(f"{api}{within}/{PODGROUPS}" for api in APIS[kind])


def group_decoder(kind: GroupKind) -> Callable[[bytes], GroupSpec]:
    """Return the decoder of groups of *kind*; of an unreadable one, it returns what can be read."""

    def decode(text: bytes) -> GroupSpec:
        try:
            return _DECODERS[kind](text)
        except InvalidRequestError:
            return salvage_group(kind, text)

    return decode


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


async def list_objects(
    transport: Reads, path: str, decode: Callable[[bytes], _T], selectors: Mapping[str, str] | None = None
) -> Sequence[_T]:
    """Return all objects under *path*.

    Raises:
        ApiError: the list is unavailable.
    """
    return (await list_all(transport, path, page_decoder(decode), selectors=selectors)).items


def members_of(bound: Iterable[Pod]) -> Mapping[GroupKey, int]:
    """Return, by group, how many of its pods count for its minimum."""
    return Counter(key for pod in bound if has_place(pod) and (key := group_of(pod)) is not None)


def _answered(error: ApiError) -> ApiError:
    """Return *error* if a server answered.

    Raises:
        ApiError: no server answered, nor would it answer the next request.
    """
    if not error.status:
        raise error
    return error
