"""Audits a cluster from its objects alone, in every protocol's own terms.

It shares nothing with the code it audits but the names and units that HAMi's other vendors declare.

I1: on no card do the shares of bound pods that are not over exceed memory, cores, slots or slices. I2: every
assignment names cards that its node has. I3: one assignment per pod, in one protocol.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from core.dialects.ascend_hami.table import AscendTable
from core.dialects.hami_vendors.vendor import Capacity, Vendor
from core.dialects.vgpu.table import VgpuTable
from core.model import Node, Pod
from core.settings import Tables
from core.sharing.slices import Slice, profile_at
from sandbox.api.quantities import value_of
from tests.support.devices.vendors import PORTS

_VGPU = "volcano.sh/vgpu-ids-new"
_SHARE = "volcano.sh/gpu-index"
_CORE = "huawei.com/npu-core"
_REAL = "huawei.com/AscendReal"
_HAMI = re.compile(r"hami\.io/(.+)-devices-allocated")
_HAMI_SHARES = "hami.io/vgpu-devices-allocated"
_SLICE = re.compile(r"(.+)\[(.+)-(\d+)\]")
_VNPU = re.compile(r"(\d+)-vir(\d\d)(?:_(\d)c)?(?:_n?dvpp)?")
_CHIPS = re.compile(r"[^,]*\d(?:,[^,]*\d)*")
_MIND_CORES, _MIND_CPUS = 8, 7


def audit(nodes: Iterable[Node], pods: Iterable[Pod], tables: Tables) -> list[str]:
    """What is wrong, in sentences; nothing on a sound cluster."""
    by_node: dict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        if pod.node_name and not pod.finished:
            by_node[pod.node_name].append(pod)
    found: list[str] = []
    for node in nodes:
        holders = by_node.get(node.name, [])
        for check in (_vgpu, _shared, _whole, _hami, _hami_shares, _vendors, _mindcluster):
            found += [f"{node.name}: {text}" for text in check(node, holders, tables)]
        found += [f"{node.name}: {text}" for text in _protocols(holders)]
    return found


def _protocols(pods: Sequence[Pod]) -> Iterator[str]:
    sold: set[str] = set()
    for pod in pods:
        held = set(_kinds(pod))
        if len(held) > 1:
            yield f"{pod.key} holds cards of several protocols: {sorted(held)}"
        sold |= held
    for rivals in ({"vgpu", "memory", "number", "whole", "hami shares"}, {"hami", "mindcluster"}):
        if len(sold & rivals) > 1:
            yield f"the same cards are sold by {sorted(sold & rivals)}"


def _kinds(pod: Pod) -> Iterator[str]:
    if pod.annotations.get(_VGPU):
        yield "vgpu"
    if pod.annotations.get(_SHARE):
        yield "memory" if _limit(pod, "volcano.sh/gpu-memory") else "number"
    if pod.annotations.get(_HAMI_SHARES):
        yield "hami shares"
    elif _limit(pod, "nvidia.com/gpu"):
        yield "whole"
    if any(_HAMI.fullmatch(key) and text for key, text in pod.annotations.items() if key != _HAMI_SHARES):
        yield "hami"
    if pod.annotations.get(_CORE):
        yield "mindcluster"


def _vgpu(node: Node, pods: Sequence[Pod], tables: Tables) -> Iterator[str]:
    cards: dict[str, list[str]] = {}
    for record in node.annotations.get("volcano.sh/node-vgpu-register", "").split(":"):
        if record:
            cards[record.split(",")[0]] = record.split(",")
    memory: Counter[str] = Counter()
    cores: Counter[str] = Counter()
    slots: Counter[str] = Counter()
    groups: dict[str, set[str]] = defaultdict(set)
    slices: Counter[str] = Counter()
    for pod in pods:
        for entry in pod.annotations.get(_VGPU, "").replace(";", "").split(":"):
            if not entry:
                continue
            name, _, amount, percent = entry.split(",")
            match = _SLICE.fullmatch(name)
            card = match[1] if match else name
            if card not in cards:
                yield f"{pod.key} holds {name}, which the node does not have"
                continue
            mig = cards[card][5] == "mig"
            if mig != bool(match):
                yield f"{pod.key} holds {name} of a card in mode {cards[card][5]}"
            if match:
                groups[card].add(match[2])
                slices[name] += 1
                size = _slice_mib(cards[card][3], match[2], int(match[3]), tables)
                if size < int(amount):
                    yield f"{pod.key}: {name} has {size} MiB of {amount}"
                memory[card] += size
            else:
                memory[card] += int(amount)
            cores[card] += int(percent)
            slots[card] += 1
    for card, fields in ((card, cards[card]) for card in slots):
        if memory[card] > int(fields[2]) or cores[card] > 100 or slots[card] > int(fields[1]):
            yield f"{card} holds {memory[card]} MiB, {cores[card]} % and {slots[card]} shares of {fields[1:3]}"
        if len(groups[card]) > 1:
            yield f"{card} is laid out as {sorted(groups[card])} at once"
    for name, count in slices.items():
        if count > 1:
            yield f"{name} is given out {count} times"


def _slice_mib(card_type: str, group: str, position: int, tables: Tables) -> int:
    for model in tables.of(VgpuTable).geometries:
        if any(one in card_type for one in model.models):
            cut = profile_at(model.layout, Slice(group, position))
            return cut.memory_mib if cut is not None else -1
    return -1


def _shared(node: Node, pods: Sequence[Pod], tables: Tables) -> Iterator[str]:
    del tables
    number, total = _capacity(node, "volcano.sh/gpu-number"), _capacity(node, "volcano.sh/gpu-memory")
    used: Counter[int] = Counter()
    for pod in pods:
        for index in pod.annotations.get(_SHARE, "").split(","):
            if index:
                if int(index) >= number:
                    yield f"{pod.key} holds card {index} of {number}"
                used[int(index)] += _limit(pod, "volcano.sh/gpu-memory") or max(total // max(number, 1), 1)
    for card, amount in used.items():
        if amount > max(total // max(number, 1), 1):
            yield f"card {card} holds {amount} of {total // max(number, 1)}"


def _whole(node: Node, pods: Sequence[Pod], tables: Tables) -> Iterator[str]:
    del tables
    total, used = _capacity(node, "nvidia.com/gpu"), sum(_limit(pod, "nvidia.com/gpu") for pod in pods)
    if used > total:
        yield f"{used} whole GPUs of {total} are given out"


def _hami(node: Node, pods: Sequence[Pod], tables: Tables) -> Iterator[str]:
    chips = {chip.named.type: chip for chip in tables.of(AscendTable).chips}
    for word, chip in chips.items():
        text = node.annotations.get(f"hami.io/node-register-{word}", "")
        devices = {one["id"]: one for one in json.loads(text)} if text else {}
        memory: Counter[str] = Counter()
        cores: Counter[str] = Counter()
        shares: Counter[str] = Counter()
        for pod in pods:
            for entry in pod.annotations.get(f"hami.io/{word}-devices-allocated", "").replace(";", "").split(":"):
                if not entry:
                    continue
                name, _, amount, _ = entry.split(",")
                if name not in devices:
                    yield f"{pod.key} holds {name}, which the node does not have"
                    continue
                fitting = [one for one in chip.templates if one.memory_mib == int(amount)]
                memory[name] += int(amount)
                cores[name] += fitting[0].counted[0] if fitting else chip.ai_core
                shares[name] += 1
        for name in shares:
            device = devices[name]
            if memory[name] > device["devmem"] or cores[name] > device["devcore"] or shares[name] > device["count"]:
                yield f"{word} {name} holds {memory[name]} MiB, {cores[name]} cores, {shares[name]} shares of {device}"


def _hami_shares(node: Node, pods: Sequence[Pod], tables: Tables) -> Iterator[str]:
    """NVIDIA cards of HAMi's plugin; init containers count as if they ran beside the others."""
    del tables
    text = node.annotations.get("hami.io/node-nvidia-register", "")
    devices = {one["id"]: one for one in json.loads(text)} if text else {}
    used: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for pod in pods:
        for entry in pod.annotations.get(_HAMI_SHARES, "").replace(";", "").split(":"):
            if not entry:
                continue
            name, _, memory, cores = entry.split(",")
            if name not in devices:
                yield f"{pod.key} holds {name}, which the node does not have"
                continue
            used[name] = [a + b for a, b in zip(used[name], (int(memory), int(cores), 1), strict=True)]
    for name, amounts in used.items():
        device = devices[name]
        if any(amount > device[key] for amount, key in zip(amounts, ("devmem", "devcore", "count"), strict=True)):
            yield f"{name} holds {amounts} of {device}"


