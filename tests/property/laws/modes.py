"""Every way of sharing cards that this project speaks, as the laws know it: one declaration each.

A declaration makes nodes and pods by chance, and knows nothing of how cards are judged.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from core.catalog import standard_catalog
from core.dialects.ascend_hami.table import SHIPPED_CHIPS, AscendChip, AscendTable
from core.dialects.gpushare.dialect import GpuMemory, GpuNumber
from core.dialects.hami.dialect import Hami
from core.dialects.hami.table import HamiTable
from core.dialects.mindcluster.dialect import MindCluster
from core.dialects.mindcluster.templates import TEMPLATES
from core.dialects.vgpu.dialect import Vgpu
from core.dialects.vgpu.table import ExclusiveRules, VgpuTable
from core.dialects.whole_gpu.dialect import WholeGpu
from core.model import Container, Node, NodeName, Pod, PodUid
from core.port.spec import AnySpec, DialectSpec
from core.settings import Tables
from sandbox.players import hami_instances
from tests.support.devices import acme, ascend, mindcluster, vendors
from tests.support.devices.cards import A100, A100_LAYOUTS, V100, container, record, share_node, vgpu_node
from tests.support.devices.toy import Toy

TABLES: Final = Tables()
# What nodes have beside cards: never what keeps a pod off here.
ROOM: Final = {"pods": "110", "cpu": "512", "memory": "2048Gi"}


def _figures_unread(text: str) -> str:
    """*text* with an x for every number between two commas, or between a comma and a colon."""
    return re.sub(r"(?<=,)\d+(?=[,:])", "x", text)


def _no_text(text: str) -> str:
    del text
    return "x"


@dataclass(frozen=True, kw_only=True)
class Mode:
    """One way of sharing cards.

    node: makes a node, some of its cards unwell. pod: makes a pod that asks in this mode; wishes: annotations, one of
    which it may have besides. unreadable: the text of an annotation with an assignment, so that nobody can say how much
    of which card it takes; None if nothing is written of that. served: what the plugin writes on a pod besides, by what
    stands there, where that counts. mib_per_unit: of how many MiB each users count memory.

    What of the laws is otherwise in some modes, as their protocols have it:
    each_card: each card decides for itself whether it takes a share, and takes one of a container. adds_up: amounts of
    a pod's containers add up on one card. ties: which of cards that are alike is taken, the "first" or the "last";
    "any" if what else is free decides. one_size: shares of a card have one size, those of init containers too, which
    may so have no place beside those of later containers.
    """

    name: str
    port: Any
    node: Callable[[Random], Node]
    pod: Callable[[Random], Pod]
    unreadable: Callable[[str], str] | None = _figures_unread
    wishes: tuple[dict[str, str], ...] = ()
    tables: Tables = TABLES
    served: Callable[[Random, Mapping[str, str]], Mapping[str, str]] | None = None
    mib_per_unit: int = 1
    each_card: bool = True
    adds_up: bool = True
    ties: str = "first"
    one_size: bool = False

    @property
    def spec(self) -> AnySpec:
        """All else of its dialect."""
        known = (one for one in standard_catalog().specs if one.name == self.port.name)
        return next(known, DialectSpec(port=self.port, cards=""))

    def _repr_pretty_(self, printer: Any, _: bool) -> None:
        """How hypothesis shows it."""
        printer.text(self.name)


def _with_room(node: Node) -> Node:
    return replace(node, allocatable={**node.allocatable, **ROOM}, capacity={**node.capacity, **ROOM})


def _pod(*containers: Container, **fields: Any) -> Pod:
    filled = {"uid": PodUid("p"), "namespace": "default", "name": "p", "scheduler_name": "cardshare", **fields}
    return Pod(containers=containers, **filled)


def _several(chance: Random) -> range:
    return range(chance.choice((1, 1, 1, 2, 3)))


# ---------------------------------------------------------------------- Volcano's vGPU plugin

_GROUP: Final = {"scheduling.k8s.io/group-name": "g", "volcano.sh/vgpu-podgroup-policy": "spread"}
_VGPU_WISHES: Final = (
    {"nvidia.com/use-gputype": "V100"},
    {"nvidia.com/nouse-gputype": "T4"},
    {"cardshare.io/avoid-cards": "0"},
    {"cardshare.io/gpu-index": "0,1,2"},
    {"volcano.sh/vgpu-nouse-gpuuuid": "GPU-1"},
    {"volcano.sh/vgpu-mode": "hami-core"},
    _GROUP,
)
_TEAM_ALONE: Final = (frozenset({("team", "a")}),)


def _vgpu_table(factor: int = 1) -> Tables:
    table = VgpuTable(named=VgpuTable().named._replace(mib_per_unit=factor), geometries=(A100_LAYOUTS,))
    return Tables(sections=(table, ExclusiveRules(rules=_TEAM_ALONE)))


def _vgpu_core_node(chance: Random) -> Node:
    model, memory = chance.choice(((V100, 32), (V100, 32), (V100, 24), ("NVIDIA-Tesla T4", 16)))
    mixed = chance.random() < 0.3
    register = ""
    for at in range(chance.randint(1, 5)):
        if mixed:
            model, memory = chance.choice(((V100, 32), ("NVIDIA-Tesla T4", 16)))
        mode, slots = chance.choice(("hami-core", "hami-core", "mps")), chance.choice((1, 3, 10))
        well = chance.random() < 0.85
        register += record(f"GPU-{at}", memory=memory, slots=slots, model=model, healthy=well, mode=mode)
    return _with_room(vgpu_node(register))


def _vgpu_cut_node(chance: Random) -> Node:
    # A driver may report less of a card than its slices have together.
    memory = chance.choice((40960, 40960, 40536, 20960))
    register = "".join(
        record(f"GPU-{at}", memory=memory, slots=chance.choice((3, 10)), model=A100, healthy=well, mode="mig")
        for at, well in enumerate(chance.random() < 0.85 for _ in range(chance.randint(1, 3)))
    )
    return _with_room(vgpu_node(register))


def _vgpu_pod(chance: Random, scale: int) -> Pod:
    asking = []
    for at in _several(chance):
        figures = {"number": chance.choice((1, 1, 1, 2, 3)), "cores": chance.choice((0, 0, 25, 50, 60, 100))}
        if chance.random() < 0.3:
            figures["percent"] = chance.choice((1, 50, 100))
        else:
            figures["memory"] = chance.randint(1, 24) * scale
        asking.append(container(f"c{at}", **figures))
    return _pod(*asking, labels={"team": chance.choice("aab")})


# ---------------------------------------------------------------------- HAMi's plugin for NVIDIA cards

_HAMI_WISHES: Final = (
    *({"hami.io/gpu-scheduler-policy": one} for one in ("binpack", "spread", "mutex", "binpack,numa", "numa")),
    {"hami.io/gpu-scheduler-policy": "topology-aware"},
    {"hami.io/node-scheduler-policy": "binpack"},
    {"hami.io/node-scheduler-policy": "spread"},
    {"nvidia.com/numa-bind": "true"},
    {"nvidia.com/vgpu-mode": "hami-core"},
    {"nvidia.com/use-gputype": "A100"},
    {"nvidia.com/nouse-gputype": "L40S"},
    {"cardshare.io/avoid-cards": "0"},
)


def _hami_node(chance: Random, *, cut: bool) -> Node:
    cards: list[dict[str, Any]] = []
    mixed = chance.random() < 0.5
    for at in range(chance.randint(1, 4)):
        card: dict[str, Any] = {"type": chance.choice(("NVIDIA A100", "NVIDIA A100", "NVIDIA L40S"))}
        if cut:
            card |= {
                "count": 7,
                "devmem": 40960,
                "devcore": 100,
                "mode": "mig",
                "migProfiles": hami_instances.profiles(),
            }
        else:
            card |= {"count": chance.choice((2, 10)), "devmem": chance.choice((40960, 40960, 24576))}
            card |= {"devcore": chance.choice((100, 100, 150)), "mode": chance.choice(("hami-core", "mps"))}
        kind = card if mixed or not cards else cards[0]
        cards.append({**kind, "id": f"GPU-{at}", "index": at, "numa": at // 2, "health": chance.random() < 0.85})
    node = Node(
        name=NodeName("node-a"),
        annotations={"hami.io/node-nvidia-register": json.dumps(cards)},
        labels={"gpu": "on"},
        allocatable={"nvidia.com/gpu": str(10 * len(cards))},
    )
    return _with_room(node)


def _hami_pod(chance: Random, factor: int = 1) -> Pod:
    asking = []
    for at in _several(chance):
        limits = {"nvidia.com/gpu": chance.choice((1, 1, 1, 2, 3))}
        kind = chance.random()
        if kind < 0.6:
            limits["nvidia.com/gpumem"] = chance.choice((500, 4000, 9000, 20000, 30000)) // factor
        elif kind < 0.8:
            limits["nvidia.com/gpumem-percentage"] = chance.choice((10, 30, 100))
        if chance.random() < 0.5:
            limits["nvidia.com/gpucores"] = chance.choice((0, 10, 50, 100))
        asking.append(Container(f"c{at}", limits={key: str(one) for key, one in limits.items()}))
    return _pod(*asking, scheduler_name="hami-scheduler")


# ---------------------------------------------------------------------- HAMi's plugin for Ascend chips

_ODD_CHIPS: Final[tuple[dict[str, Any], ...]] = (
    *({},) * 6,
    {"health": None},
    {"count": 2},
    {"custominfo": {}},
)
# Of a softly sliced chip more than all cores is promised, if its plugin's deviceCoreScaling says so.
_SOFT_CHIPS: Final = (*_ODD_CHIPS, {"devcore": 150}, {"devcore": 250})
# Less of it than the tables have: all of it is cut as one of their templates.
_SMALLER_CHIP: Final = {"devmem": 8192}


def _chips(chance: Random, words: tuple[str, ...], most: int, *, soft: bool) -> Node:
    uuids = [f"U{at}" for at in range(chance.randint(1, most))]
    odd = _SOFT_CHIPS if soft else (*_ODD_CHIPS, _SMALLER_CHIP)
    each: dict[str, Any] = {uuid: chance.choice(odd) for uuid in uuids}
    return _with_room(ascend.node(chance.choice(words), uuids, soft=soft, **each))


def _modules(chance: Random) -> Node:
    uuids = [f"U{at}" for at in range(2 * chance.randint(1, 4))]
    each: dict[str, Any] = {uuid: {"health": None} if chance.random() < 0.1 else {} for uuid in uuids}
    return _with_room(ascend.node("Ascend910C", uuids, **each))


def _chip_pod(chance: Random, words: tuple[str, ...], *, soft: bool, factor: int = 1) -> Pod:
    asking: list[tuple[int, int | None, int | None]] = []
    for _ in _several(chance):
        memory = chance.choice((None, 1024, 3072, 6144, 8192, 16384, 20480))
        number = 1 if memory and not soft else chance.choice((1, 1, 1, 2, 3))
        cores = chance.choice((None, 0, 30, 60, 100)) if soft else None
        asking.append((number, memory and memory // factor, cores))
    return ascend.pod(chance.choice(words), *asking, soft=soft, scheduler_name="cardshare")


def _module_pod(chance: Random) -> Pod:
    asking = [(chance.choice((2, 2, 4)), None, None) for _ in _several(chance)]
    return ascend.pod("Ascend910C", *asking, scheduler_name="cardshare")


_KIBI_CHIPS: Final = tuple(replace(chip, named=chip.named._replace(mib_per_unit=1024)) for chip in SHIPPED_CHIPS)
_KIBI: Final = Tables(sections=(AscendTable(chips=_KIBI_CHIPS),))


def _lacking(chip: AscendChip, ai_core: int, ai_cpu: int) -> AscendChip:
    """*chip* without its AI cores, or its AI CPUs, where the factor is 0; of its templates those of the first alone."""
    templates = tuple(one._replace(counted=(one.counted[0] * ai_core, one.counted[1])) for one in chip.templates)
    return replace(chip, ai_core=chip.ai_core * ai_core, ai_cpu=chip.ai_cpu * ai_cpu, templates=templates)


_FEW_FIGURES: Final = Tables(
    sections=(AscendTable(chips=tuple(_lacking(chip, at % 2, at // 2 % 2) for at, chip in enumerate(SHIPPED_CHIPS))),)
)
_WORDS: Final = ("Ascend310P", "Ascend910B2", "Ascend910B4")
_CHIP_WISHES: Final = ({"hami.io/no-use-Ascend910B4-uuid": "U1"}, {"hami.io/use-Ascend910B4-uuid": "U0,U2"})

# ---------------------------------------------------------------------- the share plugin, MindCluster, NVIDIA's plugin

_TYPES: Final = (
    {"nvidia.com/use-gputype": "A100"},
    {"nvidia.com/use-gputype": "T4,A10"},
    {"nvidia.com/nouse-gputype": "A10"},
)
_SHARE_WISHES: Final = ({"cardshare.io/avoid-cards": "0"}, {"cardshare.io/avoid-cards": "1,2"})


def _share_node(chance: Random, *, memory: bool) -> Node:
    cards = chance.randint(1, 5)
    have = {"volcano.sh/gpu-number": cards}
    if memory:
        have["volcano.sh/gpu-memory"] = cards * chance.choice((16, 24))
    return _with_room(share_node(have, unhealthy=chance.choice(("", "0", "1", "1,3"))))


def _share_pod(chance: Random, resource: str, most: int) -> Pod:
    asking = [Container(f"c{at}", limits={resource: str(chance.randint(1, most))}) for at in _several(chance)]
    return _pod(*asking)


def _npu_node(chance: Random, per_chip: int) -> Node:
    chips = chance.randint(1, 4)
    ill = tuple(at for at in range(chips) if chance.random() < 0.15)
    return _with_room(mindcluster.npu_node(chips, per_chip=per_chip, unhealthy=ill))


def _npu_pod(chance: Random, whole: tuple[int, ...]) -> Pod:
    cores = chance.choice((1, 2, 2, 4, 4, *whole))
    dvpp = chance.choice((None, None, "yes", "no")) if cores == 4 else None
    return mindcluster.npu_pod(cores, dvpp, chance.choice(("low", "high", None)), scheduler_name="cardshare")


def _npu_served(chance: Random, told: Mapping[str, str]) -> dict[str, str]:
    chips, _, template = told["huawei.com/npu-core"].partition("-")
    names = [f"Ascend310P-{chip}" for chip in chips.split(",")]
    if template:
        names = [f"Ascend310P-{TEMPLATES[template].device_type}-100-{chips}_{chance.randrange(4)}"]
    return {"huawei.com/AscendReal": ",".join(names)}


def _gpu_node(chance: Random) -> Node:
    product = chance.choice(("NVIDIA-A100-SXM4-80GB", "NVIDIA-A10", "Tesla-T4", ""))
    labels = {"nvidia.com/gpu.product": product} if product else {}
    allocatable = {"nvidia.com/gpu": str(chance.randint(1, 8))}
    return _with_room(Node(name=NodeName("node-a"), labels=labels, allocatable=allocatable))


def _gpu_pod(chance: Random) -> Pod:
    asking = [Container(f"c{at}", limits={"nvidia.com/gpu": str(chance.randint(1, 4))}) for at in _several(chance)]
    return _pod(*asking)


def _toy_node(chance: Random) -> Node:
    cards = ",".join(f"{chance.choice('ab')}:{chance.choice((8, 8, 16))}" for _ in range(chance.randint(1, 4)))
    return _with_room(Node(name=NodeName("node-a"), annotations={"toy.example/cards": cards}))


def _toy_pod(chance: Random) -> Pod:
    notes = {"toy.example/cores": chance.choice(("0", "30", "60")), "toy.example/cards": chance.choice("1123")}
    limits = {"toy.example/memory": str(chance.randint(1, 16))}
    return _pod(Container("c", limits=limits), annotations=notes)


_ACME_WISHES: Final = ({"acme.example/use-uuid": "A-0,A-1"}, {"acme.example/nouse-uuid": "A-1"})


def _acme_node(chance: Random) -> Node:
    cards = [f"A-{at},{chance.choice(('Big', 'Small'))},{chance.choice((8, 8, 16))},3:" for at in _several(chance)]
    return _with_room(Node(name=NodeName("node-a"), annotations={"acme.example/cards": "".join(cards)}))


def _acme_pod(chance: Random) -> Pod:
    def limits() -> dict[str, str]:
        amounts = {"gpu": chance.choice("112"), "gpumem": chance.choice("059"), "gpucores": chance.choice(("0", "60"))}
        return {f"acme.example/{key}": text for key, text in amounts.items()}

    return _pod(*(Container(f"c{at}", limits=limits()) for at in _several(chance)))


_VGPU: Final = Mode(
    name="vgpu",
    port=Vgpu(),
    node=_vgpu_core_node,
    pod=lambda chance: _vgpu_pod(chance, 1),
    wishes=_VGPU_WISHES,
    tables=_vgpu_table(),
)
_HAMI: Final = Mode(
    name="hami",
    port=Hami(),
    node=lambda chance: _hami_node(chance, cut=False),
    pod=_hami_pod,
    wishes=_HAMI_WISHES,
    tables=Tables(sections=(HamiTable(installed=True),)),
    ties="last",
)
_ASCEND: Final = Mode(
    name="ascend-templates",
    port=ascend.DIALECT,
    node=lambda chance: _chips(chance, _WORDS, 8, soft=False),
    pod=lambda chance: _chip_pod(chance, _WORDS, soft=False),
    wishes=_CHIP_WISHES,
    each_card=False,
    adds_up=False,
)
_NPU: Final = Mode(
    name="mindcluster-8",
    port=MindCluster(),
    node=lambda chance: _npu_node(chance, 8),
    pod=lambda chance: _npu_pod(chance, (8, 16)),
    unreadable=_no_text,
    served=_npu_served,
    each_card=False,
)


def _vendor(port: Any) -> Mode:
    """One of HAMi's other vendors."""
    vendor = port.vendor

    def pod(chance: Random) -> Pod:
        most = 1 if vendor.limits.one_container else len(_several(chance))
        asking = [vendors.any_container(vendor, chance, f"c{at}") for at in range(most)]
        alone = all(one.limits.get(vendor.limits.count) == "1" for one in asking)
        return _pod(*asking, annotations=vendors.any_notes(vendor, chance, alone=alone))

    return Mode(
        name=vendor.name,
        port=port,
        node=lambda chance: _with_room(vendors.any_node(vendor, chance)),
        pod=pod,
        tables=vendors.TABLES,
        wishes=({"hami.io/gpu-scheduler-policy": "mutex"}, {"cardshare.io/avoid-cards": "0"}),
        mib_per_unit=vendor.limits.mib_per_unit,
        each_card=not vendor.cards.rules.chooses,
        adds_up=not vendor.cards.whole and vendor.limits.asks is None,
        ties="any" if vendor.cards.rules.chooses else "last",
        one_size=vendor.cards.rules.restricts,
    )


