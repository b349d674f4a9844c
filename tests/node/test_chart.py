"""cardshare installed by its chart, on a real node: pods of every dialect get their cards."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.support.node.cluster import Cluster
from tests.support.node.product import by_chart
from tests.support.node.world import World, pod, vgpu

# The first test of a module waits for the installation too.
pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sold:
    """A plugin with its options and the resources that it lists, and what each of some pods asks for."""

    kind: str
    options: Mapping[str, Any]
    resources: tuple[str, ...]
    limits: tuple[Mapping[str, int], ...]
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    node_labels: Mapping[str, str] = field(default_factory=dict)


CHIP = "huawei.com/Ascend310P"
DIALECTS = {
    "vgpu": Sold(
        kind="vgpu",
        options={"model": "Tesla T4", "memory_mib": 15360, "count": 2},
        resources=tuple(vgpu(1)),
        limits=(vgpu(3000, 30), vgpu(4000, 20, cards=2)),
    ),
    "gpu_memory": Sold(
        kind="gpushare",
        options={"strategy": "share", "memory_mib": 11178, "count": 2},
        resources=("volcano.sh/gpu-memory",),
        limits=({"volcano.sh/gpu-memory": 1024}, {"volcano.sh/gpu-memory": 3000}),
    ),
    "gpu_number": Sold(
        kind="gpushare",
        options={"strategy": "number", "memory_mib": 11178, "count": 4},
        resources=("volcano.sh/gpu-number",),
        limits=({"volcano.sh/gpu-number": 1}, {"volcano.sh/gpu-number": 2}),
    ),
    "hami": Sold(
        kind="hami",
        options={"model": "NVIDIA L4", "memory_mib": 23034, "count": 2},
        resources=("nvidia.com/gpu",),
        limits=(
            {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 4000, "nvidia.com/gpucores": 30},
            {"nvidia.com/gpu": 2, "nvidia.com/gpumem": 3000},
        ),
    ),
    "whole_gpu": Sold(
        kind="nvidia",
        options={"model": "NVIDIA L20", "memory_mib": 46068, "count": 4},
        resources=("nvidia.com/gpu",),
        limits=({"nvidia.com/gpu": 1}, {"nvidia.com/gpu": 2}),
        annotations={"nvidia.com/use-gputype": "L20"},
    ),
    "ascend_hami": Sold(
        kind="ascend-hami",
        options={"chip": "Ascend310P", "count": 2},
        resources=(CHIP,),
        limits=({CHIP: 1, f"{CHIP}-memory": 4096}, {CHIP: 1, f"{CHIP}-memory": 6144}),
    ),
    "mindcluster": Sold(
        kind="mindcluster",
        options={"chips": 2, "report_after_s": 1.0},
        resources=("huawei.com/npu-core",),
        limits=({"huawei.com/npu-core": 2}, {"huawei.com/npu-core": 8}),
        labels={"ring-controller.atlas": "ascend-310P", "vnpu-dvpp": "null", "vnpu-level": "high"},
        node_labels={"accelerator": "huawei-Ascend310P"},
    ),
}


@pytest.fixture(scope="module")
def world(cluster: Cluster) -> Iterator[World]:
    """The product, on a node without cards."""
    if "helm" not in cluster.programs:
        pytest.skip("helm is not built; scripts/e2e --node builds it")
    with by_chart(cluster):
        yield World(cluster=cluster)


def test_with_a_memory_factor_a_pod_has_fewer_devices_and_as_much_memory(empty: World):
    units = replace(empty, memory_factor=10)
    card: dict[str, Any] = {"model": "NVIDIA A10", "memory_mib": 24_576, "count": 1, "memory_factor": 10}
    with units.device_config(), units.plugin("vgpu", tuple(vgpu(1)), **card):
        large = pod("large", vgpu(2_450))
        assert "CS322" not in units.cluster.api.warnings(units.path, large)
        units.create(large)
        units.running("large")
        assert "CS618" not in units.cluster.doctor()
        units.remove()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_pods_of_a_dialect_get_the_cards_that_they_were_assigned(empty: World, dialect: str):
    sold = DIALECTS[dialect]
    with empty.plugin(sold.kind, sold.resources, node_labels=sold.node_labels, **sold.options):
        pods = {f"p{at}": pod(f"p{at}", one) for at, one in enumerate(sold.limits)}
        for one in pods.values():
            one["metadata"].update(annotations=dict(sold.annotations), labels=dict(sold.labels))
        empty.create(*pods.values())
        empty.running(*pods)
        empty.remove()
