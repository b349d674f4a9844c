"""Plays Volcano's controller manager: its job controller, and the one that creates PodGroups for other pods.

It is an ordinary client. Groups 2 and 3 describe its behaviour, and `volcano_protocol` has its data. It reacts only to
the phases of PodGroups, not to their conditions, creation or deletion.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import structlog
import yaml

from sandbox.client import PODS, WORLD_FAILED, ApiClient, ApiStatusError, pod_path, within
from sandbox.players import objects
from sandbox.players import volcano_protocol as protocol
from sandbox.players.volcano_protocol import ENDED, ENDING, JobAction, JobPhase

Json = dict[str, Any]

JOBS: Final = "/apis/batch.volcano.sh/v1alpha1/jobs"
COMMANDS: Final = "/apis/bus.volcano.sh/v1alpha1/commands"
GROUPS: Final = "/apis/scheduling.volcano.sh/v1beta1/podgroups"
QUEUES: Final = "/apis/scheduling.volcano.sh/v1beta1/queues"
MIN_MEMBER: Final = "scheduling.volcano.sh/group-min-member"
PLAIN_QUEUE: Final = "scheduling.volcano.sh/queue-name"
_OWNERS: Final = {
    "ReplicaSet": "/apis/apps/v1/replicasets",
    "StatefulSet": "/apis/apps/v1/statefulsets",
    "DaemonSet": "/apis/apps/v1/daemonsets",
    "Job": "/apis/batch/v1/jobs",
}
_KINDS: Final = Path(__file__).parent / "volcano-crds.yaml"
_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_LOOK_EVERY_S: Final = 0.05
_SERVED_WITHIN_S: Final = 20.0
_AGAIN_S: Final = 0.2
_FIRST_RETRY_S: Final = 0.005
_OPEN: Final = ("", "Open")
_log: Final = structlog.get_logger()


class _SyncError(Exception):
    """A failed sync, which is retried; too many failures end the Job."""


@dataclass(slots=True)
class _Request:
    """An event of a Job or one of its pods."""

    event: str
    pod: Json | None = None
    action: JobAction | None = None


@dataclass(slots=True)
class _Known:
    """The state of one Job. shown: the state in its watch, which may be older than the last write."""

    job: Json
    shown: Json
    pods: dict[str, Json] = field(default_factory=dict)
    requests: deque[_Request] = field(default_factory=deque)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    failures: int = 0
    task: asyncio.Task[None] | None = None


class VolcanoControllers:
    """Both controllers. retries: how often a failed sync is retried, each time after twice the delay."""

    def __init__(self, client: ApiClient, *, retries: int = 15) -> None:
        self._client: Final = client
        self._retries: Final = retries
        self._jobs: Final[dict[str, _Known]] = {}
        self._groups: Final[dict[str, Json]] = {}
        self._queues: Final[dict[str, Json]] = {}
        # Pods that were seen before their Job.
        self._early: Final[dict[str, dict[str, Json]]] = {}
        self._plain: Final[set[str]] = set()

    async def run(self) -> None:
        """Play until cancelled; wait for kinds that are not installed."""
        async with asyncio.TaskGroup() as tasks:
            for path, seen in (
                (QUEUES, self._queue_seen),
                (GROUPS, self._group_seen),
                (JOBS, self._job_seen),
                (PODS, self._pod_seen),
            ):
                tasks.create_task(self._follow(path, seen, tasks), name=f"volcano {path}")

    async def command(self, namespace: str, job: str, action: JobAction) -> None:
        known = self._jobs[f"{namespace}/{job}"]
        self._ask(known, _Request("CommandIssued", action=action))

    # ------------------------------------------------------------------ what is seen

    async def _follow(
        self, path: str, seen: Callable[[str, Json, asyncio.TaskGroup], None], tasks: asyncio.TaskGroup
    ) -> None:
        async for event in self._client.follow(path):
            seen(event.type, event.object, tasks)

    def _queue_seen(self, what: str, queue: Json, tasks: asyncio.TaskGroup) -> None:
        if what == "DELETED":
            self._queues.pop(_key(queue), None)
        else:
            self._queues[_key(queue)] = queue

    def _group_seen(self, what: str, group: Json, tasks: asyncio.TaskGroup) -> None:
        key = _key(group)
        before = self._groups.get(key)
        if what == "DELETED":
            self._groups.pop(key, None)
            return
        self._groups[key] = group
        if before is None or _phase_of(before) == _phase_of(group):
            return
        owner: Json = next((one for one in group["metadata"].get("ownerReferences") or () if one.get("controller")), {})
        known = self._jobs.get(f"{group['metadata']['namespace']}/{owner.get('name')}")
        if known is not None:
            self._ask(known, _Request("Unknown" if _phase_of(group) == "Unknown" else "GroupPhase"))

    def _job_seen(self, what: str, job: Json, tasks: asyncio.TaskGroup) -> None:
        key, known = _key(job), self._jobs.get(_key(job))
        if what == "DELETED":
            if known is not None and known.task is not None:
                known.task.cancel()
            self._jobs.pop(key, None)
            return
        job = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", **job}
        if known is None or known.job["metadata"]["uid"] != job["metadata"]["uid"]:
            known = self._jobs[key] = _Known(job, job, self._early.pop(key, {}))
            known.task = tasks.create_task(self._work(key, known), name=f"job {key}")
            self._ask(known, _Request("OutOfSync"))
            return
        before, known.shown, known.job = known.shown, job, _newer(known.job, job)
        if before["spec"] != job["spec"] or _job_phase(before) != _job_phase(job):
            self._ask(known, _Request("OutOfSync"))

    def _pod_seen(self, what: str, pod: Json, tasks: asyncio.TaskGroup) -> None:
        annotations = pod["metadata"].get("annotations") or {}
        name = annotations.get(protocol.JOB_NAME)
        if name is None:
            if what == "ADDED":
                self._plain_seen(pod, tasks)
            return
        key = f"{pod['metadata']['namespace']}/{name}"
        known = self._jobs.get(key)
        pods = known.pods if known is not None else self._early.setdefault(key, {})
        before = pods.get(pod["metadata"]["name"])
        if what == "DELETED":
            if before is not None and before["metadata"]["uid"] == pod["metadata"]["uid"]:
                del pods[pod["metadata"]["name"]]
        else:
            pods[pod["metadata"]["name"]] = pod
        if known is not None and (event := _event_of(what, before, pod)):
            self._ask(known, _Request(event, pod))

    def _ask(self, known: _Known, request: _Request) -> None:
        known.requests.append(request)
        known.wake.set()

    # ------------------------------------------------------------------ Jobs

    async def _work(self, key: str, known: _Known) -> None:
        while True:
            await known.wake.wait()
            known.wake.clear()
            while known.requests:
                request = known.requests.popleft()
                try:
                    await self._act(known, request)
                    known.failures = 0
                except (_SyncError, *WORLD_FAILED) as e:
                    await self._fail(key, known, request, e)

    async def _fail(self, key: str, known: _Known, request: _Request, error: Exception) -> None:
        known.failures += 1
        if known.failures > self._retries and isinstance(error, _SyncError):
            _log.warning("a Job is terminated: its syncs fail", job=key, error=str(error))
            known.failures = 0
            await self._kill(known, JobPhase.TERMINATING, retain=("Succeeded", "Failed"))
            return
        await asyncio.sleep(min(_FIRST_RETRY_S * 2 ** (known.failures - 1), 82.0))
        known.requests.appendleft(request)

    async def _act(self, known: _Known, request: _Request) -> None:
        action = request.action or protocol.action_for(known.job, request.event, request.pod)
        phase = _job_phase(known.job)
        if phase in ENDED or phase in ENDING:
            if action is JobAction.RESUME and phase in (JobPhase.ABORTED, JobPhase.ABORTING):
                await self._restart(known)
            elif phase in ENDING:
                await self._sync(known)
            return
        match action:
            case JobAction.RESTART_JOB:
                await self._restart(known)
            case JobAction.RESTART_POD | JobAction.RESTART_TASK:
                await self._restart_some(known, request.pod, whole_task=action is JobAction.RESTART_TASK)
            case JobAction.ABORT:
                await self._kill(known, JobPhase.ABORTING, retain=("Succeeded", "Failed"))
            case JobAction.TERMINATE:
                await self._kill(known, JobPhase.TERMINATING, retain=("Succeeded", "Failed"))
            case JobAction.COMPLETE:
                await self._kill(known, JobPhase.COMPLETING, retain=("Succeeded", "Failed"))
            case _:
                await self._sync(known)

    async def _sync(self, known: _Known) -> None:
        """Run one sync, in the order of groups 2.1."""
        phase = _job_phase(known.job)
        if phase in ENDING:
            await self._settle(known, phase)
            return
        if known.job["spec"].get("queue") not in self._queues:
            raise _SyncError(f"queue {known.job['spec'].get('queue')} does not exist")
        if not _phase_text(known.job):
            await self._write(known, {"state": {"phase": JobPhase.PENDING}, "minAvailable": _least(known.job)})
        await self._have_group(known)
        if not self._is_open(known):
            # The counters stay unchanged while the gate is closed.
            return
        await self._have_pods(known)
        await self._settle(known, _job_phase(known.job))

    async def _settle(self, known: _Known, phase: JobPhase) -> None:
        counts = protocol.counted(self._own_pods(known))
        after = protocol.next_phase(known.job, phase, counts)
        status = {"state": {"phase": after}, "minAvailable": _least(known.job), **_zeros(known.job), **counts.status()}
        if after in ENDED and after is not phase:
            await self._write(known, status)
            await self._kill(known, after, retain=("Succeeded", "Failed"))
            return
        await self._write(known, status)

    def _own_pods(self, known: _Known) -> list[Json]:
        uid = known.job["metadata"]["uid"]
        return [
            pod
            for pod in known.pods.values()
            if any(one["uid"] == uid for one in pod["metadata"].get("ownerReferences") or ())
        ]

    def _is_open(self, known: _Known) -> bool:
        group = self._groups.get(f"{known.job['metadata']['namespace']}/{protocol.group_name(known.job)}")
        return group is not None and _phase_of(group) not in ("", "Pending")

    async def _have_group(self, known: _Known) -> None:
        namespace = known.job["metadata"]["namespace"]
        path = within(GROUPS, namespace)
        group = self._groups.get(f"{namespace}/{protocol.group_name(known.job)}")
        wanted = protocol.group_object(known.job)
        if group is None:
            queue = self._queues[known.job["spec"]["queue"]]
            state = (queue.get("status") or {}).get("state", "")
            if state not in _OPEN:
                # The answer of Volcano's webhook (groups 5).
                raise _SyncError(f"PodGroup refused: queue {queue['metadata']['name']} is {state}")
            try:
                made = await self._client.create(path, wanted)
            except ApiStatusError as e:
                if e.reason != "AlreadyExists":
                    raise _SyncError(str(e)) from e
            else:
                self._groups.setdefault(_key(made), made)
            return
        changes = {name: value for name, value in wanted["spec"].items() if group["spec"].get(name) != value}
        if changes:
            body = {"metadata": {"resourceVersion": group["metadata"]["resourceVersion"]}, "spec": changes}
            try:
                self._groups[_key(group)] = await self._client.patch(f"{path}/{group['metadata']['name']}", body)
            except ApiStatusError as e:
                if e.status == 409:
                    raise _SyncError("the PodGroup changed meanwhile") from e
                raise

    async def _have_pods(self, known: _Known) -> None:
        wanted = {name: (task, index) for task, index, name in protocol.wanted_pods(known.job)}
        for name, (task, index) in wanted.items():
            if name not in known.pods:
                await self._make_pod(known, protocol.pod_object(known.job, task, index))
        for name, pod in list(known.pods.items()):
            if (name not in wanted or protocol.is_marked(pod)) and not pod["metadata"].get("deletionTimestamp"):
                await self._delete_pod(pod)

    async def _make_pod(self, known: _Known, pod: Json) -> None:
        try:
            made = await self._client.create(within(PODS, known.job["metadata"]["namespace"]), pod)
        except ApiStatusError as e:
            if e.status == 409:
                return  # it exists already; its watch is behind
            raise _SyncError(str(e)) from e
        known.pods.setdefault(made["metadata"]["name"], made)

    async def _restart(self, known: _Known) -> None:
        status = known.job.get("status") or {}
        retries = int(status.get("retryCount", 0)) + 1
        last = retries >= int(known.job["spec"]["maxRetry"])
        retain = ("Succeeded", "Failed") if last else ()
        await self._kill(known, JobPhase.RESTARTING, retain=retain, more={"retryCount": retries})
        await self._sync(known)

    async def _restart_some(self, known: _Known, pod: Json | None, *, whole_task: bool) -> None:
        """Delete one pod, or those of its task; the group stays unchanged."""
        if pod is None:
            return
        chosen = [
            one
            for one in self._own_pods(known)
            if one["metadata"]["name"] == pod["metadata"]["name"]
            or (whole_task and protocol.task_of(one) == protocol.task_of(pod))
        ]
        for one in chosen:
            await self._mark_and_delete(one)
        retries = int((known.job.get("status") or {}).get("retryCount", 0)) + 1
        await self._write(known, {"retryCount": retries})
        await self._sync(known)

    async def _kill(self, known: _Known, phase: JobPhase, *, retain: tuple[str, ...], more: Json | None = None) -> None:
        """Delete the pods, except those in a phase to *retain*, and the PodGroup; start the next version of the Job."""
        leaving = []
        for pod in self._own_pods(known):
            phase_of_pod = (pod.get("status") or {}).get("phase")
            if phase_of_pod in retain:
                continue
            if phase_of_pod not in ("Succeeded", "Failed"):
                leaving.append(pod)  # a finished pod is removed at once
            if not pod["metadata"].get("deletionTimestamp"):
                await self._mark_and_delete(pod)
        namespace = known.job["metadata"]["namespace"]
        name = protocol.group_name(known.job)
        with contextlib.suppress(ApiStatusError):
            await self._client.delete(f"{within(GROUPS, namespace)}/{name}")
        self._groups.pop(f"{namespace}/{name}", None)
        status = {
            "state": {"phase": phase},
            "version": int((known.job.get("status") or {}).get("version", 0)) + 1,
            **_zeros(known.job),
            **({"terminating": len(leaving)} if leaving else {}),
            **(more or {}),
        }
        await self._write(known, status)

    async def _mark_and_delete(self, pod: Json) -> None:
        with contextlib.suppress(ApiStatusError):
            await objects.annotate(self._client, pod_path(pod), {protocol.OUT_OF_SYNC: "true"})
        await self._delete_pod(pod)

    async def _delete_pod(self, pod: Json) -> None:
        with contextlib.suppress(ApiStatusError):
            left = await self._client.delete(pod_path(pod), uid=pod["metadata"]["uid"])
            if left.get("kind") == "Pod":
                pod["metadata"] = {**pod["metadata"], "deletionTimestamp": left["metadata"].get("deletionTimestamp")}

    async def _write(self, known: _Known, status: Mapping[str, Any]) -> None:
        """Write the changed parts of *status*; None removes."""
        before = known.job.get("status") or {}
        changes = {name: value for name, value in status.items() if before.get(name) != value}
        if not changes:
            return
        metadata = known.job["metadata"]
        path = f"{within(JOBS, metadata['namespace'])}/{metadata['name']}/status"
        known.job = _newer(known.job, await self._client.patch(path, {"status": changes}))

    # ------------------------------------------------------------------ other pods

    def _plain_seen(self, pod: Json, tasks: asyncio.TaskGroup) -> None:
        """Create a group for a pod of Volcano's scheduler that names none (groups 3)."""
        annotations = pod["metadata"].get("annotations") or {}
        uid = pod["metadata"]["uid"]
        named = pod["spec"].get("schedulerName") == protocol.SCHEDULER and protocol.GROUP_NAME not in annotations
        if named and uid not in self._plain:
            self._plain.add(uid)
            tasks.create_task(self._insist(lambda: self._group_plain(pod)), name=f"group of {_key(pod)}")

    async def _insist(self, act: Callable[[], Awaitable[None]]) -> None:
        """Repeat until Volcano's kinds are installed and the pod exists."""
        for _ in range(self._retries):
            try:
                await act()
            except WORLD_FAILED:
                await asyncio.sleep(_AGAIN_S)
            else:
                return

    async def _group_plain(self, pod: Json) -> None:
        metadata = pod["metadata"]
        references = metadata.get("ownerReferences") or []
        owner = next((one for one in references if one.get("controller")), None)
        name = f"podgroup-{owner['uid'] if owner else metadata['uid']}"
        least = await self._least_of(metadata["namespace"], owner)
        amounts = {key: amount * least for key, amount in protocol.usage(pod["spec"]).items()}
        annotations = metadata.get("annotations") or {}
        mine = {**protocol.owner_reference({"apiVersion": "v1", "kind": "Pod", **pod})}
        group = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {
                "name": name,
                "namespace": metadata["namespace"],
                "ownerReferences": references if owner else [mine],
            },
            "spec": {
                "minMember": least,
                "queue": annotations.get(PLAIN_QUEUE, "default"),
                "minResources": protocol.rendered(amounts),
            },
            "status": {"phase": "Pending"},
        }
        try:
            await self._client.create(within(GROUPS, metadata["namespace"]), group)
        except ApiStatusError as e:
            if e.status != 409:
                raise
        try:
            await objects.annotate(self._client, pod_path(pod), {protocol.GROUP_NAME: name})
        except ApiStatusError as e:
            if e.status != 404:
                raise

    async def _least_of(self, namespace: str, owner: Mapping[str, Any] | None) -> int:
        collection = _OWNERS.get(owner["kind"]) if owner is not None else None
        if owner is None or collection is None:
            return 1
        with contextlib.suppress(ApiStatusError, ValueError):
            found = await self._client.get(f"{within(collection, namespace)}/{owner['name']}")
            return int((found["metadata"].get("annotations") or {}).get(MIN_MEMBER, 1))
        return 1


