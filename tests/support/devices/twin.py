"""Who uses which physical card, and whether a new pod may join it: read from the API server's objects alone.

Written from the protocol reference, beside the ledger and without it: its own parsing of annotations, its own tables,
its own idea of what a card is. Cards are the machine's, known by UUID and position, whichever protocol sells them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from core.model import Container, Pod
from tests.support.devices.twin_vendors import PLAIN, Plain

VGPU, MEMORY, NUMBER, WHOLE, HAMI, MIND = "vgpu", "memory", "number", "whole", "hami", "mind"
# Of HAMi's plugin for NVIDIA cards; HAMI is its plugin for Ascend chips.
SHARES: Final = "shares"
# Ways of selling the same cards.
NVIDIA: Final = frozenset({VGPU, MEMORY, NUMBER, WHOLE, SHARES})
ASCEND: Final = frozenset({HAMI, MIND})

# Every name that the vGPU plugin of these machines ever registered for its count of devices.
VGPU_NUMBERS: Final = ("volcano.sh/vgpu-number", "acme.example/vgpu-number")
GPU_MEMORY, GPU_NUMBER, GPU = "volcano.sh/gpu-memory", "volcano.sh/gpu-number", "nvidia.com/gpu"
# By what a pod asks shares of HAMi's, and by what it holds them (hami 1.1, 5.1).
SHARE_MEMORY, SHARE_HELD = "nvidia.com/gpumem", "hami.io/vgpu-devices-allocated"
NPU_CORE: Final = "huawei.com/npu-core"
WORDS: Final = ("Ascend310P", "Ascend910B3")

# nvidia.md 3.6: MiB of every position of every group.
SLICES: Final = {
    "A30": {"group1": (6144,) * 4, "group2": (12288,) * 2, "group3": (24576,)},
    "A100-40": {
        "group1": (5120,) * 7,
        "group2": (10240, 10240, 10240, 5120),
        "group3": (20480,) * 2,
        "group4": (40960,),
    },
}
# ascend.md 1.1: memory of a template to its AI cores and AI CPUs; the last is the whole chip.
HAMI_CUTS: Final = {
    "Ascend310P": {3072: (1, 1), 6144: (2, 2), 12288: (4, 4), 21527: (8, 7)},
    "Ascend910B3": {16384: (5, 1), 32768: (10, 3), 65536: (20, 7)},
}
HAMI_COUNT: Final = {"Ascend310P": 7, "Ascend910B3": 4}
# ascend.md 3.2: AI cores and AI CPUs.
MIND_CUTS: Final = {
    "vir01": (1, 1),
    "vir02": (2, 2),
    "vir02_1c": (2, 1),
    "vir04": (4, 4),
    "vir04_3c": (4, 3),
    "vir04_3c_ndvpp": (4, 3),
    "vir04_4c_dvpp": (4, 4),
}
MIND_CORES, MIND_CPUS = 8, 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The cards that are truly in a machine: gpus as (uuid, MiB), model for its MIG slices, npus by uuid, of *word*.

    cards: those of another *vendor*, by uuid.
    """

    gpus: tuple[tuple[str, int], ...] = ()
    model: str = ""
    npus: tuple[str, ...] = ()
    word: str = ""
    cards: tuple[str, ...] = ()
    vendor: str = ""


class Share(NamedTuple):
    """One container's part of one card; card: uuid or position. slice: (group, position); whole: all there is of it.

    container: its place, init containers first; None: it has its part for as long as the pod is there.
    """

    card: str
    mib: int = 0
    cores: int = 0
    cpus: int = 0
    slice: tuple[str, int] | None = None
    whole: bool = False
    container: int | None = None


class Hold(NamedTuple):
    """What one pod uses: shares by protocol. anywhere: resources it asks for, and nothing says on which cards.

    moments: the containers that run together, at every moment that is still to come.
    """

    key: str
    shares: Mapping[str, tuple[Share, ...]]
    anywhere: tuple[tuple[str, str], ...] = ()
    moments: tuple[tuple[int, ...], ...] = ()

    def at_once(self, protocol: str, card: str) -> Iterator[list[Share]]:
        """Its shares of *card* at every moment."""
        mine = [share for share in self.shares.get(protocol, ()) if share.card == card]
        for running in self.moments:
            yield [share for share in mine if share.container is None or share.container in running]


