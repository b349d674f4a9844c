"""The nodes of the twins' cluster: which machine each is, which plugins run there, and what they make of the Node."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Final

from core.model import Node, NodeName
from tests.support.devices.twin import (
    GPU,
    GPU_MEMORY,
    GPU_NUMBER,
    HAMI,
    HAMI_COUNT,
    HAMI_CUTS,
    MEMORY,
    MIND,
    NPU_CORE,
    NUMBER,
    SHARES,
    VGPU,
    WHOLE,
    Machine,
)
from tests.support.devices.twin_vendors import PLAIN

_BASE: Final = {"cpu": "512", "memory": "2048Gi", "pods": "500"}
_MODELS: Final = {"": "Tesla T4", "A30": "NVIDIA A30", "A100-40": "NVIDIA A100-SXM4-40GB"}


@dataclass(slots=True)
class Site:
    """One node: its machine, and the plugins on it. ever: all that ran there once, whose traces stay."""

    name: str
    machine: Machine
    running: set[str]
    ever: set[str] = field(default_factory=set)
    away: set[str] = field(default_factory=set)
    ill: set[int] = field(default_factory=set)
    garbled: bool = False
    mode: str = "hami-core"
    factor: int = 1
    prefix: str = "volcano.sh"
    prefixes: set[str] = field(default_factory=set)
    there: bool = True

    def node(self) -> Node:
        """The node as the API server tells of it."""
        amounts: dict[str, int] = {}
        annotations: dict[str, str] = {}
        documents: dict[str, str] = {}
        labels: dict[str, str] = {}
        gpus, npus = self.machine.gpus, self.machine.npus
        if VGPU in self.ever:
            on = VGPU in self.running - self.away
            units = sum(mib // self.factor for _, mib in gpus)
            for prefix in self.prefixes | {self.prefix}:
                here = on and prefix == self.prefix
                amounts |= {
                    f"{prefix}/vgpu-number": 10 * len(gpus) * here,
                    f"{prefix}/vgpu-memory": units * here,
                    f"{prefix}/vgpu-cores": 100 * len(gpus) * here,
                }
            annotations["volcano.sh/node-vgpu-register"] = "GPU,1:" if self.garbled else self._register()
        if {MEMORY, NUMBER} & self.ever:
            sold = MEMORY in self.running
            amounts[GPU_NUMBER] = len(gpus) if sold or NUMBER in self.running else 0
            if MEMORY in self.ever:
                amounts[GPU_MEMORY] = sum(mib for _, mib in gpus) if sold else 0
            if self.ill:
                annotations["volcano.sh/gpu-unhealthy-ids"] = ",".join(map(str, sorted(self.ill)))
        if WHOLE in self.ever:
            labels["nvidia.com/gpu.product"] = "NVIDIA-A100-SXM4-80GB"
            amounts[GPU] = len(gpus) if WHOLE in self.running else 0
        if SHARES in self.ever:
            amounts[GPU] = 10 * len(gpus) * (SHARES in self.running) or amounts.get(GPU, 0)
            annotations["hami.io/node-nvidia-register"] = "[{]" if self.garbled else self._shares_register()
        if HAMI in self.ever:
            word = self.machine.word
            on = HAMI in self.running - self.away
            amounts[f"huawei.com/{word}"] = HAMI_COUNT[word] * len(npus) * on
            annotations[f"hami.io/node-register-{word}"] = "[{]" if self.garbled else self._hami_register()
        for vendor in self.ever & PLAIN.keys():
            told, found = PLAIN[vendor].node(self.machine.cards, self.ill, garbled=self.garbled)
            annotations |= told
            amounts |= {name: amount * (vendor in self.running) for name, amount in found.items()}
        if MIND in self.ever:
            labels |= {
                "accelerator": "huawei-Ascend310P",
                "servertype": "Ascend310P-8",
                "node.kubernetes.io/npu.chip.name": "310P3",
            }
            names = [f"Ascend310P-{at}" for at in range(len(npus))]
            annotations["baseDeviceInfos"] = json.dumps({name: {} for name in names})
            listed = {"huawei.com/Ascend310P": ",".join(names), "huawei.com/Ascend310P-Fault": "[]"}
            listed["huawei.com/Ascend310P-Unhealthy"] = ",".join(f"Ascend310P-{at}" for at in sorted(self.ill))
            documents["cluster-info-device"] = json.dumps({"DeviceList": listed})
            amounts[NPU_CORE] = 8 * len(npus) * (MIND in self.running)
        capacity = _BASE | {name: str(amount) for name, amount in amounts.items()}
        gone = {name for name in amounts if _is_gone(name, self.away)}
        allocatable = {name: "0" if name in gone else text for name, text in capacity.items()}
        return Node(
            name=NodeName(self.name),
            capacity=capacity,
            allocatable=allocatable,
            annotations=annotations,
            labels=labels,
            documents=documents,
        )

    def _register(self) -> str:
        model = _MODELS[self.machine.model]
        return "".join(
            f"{uuid},10,{mib // self.factor},NVIDIA-{model},{str(at not in self.ill).lower()},{self.mode}:"
            for at, (uuid, mib) in enumerate(self.machine.gpus)
        )

    def _hami_register(self) -> str:
        word = self.machine.word
        mib, (cores, _) = max(HAMI_CUTS[word].items())
        found = [
            {"id": uuid, "index": at, "count": HAMI_COUNT[word], "devmem": mib, "devcore": cores, "type": word}
            | {"health": at not in self.ill}
            for at, uuid in enumerate(self.machine.npus)
        ]
        return json.dumps(found)

    def _shares_register(self) -> str:
        model = _MODELS[self.machine.model]
        found = [
            {"id": uuid, "index": at, "count": 10, "devmem": mib, "devcore": 100, "type": f"NVIDIA-{model}"}
            | {"mode": "hami-core", "health": at not in self.ill}
            for at, (uuid, mib) in enumerate(self.machine.gpus)
        ]
        return json.dumps(found)

    def start(self, plugin: str, factor: int, prefix: str) -> None:
        """A plugin starts, and reads the configuration as it is now."""
        self.ever.add(plugin)
        self.away.discard(plugin)
        if plugin == VGPU:
            self.prefixes.add(self.prefix)
            self.factor, self.prefix = factor, prefix
            self.prefixes.add(prefix)


def _sold_by(resource: str) -> str:
    if "vgpu" in resource:
        return VGPU
    return _SOLD_BY.get(resource, HAMI)


_SOLD_BY: Final = {
    GPU_MEMORY: MEMORY,
    GPU_NUMBER: NUMBER,
    GPU: WHOLE,
    NPU_CORE: MIND,
    **{name: vendor for vendor, one in PLAIN.items() for name in (one.count, one.memory, one.cores) if name},
}


def _is_gone(resource: str, away: set[str]) -> bool:
    return _sold_by(resource) in away or (resource == GPU and SHARES in away)


def sites() -> list[Site]:
    """The machines, and what sells their cards at first."""
    t4 = [Machine(gpus=tuple((f"GPU-t{n}-{at}", 15360) for at in range(3))) for n in range(8)]
    a80 = [Machine(gpus=tuple((f"GPU-h{n}-{at}", 81920) for at in range(2))) for n in range(2)]
    a40 = [Machine(gpus=tuple((f"GPU-a{n}-{at}", 40536) for at in range(2)), model="A100-40") for n in range(3)]
    a30 = Machine(gpus=tuple((f"GPU-b-{at}", 24060) for at in range(2)), model="A30")
    p310 = [Machine(npus=tuple(f"P310-{n}-{at}" for at in range(3)), word="Ascend310P") for n in range(4)]
    b3 = Machine(npus=tuple(f"B3-{at}" for at in range(4)), word="Ascend910B3")
    found = [
        Site("t4-0", t4[0], {VGPU}),
        Site("t4-1", t4[1], {VGPU, WHOLE}),
        Site("t4-2", t4[2], {WHOLE}),
        Site("t4-3", t4[3], {MEMORY}),
        Site("t4-4", t4[4], {NUMBER}),
        Site("t4-5", t4[5], {MEMORY, WHOLE}),
        Site("t4-6", t4[6], {SHARES}),
        Site("t4-7", t4[7], {SHARES, VGPU}),
        Site("a80-0", a80[0], {VGPU}),
        Site("a80-1", a80[1], {VGPU}, mode="mps"),
        Site("a40-0", a40[0], {VGPU}, mode="mig"),
        Site("a40-1", a40[1], {VGPU}, mode="mig"),
        Site("a40-2", a40[2], {VGPU, WHOLE}, mode="mig"),
        Site("a30", a30, {VGPU}, mode="mig"),
        Site("p-0", p310[0], {HAMI}),
        Site("p-1", p310[1], {MIND}),
        Site("p-2", p310[2], {HAMI, MIND}),
        Site("p-3", p310[3], {MIND}),
        Site("b3", b3, {HAMI}),
        *[Site(name, Machine(cards=one.ids(name), vendor=name), {name}) for name, one in PLAIN.items()],
    ]
    for one in found:
        one.ever = set(one.running)
        one.prefixes = {one.prefix}
    return found
