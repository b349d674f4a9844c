"""Groups of pods, and their queues and Jobs: from the API server's JSON to the values of `core.groups`.

PodGroups are of the three API groups with this kind. `GroupSpec.problems` and `QueueSpec.problems` name unsupported
fields, so that the group or queue is rejected for them.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec

from core.errors import InvalidRequestError
from core.groups import (
    DEFAULT_QUEUE,
    PARTS_MAX,
    SUBGROUPS_MAX,
    WORDS_MAX,
    GroupCondition,
    GroupPhase,
    GroupSpec,
    GroupStatus,
    NetworkTopology,
    QueueSpec,
    SubGroups,
)
from core.model import GroupKey, GroupKind, is_preemptable
from core.wire import reading
from core.wire.objects import Head, HeadMeta, ObjectMeta, Owner, Presence, Selector, selector_of
from core.wire.reading import Quantity, limits, quantities

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class _Topology(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    mode: str | None = ""
    highest_tier_allowed: _Count | None = None
    highest_tier_name: str | None = ""


class _SubGroups(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str | None = ""
    sub_group_size: _Count | None = 1
    min_sub_groups: _Count | None = 0
    network_topology: _Topology | None = None
    label_selector: Selector | None = None
    match_label_keys: tuple[str, ...] | None = None


class _Spec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    min_member: _Count | None = None
    min_task_member: dict[str, _Count] | None = None
    min_resources: dict[str, Quantity] | None = None
    queue: str | None = ""
    priority_class_name: str | None = ""
    network_topology: _Topology | None = None
    sub_group_policy: tuple[_SubGroups, ...] | None = None


class _Condition(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str | None = ""
    message: str | None = ""
    last_transition_time: str | None = ""


class _Status(msgspec.Struct, frozen=True, gc=False):
    phase: str | None = ""
    running: int | None = 0
    succeeded: int | None = 0
    failed: int | None = 0
    conditions: tuple[_Condition, ...] | None = None


class PodGroupObject(msgspec.Struct, frozen=True, gc=False):
    """The fields of Volcano's PodGroup that are read. Source: Volcano, scheduling/v1beta1 types.go (groups 1.3)."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec | None = None
    status: _Status | None = None


class _Gang(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    min_count: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]


class _Policy(msgspec.Struct, frozen=True, gc=False):
    basic: Presence | None = None
    gang: _Gang | None = None


class _TopologyConstraint(msgspec.Struct, frozen=True, gc=False):
    key: str


class _Constraints(msgspec.Struct, frozen=True, gc=False):
    topology: tuple[_TopologyConstraint, ...] | None = None


class _Disruption(msgspec.Struct, frozen=True, gc=False):
    single: Presence | None = None
    all: Presence | None = None


class _NativeSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    scheduling_policy: _Policy | None = None
    scheduling_constraints: _Constraints | None = None
    resource_claims: tuple[Presence, ...] | None = None
    priority_class_name: str | None = ""
    priority: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)] | None = None
    preemption_policy: str | None = None
    disruption_mode: _Disruption | str | None = None
    parent_composite_pod_group_name: str | None = ""


class NativeGroupObject(msgspec.Struct, frozen=True, gc=False):
    """Kubernetes' own PodGroup, of any version.

    Source: kubernetes/api v0.36.3, scheduling/v1alpha2; v0.37.2, scheduling/v1alpha3 and v1beta1 (groups 7).
    """

    metadata: ObjectMeta = ObjectMeta()
    spec: _NativeSpec | None = None
    status: _Status | None = None


_NO_SPEC: Final = _Spec()
_NO_NATIVE_SPEC: Final = _NativeSpec()
_NO_POLICY: Final = _Policy()
_NO_STATUS: Final = _Status()
_PHASES: Final = {phase.value: phase for phase in GroupPhase}
UNREADABLE: Final = "unreadable"


def volcano_group_of(found: PodGroupObject) -> GroupSpec:
    """Return the value of a decoded PodGroup of Volcano."""
    return _of_spec(GroupKind.VOLCANO, found)


def coscheduling_group_of(found: PodGroupObject) -> GroupSpec:
    """Return the value of a decoded PodGroup of Coscheduling, which has some of the same fields, but no queue."""
    return _of_spec(GroupKind.COSCHEDULING, found)


