"""Kueue's Workloads as an admission check reads them: their pods, and how long room is kept for them. Pure.

A Workload that has quota waits for its admission checks, and starts once all of them are ready. Source: groups 8;
kubernetes-sigs/kueue v0.17, apis/kueue/v1beta2 workload_types.go and admissioncheck_types.go.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from core.model import EMPTY, Pod, Toleration
from core.waiting import code_in

# spec.controllerName of the AdmissionChecks that are answered.
CONTROLLER_NAME: Final = "cardshare.io/fits"
# Kueue's annotation of pods, which names their Workload.
WORKLOAD: Final = "kueue.x-k8s.io/workload"
# Its label of pods, which names their pod set; and that of those that are not named.
POD_SET: Final = "kueue.x-k8s.io/podset"
MAIN: Final = "main"
# So long the room of a Workload that was told yes is kept from other Workloads, from the answer and from its admission.
PROMISE_S: Final = 60.0
# Who comes back after a no gets the next one after this, twice as late each time up to the last: Kueue gives quota back
# at once, and would otherwise go round as fast as answers come.
_FIRST_WAIT_S: Final = 15
_LAST_WAIT_S: Final = 60


class CheckState(StrEnum):
    """What a Workload is told."""

    PENDING = "Pending"
    READY = "Ready"
    RETRY = "Retry"


class Additions(NamedTuple):
    """What a flavor, or the check of another, adds to pods: node selector, tolerations, labels and annotations."""

    selector: Mapping[str, str] = EMPTY
    tolerations: tuple[Toleration, ...] = ()
    labels: Mapping[str, str] = EMPTY
    annotations: Mapping[str, str] = EMPTY


class PodSet(NamedTuple):
    """Pods that are alike. pods: how many have quota. template: JSON. flavors: by name, those of their quota."""

    name: str
    pods: int
    template: bytes
    flavors: tuple[str, ...] = ()


class Check(NamedTuple):
    """The state of one admission check of a Workload.

    since_s: when it was last changed, Unix seconds. retries: how many times it was Retry. additions: by the name of the
    pod set. written: the whole entry, which goes back with what is changed.
    """

    name: str
    state: str
    since_s: float = 0.0
    retries: int = 0
    message: str = ""
    additions: Mapping[str, Additions] = MappingProxyType({})
    written: Mapping[str, Any] = MappingProxyType({})


# A namespace, and kind and name of what is in it.
Mark = tuple[str, str]


def marks_of(pod: Pod) -> tuple[Mark, ...]:
    """The Workload that *pod* names, what owns it, and itself: Kueue queues single pods, too."""
    namespace = pod.namespace
    named = pod.annotations.get(WORKLOAD)
    marks = (namespace, pod.owner), (namespace, f"Pod/{pod.name}")
    return marks if named is None else ((namespace, f"Workload/{named}"), *marks)


class Workload(NamedTuple):
    """A Workload of Kueue.

    owners: kind/name of those whose pods they are. admitted_s: since when it may start, Unix seconds; 0.0: not yet.
    is_over: it finished, was evicted, or is not active.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    priority: int = 0
    created_s: int = 0
    owners: frozenset[str] = frozenset()
    pod_sets: tuple[PodSet, ...] = ()
    has_quota: bool = False
    admitted_s: float = 0.0
    is_over: bool = False
    checks: tuple[Check, ...] = ()

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"

    @property
    def order(self) -> tuple[int, int, str]:
        """Who of several is asked first: those of a higher priority, then older ones."""
        return -self.priority, self.created_s, self.key

    def is_asking(self, names: Collection[str], now_s: float) -> bool:
        """Whether one of the checks *names* is to be answered: none was yet, or the room is no longer kept for it."""
        if not self.has_quota or self.is_over:
            return False
        lapsed = not self.admitted_s and self.promised_until_s(names) <= now_s
        return any(
            one.state == CheckState.PENDING or (lapsed and one.state == CheckState.READY) for one in self._own(names)
        )

    def promised_until_s(self, names: Collection[str]) -> float:
        """Until when its room is kept from others, Unix seconds; 0.0 if not all of the checks *names* are ready."""
        own = self._own(names)
        if not own or not self.has_quota or self.is_over or any(one.state != CheckState.READY for one in own):
            return 0.0
        return max(self.admitted_s, self.told_s(names)) + PROMISE_S

    def told_s(self, names: Collection[str]) -> float:
        """When one of the checks *names* was last changed, Unix seconds; 0.0 if it has none of them."""
        return max((one.since_s for one in self._own(names)), default=0.0)

    def refused_from_s(self, names: Collection[str]) -> float:
        """From when on it is told no, Unix seconds: at once if it never was, else after a wait, in which it may fit."""
        return max((_refused_from_s(one) for one in self._own(names)), default=0.0)

    def is_told(self, names: Collection[str]) -> bool:
        """Whether it waits, and says why."""
        return all(one.state == CheckState.PENDING and code_in(one.message) for one in self._own(names))

    @property
    def marks(self) -> Iterator[Mark]:
        """By what its pods are told: a pod is one of its if they have a mark in common."""
        yield self.namespace, f"Workload/{self.name}"
        yield from ((self.namespace, owner) for owner in self.owners)

    def additions(self, pod_set: PodSet, flavors: Mapping[str, Additions]) -> Iterator[Additions]:
        """What its pods of *pod_set* get beside their template; flavors that are not known are left out."""
        yield from (flavors[name] for name in pod_set.flavors if name in flavors)
        yield from (one.additions[pod_set.name] for one in self.checks if pod_set.name in one.additions)

    def _own(self, names: Collection[str]) -> list[Check]:
        return [one for one in self.checks if one.name in names]


