"""The vGPU player against an API server in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sandbox.nodes.plugin_port import AllocateError
from sandbox.players.player import OptionsError
from sandbox.players.registry import build
from sandbox.players.vgpu import CORES, MEMORY, NUMBER, VgpuPlugin
from tests.support.servers.memory_api import MemoryApi

NODE = "/api/v1/nodes/node-a"
T4S = {"model": "Tesla T4", "memory_mib": 15360, "count": 2}
DONE = "18446744073709551615"


def plugin(api: MemoryApi, **options: Any) -> VgpuPlugin:
    api.add_node("node-a", {"hamivgpu": "2026-01-01T00:00:00Z"})
    made = build("vgpu", "node-a", {**T4S, **options}, api)
    assert isinstance(made, VgpuPlugin)
    return made


def assigned(to_allocate: str, time: str = "100") -> dict[str, str]:
    return {
        "volcano.sh/vgpu-node": "node-a",
        "volcano.sh/vgpu-time": time,
        "volcano.sh/devices-to-allocate": to_allocate,
        "volcano.sh/bind-phase": "allocating",
    }


async def test_start_writes_the_register_and_what_the_node_has():
    api = MemoryApi()
    await plugin(api, split_count=10).start()
    assert api.annotations(NODE)["volcano.sh/node-vgpu-register"] == (
        "GPU-node-a-0,10,15360,NVIDIA-Tesla T4,true,hami-core:GPU-node-a-1,10,15360,NVIDIA-Tesla T4,true,hami-core:"
    )
    totals = {NUMBER: "20", MEMORY: "30720", CORES: "200"}
    assert api.objects[NODE]["status"] == {"capacity": totals, "allocatable": totals}


async def test_register_counts_memory_in_units_of_the_factor():
    api = MemoryApi()
    await plugin(api, memory_factor=1024, count=1).start()
    assert api.annotations(NODE)["volcano.sh/node-vgpu-register"].split(",")[2] == "15"


async def test_a_served_container_receives_its_cards_and_limits_and_the_pod_is_done():
    api = MemoryApi()
    pod = api.add_pod("a", annotations=assigned("GPU-node-a-1,NVIDIA,2000,10:GPU-node-a-0,NVIDIA,3000,10:"))
    env = dict(await plugin(api).allocate(NUMBER, 2))
    assert env.pop("CUDA_DEVICE_MEMORY_SHARED_CACHE").startswith("/tmp/vgpu/")
    assert env == {
        "NVIDIA_VISIBLE_DEVICES": "GPU-node-a-1,GPU-node-a-0",
        "CUDA_DEVICE_MEMORY_LIMIT_0": "2000m",
        "CUDA_DEVICE_MEMORY_LIMIT_1": "3000m",
        "CUDA_DEVICE_SM_LIMIT": "10",
        "NVIDIA_GDRCOPY": "enabled",
        "NVIDIA_GDS": "enabled",
        "NVIDIA_MOFED": "enabled",
    }
    assert api.annotations(pod) == assigned("", DONE) | {"volcano.sh/bind-phase": "success"}
    assert "hamivgpu" not in api.annotations(NODE)


async def test_memory_and_cores_are_answered_with_nothing():
    api = MemoryApi()
    pod = api.add_pod("a", annotations=assigned("GPU-node-a-0,NVIDIA,2000,10:"))
    player = plugin(api)
    assert (await player.allocate(MEMORY, 1), await player.allocate(CORES, 1)) == ({}, {})
    assert api.annotations(pod) == assigned("GPU-node-a-0,NVIDIA,2000,10:")


async def test_without_a_candidate_the_call_fails_and_the_lock_goes():
    api = MemoryApi()
    pod = api.add_pod("a", annotations=assigned("GPU-node-a-0,NVIDIA,2000,10:"))
    with pytest.raises(AllocateError, match="cannot get valid pod"):
        await plugin(api).allocate(NUMBER, 2)
    assert api.annotations(pod)["volcano.sh/bind-phase"] == "allocating"
    assert "hamivgpu" not in api.annotations(NODE)


@pytest.mark.parametrize(
    ("to_allocate", "asked", "message"),
    [
        pytest.param("GPU-node-a-0,NVIDIA,1,1:;GPU-node-a-0,NVIDIA,1,1:", 2, "device number not matched", id="count"),
        pytest.param("GPU-node-a-0,NVIDIA-T4,1,1:", 1, "device request not found", id="type"),
    ],
)
async def test_a_pod_that_does_not_match_is_marked_failed_and_keeps_its_devices(to_allocate, asked, message):
    api = MemoryApi()
    pod = api.add_pod("a", annotations=assigned(to_allocate), limits=({}, {}))
    with pytest.raises(AllocateError, match=message):
        await plugin(api).allocate(NUMBER, asked)
    assert api.annotations(pod) == assigned(to_allocate, DONE) | {"volcano.sh/bind-phase": "failed"}


async def test_a_card_of_another_node_fails_the_call_and_leaves_pod_and_lock():
    api = MemoryApi()
    pod = api.add_pod("a", annotations=assigned("GPU-elsewhere,NVIDIA,2000,10:"))
    with pytest.raises(AllocateError, match="GPU-elsewhere"):
        await plugin(api).allocate(NUMBER, 1)
    assert api.annotations(pod) == assigned("GPU-elsewhere,NVIDIA,2000,10:")
    assert "hamivgpu" in api.annotations(NODE)


async def test_a_refused_erasure_marks_the_pod_failed():
    api = MemoryApi()
    pod = api.add_pod("a", annotations=assigned("GPU-node-a-0,NVIDIA,2000,10:"))
    api.refuse.append(pod)
    with pytest.raises(AllocateError, match="etcd is away"):
        await plugin(api).allocate(NUMBER, 1)
    assert api.annotations(pod)["volcano.sh/bind-phase"] == "failed"


async def test_a_segment_that_admission_puts_back_is_left_for_the_next_container():
    api = MemoryApi()
    pod = api.add_pod("a", annotations=assigned("GPU-node-a-0,NVIDIA,2000,10:"), limits=({}, {}))

    def rotate(path: str, merged: Any) -> None:
        if path == pod and merged["metadata"]["annotations"]["volcano.sh/devices-to-allocate"] == "":
            merged["metadata"]["annotations"]["volcano.sh/devices-to-allocate"] = ";GPU-node-a-1,NVIDIA,7,0:"
            api.on_patch = None

    api.on_patch = rotate
    player = plugin(api)
    assert (await player.allocate(NUMBER, 1))["NVIDIA_VISIBLE_DEVICES"] == "GPU-node-a-0"
    assert api.annotations(pod)["volcano.sh/bind-phase"] == "allocating"
    assert (await player.allocate(NUMBER, 1))["NVIDIA_VISIBLE_DEVICES"] == "GPU-node-a-1"
    assert api.annotations(pod)["volcano.sh/bind-phase"] == "success"
    assert api.annotations(pod)["volcano.sh/devices-to-allocate"] == ";"


async def test_a_value_that_crashes_the_plugin_fails_the_call_and_restarts_it():
    api = MemoryApi()
    api.add_pod("a", annotations=assigned("GPU-node-a-0,NVIDIA,1:"))
    player = plugin(api)
    with pytest.raises(AllocateError, match="EOF"):
        await player.allocate(NUMBER, 1)
    assert player.panics == 1
    assert "volcano.sh/node-vgpu-register" in api.annotations(NODE)


async def test_an_asked_for_failure_happens_once_with_nothing_written():
    api = MemoryApi()
    pod = api.add_pod("a", annotations=assigned("GPU-node-a-0,NVIDIA,2000,10:"))
    player = plugin(api, fail_next=1)
    with pytest.raises(AllocateError):
        await player.allocate(NUMBER, 1)
    assert api.annotations(pod) == assigned("GPU-node-a-0,NVIDIA,2000,10:")
    assert "NVIDIA_VISIBLE_DEVICES" in await player.allocate(NUMBER, 1)


async def test_a_silent_plugin_never_answers():
    player = plugin(MemoryApi(), silent=True)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await player.allocate(NUMBER, 1)


async def test_an_unhealthy_card_is_told_in_the_register():
    api = MemoryApi()
    await plugin(api).set_healthy("GPU-node-a-1", healthy=False)
    records = api.annotations(NODE)["volcano.sh/node-vgpu-register"].split(":")
    assert [record.split(",")[4] for record in records if record] == ["true", "false"]


@pytest.mark.parametrize(
    ("kind", "options", "problem"),
    [
        pytest.param("vgpus", {}, "unknown device plugin 'vgpus'", id="kind"),
        pytest.param("vgpu", {"modle": "T4"}, "unknown keys modle", id="key"),
        pytest.param("vgpu", {"count": 0}, "count: found 0", id="count"),
        pytest.param("vgpu", {"mode": "hami"}, "write one of hami-core", id="mode"),
        pytest.param("gpushare", {"strategy": "half"}, "write one of share, number", id="strategy"),
    ],
)
def test_options_that_cannot_be_used_are_named(kind, options, problem):
    with pytest.raises(OptionsError, match=problem):
        build(kind, "node-a", options, MemoryApi())
