"""Fetches the data of the commands: nodes, pods, events, resource claims, and the device plugins' configuration."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Final, Generic, NamedTuple, Protocol, TypeVar
from urllib.parse import quote

import msgspec

from core.catalog import Catalog, standard_catalog
from core.claims import ResourceClaim, ResourceSlice
from core.configuration import (
    LAST_GOOD,
    OWN_MAP,
    SCHEDULER_KEY,
    SCHEDULER_MAP,
    SETTINGS_KEY,
    Configuration,
    Decoded,
    ReadSections,
    Source,
    Text,
    decode,
    device_maps,
    merge,
    saved_sections,
    usable,
)
from core.constraints.resource_claims import Uses
from core.errors import ConfigError
from core.ledger import Ledger
from core.model import NodeName, Pod
from core.store import Store
from core.view.explained import Event
from core.wire.config_maps import decode_config_map
from core.wire.nodes import decode_node
from core.wire.objects import ObjectMeta, PartialObjectMetadata
from core.wire.pods import decode_pod
from core.wire.resource_claims import decode_resource_claim, decode_resource_slice
from kube.calls import Calls, Requester, namespace_path, page_decoder
from kube.errors import ApiError, ApiForbiddenError, ApiNotFoundError, ApiUnauthorizedError
from kube.reflector import EventKind, Reflector, list_all
from kube.transport import Transport

_T = TypeVar("_T")
NODES: Final = "/api/v1/nodes"
PODS: Final = "/api/v1/pods"
BOUND: Final = {"fieldSelector": "spec.nodeName!="}
CLAIMS: Final = "/apis/resource.k8s.io/v1/resourceclaims"
SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices"


class Reads(Requester, Protocol):
    """The part of `kube.transport.Transport` that the commands need."""

    @property
    def namespace(self) -> str:
        """Return the namespace of the kubeconfig, or ""."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """The cluster's cards: *ledger* from the API objects, and *notes* on what could not be read.

    node_unread: why the requested pod's node is missing from *ledger*, or "". pods: all counted pods, if all were
    requested. version: the resourceVersion of their list. unread: the notes on what could not be read.
    """

    ledger: Ledger
    notes: tuple[str, ...] = field(default=())
    node_unread: str = ""
    pods: tuple[Pod, ...] = ()
    version: str = ""
    unread: tuple[str, ...] = ()


class _Series(msgspec.Struct, frozen=True, rename="camel"):
    count: int | None = None
    last_observed_time: str | None = None


class _EventObject(msgspec.Struct, frozen=True, rename="camel"):
    """The displayed part of a core/v1 Event. Source: Kubernetes API reference, core/v1 and events.k8s.io/v1 Event.

    Writers of the newer API, such as kube-scheduler, set neither count nor lastTimestamp.
    """

    reason: str = ""
    message: str | None = ""
    count: int | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    series: _Series | None = None

    def event(self) -> Event:
        """Return the event in displayed form."""
        return Event(time=self._time(), reason=self.reason, message=self.message or "", count=self._times())

    def _time(self) -> str:
        observed = self.series.last_observed_time if self.series is not None else None
        found = observed or self.last_timestamp or self.event_time or ""
        whole, dot, _ = found.partition(".")
        return f"{whole}Z" if dot else found

    def _times(self) -> int:
        return (self.series.count if self.series is not None else None) or self.count or 1


class Events(NamedTuple):
    """Events, oldest first; unread: why they are unavailable, or ""."""

    items: tuple[Event, ...]
    unread: str = ""


_OBJECT: Final = msgspec.json.Decoder(PartialObjectMetadata).decode
_EVENT: Final = msgspec.json.Decoder(_EventObject).decode


async def list_objects(
    transport: Reads, path: str, decode: Callable[[bytes], _T], selectors: Mapping[str, str] | None = None
) -> Sequence[_T]:
    """Return all objects under *path*.

    Raises:
        ApiError: the list is unavailable.
    """
    return (await list_all(transport, path, page_decoder(decode), selectors=selectors)).items


def answered(error: ApiError) -> ApiError:
    """Return *error* if a server answered; a command can go on then, and note it.

    Raises:
        ApiError: no server answered, or it does not know the caller; so it would be for the next request.
    """
    if not error.status or isinstance(error, ApiUnauthorizedError):
        raise error
    return error


async def server_time_s(transport: Requester) -> float | None:
    """Return the API server's time in Unix seconds, None if it tells none; the clock here may be wrong."""
    try:
        answer = await transport.request("GET", "/version")
        return parsedate_to_datetime(answer.headers.get("Date", "")).timestamp()
    except (ApiError, ValueError):
        return None