def _vendors(node: Node, pods: Sequence[Pod], tables: Tables) -> Iterator[str]:
    """Cards of HAMi's other vendors; init containers count as if they ran beside the others."""
    del tables
    for vendor in [port.vendor for port in PORTS]:
        cards, has_bits = _cards_of_vendor(node, vendor), vendor.limits.asks is not None
        used: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
        for pod in pods:
            for entry in pod.annotations.get(vendor.handoff.allocated, "").replace(";", "").split(":"):
                if not entry:
                    continue
                name, _, memory, cores = entry.split(",")
                if name not in cards:
                    yield f"{pod.key} holds {name}, which the node does not have"
                    continue
                if has_bits and used[name][2] & int(cores):
                    yield f"{pod.key} holds cores {cores} of {name}, of which {used[name][2]} are held"
                used[name] = [a + b for a, b in zip(used[name], (1, int(memory), int(cores)), strict=True)]
        for name, amounts in used.items():
            if any(amount > most for amount, most in zip(amounts, cards[name], strict=True)):
                yield f"{name} holds {amounts} of {cards[name]}"


def _cards_of_vendor(node: Node, vendor: Vendor) -> dict[str, tuple[int, int, int]]:
    """Shares, MiB and cores of each card."""
    source = vendor.cards.source
    if isinstance(source, Capacity):
        count, mib = _capacity(node, vendor.limits.count), (vendor.cards.whole or (0,))[0]
        if source.shares_cores:
            total = _capacity(node, vendor.limits.cores) // max(count, 1)
            return {f"{node.name}-{source.word}-{at}": (total, 0, (1 << total) - 1) for at in range(count)}
        if source.has_cores:
            count = _capacity(node, vendor.limits.cores) // source.cores
            mib = _capacity(node, vendor.limits.memory) * vendor.limits.mib_per_unit // max(count, 1)
        return {f"{node.name}-{source.word}-{at}": (source.slots, mib, source.cores) for at in range(count)}
    text = node.annotations.get(source.key, "")
    if text.startswith("{"):
        found = json.loads(text)
        return {f"{node.name}-enflame-drs-{one['index']}": _cut(one, found["profiles"]) for one in found["devices"]}
    if "totalVRam" in text:
        own = ("totalDevCount", "totalVRam", "totalCompute")
        return {one["uuid"]: (one[own[0]], one[own[1]], one[own[2]]) for one in json.loads(text)}
    if text.startswith("["):
        return {one["id"]: (one["count"], one["devmem"], one["devcore"]) for one in json.loads(text)}
    lines = [line.split(",") for line in text.split(":") if line]
    return {line[0]: (int(line[1]), int(line[2]), int(line[3])) for line in lines}


