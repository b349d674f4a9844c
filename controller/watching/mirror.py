"""Passes the objects of the API server to the scheduler in order: pods, nodes, groups, queues, and ConfigMaps.

`kube.reflector` lists and watches. This module defines the kinds of objects and their receivers.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar

import structlog

from controller.actions import Announce, Subject, about_pod
from controller.deciding.scheduler import Scheduler
from controller.inbox import Inbox
from controller.scheduler_names import SchedulerNames
from core.claims import StorageKind
from core.errors import InvalidRequestError
from core.groups import GroupKind, GroupSpec, QueueSpec
from core.hyper_nodes import HyperNode
from core.model import Node, NodeName, Pod
from core.port.spec import Place
from core.resource_claims import ResourceClaim, ResourceSlice
from core.store import Store
from core.wire.config_maps import ConfigMap, decode_config_map
from core.wire.disruptions import DisruptionBudget, decode_disruption_budget
from core.wire.hyper_nodes import decode_hyper_node, salvage_hyper_node
from core.wire.namespaces import Namespace, decode_namespace
from core.wire.nodes import decode_node, salvage_node
from core.wire.podgroups import DECODERS, salvage_group
from core.wire.pods import decode_pod
from core.wire.priority_classes import PriorityClass, decode_priority_class
from core.wire.queues import decode_queue, salvage_queue
from core.wire.quotas import ResourceQuota, decode_quota, salvage_quota
from core.wire.resource_claims import decode_resource_claim, decode_resource_slice
from core.wire.unreadable_pods import salvage_pod
from core.wire.volcano_jobs import JobSpec, decode_job
from kube import listing
from kube.calls import namespace_path
from kube.groups import APIS, HYPER_NODES_PATH, JOBS_PATH, PODGROUPS, QUEUES_PATH
from kube.objects import EventKind, page_decoder
from kube.reflector import Pace, Reflector, Source
from kube.storage import STORAGE
from kube.versions import is_newer

_log: Final = structlog.get_logger()

_T = TypeVar("_T")

PODS_PATH: Final = "/api/v1/pods"
_NODES_PATH: Final = "/api/v1/nodes"
_NAMESPACES_PATH: Final = "/api/v1/namespaces"
_CLASSES_PATH: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
_QUOTAS_PATH: Final = "/api/v1/resourcequotas"
_RESOURCES_PATH: Final = "/apis/resource.k8s.io/v1"
_BUDGETS_PATH: Final = "/apis/policy/v1/poddisruptionbudgets"
# Decisions depend on these kinds, so each watch is short: its end, or a bookmark before it, shows that it works.
_PACE: Final = Pace(watch_s=8.0, silence_s=13.0)
# The retry interval for kinds that may not be installed.
_OPTIONAL: Final = Pace(last_list_wait_s=10.0)


class Forgiving(Generic[_T]):
    """A decoder that salvages part of an unreadable object, so that it does not block the others.

    Attributes:
        salvaged: number of salvaged objects.
    """

    def __init__(
        self,
        decode: Callable[[bytes], _T],
        salvage: Callable[[bytes], _T],
        tell: Callable[[_T, InvalidRequestError], None],
    ) -> None:
        """Prepare; *tell*: receives each salvaged object and the error."""
        self.salvaged = 0
        self._decode: Final = decode
        self._salvage: Final = salvage
        self._tell: Final = tell

    def __call__(self, text: bytes) -> _T:
        """Return the object in *text*.

        Raises:
            InvalidRequestError: not even the object's identity is readable.
        """
        try:
            return self._decode(text)
        except InvalidRequestError as e:
            found = self._salvage(text)
            self.salvaged += 1
            self._tell(found, e)
            return found


class Told(Generic[_T]):
    """A sink that passes the objects of one kind to the scheduler, in order."""

    def __init__(
        self,
        inbox: Inbox,
        *,
        replaced: Callable[[Sequence[_T], bool], Iterator[None] | None],
        changed: Callable[[_T], Iterator[None] | None],
        gone: Callable[[_T], Iterator[None] | None],
    ) -> None:
        """Prepare.

        Args:
            inbox: the calls for the scheduler.
            replaced: receives the complete list, and whether the kind is served.
            changed: receives an added or changed object.
            gone: receives a deleted object.
        """
        self._inbox: Final = inbox
        self._replaced: Final = replaced
        self._changed: Final = changed
        self._gone: Final = gone

    async def on_replace(self, objects: Sequence[_T], resource_version: str) -> None:
        """Pass on the complete list; without a version of the list, the kind is not installed."""
        await self._inbox.put_and_wait(partial(self._replaced, objects, bool(resource_version)))

    async def on_event(self, kind: EventKind, value: _T) -> None:
        """Pass on one added, changed or deleted object."""
        await self._inbox.put_in_time(partial(self._gone if kind is EventKind.DELETED else self._changed, value))


class PodSink(Told[Pod]):
    """Passes pods to the scheduler, and before that directly to *others*, which detects other schedulers."""

    def __init__(self, scheduler: Scheduler, inbox: Inbox, others: SchedulerNames) -> None:
        super().__init__(
            inbox,
            replaced=lambda pods, _: scheduler.pods_replaced(pods),
            changed=scheduler.pod_changed,
            gone=lambda pod: scheduler.pod_gone(pod.uid),
        )
        self._scheduler: Final = scheduler
        self._others: Final = others
        self._newest = ""

    async def on_replace(self, objects: Sequence[Pod], resource_version: str) -> None:
        """Pass on all pods."""
        self._others.replaced(objects)
        # A list is never older than an earlier watch, unless etcd was restored.
        back = is_newer(self._newest, resource_version)
        self._newest = resource_version
        await self._inbox.put_and_wait(
            partial(self._scheduler.pods_replaced, objects, resource_version, has_gone_back=back)
        )

    async def on_event(self, kind: EventKind, value: Pod) -> None:
        """Pass on one added, changed or deleted pod."""
        if is_newer(value.resource_version, self._newest):
            self._newest = value.resource_version
        if kind is EventKind.DELETED:
            self._others.gone(value.uid)
        else:
            self._others.seen(value)
        await super().on_event(kind, value)


def node_sink(scheduler: Scheduler, inbox: Inbox) -> Told[Node]:
    """Return a sink that passes nodes to the scheduler."""
    nodes = scheduler.nodes
    return Told(
        inbox,
        replaced=lambda objects, _: nodes.replaced(objects),
        changed=nodes.changed,
        gone=lambda node: nodes.gone(node.name),
    )


def forgiving_pods(scheduler: Scheduler) -> Forgiving[Pod]:
    """Return a decoder of pods for *scheduler*."""

    def salvage(text: bytes) -> Pod:
        ledger = scheduler.cluster.ledger
        return salvage_pod(text, ledger.catalog.resources(ledger.tables))

    def so(pod: Pod) -> str:
        return "its node takes no new shares of what it names" if pod.node_name else "it is not placed"

    return Forgiving(decode_pod, salvage, _tells(scheduler, about_pod, so))


def forgiving_nodes(scheduler: Scheduler) -> Forgiving[Node]:
    """Return a decoder of nodes for *scheduler*."""

    def about(node: Node) -> Subject:
        return Subject(kind="Node", name=node.name, uid=node.uid)

    return Forgiving(decode_node, salvage_node, _tells(scheduler, about, lambda _: "nothing is placed there"))


def _forgiving_groups(kind: GroupKind, scheduler: Scheduler) -> Forgiving[GroupSpec]:
    def about(spec: GroupSpec) -> Subject:
        return Subject(kind="PodGroup", namespace=spec.key.namespace, name=spec.key.name, uid=spec.uid)

    tell = _tells(scheduler, about, lambda _: "none of its members is placed")
    return Forgiving(DECODERS[kind], partial(salvage_group, kind), tell)


def _forgiving_queues(scheduler: Scheduler) -> Forgiving[QueueSpec]:
    def about(queue: QueueSpec) -> Subject:
        return Subject(kind="Queue", name=queue.name, uid=queue.uid)

    return Forgiving(decode_queue, salvage_queue, _tells(scheduler, about, lambda _: "it takes no groups"))


def _forgiving_hyper_nodes(scheduler: Scheduler) -> Forgiving[HyperNode]:
    def about(found: HyperNode) -> Subject:
        return Subject(kind="HyperNode", name=found.name, uid="")

    return Forgiving(decode_hyper_node, salvage_hyper_node, _tells(scheduler, about, lambda _: "it has no nodes"))


def _forgiving_quotas(scheduler: Scheduler) -> Forgiving[ResourceQuota]:
    def about(quota: ResourceQuota) -> Subject:
        return Subject(kind="ResourceQuota", namespace=quota.namespace, name=quota.name, uid="")

    return Forgiving(decode_quota, salvage_quota, _tells(scheduler, about, lambda _: "no pod waits for it"))


def _tells(
    scheduler: Scheduler, about: Callable[[_T], Subject], so: Callable[[_T], str]
) -> Callable[[_T, InvalidRequestError], None]:
    """Return a function that reports an unreadable object and its effect in log and event."""

    def tell(found: _T, error: InvalidRequestError) -> None:
        subject = about(found)
        _log.warning(
            "an object cannot be read",
            kind=subject.kind,
            namespace=subject.namespace,
            name=subject.name,
            reason=str(error),
        )
        message = f"cannot be read by cardshare, so {so(found)}: {error}"
        scheduler.cluster.actions.append(Announce(about=subject, reason="ObjectUnreadable", message=message))

    return tell


def pods_reflector(
    source: Source, scheduler: Scheduler, inbox: Inbox, decode: Forgiving[Pod], others: SchedulerNames
) -> Reflector[Pod]:
    """Return a reflector that passes every pod of the cluster to the scheduler."""
    return Reflector(source, PODS_PATH, decode=decode, sink=PodSink(scheduler, inbox, others), pace=_PACE)


async def pods_on(source: listing.Source, node: NodeName) -> Sequence[Pod]:
    """Return the pods of *node*, read from the API server now.

    Raises:
        ApiError: it does not answer.
        UndecodableError: a pod is unreadable.
    """
    selectors = {"fieldSelector": f"spec.nodeName={node}"}
    return (await listing.list_all(source, PODS_PATH, page_decoder(decode_pod), selectors=selectors)).items


def nodes_reflector(source: Source, scheduler: Scheduler, inbox: Inbox, decode: Forgiving[Node]) -> Reflector[Node]:
    """Return a reflector that passes every node to the scheduler."""
    return Reflector(source, _NODES_PATH, decode=decode, sink=node_sink(scheduler, inbox), pace=_PACE)


def groups_reflector(source: Source, kind: GroupKind, scheduler: Scheduler, inbox: Inbox) -> Reflector[GroupSpec]:
    """Return a reflector of PodGroups of *kind*, which may not be installed, at any served version."""
    groups = scheduler.cluster.groups

    def replaced(objects: Sequence[GroupSpec], served: bool) -> Iterator[None]:
        return groups.replaced(kind, objects, served=served, api=reflector.path.removesuffix(f"/{PODGROUPS}"))

    sink = Told(inbox, replaced=replaced, changed=groups.changed, gone=lambda spec: groups.gone(spec.key))
    decode = _forgiving_groups(kind, scheduler)
    newest, *older = (f"{api}/{PODGROUPS}" for api in APIS[kind])
    reflector = Reflector(source, newest, decode=decode, sink=sink, pace=_OPTIONAL, absent_is_empty=True, older=older)
    return reflector


def queues_reflector(source: Source, scheduler: Scheduler, inbox: Inbox) -> Reflector[QueueSpec]:
    """Return a reflector of Volcano's queues, which may not be installed."""
    groups = scheduler.cluster.groups
    sink = Told(
        inbox,
        replaced=lambda objects, served: groups.queues_replaced(objects, served=served),
        changed=groups.queue_changed,
        gone=lambda queue: groups.queue_gone(queue.name),
    )
    decode = _forgiving_queues(scheduler)
    return Reflector(source, QUEUES_PATH, decode=decode, sink=sink, pace=_OPTIONAL, absent_is_empty=True)


