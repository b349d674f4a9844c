"""Pods whose volumes decide where they go: claims that are bound, and those that are once their pod has a node."""

import asyncio
import signal
from contextlib import asynccontextmanager

import pytest

from sandbox.players.provisioner import NAME, SELECTED_NODE, Mood
from tests.support.worlds.controller_rig import PODS
from tests.support.worlds.disks import CLAIMS, CLASSES, VOLUMES, claim, mounting, storage

NODES = tuple(
    {"name": name, "plugin": {"kind": "vgpu", "model": "Tesla T4", "memory_mib": 15360, "count": 1}}
    for name in ("t4-a", "t4-b")
)
SETTINGS = "volume_wait_max_s: 3\n"


async def told(world, name, words):
    """The message of a pod's condition, once it has *words*."""
    async with asyncio.timeout(60.0):
        while True:
            found = await world.client.get(f"{PODS}/{name}")
            for one in found["status"].get("conditions") or ():
                if one["type"] == "PodScheduled" and words in one.get("message", ""):
                    return one["message"]
            await asyncio.sleep(0.02)


async def test_a_claim_that_waits_for_its_pod_is_bound_where_that_has_its_place(rig):
    async with rig(nodes=NODES) as world, storage(world):
        await world.controller()
        await world.client.create(CLAIMS, claim("data"))
        await world.add(mounting("train", "data"))
        await world.phase("train")
        node = (await world.client.get(f"{PODS}/train"))["spec"]["nodeName"]
        bound = await world.client.get(f"{CLAIMS}/data")
        assert bound["metadata"]["annotations"][SELECTED_NODE] == node
        # The next pod of the claim follows its volume, also to where less is free.
        await world.add(mounting("next", "data", 2000))
        await world.phase("next")
        assert (await world.client.get(f"{PODS}/next"))["spec"]["nodeName"] == node


async def test_a_claim_that_is_missing_or_not_bound_is_waited_for_by_name(rig):
    async with rig(nodes=NODES) as world, storage(world, Mood.SILENT) as provisioner:
        await world.controller()
        await world.add(mounting("train", "data"))
        assert "'default/data' does not exist" in await told(world, "train", "CS545")
        await world.client.create(CLAIMS, claim("data", "now"))
        await told(world, "train", "CS546")
        provisioner.mood = Mood.MAKES
        await world.phase("train")


async def test_a_provisioner_that_is_silent_or_fails_gives_the_place_back(rig):
    async with rig(nodes=NODES) as world, storage(world, Mood.SILENT) as provisioner:
        settings = world.folder / "cardshare.yaml"
        settings.write_text(SETTINGS)
        await world.controller("--settings", str(settings))
        await world.client.create(CLAIMS, claim("data"))
        await world.add(mounting("train", "data"))
        assert "volume_wait_max_s" in await told(world, "train", "CS549")
        provisioner.mood = Mood.FAILS
        await told(world, "train", "failed to provide")
        provisioner.mood = Mood.MAKES
        await world.phase("train")


@pytest.mark.parametrize("point", ["before-volume", "after-volume"])
async def test_a_controller_that_dies_while_a_claim_is_told_its_node_is_followed_by_one_that_goes_on(rig, point):
    async with rig(nodes=NODES) as world, storage(world, Mood.SILENT) as provisioner:
        first = await world.controller(fail_at=f"{point}:kill")
        await world.client.create(CLAIMS, claim("data"))
        await world.add(mounting("train", "data"))
        async with asyncio.timeout(60):
            assert await first.process.wait() == -signal.SIGKILL
        told = (await world.client.get(f"{CLAIMS}/data"))["metadata"].get("annotations", {}).get(SELECTED_NODE)
        assert bool(told) == (point == "after-volume")
        provisioner.mood = Mood.MAKES
        await world.controller(name="second")
        await world.phase("train")
        node = (await world.client.get(f"{PODS}/train"))["spec"]["nodeName"]
        assert told in (None, node)


@asynccontextmanager
async def attached(world):
    """A node to which the provisioner's driver attaches one volume, and has one attached still that nobody uses."""
    storage_path = CLASSES.removesuffix("/storageclasses")
    nodes, attachments = f"{storage_path}/csinodes", f"{storage_path}/volumeattachments"
    volume = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": NAME, "volumeHandle": "old"},
        "claimRef": {"namespace": "default", "name": "gone"},
    }
    await world.client.create(VOLUMES, {"metadata": {"name": "old"}, "spec": volume})
    drivers = [{"name": NAME, "nodeID": "t4-a", "topologyKeys": [], "allocatable": {"count": 1}}]
    await world.client.create(nodes, {"metadata": {"name": "t4-a"}, "spec": {"drivers": drivers}})
    spec = {"attacher": NAME, "nodeName": "t4-a", "source": {"persistentVolumeName": "old"}}
    await world.client.create(attachments, {"metadata": {"name": "left"}, "spec": spec})
    try:
        yield f"{attachments}/left"
    finally:
        await world.client.delete(f"{nodes}/t4-a", grace_s=0)
        for one in await world.client.list(attachments):
            await world.client.delete(f"{attachments}/{one['metadata']['name']}", grace_s=0)


async def test_a_volume_that_is_attached_still_counts_until_it_is_detached(rig):
    async with rig(nodes=NODES[:1]) as world, storage(world), attached(world) as left:
        await world.controller()
        await world.client.create(CLAIMS, claim("data", "now"))
        await world.add(mounting("train", "data"))
        await told(world, "train", f"no capacity to attach volumes of {NAME}")
        await world.client.delete(left, grace_s=0)
        await world.phase("train")


async def test_a_volume_that_is_there_is_given_to_the_claim_on_its_node(rig):
    near = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["t4-b"]}]}]
    async with rig(nodes=NODES) as world, storage(world):
        await world.controller()
        none = "kubernetes.io/no-provisioner"
        mode = "WaitForFirstConsumer"
        await world.client.create(
            CLASSES, {"metadata": {"name": "local"}, "provisioner": none, "volumeBindingMode": mode}
        )
        await world.client.create(CLAIMS, claim("data", "local"))
        await world.add(mounting("train", "data"))
        await told(world, "train", "CS546")
        spec = {
            "capacity": {"storage": "2Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "local": {"path": "/data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": near}},
        }
        await world.client.create(VOLUMES, {"metadata": {"name": "disk"}, "spec": spec})
        await world.phase("train")
        assert (await world.client.get(f"{PODS}/train"))["spec"]["nodeName"] == "t4-b"
        assert (await world.client.get(f"{CLAIMS}/data"))["spec"]["volumeName"] == "disk"
