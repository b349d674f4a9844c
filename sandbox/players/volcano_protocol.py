"""The data of Volcano's job controller: Jobs, their PodGroups and pods; pure.

Source: volcano-sh/volcano, pkg/controllers/job and pkg/webhooks/admission/jobs (groups 1.2, 1.7, 2, 5).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

from sandbox.api.quantities import canonical, value_of

Json = dict[str, Any]

SCHEDULER: Final = "volcano"
GROUP_NAME: Final = "scheduling.k8s.io/group-name"
JOB_NAME: Final = "volcano.sh/job-name"
JOB_NAMESPACE: Final = "volcano.sh/job-namespace"
JOB_VERSION: Final = "volcano.sh/job-version"
JOB_RETRIES: Final = "volcano.sh/job-retry-count"
TASK: Final = "volcano.sh/task-spec"
TASK_INDEX: Final = "volcano.sh/task-index"
PARTITION: Final = "volcano.sh/partition-id"
QUEUE_NAME: Final = "volcano.sh/queue-name"
TEMPLATE_UID: Final = "volcano.sh/template-uid"
OUT_OF_SYNC: Final = "volcano.sh/controller-out-of-sync"
_COPIED: Final = ("volcano.sh/preemptable", "volcano.sh/cooldown-time")
_MAX_RETRY: Final = 3


class JobPhase(StrEnum):
    """status.state.phase of a Job."""

    PENDING = "Pending"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    COMPLETING = "Completing"
    COMPLETED = "Completed"
    ABORTING = "Aborting"
    ABORTED = "Aborted"
    TERMINATING = "Terminating"
    TERMINATED = "Terminated"
    FAILED = "Failed"


# Final phases of a Job, unless a Command changes them.
ENDED: Final = frozenset({JobPhase.COMPLETED, JobPhase.FAILED, JobPhase.TERMINATED, JobPhase.ABORTED})
# Phases of an ending Job, and the final phase of each.
ENDING: Final = {
    JobPhase.COMPLETING: JobPhase.COMPLETED,
    JobPhase.TERMINATING: JobPhase.TERMINATED,
    JobPhase.ABORTING: JobPhase.ABORTED,
}


class JobAction(StrEnum):
    """The action of a policy or a Command; without a policy it is `SYNC`."""

    SYNC = "SyncJob"
    RESTART_JOB = "RestartJob"
    RESTART_TASK = "RestartTask"
    RESTART_POD = "RestartPod"
    ABORT = "AbortJob"
    TERMINATE = "TerminateJob"
    COMPLETE = "CompleteJob"
    RESUME = "ResumeJob"


@dataclass(slots=True)
class Counts:
    """Pods of a Job by phase, and succeeded pods of each task."""

    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    terminating: int = 0
    succeeded_of: dict[str, int] = field(default_factory=dict)

    def status(self) -> Json:
        """Return the counters in the form of a Job's status: without zeros."""
        found = {
            "pending": self.pending,
            "running": self.running,
            "succeeded": self.succeeded,
            "failed": self.failed,
            "terminating": self.terminating,
        }
        return {name: count for name, count in found.items() if count}


def defaulted(job: Mapping[str, Any]) -> Json:
    """Return *job* with the defaults of Volcano's webhook at creation."""
    found = deepcopy(dict(job))
    spec = found["spec"]
    spec.setdefault("queue", "default")
    spec.setdefault("schedulerName", SCHEDULER)
    spec.setdefault("maxRetry", _MAX_RETRY)
    for at, task in enumerate(spec["tasks"]):
        task.setdefault("name", f"default{at}")
        task.setdefault("replicas", 1)
        task.setdefault("minAvailable", task["replicas"])
        task.setdefault("maxRetry", _MAX_RETRY)
    if not spec.get("minAvailable"):
        spec["minAvailable"] = sum(task["minAvailable"] for task in spec["tasks"])
    return found


def replicas(job: Mapping[str, Any]) -> int:
    """Return how many pods *job* wants."""
    return sum(int(task.get("replicas", 0)) for task in job["spec"]["tasks"])


def group_name(job: Mapping[str, Any]) -> str:
    return f"{job['metadata']['name']}-{job['metadata']['uid']}"


def owner_reference(owner: Mapping[str, Any]) -> Json:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def group_spec(job: Mapping[str, Any]) -> Json:
    spec = job["spec"]
    found: Json = {
        "minMember": spec["minAvailable"],
        "minTaskMember": {task["name"]: task.get("minAvailable", task["replicas"]) for task in spec["tasks"]},
        "queue": spec["queue"],
        "minResources": min_resources(job),
    }
    if spec.get("priorityClassName"):
        found["priorityClassName"] = spec["priorityClassName"]
    if spec.get("networkTopology"):
        found["networkTopology"] = spec["networkTopology"]
    policies: list[Json] = [_sub_groups(task) for task in spec["tasks"] if task.get("partitionPolicy")]
    return found | ({"subGroupPolicy": policies} if policies else {})