def _of_spec(kind: GroupKind, found: PodGroupObject) -> GroupSpec:
    meta, spec = found.metadata, found.spec or _NO_SPEC
    return GroupSpec(
        key=_key(kind, meta),
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        min_member=spec.min_member or 0,
        min_task_member=spec.min_task_member or {},
        sub_groups=tuple(_sub_groups(at, one) for at, one in enumerate(spec.sub_group_policy or ())),
        min_resources=None if spec.min_resources is None else quantities(spec.min_resources, "spec.minResources"),
        queue=sys.intern((spec.queue or DEFAULT_QUEUE) if kind is GroupKind.VOLCANO else ""),
        priority_class=sys.intern(spec.priority_class_name or ""),
        stays=not is_preemptable(meta.annotations or {}, meta.labels or {}),
        network_topology=_network_topology(spec.network_topology),
        created_s=int(meta.creation_timestamp.timestamp()) if meta.creation_timestamp else 0,
        owner=_owner(meta.owner_references),
        deleting=meta.deletion_timestamp is not None,
        problems=tuple(_problems(spec)),
        status=_status(found.status or _NO_STATUS),
    )


def _problems(spec: _Spec) -> Iterator[str]:
    """Yield the unsupported parts of *spec* (groups 4.10)."""
    policies = spec.sub_group_policy or ()
    if len({one.name for one in policies}) < len(policies):
        yield "spec.subGroupPolicy with one name twice"
    if sum(one.min_sub_groups or 0 for one in policies) > SUBGROUPS_MAX:
        yield f"more than {SUBGROUPS_MAX} subgroups in spec.subGroupPolicy"
    if len(policies) > PARTS_MAX:
        yield f"more than {PARTS_MAX} entries in spec.subGroupPolicy"
    if sum(map(_words, policies)) > WORDS_MAX:
        yield f"more than {WORDS_MAX} matchLabelKeys and values of labelSelectors in spec.subGroupPolicy"
    if len(spec.min_task_member or ()) > PARTS_MAX:
        yield f"more than {PARTS_MAX} tasks in spec.minTaskMember"


def _words(found: _SubGroups) -> int:
    selector = selector_of(found.label_selector) or ()
    return len(found.match_label_keys or ()) + sum(1 + len(one.values) for one in selector)


def _sub_groups(at: int, found: _SubGroups) -> SubGroups:
    return SubGroups(
        name=found.name or str(at),
        selector=selector_of(found.label_selector),
        keys=found.match_label_keys or (),
        size=found.sub_group_size or 1,
        least=found.min_sub_groups or 0,
        network_topology=_network_topology(found.network_topology),
    )


def _network_topology(found: _Topology | None) -> NetworkTopology | None:
    if found is None:
        return None
    # hard by default
    return NetworkTopology(found.mode != "soft", found.highest_tier_allowed, sys.intern(found.highest_tier_name or ""))


def native_group_of(found: NativeGroupObject) -> GroupSpec:
    """Return the value of a decoded PodGroup of Kubernetes' own kind."""
    meta, spec = found.metadata, found.spec or _NO_NATIVE_SPEC
    policy = spec.scheduling_policy or _NO_POLICY
    return GroupSpec(
        key=_key(GroupKind.NATIVE, meta),
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        min_member=policy.gang.min_count if policy.gang is not None else 0,
        queue="",
        priority_class=sys.intern(spec.priority_class_name or ""),
        priority=spec.priority,
        preempts=spec.preemption_policy != "Never",
        disrupted_together=_disrupted_together(spec.disruption_mode),
        topology_key=sys.intern(_topology_key(spec.scheduling_constraints)),
        created_s=int(meta.creation_timestamp.timestamp()) if meta.creation_timestamp else 0,
        owner=_owner(meta.owner_references),
        deleting=meta.deletion_timestamp is not None,
        problems=tuple(_native_problems(spec, policy)),
        status=_status(found.status or _NO_STATUS),
    )


def _native_problems(spec: _NativeSpec, policy: _Policy) -> Iterator[str]:
    if (policy.basic is None) == (policy.gang is None):
        yield "spec.schedulingPolicy"
    if spec.scheduling_constraints is not None and len(spec.scheduling_constraints.topology or ()) > 1:
        yield "spec.schedulingConstraints.topology of more than one key"
    if spec.resource_claims:
        yield "spec.resourceClaims"
    if spec.parent_composite_pod_group_name:
        yield "spec.parentCompositePodGroupName"
    if spec.disruption_mode is not None and _disrupted_together(spec.disruption_mode) is None:
        yield "spec.disruptionMode"


def _disrupted_together(mode: _Disruption | str | None) -> bool | None:
    """Return whether all members are evicted together; None if absent. v1alpha2 has words, later versions a union."""
    match mode:
        case "PodGroup" | _Disruption(single=None, all=Presence()):
            return True
        case "Pod" | _Disruption(single=Presence(), all=None):
            return False
        case _:
            return None