def _key(found: Mapping[str, Any]) -> str:
    metadata = found["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else str(metadata["name"])


def _phase_of(group: Mapping[str, Any]) -> str:
    return str((group.get("status") or {}).get("phase", ""))


def _phase_text(job: Mapping[str, Any]) -> str:
    return str(((job.get("status") or {}).get("state") or {}).get("phase", ""))


def _job_phase(job: Mapping[str, Any]) -> JobPhase:
    return JobPhase(_phase_text(job) or JobPhase.PENDING)


def _least(job: Mapping[str, Any]) -> int:
    return int(job["spec"]["minAvailable"])


def _zeros(job: Mapping[str, Any]) -> Json:
    """Return the current counters of a Job, set to None."""
    status = job.get("status") or {}
    return {name: None for name in ("pending", "running", "succeeded", "failed", "terminating") if name in status}


def _newer(known: Json, found: Json) -> Json:
    """Return the newer one, because a write's answer can be newer than the watch."""
    older = int(found["metadata"]["resourceVersion"]) < int(known["metadata"]["resourceVersion"])
    return known if older else deepcopy(found)


def _event_of(what: str, before: Mapping[str, Any] | None, pod: Mapping[str, Any]) -> str:
    """Return Volcano's event for that change of a pod; "" if there is none."""
    if what == "DELETED":
        return "PodDeleted" if protocol.is_marked(pod) else "PodEvicted"
    phase = (pod.get("status") or {}).get("phase", "Pending")
    if before is None:
        return "PodPending"
    if (before.get("status") or {}).get("phase", "Pending") == phase:
        return (
            "PodUpdated"
            if bool(before["metadata"].get("deletionTimestamp")) != bool(pod["metadata"].get("deletionTimestamp"))
            else ""
        )
    return {"Running": "PodRunning", "Failed": "PodFailed", "Succeeded": "TaskCompleted"}.get(phase, "PodUpdated")


def definitions() -> tuple[dict[str, Any], ...]:
    """Return the CustomResourceDefinitions of PodGroup, Queue and Job."""
    return tuple(yaml.safe_load_all(_KINDS.read_text(encoding="utf-8")))


async def install(client: ApiClient) -> None:
    """Install missing definitions, and wait until they are served.

    Raises:
        ApiStatusError: the server refuses.
        TimeoutError: it does not serve them.
    """
    for definition in await asyncio.to_thread(definitions):
        await client.ensure(_DEFINITIONS, definition)
    async with asyncio.timeout(_SERVED_WITHIN_S):
        for path in (JOBS, GROUPS, QUEUES):
            while not await _is_served(client, path):  # noqa: ASYNC110 (there is no event to wait for)
                await asyncio.sleep(_LOOK_EVERY_S)


async def _is_served(client: ApiClient, path: str) -> bool:
    with contextlib.suppress(ApiStatusError):
        await client.get(path)
        return True
    return False
