"""Which cards a pod's annotations promise, and whether its containers see just those."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.demo.outcomes import cards_of, unseen

CHIPS = "hami.io/Ascend910B4-1-devices-allocated"
SHARES = "hami.io/vgpu-devices-allocated"
CORES, REAL = "huawei.com/npu-core", "huawei.com/AscendReal"
SEEN = "ASCEND_VISIBLE_DEVICES"


def pod(annotations: dict[str, str], limits: dict[str, str] | None = None) -> dict[str, Any]:
    container = {"name": "c", "resources": {"limits": limits or {}}}
    return {"metadata": {"annotations": annotations}, "spec": {"containers": [container]}}


@pytest.mark.parametrize(
    ("annotations", "cards"),
    [
        pytest.param({"volcano.sh/vgpu-ids-new": "GPU-0,NVIDIA,1,0:;"}, ("GPU-0",), id="vgpu"),
        pytest.param({"volcano.sh/gpu-index": "0,2"}, ("0", "2"), id="share"),
        pytest.param({CHIPS: "N-0,Ascend910B4-1,1,0:N-3,Ascend910B4-1,1,0:;"}, ("N-0", "N-3"), id="hami"),
        pytest.param({SHARES: ";GPU-0,NVIDIA,1,0:GPU-1,NVIDIA,1,0:;"}, ("GPU-0", "GPU-1"), id="hami shares"),
        pytest.param({CORES: "1-vir02_1c"}, ("1-vir02_1c",), id="slice"),
        pytest.param({CORES: "1,2"}, ("1", "2"), id="chips"),
        pytest.param({}, (), id="none"),
    ],
)
def test_every_protocols_assignment_names_its_cards(annotations, cards):
    assert cards_of(annotations) == cards


@pytest.mark.parametrize(
    ("made", "env", "wrong"),
    [
        pytest.param(pod({CHIPS: "N-0,x,1,0:N-3,x,1,0:;"}), {SEEN: "0,3"}, "", id="hami"),
        pytest.param(
            pod({CHIPS: "N-0,x,1,0:;"}), {SEEN: "1"}, "sees the cards '1', promised were '0'", id="hami-other"
        ),
        pytest.param(pod({CORES: "1,2", REAL: "Ascend310P-1,Ascend310P-2"}), {SEEN: "1,2"}, "", id="chips"),
        pytest.param(pod({CORES: "1", REAL: "Ascend310P-2"}), {SEEN: "2"}, "", id="chips-swapped"),
        pytest.param(pod({CORES: "1,2", REAL: "Ascend310P-1"}), {SEEN: "1"}, "reported were", id="chips-few"),
        pytest.param(pod({CORES: "1", REAL: "Ascend310P-1"}), {}, "reported were", id="chips-none"),
        pytest.param(pod({CORES: "0-vir02"}), {SEEN: "100"}, "has not reported", id="slice-early"),
        pytest.param(pod({CORES: "0-vir02", REAL: "Ascend310P-2c-100-1_0"}), {SEEN: "100"}, "", id="slice"),
        pytest.param(pod({CORES: "0-vir02", REAL: "Ascend310P-2c-101-1_0"}), {SEEN: "100"}, "reported were", id="id"),
        pytest.param(
            pod({CORES: "0-vir02", REAL: "Ascend310P-2c.1cpu-100-1_0"}), {SEEN: "100"}, "reported were", id="template"
        ),
        pytest.param(pod({}, {"nvidia.com/gpu": "2"}), {"NVIDIA_VISIBLE_DEVICES": "A,B"}, "", id="whole"),
        pytest.param(
            pod({}, {"nvidia.com/gpu": "2"}), {"NVIDIA_VISIBLE_DEVICES": "A"}, "promised were 2", id="whole-few"
        ),
    ],
)
def test_containers_are_held_to_what_was_promised(made, env, wrong):
    said = unseen(made, [env])
    assert wrong in said if wrong else said == ""


def test_of_cards_that_kubelet_chooses_only_the_number_is_promised():
    made = pod({"hami.io/metax-gpu-devices-allocated": "n-metax-1,Metax-GPU,65536,100:n-metax-0,Metax-GPU,65536,100:;"})
    assert unseen(made, ({"PLAYED_VISIBLE_DEVICES": "A,B"},)) == ""
    assert unseen(made, ({"PLAYED_VISIBLE_DEVICES": "A"},)) == "its containers see 1 cards, promised were 2 whole ones"


def test_containers_with_shares_see_each_its_own():
    made = pod({SHARES: "GPU-0,NVIDIA,1,0:;GPU-1,NVIDIA,1,0:;"})
    first, second = ({"NVIDIA_VISIBLE_DEVICES": f"GPU-{at}"} for at in range(2))
    assert unseen(made, [first, second]) == ""
    assert "promised were 'GPU-0,GPU-1'" in unseen(made, [second])


def test_containers_of_one_pod_may_have_different_cards():
    made = pod({"volcano.sh/vgpu-ids-new": "GPU-1,NVIDIA,70,5:;GPU-0,NVIDIA,80,10:;"})
    assert unseen(made, [{"NVIDIA_VISIBLE_DEVICES": "GPU-1"}, {"NVIDIA_VISIBLE_DEVICES": "GPU-0"}]) == ""
    assert "promised were" in unseen(made, [{"NVIDIA_VISIBLE_DEVICES": "GPU-1"}, {"NVIDIA_VISIBLE_DEVICES": "GPU-1"}])
