"""Clusters that sell cards by chance, each node as it is and as if all were well, and pods that ask of them.

The generator knows nothing of how cards are judged.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final

from core.catalog import standard_catalog
from core.dialects.vgpu.table import MigModel, VgpuTable
from core.model import Container, Node, NodeName, Pod, PodUid
from core.settings import NodeKind, Tables
from core.sharing.slices import numbered
from tests.support.devices import ascend, mindcluster
from tests.support.devices.cards import A100_LAYOUTS

CATALOG: Final = standard_catalog()
A30_LAYOUTS: Final = MigModel(
    models=("A30",),
    layout=(numbered("g1", [("1g.6gb", 6144, 4)]), numbered("g2", [("2g.12gb", 12288, 2)])),
)
TABLES: Final = Tables(sections=(VgpuTable(geometries=(A100_LAYOUTS, A30_LAYOUTS)),))
MODELS: Final = (("Tesla T4", 15360), ("NVIDIA A30", 24576), ("NVIDIA A100-SXM4-40GB", 40960), ("A100-80GB", 81920))
NUMBER, MEMORY = "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory"
CORES, PERCENT = "volcano.sh/vgpu-cores", "volcano.sh/vgpu-memory-percentage"
REGISTER = "volcano.sh/node-vgpu-register"
SHARES = "hami.io/node-nvidia-register"


def vgpu(chance: Random, name: str) -> tuple[Node, Node]:
    """(a node as it is, the same with every card well)."""
    mode = chance.choice(("hami-core", "hami-core", "mig"))
    # Only of these two the tables know layouts.
    known = MODELS[1:3] if mode == "mig" else MODELS
    model, memory = chance.choice(known)
    mixed = chance.random() < 0.2
    cards, well, shares, total = "", "", 0, 0
    for at in range(chance.choice((1, 2, 2, 4))):
        if mixed:
            model, memory = chance.choice(known)
        slots = chance.choice((1, 1, 2, 10))
        health = chance.random() < 0.8
        shares, total = shares + slots, total + memory
        one = f"GPU-{name}-{at},{slots},{memory},NVIDIA-{model}"
        cards += f"{one},{str(health).lower()},{mode}:"
        well += f"{one},true,{mode}:"
    # As much as the plugin advertises: kubelet minds that too.
    have = {NUMBER: str(shares), MEMORY: str(total), CORES: str(100 * cards.count(":"))}
    there = dict.fromkeys(have, "0") if chance.random() < 0.1 else have
    more = {"volcano.sh/node-vgpu-handshake": "x"} if chance.random() < 0.1 else {}
    node = Node(name=NodeName(name), annotations={REGISTER: cards, **more}, capacity=have, allocatable=there)
    # A handshake may be what a plugin before left; nobody can tell at admission (nvidia 2.1), and at its best it is.
    return node, replace(node, annotations={REGISTER: well}, allocatable=have)


def share(chance: Random, name: str) -> tuple[Node, Node]:
    cards = chance.choice((1, 2, 4))
    have = {"volcano.sh/gpu-number": str(cards)}
    if chance.random() < 0.6:
        have["volcano.sh/gpu-memory"] = str(cards * chance.choice((8000, 16000, 24000)))
    ill = {"volcano.sh/gpu-unhealthy-ids": chance.choice(("", "0", "0,1", "1"))}
    node = Node(name=NodeName(name), capacity=have, allocatable=have, annotations=ill)
    return node, replace(node, annotations={})


def whole(chance: Random, name: str) -> tuple[Node, Node]:
    total = chance.choice((1, 2, 4, 8))
    labels = {"nvidia.com/gpu.product": chance.choice(MODELS)[0]} if chance.random() < 0.8 else {}
    have = {"nvidia.com/gpu": str(total)}
    left = {"nvidia.com/gpu": str(chance.choice((total, total, total - 1, 0)))}
    node = Node(name=NodeName(name), labels=labels, capacity=have, allocatable=left)
    return node, replace(node, allocatable=have)


def hami(chance: Random, name: str) -> tuple[Node, Node]:
    word = chance.choice(("Ascend310P", "Ascend910B2", "Ascend910B4"))
    uuids = [f"{name}-{at}" for at in range(chance.choice((1, 2, 4)))]
    each: dict[str, dict[str, Any]] = {}
    for uuid in uuids:
        each[uuid] = {"count": chance.choice((1, 2, 7))}
        if chance.random() < 0.2:
            each[uuid]["devmem"] = 8192
    ill = {uuid: {**one, "health": None} if chance.random() < 0.3 else one for uuid, one in each.items()}
    soft = chance.random() < 0.3
    node = ascend.node(word, uuids, soft=soft, name=name, **ill)
    well = ascend.node(word, uuids, soft=soft, name=name, **each)
    return replace(node, capacity=node.allocatable), replace(well, capacity=well.allocatable)


def shares(chance: Random, name: str) -> tuple[Node, Node]:
    """A node of HAMi's own plugin."""
    mixed = chance.random() < 0.3
    model, memory = chance.choice(MODELS)
    cards: list[dict[str, Any]] = []
    count = chance.choice((1, 2, 10))
    for at in range(chance.choice((1, 2, 4))):
        if mixed:
            model, memory = chance.choice(MODELS)
        one = {"id": f"GPU-{name}-{at}", "index": at, "count": count, "devmem": memory, "devcore": 100}
        one |= {"type": f"NVIDIA {model.removeprefix('NVIDIA ')}", "mode": "hami-core"}
        cards.append({**one, "health": chance.random() < 0.8})
    well = [{**one, "health": True} for one in cards]
    have = {"nvidia.com/gpu": str(sum(one["count"] for one in cards))}
    node = Node(name=NodeName(name), annotations={SHARES: json.dumps(cards)}, capacity=have, allocatable=have)
    node = replace(node, labels={"gpu": "on"})
    return node, replace(node, annotations={SHARES: json.dumps(well)})