def _topology_key(constraints: _Constraints | None) -> str:
    """Return the key of the only possible constraint."""
    return constraints.topology[0].key if constraints is not None and constraints.topology else ""


def _key(kind: GroupKind, meta: ObjectMeta) -> GroupKey:
    return GroupKey(kind, sys.intern(meta.namespace or ""), meta.name)


def _owner(references: tuple[Owner, ...] | None) -> str:
    return next((f"{one.kind}/{one.name}" for one in references or () if one.controller), "")


def _status(found: _Status) -> GroupStatus:
    return GroupStatus(
        phase=_PHASES.get(found.phase or "", GroupPhase.PENDING),
        written=bool(found.phase),
        running=found.running or 0,
        succeeded=found.succeeded or 0,
        failed=found.failed or 0,
        conditions=tuple(
            GroupCondition(
                type=one.type,
                status=one.status == "True",
                reason=one.reason or "",
                message=one.message or "",
                changed_at=one.last_transition_time or "",
            )
            for one in found.conditions or ()
        ),
    )


decode_volcano_group: Final = reading.reader("PodGroup", PodGroupObject, volcano_group_of)
decode_coscheduling_group: Final = reading.reader("PodGroup", PodGroupObject, coscheduling_group_of)
decode_native_group: Final = reading.reader("PodGroup", NativeGroupObject, native_group_of)

DECODERS: Final[dict[GroupKind, Callable[[bytes], GroupSpec]]] = {
    GroupKind.VOLCANO: decode_volcano_group,
    GroupKind.NATIVE: decode_native_group,
    GroupKind.COSCHEDULING: decode_coscheduling_group,
}


class _WrittenGroup(msgspec.Struct, frozen=True, gc=False):
    metadata: HeadMeta
    status: _Status | None = None


_decode_head: Final = reading.reader("PodGroup", Head, lambda found: _WrittenGroup(metadata=found.metadata))
_decode_written: Final = reading.reader("PodGroup", _WrittenGroup, lambda found: found)


def group_in(kind: GroupKind, text: bytes) -> GroupSpec:
    """Return the group in *text*, salvaged if it cannot be decoded.

    Raises:
        InvalidRequestError: even its name is unreadable.
    """
    try:
        return DECODERS[kind](text)
    except InvalidRequestError:
        return salvage_group(kind, text)


def salvage_group(kind: GroupKind, text: bytes) -> GroupSpec:
    """Return a group that cannot be decoded; it exists, and none of its members is placed.

    Its status is read if possible: it would otherwise be written again after every write of it.

    Raises:
        InvalidRequestError: even its name is unreadable.
    """
    try:
        found = _decode_written(text)
    except InvalidRequestError:
        found = _decode_head(text)
    meta = found.metadata
    return GroupSpec(
        key=GroupKey(kind, meta.namespace, meta.name),
        uid=meta.uid,
        resource_version=meta.resource_version,
        problems=(UNREADABLE,),
        unread=_why_unread(DECODERS[kind], text),
        status=_status(found.status or _NO_STATUS),
    )


def _why_unread(decode: Callable[[bytes], GroupSpec | QueueSpec], text: bytes) -> str:
    try:
        decode(text)
    except InvalidRequestError as e:
        return str(e)
    return ""


_MAX_WEIGHT: Final = 65_535


class _Guarantee(msgspec.Struct, frozen=True, gc=False):
    resource: dict[str, Quantity] | None = None