async def empty_holdings(transport: Reads, own_map: str = OWN_MAP) -> Holdings:
    """A ledger of no node yet, under the configuration that the cluster's ConfigMaps hold.

    own_map: the ConfigMap of cardshare's own settings, NAMESPACE/NAME.

    Raises:
        ApiError: the server does not answer.
    """
    catalog = standard_catalog()
    found, notes = await _fetch_configuration(Calls(transport), catalog, own_map)
    return Holdings(ledger=Ledger(catalog, found.tables, found.settings), notes=notes)


async def fetch_holdings(
    transport: Reads,
    selector: str = "",
    *,
    own_map: str = OWN_MAP,
    prepare: Callable[[Reads, Ledger], Awaitable[tuple[str, ...]]] | None = None,
) -> Holdings:
    """List nodes, bound pods and resource claims, and count who holds what.

    Args:
        transport: connection to the API server.
        selector: a label selector of nodes, "" for all.
        own_map: the ConfigMap of cardshare's own settings, NAMESPACE/NAME.
        prepare: reads more into the ledger before nodes and pods; returns notes.

    Raises:
        ApiError: a list is refused or does not arrive.
    """
    holdings = await empty_holdings(transport, own_map)
    ledger = holdings.ledger
    more = await prepare(transport, ledger) if prepare is not None else ()
    for node in await list_objects(transport, NODES, decode_node, selecting(selector)):
        ledger.set_node(node)
    listed = await list_all(transport, PODS, page_decoder(decode_pod), selectors=BOUND)
    pods = listed.items
    for pod in pods:
        ledger.count(pod)
    notes = (*holdings.notes, *more, *await read_claims(transport, ledger))
    if selector:
        return Holdings(ledger=ledger, notes=notes, pods=pods)
    strays = (f"pod {pod} is bound to node {node}, which does not exist" for node, pod in ledger.stray_pods())
    return Holdings(ledger=ledger, notes=(*notes, *strays), pods=pods, version=listed.resource_version, unread=notes)


def selecting(selector: str) -> dict[str, str]:
    """Return the query parameter for a label selector."""
    return {"labelSelector": selector} if selector else {}


async def fetch_holding(transport: Reads, pod: Pod, *, reads_node: bool = True, own_map: str = OWN_MAP) -> Holdings:
    """What bound *pod* alone holds; of its node only what may be read, and nothing if *reads_node* is False.

    Raises:
        ApiError: the server does not answer.
    """
    calls = Calls(transport)
    holdings = await empty_holdings(transport, own_map)
    try:
        if reads_node:
            holdings.ledger.set_node(decode_node(await calls.get_node(NodeName(pod.node_name))))
    except ApiNotFoundError:
        pass
    except ApiForbiddenError:
        reads_node = False
    unread = "" if reads_node else "you may not get nodes"
    holdings.ledger.count(pod)
    return Holdings(ledger=holdings.ledger, notes=holdings.notes, node_unread=unread)


async def fetch_pod(calls: Calls, namespace: str, name: str) -> Pod:
    """Return the pod.

    Raises:
        ApiNotFoundError: there is no pod of that name.
        ApiError: any other refusal.
    """
    return decode_pod(await calls.get_pod(namespace, name))


async def fetch_events(transport: Reads, pod: Pod) -> Events:
    """The events about *pod*, and about no other that had its name; oldest first.

    Raises:
        ApiError: the server does not answer.
    """
    path = f"/api/v1/namespaces/{quote(pod.namespace)}/events"
    selector = f"involvedObject.kind=Pod,involvedObject.name={pod.name},involvedObject.uid={pod.uid}"
    try:
        found = await list_objects(transport, path, _EVENT, {"fieldSelector": selector})
    except ApiForbiddenError:
        return Events((), f"you may not list events in namespace {pod.namespace}")
    return Events(tuple(sorted((one.event() for one in found), key=lambda event: event.time)))


async def fetch_names(transport: Reads, path: str) -> tuple[str, ...]:
    """The names of all objects under *path*.

    Raises:
        ApiError: the list is unavailable.
    """
    return tuple(one.metadata.name for one in await list_objects(transport, path, _OBJECT))