def _cut(device: Mapping[str, str], profiles: Mapping[str, str]) -> tuple[int, int, int]:
    """Instances, MiB and cores of a card that is cut by *profiles*; percent are rounded up for each instance."""
    sizes = [re.fullmatch(r"(\d+)g\.(\d+)gb", name) for name in profiles]
    slices, gib = max((int(one[1]), int(one[2])) for one in sizes if one)
    return int(device["capacity"]), gib * 1024 * int(device["capacity"]) // slices, 100 + slices


def _mindcluster(node: Node, pods: Sequence[Pod], tables: Tables) -> Iterator[str]:
    del tables
    chips = _capacity(node, _CORE) // _MIND_CORES
    cores: Counter[int] = Counter()
    cpus: Counter[int] = Counter()
    for pod in pods:
        text = pod.annotations.get(_CORE, "")
        match = _VNPU.fullmatch(text)
        # The plugin may swap pods that ask alike; it reports which chips they have.
        real = [
            int(one.rpartition("-")[2].partition("_")[0]) for one in pod.annotations.get(_REAL, "").split(",") if one
        ]
        if match:
            chip = real[0] if real else int(match[1])
            cores[chip] += int(match[2])
            cpus[chip] += int(match[3] or match[2])
        elif text and ("vir" in text or not _CHIPS.fullmatch(text)):
            yield f"{pod.key} holds {text!r}, which names no chips"
        elif text:
            for chip in real or [int(index.rpartition("-")[2]) for index in text.split(",")]:
                cores[chip] += _MIND_CORES
    for chip, amount in cores.items():
        if chip >= chips or amount > _MIND_CORES or cpus[chip] > _MIND_CPUS:
            yield f"chip {chip} of {chips} holds {amount} cores and {cpus[chip]} CPUs"


def _limit(pod: Pod, resource: str) -> int:
    # The API server writes 1000 as 1k.
    return sum(int(value_of(container.limits.get(resource, "0"))) for container in pod.containers)


def _capacity(node: Node, resource: str) -> int:
    return int(value_of(node.capacity.get(resource, "0")))
