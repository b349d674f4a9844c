"""What the page shows besides cards and pods, kept current: groups and quotas, the stored record, doctor's findings."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, Final, Generic, NoReturn, TypeVar

from cli import watching
from cli.cluster import Keeping, Reads, server_time_s
from cli.doctor_checks import Facts, Finding, RunningPod, account_of, examine_nodes_and_pods, is_plugin
from cli.waiting import CLASSES, classes_unread, group_paths, groups_unread, members_of
from cli.why import History, stored_why, why_of_api
from core.catalog import Catalog
from core.groups import GroupSpec, QueueSpec
from core.history.minutes import MinuteRecord
from core.ledger import Ledger
from core.model import GroupKey, GroupKind, Pod, PodUid, group_of
from core.store import Store
from core.view.history import Why
from core.view.trend import Trend, trend
from core.view.waiting import Lines
from core.wire.groups import group_in, queue_in
from core.wire.policies import PriorityClass, ResourceQuota, decode_priority_class, decode_quota
from kube.calls import namespace_path
from kube.kinds import QUEUES_PATH
from kube.reflector import Reflector
from kube.transport import Transport

_K = TypeVar("_K", bound=Hashable)
_T = TypeVar("_T")
_SETTLING_S: Final = 0.05
# The leader stores the record once a minute.
_EVERY_S: Final = 30.0
_NOTHING_YET: Final = "the controller has stored nothing of this pod yet"
# More are only counted.
_FINDINGS_MAX: Final = 200
# Some findings depend on how long a pod has waited.
_AGAIN_S: Final = 60.0
# At most a twentieth of the time.
_LEAST_S, _REST_PER_LOOK = 2.0, 19.0


class _Kind(Generic[_K, _T]):
    """The objects of one kind by key; none if the kind is not installed."""

    def __init__(
        self,
        transport: Transport,
        paths: Sequence[str],
        decode: Callable[[bytes], _T],
        key: Callable[[_T], _K],
        changed: Callable[[], None],
    ) -> None:
        self.objects: Final[dict[_K, _T]] = {}
        self._key: Final = key
        store = Store(self._put, self._drop, self.objects.values, key)
        path, *older = paths
        self.reflector: Final = Reflector(
            transport, path, decode=decode, sink=Keeping(store, changed), older=older, absent_is_empty=True
        )

    @property
    def is_read(self) -> bool:
        """Return whether the objects were listed."""
        return self.reflector.synced.is_set()

    def _put(self, one: _T) -> None:
        self.objects[self._key(one)] = one

    def _drop(self, one: _T) -> None:
        self.objects.pop(self._key(one), None)


class Groups:
    """The groups and quotas of all namespaces, or of one, and all queues and priority classes."""

    def __init__(self, transport: Transport, namespace: str, home: str, changed: Callable[[], None]) -> None:
        """Prepare to follow the groups in *namespace*, "" for all; *changed* is called after each change.

        home: the namespace whose quotas are followed, "" for all.
        """
        self._namespace: Final = namespace
        self._changed: Final = changed
        key, name = attrgetter("key"), attrgetter("name")
        self._groups: Final[dict[GroupKind, _Kind[GroupKey, GroupSpec]]] = {
            kind: _Kind(transport, group_paths(kind, namespace), partial(group_in, kind), key, changed)
            for kind in GroupKind
        }
        self._queues: Final[_Kind[str, QueueSpec]] = _Kind(transport, (QUEUES_PATH,), queue_in, name, changed)
        self._classes: Final[_Kind[str, PriorityClass]] = _Kind(
            transport, (CLASSES,), decode_priority_class, name, changed
        )
        self._quotas: Final[_Kind[tuple[str, str], ResourceQuota]] = _Kind(
            transport,
            (f"{namespace_path(home)}/resourcequotas" if home else "/api/v1/resourcequotas",),
            decode_quota,
            attrgetter("namespace", "name"),
            changed,
        )

    async def run(self) -> None:
        """Follow until cancelled."""
        kinds = [*self._kinds()]
        async with asyncio.TaskGroup() as tasks:
            for one in kinds:
                tasks.create_task(one.reflector.run(), name=one.reflector.path)
            following = watching.complaints([one.reflector for one in kinds], lambda _: self._changed())
            tasks.create_task(following, name="complaints")

    async def settled(self) -> None:
        """Wait until each kind is read, or known to be unreadable."""
        while not all(one.is_read or one.reflector.state for one in self._kinds()):  # noqa: ASYNC110 (a state has no event)
            await asyncio.sleep(_SETTLING_S)

    @property
    def queues(self) -> Collection[QueueSpec] | None:
        """Return all queues, none without Volcano; None if they may not be read."""
        return self._queues.objects.values() if self._queues.is_read else None

    @property
    def notes(self) -> tuple[str, ...]:
        """Return why quotas or queues are not known, or may be old."""
        kinds = {"ResourceQuotas": self._quotas} | ({} if self._namespace else {"Queues": self._queues})
        return tuple(
            f"{kind} are not followed ({one.reflector.state})" for kind, one in kinds.items() if one.reflector.state
        )

    def quotas(self, namespace: str) -> Sequence[ResourceQuota]:
        """Return the quotas of *namespace*, as far as they may be read."""
        return [one for one in self._quotas.objects.values() if one.namespace == namespace]

    def lines(self, pods: Iterable[Pod], bound: Iterable[Pod], notes: list[str]) -> Lines:
        """Return what determines the order of *pods*; *bound* are the pods with groups on nodes.

        *notes* gets what could not be read, as from `cli.waiting.fetch_lines`.
        """
        kinds = {key.kind for pod in pods if (key := group_of(pod)) is not None}
        unread = {kind for kind in kinds if not self._groups[kind].is_read}
        notes += (groups_unread(kind, self._groups[kind].reflector.state) for kind in sorted(unread))
        groups = {key: spec for kind in kinds - unread for key, spec in self._groups[kind].objects.items()}
        is_complete = not self._namespace and not unread
        if is_complete and not self._classes.is_read and any(one.priority_class for one in groups.values()):
            notes.append(classes_unread(self._classes.reflector.state))
            is_complete = False
        return Lines(
            groups=groups,
            unread=unread,
            members=members_of(bound) if is_complete else {},
            classes=self._classes.objects,
            is_complete=is_complete,
        )

    def _kinds(self) -> Iterator[_Kind[Any, Any]]:
        yield from self._groups.values()
        yield self._quotas
        if not self._namespace:
            yield self._queues
            yield self._classes


class Remembering:
    """The stored record, with the minutes that this process has seen in it. found: None before it was read."""

    def __init__(self, transport: Reads, config_map: str, *, wall: Callable[[], float] = time.time) -> None:
        """Prepare; *config_map*: NAMESPACE/NAME; *wall*: Unix seconds."""
        self.found: Trend | None = None
        self._transport: Final = transport
        self._history: Final = History(transport, config_map, wall=wall)
        self._wall: Final = wall
        self._minutes: Final = MinuteRecord()

    async def run(self, tell: Callable[[], None]) -> NoReturn:
        """Read until cancelled; call *tell* if the chart differs.

        Minutes that were read are kept, because a ConfigMap has no room for a day of many queues.
        """
        while True:
            stored = await self._history.stored()
            self._minutes.restore(stored.minutes)
            chart = partial(trend, as_of_s=stored.at_s or None, notes=stored.notes)
            found = await asyncio.to_thread(chart, tuple(self._minutes.newest()), self._wall())
            if found != self.found:
                self.found = found
                tell()
            await asyncio.sleep(_EVERY_S)

    async def why(self, namespace: str, name: str, *, reads_events: bool) -> Why:
        """Return what happened to a pod, as ``kubectl cards why``.

        Raises:
            ApiError: there is no such pod, or it cannot be read, and nothing of it is stored.
        """
        found = await stored_why(self._history, namespace, name)
        if found.lives:
            return found
        reason = "; ".join(found.notes) or _NOTHING_YET
        return await why_of_api(self._transport, namespace, name, reason, reads_events=reads_events)


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """At most 200 of *count* findings, as in ``doctor``."""

    findings: tuple[Finding, ...]
    count: int


class Examining:
    """Examines copies of the ledger in another thread. found: the last findings, None before the first."""

    def __init__(self, transport: Reads, catalog: Catalog) -> None:
        """Prepare; `run` examines."""
        self.found: Findings | None = None
        self._transport: Final = transport
        self._ahead_s = 0.0  # the clock here, of the API server's
        self._asked_s = -_AGAIN_S
        self.changed: Final = asyncio.Event()
        self._catalog: Final = catalog
        self._plugins: Final[dict[PodUid, RunningPod]] = {}

    def told(self, uid: PodUid, pod: Pod | None) -> None:
        """Note a pod on a node, None if it is gone; those of device plugins are examined."""
        before = self._plugins.pop(uid, None)
        if pod is not None:
            account = account_of(pod.namespace, pod.service_account)
            if is_plugin(account, self._catalog):
                made = RunningPod(key=pod.key, account=account, node=pod.node_name, image="", ready=pod.ready)
                self._plugins[uid] = made
        if before != self._plugins.get(uid):
            self.changed.set()

    async def run(
        self, ledger: Callable[[], Ledger | None], unbound: Callable[[], Iterable[Pod]], tell: Callable[[], None]
    ) -> NoReturn:
        """Examine after changes; call *tell* if the findings differ.

        Args:
            ledger: returns a copy, None before the nodes are read.
            unbound: returns the pods that are on no node.
            tell: is called without arguments.
        """
        while True:
            self.changed.clear()
            begun_s = time.monotonic()
            if begun_s >= self._asked_s + _AGAIN_S:
                self._asked_s, served_s = begun_s, await server_time_s(self._transport)
                self._ahead_s = time.time() - served_s if served_s is not None else 0.0
            copy = ledger()
            if copy is not None and await self._differ(copy, tuple(unbound())):
                tell()
            rest_s = max(_LEAST_S, _REST_PER_LOOK * (time.monotonic() - begun_s))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.changed.wait(), _AGAIN_S)
            await asyncio.sleep(rest_s if copy is not None else 0.0)

    async def _differ(self, ledger: Ledger, unbound: tuple[Pod, ...]) -> bool:
        facts = Facts(
            name="",
            namespace="",
            now_s=time.time() - self._ahead_s,
            catalog=ledger.catalog,
            settings=ledger.settings,
            tables=ledger.tables,
            ledger=ledger,
            pods=unbound,
            plugins=tuple(self._plugins.values()),
        )
        found = await asyncio.to_thread(examine_nodes_and_pods, facts)
        before, self.found = self.found, Findings(findings=found[:_FINDINGS_MAX], count=len(found))
        return before != self.found
