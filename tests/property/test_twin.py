"""A small part of `scripts/twin`, and proof that its judge sees what it looks for."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from core.dialects.hami_vendors.dialect import DIALECTS as VENDORS
from core.model import Container, Pod, PodUid
from tests.support.devices.texts import WORDS
from tests.support.devices.twin import Machine, Twin
from tests.support.devices.twin_world import World

OPERATIONS = 20_000


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", ["a", "b", "c", "d", "e", "f"])
def test_a_twin_that_reads_the_objects_alone_finds_no_card_sold_twice(seed):
    world = World(seed)
    for _ in range(OPERATIONS):
        world.step()
    assert world.faults == []
    assert world.contradictions == []
    assert world.drifts == []
    assert world.ledger.aside == {}
    # The machines of HAMi's other vendors are not among the twin's; `test_mixed_cluster` has a node of each.
    assert set(world.placed) == set(WORDS.dialects) - {one.name for one in VENDORS}
    assert sum(world.placed.values()) > OPERATIONS / 20
    assert min(world.counts[name] for name in ("refused", "change_config", "swap", "restart", "garble")) > 0


MACHINES = {
    "gpu": Machine(gpus=(("GPU-0", 16000), ("GPU-1", 16000))),
    "mig": Machine(gpus=(("GPU-0", 24060),), model="A30"),
    "npu": Machine(npus=("U0", "U1"), word="Ascend310P"),
}
VGPU = {"volcano.sh/vgpu-number": "1"}
SOLD = frozenset({"volcano.sh/vgpu-number", "volcano.sh/gpu-memory", "volcano.sh/gpu-number", "huawei.com/Ascend310P"})


def on(node: str, limits: Mapping[str, str], name: str = "new", **annotations: str) -> Pod:
    notes = {key.replace("__", "/").replace("_", "-"): text for key, text in annotations.items()}
    one = Container(name="c", limits=limits)
    return Pod(uid=PodUid(name), namespace="d", name=name, node_name=node, annotations=notes, containers=(one,))


def ids(text: str) -> dict[str, str]:
    return {"volcano.sh__vgpu_ids_new": text}


def index(text: str) -> dict[str, str]:
    return {"volcano.sh__gpu_index": text}


def hami(text: str) -> dict[str, str]:
    return {"hami.io__Ascend310P_devices_allocated": text}


MEM, NUM = {"volcano.sh/gpu-memory": "9000"}, {"volcano.sh/gpu-number": "1"}
NPU, CORES = {"huawei.com/Ascend310P": "1"}, {"huawei.com/npu-core": "4"}
PAIRS = {
    "memory of one card": ("gpu", VGPU, ids("GPU-0,NVIDIA,9000,0:"), VGPU, ids("GPU-0,NVIDIA,9000,0:")),
    "cores of one card": ("gpu", VGPU, ids("GPU-0,NVIDIA,1,60:"), VGPU, ids("GPU-0,NVIDIA,1,60:")),
    "all cores": ("gpu", VGPU, ids("GPU-0,NVIDIA,1,0:"), VGPU, ids("GPU-0,NVIDIA,1,100:")),
    "no such card": ("gpu", VGPU, ids("GPU-1,NVIDIA,1,0:"), VGPU, ids("GPU-9,NVIDIA,1,0:")),
    "no assignment": ("gpu", VGPU, {}, VGPU, ids("GPU-1,NVIDIA,1,0:")),
    "an empty assignment": ("gpu", VGPU, ids(";;"), VGPU, ids("GPU-1,NVIDIA,1,0:")),
    "an entry that cannot be read": ("gpu", VGPU, ids("GPU-1,NVIDIA,x,0:"), VGPU, ids("GPU-1,NVIDIA,1,0:")),
    "another protocol": ("gpu", VGPU, ids("GPU-0,NVIDIA,1,0:"), {"nvidia.com/gpu": "1"}, {}),
    "two protocols in one pod": ("gpu", {**VGPU, **MEM}, {**ids("GPU-0,NVIDIA,1,0:"), **index("0")}, MEM, index("1")),
    "too many whole": ("gpu", {"nvidia.com/gpu": "1"}, {}, {"nvidia.com/gpu": "2"}, {}),
    "one slice": ("mig", VGPU, ids("GPU-0[group1-0],NVIDIA,1,0:"), VGPU, ids("GPU-0[group1-0],NVIDIA,1,0:")),
    "two groups": ("mig", VGPU, ids("GPU-0[group1-0],NVIDIA,1,0:"), VGPU, ids("GPU-0[group2-1],NVIDIA,1,0:")),
    "a slice and none": ("mig", VGPU, ids("GPU-0,NVIDIA,1,0:"), VGPU, ids("GPU-0[group2-1],NVIDIA,1,0:")),
    "memory by index": ("gpu", MEM, index("0"), MEM, index("0")),
    "whole by index": ("gpu", NUM, index("0"), NUM, index("0")),
    "memory and whole": ("gpu", NUM, index("0"), MEM, index("0")),
    "no index": ("gpu", NUM, index(""), NUM, index("0")),
    "a chip's memory": ("npu", NPU, hami("U0,Ascend310P,12288,0:;"), NPU, hami("U0,Ascend310P,12288,0:;")),
    "chips of two plugins": ("npu", NPU, hami("U0,Ascend310P,3072,0:;"), CORES, {"huawei.com__npu_core": "1-vir04"}),
    "a chip's cores": (
        "npu",
        {"huawei.com/npu-core": "8"},
        {"huawei.com__npu_core": "1"},
        CORES,
        {"huawei.com__npu_core": "1-vir04"},
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_the_twin_sees(name):
    node, held_limits, held, limits, notes = PAIRS[name]
    twin = Twin(MACHINES)
    if name != "no such card":
        assert twin.judge(on(node, limits, **notes), 1, SOLD) == [], "alone it is right"
    twin.put(on(node, held_limits, "old", **held))
    assert len(twin.judge(on(node, limits, **notes), 1, SOLD)) >= 1


def test_the_twin_reads_amounts_in_the_unit_of_the_plugin():
    twin = Twin(MACHINES)
    twin.put(on("gpu", VGPU, "old", **ids("GPU-0,NVIDIA,1000,0:")), factor=10)
    assert twin.judge(on("gpu", VGPU, **ids("GPU-0,NVIDIA,6000,0:")), 1, SOLD) == []
    assert twin.judge(on("gpu", VGPU, **ids("GPU-0,NVIDIA,6001,0:")), 1, SOLD) != []