async def fetch_cluster_uid(transport: Reads) -> str:
    """The uid of namespace kube-system, which tells clusters apart; "" if it may not be listed, or is not there.

    Raises:
        ApiError: the server does not answer.
    """
    try:
        selectors = {"fieldSelector": "metadata.name=kube-system"}
        found = await list_objects(transport, "/api/v1/namespaces", _OBJECT, selectors)
    except ApiError as e:
        answered(e)
        return ""
    return next((one.metadata.uid or "" for one in found if one.metadata.name == "kube-system"), "")


async def fetch_pods_of(transport: Reads, namespace: str, kind: str, name: str) -> tuple[tuple[str, str], ...]:
    """Namespace and name of the pods that workload *name* of *kind* made, or of those of that name if *kind* is "".

    A Deployment's pods are recognized by their ReplicaSet's name, so no workload has to be read.

    Args:
        transport: connection to the API server.
        namespace: the namespace, "" for all.
        kind: ``Deployment``, ``Job`` and others, or "".
        name: name of the workload or of the pod.

    Raises:
        ApiError: pods may not be listed, or the server does not answer.
    """
    path = f"{namespace_path(namespace)}/pods" if namespace else PODS
    selectors = {} if kind else {"fieldSelector": f"metadata.name={name}"}
    found = (one.metadata for one in await list_objects(transport, path, _OBJECT, selectors))
    return tuple(sorted((one.namespace or "", one.name) for one in found if not kind or _is_of(one, kind, name)))


def _is_of(pod: ObjectMeta, kind: str, name: str) -> bool:
    owner = next((one for one in pod.owner_references or () if one.controller), None)
    if owner is None:
        return False
    if kind == "Deployment":
        template = (pod.labels or {}).get("pod-template-hash", "")
        return owner.kind == "ReplicaSet" and bool(template) and owner.name == f"{name}-{template}"
    return (owner.kind, owner.name) == (kind, name)


async def _fetch_configuration(calls: Calls, catalog: Catalog, own_map: str) -> tuple[Configuration, tuple[str, ...]]:
    """Return the configuration in the cluster, and notes on unreadable parts, for which the defaults apply."""
    unread: dict[str, ApiError | ConfigError] = {}

    async def texts(config_map: str) -> Mapping[str, str]:
        namespace, _, name = config_map.partition("/")
        try:
            return decode_config_map(await calls.get_config_map(namespace, name)).texts
        except ApiNotFoundError:
            return {}
        except (ApiError, ConfigError) as e:
            unread[config_map] = answered(e) if isinstance(e, ApiError) else e
            return {}

    found = await fetch_parts(texts, catalog, own_map)
    notes = [
        f"{one.text.subject} is not used{f', {LAST_GOOD}' if one.part is not None else ''}: {problem}"
        for one in found.parts.values()
        for problem in one.problems
    ]
    notes += found.unused
    saved = _saved_map(own_map)
    if (why_not := unread.pop(saved, None)) is not None:
        notes.append(f"ConfigMap {saved} is not read ({why_not}); the configuration in force may be another")
    if unread:
        why = next(iter(unread.values()))
        notes.append(f"ConfigMaps {', '.join(unread)} are not used ({why}); resource names and units are the defaults")
    return found.merged(catalog), tuple(notes)


def _saved_map(own_map: str) -> str:
    """Return the ConfigMap in which the controller saves the configuration in force."""
    return f"{own_map.removesuffix('-settings')}-last-good"


class Parts(NamedTuple):
    """The decoded texts of the configuration by source; a refused one has its problems, and what was saved of it.

    sections: the saved ones, which replace wrong ones; None if they are not known or not needed. unused: notes on good
    texts that the controller does not use.
    """

    parts: Mapping[Source, Decoded]
    sections: ReadSections | None = None
    unused: tuple[str, ...] = ()

    def merged(self, catalog: Catalog) -> Configuration:
        """Return the configuration in force."""
        return merge(self.parts, catalog, before=self.sections)


