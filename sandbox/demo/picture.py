"""Draws cards and their holders as bars, from the API server's nodes and pods; pure.

It reads the annotations itself, without the product's core, so that the demo checks the product independently.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from core.dialects.ascend_hami.table import SHIPPED_CHIPS, AscendChip
from sandbox.demo.outcomes import hami_devices, hami_shares, vgpu_devices
from sandbox.players import gpushare, hami, mig, nvidia, vgpu_protocol
from sandbox.players import mindcluster_protocol as mindcluster
from sandbox.players.ascend_hami_protocol import NODE_SOFT
from sandbox.players.objects import annotations_of, is_over, limits_of, whole
from sandbox.players.registry import DEVICE_CONFIG

Json = dict[str, Any]

_BAR_CHARS: Final = 24
_FULL, _EMPTY = "█", "░"
_CHIPS: Final[Mapping[str, AscendChip]] = {chip.named.type: chip for chip in SHIPPED_CHIPS}
_REGISTER: Final = re.compile(r"hami\.io/node-register-(?P<word>.+)")
_CORES_PER_CHIP: Final = 8
_SAID_ALREADY: Final = frozenset(
    {
        *("NVIDIA_GDRCOPY", "NVIDIA_GDS", "NVIDIA_MOFED", "CUDA_DEVICE_MEMORY_SHARED_CACHE"),
        *("NPU_GLOBAL_SHM_PATH", "NPU_LOCAL_SHM_PATH"),
        *("LOCAL_RANK", "LOCAL_WORLD_SIZE", "MS_LOCAL_WORKER", "MS_WORKER_NUM", "CM_WORKER_SIZE", "CM_LOCAL_WORKER"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one pod holds of one card, in the card's unit.

    cores_pct: 0 = no limit. template: the template of its slice, "" if there is none.
    """

    pod: str
    amount: int
    cores_pct: int = 0
    template: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardBar:
    """One card: total in *unit* (MiB, AI cores, or whole cards), and what each pod holds.

    clash: two of its slices cannot exist together.
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
        """The sum of all parts."""
        return sum(part.amount for part in self.parts)

    @property
    def overcommitted(self) -> bool:
        """Whether more is promised than the card has."""
        return self.clash or self.used > self.total or sum(part.cores_pct for part in self.parts) > 100


def lines(bars: Sequence[CardBar], *, most_parts: int | None = None) -> tuple[str, ...]:
    """Return the bars as text, by node and kind; each with at most *most_parts* holders, None = all."""
    drawn: list[str] = []
    width = max((len(bar.card) for bar in bars), default=0)
    head = ""
    for bar in bars:
        if head != (head := f"{bar.node}  ({bar.label})"):
            drawn.append(head)
        drawn.append(
            f"  {bar.card:<{width}} {_bar(bar)} {bar.used:>5} of {bar.total:>5} {bar.unit}{_parts(bar, most_parts)}"
        )
    return tuple(drawn)


def _bar(bar: CardBar) -> str:
    # Never empty while something is used, and never full while something is free.
    filled = min(_BAR_CHARS, max(bar.used > 0, bar.used * _BAR_CHARS // bar.total)) if bar.total else 0
    return _FULL * filled + _EMPTY * (_BAR_CHARS - filled)


def _parts(bar: CardBar, most: int | None) -> str:
    if not bar.parts:
        return ""
    told = ", ".join(f"{part.pod} {part.amount}{_detail(part)}" for part in bar.parts[:most])
    if more := len(bar.parts) - len(bar.parts[:most]):
        told += f" and {more} more"
    return f"   {told}" + ("   OVERCOMMITTED" if bar.overcommitted else "")


def _detail(part: Part) -> str:
    if part.template:
        return f" ({part.template})"
    return f" ({part.cores_pct} % of compute)" if part.cores_pct else ""


def cards(nodes: Iterable[Json], pods: Sequence[Json]) -> tuple[CardBar, ...]:
    """Return the cards of *nodes* with what bound, unfinished *pods* hold of them, in the nodes' order."""
    return tuple(bar for node in nodes for bar in _cards_of(node, [p for p in pods if _holds_on(p, node)]))


def _cards_of(node: Json, pods: Sequence[Json]) -> Iterator[CardBar]:
    name, capacity = node["metadata"]["name"], node.get("status", {}).get("capacity") or {}
    yield from _vgpu_cards(name, annotations_of(node).get(vgpu_protocol.REGISTER, ""), pods)
    if hami.REGISTER in annotations_of(node):
        yield from _hami_cards(name, annotations_of(node)[hami.REGISTER], pods)
    elif nvidia.RESOURCE in capacity:
        yield _whole_gpus(node, whole(capacity[nvidia.RESOURCE]), pods)
    count, memory = whole(capacity.get(gpushare.NUMBER)), whole(capacity.get(gpushare.MEMORY))
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
            for device in vgpu_devices(annotations_of(pod))
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
            CardBar(node=node, card=card, label=label, total=whole(memory), unit="MiB", parts=parts, clash=clash)
        )
    return bars


def _hami_cards(node: str, register: str, pods: Sequence[Json]) -> Iterator[CardBar]:
    """Yield the NVIDIA cards that HAMi's plugin registered."""
    for card in json.loads(register):
        parts = tuple(
            Part(pod=pod["metadata"]["name"], amount=int(device.fields[2]), cores_pct=int(device.fields[3]))
            for pod in pods
            for device in hami_shares(annotations_of(pod))
            if device.id == card["id"]
        )
        label = f"{card['type']}, {card.get('mode', '')}" + ("" if card.get("health") else ", unhealthy")
        yield CardBar(node=node, card=card["id"], label=label, total=card["devmem"], unit="MiB", parts=parts)


