"""Draws cards and their holders as bars, from the API server's nodes and pods; pure.

It reads the annotations itself, without the product's core, so that the demo checks the product independently.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from sandbox.api.quantities import QuantityError, value_of
from sandbox.demo.assigned import hami_shares, vgpu_devices
from sandbox.demo.bars import CardBar, Part
from sandbox.demo.npus import hami_chips, mindcluster_chips
from sandbox.players import gpushare_protocol, hami, mig, nvidia, vgpu_protocol
from sandbox.players.accounts import DEVICE_CONFIG

Json = dict[str, Any]

_SAID_ALREADY: Final = frozenset(
    {
        *("NVIDIA_GDRCOPY", "NVIDIA_GDS", "NVIDIA_MOFED", "CUDA_DEVICE_MEMORY_SHARED_CACHE"),
        *("NPU_GLOBAL_SHM_PATH", "NPU_LOCAL_SHM_PATH"),
        *("LOCAL_RANK", "LOCAL_WORLD_SIZE", "MS_LOCAL_WORKER", "MS_WORKER_NUM", "CM_WORKER_SIZE", "CM_LOCAL_WORKER"),
    }
)


def cards(nodes: Iterable[Json], pods: Sequence[Json]) -> tuple[CardBar, ...]:
    """Return the cards of *nodes* with what bound, unfinished *pods* hold of them, in the nodes' order."""
    return tuple(bar for node in nodes for bar in _cards_of(node, [p for p in pods if _holds_on(p, node)]))


def _cards_of(node: Json, pods: Sequence[Json]) -> Iterator[CardBar]:
    name, capacity = node["metadata"]["name"], node.get("status", {}).get("capacity") or {}
    yield from _vgpu_cards(name, vgpu_protocol.annotations_of(node).get(vgpu_protocol.REGISTER, ""), pods)
    if hami.REGISTER in vgpu_protocol.annotations_of(node):
        yield from _hami_cards(name, vgpu_protocol.annotations_of(node)[hami.REGISTER], pods)
    elif nvidia.RESOURCE in capacity:
        yield _whole_gpus(node, _whole(capacity[nvidia.RESOURCE]), pods)
    count, memory = _whole(capacity.get(gpushare_protocol.NUMBER)), _whole(capacity.get(gpushare_protocol.MEMORY))
    yield from (_shared_card(name, i, memory // count, pods) for i in range(count))
    yield from hami_chips(node, pods)
    yield from mindcluster_chips(node, pods)


def _vgpu_cards(node: str, register: str, pods: Sequence[Json]) -> list[CardBar]:
    bars: list[CardBar] = []
    layouts = mig.Layouts()
    if register.rstrip(":").endswith(",mig"):
        layouts.read(DEVICE_CONFIG.read_text(encoding="utf-8"))
    for record in register.split(":"):
        fields = record.split(",")
        if len(fields) < 6:
            continue
        card, _, memory, model, healthy, mode = fields[:6]
        label = f"{model.removeprefix('NVIDIA-')}, {mode}" + ("" if healthy == "true" else ", unhealthy")
        held = [
            (pod, device)
            for pod in pods
            for device in vgpu_devices(vgpu_protocol.annotations_of(pod))
            if device.id.partition("[")[0] == card
        ]
        slices = [mig.decode(device.id) for _, device in held]
        groups = {one.group for one in slices if one is not None}
        parts = tuple(
            Part(
                pod=pod["metadata"]["name"],
                amount=layouts.memory_mib(model, one) if one is not None else device.mem,
                cores_pct=device.cores,
            )
            for (pod, device), one in zip(held, slices, strict=True)
        )
        clash = len(groups) > 1 or (bool(groups) and len(set(slices)) < len(slices))
        bars.append(
            CardBar(node=node, card=card, label=label, total=_whole(memory), unit="MiB", parts=parts, clash=clash)
        )
    return bars


def _hami_cards(node: str, register: str, pods: Sequence[Json]) -> Iterator[CardBar]:
    """Yield the NVIDIA cards that HAMi's plugin registered."""
    for card in json.loads(register):
        parts = tuple(
            Part(pod=pod["metadata"]["name"], amount=int(device.fields[2]), cores_pct=int(device.fields[3]))
            for pod in pods
            for device in hami_shares(vgpu_protocol.annotations_of(pod))
            if device.id == card["id"]
        )
        label = f"{card['type']}, {card.get('mode', '')}" + ("" if card.get("health") else ", unhealthy")
        yield CardBar(node=node, card=card["id"], label=label, total=card["devmem"], unit="MiB", parts=parts)


def _whole_gpus(node: Json, total: int, pods: Sequence[Json]) -> CardBar:
    """Return all cards of a node as one bar, because only the device plugin knows which pod has which."""
    parts = []
    for pod in pods:
        limits = [container.get("resources", {}).get("limits") or {} for container in pod["spec"]["containers"]]
        amount = sum(_whole(limit.get(nvidia.RESOURCE)) for limit in limits)
        if amount:
            parts.append(Part(pod=pod["metadata"]["name"], amount=amount))
    label = (node["metadata"].get("labels") or {}).get("nvidia.com/gpu.product", "")
    name = node["metadata"]["name"]
    return CardBar(node=name, card="all", label=f"whole {label}", total=total, unit="cards", parts=tuple(parts))


def _shared_card(node: str, index: int, memory_mib: int, pods: Sequence[Json]) -> CardBar:
    holders = [
        pod
        for pod in pods
        if str(index) in vgpu_protocol.annotations_of(pod).get(gpushare_protocol.INDEX, "").split(",")
    ]
    whole = memory_mib == 0
    parts = tuple(
        Part(
            pod=pod["metadata"]["name"],
            amount=1 if whole else sum(gpushare_protocol.amount(c) for c in pod["spec"]["containers"]),
        )
        for pod in holders
    )
    label = "whole cards" if whole else "shared by memory"
    return CardBar(
        node=node,
        card=str(index),
        label=label,
        total=1 if whole else memory_mib,
        unit="card" if whole else "MiB",
        parts=parts,
    )


def _holds_on(pod: Json, node: Json) -> bool:
    finished = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return not finished and pod["spec"].get("nodeName") == node["metadata"]["name"]


def _whole(text: object) -> int:
    try:
        return int(value_of(text)) if text is not None else 0
    except QuantityError:
        return 0


def environment(env: Mapping[str, str]) -> str:
    """Return what a container received, as one line; constant and repeated values are omitted."""
    return " ".join(f"{key}={value}" for key, value in env.items() if key not in _SAID_ALREADY)