class Load(NamedTuple):
    """The most that one pod takes of one card at any moment; alone: with all cores, beside nobody else."""

    mib: int
    cores: int
    cpus: int
    shares: int
    alone: bool
    crowded: bool


def load(hold: Hold, protocol: str, card: str) -> Load:
    """The most that *hold* takes of *card* at any moment."""
    now = list(hold.at_once(protocol, card))
    return Load(
        max(sum(share.mib for share in some) for some in now),
        max(sum(share.cores for share in some) for some in now),
        max(sum(share.cpus for share in some) for some in now),
        max(len(some) for some in now),
        any(share.cores == 100 for some in now for share in some),
        any(len(some) > 1 and any(share.cores == 100 for share in some) for some in now),
    )


def moments(pod: Pod) -> tuple[tuple[int, ...], ...]:
    """Which containers of *pod* run together: an init container beside earlier sidecars, then all others (KEP-753)."""
    first = len(pod.init_containers)
    sidecars = tuple(at for at, one in enumerate(pod.init_containers) if one.sidecar)
    begins = tuple((*(one for one in sidecars if one < at), at) for at in range(first))
    goes_on = (*sidecars, *range(first, first + len(pod.containers)))
    return (goes_on,) if pod.init_done else (*begins, goes_on)


class Twin:
    """Every pod that is on a node or promised to it, as the objects tell of it."""

    def __init__(self, machines: Mapping[str, Machine]) -> None:
        self.machines = machines
        self._holds: dict[str, dict[str, Hold]] = defaultdict(dict)

    def put(self, pod: Pod, factor: int = 1) -> None:
        """*pod* is on its node now, or promised to it; *factor*: MiB per unit of the plugin that serves it."""
        self._holds[pod.node_name][pod.uid] = read(pod, self.machines[pod.node_name], factor)

    def take(self, node: str, uid: str) -> None:
        """A pod holds nothing any more."""
        self._holds[node].pop(uid, None)

    def holds(self, node: str) -> Mapping[str, Hold]:
        """What the pods of *node* hold, by uid."""
        return self._holds[node]

    def judge(self, pod: Pod, factor: int, configured: frozenset[str]) -> list[str]:
        """What is wrong with placing *pod* now; *configured*: the names by which the configuration sells cards."""
        machine = self.machines[pod.node_name]
        mine = read(pod, machine, factor)
        others = [hold for uid, hold in self._holds[pod.node_name].items() if uid != pod.uid]
        if len(mine.shares) != 1:
            return [f"{pod.node_name}: {pod.key} is placed by {sorted(mine.shares)}"]
        (protocol,) = mine.shares
        rivals = next((one for one in (NVIDIA, ASCEND) if protocol in one), frozenset[str]()) - {protocol}
        wrong: list[str] = []
        for other in others:
            sale = f"sold as {protocol} to {pod.key} while {other.key}"
            wrong += [f"{sale} holds it as {rival}" for rival in sorted(rivals & other.shares.keys())]
            wrong += [
                f"{sale} may use any card by {resource}"
                for sold, resource in other.anywhere
                if resource in configured and (sold == protocol or sold in rivals)
            ]
        wrong += _overfull(protocol, machine, mine, others)
        return [f"{pod.node_name}: {text}" for text in wrong]


def read(pod: Pod, machine: Machine, factor: int) -> Hold:
    """What *pod* uses of *machine*, as its resources make kubelet ask for it and its annotations say."""
    shares: dict[str, tuple[Share, ...]] = {}
    anywhere: list[tuple[str, str]] = []
    for protocol, resource, found in _claims(pod, machine, factor):
        if found:
            shares[protocol] = (*shares.get(protocol, ()), *found)
        else:
            anywhere.append((protocol, resource))
    return Hold(pod.key, shares, tuple(anywhere), moments(pod))


