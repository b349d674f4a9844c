"""HAMi's player for NVIDIA cards against an API server in memory."""

import json

import pytest

from sandbox.client import ApiStatusError
from sandbox.nodes.plugin_port import AllocateError
from sandbox.players.hami import REGISTER, TO_ALLOCATE, HamiPlugin
from sandbox.players.hami_instances import RESERVATIONS
from sandbox.players.player import OptionsError
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


def assigned(value, *containers):
    """A bound pod that waits for its plugin."""
    return {
        "metadata": {
            "namespace": "default",
            "name": "a",
            "uid": "u",
            "resourceVersion": "1",
            "annotations": {TO_ALLOCATE: value, PHASE: "allocating"},
        },
        "spec": {"containers": [{"name": name} for name in containers], "nodeName": "node-a"},
        "status": {"phase": "Pending"},
    }


async def test_segments_are_served_in_order_and_the_lock_goes_with_the_last():
    api = MemoryApi()
    made = plugin(api)
    # Source: hami 3.4, worked example HX11 of the protocol reference.
    value = "GPU-a0,NVIDIA,4096,25:;;GPU-a0,NVIDIA,1000,10:GPU-b1,NVIDIA,2000,10:;"
    api.objects[POD] = assigned(value, "c0", "side", "c2")
    assert (await made.allocate("nvidia.com/gpu", 1))["NVIDIA_VISIBLE_DEVICES"] == "GPU-a0"
    assert notes(api, POD)[TO_ALLOCATE] == ";;GPU-a0,NVIDIA,1000,10:GPU-b1,NVIDIA,2000,10:;;"
    assert LOCK in notes(api, NODE)
    env = await made.allocate("nvidia.com/gpu", 2)
    assert (env["CUDA_DEVICE_MEMORY_LIMIT_1"], env["CUDA_DEVICE_SM_LIMIT"]) == ("2000m", "10")
    assert notes(api, POD)[PHASE] == "success"
    assert LOCK not in notes(api, NODE)
    with pytest.raises(AllocateError):
        await made.allocate("nvidia.com/gpu", 1)


@pytest.mark.parametrize("figure", ["4096.0", " 4096", "4Ki", "", "2147483648", "-2147483649"])
async def test_one_figure_that_is_no_int32_fails_every_call_for_the_pod(figure):
    api = MemoryApi()
    made = plugin(api)
    # Also in a segment that is not served yet (hami 1.9).
    value = f"GPU-a0,NVIDIA,4096,25:;GPU-a0,NVIDIA,{figure},10:;"
    api.objects[POD] = assigned(value, "c0", "c1")
    with pytest.raises(AllocateError, match="ParseInt"):
        await made.allocate("nvidia.com/gpu", 1)
    assert notes(api, POD)[TO_ALLOCATE] == value
    assert notes(api, POD)[PHASE] == "failed"


A100 = {"mode": "mig", "model": "NVIDIA A100-SXM4-40GB", "memory_mib": 40960, "count": 1}
CARD = "GPU-node-a-0"


def reserved(container, profile, start, size):
    place = {"start": start, "size": size}
    return {"containerIndex": container, "deviceIndex": 0, "gpuUUID": CARD, "profile": profile, "placement": place}


def add_pod(api, name, *reservations, **metadata):
    """A pod that asks one instance in each container; the lock names it."""
    value = "".join(f"{CARD},NVIDIA,4864,15:;" for _ in reservations)
    annotations = {TO_ALLOCATE: value, PHASE: "allocating", RESERVATIONS: json.dumps(reservations)}
    path = f"/api/v1/namespaces/default/pods/{name}"
    meta = {"namespace": "default", "name": name, "uid": name, "resourceVersion": "1", "annotations": annotations}
    api.objects[path] = {
        "metadata": {**meta, **metadata},
        "spec": {"containers": [{"name": f"c{at}"} for at in range(len(reservations))], "nodeName": "node-a"},
        "status": {"phase": "Pending"},
    }
    api.objects[NODE]["metadata"]["annotations"][LOCK] = f"2026-08-20T10:11:12Z,default,{name}"
    return path


