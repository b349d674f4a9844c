"""Many pods at once, admitted in a hostile order: every container gets what its own pod was promised."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from sandbox.demo.assigned import cards_of
from sandbox.demo.picture import cards
from sandbox.demo.stage import Stage, running_stage
from sandbox.nodes.kubelet import AdmissionOrder, KubeletSettings
from sandbox.players.mig import visible_ids

_VGPU_PODS = 60
_SHARE_PODS = 12
_WITHIN_S = 45.0


def pod(name: str, limits: dict[str, int], image: str = "i") -> dict[str, Any]:
    resources = {"limits": {f"volcano.sh/{key}": str(value) for key, value in limits.items()}}
    spec = {"containers": [{"name": "c", "image": image, "resources": resources}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def crowd() -> list[dict[str, Any]]:
    """No two vGPU pods ask for the same memory, so that a swap shows; the share pods ask for one of two amounts."""
    vgpu = [pod(f"v{i:02}", {"vgpu-number": 1 + i % 2, "vgpu-memory": 1000 + i}) for i in range(_VGPU_PODS)]
    share = [pod(f"s{i:02}", {"gpu-memory": 1000 + 500 * (i % 2)}) for i in range(_SHARE_PODS)]
    return [each for pair in zip(vgpu, share + [None] * _VGPU_PODS, strict=False) for each in pair if each]


async def apply_all(stage: Stage, manifests: list[dict[str, Any]]) -> None:
    async with asyncio.TaskGroup() as tasks:
        applied = [tasks.create_task(stage.person.apply(m), name=m["metadata"]["name"]) for m in manifests]
    assert [task.result().message for task in applied if not task.result().accepted] == []


async def all_settled(stage: Stage) -> list[dict[str, Any]]:
    """The pods, once none of them is on its way."""
    pods: list[dict[str, Any]] = []
    async with asyncio.timeout(_WITHIN_S):
        while not pods or any(p["status"]["phase"] == "Pending" for p in pods):
            await asyncio.sleep(0.1)
            pods = list(await stage.admin.list("/api/v1/pods"))
    return pods


@pytest.mark.parametrize("order", list(AdmissionOrder))
async def test_no_container_receives_what_another_pod_was_promised(tmp_path, order):
    settings = KubeletSettings(order=order, seed=7, admission_delay_s=0.01)
    async with running_stage(tmp_path, os.environ, settings) as stage:
        await apply_all(stage, crowd())
        pods = await all_settled(stage)
        assert {p["metadata"]["name"] for p in pods if p["status"]["phase"] != "Running"} == set()
        wrong = [told for each in pods if (told := mistaken(stage, each))]
        assert wrong == []
        bars = cards(await stage.admin.list("/api/v1/nodes"), pods)
        assert [bar for bar in bars if bar.overcommitted] == []
        assert sum(len(bar.parts) for bar in bars) == _SHARE_PODS + _VGPU_PODS * 3 // 2


def mistaken(stage: Stage, found: dict[str, Any]) -> str:
    """What is wrong with the environment of a pod's container, or ""."""
    name = found["metadata"]["name"]
    env = stage.records.of(f"default/{name}")["c"]
    promised = cards_of(found["metadata"]["annotations"])
    # A slice is seen by its instance's own id, and needs no limit beside the hardware's.
    seen = visible_ids(promised)
    expected = {"NVIDIA_VISIBLE_DEVICES": ",".join(seen)}
    if name.startswith("v") and seen == promised:
        expected |= {f"CUDA_DEVICE_MEMORY_LIMIT_{i}": f"{1000 + int(name[1:])}m" for i in range(len(promised))}
    received = {key: env.get(key, "") for key in expected}
    return "" if received == expected else f"{name}: received {received}, not {expected}"