class _SpecOfQueue(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    weight: int | None = 1
    priority: int | None = 0
    capability: dict[str, Quantity] | None = None
    guarantee: _Guarantee | None = None
    deserved: dict[str, Quantity] | None = None
    reclaimable: bool | None = None
    parent: str | None = ""
    affinity: Presence | None = None
    extend_clusters: tuple[Presence, ...] | None = None


class _StatusOfQueue(msgspec.Struct, frozen=True, gc=False):
    state: str | None = ""
    allocated: dict[str, Quantity] | None = None


class QueueObject(msgspec.Struct, frozen=True, gc=False):
    """The fields of a Queue that are read. Source: Volcano, scheduling/v1beta1 types.go (groups 1.6)."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _SpecOfQueue | None = None
    status: _StatusOfQueue | None = None


_NO_SPEC_OF_QUEUE: Final = _SpecOfQueue()
_NO_STATUS_OF_QUEUE: Final = _StatusOfQueue()
_NO_GUARANTEE: Final = _Guarantee()


def queue_of(found: QueueObject) -> QueueSpec:
    """Return the value of a decoded Queue."""
    meta, spec, status = found.metadata, found.spec or _NO_SPEC_OF_QUEUE, found.status or _NO_STATUS_OF_QUEUE
    guarantee = (spec.guarantee or _NO_GUARANTEE).resource
    in_bytes = {
        "capability": reading.in_bytes(spec.capability, "spec.capability"),
        "guarantee": reading.in_bytes(guarantee, "spec.guarantee.resource"),
        "deserved": reading.in_bytes(spec.deserved, "spec.deserved"),
    }
    return QueueSpec(
        name=meta.name,
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        weight=min(max(spec.weight or 1, 1), _MAX_WEIGHT),
        priority=spec.priority or 0,
        capability=limits(spec.capability, "spec.capability"),
        guarantee=limits(guarantee, "spec.guarantee.resource"),
        deserved=limits(spec.deserved, "spec.deserved"),
        reclaimable=spec.reclaimable is not False,
        parent=spec.parent or "",
        created_s=int(meta.creation_timestamp.timestamp()) if meta.creation_timestamp else 0,
        state=status.state or "",
        allocated=reading.texts(status.allocated),
        problems=tuple(_problems_of_queue(spec)),
        in_bytes={field: amounts for field, amounts in in_bytes.items() if amounts},
    )


def _problems_of_queue(spec: _SpecOfQueue) -> Iterator[str]:
    """Yield the unsupported parts of *spec* (groups 4.10)."""
    if spec.affinity is not None:
        yield "spec.affinity"
    if spec.extend_clusters:
        yield "spec.extendClusters"


decode_queue: Final = reading.reader("Queue", QueueObject, queue_of)


class _WrittenQueue(msgspec.Struct, frozen=True, gc=False):
    metadata: HeadMeta
    status: _StatusOfQueue | None = None


_decode_queue_head: Final = reading.reader("Queue", Head, lambda found: _WrittenQueue(metadata=found.metadata))
_decode_written_queue: Final = reading.reader("Queue", _WrittenQueue, lambda found: found)


def queue_in(text: bytes) -> QueueSpec:
    """Return the Queue in *text*, salvaged if it cannot be decoded.

    Raises:
        InvalidRequestError: even its name is unreadable.
    """
    try:
        return decode_queue(text)
    except InvalidRequestError:
        return salvage_queue(text)


def salvage_queue(text: bytes) -> QueueSpec:
    """Return a Queue that `decode_queue` cannot read; it exists and takes nothing.

    Its status is read if possible, as that of a group.

    Raises:
        InvalidRequestError: even its name is unreadable.
    """
    try:
        found = _decode_written_queue(text)
    except InvalidRequestError:
        found = _decode_queue_head(text)
    meta, status = found.metadata, found.status or _NO_STATUS_OF_QUEUE
    return QueueSpec(
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        problems=(UNREADABLE,),
        unread=_why_unread(decode_queue, text),
        state=status.state or "",
        allocated=reading.texts(status.allocated),
    )


_NOT_BEGUN: Final = ("", "Pending")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A Job of Volcano. begun: its state is not Pending, so its queue exists."""

    namespace: str
    name: str
    uid: str
    queue: str
    begun: bool


class _SpecOfJob(msgspec.Struct, frozen=True, gc=False):
    queue: str | None = ""


class _StateOfJob(msgspec.Struct, frozen=True, gc=False):
    phase: str | None = ""


class _StatusOfJob(msgspec.Struct, frozen=True, gc=False):
    state: _StateOfJob | None = None


class _Job(msgspec.Struct, frozen=True, gc=False):
    """Source: Volcano, batch/v1alpha1 types.go (groups 2)."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _SpecOfJob | None = None
    status: _StatusOfJob | None = None


_NO_SPEC_OF_JOB: Final = _SpecOfJob()
_NO_STATUS_OF_JOB: Final = _StatusOfJob()
_NO_STATE: Final = _StateOfJob()


def _job(found: _Job) -> JobSpec:
    meta, state = found.metadata, (found.status or _NO_STATUS_OF_JOB).state or _NO_STATE
    return JobSpec(
        namespace=meta.namespace or "",
        name=meta.name,
        uid=meta.uid or "",
        queue=(found.spec or _NO_SPEC_OF_JOB).queue or DEFAULT_QUEUE,
        begun=(state.phase or "") not in _NOT_BEGUN,
    )


decode_job: Final = reading.reader("Job", _Job, _job)