def _claims(pod: Pod, machine: Machine, factor: int) -> Iterator[tuple[str, str, tuple[Share, ...]]]:
    notes = pod.annotations
    for name in VGPU_NUMBERS:
        if _sum(pod.containers, name):
            yield VGPU, name, _vgpu(notes.get("volcano.sh/vgpu-ids-new", ""), machine, factor)
    memory, number = _total(pod, GPU_MEMORY), _total(pod, GPU_NUMBER)
    indices = _positions(notes.get("volcano.sh/gpu-index", ""))
    if memory:
        yield MEMORY, GPU_MEMORY, tuple(Share(at, mib=memory) for at in indices)
    if number:
        yield NUMBER, GPU_NUMBER, tuple(Share(at, whole=True) for at in indices)
    whole = _total(pod, GPU)
    # Without an assignment HAMi's plugin gives nothing, and NVIDIA's what kubelet asks for: whole cards.
    if whole and SHARE_HELD in notes:
        yield SHARES, GPU, _shares(notes.get(SHARE_HELD, ""), machine)
    elif whole:
        yield WHOLE, GPU, tuple(Share("any", whole=True) for _ in range(whole))
    for word in WORDS:
        if _sum(pod.containers, f"huawei.com/{word}"):
            yield (
                HAMI,
                f"huawei.com/{word}",
                _hami(notes.get(f"hami.io/{word}-devices-allocated", ""), machine, word),
            )
    for vendor, one in PLAIN.items():
        if _sum(pod.containers, one.count):
            text = next((notes[key] for key in one.held if key in notes), "")
            yield vendor, one.count, _plain(text, machine)
    if _sum(pod.containers, NPU_CORE):
        yield MIND, NPU_CORE, _mind(notes.get(NPU_CORE, ""), notes.get("huawei.com/AscendReal", ""))


def _entries(text: str) -> Iterator[tuple[int, list[str]]]:
    for at, segment in enumerate(text.split(";")):
        for piece in segment.split(":"):
            if "," in piece:
                yield at, piece.split(",")


def _vgpu(text: str, machine: Machine, factor: int) -> tuple[Share, ...]:
    there = dict(machine.gpus)
    found: list[Share] = []
    for _, fields in _entries(text):
        name = fields[0]
        uuid, opening, rest = name.partition("[")
        try:
            units, cores = int(fields[2]), int(fields[3])
            if opening:
                group, _, position = rest.rstrip("]").partition("-")
                found.append(Share(uuid, units * factor, cores, slice=(group, int(position))))
            else:
                found.append(Share(uuid, units * factor, cores))
        except (ValueError, IndexError):
            if uuid not in there:
                return ()  # it may mean any card
            found.append(Share(uuid, whole=True))
    return tuple(found)


def _positions(text: str) -> tuple[str, ...]:
    pieces = text.split(",")
    return tuple(pieces) if text and all(piece.isdigit() for piece in pieces) else ()


def _shares(text: str, machine: Machine) -> tuple[Share, ...]:
    """As `_vgpu`; segments are of containers, init containers first (hami 1.9)."""
    found = _vgpu(text, machine, 1)
    return tuple(share._replace(container=at) for share, (at, _) in zip(found, _entries(text), strict=False))


def _hami(text: str, machine: Machine, word: str) -> tuple[Share, ...]:
    found: list[Share] = []
    for at, fields in _entries(text):
        try:
            mib = int(fields[2])
            cores, cpus = HAMI_CUTS[word][mib]
            found.append(Share(fields[0], mib, cores, cpus, container=at))
        except (ValueError, IndexError, KeyError):
            if fields[0] not in machine.npus:
                return ()
            found.append(Share(fields[0], whole=True))
    return tuple(found)


def _plain(text: str, machine: Machine) -> tuple[Share, ...]:
    found: list[Share] = []
    for _, fields in _entries(text):
        try:
            found.append(Share(fields[0], int(fields[2]), int(fields[3])))
        except (ValueError, IndexError):
            if fields[0] not in machine.cards:
                return ()
            found.append(Share(fields[0], whole=True))
    return tuple(found)


def _mind(text: str, real: str) -> tuple[Share, ...]:
    """The chips of one pod: those that the plugin reports, else those that it was told (ascend.md 3.1)."""
    chips = [name.rpartition("-")[2].partition("_")[0] for name in real.split(",") if name]
    chip, dash, template = text.partition("-")
    if dash:
        cores, cpus = MIND_CUTS.get(template, (MIND_CORES, MIND_CPUS))
        return (Share(chips[0] if chips else chip, cores=cores, cpus=cpus),) if chip.isdigit() else ()
    return tuple(Share(at, cores=MIND_CORES, cpus=MIND_CPUS) for at in chips or _positions(text))


