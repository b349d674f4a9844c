"""Plays Volcano's Jobs against a cluster: applies them, lets their containers end, and judges their outcomes.

The format of `outcomes.yaml` is `DeclaredJob` in YAML. `sandbox.players.volcano` plays Volcano's controllers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from sandbox.client import PODS, ApiClient, ApiStatusError, pod_path, within
from sandbox.demo.examples import ExampleError
from sandbox.demo.play import ExampleVerdict
from sandbox.nodes.kubelet import RUN_SECONDS
from sandbox.players import volcano_protocol as protocol
from sandbox.players.volcano import GROUPS, JOBS, QUEUES, VolcanoControllers

Json = dict[str, Any]

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs" / "examples" / "volcano-jobs"
_OUTCOMES: Final = "outcomes.yaml"
_ENDS_AFTER_S: Final = "1.5"


class DeclaredJob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The expected outcome of one Job: its phases in order, and how many pods run on which nodes (patterns).

    apart: a Job whose pods never run at the same time as this one's, or "".
    """

    job: str
    phases: tuple[str, ...]
    pods: int
    node: str | tuple[str, ...]
    apart: str = ""

    @property
    def nodes(self) -> tuple[str, ...]:
        """The patterns of the nodes."""
        return (self.node,) if isinstance(self.node, str) else self.node


@dataclass(slots=True)
class _Seen:
    """The observations of one Job: its phases in order, the nodes of its running pods, and Jobs with pods beside it.

    left: the final state of its PodGroup and its pods, if it did not end as expected.
    """

    phases: list[str] = field(default_factory=list)
    nodes: tuple[str, ...] = ()
    beside: frozenset[str] = frozenset()
    left: str = ""


def read(folder: Path = FOLDER) -> tuple[tuple[Json, ...], tuple[DeclaredJob, ...]]:
    """Return the manifests of *folder*, queues first, and the expected outcomes of its Jobs.

    Raises:
        ExampleError: a file cannot be read, or has unknown content.
    """
    manifests: list[Json] = []
    for path in sorted(folder.glob("*.yaml")):
        if path.name != _OUTCOMES:
            manifests += [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document]
    manifests.sort(key=lambda one: one["kind"] != "Queue")
    path = folder / _OUTCOMES
    entries = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
    jobs = {one["metadata"]["name"] for one in manifests if one["kind"] == "Job"}
    try:
        declared = msgspec.convert([{"job": name, **entry} for name, entry in entries.items()], tuple[DeclaredJob, ...])
    except msgspec.ValidationError as e:
        raise ExampleError(f"{path}: {e}") from e
    if entries.keys() != jobs or not {one.apart for one in declared} <= {"", *jobs}:
        raise ExampleError(f"{path}: write phases, pods and node of {', '.join(sorted(jobs))}, and of no other")
    return tuple(manifests), declared


@asynccontextmanager
async def controllers(client: ApiClient) -> AsyncIterator[None]:
    """Run Volcano's controllers inside this context."""
    task = asyncio.create_task(VolcanoControllers(client).run(), name="volcano")
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def play(
    client: ApiClient,
    manifests: tuple[Json, ...],
    declared: tuple[DeclaredJob, ...],
    *,
    within_s: float,
    tell: Callable[[str], None] = lambda line: None,
) -> tuple[ExampleVerdict, ...]:
    """Apply all *manifests* at once and wait until every Job has passed its phases; return the verdict on each.

    Args:
        client: of an administrator; Volcano's kinds are installed, and its controllers run.
        manifests: queues and Jobs, as users write them.
        declared: the expected outcomes of the Jobs.
        within_s: time limit.
        tell: receives a line for people at each change of a Job's phase.
    """
    seen = {one.job: _Seen() for one in declared}
    version = (await client.get(JOBS))["metadata"]["resourceVersion"]
    for manifest in manifests:
        await _apply(client, manifest)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            async for event in client.watch(JOBS, resource_version=version):
                name = event.object["metadata"].get("name", "")
                if name in seen:
                    await _note(client, event.object, seen[name], tell)
                if all(seen[one.job].phases[-1:] == [one.phases[-1]] for one in declared):
                    break
    for one in declared:
        if seen[one.job].phases[-1:] != [one.phases[-1]]:
            seen[one.job].left = await _left(client, one.job)
    return tuple(_verdict(one, seen[one.job]) for one in declared)