def hyper_nodes_reflector(source: Source, scheduler: Scheduler, inbox: Inbox) -> Reflector[HyperNode]:
    """Return a reflector of Volcano's HyperNodes, which may not be installed."""
    groups = scheduler.cluster.groups
    sink = Told(
        inbox,
        replaced=lambda objects, _: groups.hyper_nodes_replaced(objects),
        changed=groups.hyper_node_changed,
        gone=groups.hyper_node_gone,
    )
    decode = _forgiving_hyper_nodes(scheduler)
    return Reflector(source, HYPER_NODES_PATH, decode=decode, sink=sink, pace=_OPTIONAL, absent_is_empty=True)


def jobs_reflector(source: Source, scheduler: Scheduler, inbox: Inbox) -> Reflector[JobSpec]:
    """Return a reflector of Volcano's Jobs, which may not be installed."""
    jobs = scheduler.jobs
    sink = Told(inbox, replaced=lambda objects, _: jobs.replaced(objects), changed=jobs.changed, gone=jobs.gone)
    return Reflector(source, JOBS_PATH, decode=decode_job, sink=sink, pace=_OPTIONAL, absent_is_empty=True)


def quotas_reflector(source: Source, scheduler: Scheduler, inbox: Inbox) -> Reflector[ResourceQuota]:
    """Return a reflector of ResourceQuotas."""
    quotas = scheduler.cluster.budgets.quotas
    sink = Told(
        inbox,
        replaced=lambda objects, _: quotas.replaced(objects),
        changed=quotas.changed,
        gone=quotas.gone,
    )
    return Reflector(source, _QUOTAS_PATH, decode=_forgiving_quotas(scheduler), sink=sink)


