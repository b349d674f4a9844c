"""HAMi's player for NVIDIA cards against an API server in memory."""

import json

import pytest

from sandbox.nodes.plugin_port import AllocateError
from sandbox.players.hami import REGISTER, TO_ALLOCATE, HamiPlugin
from sandbox.players.registry import build
from tests.support.servers.memory_api import MemoryApi

NODE, POD = "/api/v1/nodes/node-a", "/api/v1/namespaces/default/pods/a"
LOCK, PHASE = "hami.io/mutex.lock", "hami.io/bind-phase"


def plugin(api, **options):
    api.add_node("node-a", {LOCK: "2026-08-20T10:11:12Z,default,a"})
    made = build("hami", "node-a", {"count": 2, **options}, api)
    assert isinstance(made, HamiPlugin)
    return made


def notes(api, path):
    return api.objects[path]["metadata"]["annotations"]


async def test_the_register_leaves_out_what_is_zero_or_false():
    api = MemoryApi()
    made = plugin(api, model="Tesla T4", split=4)
    await made.start()
    await made.set_healthy("GPU-node-a-1", False)
    first, second = json.loads(notes(api, NODE)[REGISTER])
    assert "index" not in first
    assert (first["type"], first["count"], first["health"]) == ("NVIDIA-Tesla T4", 4, True)
    assert (second["index"], "health" in second) == (1, False)


async def test_segments_are_served_in_order_and_the_lock_goes_with_the_last():
    api = MemoryApi()
    made = plugin(api)
    # Source: hami 3.4, worked example HX11 of the protocol reference.
    value = "GPU-a0,NVIDIA,4096,25:;;GPU-a0,NVIDIA,1000,10:GPU-b1,NVIDIA,2000,10:;"
    api.objects[POD] = {
        "metadata": {
            "namespace": "default",
            "name": "a",
            "uid": "u",
            "resourceVersion": "1",
            "annotations": {TO_ALLOCATE: value, PHASE: "x"},
        },
        "spec": {"containers": [{"name": name} for name in ("c0", "side", "c2")], "nodeName": "node-a"},
        "status": {"phase": "Pending"},
    }
    assert (await made.allocate("nvidia.com/gpu", 1))["NVIDIA_VISIBLE_DEVICES"] == "GPU-a0"
    assert notes(api, POD)[TO_ALLOCATE] == ";;GPU-a0,NVIDIA,1000,10:GPU-b1,NVIDIA,2000,10:;;"
    assert LOCK in notes(api, NODE)
    env = await made.allocate("nvidia.com/gpu", 2)
    assert (env["CUDA_DEVICE_MEMORY_LIMIT_1"], env["CUDA_DEVICE_SM_LIMIT"]) == ("2000m", "10")
    assert notes(api, POD)[PHASE] == "success"
    assert LOCK not in notes(api, NODE)
    with pytest.raises(AllocateError):
        await made.allocate("nvidia.com/gpu", 1)
