"""A cluster without a controller for the commands of ``kubectl cards``, and its pods, events and accounts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from cli.__main__ import run
from cli.options import parse
from tests.support.worlds.controller_rig import OpensRig, Rig

NODES: list[dict[str, Any]] = [
    {"name": "t4-a", "plugin": {"kind": "vgpu", "model": "Tesla T4", "memory_mib": 15360, "count": 2}},
    {"name": "share-a", "plugin": {"kind": "gpushare", "memory_mib": 11178, "count": 1}},
    {"name": "broken", "annotations": {"volcano.sh/node-vgpu-register": "nonsense:"}},
    {"name": "plain"},
]
ASSIGNED = {
    "volcano.sh/vgpu-node": "t4-a",
    "volcano.sh/vgpu-time": "1",
    "volcano.sh/vgpu-ids-new": "GPU-t4-a-1,NVIDIA,3000,50:",
    "volcano.sh/devices-to-allocate": "GPU-t4-a-1,NVIDIA,3000,50:",
    "volcano.sh/bind-phase": "allocating",
}


@asynccontextmanager
async def cluster(rig: OpensRig, expects: Sequence[str] = ()) -> AsyncIterator[tuple[Rig, str]]:
    """A cluster without a controller, and the way to it."""
    async with rig(nodes=NODES, expects=expects) as world:
        yield world, str(await asyncio.to_thread(world.write_admins_kubeconfig))


async def add_pod(world: Rig, name: str, limits: dict[str, str], annotations: dict[str, str], node: str) -> None:
    container = {"name": "c", "image": "i", "resources": {"limits": limits}}
    pod = {"metadata": {"name": name}, "spec": {"schedulerName": "cardshare", "containers": [container]}}
    created = await world.client.create("/api/v1/namespaces/default/pods", {"apiVersion": "v1", "kind": "Pod", **pod})
    if not node:
        return
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "uid": created["metadata"]["uid"], "annotations": annotations},
        "target": {"kind": "Node", "name": node},
    }
    await world.client.create(f"/api/v1/namespaces/default/pods/{name}/binding", binding)


async def add_event(world: Rig, pod: str, *, uid: str, message: str, name: str = "1", **fields: Any) -> None:
    event: dict[str, Any] = {
        "metadata": {"name": f"{pod}.{name}"},
        "involvedObject": {"kind": "Pod", "name": pod, "namespace": "default", "uid": uid},
        "reason": "FailedScheduling",
        "message": message,
        "count": 3,
        "lastTimestamp": "2026-01-01T00:00:00Z",
        **fields,
    }
    await world.client.create("/api/v1/namespaces/default/events", event)


async def give(world: Rig, account: str, rules: list[dict[str, Any]]) -> None:
    """Let a service account of namespace default do what *rules* say there."""
    path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    await world.client.create(f"{path}/roles", {"metadata": {"name": account}, "rules": rules})
    binding = {
        "metadata": {"name": account},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "default"}],
    }
    await world.client.create(f"{path}/rolebindings", binding)


async def cards(kubeconfig: str, *words: str) -> int:
    return await run(parse([*words, "--kubeconfig", kubeconfig], {}), {})
