"""Fetches the data of the commands: nodes, pods, events, resource claims, and the device plugins' configuration."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from cli.claims import read_claims
from cli.configuration import fetch_parts
from cli.reads import Reads
from core.catalog import Catalog, standard_catalog
from core.configuration import OWN_MAP, Configuration, merge
from core.errors import ConfigError
from core.ledger import Ledger
from core.model import NodeName, Pod
from core.view.explained import Event
from core.wire.config_maps import decode_config_map
from core.wire.nodes import decode_node
from core.wire.pods import decode_pod
from kube.calls import Calls, namespace_path
from kube.errors import ApiError, ApiForbiddenError, ApiNotFoundError
from kube.listing import list_all
from kube.objects import page_decoder

_T = TypeVar("_T")
NODES: Final = "/api/v1/nodes"
PODS: Final = "/api/v1/pods"
BOUND: Final = {"fieldSelector": "spec.nodeName!="}


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


class _Named(msgspec.Struct, frozen=True):
    name: str = ""
    uid: str = ""


class _Object(msgspec.Struct, frozen=True):
    metadata: _Named = _Named()


class Events(NamedTuple):
    """Events, oldest first; unread: why they are unavailable, or ""."""

    items: tuple[Event, ...]
    unread: str = ""


class _OwnerObject(msgspec.Struct, frozen=True):
    kind: str = ""
    name: str = ""
    controller: bool | None = None


class _OwnedMeta(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None
    owner_references: tuple[_OwnerObject, ...] | None = None


class _OwnedObject(msgspec.Struct, frozen=True):
    metadata: _OwnedMeta = _OwnedMeta()


_OWNED: Final = page_decoder(msgspec.json.Decoder(_OwnedObject).decode)
_EVENTS: Final = page_decoder(msgspec.json.Decoder(_EventObject).decode)
_NAMES: Final = page_decoder(msgspec.json.Decoder(_Object).decode)


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
    prepare: Callable[[Reads, Ledger], Awaitable[tuple[str, ...]]] | None = None,
) -> Holdings:
    """List nodes, bound pods and resource claims, and count who holds what.

    Args:
        transport: connection to the API server.
        selector: a label selector of nodes, "" for all.
        prepare: reads more into the ledger before nodes and pods; returns notes.

    Raises:
        ApiError: a list is refused or does not arrive.
    """
    holdings = await empty_holdings(transport)
    ledger = holdings.ledger
    more = await prepare(transport, ledger) if prepare is not None else ()
    nodes = await list_all(transport, NODES, page_decoder(decode_node), selectors=selecting(selector))
    for node in nodes.items:
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
        found = await list_all(transport, path, _EVENTS, selectors={"fieldSelector": selector})
    except ApiForbiddenError:
        return Events((), f"you may not list events in namespace {pod.namespace}")
    return Events(tuple(sorted((one.event() for one in found.items), key=lambda event: event.time)))


async def fetch_names(transport: Reads, path: str) -> tuple[str, ...]:
    """The names of all objects under *path*.

    Raises:
        ApiError: the list is unavailable.
    """
    return tuple(one.metadata.name for one in (await list_all(transport, path, _NAMES)).items)


async def fetch_cluster_uid(transport: Reads) -> str:
    """The uid of namespace kube-system, which tells clusters apart; "" if it may not be listed, or is not there.

    Raises:
        ApiError: the server does not answer.
    """
    try:
        selectors = {"fieldSelector": "metadata.name=kube-system"}
        found = (await list_all(transport, "/api/v1/namespaces", _NAMES, selectors=selectors)).items
    except ApiError as e:
        if not e.status:
            raise
        return ""
    return next((one.metadata.uid for one in found if one.metadata.name == "kube-system"), "")


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
    found = (one.metadata for one in (await list_all(transport, path, _OWNED, selectors=selectors)).items)
    return tuple(sorted((one.namespace, one.name) for one in found if not kind or _is_of(one, kind, name)))


def _is_of(pod: _OwnedMeta, kind: str, name: str) -> bool:
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
            if isinstance(e, ApiError) and not e.status:
                raise  # the server does not answer, and the next request would wait as long again
            unread[config_map] = e
            return {}

    parts = await fetch_parts(texts, catalog, own_map)
    notes = [f"{one.text.subject} is not used: {problem}" for one in parts.values() for problem in one.problems]
    if unread:
        why = next(iter(unread.values()))
        notes.append(f"ConfigMaps {', '.join(unread)} are not used ({why}); resource names and units are the defaults")
    return merge(parts, catalog), tuple(notes)
