"""Pods, nodes and tables for tests of the NVIDIA share dialects; a test shows only what matters to it."""

from collections.abc import Mapping
from typing import Any

from core.dialects.vgpu.dialect import Vgpu
from core.dialects.vgpu.table import MigModel, VgpuTable
from core.model import Container, Node, NodeName, Phase, Pod, PodUid
from core.port.cards import Offer
from core.settings import Tables
from core.sharing.card import Card
from core.sharing.slices import numbered

NUMBER, MEMORY = "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory"
CORES, PERCENT = "volcano.sh/vgpu-cores", "volcano.sh/vgpu-memory-percentage"
V100 = "NVIDIA-Tesla V100-SXM2-32GB"
A100 = "NVIDIA-NVIDIA A100-SXM4-40GB"

A100_LAYOUTS = MigModel(
    models=("A100-SXM4-40GB",),
    layout=(
        numbered("group1", [("1g.5gb", 5120, 7)]),
        numbered("group2", [("2g.10gb", 10240, 3), ("1g.5gb", 5120, 1)]),
        numbered("group3", [("3g.20gb", 20480, 2)]),
        numbered("group4", [("7g.40gb", 40960, 1)]),
    ),
)
_TABLE = VgpuTable(geometries=(A100_LAYOUTS,))
TABLES = Tables(sections=(_TABLE,))


def container(name: str = "c", **limits: str | int) -> Container:
    """A container with vGPU limits by their last word: ``number=1, memory=4096, cores=25, percent=50``."""
    named = {"number": NUMBER, "memory": MEMORY, "cores": CORES, "percent": PERCENT}
    return Container(name=name, limits={named[key]: str(value) for key, value in limits.items()})


def pod(*containers: Container, **fields: Any) -> Pod:
    """A pod named p; more fields as `Pod` has them."""
    filled = {"uid": PodUid("uid-p"), "namespace": "default", "name": "p", **fields}
    return Pod(containers=containers, **filled)


def bound(ids: str, name: str = "held", phase: Phase = Phase.RUNNING, **annotations: str) -> Pod:
    """A pod on the node that holds *ids*."""
    return pod(
        name=name,
        uid=PodUid(name),
        node_name="node-a",
        phase=phase,
        annotations={"volcano.sh/vgpu-ids-new": ids, **annotations},
    )


def vgpu_node(register: str, table: VgpuTable = _TABLE, more: Mapping[str, str] | None = None) -> Node:
    """A node with *register*, its three resources allocatable: memory and cores of all cards that can be read."""
    figures = [one.split(",")[2] for one in register.split(":") if one.count(",") >= 4]
    memory = sum(int(one) for one in figures if one.isdecimal())
    return Node(
        name=NodeName("node-a"),
        annotations={"volcano.sh/node-vgpu-register": register, **(more or {})},
        allocatable={
            table.named.cards: "10",
            table.named.memory: str(memory or 1),
            table.named.cores: str(100 * len(figures) or 1),
        },
    )


def record(
    uuid: str, *, memory: int = 32768, slots: int = 10, model: str = V100, healthy: bool = True, mode: str = "hami-core"
) -> str:
    """One record of a register."""
    return f"{uuid},{slots},{memory},{model},{str(healthy).lower()},{mode}:"


def offered(register: str, tables: Tables = TABLES) -> tuple[Card, ...]:
    """The cards of a node with *register*."""
    offer = Vgpu().offer(vgpu_node(register, tables.of(VgpuTable)), tables)
    assert isinstance(offer, Offer), offer
    return offer.cards


def share_node(capacity: Mapping[str, str | int], unhealthy: str | None = None) -> Node:
    """A node of the share plugin; capacity by full resource names."""
    annotations = {} if unhealthy is None else {"volcano.sh/gpu-unhealthy-ids": unhealthy}
    return Node(
        name=NodeName("node-a"),
        capacity={key: str(value) for key, value in capacity.items()},
        allocatable={key: str(value) for key, value in capacity.items()},
        annotations=annotations,
    )
