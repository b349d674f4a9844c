"""MindCluster's slices and NVIDIA's whole GPUs through controller, kubelets and plugins, each pod by its own words."""

import json
from pathlib import Path

import yaml

from sandbox.nodes.kubelet import AdmissionOrder, KubeletSettings
from tests.support.worlds.controller_rig import pod

RIGHTS = Path(__file__).parents[2] / "deploy" / "mindcluster.yaml"
CORES, GPU = "huawei.com/npu-core", "nvidia.com/gpu"
NPU_NODE = {
    "name": "npu-a",
    "labels": {"accelerator": "huawei-Ascend310P"},
    "plugin": {"kind": "mindcluster", "chips": 2, "report_after_s": 0.2, "retry_after_s": 0.05},
}
GPU_NODES = (
    {"name": "a100", "plugin": {"kind": "nvidia", "model": "NVIDIA A100-SXM4-80GB", "count": 4}},
    {"name": "a10", "plugin": {"kind": "nvidia", "model": "NVIDIA A10", "count": 4}},
)


def npu(name, cores, dvpp="null", level="low"):
    made = pod(name, {CORES: str(cores)})
    made["metadata"]["labels"] = {"ring-controller.atlas": "ascend-310P", "vnpu-dvpp": dvpp, "vnpu-level": level}
    return made


async def test_slices_of_every_kind_are_cut_as_they_were_promised(rig):
    kubelet = KubeletSettings(order=AdmissionOrder.NEWEST_FIRST)
    async with rig(nodes=(NPU_NODE,), kubelet=kubelet) as world:
        await world.controller()
        await world.add(npu("whole", 8), npu("low-2", 2), npu("high-2", 2, level="high"), npu("tiny", 1))
        for name, cores in (("whole", 8), ("low-2", 2), ("high-2", 2), ("tiny", 1)):
            found = await world.phase(name, "Running")
            env = world.records.of(f"default/{name}")["main"]
            assert env["ASCEND_RUNTIME_OPTIONS"] == ("" if cores == 8 else "VIRTUAL")

            async def reported(name=name):
                notes = (await world.get(name))["metadata"]["annotations"]
                return notes if "huawei.com/AscendReal" in notes else None

            notes = await world.until(reported)
            assert notes["predicate-time"] == "18446744073709551615"
            assert found["spec"]["nodeName"] == "npu-a"
            chip = notes[CORES].split("-")[0]
            assert chip in notes["huawei.com/AscendReal"].split("-")[-1].split("_")[0]
        # 3 AI cores are left of one chip, the other is whole: four fit nowhere until one goes.
        await world.add(npu("ndvpp", 4, "no"))
        condition = await world.waits("ndvpp", "of 4 AI cores free")
        assert "npu-a" in condition["message"]
        await world.client.delete("/api/v1/namespaces/default/pods/whole", grace_s=0)
        await world.phase("ndvpp")


async def test_whole_gpus_go_to_the_model_that_a_pod_accepts(rig):
    async with rig(nodes=GPU_NODES) as world:
        await world.controller()
        await world.add(
            pod("a10", {GPU: "2"}, annotations={"nvidia.com/use-gputype": "A10"}),
            pod("not-a10", {GPU: "3"}, annotations={"nvidia.com/nouse-gputype": "A10"}),
            pod("more", {GPU: "2"}, annotations={"nvidia.com/use-gputype": "A100-SXM4-80GB"}),
        )
        assert (await world.phase("a10"))["spec"]["nodeName"] == "a10"
        waiting, placed = "more", "not-a10"
        if (await world.get("more"))["spec"].get("nodeName"):
            waiting, placed = placed, waiting
        assert (await world.phase(placed))["spec"]["nodeName"] == "a100"
        await world.waits(waiting, "too few cards")
        seen = [world.records.of(f"default/{name}")["main"]["NVIDIA_VISIBLE_DEVICES"] for name in ("a10", placed)]
        assert seen[0] == "GPU-a10-0,GPU-a10-1"
        await world.client.delete(f"/api/v1/namespaces/default/pods/{placed}", grace_s=0)
        assert (await world.phase(waiting))["spec"]["nodeName"] == "a100"


async def test_a_chip_that_clusterd_calls_ill_is_not_used_until_it_is_well_again(rig):
    async with rig(nodes=(NPU_NODE,)) as world:
        await world.client.create("/api/v1/namespaces", {"metadata": {"name": "mindx-dl"}})
        await world.apply(yaml.safe_load_all(RIGHTS.read_text()))
        maps, name = "/api/v1/namespaces/mindx-dl/configmaps", "cluster-info-device-0"

        def states(ill):
            devices = {"huawei.com/Ascend310P": "Ascend310P-0,Ascend310P-1", "huawei.com/Ascend310P-Unhealthy": ill}
            return {name: json.dumps({"mindx-dl-deviceinfo-npu-a": {"DeviceList": devices}})}

        labels = {"mx-consumer-volcano": "true"}
        made = {"metadata": {"name": name, "labels": labels}, "data": states("Ascend310P-1")}
        await world.client.create(maps, made)
        await world.controller()
        assert "cardshare_documents_forbidden 0.0" in (await world.http("/metrics"))[1]
        await world.add(npu("first", 8), npu("second", 8))

        async def placed():
            pods = [await world.get(one) for one in ("first", "second")]
            return next((one["metadata"]["name"] for one in pods if one["spec"].get("nodeName")), None)

        waiting = {"first": "second", "second": "first"}[await world.until(placed)]
        await world.waits(waiting, "npu-a NPU 1: unhealthy")
        await world.client.patch(f"{maps}/{name}", {"data": states("")})
        for one in ("first", "second"):
            await world.phase(one)
