"""cardshare installed by its chart, on a real node: pods get their cards, with every device plugin."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest

from tests.support.node.cluster import Cluster
from tests.support.node.product import by_chart
from tests.support.node.waiting import wait
from tests.support.node.world import World, assignments, pod, vgpu


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


VGPU = tuple(vgpu(1))
SMALL: dict[str, Any] = {"model": "NVIDIA A10", "memory_mib": 2400, "count": 2}
# A device for each MiB. Not two such cards: a kubelet that starts looks up each device, and 63,000 are more than the
# 4 MiB that gRPC takes at once.
LARGE: dict[str, Any] = {"model": "NVIDIA A10", "memory_mib": 24_576, "count": 1}
# What etcd says of a status of more than 1.5 MiB.
TOO_LARGE = "etcdserver: request is too large"
CHIP = "huawei.com/Ascend310P"
DIALECTS = {
    "vgpu": Sold(
        kind="vgpu",
        options={"model": "Tesla T4", "memory_mib": 15360, "count": 2},
        resources=VGPU,
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


def test_helm_test_shows_what_doctor_found_and_leaves_nothing(empty: World):
    tested = "helm --kubeconfig=/share/admin.kubeconfig --namespace cardshare-system test cardshare 2>&1 || true"
    said = empty.cluster.there.run("sh", "-c", tested)
    assert " to look at\n" in said
    kinds = "pods,serviceaccounts,clusterrolebindings"
    left = empty.cluster.kubectl("-n", "cardshare-system", "get", kinds, "-o", "name")
    assert "doctor" not in left


def is_there(pod: Mapping[str, Any]) -> bool:
    return bool(pod)


def is_bound(pod: Mapping[str, Any]) -> bool:
    return "nodeName" in pod["spec"]


def is_running(pod: Mapping[str, Any]) -> bool:
    return bool(pod["status"]["phase"] == "Running")


def none(world: World, has: Callable[[Mapping[str, Any]], bool]) -> str:
    return "" if any(map(has, world.read().values())) else "none yet"


def test_pods_removed_by_force_in_flight_leave_the_others_what_was_assigned(empty: World):
    with empty.plugin("vgpu", VGPU, **SMALL):
        # At once, when one is bound, and when one runs.
        for turn, has in enumerate((is_there, is_bound, is_running)):
            names = [f"f{turn}-{at}" for at in range(6)]
            empty.create(*(pod(name, vgpu(60 + 3 * at + turn)) for at, name in enumerate(names)))
            wait("the first", partial(none, empty, has))
            for name in names[::2]:
                empty.cluster.api.delete(f"{empty.path}/{name}", 0)
            # Of the same name as one that is gone, and another size.
            empty.create(pod(names[0], vgpu(90 + turn)), pod(f"g{turn}", vgpu(95 + turn)))
            empty.running(*names[1::2], names[0], f"g{turn}")
            empty.remove()


def test_a_plugin_that_is_replaced_serves_pods_made_meanwhile(empty: World):
    with empty.plugin("vgpu", VGPU, **SMALL):
        empty.create(pod("before", vgpu(80)))
        before = empty.running("before")
        with empty.without_plugin("vgpu", VGPU[0]):
            empty.create(*(pod(f"m{at}", vgpu(90 + 3 * at)) for at in range(3)))
        empty.running("before", "m0", "m1", "m2")
        assert assignments(empty.read("before")) == assignments(before)


def test_a_pod_with_more_devices_than_its_status_can_list_stays_pending_and_is_reported(empty: World):
    """Gate ResourceHealthStatus of Kubernetes 1.36: kubelet lists each MiB of a pod's memory in its status."""
    cluster, large = empty.cluster, pod("large", vgpu(24_500))
    with empty.plugin("vgpu", VGPU, **LARGE):
        assert "CS618" in cluster.doctor()
        # The webhook looks at nodes now and then.
        wait("a warning", lambda: "" if "CS322" in cluster.api.warnings(empty.path, large) else "none")
        empty.create(large)
        wait("kubelet to fail", lambda: "" if TOO_LARGE in cluster.kubelet_log() else "it has not said so")
        (found,) = empty.read("large").values()
        assert f"{found['metadata']['uid']}/c0" in empty.environments()
        assert found["status"]["phase"] == "Pending"
        assert "CS619" in cluster.doctor()
        empty.remove()


def test_with_the_kubelets_gates_off_such_a_pod_runs(empty: World):
    gates = {"ResourceHealthStatus": False, "ResourceHealthStatusMessage": False}
    with empty.kubelet_gates(**gates), empty.plugin("vgpu", VGPU, **LARGE):
        empty.create(pod("large", vgpu(24_500)))
        empty.running("large")
        assert "CS618" not in empty.cluster.doctor()
        empty.remove()


def test_with_a_memory_factor_such_a_pod_has_fewer_devices_and_as_much_memory(empty: World):
    units = replace(empty, memory_factor=10)
    with units.device_config(), units.plugin("vgpu", VGPU, **LARGE, memory_factor=10):
        large = pod("large", vgpu(2_450))
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
