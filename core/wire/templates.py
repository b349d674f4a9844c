"""Pod templates in workloads such as a Deployment, a Job or a Volcano Job.

Source: Kubernetes API reference, apps/v1 and batch/v1; Volcano, batch.volcano.sh/v1alpha1 Job.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from core.units import parse_int64
from core.wire import reading
from core.wire.objects import ObjectMeta
from core.wire.reviewed_pods import PodObject

# By group and kind: every existing version of a kind has its template at the same place.
KINDS: Final = frozenset(
    {
        ("apps", "Deployment"),
        ("apps", "ReplicaSet"),
        ("apps", "StatefulSet"),
        ("apps", "DaemonSet"),
        ("batch", "Job"),
        ("batch", "CronJob"),
        ("batch.volcano.sh", "Job"),
    }
)
# Enough for every task of a real job; the rest is judged as pods.
MAX_TASKS: Final = 64
# Default of a Deployment's maxSurge and maxUnavailable.
_DEFAULT_PART: Final = "25%"
_NO_ANNOTATIONS: Final[Mapping[str, str]] = MappingProxyType({})


class Template(NamedTuple):
    """One template with its place, and the number of pods that are created from it at a time, if known.

    least: minimum number of a task's pods that are placed together; None if absent. later: whether they are created
    only after others of the same workload are ready.
    """

    field: str
    pod: PodObject
    replicas: int = 1
    least: int | None = None
    later: bool = False


class Rollout(NamedTuple):
    """The start of a Deployment's rolling update.

    max_surge: as written, or its default. surge: number of new pods that are created beside the old ones. unavailable:
    number of old pods that are removed before the first new pod runs, and replaced by new ones.
    """

    max_surge: str
    surge: int
    unavailable: int


class _JobSpec(msgspec.Struct, frozen=True, gc=False):
    template: PodObject | None = None
    parallelism: int | None = None
    completions: int | None = None


class _JobTemplate(msgspec.Struct, frozen=True, gc=False):
    spec: _JobSpec | None = None


class _DependsOn(msgspec.Struct, frozen=True, gc=False):
    name: tuple[str, ...] | None = None


class _Task(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    template: PodObject | None = None
    replicas: int | None = None
    min_available: int | None = None
    depends_on: _DependsOn | None = None


class _RollingUpdate(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    max_surge: int | str | None = None
    max_unavailable: int | str | None = None


class _Strategy(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    type: str | None = None
    rolling_update: _RollingUpdate | None = None


class _Spec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    template: PodObject | None = None
    job_template: _JobTemplate | None = None
    tasks: tuple[_Task, ...] | None = None
    replicas: int | None = None
    parallelism: int | None = None
    completions: int | None = None
    min_available: int | None = None
    scheduler_name: str | None = None
    strategy: _Strategy | None = None


class _Workload(msgspec.Struct, frozen=True, gc=False):
    kind: str | None = None
    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec | None = None


class _Request(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    object: _Workload | None = None
    old_object: _Workload | None = None


class _Question(msgspec.Struct, frozen=True, gc=False):
    request: _Request


class ReviewedWorkload(NamedTuple):
    """The templates of a workload in its new and old state.

    deleting: it will create no more pods. made: created by a controller from a workload that is judged itself.
    annotations:
    its own, which its pods do not get. least: minimum number of a Volcano Job's pods that are placed together; None if
    absent, or if not all of its tasks were read. scheduler: that of its pods, if their template names none. rollout:
    None if it is not updated in this way.
    """

    templates: tuple[Template, ...]
    before: tuple[Template, ...]
    deleting: bool
    made: bool = False
    annotations: Mapping[str, str] = _NO_ANNOTATIONS
    least: int | None = None
    scheduler: str = ""
    rollout: Rollout | None = None


_decoder: Final = msgspec.json.Decoder(_Question)


def decode_workload(text: bytes | bytearray | memoryview) -> ReviewedWorkload:
    """Decode the templates in an AdmissionReview about a workload.

    Raises:
        InvalidRequestError: its object is not a workload.
    """
    try:
        found = _decoder.decode(text).request
    except reading.DECODE_ERRORS as e:
        raise reading.unreadable("workload", e) from e
    new = found.object
    return ReviewedWorkload(
        templates=_templates(new),
        before=_templates(found.old_object),
        deleting=new is not None and new.metadata.deletion_timestamp is not None,
        made=new is not None and any(one.controller for one in new.metadata.owner_references or ()),
        annotations=new.metadata.annotations or _NO_ANNOTATIONS if new is not None else _NO_ANNOTATIONS,
        least=_least(new.spec) if new is not None and new.spec is not None else None,
        scheduler=(new.spec.scheduler_name or "") if new is not None and new.spec is not None else "",
        rollout=_rollout(new.spec) if new is not None and new.kind == "Deployment" and new.spec is not None else None,
    )


def _least(spec: _Spec) -> int | None:
    return spec.min_available if 0 < len(spec.tasks or ()) <= MAX_TASKS else None


def _rollout(spec: _Spec) -> Rollout | None:
    """Return the start of a Deployment's update; None if it is not rolling, or if the API server rejects its figures.

    Source: kubernetes v1.36, pkg/controller/deployment/util `ResolveFenceposts`, and the defaults of apps/v1.
    """
    strategy = spec.strategy or _Strategy()
    if strategy.type not in (None, "", "RollingUpdate"):
        return None
    figures = strategy.rolling_update or _RollingUpdate()
    replicas = 1 if spec.replicas is None else spec.replicas
    max_surge = _DEFAULT_PART if figures.max_surge is None else figures.max_surge
    max_unavailable = _DEFAULT_PART if figures.max_unavailable is None else figures.max_unavailable
    surge, unavailable = _pods(max_surge, replicas, up=True), _pods(max_unavailable, replicas, up=False)
    if surge is None or unavailable is None:
        return None
    return Rollout(str(max_surge), surge, unavailable if surge or unavailable else 1)


def _pods(found: int | str, replicas: int, *, up: bool) -> int | None:
    """Return the number of pods in *found*, a count or a percentage such as ``25%`` of *replicas*; None if invalid."""
    if isinstance(found, int):
        return max(found, 0)
    percent = parse_int64(found.removesuffix("%")) if found.endswith("%") else None
    if percent is None or percent < 0:
        return None
    return -(-percent * replicas // 100) if up else percent * replicas // 100


def _templates(found: _Workload | None) -> tuple[Template, ...]:
    spec = found.spec if found is not None else None
    if spec is None:
        return ()
    listed: list[Template] = []
    if spec.template is not None:
        count = _at_a_time(spec) if spec.replicas is None else spec.replicas
        listed.append(Template("spec.template", spec.template, count))
    job = spec.job_template.spec if spec.job_template is not None else None
    if job is not None and job.template is not None:
        listed.append(Template("spec.jobTemplate.spec.template", job.template, _at_a_time(job)))
    for at, task in enumerate((spec.tasks or ())[:MAX_TASKS]):
        if task.template is not None:
            count = 1 if task.replicas is None else task.replicas
            later = task.depends_on is not None and bool(task.depends_on.name)
            listed.append(Template(f"spec.tasks[{at}].template", task.template, count, task.min_available, later))
    return tuple(listed)


def _at_a_time(job: _JobSpec | _Spec) -> int:
    """Return how many pods of a Job exist at once; 1 if the workload has no number."""
    parallelism = 1 if job.parallelism is None else job.parallelism
    return parallelism if job.completions is None else min(parallelism, job.completions)
