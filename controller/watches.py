"""Watches the cluster: passes its objects to the scheduler in order, and reports what prevents that.

`kube.reflector` lists and watches one kind. Here are the kinds, their receivers, and the order of their first lists.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Generic, NoReturn, TypeVar

import structlog

from controller.actions import Announce, Inbox, Subject, about_pod
from controller.deciding.scheduler import Scheduler
from controller.documents import places
from controller.grouping.by_name import ByName, Named
from controller.scheduler_names import SchedulerNames
from core.claims import StorageKind
from core.configuration import believes
from core.errors import InvalidRequestError
from core.groups import GroupSpec
from core.model import GroupKind, Node, NodeName, Pod
from core.port.spec import ConfigMapPlace
from core.store import Store
from core.wire.config_maps import decode_config_map
from core.wire.groups import DECODERS, decode_job, decode_queue, salvage_group, salvage_queue
from core.wire.hyper_nodes import decode_hyper_node, salvage_hyper_node
from core.wire.nodes import decode_node, salvage_node
from core.wire.pods import decode_pod, salvage_pod
from core.wire.policies import (
    decode_disruption_budget,
    decode_namespace,
    decode_priority_class,
    decode_quota,
    salvage_quota,
)
from core.wire.resource_claims import decode_resource_claim, decode_resource_slice
from kube.calls import Calls, Requester, is_newer, namespace_path, page_decoder, read_version
from kube.configuration import Follower
from kube.errors import ApiError, UndecodableError
from kube.kinds import APIS, HYPER_NODES_PATH, JOBS_PATH, PODGROUPS, QUEUES_PATH, STORAGE
from kube.reflector import EventKind, Pace, Reflector, Source, list_all
from runtime.backoff import Backoff

_log: Final = structlog.get_logger()

_T = TypeVar("_T")
_N = TypeVar("_N", bound=Named)

_FOLLOW_S: Final = 1.0
_FORBIDDEN_S: Final = 0.05
# The kinds that decisions depend on, and their maximum age for decisions. Their watches end earlier as planned.
_WEIGHTY: Final = ("nodes", "pods")
MAX_AGE_S: Final = 15.0
# How long the pods' watch may take to reach a version before a list is requested.
_PATIENCE_S: Final = 0.3
_LOOK_S: Final = 0.02
_BUDGETS: Final = "disruption-budgets"
_GROUPS: Final = {
    GroupKind.VOLCANO: "volcano-groups",
    GroupKind.NATIVE: "native-groups",
    GroupKind.COSCHEDULING: "coscheduling-groups",
}
_PODS_PATH: Final = "/api/v1/pods"
_CLASSES_PATH: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
_RESOURCES_PATH: Final = "/apis/resource.k8s.io/v1"
_BUDGETS_PATH: Final = "/apis/policy/v1/poddisruptionbudgets"
# Decisions depend on these kinds, so each watch is short: its end, or a bookmark before it, shows that it works.
_PACE: Final = Pace(watch_s=8.0, silence_s=13.0)
# The retry interval for kinds that may not be installed.
_OPTIONAL: Final = Pace(last_list_wait_s=10.0)


class Forgiving(Generic[_T]):
    """A decoder that salvages part of an unreadable object and reports it, so that it does not block the others.

    Attributes:
        salvaged: number of salvaged objects.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        decode: Callable[[bytes], _T],
        salvage: Callable[[bytes], _T],
        about: Callable[[_T], Subject],
        so: Callable[[_T], str],
    ) -> None:
        """Prepare; *so*: returns what follows from an unreadable object, for people."""
        self.salvaged = 0
        self._scheduler: Final = scheduler
        self._decode: Final = decode
        self._salvage: Final = salvage
        self._about: Final = about
        self._so: Final = so

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
            about = self._about(found)
            _log.warning(
                "an object cannot be read", kind=about.kind, namespace=about.namespace, name=about.name, reason=str(e)
            )
            message = f"cannot be read by cardshare, so {self._so(found)}: {e}"
            self._scheduler.cluster.actions.append(Announce(about=about, reason="ObjectUnreadable", message=message))
            return found


def forgiving_pods(scheduler: Scheduler) -> Forgiving[Pod]:
    """Return a decoder of pods for *scheduler*."""

    def salvage(text: bytes) -> Pod:
        ledger = scheduler.cluster.ledger
        return salvage_pod(text, ledger.catalog.words(ledger.tables).resources)

    def so(pod: Pod) -> str:
        return "its node takes no new shares of what it names" if pod.node_name else "it is not placed"

    return Forgiving(scheduler, decode_pod, salvage, about_pod, so)


