"""Starts the watches of the cluster, orders their first lists, and reports what prevents them."""

import asyncio
import contextlib
import time
from typing import Any, Final

import structlog

from controller.deciding.scheduler import Scheduler
from controller.documents import places
from controller.inbox import Inbox
from controller.scheduler_names import SchedulerNames
from controller.watching.mirror import (
    PODS_PATH,
    budgets_reflector,
    documents_reflector,
    forgiving_nodes,
    forgiving_pods,
    groups_reflector,
    hyper_nodes_reflector,
    jobs_reflector,
    namespaces_reflector,
    nodes_reflector,
    pods_reflector,
    priority_classes_reflector,
    queues_reflector,
    quotas_reflector,
    resource_claims_reflector,
    resource_slices_reflector,
    storage_reflector,
)
from core.claims import StorageKind
from core.configuration import believes
from core.groups import GroupKind
from core.port.spec import Place
from kube.calls import Calls
from kube.configuration import KINDS, Follower
from kube.errors import ApiError, UndecodableError
from kube.objects import read_version
from kube.reflector import Reflector, Source
from runtime.backoff import Backoff

_log: Final = structlog.get_logger()

_FOLLOW_S: Final = 1.0
_FORBIDDEN_S: Final = 0.05
# The kinds that decisions depend on, and their maximum age for decisions. Their watches end earlier as planned.
_WEIGHTY: Final = ("nodes", "pods")
MAX_AGE_S: Final = 15.0
# How long the pods' watch may take to reach a version before a list is requested.
_PATIENCE_S: Final = 0.3
_LOOK_S: Final = 0.02
NEEDED: Final = (*KINDS, "nodes", "pods")
_BUDGETS: Final = "disruption-budgets"
_JOBS: Final = "volcano-jobs"
_QUOTAS: Final = "resource-quotas"
_CLASSES: Final = "priority-classes"
_HYPER_NODES: Final = "hyper-nodes"
_GROUPS: Final = {
    GroupKind.VOLCANO: "volcano-groups",
    GroupKind.NATIVE: "native-groups",
    GroupKind.COSCHEDULING: "coscheduling-groups",
}


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

        Args:
            scheduler: receives the objects.
            inbox: the calls for the scheduler.
            configuration: follows the configuration's texts; None: it never changes.
            trusted: namespaces whose third-party ConfigMaps are trusted.
            others: receives pods too.
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

        Pods of groups that were not listed yet wait for them.
        """
        self._follow_groups(tasks, transport)
        tasks.create_task(self._follow_budgets(transport), name="follow disruption budgets")
        namespaces = self.reflectors["namespaces"] = namespaces_reflector(transport, self._scheduler, self._inbox)
        tasks.create_task(namespaces.run(), name="reflect namespaces")
        await self._follow_quotas(tasks, transport)
        await self._follow_documents(tasks, transport)
        await self._follow_storage(tasks, transport)
        await self._follow_resource_claims(tasks, transport)
        await self._follow_hyper_nodes(tasks, transport)
        # Nodes first, because a pod is counted on its node.
        for name, reflector in (
            ("nodes", nodes_reflector(transport, self._scheduler, self._inbox, self.nodes_read)),
            ("pods", pods_reflector(transport, self._scheduler, self._inbox, self.pods_read, self._others)),
        ):
            self.reflectors[name] = reflector
            tasks.create_task(reflector.run(), name=f"reflect {name}")
            await reflector.synced.wait()

    def _follow_groups(self, tasks: asyncio.TaskGroup, transport: Source) -> None:
        """Follow queues, groups of all kinds, and the classes that groups name; each may not be installed."""
        self.reflectors["queues"] = queues_reflector(transport, self._scheduler, self._inbox)
        for kind, name in _GROUPS.items():
            self.reflectors[name] = groups_reflector(transport, kind, self._scheduler, self._inbox)
        self.reflectors[_CLASSES] = priority_classes_reflector(transport, self._scheduler, self._inbox)
        for name in ("queues", *_GROUPS.values(), _CLASSES):
            tasks.create_task(self.reflectors[name].run(), name=f"reflect {name}")

    async def _follow_storage(self, tasks: asyncio.TaskGroup, transport: Source) -> None:
        """Follow claims, volumes and related objects; only pods with claims wait for them."""
        for kind in StorageKind:
            self.reflectors[kind] = storage_reflector(transport, self._scheduler, self._inbox, kind)
            tasks.create_task(self.reflectors[kind].run(), name=f"reflect {kind}")
        for kind in StorageKind:
            await _listed_or_forbidden(self.reflectors[kind])
        closed = [str(kind) for kind in StorageKind if _is_forbidden(self.reflectors[kind])]
        if closed:
            _log.warning(
                "listing storage is forbidden; pods with volume claims wait",
                kinds=closed,
                remedy="give the controller the rights of deploy/base/rights.yaml",
            )

    async def _follow_quotas(self, tasks: asyncio.TaskGroup, transport: Source) -> None:
        """Follow ResourceQuotas; no pod is placed before they are known, unless they may not be read."""
        reflector = self.reflectors[_QUOTAS] = quotas_reflector(transport, self._scheduler, self._inbox)
        tasks.create_task(reflector.run(), name="reflect ResourceQuotas")
        await _listed_or_forbidden(reflector)
        if _is_forbidden(reflector):
            _log.warning(
                "listing ResourceQuotas is forbidden; their limits on cards are not enforced",
                remedy="give the controller the rights of deploy/base/rights.yaml",
            )

    async def _follow_hyper_nodes(self, tasks: asyncio.TaskGroup, transport: Source) -> None:
        """Follow HyperNodes; if served, they are known before any pod is placed by them."""
        reflector = self.reflectors[_HYPER_NODES] = hyper_nodes_reflector(transport, self._scheduler, self._inbox)
        tasks.create_task(reflector.run(), name="reflect HyperNodes")
        await _listed_or_forbidden(reflector)
        if _is_forbidden(reflector):
            _log.warning(
                "listing HyperNodes is forbidden; groups are placed by network_tiers only",
                remedy="give the controller the rights of deploy/base/rights.yaml",
            )

    async def _follow_resource_claims(self, tasks: asyncio.TaskGroup, transport: Source) -> None:
        """Follow resource claims; if served, they are known before any pod is placed."""
        found: dict[str, Reflector[Any]] = {
            "resourceslices": resource_slices_reflector(transport, self._scheduler, self._inbox),
            "resourceclaims": resource_claims_reflector(transport, self._scheduler, self._inbox),
        }
        self.reflectors.update(found)
        for name, reflector in found.items():
            tasks.create_task(reflector.run(), name=f"reflect {name}")
        for reflector in found.values():
            await _listed_or_forbidden(reflector)
        closed = [name for name, reflector in found.items() if _is_forbidden(reflector)]
        if closed:
            _log.warning(
                "listing resource claims is forbidden; cards used through them count as free",
                kinds=closed,
                remedy="give the controller the rights of deploy/base/rights.yaml",
            )

    async def _follow_budgets(self, transport: Source) -> None:
        """Follow disruption budgets while preemption is enabled."""
        preempting = self._scheduler.preempting
        while True:
            while not preempting.is_on:  # noqa: ASYNC110 (there is no event for a change of the settings)
                await asyncio.sleep(_FOLLOW_S)
            reflector = self.reflectors[_BUDGETS] = budgets_reflector(transport, self._scheduler, self._inbox)
            async with asyncio.TaskGroup() as tasks:
                running = tasks.create_task(reflector.run(), name="reflect disruption budgets")
                while preempting.is_on:  # noqa: ASYNC110
                    await asyncio.sleep(_FOLLOW_S)
                running.cancel()
            del self.reflectors[_BUDGETS]
            await self._inbox.put_in_time(self._scheduler.cluster.occupants.forget_budgets)

    async def jobs(self, transport: Source) -> None:
        """Follow Volcano's Jobs while this process admits its groups and its queues are served."""
        groups = self._scheduler.cluster.groups

        def is_wanted() -> bool:
            return groups.governs and bool(groups.queues_served)

        while True:
            while not is_wanted():  # noqa: ASYNC110 (there is no event for a change of the settings)
                await asyncio.sleep(_FOLLOW_S)
            reflector = self.reflectors[_JOBS] = jobs_reflector(transport, self._scheduler, self._inbox)
            async with asyncio.TaskGroup() as tasks:
                running = tasks.create_task(reflector.run(), name="reflect Jobs of Volcano")
                while is_wanted():  # noqa: ASYNC110
                    await asyncio.sleep(_FOLLOW_S)
                running.cancel()
            del self.reflectors[_JOBS]
            await self._inbox.put_in_time(lambda: self._scheduler.jobs.replaced(()))

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
            elif self.age_s(name) > MAX_AGE_S:
                found.append(f"stale: watch {name}: nothing came for {self.age_s(name):.0f} s; nothing is decided")
        for name, reflector in self._documents.items():
            if not _is_forbidden(reflector) and (reflector.state or not reflector.synced.is_set()):
                found.append(reflector.state or f"{name}: being listed")
        return found

    def age_s(self, name: str) -> float:
        """Return the seconds since *name* was last known to be complete; infinite before the first time."""
        reflector = self.reflectors.get(name)
        return age_s(reflector) if reflector is not None else float("inf")

    def is_current(self) -> bool:
        """Return whether the mirror is recent enough for decisions."""
        return all(not self.reflectors[name].state and self.age_s(name) <= MAX_AGE_S for name in _WEIGHTY)

    async def catch_up(self, calls: Calls) -> None:
        """Wait until the scheduler knows all writes to pods that were made before this call."""
        wanted = await _newest_version(calls)
        reflector = self.reflectors["pods"]
        try:
            async with asyncio.timeout(_PATIENCE_S):
                while not _is_reached(reflector.version, wanted):  # noqa: ASYNC110 (a watch has no event)
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            # Either nothing changes, or changes are held back. A list is never older than the writes before it.
            lists = reflector.counters.replaced
            reflector.list_again()
            while reflector.counters.replaced == lists:  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_S)
        await self._inbox.put_and_wait(lambda: None)

    @property
    def forbidden(self) -> int:
        """The number of places of MindCluster's ConfigMaps that may not be read."""
        return sum(map(_is_forbidden, self._documents.values()))

    def _places(self) -> list[Place]:
        return [
            place
            for place in places(self._scheduler.cluster.ledger.catalog)
            if believes(place.namespace, self._trusted)
        ]

    async def _follow_documents(self, tasks: asyncio.TaskGroup, transport: Source) -> None:
        """Follow MindCluster's documents about nodes; nothing waits for those that may not be read.

        They are needed to read nodes: without them, an unhealthy chip would count as healthy.
        """
        for place in self._places():
            found = self._documents[place.title] = documents_reflector(transport, self._scheduler, self._inbox, place)
            self.reflectors[place.title] = found
            tasks.create_task(found.run(), name=f"reflect {place.title}")
        for place in self._places():
            await _listed_or_forbidden(self._documents[place.title])
        closed = sorted(place.namespace for place in self._places() if _is_forbidden(self._documents[place.title]))
        if closed:
            _log.warning(
                "listing ConfigMaps is forbidden; the chip states of MindCluster nodes are unknown",
                namespaces=sorted(set(closed)),
                remedy="where MindCluster is installed, apply deploy/mindcluster.yaml",
            )


