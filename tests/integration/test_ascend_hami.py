"""Shares of Ascend chips in HAMi mode through controller, kubelets and plugin, each container by its own segment."""

from sandbox.nodes.kubelet import AdmissionOrder, KubeletSettings
from tests.support.worlds.controller_rig import pod

LOCK = "hami.io/mutex.lock"
P, B4 = "huawei.com/Ascend310P", "huawei.com/Ascend910B4-1"
NODES = (
    {"name": "npu-310", "plugin": {"kind": "ascend-hami", "chip": "Ascend310P", "count": 2}},
    {"name": "npu-910", "plugin": {"kind": "ascend-hami", "chip": "Ascend910B4-1", "count": 8}},
    {"name": "npu-soft", "plugin": {"kind": "ascend-hami", "chip": "Ascend310P", "count": 1, "mode": "hami-core"}},
)


def received(world, name, container="main"):
    return world.records.of(f"default/{name}")[container]


async def test_templates_whole_chips_and_soft_slices_reach_their_containers(rig):
    async with rig(nodes=NODES) as world:
        await world.controller()
        soft = {"huawei.com/vnpu-mode": "hami-core"}
        await world.add(
            pod("slice", {P: "1", f"{P}-memory": "4096"}),
            pod("four", {B4: "4"}),
            pod("soft", {P: "1", f"{P}-memory": "5000", f"{P}-core": "60"}, annotations=soft),
        )
        nodes = {name: (await world.phase(name))["spec"]["nodeName"] for name in ("slice", "four", "soft")}
        assert nodes == {"slice": "npu-310", "four": "npu-910", "soft": "npu-soft"}
        assert received(world, "slice") == {"ASCEND_VISIBLE_DEVICES": "0", "ASCEND_VNPU_SPECS": "vir02"}
        assert received(world, "four") == {"ASCEND_VISIBLE_DEVICES": "0,1,2,3"}
        found = received(world, "soft")
        assert (found["NPU_MEM_QUOTA"], found["NPU_PRIORITY"]) == ("5000", "60")
        # The soft node takes no template, the others' chips have no room for all of one.
        await world.add(pod("whole", {P: "2"}))
        await world.waits("whole", "1 of 2 cards free")
        await world.client.delete("/api/v1/namespaces/default/pods/slice", grace_s=0)
        assert (await world.phase("whole"))["spec"]["nodeName"] == "npu-310"
        assert received(world, "whole") == {"ASCEND_VISIBLE_DEVICES": "0,1"}


async def test_pods_of_one_node_are_served_one_by_one_whatever_order_kubelet_takes(rig):
    kubelet = KubeletSettings(order=AdmissionOrder.NEWEST_FIRST)
    async with rig(nodes=NODES[:1], kubelet=kubelet) as world:
        await world.controller()
        two = pod("two", {P: "1", f"{P}-memory": "3072"})
        second = {"name": "second", "image": "i", "resources": {"limits": {P: "1", f"{P}-memory": "6144"}}}
        two["spec"]["containers"].append(second)
        others = [pod(f"p{n}", {P: "1", f"{P}-memory": "3072"}) for n in range(6)]
        await world.add(two, *others)
        for one in (two, *others):
            await world.phase(one["metadata"]["name"])
        # Each container of a pod has a chip of its own, and the template of its own segment.
        assert received(world, "two")["ASCEND_VNPU_SPECS"] == "vir01"
        assert received(world, "two", "second")["ASCEND_VNPU_SPECS"] == "vir02"
        chips = [received(world, "two", name)["ASCEND_VISIBLE_DEVICES"] for name in ("main", "second")]
        assert sorted(chips) == ["0", "1"]


async def test_the_nodes_lock_tells_the_plugin_its_pod_and_nothing_dangles(rig):
    kubelet = KubeletSettings(order=AdmissionOrder.NEWEST_FIRST)
    async with rig(nodes=NODES[:1], kubelet=kubelet) as world:
        node = "/api/v1/nodes/npu-310"
        # Left behind by another scheduler, for a pod that does not exist any more.
        dead = "2099-01-01T00:00:00Z,default,dead"
        await world.client.patch(node, {"metadata": {"annotations": {LOCK: dead}}})
        await world.controller()
        texts = {"vir01": "3072", "vir02": "6144", "vir04": "12288"}
        for template, memory_mib in texts.items():
            await world.add(pod(template, {P: "1", f"{P}-memory": memory_mib}))
        for template in texts:
            await world.phase(template)
            assert received(world, template)["ASCEND_VNPU_SPECS"] == template

        async def unlocked():
            return LOCK not in (await world.client.get(node))["metadata"]["annotations"]

        await world.until(unlocked)
        assert ("patch", "", "nodes") in await world.used_rights()
