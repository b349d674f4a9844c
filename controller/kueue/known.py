"""The watched objects of Kueue: Workloads that ask or have a promise, flavors, and admission checks."""

import asyncio
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any, Final, Generic, TypeVar

from core.kueue import CONTROLLER_NAME, Additions, AdmissionCheck, Flavor, Workload
from core.model import PodUid
from kube.objects import EventKind

_T = TypeVar("_T")


class Known:
    """The state of Kueue.

    Attributes:
        changed: set after each change.
        flavors: the additions of each flavor to pods.
        checks: cardshare's AdmissionChecks by name.
        workloads: unfinished Workloads with quota, by namespace/name.
        arrived: by the same key, their pods that once had their capacity, with the pod set of each.
        ended_with: the Workload at which a round ended early; the next round begins after it.
    """

    def __init__(self) -> None:
        self.changed: Final = asyncio.Event()
        self.flavors: Final[dict[str, Additions]] = {}
        self.checks: Final[dict[str, AdmissionCheck]] = {}
        self.workloads: Final[dict[str, Workload]] = {}
        self.arrived: Final[dict[str, dict[PodUid, str]]] = {}
        self.ended_with: Workload | None = None
        # Waiting Workloads as judged, and when they are judged again (Unix seconds).
        self._resting: Final[dict[str, tuple[Workload, float]]] = {}

    def put_flavor(self, flavor: Flavor) -> None:
        """Record that a flavor was added or changed."""
        self.flavors[flavor.name] = flavor.additions

    def put_check(self, check: AdmissionCheck) -> None:
        """Record that a check was added or changed."""
        if check.controller == CONTROLLER_NAME:
            self.checks[check.name] = check
            self.changed.set()

    def put_workload(self, workload: Workload) -> None:
        """Record that a Workload was added or changed."""
        if workload.has_quota and not workload.is_over and workload.checks:
            self.workloads[workload.key] = workload
            self.changed.set()
        else:
            self.workloads.pop(workload.key, None)
            self.arrived.pop(workload.key, None)

    def asking(self, now_s: float) -> list[Workload]:
        """Return the Workloads to answer, in order; now_s: Unix seconds."""
        found = (one for one in self._live(now_s) if one.is_asking(self.checks, now_s) and not self._rests(one, now_s))
        asking = sorted(found, key=lambda one: one.order)
        last, self.ended_with = self.ended_with, None
        if last is None:
            return asking
        return [*(one for one in asking if one.order > last.order), *(one for one in asking if one.order <= last.order)]

    def rest(self, workload: Workload, until_s: float) -> None:
        """Do not judge *workload* before *until_s* (Unix seconds) unless it changes."""
        self._resting[workload.key] = workload, until_s

    def _rests(self, workload: Workload, now_s: float) -> bool:
        known, until_s = self._resting.get(workload.key, (None, 0.0))
        return known is workload and now_s < until_s

    def promised(self, now_s: float) -> list[Workload]:
        """Return the Workloads with reserved capacity, the earliest promise first."""
        found = (one for one in self._live(now_s) if one.promised_until_s(self.checks) > now_s)
        return sorted(found, key=lambda one: (one.told_s(self.checks), one.order))

    def _live(self, now_s: float) -> list[Workload]:
        """Return all Workloads except those whose promise has lapsed since their admission; forget these."""
        for one in list(self.workloads.values()):
            if one.admitted_s and one.promised_until_s(self.checks) <= now_s and not one.is_asking(self.checks, now_s):
                del self.workloads[one.key]
        for kept in (self._resting, self.arrived):
            for key in kept.keys() - self.workloads.keys():
                del kept[key]
        return list(self.workloads.values())


class KnownSink(Generic[_T]):
    """A sink of `kube.reflector` for the objects of one kind."""

    def __init__(self, put: Callable[[_T], None], name: Callable[[_T], str], known: MutableMapping[str, Any]) -> None:
        """Prepare; known: the stored objects by *name*."""
        self._put: Final = put
        self._name: Final = name
        self._known: Final = known

    async def on_replace(self, objects: Sequence[_T], resource_version: str) -> None:
        """Replace all known objects."""
        del resource_version
        self._known.clear()
        for one in objects:
            self._put(one)

    async def on_event(self, kind: EventKind, value: _T) -> None:
        """Record that one object was added, changed or deleted."""
        if kind is EventKind.DELETED:
            self._known.pop(self._name(value), None)
        else:
            self._put(value)
