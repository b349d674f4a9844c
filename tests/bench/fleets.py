"""Nodes and pods of each protocol, as the benchmarks of the core ask for them; 8 cards a node."""

import argparse
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from core.dialects.ascend_hami.table import SHIPPED_CHIPS
from core.model import Container, Node, NodeConstraints, NodeName, Pod, PodUid
from core.settings import Tables
from sandbox.players.registry import DEVICE_CONFIG
from tests.support.devices.texts import device_tables

MODELS = (
    ("NVIDIA-Tesla V100-SXM2-32GB", 32768),
    ("NVIDIA-NVIDIA A100-SXM4-40GB", 40960),
    ("NVIDIA-NVIDIA L40S", 46068),
)


_MIG_MODELS: Final = (("NVIDIA-NVIDIA A100-SXM4-40GB", 40960), ("NVIDIA-NVIDIA A30", 24576))
_CHIP: Final = next(chip for chip in SHIPPED_CHIPS if chip.named.type == "Ascend910B3")
_BASE: Final = {"cpu": "128", "memory": "1024Gi", "pods": "250"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """A node and a pod by number. pods_to_half: pods a node that fill it by half, where cards are not told apart."""

    node: Callable[[int], Node]
    pod: Callable[[int, argparse.Namespace, random.Random], Pod]
    tables: Tables = field(default_factory=Tables)
    pods_to_half: float = 0.0


def _vgpu_of(number: int, model: str, memory: int, mode: str) -> Node:
    register = "".join(f"GPU-{number:05d}-{card},10,{memory},{model},true,{mode}:" for card in range(8))
    amounts = {
        "volcano.sh/vgpu-number": "80",
        "volcano.sh/vgpu-memory": str(8 * memory),
        "volcano.sh/vgpu-cores": "800",
    }
    return _made(number, amounts, {"volcano.sh/node-vgpu-register": register})


def _made(
    number: int,
    amounts: Mapping[str, str],
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    documents: Mapping[str, str] | None = None,
) -> Node:
    name = f"node-{number:05d}"
    return Node(
        name=NodeName(name),
        labels={"pool": f"pool-{number % 100:02d}", "kubernetes.io/hostname": name, **(labels or {})},
        annotations=annotations or {},
        capacity={**_BASE, **amounts},
        allocatable={**_BASE, **amounts},
        documents=documents or {},
    )


def _asking(
    number: int,
    args: argparse.Namespace,
    chance: random.Random,
    limits: Mapping[str, str],
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> Pod:
    """A pod that asks for *limits*, and with --selective selects a pool."""
    amounts = {"cpu": str(chance.choice((1, 2, 4))), "memory": f"{chance.choice((2, 4, 8))}Gi", **limits}
    selector: tuple[tuple[str, str], ...] = ()
    if args.selective and number % 2:
        selector = (("pool", f"pool-{chance.randrange(100):02d}"),)
    return Pod(
        uid=PodUid(f"shape-{number}"),
        namespace="bench",
        name=f"shape-{number}",
        annotations=annotations or {},
        labels=labels or {},
        constraints=NodeConstraints(selector=selector),
        containers=(Container(name="c", limits=amounts, requests=amounts),),
    )


def _vgpu_node(number: int) -> Node:
    return _vgpu_of(number, *MODELS[number % len(MODELS)], "hami-core")


def _vgpu_pod(number: int, args: argparse.Namespace, chance: random.Random) -> Pod:
    """One shape: mostly one card and a part of its memory and cores; some of several cards; some by type."""
    cards = chance.choice((1, 1, 1, 1, 1, 1, 1, 2, 4))
    limits = {
        "cpu": str(chance.choice((1, 2, 4))),
        "memory": f"{chance.choice((2, 4, 8))}Gi",
        "volcano.sh/vgpu-number": str(cards),
        "volcano.sh/vgpu-memory": str(chance.randrange(1000, 16001, 500)),
        "volcano.sh/vgpu-cores": str(chance.choice((0, 10, 20, 30, 50))),
    }
    annotations = {}
    if number % 7 == 3:
        annotations["nvidia.com/use-gputype"] = "V100,L40S"
    selector: tuple[tuple[str, str], ...] = ()
    if args.selective and number % 2:
        selector = (("pool", f"pool-{chance.randrange(100):02d}"),)
    if args.selective and number % 10 == 9:
        limits["volcano.sh/vgpu-memory"] = "47000"
    return Pod(
        uid=PodUid(f"shape-{number}"),
        namespace="bench",
        name=f"shape-{number}",
        annotations=annotations,
        constraints=NodeConstraints(selector=selector),
        containers=(Container(name="c", limits=limits, requests=limits),),
    )


def _mig_node(number: int) -> Node:
    return _vgpu_of(number, *_MIG_MODELS[number % len(_MIG_MODELS)], "mig")


def _mig_pod(number: int, args: argparse.Namespace, chance: random.Random) -> Pod:
    memory = 47000 if args.selective and number % 10 == 9 else chance.randrange(1000, 20001, 500)
    limits = {"volcano.sh/vgpu-number": str(chance.choice((1, 1, 1, 2))), "volcano.sh/vgpu-memory": str(memory)}
    return _asking(number, args, chance, limits, {"volcano.sh/vgpu-mode": "mig"})


def _memory_node(number: int) -> Node:
    memory = MODELS[number % len(MODELS)][1]
    return _made(number, {"volcano.sh/gpu-number": "8", "volcano.sh/gpu-memory": str(8 * memory)})


def _memory_pod(number: int, args: argparse.Namespace, chance: random.Random) -> Pod:
    memory = 47000 if args.selective and number % 10 == 9 else chance.randrange(1000, 16001, 500)
    return _asking(number, args, chance, {"volcano.sh/gpu-memory": str(memory)})


def _number_node(number: int) -> Node:
    return _made(number, {"volcano.sh/gpu-number": "8"})


def _number_pod(number: int, args: argparse.Namespace, chance: random.Random) -> Pod:
    count = 9 if args.selective and number % 10 == 9 else chance.choice((1, 1, 1, 2, 4))
    return _asking(number, args, chance, {"volcano.sh/gpu-number": str(count)})


def _whole_node(number: int) -> Node:
    product = ("Tesla-V100-SXM2-32GB", "NVIDIA-A100-SXM4-40GB", "NVIDIA-L40S")[number % 3]
    return _made(number, {"nvidia.com/gpu": "8"}, labels={"nvidia.com/gpu.product": product})


def _whole_pod(number: int, args: argparse.Namespace, chance: random.Random) -> Pod:
    count = 9 if args.selective and number % 10 == 9 else chance.choice((1, 1, 1, 2, 4))
    types = chance.choice(("V100", "A100", "L40S", "A100,V100"))
    return _asking(number, args, chance, {"nvidia.com/gpu": str(count)}, {"nvidia.com/use-gputype": types})


def _hami_node(number: int) -> Node:
    devices = [
        {
            "id": f"NPU-{number:05d}-{at}",
            "index": at,
            "count": _CHIP.allocatable_mib // _CHIP.templates[0].memory_mib,
            "devmem": _CHIP.allocatable_mib,
            "devcore": _CHIP.ai_core,
            "type": _CHIP.named.type,
            "health": True,
            "devicepairscore": {},
            "custominfo": {"NetworkID": at // 4},
        }
        for at in range(8)
    ]
    return _made(number, {_CHIP.named.cards: "64"}, {f"hami.io/node-register-{_CHIP.named.type}": json.dumps(devices)})


def _hami_pod(number: int, args: argparse.Namespace, chance: random.Random) -> Pod:
    if args.selective and number % 10 == 9:
        return _asking(number, args, chance, {_CHIP.named.cards: "16"})
    memory = chance.choice((None, 4000, 9000, 15000, 20000, 30000))
    if memory is None:
        return _asking(number, args, chance, {_CHIP.named.cards: str(chance.choice((1, 2, 4)))})
    return _asking(number, args, chance, {_CHIP.named.cards: "1", _CHIP.named.memory: str(memory)})


def _mind_node(number: int) -> Node:
    names = [f"Ascend310P-{at}" for at in range(8)]
    listed = {
        "huawei.com/Ascend310P": ",".join(names),
        "huawei.com/Ascend310P-Unhealthy": "",
        "huawei.com/Ascend310P-Fault": "[]",
    }
    labels = {
        "accelerator": "huawei-Ascend310P",
        "servertype": "Ascend310P-8",
        "node.kubernetes.io/npu.chip.name": "310P3",
    }
    return _made(
        number,
        {"huawei.com/npu-core": "64"},
        {"baseDeviceInfos": json.dumps({one: {} for one in names})},
        labels,
        {"cluster-info-device": json.dumps({"DeviceList": listed})},
    )


def _mind_pod(number: int, args: argparse.Namespace, chance: random.Random) -> Pod:
    cores = 72 if args.selective and number % 10 == 9 else chance.choice((1, 2, 4, 4, 8))
    labels = {"ring-controller.atlas": "ascend-310P", "vnpu-level": chance.choice(("low", "high"))}
    return _asking(number, args, chance, {"huawei.com/npu-core": str(cores)}, labels=labels)


def _shared_node(number: int) -> Node:
    model, memory = (
        ("NVIDIA-Tesla V100-SXM2-32GB", 32768),
        ("NVIDIA A100-SXM4-40GB", 40960),
        ("NVIDIA L40S", 46068),
    )[number % 3]
    cards = [
        {
            "id": f"GPU-{number:05d}-{at}",
            "index": at,
            "count": 10,
            "devmem": memory,
            "devcore": 100,
            "type": model,
            "numa": at // 4,
            "mode": "hami-core",
            "health": True,
        }
        for at in range(8)
    ]
    return _made(number, {"nvidia.com/gpu": "80"}, {"hami.io/node-nvidia-register": json.dumps(cards)})


def _shared_pod(number: int, args: argparse.Namespace, chance: random.Random) -> Pod:
    cards = chance.choice((1, 1, 1, 1, 1, 1, 1, 2, 4))
    limits = {
        "nvidia.com/gpu": str(cards),
        "nvidia.com/gpumem": str(chance.randrange(1000, 16001, 500)),
        "nvidia.com/gpucores": str(chance.choice((0, 10, 20, 30, 50))),
    }
    if args.selective and number % 10 == 9:
        limits["nvidia.com/gpumem"] = "47000"
    types = {"nvidia.com/use-gputype": "V100,L40S"} if number % 7 == 3 else {}
    return _asking(number, args, chance, limits, types)


FLEETS: Final[Mapping[str, Fleet]] = {
    "vgpu": Fleet(node=_vgpu_node, pod=_vgpu_pod),
    "vgpu-mig": Fleet(
        node=_mig_node,
        pod=_mig_pod,
        tables=device_tables(DEVICE_CONFIG.read_text(encoding="utf-8")),
    ),
    "gpu_memory": Fleet(node=_memory_node, pod=_memory_pod),
    "gpu_number": Fleet(node=_number_node, pod=_number_pod),
    "whole_gpu": Fleet(node=_whole_node, pod=_whole_pod, pods_to_half=2.2),
    "ascend_hami": Fleet(node=_hami_node, pod=_hami_pod),
    "mindcluster": Fleet(node=_mind_node, pod=_mind_pod),
    "hami": Fleet(node=_shared_node, pod=_shared_pod),
}
