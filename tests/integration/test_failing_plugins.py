"""Device plugins that fail: the pod fails, its cards come back, and the next pod does not inherit them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from sandbox.demo.outcomes import Sighting
from sandbox.demo.stage import Stage

VGPU = {"name": "t4-a", "plugin": {"kind": "vgpu", "model": "Tesla T4", "memory_mib": 15360, "count": 1}}
CUT = {
    "name": "cut",
    "plugin": {"kind": "hami", "mode": "mig", "model": "NVIDIA A100-SXM4-40GB", "memory_mib": 40960, "count": 1},
}
SHARE = {"name": "share-a", "plugin": {"kind": "gpushare", "memory_mib": 11178, "count": 1}}


def with_fault(node: dict[str, Any], **fault: Any) -> dict[str, Any]:
    return {**node, "plugin": {**node["plugin"], **fault}}


def pod(name: str, resource: str, amount: int) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"limits": {f"volcano.sh/{resource}": str(amount)}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}


async def apply(stage: Stage, manifest: dict[str, Any]) -> None:
    answer = await stage.person.apply(manifest)
    assert answer.accepted, answer.message


async def seen(stage: Stage, name: str, wanted: Callable[[Sighting], bool], within_s: float = 60.0) -> Sighting:
    """The pod, once it is as wanted."""
    sighting = Sighting()
    try:
        async with asyncio.timeout(within_s):
            while not wanted(sighting):
                await asyncio.sleep(0.05)
                env = stage.records.of(f"default/{name}")
                sighting = Sighting(pod=await stage.person.get(name), env_by_container=env)
    except TimeoutError:
        pytest.fail(f"{name} did not get there: {sighting.pod and sighting.pod['status']}")
    return sighting


async def turned_away(stage: Stage) -> list[str]:
    """What Events of nodes say of pods that were turned away, as soon as there are any."""
    async with asyncio.timeout(60):
        while True:
            events = await stage.admin.list("/api/v1/events")
            if told := [event["message"] for event in events if event["reason"] == "PodTurnedAway"]:
                return told
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("node", "resource", "limit", "mine"),
    [
        pytest.param(VGPU, "vgpu-memory", "CUDA_DEVICE_MEMORY_LIMIT_0", "9001m", id="vgpu"),
        pytest.param(SHARE, "gpu-memory", "VOLCANO_GPU_ALLOCATED", "9001", id="share"),
    ],
)
async def test_the_next_pod_gets_its_own_share_after_a_failed_call(staged, node, resource, limit, mine):
    async with staged(nodes=[with_fault(node, fail_next=1)]) as stage:
        await apply(stage, pod("unlucky", resource, 9000))
        failed = await seen(stage, "unlucky", lambda s: s.phase == "Failed")
        assert failed.pod is not None
        assert failed.pod["status"]["reason"] == "UnexpectedAdmissionError"
        # Both would not fit on the card, so that this also shows that the first one's share came back.
        await apply(stage, pod("next", resource, 9001))
        served = await seen(stage, "next", lambda s: s.phase == "Running")
        assert served.env_by_container["c"][limit] == mine


async def test_a_failed_call_of_a_plugin_with_instances_is_told_on_the_node_and_the_next_pod_is_served(staged):
    """As after a restart of HAMi's plugin, which forgot instances (hami HN-30)."""
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "9000"}
    container = {"name": "c", "image": "i", "resources": {"limits": limits}}

    def one(name: str) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}

    async with staged(nodes=[with_fault(CUT, fail_next=1)]) as stage:
        await apply(stage, one("unlucky"))
        failed = await seen(stage, "unlucky", lambda s: s.phase == "Failed")
        assert failed.pod is not None
        assert failed.pod["metadata"]["annotations"]["hami.io/bind-phase"] == "failed"
        await apply(stage, one("next"))
        served = await seen(stage, "next", lambda s: s.phase == "Running")
        assert served.env_by_container["c"]["NVIDIA_VISIBLE_DEVICES"].startswith("MIG-")
        (told,) = await turned_away(stage)
        assert "its kubelet rejected pod uid" in told


async def test_a_slow_plugin_is_waited_for_and_serves_each_pod_its_own(staged):
    async with staged(nodes=[with_fault(VGPU, delay_s=0.4)]) as stage:
        for amount in (1001, 1002, 1003):
            await apply(stage, pod(f"p{amount}", "vgpu-memory", amount))
        for amount in (1001, 1002, 1003):
            served = await seen(stage, f"p{amount}", lambda s: s.phase == "Running")
            assert served.env_by_container["c"]["CUDA_DEVICE_MEMORY_LIMIT_0"] == f"{amount}m"
