"""Of equally good nodes the one that has a pod's image is taken, as its kubelet tells it in the node's status."""

from tests.support.worlds.controller_rig import pod, share

CARD = {"kind": "vgpu", "model": "Tesla T4", "memory_mib": 15360, "count": 1}
NODES = tuple({"name": f"t4-{one}", "plugin": CARD} for one in "abc")
IMAGE = {"names": ["registry.example.com/train:2", "registry.example.com/train@sha256:0"], "sizeBytes": 3 * 2**30}


def needing(name, image):
    found = pod(name, share(12000))
    found["spec"]["containers"][0]["image"] = image
    return found


async def test_a_pod_goes_where_its_image_is(rig):
    async with rig(nodes=NODES) as world:
        await world.client.patch("/api/v1/nodes/t4-b/status", {"status": {"images": [IMAGE]}})
        await world.controller()
        # By name t4-a would be the first.
        await world.add(needing("a", "registry.example.com/train:2"))
        assert (await world.phase("a"))["spec"]["nodeName"] == "t4-b"
        await world.add(needing("b", "registry.example.com/other:1"))
        assert (await world.phase("b"))["spec"]["nodeName"] == "t4-a"
        # An image outweighs no card: where it is there is no room.
        await world.add(needing("c", "registry.example.com/train@sha256:0"))
        assert (await world.phase("c"))["spec"]["nodeName"] == "t4-c"