def forgiving_nodes(scheduler: Scheduler) -> Forgiving[Node]:
    """Return a decoder of nodes for *scheduler*."""

    def about(node: Node) -> Subject:
        return Subject(kind="Node", name=node.name, uid=node.uid)

    return Forgiving(scheduler, decode_node, salvage_node, about, lambda _: "nothing is placed there")


class InboxSink(Generic[_T]):
    """A sink that passes the objects of one kind to the scheduler, in order."""

    def __init__(
        self,
        inbox: Inbox,
        *,
        replaced: Callable[[Sequence[_T]], Iterator[None] | None],
        changed: Callable[[_T], Iterator[None] | None],
        gone: Callable[[_T], Iterator[None] | None],
        absent: Callable[[], Iterator[None] | None] | None = None,
    ) -> None:
        """Prepare.

        *replaced* receives complete lists, *changed* an added or changed object, *gone* a deleted one. *absent* is
        called if the kind is not installed; without it, *replaced* with an empty list.
        """
        self._inbox: Final = inbox
        self._replaced: Final = replaced
        self._changed: Final = changed
        self._gone: Final = gone
        self._absent: Final = absent

    async def on_replace(self, objects: Sequence[_T], resource_version: str) -> None:
        """Pass on the complete list; without a version of the list, the kind is not installed."""
        if self._absent is not None and not resource_version:
            await self._inbox.put_and_wait(self._absent)
        else:
            await self._inbox.put_and_wait(partial(self._replaced, objects))

    async def on_event(self, kind: EventKind, value: _T) -> None:
        """Pass on one added, changed or deleted object."""
        await self._inbox.put_in_time(partial(self._gone if kind is EventKind.DELETED else self._changed, value))


class PodSink:
    """A sink that passes pods to the scheduler, and before that to *others*, which detects other schedulers."""

    def __init__(self, scheduler: Scheduler, inbox: Inbox, others: SchedulerNames) -> None:
        self._scheduler: Final = scheduler
        self._inbox: Final = inbox
        self._others: Final = others
        self._newest = ""

    async def on_replace(self, objects: Sequence[Pod], resource_version: str) -> None:
        """Pass on all pods."""
        self._others.replaced(objects)
        # A list is never older than an earlier watch, unless etcd was restored.
        back = is_newer(self._newest, resource_version)
        self._newest = resource_version
        replaced = partial(self._scheduler.pods_replaced, objects, resource_version, has_gone_back=back)
        await self._inbox.put_and_wait(replaced)

    async def on_event(self, kind: EventKind, value: Pod) -> None:
        """Pass on one added, changed or deleted pod."""
        if is_newer(value.resource_version, self._newest):
            self._newest = value.resource_version
        if kind is EventKind.DELETED:
            self._others.gone(value.uid)
            await self._inbox.put_in_time(partial(self._scheduler.pod_gone, value.uid))
            return
        if value.scheduler_name in self._others.shared or not self._others.labels.isdisjoint(value.labels.items()):
            self._others.seen(value)
        await self._inbox.put_in_time(partial(self._scheduler.pod_changed, value))


def node_sink(scheduler: Scheduler, inbox: Inbox) -> InboxSink[Node]:
    """Return a sink that passes nodes to the scheduler."""
    nodes = scheduler.nodes
    return InboxSink(inbox, replaced=nodes.replaced, changed=nodes.changed, gone=lambda node: nodes.gone(node.name))


def _store_sink(inbox: Inbox, store: Store[_T], replaced: Callable[[Sequence[_T]], Iterator[None]]) -> InboxSink[_T]:
    def put(one: _T) -> None:
        store.put(one)

    def drop(one: _T) -> None:
        store.drop(one)

    return InboxSink(inbox, replaced=replaced, changed=put, gone=drop)


def _sink_by_name(inbox: Inbox, store: ByName[_N]) -> InboxSink[_N]:
    return InboxSink(inbox, replaced=store.replaced, changed=store.put, gone=store.gone)


