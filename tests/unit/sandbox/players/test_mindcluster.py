"""MindCluster's player: which pod it serves, how it cuts chips, and what it reports."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.dialects.mindcluster.dialect import MindCluster
from core.port.cards import Offer
from core.settings import Tables
from core.wire.mindcluster import node_documents
from core.wire.nodes import node_from_object
from sandbox.nodes.plugin_port import AllocateError, SettlingPlugin
from sandbox.players import mindcluster_protocol as protocol
from sandbox.players.mindcluster import MindClusterPlugin
from sandbox.players.player import OptionsError
from tests.support.servers.memory_api import MemoryApi

NODE = "/api/v1/nodes/node-a"
CONFIG_MAP = "/api/v1/namespaces/kube-system/configmaps/mindx-dl-deviceinfo-node-a"
CORES = "huawei.com/npu-core"
SERVED = "18446744073709551615"
EXAMPLES = Path(__file__).parents[3] / "data" / "ascend-examples.yaml"


def plugin(api: MemoryApi, **options: Any) -> MindClusterPlugin:
    api.add_node("node-a")
    api.objects[NODE]["metadata"]["labels"] = {"accelerator": "huawei-Ascend310P"}
    given = {"report_after_s": 0.0, "retry_after_s": 0.0, **options}
    return MindClusterPlugin.from_options("mindcluster", "node-a", given, api)


def pod(api: MemoryApi, name: str, core: str, cores: int, time: str = "100", **fields: Any) -> str:
    annotations = {CORES: core, "predicate-time": time}
    return api.add_pod(name, annotations=annotations, limits=({CORES: str(cores)},), uid=name, **fields)


async def admit(player: MindClusterPlugin, api: MemoryApi, path: str, cores: int) -> Any:
    """One pod through kubelet: the call, and what its pod-resources socket tells."""
    env = await player.allocate(CORES, cores)
    await player.settle(api.objects[path], env)
    return env


async def test_start_tells_labels_chips_and_which_of_them_are_ill():
    api = MemoryApi()
    await plugin(api, chips=3, unhealthy="1").start()
    node = api.objects[NODE]
    assert node["metadata"]["labels"] == {
        "accelerator": "huawei-Ascend310P",
        "servertype": "Ascend310P-8",
        "node.kubernetes.io/npu.chip.name": "310P3",
    }
    assert node["status"] == {"capacity": {CORES: "24"}, "allocatable": {CORES: "16"}}
    assert sorted(json.loads(api.annotations(NODE)["baseDeviceInfos"])) == [f"Ascend310P-{at}" for at in range(3)]


async def test_what_it_tells_is_what_the_core_reads():
    api = MemoryApi()
    await plugin(api, chips=3, unhealthy="1").start()
    documents = {
        doc: text for _, doc, text in node_documents("mindx-dl-deviceinfo-node-a", api.objects[CONFIG_MAP]["data"])
    }
    node = node_from_object(api.objects[NODE])
    offer = MindCluster().offer(type(node)(**{**_fields(node), "documents": documents}), Tables())
    assert isinstance(offer, Offer)
    assert [one.fixed.id for one in offer.cards if one.there] == [0, 2]


def _fields(node: Any) -> dict[str, Any]:
    return {name: getattr(node, name) for name in node.__dataclass_fields__}


async def test_one_pod_goes_through_as_in_the_worked_example():
    example = next(one for one in yaml.safe_load_all(EXAMPLES.read_text()) if one and one["id"] == "M12")
    api = MemoryApi()
    player = plugin(api, chips=2, first_vnpu=104)
    written = example["written_before_or_with_bind"]
    # Another slice first, so that vNPU and vGroup are those of the example.
    other = pod(api, "other", "0-vir01", 1)
    await admit(player, api, other, 1)
    path = pod(api, "a", written[CORES], 2, written["predicate-time"])
    env = await player.allocate(CORES, len(example["kubelet_allocate"]))
    assert env == example["container_env"]
    assert api.annotations(path) == example["after_allocate"]
    await player.settle(api.objects[path], env)
    assert api.annotations(path)["huawei.com/AscendReal"] == example["after_writeback"]["huawei.com/AscendReal"]
    assert api.annotations(path)["huawei.com/kltDev"] == "npu-core-1,npu-core-2"


async def test_whole_chips_are_seen_by_their_ids_without_the_virtual_option():
    api = MemoryApi()
    path = pod(api, "a", "0,1", 16)
    env = await admit(plugin(api, chips=2), api, path, 16)
    assert (env["ASCEND_VISIBLE_DEVICES"], env["ASCEND_RUNTIME_OPTIONS"], env["WORLD_SIZE"]) == ("0,1", "", "2")
    assert env["LOCAL_RANK"] == "0,1"
    assert api.annotations(path)["huawei.com/AscendReal"] == "Ascend310P-0,Ascend310P-1"


async def test_the_smallest_time_of_as_many_cores_is_served_whatever_the_template():
    api = MemoryApi()
    pod(api, "a-later", "0-vir02", 2, "200")
    early = pod(api, "b-early", "1-vir02_1c", 2, "100")
    pod(api, "c-other-cores", "0-vir01", 1, "1")
    pod(api, "d-served", "0-vir02", 2, SERVED)
    pod(api, "e-over", "0-vir02", 2, "2", status={"phase": "Failed"})
    pod(api, "f-going", "0-vir02", 2, "3", deletionTimestamp="2026-01-01T00:00:00Z")
    pod(api, "g-elsewhere", "0-vir02", 2, "4", node="node-b")
    await plugin(api, chips=2).allocate(CORES, 2)
    assert api.annotations(early)["predicate-time"] == SERVED


async def test_two_pods_of_one_number_of_cores_may_get_each_others_devices():
    api = MemoryApi()
    first, second = pod(api, "a", "0-vir02", 2, "100"), pod(api, "b", "1-vir02", 2, "200")
    player = plugin(api, chips=2)
    # Kubelet admits the second pod first; the plugin serves what was written on the first.
    await admit(player, api, second, 2)
    await admit(player, api, first, 2)
    assert api.annotations(second)["huawei.com/AscendReal"].endswith("-0_0")
    assert api.annotations(first)["huawei.com/AscendReal"].endswith("-1_0")


@pytest.mark.parametrize("core", ["0-vir02", "what", "0,x", "0-vir02-1"])
async def test_without_a_pod_that_fits_the_call_fails_after_three_looks(core):
    api = MemoryApi()
    pod(api, "a", core, 4)
    with pytest.raises(AllocateError, match="not get valid pod"):
        await plugin(api).allocate(CORES, 4)


@pytest.mark.parametrize(
    ("core", "cores", "message"),
    [("0-vir04", 4, "NPUSegmentFailed"), ("7-vir01", 1, "NoNPUResource"), ("0", 8, "NoNPUResource")],
)
async def test_a_chip_without_room_or_that_is_not_there_fails_the_call(core, cores, message):
    api = MemoryApi()
    player = plugin(api)
    await admit(player, api, pod(api, "held", "0-vir04", 4), 4)
    pod(api, "a", core, cores)
    with pytest.raises(AllocateError, match=message):
        await player.allocate(CORES, cores)


async def test_what_no_pod_uses_is_destroyed_before_the_next_cut():
    api = MemoryApi()
    player = plugin(api)
    gone = pod(api, "gone", "0", 8)
    await admit(player, api, gone, 8)
    api.objects[gone]["status"]["phase"] = "Succeeded"
    await admit(player, api, pod(api, "a", "0-vir04", 4), 4)
    assert [device.template for device in player.devices] == ["vir04"]


async def test_a_report_waits_its_time_and_never_replaces_one():
    api = MemoryApi()
    path = pod(api, "a", "0-vir01", 1)
    player = plugin(api, report_after_s=0.05)
    env = await player.allocate(CORES, 1)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(player.settle(api.objects[path], env))
        await asyncio.sleep(0)
        assert "huawei.com/AscendReal" not in api.annotations(path)
    assert api.annotations(path)["huawei.com/AscendReal"] == "Ascend310P-1c-100-0_0"
    assert isinstance(player, SettlingPlugin)


async def test_the_own_configmap_tells_free_and_ill_chips():
    api = MemoryApi()
    player = plugin(api, chips=3)
    await player.start()
    await admit(player, api, pod(api, "a", "1-vir01", 1), 1)
    await player.set_healthy(2, healthy=False)
    devices = json.loads(api.objects[CONFIG_MAP]["data"]["DeviceInfoCfg"])["DeviceInfo"]["DeviceList"]
    assert devices["huawei.com/Ascend310P"] == "Ascend310P-0"
    assert devices["huawei.com/Ascend310P-Unhealthy"] == "Ascend310P-2"


async def test_a_failure_that_is_asked_for_and_a_server_that_is_away_fail_the_call():
    api = MemoryApi()
    path = pod(api, "a", "0-vir01", 1)
    player = plugin(api, fail_next=1)
    with pytest.raises(AllocateError, match="resolve"):
        await player.allocate(CORES, 1)
    second = pod(api, "b", "0-vir01", 1)
    api.refuse.append(second)
    with pytest.raises(AllocateError, match="reach the API server"):
        await player.allocate(CORES, 1)
    assert api.annotations(path)["predicate-time"] == SERVED


def test_unknown_options_are_named():
    with pytest.raises(OptionsError, match="chip_count"):
        MindClusterPlugin.from_options("mindcluster", "node-a", {"chip_count": 3}, MemoryApi())


@pytest.mark.parametrize(
    ("first", "second", "fits"),
    [
        ("vir04_4c_dvpp", "vir04_3c_ndvpp", True),
        ("vir04_4c_dvpp", "vir01", False),
        ("vir01", "vir04_4c_dvpp", False),
        ("vir04", "vir04", False),
        ("vir04", "vir04_3c", True),
    ],
)
def test_the_driver_cuts_what_cores_cpus_and_dvpp_allow(first, second, fits):
    made = protocol.cut((), protocol.AssignedChips(chips=(0,), template=first), (0,), 8, 100)
    if fits:
        assert len(protocol.cut(made, protocol.AssignedChips(chips=(0,), template=second), (0,), 8, 101)) == 1
    else:
        with pytest.raises(protocol.SegmentError, match="NPUSegmentFailed"):
            protocol.cut(made, protocol.AssignedChips(chips=(0,), template=second), (0,), 8, 101)


@pytest.mark.parametrize(
    "devices",
    [
        [protocol.Device(id=at, chip=1, template=name, group=at % 4) for at, name in enumerate(protocol.TEMPLATES)],
        [protocol.Device(id=0, chip=0), protocol.Device(id=3, chip=3)],
    ],
    ids=["slices", "chips"],
)
def test_what_was_reported_can_be_read_again(devices):
    assert sorted(protocol.decode_real(protocol.real_names(devices)), key=lambda one: one.id) == devices


@pytest.mark.parametrize("text", ["", ",", "Ascend910-1", "Ascend310P-", "Ascend310P-2c-1"])
def test_what_is_no_report_names_no_device(text):
    assert protocol.decode_real(text) == ()
