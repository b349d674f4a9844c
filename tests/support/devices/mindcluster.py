"""Nodes and pods of MindCluster's dynamic vNPU for tests; a test shows only what matters to it."""

import json
from typing import Any

from core.dialects.mindcluster.chips import Chip
from core.dialects.mindcluster.dialect import MindCluster
from core.model import Container, Node, NodeName, Phase, Pod, PodUid
from core.port.cards import Offer
from core.settings import Tables

CORES = "huawei.com/npu-core"
LABELS = {"ring-controller.atlas": "ascend-310P"}
TABLES = Tables()


def npu_node(
    chips: int = 4,
    *,
    name: str = "node-a",
    per_chip: int = 8,
    unhealthy: tuple[int, ...] = (),
    allocatable: int | None = None,
    status: str = "",
    base: dict[str, Any] | str | None = None,
    devices: dict[str, str] | None = None,
) -> Node:
    """A node with so many chips, as its labels, annotation and ClusterD's ConfigMaps tell of it."""
    names = [f"Ascend310P-{at}" for at in range(chips)]
    listed = devices
    if listed is None:
        listed = {
            "huawei.com/Ascend310P": ",".join(n for at, n in enumerate(names) if at not in unhealthy),
            "huawei.com/Ascend310P-Unhealthy": ",".join(names[at] for at in unhealthy),
            "huawei.com/Ascend310P-Fault": "[]",
        }
    documents = {"cluster-info-device": json.dumps({"DeviceList": listed})}
    if status:
        documents["cluster-info-node"] = json.dumps({"NodeStatus": status})
    told = base if isinstance(base, str) else json.dumps({one: {} for one in names} if base is None else base)
    return Node(
        name=NodeName(name),
        labels={
            "accelerator": "huawei-Ascend310P",
            "servertype": f"Ascend310P-{per_chip}",
            "node.kubernetes.io/npu.chip.name": "310P3",
        },
        annotations={"baseDeviceInfos": told},
        capacity={CORES: str(chips * per_chip)},
        allocatable={
            CORES: str(allocatable if allocatable is not None else (chips - len(unhealthy)) * per_chip),
            "pods": "110",
            "cpu": "64",
        },
        documents=documents,
    )


def npu_pod(cores: int, dvpp: str | None = None, level: str | None = None, *, name: str = "p", **fields: Any) -> Pod:
    """A pod that asks for so many AI cores."""
    labels = dict(LABELS)
    if dvpp is not None:
        labels["vnpu-dvpp"] = dvpp
    if level is not None:
        labels["vnpu-level"] = level
    amount = {CORES: str(cores)}
    filled: dict[str, Any] = {
        "uid": PodUid(name),
        "namespace": "default",
        "name": name,
        "labels": labels,
        "containers": (Container(name="c", limits=amount, requests=amount),),
        **fields,
    }
    return Pod(**filled)


def npu_bound(core: str, real: str = "", *, name: str = "held", cores: int = 1, **fields: Any) -> Pod:
    """A pod on the node that holds *core*, reported by the plugin as *real*."""
    annotations = {CORES: core, **({"huawei.com/AscendReal": real} if real else {})}
    filled: dict[str, Any] = {"node_name": "node-a", "phase": Phase.RUNNING, "annotations": annotations, **fields}
    return npu_pod(cores, name=name, **filled)


def npu_chips(node: Node, tables: Tables = TABLES) -> tuple[Chip, ...]:
    """The chips of *node*, nothing in use."""
    offer = MindCluster().offer(node, tables)
    assert isinstance(offer, Offer), offer
    return offer.cards