def _refused_from_s(check: Check) -> float:
    # Kueue says so when it resets a check; how many times it was, it counts since v0.15.
    if not check.message and not check.retries:
        return check.since_s
    return check.since_s + min(_FIRST_WAIT_S << min(max(check.retries - 1, 0), 8), _LAST_WAIT_S)


class Flavor(NamedTuple):
    """A ResourceFlavor: what it adds to the pods that have its quota."""

    name: str
    additions: Additions


class AdmissionCheck(NamedTuple):
    """An AdmissionCheck. is_active: it says that its controller answers. conditions: as they are written."""

    name: str
    controller: str
    generation: int = 0
    is_active: bool = False
    conditions: tuple[Mapping[str, Any], ...] = ()


class Answer(NamedTuple):
    """What a Workload is told."""

    state: CheckState
    message: str


def answered(workload: Workload, names: Collection[str], answer: Answer, at: str) -> tuple[Mapping[str, Any], ...]:
    """The entries of all admission checks of *workload*, those of *names* with *answer*, given at the time *at*."""
    return tuple(_entry(one, answer, at) if one.name in names else one.written for one in workload.checks)


def _entry(check: Check, answer: Answer, at: str) -> Mapping[str, Any]:
    # With requeueAfterSeconds, Kueue up to v0.17 holds the quota for so long before it gives it back.
    known = {key: value for key, value in check.written.items() if key != "requeueAfterSeconds"}
    changed = {} if _stays(check, answer) else {"lastTransitionTime": at}
    return {**known, "state": str(answer.state), "message": answer.message, **changed}


def _stays(check: Check, answer: Answer) -> bool:
    """Whether it only waits on, with another message; a yes that is said again begins anew."""
    return check.state == answer.state == CheckState.PENDING


def believed(workload: Workload, names: Collection[str], answer: Answer, now_s: float) -> Workload:
    """*workload* as it is once *answer* is written."""
    checks = tuple(
        one._replace(
            state=answer.state.value,
            since_s=one.since_s if _stays(one, answer) else now_s,
            message=answer.message,
        )
        if one.name in names
        else one
        for one in workload.checks
    )
    return workload._replace(checks=checks)


def pod_with(pod: Pod, more: Additions) -> Pod:
    """*pod* with *more*; what it says of itself counts."""
    constraints = pod.constraints
    selector = {**more.selector, **dict(constraints.selector)}
    if more.selector or more.tolerations:
        constraints = replace(
            constraints,
            selector=tuple(sorted(selector.items())),
            tolerations=(*constraints.tolerations, *more.tolerations),
        )
    return pod._replace(
        constraints=constraints,
        labels={**more.labels, **pod.labels},
        annotations={**more.annotations, **pod.annotations},
    )
