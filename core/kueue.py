"""Kueue's Workloads for an admission check: their pods, and how long their capacity is reserved. Pure.

A Workload with quota waits for its admission checks, and starts once all of them are ready. Source: groups 8;
kubernetes-sigs/kueue v0.17, apis/kueue/v1beta2 workload_types.go and admissioncheck_types.go; v0.20.0-devel
(ff69552e7), pkg/workloadslicing.
"""

from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from core.model import EMPTY, Pod, Toleration
from core.waiting import code_in

# spec.controllerName of the AdmissionChecks that cardshare answers.
CONTROLLER_NAME: Final = "cardshare.io/fits"
# Kueue's annotation of pods with the name of their Workload.
WORKLOAD: Final = "kueue.x-k8s.io/workload"
# Kueue's annotations of an elastic Job: a Workload that takes the place of another, with more pods; and what all of its
# Workloads and pods have in common.
REPLACES: Final = "kueue.x-k8s.io/workload-slice-replacement-for"
SLICE: Final = "kueue.x-k8s.io/workload-slice-name"
# Kueue's label of pods with the name of their pod set, and the name of an unnamed one.
POD_SET: Final = "kueue.x-k8s.io/podset"
MAIN: Final = "main"
# How long a promised Workload's capacity is reserved, from the answer and again from its admission.
PROMISE_S: Final = 60.0
# The delay of a repeated refusal, which doubles up to the last value. Kueue releases the quota at once, and would
# otherwise retry as fast as answers arrive.
_FIRST_WAIT_S: Final = 15
_LAST_WAIT_S: Final = 60


class CheckState(StrEnum):
    """The state of an answer."""

    PENDING = "Pending"
    READY = "Ready"
    RETRY = "Retry"


class Additions(NamedTuple):
    """What a flavor or another check adds to pods: node selector, tolerations, labels and annotations."""

    selector: Mapping[str, str] = EMPTY
    tolerations: tuple[Toleration, ...] = ()
    labels: Mapping[str, str] = EMPTY
    annotations: Mapping[str, str] = EMPTY


class PodSet(NamedTuple):
    """Equal pods. pods: the number with quota. template: JSON. flavors: names of the flavors of their quota."""

    name: str
    pods: int
    template: bytes
    flavors: tuple[str, ...] = ()


class Check(NamedTuple):
    """The state of one admission check of a Workload.

    since_s: time of its last change, Unix seconds. retries: how many times it was Retry. additions: by pod set.
    written: the whole entry, which is written back with the changes.
    """

    name: str
    state: str
    since_s: float = 0.0
    retries: int = 0
    message: str = ""
    additions: Mapping[str, Additions] = MappingProxyType({})
    written: Mapping[str, Any] = MappingProxyType({})


# A namespace, and kind and name of an object in it.
Mark = tuple[str, str]


def marks_of(pod: Pod) -> tuple[Mark, ...]:
    """Return the Workload that *pod* names, its owner, and the pod itself, because Kueue also queues single pods."""
    namespace = pod.namespace
    named, chain = pod.annotations.get(WORKLOAD), pod.annotations.get(SLICE)
    marks: tuple[Mark, ...] = (namespace, pod.owner), (namespace, f"Pod/{pod.name}")
    if chain is not None:
        marks = ((namespace, f"Slice/{chain}"), *marks)
    return marks if named is None else ((namespace, f"Workload/{named}"), *marks)


