"""Judges manifest files by the admission rules without a cluster, with locations in the file, and yields their pods.

The pods do not exist yet; they are as the webhook would store them.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from core.admission.mutate import judge_at_once, judge_new, unreadable
from core.admission.rulebook import Rulebook
from core.admission.templates import judge_workload
from core.admission.verdict import SPEC, Verdict
from core.errors import ConfigError, InvalidRequestError, quoted
from core.model import Container, Pod, ReviewedPod
from core.port.refusals import Violation
from core.wire import templates
from core.wire.manifests import Manifest, review_of
from core.wire.pods import pod_from_object
from core.wire.reviewed_pods import pod_of
from core.wire.reviews import decode_review
from core.wire.templates import decode_workload

_POD: Final = ("", "Pod")


class ManifestFinding(NamedTuple):
    """One line for people, and whether the API server would reject the object."""

    where: str
    text: str
    denied: bool


def is_judged(one: Manifest) -> bool:
    """Return whether *one* is a pod or a workload with a spec."""
    return bool(one.value.get("spec")) and _makes_pods(one)


def lacks_spec(one: Manifest) -> bool:
    """Return whether *one* is a pod or a workload without a spec, which no API server accepts."""
    return not one.value.get("spec") and _makes_pods(one)


def _makes_pods(one: Manifest) -> bool:
    return _kind(one) == _POD or _kind(one) in templates.KINDS


def _kind(one: Manifest) -> tuple[str, str]:
    return str(one.value.get("apiVersion") or "").rpartition("/")[0], str(one.value.get("kind") or "")


def judge(one: Manifest, where: str, book: Rulebook, namespace: str) -> Iterator[ManifestFinding]:
    """Yield the findings on *one* at *where*, in *namespace* if it names none."""
    kind = _kind(one)[1]
    metadata = one.value.get("metadata")
    named = metadata if isinstance(metadata, dict) else {}
    name = str(named.get("name") or named.get("generateName") or "")
    what = f"{kind} {quoted(name, 253)[1:-1]}"
    verdict = _verdict(
        review_of(one.value, namespace), str(named.get("namespace") or namespace), book, is_pod=_kind(one) == _POD
    )
    if not verdict.allowed:
        yield ManifestFinding(where, f"{what}: denied: {verdict.message}", True)
    for warning in verdict.warnings:
        yield ManifestFinding(where, f"{what}: warning: {warning}", False)


def _verdict(review: bytes, namespace: str, book: Rulebook, *, is_pod: bool) -> Verdict:
    try:
        return (
            judge_at_once(decode_review(review), book)
            if is_pod
            else judge_workload(decode_workload(review), namespace, book)
        )
    except InvalidRequestError as e:
        return unreadable(e)


def pods_of(manifest: Manifest, book: Rulebook, namespace: str) -> Iterator[Pod]:
    """Yield one pod of each template in *manifest*, always in *namespace*; nothing for other kinds.

    Raises:
        InvalidRequestError: it is unreadable.
        ConfigError: admission would deny it.
    """
    if not is_judged(manifest):
        return
    for template in templates_of(manifest):
        metadata = {**_mapping(template.get("metadata")), "namespace": namespace}
        metadata.setdefault("name", "pod")
        made = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": _mapping(template.get("spec"))}
        reviewed = decode_review(review_of(made, namespace)).object
        if reviewed is None:
            continue
        pod = pod_to_come(pod_from_object(made), pod_of(reviewed, namespace), book)
        if not isinstance(pod, Pod):
            raise ConfigError([f"admission denies it: {'; '.join(map(str, pod))}"])
        yield pod


def templates_of(manifest: Manifest) -> Iterator[Mapping[str, Any]]:
    """Yield the pod templates in *manifest*, in the order of `pods_of`; a pod is its own template."""
    if manifest.value.get("kind") == "Pod":
        yield manifest.value
        return
    spec = manifest.value.get("spec")
    job = _mapping(_mapping(spec).get("jobTemplate")).get("spec")
    spec = _mapping(job or spec)
    tasks = spec.get("tasks")
    for one in tasks if isinstance(tasks, list) else [spec]:
        yield _mapping(_mapping(one).get("template"))


def _mapping(found: Any) -> Mapping[str, Any]:
    return found if isinstance(found, dict) else {}


def pod_to_come(pod: Pod, reviewed: ReviewedPod, book: Rulebook) -> Pod | tuple[Violation, ...]:
    """Return *pod* as the webhook would store it, or why it would be denied; *reviewed*: the same pod for admission."""
    judged = judge_new(reviewed, "", book)
    if judged.verdict.violations:
        return judged.verdict.violations
    new = judged.pod or reviewed
    scheduler_name = pod.scheduler_name
    for edit in judged.verdict.edits:
        if edit.place == SPEC:
            scheduler_name = edit.values.get("schedulerName") or scheduler_name
    return pod._replace(
        scheduler_name=scheduler_name,
        labels=new.labels,
        annotations=new.annotations,
        containers=tuple(map(_completed, pod.containers, new.containers)),
        init_containers=tuple(map(_completed, pod.init_containers, new.init_containers)),
    )


def _completed(old: Container, new: Container) -> Container:
    """Return *old* with the resources of *new*; the API server derives missing requests from limits."""
    return old._replace(limits=new.limits, requests={**new.limits, **new.requests})