def _overfull(protocol: str, machine: Machine, mine: Hold, others: Iterable[Hold]) -> Iterator[str]:
    """Cards of *mine* that hold more than they have, now that they hold this too."""
    holds = [mine, *others]
    held = [share for hold in holds for share in hold.shares.get(protocol, ())]
    if protocol == WHOLE:
        if len(held) > len(machine.gpus):
            yield f"{len(held)} GPUs of {len(machine.gpus)} are sold whole"
        return
    for card in dict.fromkeys(share.card for share in mine.shares[protocol]):
        on = [share for share in held if share.card == card]
        loads = [one for hold in holds if (one := load(hold, protocol, card)).shares]
        if any(share.whole for share in on) and len(on) > 1:
            yield f"card {card} is held whole, and by {len(on)} shares"
        match protocol:
            case "vgpu" | "shares":
                yield from _overfull_gpu(card, on, loads, machine)
            case "memory":
                total = machine.gpus[int(card)][1] if int(card) < len(machine.gpus) else 0
                if sum(share.mib for share in on) > total:
                    yield f"card {card} holds {sum(share.mib for share in on)} MiB of {total}"
            case "number":
                if int(card) >= len(machine.gpus):
                    yield f"there is no card {card}"
            case "hami":
                yield from _overfull_npu(card, loads, machine)
                if any(len(some) > 1 for some in mine.at_once(protocol, card)):
                    yield f"two containers of {mine.key} that run together are on chip {card}"
            case vendor if vendor in PLAIN:
                yield from _overfull_plain(card, on, machine, PLAIN[vendor])
            case "mind":
                cores, cpus = sum(share.cores for share in on), sum(share.cpus for share in on)
                if int(card) >= len(machine.npus) or cores > MIND_CORES or cpus > MIND_CPUS:
                    yield f"chip {card} holds {cores} AI cores and {cpus} AI CPUs"


def _overfull_gpu(card: str, on: list[Share], loads: list[Load], machine: Machine) -> Iterator[str]:
    total = dict(machine.gpus).get(card)
    if total is None:
        yield f"there is no card {card}"
        return
    cores, count = sum(one.cores for one in loads), sum(one.shares for one in loads)
    if cores > 100 or count > 10:
        yield f"{card} holds {cores} % of its cores in {count} shares"
    if any(one.crowded for one in loads) or (any(one.alone for one in loads) and len(loads) > 1):
        yield f"{card} is promised to one pod with all its cores, and to others"
    slices = [share.slice for share in on if share.slice is not None]
    if not slices:
        if sum(one.mib for one in loads) > total:
            yield f"{card} holds {sum(one.mib for one in loads)} MiB of {total}"
        return
    if len(slices) < len(on):
        yield f"{card} is sold in slices and without"
    if len({group for group, _ in slices}) > 1:
        yield f"{card} is cut in two ways: {sorted(set(slices))}"
    for (group, position), count in Counter(slices).items():
        sizes = SLICES[machine.model].get(group, ())
        if position >= len(sizes):
            yield f"{card} has no slice {group}-{position}"
        elif count > 1:
            yield f"slice {group}-{position} of {card} is sold {count} times"


def _overfull_plain(card: str, on: list[Share], machine: Machine, sold: Plain) -> Iterator[str]:
    if card not in machine.cards:
        yield f"there is no card {card}"
        return
    mib, cores = sum(share.mib for share in on), sum(share.cores for share in on)
    if len(on) > sold.slots or (sold.memory and (mib > sold.mib or cores > sold.total)):
        yield f"{card} holds {mib} MiB and {cores} cores in {len(on)} shares"
    if sold.memory and sold.total == 100 and any(share.cores == 100 for share in on) and len(on) > 1:
        yield f"{card} is promised to one pod with all its cores, and to others"


def _overfull_npu(card: str, on: list[Load], machine: Machine) -> Iterator[str]:
    if card not in machine.npus:
        yield f"there is no chip {card}"
        return
    mib, (cores, cpus) = max(HAMI_CUTS[machine.word].items())
    if (
        sum(one.mib for one in on) > mib
        or sum(one.cores for one in on) > cores
        or sum(one.cpus for one in on) > cpus
        or sum(one.shares for one in on) > HAMI_COUNT[machine.word]
    ):
        yield f"chip {card} holds {[one.mib for one in on]} MiB"


def _total(pod: Pod, resource: str) -> int:
    every = (*pod.init_containers, *pod.containers)
    return max(_sum([every[at] for at in running], resource) for running in moments(pod))


def _sum(containers: Iterable[Container], resource: str) -> int:
    return sum(int(one.limits.get(resource, "0")) for one in containers)
