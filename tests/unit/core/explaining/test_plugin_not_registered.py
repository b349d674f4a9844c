"""A node whose kubelet knows of cards and has none to give, as after its restart, is not one that offers none."""

import pytest

from core.catalog import standard_catalog
from core.explaining import explain
from core.ledger import Ledger
from core.model import Container, Node, NodeName, Pod, PodUid
from core.placing.decide import Shape, shape_of
from core.settings import Policy, Settings, Tables
from core.waiting import Cause

HAMIS = '[{"id":"G","count":10,"devmem":8000,"devcore":100,"type":"NVIDIA T4","health":true}]'
CHIPS = '[{"id":"U","count":7,"devmem":21527,"devcore":8,"type":"Ascend310P","health":true}]'
VGPU = {f"volcano.sh/vgpu-{one}": "0" for one in ("number", "memory", "cores")}
NODES = {
    "vgpu": ({"volcano.sh/vgpu-number": "1"}, VGPU, {"volcano.sh/node-vgpu-register": "G,10,8000,NVIDIA-T4,true,:"}),
    "gpu_memory": ({"volcano.sh/gpu-memory": "1000"}, {"volcano.sh/gpu-memory": "0", "volcano.sh/gpu-number": "0"}, {}),
    "hami": ({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"}, {"nvidia.com/gpu": "0"},
             {"hami.io/node-nvidia-register": HAMIS}),
    "whole_gpu": ({"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "0"}, {}),
    "ascend_hami": ({"huawei.com/Ascend310P": "1"}, {"huawei.com/Ascend310P": "0"},
                    {"hami.io/node-register-Ascend310P": CHIPS}),
    "mindcluster": ({"huawei.com/npu-core": "2"}, {"huawei.com/npu-core": "0"}, {}),
}  # fmt: skip


def wait_on(limits, *nodes, capacity=None):
    ledger = Ledger(standard_catalog(), Tables(), Settings(scheduler_names=("cardshare",)))
    for at, (cards, notes) in enumerate(nodes):
        have = cards | {"pods": "110", "cpu": "64"}
        labels = {"accelerator": "huawei-Ascend310P"}
        ledger.set_node(
            Node(
                name=NodeName(f"n{at}"),
                labels=labels,
                annotations=notes,
                allocatable=have,
                capacity=have | (capacity or {}),
            )
        )
    one = Container(name="main", limits=limits, requests=limits)
    asking = Pod(
        uid=PodUid("u"),
        namespace="d",
        name="p",
        labels={"ring-controller.atlas": "ascend-310P"},
        scheduler_name="cardshare",
        containers=(one,),
    )
    shape = shape_of(asking, ledger)
    assert isinstance(shape, Shape), shape
    return explain.wait(explain.refused(ledger, shape, Policy.BINPACK))


@pytest.mark.parametrize("dialect", NODES)
def test_a_pod_is_told_that_the_plugin_has_to_register_again(dialect):
    limits, have, notes = NODES[dialect]
    bare: tuple[dict[str, str], dict[str, str]] = ({}, {})
    for nodes in ([(have, notes)], [(have, notes), bare]):
        found = wait_on(limits, *nodes)
        assert found.cause is Cause.PLUGIN_NOT_REGISTERED
        assert "n0 has 0 of " in found.text
        assert "Wait until the device plugin of n0 has registered with kubelet again" in found.text
        assert "No node offers" not in found.text


def test_what_no_kubelet_knows_is_not_offered():
    limits, _, _ = NODES["whole_gpu"]
    found = wait_on(limits, ({}, {}))
    assert found.cause is Cause.NEVER_FITS
    assert "No node offers nvidia.com/gpu" in found.text


@pytest.mark.parametrize(
    ("dialect", "capacity"), [("hami", {"nvidia.com/gpu": "10"}), ("vgpu", dict.fromkeys(VGPU, "100"))]
)
def test_a_node_whose_capacity_stays_is_judged_with_that(dialect, capacity):
    limits, have, notes = NODES[dialect]
    found = wait_on(limits, (have, notes), capacity=capacity)
    assert found.cause is Cause.PLUGIN_NOT_REGISTERED
    assert "are allocatable again" in found.text
    memory = "nvidia.com/gpumem" if dialect == "hami" else "volcano.sh/vgpu-memory"
    found = wait_on({**limits, memory: "9000"}, (have, notes), capacity=capacity)
    assert found.cause is Cause.NEVER_FITS
