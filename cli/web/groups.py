"""Follows PodGroups, Queues, PriorityClasses and ResourceQuotas, as far as they may be read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

from cli import watching
from cli.claims import Keeping
from cli.queues import queue_from
from cli.waiting import CLASSES, classes_unread, group_decoder, group_paths, groups_unread, members_of
from core.groups import GroupKey, GroupKind, GroupSpec, QueueSpec, group_of
from core.model import Pod
from core.store import Store
from core.view.waiting import Lines
from core.wire.priority_classes import PriorityClass, decode_priority_class
from core.wire.quotas import ResourceQuota, decode_quota
from kube.calls import namespace_path
from kube.groups import QUEUES_PATH
from kube.reflector import Reflector
from kube.transport import Transport

_K = TypeVar("_K", bound=Hashable)
_T = TypeVar("_T")
_SETTLING_S: Final = 0.05


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

    @property
    def why(self) -> str:
        """Return why they are not known, or may be old; "" while they are followed."""
        return self.reflector.state

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
            kind: _Kind(transport, group_paths(kind, namespace), group_decoder(kind), key, changed)
            for kind in GroupKind
        }
        self._queues: Final[_Kind[str, QueueSpec]] = _Kind(transport, (QUEUES_PATH,), queue_from, name, changed)
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
        while not all(one.is_read or one.why for one in self._kinds()):  # noqa: ASYNC110 (a state has no event)
            await asyncio.sleep(_SETTLING_S)

    @property
    def queues(self) -> Collection[QueueSpec] | None:
        """Return all queues, none without Volcano; None if they may not be read."""
        return self._queues.objects.values() if self._queues.is_read else None

    @property
    def notes(self) -> tuple[str, ...]:
        """Return why quotas or queues are not known, or may be old."""
        kinds = {"ResourceQuotas": self._quotas} | ({} if self._namespace else {"Queues": self._queues})
        return tuple(f"{kind} are not followed ({one.why})" for kind, one in kinds.items() if one.why)

    def quotas(self, namespace: str) -> Sequence[ResourceQuota]:
        """Return the quotas of *namespace*, as far as they may be read."""
        return [one for one in self._quotas.objects.values() if one.namespace == namespace]

    def lines(self, pods: Iterable[Pod], bound: Iterable[Pod], notes: list[str]) -> Lines:
        """Return what determines the order of *pods*; *bound* are the pods with groups on nodes.

        *notes* gets what could not be read, as from `cli.waiting.fetch_lines`.
        """
        kinds = {key.kind for pod in pods if (key := group_of(pod)) is not None}
        unread = {kind for kind in kinds if not self._groups[kind].is_read}
        notes += (groups_unread(kind, self._groups[kind].why) for kind in sorted(unread))
        groups = {key: spec for kind in kinds - unread for key, spec in self._groups[kind].objects.items()}
        is_complete = not self._namespace and not unread
        if is_complete and not self._classes.is_read and any(one.priority_class for one in groups.values()):
            notes.append(classes_unread(self._classes.why))
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