def npu(chance: Random, name: str) -> tuple[Node, Node]:
    chips, per_chip = chance.choice((1, 2, 4)), chance.choice((8, 8, 10))
    ill = tuple(at for at in range(chips) if chance.random() < 0.2)
    node = mindcluster.npu_node(chips, name=name, per_chip=per_chip, unhealthy=ill)
    return node, mindcluster.npu_node(chips, name=name, per_chip=per_chip)


def described(node: Node) -> NodeKind:
    """*node* as an operator would describe its kind."""
    return NodeKind(
        name=node.name,
        labels=tuple(node.labels.items()),
        annotations=tuple(node.annotations.items()),
        capacity=tuple(node.capacity.items()),
    )


# Makes a node of a name, and the same with every card well.
Kind = Callable[[Random, str], tuple[Node, Node]]
KINDS: Final = (vgpu, vgpu, share, whole, hami, npu)


def cluster(chance: Random, of: Sequence[Kind] = KINDS) -> tuple[list[Node], list[NodeKind], list[Node]]:
    """(nodes, kinds that settings describe, all of them as they are at their best)."""
    kinds = chance.sample(of, chance.choice((1, 1, 2)))
    nodes: list[Node] = []
    empty: list[NodeKind] = []
    best: list[Node] = []
    for at in range(chance.choice((1, 1, 2, 3, 4))):
        node, well = chance.choice(kinds)(chance, f"n{at}")
        if chance.random() < 0.2:
            # The cards of a node that is yet to come have names that no pod can know.
            named = {key: text.replace(f"n{at}-", f"kind{at}-") for key, text in well.annotations.items()}
            well = replace(well, annotations=named)
            empty.append(described(well))
        else:
            nodes.append(node)
        best.append(well)
    return nodes, empty, best


SOME_MIB = (100, 5000, 6144, 12288, 15360, 15361, 24576, 25000, 40960, 81920, 90000)


