"""Bars of cards from API objects."""

from __future__ import annotations

from typing import Any

from sandbox.demo.picture import cards, environment, lines

VGPU = {
    "metadata": {
        "name": "t4-a",
        "annotations": {
            "volcano.sh/node-vgpu-register": "GPU-0,10,15360,NVIDIA-Tesla T4,true,hami-core:"
            "GPU-1,10,15360,NVIDIA-Tesla T4,false,hami-core:"
        },
    }
}
SHARE = {
    "metadata": {"name": "share-a"},
    "status": {"capacity": {"volcano.sh/gpu-number": "2", "volcano.sh/gpu-memory": "22356"}},
}
WHOLE = {"metadata": {"name": "number-a"}, "status": {"capacity": {"volcano.sh/gpu-number": "2"}}}


HAMI = {
    "metadata": {
        "name": "npu-a",
        "annotations": {
            "hami.io/node-register-Ascend310P": '[{"id":"NPU-0","devmem":21527,"health":true},'
            '{"id":"NPU-1","devmem":21527}]',
            "hami-vnpu-core": "false",
        },
    }
}
MIND = {"metadata": {"name": "mind-a"}, "status": {"capacity": {"huawei.com/npu-core": "16"}}}


def pod(name: str, node: str, phase: str = "Running", limits: Any = None, **annotations: str) -> dict[str, Any]:
    keys = {
        "ids": "volcano.sh/vgpu-ids-new",
        "index": "volcano.sh/gpu-index",
        "chips": "hami.io/Ascend310P-devices-allocated",
        "cores": "huawei.com/npu-core",
        "real": "huawei.com/AscendReal",
    }
    return {
        "metadata": {"name": name, "annotations": {keys[key]: value for key, value in annotations.items()}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"limits": limits or {}}}]},
        "status": {"phase": phase},
    }


def test_bars_show_who_holds_how_much_of_which_card():
    bars = cards(
        [VGPU, SHARE, WHOLE],
        [
            pod("a", "t4-a", ids="GPU-0,NVIDIA,3000,50:"),
            pod("done", "t4-a", phase="Succeeded", ids="GPU-0,NVIDIA,3000,50:"),
            pod("b", "share-a", limits={"volcano.sh/gpu-memory": "1024"}, index="1"),
            pod("c", "number-a", limits={"volcano.sh/gpu-number": "2"}, index="0,1"),
            pod("elsewhere", "t4-b", ids="GPU-0,NVIDIA,3000,50:"),
        ],
    )
    told = [(bar.node, bar.card, bar.used, bar.total, tuple(part.pod for part in bar.parts)) for bar in bars]
    assert told == [
        ("t4-a", "GPU-0", 3000, 15360, ("a",)),
        ("t4-a", "GPU-1", 0, 15360, ()),
        ("share-a", "0", 0, 11178, ()),
        ("share-a", "1", 1024, 11178, ("b",)),
        ("number-a", "0", 1, 1, ("c",)),
        ("number-a", "1", 1, 1, ("c",)),
    ]
    text = "\n".join(lines(bars))
    assert "3000 of 15360 MiB   a 3000 (50 % of compute)" in text
    assert "OVERCOMMITTED" not in text


def test_npus_are_drawn_in_their_protocols_unit_with_the_templates_of_their_slices():
    bars = cards(
        [HAMI, MIND],
        [
            pod("a", "npu-a", chips="NPU-0,Ascend310P,6144,0:;"),
            pod("whole", "npu-a", chips="NPU-1,Ascend310P,21527,0:;"),
            pod("b", "mind-a", cores="0-vir02_1c"),
            pod("swapped", "mind-a", cores="0-vir04", real="Ascend310P-4c-101-1_0"),
        ],
    )
    drawn = lines(bars)
    assert [line.split("░")[-1].split("█")[-1].split() for line in drawn if line.startswith("  ")] == [
        ["6144", "of", "21527", "MiB", "a", "6144", "(vir02)"],
        ["21527", "of", "21527", "MiB", "whole", "21527"],
        ["2", "of", "8", "AI", "cores", "b", "2", "(vir02_1c)"],
        ["4", "of", "8", "AI", "cores", "swapped", "4", "(vir04)"],
    ]
    assert "npu-a  (Ascend310P, templates, unhealthy)" in drawn
    assert not any(bar.overcommitted for bar in bars)


def test_slices_that_need_more_ai_cpus_than_a_chip_has_clash():
    (first, _) = cards([MIND], [pod(name, "mind-a", cores="0-vir04") for name in "ab"])
    assert (first.used, first.overcommitted) == (8, True)
    three = [pod(name, "npu-a", chips="NPU-0,Ascend310P,6144,0:;") for name in "abc"]
    (fits, _) = cards([HAMI], three)
    assert not fits.overcommitted
    (over, _) = cards([HAMI], [*three, pod("d", "npu-a", chips="NPU-0,Ascend310P,6144,0:;")])
    assert over.overcommitted


def test_a_card_that_holds_more_than_it_has_says_so():
    ids = "GPU-0,NVIDIA,8000,60:"
    (first, _) = cards([VGPU], [pod("a", "t4-a", ids=ids), pod("b", "t4-a", ids=ids)])
    assert first.overcommitted
    assert "OVERCOMMITTED" in lines([first])[1]


def test_the_environment_leaves_out_what_every_container_has():
    assert environment({"A": "1", "NVIDIA_GDS": "enabled", "CUDA_DEVICE_MEMORY_SHARED_CACHE": "/tmp/x"}) == "A=1"