def _sub_groups(task: Mapping[str, Any]) -> Json:
    policy = task["partitionPolicy"]
    near = {"networkTopology": policy["networkTopology"]} if policy.get("networkTopology") else {}
    return {
        "name": task["name"],
        "subGroupSize": policy.get("partitionSize"),
        "minSubGroups": policy.get("minPartitions", 0),
        "labelSelector": {"matchLabels": {TASK: task["name"]}},
        "matchLabelKeys": [PARTITION],
        **near,
    }


def group_object(job: Mapping[str, Any]) -> Json:
    """Return its new PodGroup, without a status."""
    metadata = job["metadata"]
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {
            "name": group_name(job),
            "namespace": metadata["namespace"],
            "annotations": dict(metadata.get("annotations") or {}),
            "labels": dict(metadata.get("labels") or {}),
            "ownerReferences": [owner_reference(job)],
        },
        "spec": group_spec(job),
    }


def min_resources(job: Mapping[str, Any]) -> Json:
    """Return the requests of its minimum of pods, as a ResourceQuota would count them (groups 2.3)."""
    tasks = sorted(job["spec"]["tasks"], key=lambda task: -_priority(task))
    wanted = int(job["spec"]["minAvailable"])
    chosen: list[Mapping[str, Any]] = []
    least = [task.get("minAvailable", task["replicas"]) for task in tasks]
    if wanted < sum(least):
        for task in tasks:
            chosen += [task] * task["replicas"]
    else:
        for task, count in zip(tasks, least, strict=True):
            chosen += [task] * count
        for task, count in zip(tasks, least, strict=True):
            chosen += [task] * (task["replicas"] - count)
    sums: dict[str, Decimal] = {}
    for task in chosen[:wanted]:
        for name, amount in usage(task["template"]["spec"]).items():
            sums[name] = sums.get(name, Decimal(0)) + amount
    return rendered(sums)


def rendered(amounts: Mapping[str, Decimal]) -> Json:
    """Return amounts as the API server writes them."""
    return {name: canonical(f"{amount:f}") for name, amount in amounts.items()}


def _priority(task: Mapping[str, Any]) -> int:
    return int(task["template"]["spec"].get("priority") or 0)


def usage(spec: Mapping[str, Any]) -> dict[str, Decimal]:
    """Return what one pod of *spec* counts in a ResourceQuota; limits are not copied to requests (groups G5)."""
    found: dict[str, Decimal] = {"pods": Decimal(1), "count/pods": Decimal(1)}
    for container in spec.get("containers") or ():
        resources = container.get("resources") or {}
        for name, text in (resources.get("requests") or {}).items():
            for key in _counted_as(name):
                found[key] = found.get(key, Decimal(0)) + value_of(text)
        for name, text in (resources.get("limits") or {}).items():
            if name in ("cpu", "memory", "ephemeral-storage"):
                key = f"limits.{name}"
                found[key] = found.get(key, Decimal(0)) + value_of(text)
    return found


def _counted_as(name: str) -> tuple[str, str]:
    return name, f"requests.{name}"


def pod_name(job: Mapping[str, Any], task: str, index: int) -> str:
    """Return ``<job>-<task>-<index>``."""
    return f"{job['metadata']['name']}-{task}-{index}"


def pod_object(job: Mapping[str, Any], task: Mapping[str, Any], index: int) -> Json:
    template, metadata, status = task["template"], job["metadata"], job.get("status") or {}
    spec = deepcopy(dict(template["spec"]))
    spec.setdefault("schedulerName", job["spec"]["schedulerName"])
    if job["spec"].get("priorityClassName"):
        spec.setdefault("priorityClassName", job["spec"]["priorityClassName"])
    given = template.get("metadata") or {}
    both = {
        JOB_NAME: metadata["name"],
        TASK: task["name"],
        TASK_INDEX: str(index),
        QUEUE_NAME: job["spec"]["queue"],
    }
    ours = {
        GROUP_NAME: group_name(job),
        JOB_VERSION: str(status.get("version", 0)),
        JOB_RETRIES: str(status.get("retryCount", 0)),
        TEMPLATE_UID: f"{metadata['name']}-{task['name']}",
    }
    if task.get("topologyPolicy"):
        ours["volcano.sh/numa-topology-policy"] = task["topologyPolicy"]
    size = (task.get("partitionPolicy") or {}).get("partitionSize")
    partition = {PARTITION: str(index // size)} if size else {}
    copied = {key: value for key in _COPIED if (value := (metadata.get("annotations") or {}).get(key))}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(job, task["name"], index),
            "namespace": metadata["namespace"],
            "annotations": {**(given.get("annotations") or {}), **both, **ours, **copied},
            "labels": {**(given.get("labels") or {}), **both, **partition, JOB_NAMESPACE: metadata["namespace"]},
            "ownerReferences": [owner_reference(job)],
        },
        "spec": spec,
    }