def asking(chance: Random, kinds: str) -> dict[str, str]:
    limits: dict[str, int] = {}
    match kinds:
        case "vgpu":
            limits[NUMBER] = chance.choice((1, 1, 1, 2, 4, 5))
            match chance.choice("mmmpc "):
                case "m":
                    limits[MEMORY] = chance.choice(SOME_MIB)
                case "p":
                    limits[PERCENT] = chance.choice((1, 50, 100))
                case "c":
                    limits[CORES] = chance.choice((10, 50, 60, 100))
                case _:
                    pass
        case "memory":
            limits["volcano.sh/gpu-memory"] = chance.choice((1, 8000, 12000, 24000, 24001))
        case "number":
            limits["volcano.sh/gpu-number"] = chance.choice((1, 2, 4, 5))
        case "whole":
            limits["nvidia.com/gpu"] = chance.choice((1, 2, 4, 8, 9))
        case "shares":
            limits["nvidia.com/gpu"] = chance.choice((1, 1, 2, 5))
            figure = chance.choice(("nvidia.com/gpumem", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage"))
            limits[figure] = chance.choice(SOME_MIB if figure.endswith("mem") else (1, 50, 100))
            limits["nvidia.com/gpucores"] = chance.choice((0, 0, 10, 60, 100))
        case "npu":
            limits["huawei.com/npu-core"] = chance.choice((1, 2, 4, 8, 10, 16, 24, 30, 40))
        case word:
            limits[f"huawei.com/{word}"] = chance.choice((1, 1, 1, 2, 4, 5))
            if chance.random() < 0.6:
                limits[f"huawei.com/{word}-memory"] = chance.choice((1, 3072, 6144, 8192, 8193, 16384, 21527, 32768))
    return {key: str(value) for key, value in limits.items()}


WISHES: tuple[dict[str, str], ...] = (
    {"nvidia.com/use-gputype": "A100"},
    {"nvidia.com/use-gputype": "A30,V100"},
    {"nvidia.com/use-gputype": "B200"},
    {"nvidia.com/nouse-gputype": "A100"},
    {"volcano.sh/vgpu-mode": "mig"},
    {"volcano.sh/vgpu-mode": "hami-core"},
    {"huawei.com/vnpu-mode": "hami-core"},
    {"cardshare.io/gpu-index": "0"},
    {"cardshare.io/gpu-index": "1,3"},
    {"cardshare.io/gpu-index": "9"},
)
# Whether a card of this name could ever come, nobody knows.
NAMED: tuple[dict[str, str], ...] = (
    {"volcano.sh/vgpu-use-gpuuuid": "GPU-n0-0"},
    {"volcano.sh/vgpu-nouse-gpuuuid": "GPU-n0-0,GPU-n1-0"},
    {"hami.io/use-Ascend310P-uuid": "n0-0"},
    {"hami.io/no-use-Ascend310P-uuid": "n0-0"},
    {"cardshare.io/avoid-cards": "0"},
    {"cardshare.io/avoid-cards": "GPU-n0-0,1"},
)
PROTOCOLS = {
    NUMBER: "vgpu",
    "volcano.sh/gpu-memory": "memory",
    "volcano.sh/gpu-number": "number",
    "nvidia.com/gpu": "whole",
    "huawei.com/Ascend310P": "Ascend310P",
    "huawei.com/Ascend910B2": "Ascend910B2",
    "huawei.com/Ascend910B4": "Ascend910B4",
    "huawei.com/npu-core": "npu",
}


def wishing(chance: Random, best: list[Node]) -> tuple[Pod, bool]:
    """(a pod, mostly of a protocol that some node speaks, whether it names cards by their ids)."""
    spoken = [
        "shares" if SHARES in node.annotations else PROTOCOLS[key]
        for node in best
        for key in node.capacity
        if key in PROTOCOLS
    ]
    kinds = chance.choice(spoken if chance.random() < 0.95 else list(PROTOCOLS.values()))
    notes: dict[str, str] = {}
    for _ in range(chance.choice((0, 0, 0, 1, 2))):
        notes |= chance.choice(WISHES)
    named = chance.random() < 0.15
    if named:
        notes |= chance.choice(NAMED)
    count = chance.choice((1, 1, 1, 2, 3)) if kinds != "npu" else 1
    limits = [asking(chance, kinds) for _ in range(count)]
    labels = {"ring-controller.atlas": "ascend-310P"} if kinds == "npu" else {}
    if kinds == "npu" and chance.random() < 0.5:
        labels |= {"vnpu-level": "high"}
    pod = Pod(
        uid=PodUid("u"),
        namespace="n",
        name="p",
        scheduler_name="cardshare",
        annotations=notes,
        labels=labels,
        containers=tuple(Container(name=f"c{at}", limits=one, requests=one) for at, one in enumerate(limits)),
    )
    return pod, named