MODES: Final = (
    _VGPU,
    replace(_VGPU, name="vgpu-mig", node=_vgpu_cut_node, pod=lambda chance: _vgpu_pod(chance, 1700)),
    replace(_VGPU, name="vgpu-in-units-of-10-mib", tables=_vgpu_table(10), mib_per_unit=10),
    _HAMI,
    replace(_HAMI, name="hami-mig", node=lambda chance: _hami_node(chance, cut=True), each_card=False, adds_up=False),
    replace(
        _HAMI,
        name="hami-in-units-of-100-mib",
        pod=lambda chance: _hami_pod(chance, 100),
        tables=Tables(sections=(HamiTable(named=HamiTable().named._replace(mib_per_unit=100), installed=True),)),
        mib_per_unit=100,
    ),
    _ASCEND,
    replace(_ASCEND, name="ascend-of-few-figures", tables=_FEW_FIGURES),
    replace(
        _ASCEND,
        name="ascend-soft",
        node=lambda chance: _chips(chance, _WORDS[2:], 6, soft=True),
        pod=lambda chance: _chip_pod(chance, _WORDS[2:], soft=chance.random() < 0.8),
        each_card=True,
    ),
    replace(_ASCEND, name="ascend-modules", node=_modules, pod=_module_pod, wishes=()),
    replace(
        _ASCEND,
        name="ascend-in-units-of-1-gib",
        node=lambda chance: _chips(chance, _WORDS[2:], 4, soft=False),
        pod=lambda chance: _chip_pod(chance, _WORDS[2:], soft=False, factor=1024),
        tables=_KIBI,
        mib_per_unit=1024,
    ),
    Mode(
        name="gpu-memory",
        port=GpuMemory(),
        node=lambda chance: _share_node(chance, memory=True),
        pod=lambda chance: _share_pod(chance, "volcano.sh/gpu-memory", 12),
        unreadable=_no_text,
        wishes=(*_SHARE_WISHES, {"cardshare.io/gpu-index": "1,2"}),
    ),
    Mode(
        name="gpu-number",
        port=GpuNumber(),
        node=lambda chance: _share_node(chance, memory=False),
        pod=lambda chance: _share_pod(chance, "volcano.sh/gpu-number", 2),
        unreadable=_no_text,
        wishes=_SHARE_WISHES,
    ),
    _NPU,
    replace(
        _NPU,
        name="mindcluster-10",
        node=lambda chance: _npu_node(chance, 10),
        pod=lambda chance: _npu_pod(chance, (10, 8)),
    ),
    Mode(name="whole-gpu", port=WholeGpu(), node=_gpu_node, pod=_gpu_pod, unreadable=None, wishes=_TYPES),
    *[_vendor(port) for port in vendors.PORTS],
    Mode(name="example", port=acme.DIALECT.port, node=_acme_node, pod=_acme_pod, wishes=_ACME_WISHES, ties="last"),
    Mode(
        name="toy", port=Toy(), node=_toy_node, pod=_toy_pod, unreadable=_no_text, wishes=({"toy.example/type": "a"},)
    ),
)