async def fetch_parts(
    texts: Callable[[str], Awaitable[Mapping[str, str]]], catalog: Catalog, own_map: str = OWN_MAP
) -> Parts:
    """Fetch the texts of the configuration that are in force.

    Of a text that cardshare refuses, the version in force is the one that the controller saved. The configuration of
    Volcano's scheduler is in force if the controller saved it, or if no controller has saved anything.

    Args:
        texts: fetches the content of a ConfigMap (NAMESPACE/NAME) by key; empty if it does not exist.
        catalog: the dialects.
        own_map: the ConfigMap of cardshare's own settings.
    """
    contents: Mapping[str, str] | None = None
    saved: Mapping[Source, Decoded] | None = None

    async def kept() -> Mapping[str, str]:
        nonlocal contents
        if contents is None:
            contents = await texts(_saved_map(own_map))
        return contents

    async def decoded(source: Source, config_map: str, content: str) -> Decoded:
        nonlocal saved
        found = decode(Text(source=source, config_map=config_map, content=content), catalog)
        if not found.is_whole and saved is None:
            before = await kept()
            saved = usable([Text(source=one, content=before[one]) for one in Source if one in before], catalog)
        return found._replace(part=saved[source].part) if found.problems and saved and source in saved else found

    own = await texts(own_map)
    found = {
        Source.OWN: await decoded(Source.OWN, own_map, own.get(SETTINGS_KEY, "")),
        Source.SCHEDULER_FILE: await decoded(Source.SCHEDULER_FILE, own_map, own.get(SCHEDULER_KEY, "")),
    }
    of_volcano = await decoded(
        Source.SCHEDULER_MAP, SCHEDULER_MAP, (await texts(SCHEDULER_MAP)).get(Source.SCHEDULER_MAP.key, "")
    )
    unused: tuple[str, ...] = ()
    # Also of a refused text, the controller saves the one before, if it reads it at all.
    if of_volcano.text.content and Source.OWN in await kept() and Source.SCHEDULER_MAP not in await kept():
        unused = (f"ConfigMap {SCHEDULER_MAP} is not used: the controller reads only those of --trust-namespaces",)
    else:
        found[Source.SCHEDULER_MAP] = of_volcano
    for source, name in device_maps(merge(found, catalog).settings).items():
        found[source] = await decoded(source, name, (await texts(name)).get(source.key, "") if name else "")
    return Parts(found, saved_sections(saved, catalog) if saved else None, unused)


class Keeping(Generic[_T]):
    """A `kube.reflector.Sink` that stores objects of one kind; calls *changed* after each change."""

    def __init__(self, store: Store[_T], changed: Callable[[], None]) -> None:
        self._store: Final = store
        self._changed: Final = changed

    async def on_replace(self, objects: Sequence[_T], resource_version: str) -> None:
        """Replace all objects."""
        del resource_version
        for _ in self._store.replaced(objects):
            pass
        self._changed()

    async def on_event(self, kind: EventKind, value: _T) -> None:
        """Put or drop one object."""
        (self._store.drop if kind is EventKind.DELETED else self._store.put)(value)
        self._changed()


async def read_claims(transport: Reads, ledger: Ledger) -> tuple[str, ...]:
    """Tell *ledger* what pods use through resource claims; notes on why that is not known, none where it is.

    Raises:
        ApiError: the server does not answer.
    """
    uses = Uses(ledger.set_uses)
    try:
        for one in await list_objects(transport, SLICES, decode_resource_slice):
            uses.slices.put(one)
        for claim in await list_objects(transport, CLAIMS, decode_resource_claim):
            uses.claims.put(claim)
    except ApiNotFoundError:
        return ()  # a cluster without dynamic resource allocation
    except ApiError as e:
        return (claims_unread(str(answered(e))),)
    return ()


def claims_unread(why: str) -> str:
    """Return the note that resource claims cannot be read."""
    return f"resource claims are not read ({why}); cards that they close are shown as others"


def following(
    transport: Transport, ledger: Ledger, changed: Callable[[], None]
) -> tuple[Reflector[ResourceClaim], Reflector[ResourceSlice]]:
    """Return reflectors that keep the same data in *ledger* up to date; *changed* is called after each change."""
    uses = Uses(ledger.set_uses)
    claims, slices = Keeping(uses.claims, changed), Keeping(uses.slices, changed)
    return (
        Reflector(transport, CLAIMS, decode=decode_resource_claim, sink=claims, absent_is_empty=True),
        Reflector(transport, SLICES, decode=decode_resource_slice, sink=slices, absent_is_empty=True),
    )