def budgets_reflector(source: Source, scheduler: Scheduler, inbox: Inbox) -> Reflector[DisruptionBudget]:
    """Return a reflector of disruption budgets."""
    occupants = scheduler.cluster.occupants
    sink = Told(
        inbox,
        replaced=lambda objects, _: occupants.budgets_replaced(objects),
        changed=occupants.budget_changed,
        gone=occupants.budget_gone,
    )
    return Reflector(source, _BUDGETS_PATH, decode=decode_disruption_budget, sink=sink)


def namespaces_reflector(source: Source, scheduler: Scheduler, inbox: Inbox) -> Reflector[Namespace]:
    """Return a reflector of namespaces and their labels."""
    sink = Told(
        inbox,
        replaced=lambda objects, _: scheduler.namespaces_replaced(objects),
        changed=scheduler.namespace_changed,
        gone=scheduler.namespace_gone,
    )
    return Reflector(source, _NAMESPACES_PATH, decode=decode_namespace, sink=sink)


def priority_classes_reflector(source: Source, scheduler: Scheduler, inbox: Inbox) -> Reflector[PriorityClass]:
    """Return a reflector of PriorityClasses, which groups name."""
    groups = scheduler.cluster.groups
    sink = Told(
        inbox,
        replaced=lambda objects, _: groups.classes_replaced(objects),
        changed=groups.class_changed,
        gone=groups.class_gone,
    )
    return Reflector(source, _CLASSES_PATH, decode=decode_priority_class, sink=sink, pace=_OPTIONAL)


