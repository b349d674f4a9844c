"""Ascend chips as bars: in MiB for the HAMi plugin, in AI cores for MindCluster's; pure.

It reads nodes and pods independently of the product, like `picture`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from core.dialects.ascend_hami.table import SHIPPED_CHIPS, AscendChip
from sandbox.api.quantities import value_of
from sandbox.demo.assigned import hami_devices
from sandbox.demo.bars import CardBar, Part
from sandbox.players import mindcluster_protocol as mindcluster
from sandbox.players.ascend_hami_protocol import NODE_SOFT
from sandbox.players.vgpu_protocol import annotations_of

Json = dict[str, Any]

_CHIPS: Final[Mapping[str, AscendChip]] = {chip.common_word: chip for chip in SHIPPED_CHIPS}
_REGISTER: Final = re.compile(r"hami\.io/node-register-(?P<word>.+)")
_CORES_PER_CHIP: Final = 8


def hami_chips(node: Json, pods: Sequence[Json]) -> Iterator[CardBar]:
    """Yield the chips that the HAMi plugin registered on *node*, with what *pods* hold of them."""
    soft = annotations_of(node).get(NODE_SOFT) == "true"
    cut = "soft slices" if soft else "templates"
    for key, register in annotations_of(node).items():
        match = _REGISTER.fullmatch(key)
        if match is None:
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
    return sum(one.ai_core for one in used) > chip.ai_core or sum(one.ai_cpu for one in used) > chip.ai_cpu


def mindcluster_chips(node: Json, pods: Sequence[Json]) -> Iterator[CardBar]:
    """Yield the chips of *node* that MindCluster's plugin divides, with what *pods* hold of them."""
    total = int(value_of((node.get("status", {}).get("capacity") or {}).get(mindcluster.CORES, "0")))
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


def _assigned(pod: Json) -> mindcluster.Assigned | None:
    """Return what *pod* has: as reported by the plugin, which may swap equal requests; before that as promised."""
    annotations = annotations_of(pod)
    found = mindcluster.decode(annotations.get(mindcluster.ASSIGNED, ""))
    real = mindcluster.decode_real(annotations.get(mindcluster.REAL, ""))
    if found is None or not real:
        return found
    return mindcluster.Assigned(chips=tuple(one.chip for one in real), template=real[0].template)
