"""A small part of `scripts/twin`, and proof that its judge sees what it looks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from core.dialects.hami_vendors.dialect import DIALECTS as VENDORS
from core.model import Container, Pod, PodUid
from tests.support.devices.texts import WORDS
from tests.support.devices.twin import Machine, Twin
from tests.support.devices.twin_shifts import ShiftingWorld
from tests.support.devices.twin_vendors import PLAIN
from tests.support.devices.twin_world import World

OPERATIONS = 20_000


@pytest.mark.parametrize("seed", ["a", "c", "d", "e"])
def test_a_twin_that_reads_the_objects_alone_finds_no_card_sold_twice(seed):
    world = World(seed)
    for _ in range(OPERATIONS):
        world.step()
    assert world.faults == []
    assert world.contradictions == []
    assert world.drifts == []
    assert world.ledger.aside == {}
    # The twin has those of HAMi's vendors whose shares are plain; `test_mixed_cluster` has a node of each.
    assert set(world.placed) == set(WORDS.dialects) - {one.name for one in VENDORS if one.name not in PLAIN}
    assert sum(world.placed.values()) > OPERATIONS / 20
    assert min(world.counts[name] for name in ("refused", "change_config", "swap", "restart", "garble")) > 0
    assert min(world.counts["of several containers"], world.counts["init containers ended"]) > 0


@pytest.mark.parametrize("seed", ["a", "b"])
def test_no_card_is_sold_twice_on_machines_that_change(seed):
    world = ShiftingWorld(seed)
    for _ in range(OPERATIONS // 2):
        world.step()
    assert world.faults == []
    assert world.contradictions == []
    assert world.drifts == []
    assert world.ledger.aside == {}
    assert sum(world.placed.values()) > OPERATIONS / 40
    assert world.counts["shift"] > OPERATIONS / 400


MACHINES = {
    "gpu": Machine(gpus=(("GPU-0", 16000), ("GPU-1", 16000))),
    "mig": Machine(gpus=(("GPU-0", 24060),), model="A30"),
    "npu": Machine(npus=("U0", "U1"), word="Ascend310P"),
    "vendor": Machine(cards=("C-0",), vendor="hygon"),
}
VGPU = {"volcano.sh/vgpu-number": "1"}
SOLD = frozenset({"volcano.sh/vgpu-number", "volcano.sh/gpu-memory", "volcano.sh/gpu-number", "huawei.com/Ascend310P"})
SOLD |= {one.count for one in PLAIN.values()}


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


def of(vendor: str, *texts: str) -> Iterator[Any]:
    """What two pods of *vendor* ask for, and what they hold by the text of each."""
    for text in texts:
        yield {PLAIN[vendor].count: "1"}
        yield {PLAIN[vendor].held[0].replace("/", "__"): text} if text else {}


PAIRS = {
    "memory of a vendor's card": ("vendor", *of("hygon", "C-0,DCU,20000,0:;", "C-0,DCU,20000,0:;")),
    "cores of a vendor's card": ("vendor", *of("hygon", "C-0,DCU,1,60:;", "C-0,DCU,1,60:;")),
    "all cores of a vendor's card": ("vendor", *of("iluvatar_mr_v100", "C-0,MR-V100,1,0:;", "C-0,MR-V100,1,100:;")),
    "compute units": ("vendor", *of("amd", "C-0,X,1,300:;", "C-0,X,1,5:;")),
    "sixteenths": ("vendor", *of("mthreads", "C-0,Mthreads,1,9:;", "C-0,Mthreads,1,8:;")),
    "shares of a vendor's card": ("vendor", *of("vastai", "C-0,Vastai,0,0:;", "C-0,Vastai,0,0:;")),
    "no assignment of a vendor's card": ("vendor", *of("cambricon", "", "C-0,MLU,1,1:;")),
    "an entry of a vendor that cannot be read": ("vendor", *of("biren", "C-0,Biren,x,0:;", "C-0,Biren,0,0:;")),
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


SHARE = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1"}
# What the containers of a pod have of a card of 16000 MiB, init containers (i) and sidecars (s) first; how much is free
# until the init containers have ended, and then.
STARTING = {
    "one ends before the other": ("i6000 m9000", 7000, 7000),
    "the first needs more": ("i12000 m4000", 4000, 12000),
    "a sidecar stays": ("s6000 i4000 m2000", 6000, 8000),
    "a sidecar has not started": ("i9000 s5000 m2000", 7000, 9000),
}


@pytest.mark.parametrize("name", STARTING)
def test_the_twin_adds_up_what_runs_together(name):
    words, free, later = STARTING[name]
    kinds = [(word[0], Container(name=word, limits=SHARE, sidecar=word[0] == "s")) for word in words.split()]
    text = "".join(f"GPU-0,NVIDIA,{word[1:]},0:;" for word in words.split())
    old = on("gpu", SHARE, "old", **{"hami.io__vgpu_devices_allocated": text})._replace(
        init_containers=tuple(one for kind, one in kinds if kind != "m"),
        containers=tuple(one for kind, one in kinds if kind == "m"),
    )
    for pod, room in ((old, free), (old._replace(init_done=True), later)):
        twin = Twin(MACHINES)
        twin.put(pod)
        for mib in (room, room + 1):
            new = {"hami.io__vgpu_devices_allocated": f"GPU-0,NVIDIA,{mib},0:;"}
            assert bool(twin.judge(on("gpu", SHARE, **new), 1, SOLD)) == (mib > room)


def test_the_twin_sees_containers_of_one_pod_on_one_chip():
    two = on("npu", NPU, **hami("U0,Ascend310P,3072,0:;U0,Ascend310P,3072,0:;"))
    assert Twin(MACHINES).judge(two._replace(init_containers=two.containers), 1, SOLD) == []
    assert len(Twin(MACHINES).judge(two._replace(containers=two.containers * 2), 1, SOLD)) == 1


def test_the_twin_reads_amounts_in_the_unit_of_the_plugin():
    twin = Twin(MACHINES)
    twin.put(on("gpu", VGPU, "old", **ids("GPU-0,NVIDIA,1000,0:")), factor=10)
    assert twin.judge(on("gpu", VGPU, **ids("GPU-0,NVIDIA,6000,0:")), 1, SOLD) == []
    assert twin.judge(on("gpu", VGPU, **ids("GPU-0,NVIDIA,6001,0:")), 1, SOLD) != []