def storage_reflector(source: Source, scheduler: Scheduler, inbox: Inbox, kind: StorageKind) -> Reflector[Any]:
    """Return a reflector of claims, volumes, or other storage objects, each of which may not be served."""
    claims = scheduler.claims
    sink = _sink(inbox, claims.stores[kind], replaced=partial(claims.replaced, kind))
    path, decode = STORAGE[kind]
    return Reflector(source, path, decode=decode, sink=sink, pace=_OPTIONAL, absent_is_empty=True)


def resource_claims_reflector(source: Source, scheduler: Scheduler, inbox: Inbox) -> Reflector[ResourceClaim]:
    """Return a reflector of the claims of dynamic resource allocation, which may not be served."""
    path, sink = f"{_RESOURCES_PATH}/resourceclaims", _sink(inbox, scheduler.uses.claims)
    return Reflector(source, path, decode=decode_resource_claim, sink=sink, pace=_OPTIONAL, absent_is_empty=True)


def resource_slices_reflector(source: Source, scheduler: Scheduler, inbox: Inbox) -> Reflector[ResourceSlice]:
    """Return a reflector of the devices of such claims, which may not be served."""
    path, sink = f"{_RESOURCES_PATH}/resourceslices", _sink(inbox, scheduler.uses.slices)
    return Reflector(source, path, decode=decode_resource_slice, sink=sink, pace=_OPTIONAL, absent_is_empty=True)


def _sink(inbox: Inbox, store: Store[_T], replaced: Callable[[Sequence[_T]], Iterator[None]] | None = None) -> Told[_T]:
    """Return a sink for *store*; *replaced*: receives complete lists instead of the store."""
    whole = replaced or store.replaced

    def put(one: _T) -> None:
        store.put(one)

    def drop(one: _T) -> None:
        store.drop(one)

    return Told(inbox, replaced=lambda objects, _: whole(objects), changed=put, gone=drop)


def documents_reflector(source: Source, scheduler: Scheduler, inbox: Inbox, place: Place) -> Reflector[ConfigMap]:
    """Return a reflector of the ConfigMaps about nodes at one place."""
    nodes = scheduler.nodes
    sink: Told[ConfigMap] = Told(
        inbox,
        replaced=lambda objects, _: nodes.documents_replaced(place, objects),
        changed=lambda found: nodes.documents_changed(place, found, gone=False),
        gone=lambda found: nodes.documents_changed(place, found, gone=True),
    )
    return Reflector(
        source,
        f"{namespace_path(place.namespace)}/configmaps",
        decode=decode_config_map,
        sink=sink,
        selectors={"labelSelector": place.selector},
        absent_is_empty=True,
    )