class Workload(NamedTuple):
    """A Workload of Kueue.

    owners: kind/name of the owners of its pods. admitted_s: when it was admitted, Unix seconds; 0.0: not yet.
    is_over: it finished, was evicted, or is not active. is_evicted: Kueue stopped its pods. chain: what all Workloads
    of an elastic Job have in common, "" for other Jobs. replaces: the key of the Workload for which some of its pods
    run, "" if there is none.
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
    is_evicted: bool = False
    checks: tuple[Check, ...] = ()
    chain: str = ""
    replaces: str = ""

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"

    @property
    def order(self) -> tuple[int, int, str]:
        """The key for the order of answers: higher priority first, then older Workloads."""
        return -self.priority, self.created_s, self.key

    def is_asking(self, names: Collection[str], now_s: float) -> bool:
        """Return whether one of the checks *names* needs an answer: it has none, or its reservation has lapsed."""
        if not self.has_quota or self.is_over:
            return False
        lapsed = not self.admitted_s and self.promised_until_s(names) <= now_s
        return any(
            one.state == CheckState.PENDING or (lapsed and one.state == CheckState.READY) for one in self._own(names)
        )

    def promised_until_s(self, names: Collection[str]) -> float:
        """Return until when its capacity is reserved, Unix seconds; 0.0 if not all of the checks *names* are ready."""
        own = self._own(names)
        if not own or not self.has_quota or self.is_over or any(one.state != CheckState.READY for one in own):
            return 0.0
        return max(self.admitted_s, self.told_s(names)) + PROMISE_S

    def told_s(self, names: Collection[str]) -> float:
        """Return when one of the checks *names* last changed, Unix seconds; 0.0 if it has none of them."""
        return max((one.since_s for one in self._own(names)), default=0.0)

    def waits_s(self, names: Collection[str]) -> float:
        """Return for how long it waits before it may be refused: not at all the first time, longer after a refusal."""
        return max((_waits_s(one) for one in self._own(names)), default=0.0)

    def last_change(self, names: Collection[str]) -> Hashable:
        """Return a value that differs after each change of the state of one of the checks *names*."""
        return tuple((one.since_s, one.state, one.retries) for one in self._own(names))

    def says(self, names: Collection[str], message: str) -> bool:
        """Return whether its message is *message*."""
        return all(one.message == message for one in self._own(names))

    def is_told(self, names: Collection[str]) -> bool:
        """Return whether it waits and its message gives the reason."""
        return all(one.state == CheckState.PENDING and code_in(one.message) for one in self._own(names))

    @property
    def marks(self) -> Iterator[Mark]:
        """Yield its marks; a pod with one of these marks belongs to it."""
        yield self.namespace, f"Workload/{self.name}"
        if self.chain:
            yield self.namespace, f"Slice/{self.chain}"
        yield from ((self.namespace, owner) for owner in self.owners)

    def additions(self, pod_set: PodSet, flavors: Mapping[str, Additions]) -> Iterator[Additions]:
        """Yield what its pods of *pod_set* get in addition to their template; unknown flavors are skipped."""
        yield from (flavors[name] for name in pod_set.flavors if name in flavors)
        yield from (one.additions[pod_set.name] for one in self.checks if pod_set.name in one.additions)

    def _own(self, names: Collection[str]) -> list[Check]:
        return [one for one in self.checks if one.name in names]


def _waits_s(check: Check) -> float:
    # Kueue writes a message when it resets a check, and counts resets since v0.15.
    if not check.message and not check.retries:
        return 0.0
    return min(_FIRST_WAIT_S << min(max(check.retries - 1, 0), 8), _LAST_WAIT_S)


class Flavor(NamedTuple):
    """A ResourceFlavor: what it adds to the pods with its quota."""

    name: str
    additions: Additions


class AdmissionCheck(NamedTuple):
    """An AdmissionCheck. is_active: its Active condition is True. conditions: as written."""

    name: str
    controller: str
    generation: int = 0
    is_active: bool = False
    conditions: tuple[Mapping[str, Any], ...] = ()


class Answer(NamedTuple):
    """The answer to a Workload."""

    state: CheckState
    message: str


def answered(workload: Workload, names: Collection[str], answer: Answer, at: str) -> tuple[Mapping[str, Any], ...]:
    """Return the entries of all admission checks of *workload*, with *answer* at time *at* for those in *names*."""
    return tuple(_entry(one, answer, at) if one.name in names else one.written for one in workload.checks)


def _entry(check: Check, answer: Answer, at: str) -> Mapping[str, Any]:
    # With requeueAfterSeconds, Kueue up to v0.17 holds the quota for that time before it releases it.
    known = {key: value for key, value in check.written.items() if key != "requeueAfterSeconds"}
    changed = {} if _stays(check, answer) else {"lastTransitionTime": at}
    return {**known, "state": str(answer.state), "message": answer.message, **changed}


def _stays(check: Check, answer: Answer) -> bool:
    """Return whether it only keeps waiting, with another message; a repeated positive answer starts again."""
    return check.state == answer.state == CheckState.PENDING


def believed(workload: Workload, names: Collection[str], answer: Answer, now_s: float) -> Workload:
    """Return *workload* as it is once *answer* is written."""
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
    """Return *pod* with the additions *more*; its own values win."""
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
