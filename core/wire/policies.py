"""What a cluster says about pods besides themselves, from the API server's JSON to values.

These are the labels of their namespaces, ResourceQuotas and PodDisruptionBudgets there, PriorityClasses, and the group
size in the owner of pods, such as a ReplicaSet or a Job.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from core.groups import MIN_MEMBER
from core.model import Requirement
from core.units import parse_int64
from core.wire import reading
from core.wire.objects import Head, ObjectMeta, PartialObjectMetadata, Presence, Selector, selector_of
from core.wire.reading import Quantity, as_written, limits


class Namespace(NamedTuple):
    """One namespace with its labels."""

    name: str
    labels: Mapping[str, str]


def namespace_of(found: PartialObjectMetadata) -> Namespace:
    """Return the value of a decoded Namespace."""
    return Namespace(found.metadata.name, reading.labels(found.metadata.labels))


decode_namespace: Final = reading.reader("Namespace", PartialObjectMetadata, namespace_of)


_NEVER: Final = "Never"


class PriorityClass(NamedTuple):
    """One class: its priority, and whether pods of lower priority may be evicted for it.

    is_default: pods that name no class get it; of several such classes the lowest.
    """

    name: str
    value: int
    preempts: bool = True
    is_default: bool = False


class PriorityClassObject(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The fields that are read. Source: Kubernetes API reference, scheduling.k8s.io/v1 PriorityClass."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    preemption_policy: str | None = None
    global_default: bool | None = None


def priority_class_of(found: PriorityClassObject) -> PriorityClass:
    """Return the value of a decoded PriorityClass."""
    preempts = found.preemption_policy != _NEVER
    return PriorityClass(found.metadata.name, found.value, preempts, bool(found.global_default))


decode_priority_class: Final = reading.reader("PriorityClass", PriorityClassObject, priority_class_of)


class ResourceQuota(NamedTuple):
    """A namespace's limits on extended resources, by the quota's own keys (``requests.volcano.sh/vgpu-number``).

    used: by the same keys, as Kubernetes counts; uncounted keys are absent. scoped: whether it counts only some pods.
    in_bytes: the keys of limits with a binary suffix, such as ``64Gi``.
    others: its other limits by key, as written, such as ``pods`` and ``requests.cpu``.
    """

    namespace: str
    name: str
    hard: Mapping[str, int]
    used: Mapping[str, int]
    scoped: bool = False
    in_bytes: frozenset[str] = frozenset()
    others: tuple[tuple[str, str], ...] = ()


class _SpecOfQuota(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    hard: dict[str, Quantity] | None = None
    scopes: tuple[str, ...] | None = None
    scope_selector: Presence | None = None


class _StatusOfQuota(msgspec.Struct, frozen=True, gc=False):
    used: dict[str, Quantity] | None = None


class QuotaObject(msgspec.Struct, frozen=True, gc=False):
    """The fields of a ResourceQuota that are read."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _SpecOfQuota | None = None
    status: _StatusOfQuota | None = None


_NO_SPEC: Final = _SpecOfQuota()
_NO_STATUS: Final = _StatusOfQuota()


def quota_of(found: QuotaObject) -> ResourceQuota:
    """Return the value of a decoded ResourceQuota."""
    meta, spec, status = found.metadata, found.spec or _NO_SPEC, found.status or _NO_STATUS
    return ResourceQuota(
        namespace=meta.namespace or "",
        name=meta.name,
        hard=_extended(spec.hard, "spec.hard"),
        used=_extended(status.used, "status.used"),
        scoped=bool(spec.scopes) or spec.scope_selector is not None,
        in_bytes=frozenset(reading.in_bytes(spec.hard, "spec.hard")),
        others=tuple((key, as_written(one)) for key, one in (spec.hard or {}).items() if not _is_extended(key)),
    )


def _extended(found: Mapping[str, Quantity] | None, field: str) -> Mapping[str, int]:
    return limits({key: amount for key, amount in (found or {}).items() if _is_extended(key)}, field)


def _is_extended(key: str) -> bool:
    return "/" in key and not key.startswith("count/") and ".storageclass.storage.k8s.io/" not in key


decode_quota: Final = reading.reader("ResourceQuota", QuotaObject, quota_of)


_decode_head: Final = reading.reader("ResourceQuota", Head, lambda found: found)


def salvage_quota(text: bytes) -> ResourceQuota:
    """Return a ResourceQuota that `decode_quota` cannot read; it exists and limits nothing.

    Raises:
        InvalidRequestError: even its name is unreadable.
    """
    meta = _decode_head(text).metadata
    return ResourceQuota(meta.namespace, meta.name, {}, {})


_ALWAYS_ALLOW: Final = "AlwaysAllow"


class DisruptionBudget(NamedTuple):
    """One PodDisruptionBudget.

    selector: None matches nothing. allowed: how many of its pods may be evicted now. disrupted: names of pods whose
    eviction is counted already; another pod of the name may be there since. frees_unready: whether its running pods
    that are not ready may be evicted uncounted.
    """

    namespace: str
    name: str
    selector: tuple[Requirement, ...] | None
    allowed: int = 0
    disrupted: frozenset[str] = frozenset()
    frees_unready: bool = False

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"


class _SpecOfBudget(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    selector: Selector | None = None
    unhealthy_pod_eviction_policy: str | None = ""


class _StatusOfBudget(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    disruptions_allowed: int | None = 0
    current_healthy: int | None = 0
    desired_healthy: int | None = 0
    disrupted_pods: dict[str, msgspec.Raw] | None = None


class _Budget(msgspec.Struct, frozen=True, gc=False):
    """The fields of a PodDisruptionBudget that are read. Source: Kubernetes API reference, policy/v1."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _SpecOfBudget | None = None
    status: _StatusOfBudget | None = None


def _budget_of(found: _Budget) -> DisruptionBudget:
    spec, status = found.spec or _SpecOfBudget(), found.status or _StatusOfBudget()
    desired = status.desired_healthy or 0
    return DisruptionBudget(
        found.metadata.namespace or "",
        found.metadata.name,
        selector_of(spec.selector),
        status.disruptions_allowed or 0,
        frozenset(status.disrupted_pods or ()),
        # Source: Kubernetes, pkg/registry/core/pod/storage/eviction.go.
        spec.unhealthy_pod_eviction_policy == _ALWAYS_ALLOW or 0 < desired <= (status.current_healthy or 0),
    )


decode_disruption_budget: Final = reading.reader("PodDisruptionBudget", _Budget, _budget_of)


def _min_member(found: PartialObjectMetadata) -> int:
    """Return how many pods are placed together; 0 if absent or not a number, as in Volcano (groups 3)."""
    return max(parse_int64((found.metadata.annotations or {}).get(MIN_MEMBER, "")) or 0, 0)


decode_min_member: Final = reading.reader("owner", PartialObjectMetadata, _min_member)
