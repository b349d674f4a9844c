"""Pods of several containers: the plugins' own algorithm serves each of them what it was promised, in turn."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from sandbox.demo.picture import cards
from sandbox.demo.stage import Stage
from sandbox.nodes.kubelet import AdmissionOrder, KubeletSettings
from sandbox.players.vgpu_protocol import Version

# For each container its plugin lists all pods, as the real one does: twice the pods take four times as long.
_VGPU_PODS = 85
_SHARE_PODS = 15
_WITHIN_S = 240.0
_IDS = "volcano.sh/vgpu-ids-new"
_QUEUE = "cardshare.io/segment-queue"
NODES: list[dict[str, Any]] = [
    *(
        {
            "name": f"v{i}",
            "plugin": {
                "kind": "vgpu",
                "memory_mib": 32768,
                "count": 8,
                "split_count": 20,
                "version": Version.MAIN if i % 2 else Version.READS_BACK,
            },
        }
        for i in range(5)
    ),
    *({"name": f"s{i}", "plugin": {"kind": "gpushare", "memory_mib": 16384, "count": 2}} for i in range(2)),
]


def container(name: str, resource: str, amounts: dict[str, int]) -> dict[str, Any]:
    limits = {f"volcano.sh/{resource}-{key}".rstrip("-"): str(value) for key, value in amounts.items()}
    return {"name": name, "image": "i", "resources": {"limits": limits}}


def pod(name: str, containers: list[dict[str, Any]]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers}}


def vgpu_pod(i: int) -> dict[str, Any]:
    """One, two or three containers with cards, one without in between; every amount of memory is asked for once."""
    asking = [
        container(f"c{at}", "vgpu", {"number": 1 + (i + at) % 2, "memory": 100 + 3 * i + at}) for at in range(1 + i % 3)
    ]
    return pod(f"v{i:03}", [asking[0], {"name": "idle", "image": "i"}, *asking[1:]])


def share_pod(i: int) -> dict[str, Any]:
    return pod(f"s{i:03}", [container(f"c{at}", "gpu", {"memory": 100 + 10 * (i + at)}) for at in range(1 + i % 3)])


async def apply_all(stage: Stage, manifests: list[dict[str, Any]]) -> None:
    limit = asyncio.Semaphore(16)

    async def apply(manifest: dict[str, Any]) -> str:
        async with limit:
            applied = await stage.person.apply(manifest)
        return "" if applied.accepted else applied.message

    async with asyncio.TaskGroup() as tasks:
        told = [tasks.create_task(apply(m), name=m["metadata"]["name"]) for m in manifests]
    assert [text for task in told if (text := task.result())] == []


async def settled(stage: Stage) -> list[dict[str, Any]]:
    pods: list[dict[str, Any]] = []
    async with asyncio.timeout(_WITHIN_S):
        while not pods or any(p["status"]["phase"] == "Pending" for p in pods):
            await asyncio.sleep(0.2)
            pods = list(await stage.admin.list("/api/v1/namespaces/default/pods"))
    return pods


async def test_every_container_of_a_hundred_pods_receives_what_it_was_promised(staged):
    settings = KubeletSettings(order=AdmissionOrder.SHUFFLED, seed=11)
    async with staged(settings, NODES) as stage:
        manifests = [*map(vgpu_pod, range(_VGPU_PODS)), *map(share_pod, range(_SHARE_PODS))]
        await apply_all(stage, manifests)
        pods = await settled(stage)
        assert {p["metadata"]["name"] for p in pods if p["status"]["phase"] != "Running"} == set()
        wrong = [text for each in pods for text in mistaken(stage, each)]
        assert wrong == []
        bars = cards(await stage.admin.list("/api/v1/nodes"), pods)
        assert [bar for bar in bars if bar.overcommitted] == []
        served = Counter(
            (p["spec"]["nodeName"], len(stage.records.of(f"default/{p['metadata']['name']}"))) for p in pods
        )
        for nodes in (("v0", "v2", "v4"), ("v1", "v3"), ("s0", "s1")):
            assert min(sum(served[node, number] for node in nodes) for number in (1, 2, 3)) >= 4, served


def mistaken(stage: Stage, found: dict[str, Any]) -> list[str]:
    """What is wrong with the environments of a pod's containers, and what is left that no plugin would serve."""
    name, annotations = found["metadata"]["name"], found["metadata"]["annotations"]
    received = stage.records.of(f"default/{name}")
    expected = vgpu_env(found) if name.startswith("v") else share_env(found)
    told = [
        f"{name}/{one}: received {shown}, not {env}"
        for one, env in expected.items()
        if (shown := {key: received.get(one, {}).get(key) for key in env}) != env
    ]
    left = [key for key in (_QUEUE, "volcano.sh/devices-to-allocate") if annotations.get(key, "").strip(";")]
    return told + [f"{name}: {key} is {annotations[key]!r}" for key in left]


def vgpu_env(found: dict[str, Any]) -> dict[str, dict[str, str]]:
    expected = {}
    segments = found["metadata"]["annotations"][_IDS].split(";")
    for at, one in enumerate(found["spec"]["containers"]):
        limits = one["resources"].get("limits") if one.get("resources") else None
        if limits:
            ids = [piece.split(",")[0] for piece in segments[at].split(":") if piece]
            assert len(ids) == int(limits["volcano.sh/vgpu-number"])
            memory = f"{limits['volcano.sh/vgpu-memory']}m"
            expected[one["name"]] = {"NVIDIA_VISIBLE_DEVICES": ",".join(ids)} | {
                f"CUDA_DEVICE_MEMORY_LIMIT_{i}": memory for i in range(len(ids))
            }
    return expected


def share_env(found: dict[str, Any]) -> dict[str, dict[str, str]]:
    index = found["metadata"]["annotations"]["volcano.sh/gpu-index"]
    return {
        one["name"]: {
            "NVIDIA_VISIBLE_DEVICES": index,
            "VOLCANO_GPU_ALLOCATED": one["resources"]["limits"]["volcano.sh/gpu-memory"],
        }
        for one in found["spec"]["containers"]
    }
