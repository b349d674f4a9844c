"""Volcano beside a scenario's cluster: its controllers played, its objects made and shown."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from sandbox.client import ApiClient
from sandbox.players import volcano_protocol as protocol
from sandbox.players.volcano import COMMANDS, GROUPS, JOBS, QUEUES, VolcanoControllers, install

__all__ = ["NAMES", "create", "install", "job", "path_of", "playing", "shown_group", "shown_job", "task"]

NAMES: Final = ("--scheduler-name", "cardshare", "--scheduler-name", "volcano")
_COUNTERS: Final = ("pending", "running", "succeeded", "failed", "terminating", "version", "retryCount")
_KINDS: Final = {"Job": JOBS, "PodGroup": GROUPS, "Queue": QUEUES, "Command": COMMANDS}


@asynccontextmanager
async def playing(client: ApiClient, *, retries: int = 15) -> AsyncIterator[VolcanoControllers]:
    """Volcano's controllers, until the end."""
    controllers = VolcanoControllers(client, retries=retries)
    task = asyncio.create_task(controllers.run(), name="volcano")
    try:
        yield controllers
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def path_of(kind: str, name: str, namespace: str = "default") -> str:
    """Where an object of Volcano's is."""
    root, _, plural = _KINDS[kind].rpartition("/")
    return f"{root}/{plural}/{name}" if kind == "Queue" else f"{root}/namespaces/{namespace}/{plural}/{name}"


async def create(client: ApiClient, document: dict[str, Any], namespace: str = "default") -> dict[str, Any]:
    """Make an object; a Job is completed as Volcano's webhook does."""
    kind = document["kind"]
    completed = protocol.defaulted(document) if kind == "Job" else document
    return await client.create(path_of(kind, "", namespace).rstrip("/"), completed)


def task(name: str, replicas: int, *, limits: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    """A task of a Job; *limits* are requested too."""
    resources = {"limits": limits or {}, "requests": limits or {}}
    template = {"spec": {"containers": [{"name": "main", "image": "i", "resources": resources}]}}
    return {"name": name, "replicas": replicas, "template": template, **more}


def job(name: str, *tasks: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A Volcano Job."""
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulerName": "volcano", "tasks": list(tasks), **more},
    }


def shown_job(found: dict[str, Any]) -> str:
    """A Job's state as the reference writes it: ``Running {running:2}``."""
    status = found.get("status") or {}
    counters = ",".join(f"{name}:{status[name]}" for name in _COUNTERS if status.get(name))
    return f"{(status.get('state') or {}).get('phase', '')} {{{counters}}}"


def shown_group(found: dict[str, Any]) -> str:
    """A PodGroup's state: ``Running {running:2}``, and the condition that is true."""
    status = found.get("status") or {}
    counters = ",".join(f"{name}:{status[name]}" for name in ("running", "succeeded", "failed") if status.get(name))
    said = [one["type"] for one in status.get("conditions") or () if one["status"] == "True"]
    return " ".join([f"{status.get('phase', '')} {{{counters}}}", *said])
