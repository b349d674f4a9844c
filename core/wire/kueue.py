"""Kueue's objects: from the API server's JSON, of v1beta1 and v1beta2, to the values of `core.kueue`.

Source: kubernetes-sigs/kueue v0.17, apis/kueue/v1beta1 and v1beta2: workload_types.go, admissioncheck_types.go,
resourceflavor_types.go.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from core.kueue import REPLACES, SLICE, Additions, AdmissionCheck, Check, Flavor, PodSet, Workload
from core.model import Pod, ReviewedPod, Toleration
from core.names import DEFAULT_SCHEDULER_NAME
from core.wire import reading
from core.wire.objects import Head, ObjectMeta, Time
from core.wire.pod_places import TolerationObject, constraints_of
from core.wire.pods import decode_pod
from core.wire.reviewed_pods import PodObject, pod_of

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class _PodSet(msgspec.Struct, frozen=True, gc=False):
    name: str = "main"
    count: _Count | None = 1
    template: msgspec.Raw = msgspec.Raw(b"{}")


class _Spec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    pod_sets: tuple[_PodSet, ...] | None = None
    priority: int | None = 0
    active: bool | None = True


class _Assignment(msgspec.Struct, frozen=True, gc=False):
    name: str = "main"
    count: _Count | None = None
    flavors: dict[str, str] | None = None


class _Admission(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    pod_set_assignments: tuple[_Assignment, ...] | None = None


class _Condition(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    type: str = ""
    status: str = ""
    last_transition_time: Time | None = None


class _Update(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    node_selector: dict[str, str] | None = None
    tolerations: tuple[TolerationObject, ...] | None = None


class _Check(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    state: str = ""
    last_transition_time: Time | None = None
    message: str | None = ""
    retry_count: _Count | None = 0
    pod_set_updates: tuple[_Update, ...] | None = None


class _Status(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    admission: _Admission | None = None
    conditions: tuple[_Condition, ...] | None = None
    admission_checks: tuple[dict[str, Any], ...] | None = None


class _WorkloadObject(msgspec.Struct, frozen=True, gc=False):
    metadata: ObjectMeta
    spec: _Spec = _Spec()
    status: _Status | None = None


_NO_STATUS: Final = _Status()
_TRUE: Final = "True"


def _workload(found: _WorkloadObject) -> Workload:
    meta, spec, status = found.metadata, found.spec, found.status or _NO_STATUS
    notes = meta.annotations or {}
    since = {one.type: _unix_s(one.last_transition_time) for one in status.conditions or () if one.status == _TRUE}
    assigned = {one.name: one for one in (status.admission.pod_set_assignments if status.admission else None) or ()}
    return Workload(
        namespace=meta.namespace or "",
        name=meta.name,
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        priority=spec.priority or 0,
        created_s=int(_unix_s(meta.creation_timestamp)),
        owners=frozenset(f"{one.kind}/{one.name}" for one in meta.owner_references or ()),
        pod_sets=tuple(_pod_set(one, assigned.get(one.name)) for one in spec.pod_sets or ()),
        has_quota="QuotaReserved" in since,
        admitted_s=since.get("Admitted", 0.0),
        is_evicted="Evicted" in since,
        is_over=spec.active is False or not since.keys().isdisjoint(("Finished", "Evicted")),
        checks=tuple(map(_check, status.admission_checks or ())),
        chain=notes.get(SLICE, ""),
        # Kueue stops the Job of an evicted Workload, and keeps the condition once there is quota again.
        replaces=notes.get(REPLACES, "") if all(one.type != "Evicted" for one in status.conditions or ()) else "",
    )


def _pod_set(found: _PodSet, assigned: _Assignment | None) -> PodSet:
    count = found.count if assigned is None or assigned.count is None else assigned.count
    flavors = (assigned.flavors if assigned is not None else None) or {}
    return PodSet(found.name, 1 if count is None else count, bytes(found.template), tuple(sorted({*flavors.values()})))


def _check(written: Mapping[str, Any]) -> Check:
    found = msgspec.convert(written, _Check)
    updates = {one.name: _additions(one) for one in found.pod_set_updates or ()}
    since_s = _unix_s(found.last_transition_time)
    return Check(found.name, found.state, since_s, found.retry_count or 0, found.message or "", updates, written)


def _additions(found: _Update) -> Additions:
    return Additions(
        selector=found.node_selector or {},
        tolerations=_tolerations(found.tolerations),
        labels=found.labels or {},
        annotations=found.annotations or {},
    )


def _tolerations(found: tuple[TolerationObject, ...] | None) -> tuple[Toleration, ...]:
    return constraints_of(None, None, found).tolerations


def _unix_s(time: Time | None) -> float:
    return time.timestamp() if time is not None else 0.0


decode_workload: Final = reading.reader("Workload", _WorkloadObject, _workload)
_decode_head: Final = reading.reader("Workload", Head, lambda found: found)


def salvage_workload(text: bytes) -> Workload:
    """Return a Workload that `decode_workload` cannot read; it needs no answer.

    Raises:
        InvalidRequestError: even its name is unreadable.
    """
    meta = _decode_head(text).metadata
    return Workload(meta.namespace, meta.name, meta.uid, meta.resource_version)


class _FlavorSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    node_labels: dict[str, str] | None = None
    tolerations: tuple[TolerationObject, ...] | None = None


class _FlavorObject(msgspec.Struct, frozen=True, gc=False):
    metadata: ObjectMeta
    spec: _FlavorSpec = _FlavorSpec()


def _flavor(found: _FlavorObject) -> Flavor:
    more = Additions(selector=found.spec.node_labels or {}, tolerations=_tolerations(found.spec.tolerations))
    return Flavor(found.metadata.name, more)


decode_flavor: Final = reading.reader("ResourceFlavor", _FlavorObject, _flavor)


class _CheckSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    controller_name: str = ""


class _CheckStatus(msgspec.Struct, frozen=True, gc=False):
    conditions: tuple[dict[str, Any], ...] | None = None


class _CheckObject(msgspec.Struct, frozen=True, gc=False):
    metadata: ObjectMeta
    spec: _CheckSpec = _CheckSpec()
    status: _CheckStatus | None = None


def _admission_check(found: _CheckObject) -> AdmissionCheck:
    conditions = (found.status.conditions if found.status else None) or ()
    active = any(one.get("type") == "Active" and one.get("status") == _TRUE for one in conditions)
    meta = found.metadata
    return AdmissionCheck(meta.name, found.spec.controller_name, meta.generation or 0, active, conditions)


decode_admission_check: Final = reading.reader("AdmissionCheck", _CheckObject, _admission_check)


class TemplatePod(NamedTuple):
    """The pod of a template, for placing and for the rules of admission.

    priority_class: the name of its PriorityClass, "" for none; the API server sets the priority from it.
    """

    pod: Pod
    reviewed: ReviewedPod
    priority_class: str = ""


class _TemplateSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    priority_class_name: str | None = ""


class _Template(msgspec.Struct, frozen=True, gc=False):
    spec: _TemplateSpec | None = None


_template_decoder: Final = reading.reader("pod template", PodObject, lambda found: found)
_priority_class_in: Final = reading.reader(
    "pod template", _Template, lambda found: (found.spec.priority_class_name if found.spec is not None else None) or ""
)


def pod_in(template: bytes, namespace: str) -> TemplatePod:
    """Return the pod of *template*, JSON, in *namespace*, as the API server sends it to webhooks.

    Raises:
        InvalidRequestError: it is not a template.
    """
    pod, reviewed = decode_pod(template), pod_of(_template_decoder(template), namespace)
    name = pod.scheduler_name or DEFAULT_SCHEDULER_NAME
    return TemplatePod(
        pod._replace(namespace=namespace, scheduler_name=name),
        reviewed._replace(scheduler_name=name),
        _priority_class_in(template),
    )
