"""Many pods at once, admitted in a hostile order: every container gets what its own pod was promised."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from sandbox.demo.outcomes import cards_of
from sandbox.demo.picture import cards
from sandbox.demo.stage import Stage
from sandbox.nodes.kubelet import AdmissionOrder, KubeletSettings
from sandbox.players.mig import visible_ids

_VGPU_PODS = 60
_SHARE_PODS = 12
_WITHIN_S = 180.0
PODS = "/api/v1/namespaces/default/pods"


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
            pods = list(await stage.admin.list(PODS))
    return pods


# test_rotation has these plugins' pods admitted in an order of chance.
@pytest.mark.parametrize("order", [AdmissionOrder.WATCH, AdmissionOrder.NEWEST_FIRST])
async def test_no_container_receives_what_another_pod_was_promised(staged, order):
    settings = KubeletSettings(order=order, seed=7, admission_delay_s=0.01)
    async with staged(settings) as stage:
        await apply_all(stage, crowd())
        pods = await all_settled(stage)
        assert {p["metadata"]["name"] for p in pods if p["status"]["phase"] != "Running"} == set()
        wrong = [told for each in pods if (told := mistaken(stage, each))]
        assert wrong == []
        bars = cards(await stage.admin.list("/api/v1/nodes"), pods)
        assert [bar for bar in bars if bar.overcommitted] == []
        assert sum(len(bar.parts) for bar in bars) == _SHARE_PODS + _VGPU_PODS * 3 // 2


async def test_of_pods_that_race_for_cards_exactly_as_many_get_one_as_there_are(staged):
    async with staged() as stage:
        free = cards(await stage.admin.list("/api/v1/nodes"), ())
        count = len([bar for bar in free if "T4" in bar.label and bar.unit == "MiB"])
        assert count > 0
        manifests = [pod(f"race-{i:02}", {"vgpu-number": 1, "vgpu-memory": 15000}) for i in range(3 * count)]
        for manifest in manifests:
            manifest["metadata"]["annotations"] = {"nvidia.com/use-gputype": "T4"}
        await apply_all(stage, manifests)
        # Also one that gets a card may be told first that its Binding is settled later.
        async with asyncio.timeout(_WITHIN_S):
            while not all(map(is_decided, pods := await stage.admin.list(PODS))) or len(running(pods)) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        bound = [each for each in pods if each["spec"].get("nodeName")]
        assert len(bound) == count
        assert [bar for bar in cards(await stage.admin.list("/api/v1/nodes"), pods) if bar.overcommitted] == []
        assert all(condition(each).get("message") for each in pods if each not in bound)


def condition(found: dict[str, Any]) -> dict[str, Any]:
    conditions = found["status"].get("conditions") or []
    return next((each for each in conditions if each["type"] == "PodScheduled"), {})


def is_decided(found: dict[str, Any]) -> bool:
    return found["status"]["phase"] == "Running" or condition(found).get("status") == "False"


def running(pods: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in pods if each["status"]["phase"] == "Running"]


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
