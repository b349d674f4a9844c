"""Draws who holds what: cards as bars, from nodes and pods as the API server tells them; pure.

It reads the annotations by itself, not with the product's core, so that the demo does not ask the one it examines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sandbox.api.quantities import QuantityError, value_of
from sandbox.players import gpushare_protocol, mig, nvidia, vgpu_protocol
from sandbox.players.accounts import DEVICE_CONFIG

Json = dict[str, Any]

_IDS: Final = "volcano.sh/vgpu-ids-new"
_BAR_CHARS: Final = 24
_FULL, _EMPTY = "█", "░"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one pod holds of one card, in the card's unit; cores in percent, 0 = no limit."""

    pod: str
    amount: int
    cores_pct: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CardBar:
    """One card: total in *unit* (MiB, or whole cards), and who holds how much of it.

    clash: two of its MIG slices cannot exist together.
    """

    node: str
    card: str
    label: str
    total: int
    unit: str
    parts: tuple[Part, ...] = ()
    clash: bool = False

    @property
    def used(self) -> int:
        """What all parts hold together."""
        return sum(part.amount for part in self.parts)

    @property
    def overcommitted(self) -> bool:
        """Whether more is promised than the card has."""
        return self.clash or self.used > self.total or sum(part.cores_pct for part in self.parts) > 100


def cards(nodes: Iterable[Json], pods: Sequence[Json]) -> tuple[CardBar, ...]:
    """The cards of *nodes* with what bound, unfinished *pods* hold of them, in the nodes' order."""
    return tuple(bar for node in nodes for bar in _cards_of(node, [p for p in pods if _holds_on(p, node)]))


def lines(bars: Sequence[CardBar]) -> tuple[str, ...]:
    """The bars as text, node by node."""
    drawn: list[str] = []
    width = max((len(bar.card) for bar in bars), default=0)
    node = ""
    for bar in bars:
        if bar.node != node:
            node = bar.node
            drawn.append(f"{node}  ({bar.label})")
        drawn.append(f"  {bar.card:<{width}} {_bar(bar)} {_amounts(bar)}{_parts(bar)}")
    return tuple(drawn)


def _cards_of(node: Json, pods: Sequence[Json]) -> list[CardBar]:
    register = vgpu_protocol.annotations_of(node).get(vgpu_protocol.REGISTER)
    if register is not None:
        return _vgpu_cards(node["metadata"]["name"], register, pods)
    capacity = node.get("status", {}).get("capacity") or {}
    if nvidia.RESOURCE in capacity:
        return [_whole_gpus(node, _whole(capacity[nvidia.RESOURCE]), pods)]
    count, memory = _whole(capacity.get(gpushare_protocol.NUMBER)), _whole(capacity.get(gpushare_protocol.MEMORY))
    return [_shared_card(node["metadata"]["name"], i, memory // count, pods) for i in range(count)]


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
        held = [(pod, device) for pod in pods for device in _devices(pod) if device.id.partition("[")[0] == card]
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


def _devices(pod: Json) -> list[vgpu_protocol.Assigned]:
    try:
        segments = vgpu_protocol.decode(vgpu_protocol.annotations_of(pod).get(_IDS, ""))
    except vgpu_protocol.PluginPanicError:
        return []
    return [device for segment in segments for device in segment]


def _whole_gpus(node: Json, total: int, pods: Sequence[Json]) -> CardBar:
    """All cards of a node as one bar: which pod has which, the device plugin alone knows."""
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


def _bar(bar: CardBar) -> str:
    # Never empty while something is used, never full while something is free.
    filled = min(_BAR_CHARS, max(bar.used > 0, bar.used * _BAR_CHARS // bar.total)) if bar.total else 0
    return _FULL * filled + _EMPTY * (_BAR_CHARS - filled)


def _amounts(bar: CardBar) -> str:
    return f"{bar.used:>5} of {bar.total:>5} {bar.unit}"


def _parts(bar: CardBar) -> str:
    if not bar.parts:
        return ""
    told = ", ".join(
        f"{part.pod} {part.amount}" + (f" ({part.cores_pct} % of compute)" if part.cores_pct else "")
        for part in bar.parts
    )
    return f"   {told}" + ("   OVERCOMMITTED" if bar.overcommitted else "")


def _whole(text: object) -> int:
    try:
        return int(value_of(text)) if text is not None else 0
    except QuantityError:
        return 0


def environment(env: Mapping[str, str]) -> str:
    """What a container received, as one line; what is the same in every container is left out."""
    shown = {
        key: value
        for key, value in env.items()
        if key not in ("NVIDIA_GDRCOPY", "NVIDIA_GDS", "NVIDIA_MOFED", "CUDA_DEVICE_MEMORY_SHARED_CACHE")
    }
    return " ".join(f"{key}={value}" for key, value in shown.items())