class Watches:
    """The reflectors of one process.

    Attributes:
        reflectors: the running reflectors by name.
        nodes_read, pods_read: their decoders, which count unreadable objects.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        inbox: Inbox,
        configuration: Follower | None,
        trusted: frozenset[str],
        others: SchedulerNames,
    ) -> None:
        """Begin with none.

        *configuration*: None if it never changes. *trusted*: namespaces whose third-party ConfigMaps are trusted.
        *others* receives pods too.
        """
        self.reflectors: Final[dict[str, Reflector[Any]]] = {}
        self.nodes_read: Final = forgiving_nodes(scheduler)
        self.pods_read: Final = forgiving_pods(scheduler)
        self._scheduler: Final = scheduler
        self._inbox: Final = inbox
        self._configuration: Final = configuration
        self._trusted: Final = trusted
        self._others: Final = others
        self._documents: Final[dict[str, Reflector[Any]]] = {}

    async def configuration(self, tasks: asyncio.TaskGroup, transport: Source) -> None:
        """Follow the configuration; return once all of it was listed."""
        if self._configuration is not None:
            tasks.create_task(self._configuration.follow_config_maps(transport), name="configuration")
            await self._configuration.listed.wait()

    async def cluster(self, tasks: asyncio.TaskGroup, transport: Source) -> None:
        """Follow nodes, documents about them, groups and pods; return once nodes and pods were listed.

        Pods of groups that were not listed yet wait for them. The other kinds are known before any pod is placed, where
        they are served and may be read.
        """
        scheduler, inbox = self._scheduler, self._inbox
        self._follow_groups(tasks, transport)
        tasks.create_task(self._follow_budgets(transport), name="follow disruption budgets")
        namespaces = _sink_by_name(inbox, scheduler.namespaces)
        path = "/api/v1/namespaces"
        self._follow(tasks, "namespaces", Reflector(transport, path, decode=decode_namespace, sink=namespaces))
        # At once, because each kind that is forbidden is awaited for about a second.
        async with asyncio.TaskGroup() as first:
            first.create_task(self._follow_quotas(tasks, transport), name="list quotas")
            first.create_task(self._follow_documents(tasks, transport), name="list documents")
            first.create_task(self._follow_storage(tasks, transport), name="list storage")
            first.create_task(self._follow_resource_claims(tasks, transport), name="list resource claims")
            first.create_task(self._follow_hyper_nodes(tasks, transport), name="list hyper nodes")
        # Nodes first, because a pod is counted on its node.
        nodes = node_sink(scheduler, inbox)
        pods = PodSink(scheduler, inbox, self._others)
        await self._follow(
            tasks, "nodes", Reflector(transport, "/api/v1/nodes", decode=self.nodes_read, sink=nodes, pace=_PACE)
        ).synced.wait()
        await self._follow(
            tasks, "pods", Reflector(transport, _PODS_PATH, decode=self.pods_read, sink=pods, pace=_PACE)
        ).synced.wait()

    def _follow(self, tasks: asyncio.TaskGroup, name: str, reflector: Reflector[_T]) -> Reflector[_T]:
        self.reflectors[name] = reflector
        tasks.create_task(reflector.run(), name=f"reflect {name}")
        return reflector

    async def _listed(self, names: Sequence[str], otherwise: str, rights: str = "base/rights.yaml") -> None:
        """Wait until *names* were listed, or may not be; *otherwise*: what follows then, for the log.

        rights: the file of deploy that gives them.
        """
        for name in names:
            await _listed_or_forbidden(self.reflectors[name])
        closed = [str(name) for name in names if _is_forbidden(self.reflectors[name])]
        if closed:
            _log.warning(otherwise, kinds=closed, remedy=f"give the controller the rights of deploy/{rights}")

    def _follow_groups(self, tasks: asyncio.TaskGroup, transport: Source) -> None:
        """Follow queues, groups of all kinds, and the classes that groups name; each may not be installed."""
        groups, inbox = self._scheduler.cluster.groups, self._inbox
        queues = InboxSink(
            inbox,
            replaced=partial(groups.queues_replaced, served=True),
            changed=groups.queue_changed,
            gone=lambda queue: groups.queue_gone(queue.name),
            absent=partial(groups.queues_replaced, (), served=False),
        )
        read_queue = Forgiving(
            self._scheduler,
            decode_queue,
            salvage_queue,
            lambda queue: Subject(kind="Queue", name=queue.name, uid=queue.uid),
            lambda _: "it takes no groups",
        )
        self._follow(tasks, "queues", _optional(transport, QUEUES_PATH, read_queue, queues))
        for kind, name in _GROUPS.items():
            self._follow(tasks, name, self._groups_reflector(transport, kind))
        classes = _sink_by_name(inbox, groups.classes)
        reflector = Reflector(transport, _CLASSES_PATH, decode=decode_priority_class, sink=classes, pace=_OPTIONAL)
        self._follow(tasks, "priority-classes", reflector)

    def _groups_reflector(self, transport: Source, kind: GroupKind) -> Reflector[GroupSpec]:
        """Return a reflector of PodGroups of *kind*, at any served version."""
        groups = self._scheduler.cluster.groups

        def replaced(objects: Sequence[GroupSpec]) -> Iterator[None]:
            return groups.replaced(kind, objects, served=True, api=reflector.path.removesuffix(f"/{PODGROUPS}"))

        def absent() -> Iterator[None]:
            return groups.replaced(kind, (), served=False, api=reflector.path.removesuffix(f"/{PODGROUPS}"))

        sink = InboxSink(
            self._inbox,
            replaced=replaced,
            changed=groups.changed,
            gone=lambda spec: groups.gone(spec.key),
            absent=absent,
        )
        newest, *older = (f"{api}/{PODGROUPS}" for api in APIS[kind])
        decode = Forgiving(
            self._scheduler,
            DECODERS[kind],
            partial(salvage_group, kind),
            lambda spec: Subject(kind="PodGroup", namespace=spec.key.namespace, name=spec.key.name, uid=spec.uid),
            lambda _: "none of its members is placed",
        )
        reflector = _optional(transport, newest, decode, sink, older=older)
        return reflector

    async def _follow_storage(self, tasks: asyncio.TaskGroup, transport: Source) -> None:
        """Follow claims, volumes and related objects, each of which may not be served."""
        claims = self._scheduler.claims
        for kind in StorageKind:
            sink = _store_sink(self._inbox, claims.stores[kind], partial(claims.replaced, kind))
            path, decode = STORAGE[kind]
            self._follow(tasks, kind, _optional(transport, path, decode, sink))
        await self._listed(tuple(StorageKind), "listing storage is forbidden; pods with volume claims wait")

    async def _follow_quotas(self, tasks: asyncio.TaskGroup, transport: Source) -> None:
        quotas = self._scheduler.cluster.budgets.quotas
        sink = InboxSink(self._inbox, replaced=quotas.replaced, changed=quotas.changed, gone=quotas.gone)
        decode = Forgiving(
            self._scheduler,
            decode_quota,
            salvage_quota,
            lambda quota: Subject(kind="ResourceQuota", namespace=quota.namespace, name=quota.name, uid=""),
            lambda _: "no pod waits for it",
        )
        reflector = Reflector(transport, "/api/v1/resourcequotas", decode=decode, sink=sink)
        self._follow(tasks, "resource-quotas", reflector)
        await self._listed(
            ["resource-quotas"], "listing ResourceQuotas is forbidden; their limits on cards are not enforced"
        )

    async def _follow_hyper_nodes(self, tasks: asyncio.TaskGroup, transport: Source) -> None:
        groups = self._scheduler.cluster.groups
        sink = _sink_by_name(self._inbox, groups.hyper_nodes)
        decode = Forgiving(
            self._scheduler,
            decode_hyper_node,
            salvage_hyper_node,
            lambda found: Subject(kind="HyperNode", name=found.name, uid=""),
            lambda _: "it has no nodes",
        )
        self._follow(tasks, "hyper-nodes", _optional(transport, HYPER_NODES_PATH, decode, sink))
        await self._listed(["hyper-nodes"], "listing HyperNodes is forbidden; groups are placed by network_tiers only")

    async def _follow_resource_claims(self, tasks: asyncio.TaskGroup, transport: Source) -> None:
        uses = self._scheduler.uses
        kinds: Mapping[str, tuple[Callable[[bytes], Any], Store[Any]]] = {
            "resourceslices": (decode_resource_slice, uses.slices),
            "resourceclaims": (decode_resource_claim, uses.claims),
        }
        for name, (decode, store) in kinds.items():
            sink = _store_sink(self._inbox, store, store.replaced)
            self._follow(tasks, name, _optional(transport, f"{_RESOURCES_PATH}/{name}", decode, sink))
        await self._listed(tuple(kinds), "listing resource claims is forbidden; cards used through them count as free")

    async def _follow_documents(self, tasks: asyncio.TaskGroup, transport: Source) -> None:
        """Follow MindCluster's documents about nodes.

        They are needed to read nodes: without them, an unhealthy chip would count as healthy.
        """
        catalog = self._scheduler.cluster.ledger.catalog
        trusted = [place for place in places(catalog) if believes(place.namespace, self._trusted)]
        for place in trusted:
            title = place.title
            self._documents[title] = self._follow(tasks, title, self._documents_reflector(transport, place))
        for reflector in self._documents.values():
            await _listed_or_forbidden(reflector)
        closed = sorted({place.namespace for place in trusted if _is_forbidden(self._documents[place.title])})
        if closed:
            _log.warning(
                "listing ConfigMaps is forbidden; the chip states of MindCluster nodes are unknown",
                namespaces=closed,
                remedy="where MindCluster is installed, apply deploy/mindcluster.yaml",
            )

    def _documents_reflector(self, transport: Source, place: ConfigMapPlace) -> Reflector[Any]:
        nodes = self._scheduler.nodes
        sink = InboxSink(
            self._inbox,
            replaced=partial(nodes.documents_replaced, place),
            changed=partial(nodes.documents_changed, place),
            gone=partial(nodes.documents_changed, place, gone=True),
        )
        return Reflector(
            transport,
            f"{namespace_path(place.namespace)}/configmaps",
            decode=decode_config_map,
            sink=sink,
            selectors={"labelSelector": place.selector},
            absent_is_empty=True,
        )

    async def _follow_budgets(self, transport: Source) -> None:
        """Follow disruption budgets while preemption is enabled."""
        preempting, occupants = self._scheduler.preempting, self._scheduler.cluster.occupants
        sink = InboxSink(
            self._inbox,
            replaced=occupants.budgets_replaced,
            changed=occupants.budget_changed,
            gone=occupants.budget_gone,
        )
        await self._follow_while(
            lambda: preempting.is_on,
            _BUDGETS,
            lambda: Reflector(transport, _BUDGETS_PATH, decode=decode_disruption_budget, sink=sink),
            occupants.forget_budgets,
            "listing PodDisruptionBudgets is forbidden; no pod is evicted for others",
        )

    async def jobs(self, transport: Source) -> None:
        """Follow Volcano's Jobs while this process admits its groups and its queues are served."""
        groups, jobs = self._scheduler.cluster.groups, self._scheduler.jobs
        sink = InboxSink(self._inbox, replaced=jobs.replaced, changed=jobs.changed, gone=jobs.gone)
        await self._follow_while(
            lambda: groups.governs and bool(groups.queues_served),
            "volcano-jobs",
            lambda: _optional(transport, JOBS_PATH, decode_job, sink),
            lambda: jobs.replaced(()),
        )

    async def _follow_while(
        self,
        is_wanted: Callable[[], bool],
        name: str,
        make: Callable[[], Reflector[Any]],
        forget: Callable[[], None],
        otherwise: str = "",
    ) -> NoReturn:
        """Run a reflector while *is_wanted*; *make* returns a new one each time, and *forget* is called at its end.

        otherwise: what follows if the objects may not be listed, for the log; "" if that needs no right.
        """
        while True:
            while not is_wanted():  # noqa: ASYNC110 (there is no event for a change of the settings)
                await asyncio.sleep(_FOLLOW_S)
            async with asyncio.TaskGroup() as tasks:
                reflector = self.reflectors[name] = make()
                running: list[asyncio.Task[None]] = [tasks.create_task(reflector.run(), name=f"reflect {name}")]
                if otherwise:
                    listed = self._listed([name], otherwise, "preemption.yaml")
                    running.append(tasks.create_task(listed, name=f"listed {name}"))
                while is_wanted():  # noqa: ASYNC110
                    await asyncio.sleep(_FOLLOW_S)
                for task in running:
                    task.cancel()
            del self.reflectors[name]
            await self._inbox.put_in_time(forget)

    def notes(self) -> list[str]:
        """Return problems that do not prevent decisions, one line each."""
        reflector = self.reflectors.get(_BUDGETS)
        if reflector is None or reflector.synced.is_set() or not reflector.state:
            return []
        return [f"no pod is evicted for others: {reflector.state}"]

    def reasons(self) -> list[str]:
        """Return what cannot be read or was not yet listed, one line each."""
        found = self._configuration.reasons() if self._configuration is not None else []
        for name in _WEIGHTY:
            reflector = self.reflectors.get(name)
            if reflector is None:
                found.append(f"{name}: not listed yet")
            elif reflector.state:
                found.append(reflector.state)
            elif not reflector.synced.is_set():
                found.append(f"{name}: being listed")
            elif age_s(reflector) > MAX_AGE_S:
                found.append(f"stale: watch {name}: nothing came for {age_s(reflector):.0f} s; nothing is decided")
        if _WEIGHTY[0] not in self.reflectors:
            found += self._unlisted()
        for name, reflector in self._documents.items():
            if not _is_forbidden(reflector) and (reflector.state or not reflector.synced.is_set()):
                found.append(reflector.state or f"{name}: being listed")
        return found

    def _unlisted(self) -> list[str]:
        """Return why kinds that are listed before nodes and pods are not, but for the documents."""
        waiting = [one for name, one in self.reflectors.items() if name not in self._documents]
        return [one.state for one in waiting if one.state and not one.synced.is_set() and not _is_forbidden(one)]

    def is_current(self) -> bool:
        """Return whether the mirror is recent enough for decisions."""
        reflectors = [self.reflectors[name] for name in _WEIGHTY]
        return all(not one.state and age_s(one) <= MAX_AGE_S for one in reflectors)

    async def catch_up(self, calls: Calls) -> None:
        """Wait until the scheduler knows all writes to pods that were made before this call."""
        reflector = self.reflectors["pods"]
        before = reflector.version
        wanted = await _newest_version(calls)
        # A server is never behind what it sent, unless etcd was restored. If the watch does not get there, either
        # nothing changes, or changes are held back. A list is never older than the writes before it began.
        if is_newer(before, wanted) or not await _reaches(reflector, wanted):
            begun = reflector.counters.lists
            reflector.list_again()
            while reflector.counters.replaced <= begun:  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_S)
        await self._inbox.put_and_wait(lambda: None)

    @property
    def forbidden(self) -> frozenset[str]:
        """The places of MindCluster's ConfigMaps that may not be read, by the names of their reflectors."""
        return frozenset(name for name, one in self._documents.items() if _is_forbidden(one))