def age_s(reflector: Reflector[Any]) -> float:
    """Return the seconds since *reflector* was last known to be complete; infinite before the first time."""
    return max(time.monotonic() - reflector.current_s, 0.0) if reflector.synced.is_set() else float("inf")


async def _newest_version(calls: Calls) -> int | None:
    """Return the cluster's current version, read past every cache; None if versions are not numbers."""
    backoff = Backoff(first_s=0.25, cap_s=2.0, jitter=lambda: 0.0)
    while True:
        try:
            return _number(read_version(await calls.get_raw(PODS_PATH, {"limit": "1"})))
        except (ApiError, UndecodableError) as e:
            _log.warning("the newest version cannot be read; nothing is decided until it can be", error=str(e))
            await asyncio.sleep(backoff.next_s())


def _is_reached(version: str, wanted: int | None) -> bool:
    """Return whether *version* is at or after *wanted*.

    Versions are ordered numbers: guaranteed since Kubernetes 1.35, and true before because they are etcd's.
    """
    found = _number(version)
    return wanted is not None and found is not None and found >= wanted


def _number(version: str) -> int | None:
    return int(version) if version.isascii() and version.isdigit() else None


async def _listed_or_forbidden(reflector: Reflector[Any]) -> None:
    """Wait until *reflector* is synced, or may not read."""
    while not reflector.synced.is_set() and not _is_forbidden(reflector):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FORBIDDEN_S):
                await reflector.synced.wait()


def _is_forbidden(reflector: Reflector[Any]) -> bool:
    """Return whether this process may not read the objects of *reflector*."""
    return reflector.state.startswith("forbidden")
