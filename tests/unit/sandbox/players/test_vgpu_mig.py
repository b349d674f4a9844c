"""The vGPU player in mode mig: layouts, instance ids, and what happens when a layout would change under a pod."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.nodes.plugin_port import AllocateError
from sandbox.players.mig import decode, instance_uuid, visible_ids
from sandbox.players.registry import DEVICE_CONFIG, build
from sandbox.players.vgpu import NUMBER, VgpuPlugin
from tests.support.servers.memory_api import MemoryApi

A100 = {"model": "NVIDIA A100-SXM4-40GB", "memory_mib": 40960, "count": 2, "mode": "mig"}
CARD = "GPU-node-a-0"
CONFIG_MAP = "/api/v1/namespaces/kube-system/configmaps"


async def plugin(api: MemoryApi, **options: Any) -> VgpuPlugin:
    api.add_node("node-a")
    text = DEVICE_CONFIG.read_text(encoding="utf-8")
    await api.create(
        CONFIG_MAP, {"metadata": {"name": "volcano-vgpu-device-config"}, "data": {"device-config.yaml": text}}
    )
    made = build("vgpu", "node-a", {**A100, **options}, api)
    assert isinstance(made, VgpuPlugin)
    await made.start()
    return made


def assigned(device: str, time: int = 100) -> dict[str, str]:
    text = f"{device},NVIDIA,3000,0:"
    return {
        "volcano.sh/vgpu-node": "node-a",
        "volcano.sh/vgpu-time": str(time),
        "volcano.sh/vgpu-ids-new": text,
        "volcano.sh/devices-to-allocate": text,
        "volcano.sh/bind-phase": "allocating",
    }


async def serve(player: VgpuPlugin) -> str:
    return (await player.allocate(NUMBER, 1))["NVIDIA_VISIBLE_DEVICES"]


async def test_a_card_is_laid_out_for_its_first_pod_and_the_next_takes_another_instance():
    api = MemoryApi()
    player = await plugin(api)
    api.add_pod("a", annotations=assigned(f"{CARD}[group1-0]"))
    first = await serve(player)
    api.add_pod("b", annotations=assigned(f"{CARD}[group1-1]"))
    second = await serve(player)
    assert first.startswith("MIG-")
    assert second.startswith("MIG-")
    assert first != second
    assert player.layouts.group_of(CARD) == "group1"
    assert player.layouts.changes == {CARD: 1}
    assert player.layouts.group_of("GPU-node-a-1") == ""


@pytest.mark.parametrize("metadata", [{}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}])
async def test_a_layout_that_would_change_under_a_pod_ends_the_process(metadata):
    api = MemoryApi()
    player = await plugin(api)
    api.add_pod("a", annotations=assigned(f"{CARD}[group1-0]"))
    await serve(player)
    path = "/api/v1/namespaces/default/pods/a"
    api.objects[path]["metadata"].update(metadata)
    api.add_pod("b", annotations=assigned(f"{CARD}[group3-0]"))
    with pytest.raises(AllocateError, match="EOF"):
        await serve(player)
    assert player.panics == 1
    assert player.layouts.group_of(CARD) == "group1"


async def test_an_empty_card_is_laid_out_anew_and_the_other_card_stays_as_it_is():
    api = MemoryApi()
    player = await plugin(api)
    api.add_pod("a", annotations=assigned(f"{CARD}[group1-0]"), status={"phase": "Succeeded"})
    await serve(player)
    api.add_pod("c", annotations=assigned("GPU-node-a-1[group2-3]"))
    await serve(player)
    api.add_pod("b", annotations=assigned(f"{CARD}[group4-0]"))
    await serve(player)
    assert (player.layouts.group_of(CARD), player.layouts.group_of("GPU-node-a-1")) == ("group4", "group2")
    assert player.panics == 0


@pytest.mark.parametrize("device", [f"{CARD}[group9-0]", f"{CARD}[group1-7]"])
async def test_a_group_or_position_that_is_not_known_gives_no_device(device):
    api = MemoryApi()
    player = await plugin(api)
    api.add_pod("a", annotations=assigned(device))
    assert await serve(player) == ""


def test_ids_of_slices_become_instances_and_ids_of_cards_stay():
    instance = decode("GPU-a[group2-3]")
    assert instance is not None
    assert (instance.card, instance.group, instance.position) == ("GPU-a", "group2", 3)
    assert decode("GPU-a") is None
    assert visible_ids(["GPU-b", "GPU-a[group2-3]", "GPU-b"]) == ("GPU-b", instance_uuid(instance))