def _optional(
    source: Source,
    path: str,
    decode: Callable[[bytes], _T],
    sink: InboxSink[_T],
    older: Sequence[str] = (),
) -> Reflector[_T]:
    """Return a reflector of a kind that may not be installed."""
    return Reflector(source, path, decode=decode, sink=sink, pace=_OPTIONAL, absent_is_empty=True, older=older)


async def pods_on(source: Requester, node: NodeName) -> Sequence[Pod]:
    """Return the pods of *node*, read from the API server now.

    Raises:
        ApiError: it does not answer.
        UndecodableError: a pod is unreadable.
    """
    selectors = {"fieldSelector": f"spec.nodeName={node}"}
    return (await list_all(source, _PODS_PATH, page_decoder(decode_pod), selectors=selectors)).items


def age_s(reflector: Reflector[Any]) -> float:
    """Return the seconds since *reflector* was last known to be complete; infinite before the first time."""
    return max(time.monotonic() - reflector.current_s, 0.0) if reflector.synced.is_set() else float("inf")


async def _reaches(reflector: Reflector[Any], version: str) -> bool:
    """Return whether *reflector* delivers everything up to *version* soon."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE_S):
            while reflector.version != version and not is_newer(reflector.version, version):  # noqa: ASYNC110 (a watch has no event)
                await asyncio.sleep(_LOOK_S)
            return True
    return False


async def _newest_version(calls: Calls) -> str:
    """Return the cluster's current version, read past every cache."""
    backoff = Backoff(first_s=0.25, cap_s=2.0, jitter=lambda: 0.0)
    while True:
        try:
            return read_version(await calls.get_raw(_PODS_PATH, {"limit": "1"}))
        except (ApiError, UndecodableError) as e:
            _log.warning("the newest version cannot be read; nothing is decided until it can be", error=str(e))
            await asyncio.sleep(backoff.next_s())


async def _listed_or_forbidden(reflector: Reflector[Any]) -> None:
    """Wait until *reflector* is synced, or was refused more than once: an API server may learn of rights late."""
    while not reflector.synced.is_set() and not (_is_forbidden(reflector) and reflector.counters.failures > 1):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FORBIDDEN_S):
                await reflector.synced.wait()


def _is_forbidden(reflector: Reflector[Any]) -> bool:
    """Return whether this process may not read the objects of *reflector*."""
    return reflector.state.startswith("forbidden")