async def test_instances_are_made_as_they_are_reserved_and_written_back():
    api = MemoryApi()
    made = plugin(api, **A100)
    await made.start()
    (card,) = json.loads(notes(api, NODE)[REGISTER])
    assert (card["count"], card["mode"], len(card["migProfiles"])) == (7, "mig", 4)
    path = add_pod(api, "a", reserved(0, "2g.10gb", 0, 2), reserved(1, "1g.5gb", 5, 1))
    seen = [(await made.allocate("nvidia.com/gpu", 1)) for _ in range(2)]
    found = json.loads(notes(api, path)[RESERVATIONS])
    assert [one["migUUID"] for one in found] == [one["NVIDIA_VISIBLE_DEVICES"] for one in seen]
    assert all(set(one) == {"NVIDIA_VISIBLE_DEVICES"} for one in seen)
    assert notes(api, path)[PHASE] == "success"


@pytest.mark.parametrize(
    ("reservation", "said"),
    [
        (reserved(0, "3g.20gb", 4, 4), "failed to create"),
        (reserved(0, "1g.5gb", 7, 1), "failed to create"),
        (reserved(1, "1g.5gb", 0, 1), "do not match"),
        ({}, "failed to read"),
    ],
    ids=["taken", "no place", "of another container", "unread"],
)
async def test_what_cannot_be_made_fails_the_pod_and_makes_nothing(reservation, said):
    api = MemoryApi()
    made = plugin(api, **A100)
    add_pod(api, "other", reserved(0, "1g.5gb", 6, 1))
    await made.allocate("nvidia.com/gpu", 1)
    path = add_pod(api, "a", reservation)
    with pytest.raises(AllocateError, match=said):
        await made.allocate("nvidia.com/gpu", 1)
    assert notes(api, path)[PHASE] == "failed"
    add_pod(api, "b", reserved(0, "3g.20gb", 0, 4))
    await made.allocate("nvidia.com/gpu", 1)


@pytest.mark.parametrize("gone", [{"deletionTimestamp": "2026-08-20T10:11:12Z"}, {}], ids=["leaving", "ended"])
async def test_instances_of_pods_that_leave_are_destroyed(gone):
    api = MemoryApi()
    made = plugin(api, **A100)
    path = add_pod(api, "other", reserved(0, "7g.40gb", 0, 8))
    await made.allocate("nvidia.com/gpu", 1)
    api.objects[path]["metadata"].update(gone)
    api.objects[path]["status"]["phase"] = "Running" if gone else "Succeeded"
    add_pod(api, "a", reserved(0, "1g.5gb", 0, 1))
    await made.allocate("nvidia.com/gpu", 1)


async def test_a_write_to_the_pod_meanwhile_fails_it_and_undoes_its_instance():
    api = MemoryApi()
    made = plugin(api, **A100)
    path = add_pod(api, "a", reserved(0, "7g.40gb", 0, 8))

    def changed_meanwhile(at, merged):
        if at == path and "migUUID" in merged["metadata"]["annotations"][RESERVATIONS]:
            raise ApiStatusError(409, "Conflict", "the object has been modified")

    api.on_patch = changed_meanwhile
    with pytest.raises(AllocateError, match="record MIG runtime placement"):
        await made.allocate("nvidia.com/gpu", 1)
    assert notes(api, path)[PHASE] == "failed"
    api.on_patch = None
    api.objects[path]["status"]["phase"] = "Failed"
    add_pod(api, "b", reserved(0, "1g.5gb", 0, 1))
    await made.allocate("nvidia.com/gpu", 1)


def test_instances_are_played_of_one_model():
    with pytest.raises(OptionsError, match="NVIDIA A100-SXM4-40GB"):
        plugin(MemoryApi(), mode="mig", model="Tesla T4")


class Retaken(MemoryApi):
    """Between the plugin's read and its write the lock is taken for another pod."""

    theirs = "2026-08-20T10:11:13Z,default,b"
    reads = 0

    async def get(self, path, params=None):
        found = await super().get(path, params)
        self.reads += path == NODE
        if path == NODE and self.reads == 2:  # the first was to find the pod
            await self.patch(NODE, {"metadata": {"annotations": {LOCK: self.theirs}}})
        return found


@pytest.mark.parametrize(("blind", "robbed"), [(True, 1), (False, 0)])
async def test_an_old_plugin_deletes_the_lock_that_another_pod_has_by_then(blind, robbed):
    api = Retaken()
    made = plugin(api, blind_release=blind)
    api.add_pod("a", annotations={TO_ALLOCATE: "GPU-a0,NVIDIA,4096,25:;", PHASE: "allocating"}, uid="u")
    await made.allocate("nvidia.com/gpu", 1)
    assert made.faults.robbed == robbed
    assert notes(api, NODE).get(LOCK) == (None if blind else api.theirs)