def _whole_gpus(node: Json, total: int, pods: Sequence[Json]) -> CardBar:
    """Return all cards of a node as one bar, because only the device plugin knows which pod has which."""
    parts = []
    for pod in pods:
        amount = sum(whole(limits_of(one).get(nvidia.RESOURCE)) for one in pod["spec"]["containers"])
        if amount:
            parts.append(Part(pod=pod["metadata"]["name"], amount=amount))
    label = (node["metadata"].get("labels") or {}).get("nvidia.com/gpu.product", "")
    name = node["metadata"]["name"]
    return CardBar(node=name, card="all", label=f"whole {label}", total=total, unit="cards", parts=tuple(parts))


def _shared_card(node: str, index: int, memory_mib: int, pods: Sequence[Json]) -> CardBar:
    holders = [pod for pod in pods if str(index) in annotations_of(pod).get(gpushare.INDEX, "").split(",")]
    is_whole = memory_mib == 0
    parts = tuple(
        Part(
            pod=pod["metadata"]["name"],
            amount=1 if is_whole else sum(gpushare.amount(c) for c in pod["spec"]["containers"]),
        )
        for pod in holders
    )
    label = "whole cards" if is_whole else "shared by memory"
    return CardBar(
        node=node,
        card=str(index),
        label=label,
        total=1 if is_whole else memory_mib,
        unit="card" if is_whole else "MiB",
        parts=parts,
    )


def _holds_on(pod: Json, node: Json) -> bool:
    return not is_over(pod) and pod["spec"].get("nodeName") == node["metadata"]["name"]


def environment(env: Mapping[str, str]) -> str:
    """Return what a container received, as one line; constant and repeated values are omitted."""
    return " ".join(f"{key}={value}" for key, value in env.items() if key not in _SAID_ALREADY)


def hami_chips(node: Json, pods: Sequence[Json]) -> Iterator[CardBar]:
    """Yield the chips that the HAMi plugin registered on *node*, with what *pods* hold of them."""
    soft = annotations_of(node).get(NODE_SOFT) == "true"
    cut = "soft slices" if soft else "templates"
    for key, register in annotations_of(node).items():
        match = _REGISTER.fullmatch(key)
        if match is None or match["word"] not in _CHIPS:
            continue
        word = match["word"]
        for device in json.loads(register):
            parts = tuple(_hami_parts(word, device["id"], pods, soft=soft))
            yield CardBar(
                node=node["metadata"]["name"],
                card=device["id"],
                label=f"{word}, {cut}" + ("" if device.get("health") else ", unhealthy"),
                total=device["devmem"],
                unit="MiB",
                parts=parts,
                clash=_over(_CHIPS[word], [part.template for part in parts]),
            )


def _hami_parts(word: str, chip_id: str, pods: Sequence[Json], *, soft: bool) -> Iterator[Part]:
    templates = {one.memory_mib: one.name for one in _CHIPS[word].templates}
    for pod in pods:
        for kind, share in hami_devices(annotations_of(pod)):
            if (kind, share.id) == (word, chip_id):
                amount, percent = int(share.fields[2]), int(share.fields[3])
                yield Part(
                    pod=pod["metadata"]["name"],
                    amount=amount,
                    cores_pct=percent if soft else 0,
                    template="" if soft else templates.get(amount, ""),
                )


def _over(chip: AscendChip, templates: Sequence[str]) -> bool:
    """Return whether the chip has too few AI cores or AI CPUs for slices of *templates*; 0 AI CPUs = unknown."""
    used = [one for name in templates for one in chip.templates if one.name == name]
    return any(sum(one.counted[at] for one in used) > most for at, most in enumerate((chip.ai_core, chip.ai_cpu)))


def mindcluster_chips(node: Json, pods: Sequence[Json]) -> Iterator[CardBar]:
    """Yield the chips of *node* that MindCluster's plugin divides, with what *pods* hold of them."""
    total = whole((node.get("status", {}).get("capacity") or {}).get(mindcluster.CORES, "0"))
    held = [(pod, found) for pod in pods if (found := _assigned(pod)) is not None]
    for chip in range(total // _CORES_PER_CHIP):
        templates = Counter(found.template for _, found in held if chip in found.chips and found.template)
        cpus = sum(mindcluster.TEMPLATES[name][1] * count for name, count in templates.items())
        parts = tuple(
            Part(
                pod=pod["metadata"]["name"],
                amount=mindcluster.TEMPLATES[found.template][0] if found.template else _CORES_PER_CHIP,
                template=found.template,
            )
            for pod, found in held
            if chip in found.chips
        )
        yield CardBar(
            node=node["metadata"]["name"],
            card=f"Ascend310P-{chip}",
            label="Ascend310P, MindCluster",
            total=_CORES_PER_CHIP,
            unit="AI cores",
            parts=parts,
            clash=cpus > mindcluster.CPUS_PER_CHIP,
        )


def _assigned(pod: Json) -> mindcluster.AssignedChips | None:
    """Return what *pod* has: as reported by the plugin, which may swap equal requests; before that as promised."""
    annotations = annotations_of(pod)
    found = mindcluster.decode(annotations.get(mindcluster.ASSIGNED, ""))
    real = mindcluster.decode_real(annotations.get(mindcluster.REAL, ""))
    if found is None or not real:
        return found
    return mindcluster.AssignedChips(chips=tuple(one.chip for one in real), template=real[0].template)