def wanted_pods(job: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], int, str]]:
    """Yield (task, index, name) of all its pods."""
    for task in job["spec"]["tasks"]:
        for index in range(int(task["replicas"])):
            yield task, index, pod_name(job, task["name"], index)


def is_marked(pod: Mapping[str, Any]) -> bool:
    """Return whether the controller is about to delete *pod* itself."""
    return bool((pod["metadata"].get("annotations") or {}).get(OUT_OF_SYNC) == "true")


def task_of(pod: Mapping[str, Any]) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(TASK, ""))


def version_of(pod: Mapping[str, Any]) -> int:
    """Return the version of the Job for which *pod* was created."""
    return int((pod["metadata"].get("annotations") or {}).get(JOB_VERSION, 0))


def counted(pods: Sequence[Mapping[str, Any]]) -> Counts:
    """Return *pods* by phase; a pod being deleted is terminating until it has finished."""
    found = Counts()
    for pod in pods:
        phase = (pod.get("status") or {}).get("phase", "Pending")
        if phase == "Succeeded":
            found.succeeded += 1
            found.succeeded_of[task_of(pod)] = found.succeeded_of.get(task_of(pod), 0) + 1
        elif phase == "Failed":
            found.failed += 1
        elif pod["metadata"].get("deletionTimestamp"):
            found.terminating += 1
        elif phase == "Running":
            found.running += 1
        else:
            found.pending += 1
    return found


def next_phase(job: Mapping[str, Any], phase: JobPhase, counts: Counts) -> JobPhase:
    """Return the next phase of a Job in *phase* with such pods (groups 2.4)."""
    spec, total = job["spec"], replicas(job)
    least, done = int(spec["minAvailable"]), counts.succeeded + counts.failed
    retries = int((job.get("status") or {}).get("retryCount", 0))
    match phase:
        case JobPhase.PENDING:
            return JobPhase.RUNNING if least <= counts.running + done else phase
        case JobPhase.RUNNING:
            if total == 0:
                return phase
            if spec.get("minSuccess") and counts.succeeded >= spec["minSuccess"]:
                return JobPhase.COMPLETED
            if done == total:
                return JobPhase.COMPLETED if _is_success(job, counts) else JobPhase.FAILED
            return JobPhase.PENDING if counts.pending > total - least else phase
        case JobPhase.RESTARTING:
            if retries >= int(spec["maxRetry"]):
                return JobPhase.FAILED
            return JobPhase.PENDING if total - counts.terminating >= least else phase
        case _:
            busy = counts.terminating + counts.pending + counts.running
            return ENDING[phase] if phase in ENDING and not busy else phase


def _is_success(job: Mapping[str, Any], counts: Counts) -> bool:
    spec = job["spec"]
    least = {task["name"]: task.get("minAvailable", task["replicas"]) for task in spec["tasks"]}
    if counts.succeeded < int(spec["minAvailable"]):
        return False
    if int(spec["minAvailable"]) < sum(least.values()):
        return True
    return all(counts.succeeded_of.get(name, 0) >= count for name, count in least.items())


def action_for(job: Mapping[str, Any], event: str, pod: Mapping[str, Any] | None) -> JobAction:
    """Return the action for *event* of *pod* or the group: a task's policies precede the Job's (groups 2.5)."""
    version = int((job.get("status") or {}).get("version", 0))
    if (version_of(pod) if pod is not None else 0) < version:
        return JobAction.SYNC
    task = next((one for one in job["spec"]["tasks"] if pod is not None and one["name"] == task_of(pod)), None)
    for policies in ((task or {}).get("policies") or (), job["spec"].get("policies") or ()):
        for policy in policies:
            events = {policy.get("event"), *(policy.get("events") or ())}
            if event in events or "*" in events or _exited(pod, event) == policy.get("exitCode", "none"):
                return JobAction(policy["action"]) if policy["action"] in {*JobAction} else JobAction.SYNC
    return JobAction.SYNC


def _exited(pod: Mapping[str, Any] | None, event: str) -> int | None:
    if pod is None or event != "PodFailed":
        return None
    statuses = (pod.get("status") or {}).get("containerStatuses") or [{}]
    ended = (statuses[0].get("state") or {}).get("terminated") or {}
    code = ended.get("exitCode")
    return int(code) if code is not None else None
