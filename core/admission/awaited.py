"""The pod of a template after admission, for pods that do not exist yet."""

from core.admission.mutate import judge_new
from core.admission.rulebook import Rulebook
from core.admission.verdict import SPEC
from core.model import Container, Pod, ReviewedPod
from core.port.refusals import Violation


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