async def _left(client: ApiClient, job: str) -> str:
    """Return a short description of the PodGroup and the pods of a Job."""
    groups = await client.list(GROUPS)
    owned = [one for one in groups if job in (each["name"] for each in one["metadata"].get("ownerReferences") or ())]
    pods = await client.list(within(PODS, "default"), label_selector=f"{protocol.JOB_NAME}={job}")
    return "; ".join([*(_words("PodGroup", one) for one in owned), *(_words("pod", one) for one in pods)])


def _words(kind: str, found: Json) -> str:
    status = found.get("status") or {}
    said = [f"{one['type']} {one['status']}: {one.get('message', '')}" for one in status.get("conditions") or ()]
    return " ".join([kind, found["metadata"]["name"], status.get("phase", "without a phase"), *said])


async def remove(client: ApiClient, declared: tuple[DeclaredJob, ...]) -> None:
    """Delete the Jobs and their remaining pods; return once all are gone."""
    for one in declared:
        with contextlib.suppress(ApiStatusError):
            await client.delete(f"{within(JOBS, 'default')}/{one.job}")
    while pods := await client.list(within(PODS, "default"), label_selector=protocol.JOB_NAME):
        for pod in pods:
            with contextlib.suppress(ApiStatusError):
                await client.delete(pod_path(pod), grace_s=0)


async def _apply(client: ApiClient, manifest: Json) -> None:
    """Create an object, or keep the existing one; a Job gets the defaults of Volcano's webhook."""
    is_queue = manifest["kind"] == "Queue"
    path = QUEUES if is_queue else within(JOBS, "default")
    await client.ensure(path, manifest if is_queue else _ending(protocol.defaulted(manifest)))


def _ending(job: Json) -> Json:
    """Return *job* with containers that end soon."""
    found = deepcopy(job)
    for task in found["spec"]["tasks"]:
        metadata = task["template"].setdefault("metadata", {})
        metadata["annotations"] = {**(metadata.get("annotations") or {}), RUN_SECONDS: _ENDS_AFTER_S}
    return found


async def _note(client: ApiClient, job: Json, seen: _Seen, tell: Callable[[str], None]) -> None:
    status = job.get("status") or {}
    phase = (status.get("state") or {}).get("phase", "")
    if not phase or seen.phases[-1:] == [phase]:
        return
    seen.phases.append(phase)
    name = job["metadata"]["name"]
    if phase == "Running":
        pods = await client.list(within(PODS, "default"), label_selector=protocol.JOB_NAME)
        seen.nodes = tuple(sorted(pod["spec"].get("nodeName", "") for pod in pods if _job_of(pod) == name))
        running = frozenset(_job_of(pod) for pod in pods if pod["status"]["phase"] == "Running")
        seen.beside = running if name in running else frozenset()
    tell(f"Job {name}: {phase}{f' on {_shown(seen.nodes)}' if phase == 'Running' else ''}")


def _job_of(pod: Json) -> str:
    return str(pod["metadata"]["labels"][protocol.JOB_NAME])


def _shown(nodes: tuple[str, ...]) -> str:
    return ", ".join(f"{node} ({nodes.count(node)})" for node in dict.fromkeys(nodes))


def _verdict(declared: DeclaredJob, seen: _Seen) -> ExampleVerdict:
    problems = []
    if tuple(seen.phases) != declared.phases:
        problems.append(f"it went through {', '.join(seen.phases) or 'no phase'}; {seen.left or 'nothing is left'}")
    if len(seen.nodes) != declared.pods:
        problems.append(f"{len(seen.nodes)} pods ran, not {declared.pods}")
    if odd := [node for node in seen.nodes if not any(fnmatchcase(node, one) for one in declared.nodes)]:
        problems.append(f"pods ran on {', '.join(odd)}, not on {' or '.join(declared.nodes)}")
    if declared.apart in seen.beside:
        problems.append(f"its pods ran beside those of {declared.apart}")
    claim = f"Job {declared.job} goes through {', '.join(declared.phases)}"
    return ExampleVerdict(example="volcano-jobs", claim=claim, problems=tuple(problems))
