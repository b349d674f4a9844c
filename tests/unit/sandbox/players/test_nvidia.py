"""NVIDIA's player: whole GPUs by count, chosen without a word from any scheduler."""

from __future__ import annotations

from typing import Any

import pytest

from core.dialects.whole_gpu.dialect import WholeGpu
from core.port.cards import Offer
from core.settings import Tables
from core.wire.nodes import node_from_object
from sandbox.nodes.plugin_port import AllocateError, SettlingPlugin
from sandbox.players import registry, vendors
from sandbox.players.nvidia import NvidiaPlugin
from tests.support.servers.memory_api import MemoryApi

NODE = "/api/v1/nodes/node-a"
GPU = "nvidia.com/gpu"


def plugin(api: MemoryApi, **options: Any) -> NvidiaPlugin:
    api.add_node("node-a")
    given = {"model": "NVIDIA A100-SXM4-80GB", "memory_mib": 81920, "count": 4, **options}
    return NvidiaPlugin.from_options("nvidia", "node-a", given, api)


async def admit(player: NvidiaPlugin, api: MemoryApi, name: str, gpus: int) -> str:
    path = api.add_pod(name, annotations={}, limits=({GPU: str(gpus)},), uid=name)
    env = await player.allocate(GPU, gpus)
    await player.settle(api.objects[path], env)
    return env["NVIDIA_VISIBLE_DEVICES"]


async def test_start_labels_the_model_and_advertises_healthy_cards():
    api = MemoryApi()
    player = plugin(api)
    await player.start()
    await player.set_healthy("GPU-node-a-1", healthy=False)
    node = api.objects[NODE]
    assert node["metadata"]["labels"]["nvidia.com/gpu.product"] == "NVIDIA-A100-SXM4-80GB"
    assert node["status"] == {"capacity": {GPU: "4"}, "allocatable": {GPU: "3"}}
    offer = WholeGpu().offer(node_from_object(node), Tables())
    assert isinstance(offer, Offer)
    assert (offer.cards[0].kind.total, offer.cards[0].label) == (3, "NVIDIA-A100-SXM4-80GB")


async def test_time_slicing_multiplies_the_count_and_marks_the_product():
    api = MemoryApi()
    await plugin(api, replicas=3).start()
    assert api.objects[NODE]["metadata"]["labels"]["nvidia.com/gpu.product"] == "NVIDIA-A100-SXM4-80GB-SHARED"
    assert api.objects[NODE]["status"]["allocatable"] == {GPU: "12"}


async def test_no_card_is_given_twice_until_its_pod_is_over():
    api = MemoryApi()
    player = plugin(api)
    assert await admit(player, api, "a", 2) == "GPU-node-a-0,GPU-node-a-1"
    assert await admit(player, api, "b", 2) == "GPU-node-a-2,GPU-node-a-3"
    with pytest.raises(AllocateError, match="0 are free"):
        await player.allocate(GPU, 1)
    api.objects["/api/v1/namespaces/default/pods/a"]["status"]["phase"] = "Succeeded"
    assert await admit(player, api, "c", 1) == "GPU-node-a-0"
    assert isinstance(player, SettlingPlugin)


async def test_cards_of_a_call_that_failed_are_free_again_and_ill_ones_are_not():
    api = MemoryApi()
    player = plugin(api, count=2)
    await player.allocate(GPU, 2)
    await player.set_healthy("GPU-node-a-0", healthy=False)
    assert await admit(player, api, "a", 1) == "GPU-node-a-1"


async def test_slices_of_time_spread_over_cards():
    api = MemoryApi()
    player = plugin(api, count=2, replicas=2)
    seen = [await admit(player, api, name, 1) for name in "abcd"]
    assert sorted(seen) == ["GPU-node-a-0", "GPU-node-a-0", "GPU-node-a-1", "GPU-node-a-1"]
    assert seen[0] != seen[1]


@pytest.mark.parametrize(("kind", "resource"), vendors.WHOLE.items())
async def test_whole_cards_of_other_vendors_are_given_by_their_own_names(kind, resource):
    api = MemoryApi()
    api.add_node("node-a")
    player = registry.build(kind, "node-a", {"count": 2}, api)
    await player.start()
    assert api.objects[NODE]["status"]["capacity"] == {resource: "2"}
    assert not api.objects[NODE]["metadata"].get("labels")
    assert player.resources == (resource,)
    env = await player.allocate(resource, 2)
    assert len(env[vendors.SEEN].split(",")) == 2
    with pytest.raises(AllocateError, match="2 are free"):
        await player.allocate(resource, 3)
