"""Which of several texts wins, and what of them has no effect."""

from typing import Any

import pytest

from core.catalog import standard_catalog
from core.configuration import (
    NAMESPACES_OF_OTHERS,
    OWN_MAP,
    SCHEDULER_MAP,
    Configuration,
    Source,
    Text,
    believes,
    decode,
    device_maps,
    hami_map,
    merge,
    source_of,
)
from core.dialects.ascend_hami.table import SHIPPED_CHIPS, AscendTable
from core.dialects.hami.table import HamiTable
from core.dialects.hami_vendors.table import VendorNames
from core.dialects.vgpu.table import VgpuTable
from core.ledger import Ledger
from core.model import Container, Pod, PodUid
from core.placing.decide import shape_of
from core.settings import DialectName, Policy, Settings, Tables
from core.waiting import Cause, Wait
from tests.support.devices.vendors import PORTS

CATALOG = standard_catalog()
VENDORS = {port.name for port in PORTS}

SPREAD = (
    "actions: enqueue, allocate\ntiers:\n- plugins:\n  - name: gang\n  - name: nodeorder\n"
    "    arguments: {leastrequested.weight: 0}\n  - name: deviceshare\n    arguments:\n"
    "      deviceshare.VGPUEnable: 'True'\n      deviceshare.SchedulePolicy: spread\n      deviceshare.Magic: 1\n"
)
OLD = "tiers:\n- plugins:\n  - name: predicates\n    arguments: {predicate.VGPUEnable: true}\n"
NVIDIA = (
    "nvidia:\n  resourceCountName: volcano.sh/vgpu-number\n  resourceMemoryName: volcano.sh/vgpu-memory\n"
    "  resourceCoreName: volcano.sh/vgpu-cores\n  gpuMemoryFactor: 10\n"
)
HAMIS = (
    "nvidia:\n  resourceCountName: nvidia.com/vgpu\n  resourceMemoryName: nvidia.com/gpumem\n  memoryFactor: 4\n"
    "  knownMigGeometries:\n  - models: [A30]\n    allowedGeometries:\n    - - {name: 1g.6gb, memory: 6144, count: 4}\n"
)
CHIP = (
    "chipName: 310P3, commonWord: Ascend310P, resourceName: huawei.com/Ascend310P,"
    " resourceMemoryName: huawei.com/Ascend310P-memory, memoryAllocatable: 21527, memoryCapacity: 24576, aiCore: 8,"
    " aiCPU: 7, templates: [{name: vir01, memory: 3072, aiCore: 1, aiCPU: 1}]"
)
WRAPPED = f"vnpus:\n  hamiVnpuCore: false\n  configs:\n  - {{{CHIP}}}\n"
# As HAMi's chart has them, and for Enflame also up to v2.9.
SHIPPED = """
cambricon: {resourceCountName: cambricon.com/vmlu, resourceMemoryName: cambricon.com/mlu.smlu.vmemory,
  resourceCoreName: cambricon.com/mlu.smlu.vcore}
hygon: {resourceCountName: hygon.com/dcunum, resourceMemoryName: hygon.com/dcumem, resourceCoreName: hygon.com/dcucores,
  memoryFactor: 1}
metax: {resourceCountName: metax-tech.com/gpu, resourceVCountName: metax-tech.com/sgpu,
  resourceVMemoryName: metax-tech.com/vmemory, resourceVCoreName: metax-tech.com/vcore, sgpuTopologyAware: false}
enflame: {resourceNameGCU: enflame.com/gcu, resourceNameDRSGCU: enflame.com/drs-gcu,
  resourceNameGCUMemory: enflame.com/gcu-memory, resourceNameGCUCore: enflame.com/gcu-core,
  resourceNameVGCU: enflame.com/vgcu, resourceNameVGCUPercentage: enflame.com/vgcu-percentage}
mthreads: {resourceCountName: mthreads.com/vgpu, resourceMemoryName: mthreads.com/sgpu-memory,
  resourceCoreName: mthreads.com/sgpu-core}
iluvatars:
- {chipName: MR-V100, commonWord: MR-V100, resourceCountName: iluvatar.ai/MR-V100-vgpu,
  resourceMemoryName: iluvatar.ai/MR-V100.vMem, resourceCoreName: iluvatar.ai/MR-V100.vCore}
kunlun: {resourceCountName: kunlunxin.com/xpu, resourceVCountName: kunlunxin.com/vxpu,
  resourceVMemoryName: kunlunxin.com/vxpu-memory}
awsneuron: {resourceCountName: aws.amazon.com/neuron, resourceCoreName: aws.amazon.com/neuroncore}
amd: {resourceCountName: amd.com/gpu, resourceCoreName: amd.com/gpucores, resourceMemoryName: amd.com/gpumem}
vastai: {resourceCountName: vastaitech.com/va}
biren: {resourceCountName: birentech.com/gpu}
"""
LISTED = f"vnpus:\n- {{{CHIP}}}\n"
DEVICE_MAP = "kube-system/volcano-vgpu-device-config"
CHIPS_MAP = hami_map(Settings())
MAPS = {
    Source.OWN: OWN_MAP,
    Source.SCHEDULER_FILE: OWN_MAP,
    Source.SCHEDULER_MAP: SCHEDULER_MAP,
    Source.CHIPS_MAP: CHIPS_MAP,
    Source.DEVICE_MAP: DEVICE_MAP,
}
PATHS = {Source.OWN: "/s/cardshare.yaml", Source.SCHEDULER_FILE: "/s/volcano-scheduler.conf", Source.DEVICE_FILE: "/d"}


def text(source: Source, content: str) -> Text:
    return Text(source=source, config_map=MAPS.get(source, ""), path=PATHS.get(source, ""), content=content)


def merged(*names: str, **contents: str) -> Configuration:
    parts = {}
    for name, content in contents.items():
        source = Source[name.upper()]
        parts[source] = decode(text(source, content), standard_catalog())
        assert parts[source].problems == ()
    return merge(parts, standard_catalog(), names, before={})


def test_without_any_text_all_is_as_by_default():
    assert merged() == Configuration(settings=Settings(), tables=Tables())


@pytest.mark.parametrize(
    ("contents", "policy"),
    [
        ({"scheduler_map": SPREAD}, Policy.SPREAD),
        ({"scheduler_map": SPREAD, "scheduler_file": SPREAD.replace("spread", "binpack")}, Policy.BINPACK),
        ({"scheduler_map": SPREAD, "scheduler_file": " \n"}, Policy.SPREAD),
        ({"scheduler_map": SPREAD, "own": "policy: index"}, Policy.INDEX),
        ({"scheduler_file": SPREAD, "own": "schedule_weight: 3"}, Policy.SPREAD),
    ],
    ids=["volcano's", "the file beside ours", "an empty file is none", "ours", "ours says nothing of it"],
)
def test_the_text_that_is_nearer_to_us_wins(contents: dict[str, str], policy: Policy):
    assert merged(**contents).settings.policy is policy


def test_names_of_the_command_line_win_over_those_of_all_texts():
    assert merged("flag", own="scheduler_names: [mine]").settings.scheduler_names == ("flag",)


def test_a_volcano_conf_switches_off_what_it_does_not_name():
    found = merged(scheduler_map=SPREAD).settings
    assert set(found.dialects or ()) == {"vgpu", "whole_gpu", "hami"} | VENDORS


@pytest.mark.parametrize(
    ("contents", "dialect", "why"),
    [
        (
            {"scheduler_map": SPREAD},
            DialectName("gpu_memory"),
            f"'deviceshare.GPUSharingEnable' of volcano-scheduler.conf in ConfigMap {SCHEDULER_MAP} is not true",
        ),
        (
            {"scheduler_file": OLD},
            DialectName("gpu_number"),
            f"'predicate.GPUNumberEnable' of volcano-scheduler.conf in ConfigMap {OWN_MAP} is not true",
        ),
        (
            {"scheduler_map": SPREAD, "own": "dialects: [gpu_memory]"},
            DialectName("vgpu"),
            f"'dialects' of cardshare.yaml in ConfigMap {OWN_MAP} does not list it",
        ),
    ],
    ids=["volcano's", "the older plugin's", "ours"],
)
def test_what_switches_a_way_of_sharing_off_is_named_with_its_place(
    contents: dict[str, str], dialect: DialectName, why: str
):
    assert merged(**contents).settings.why_off(dialect) == why


@pytest.mark.parametrize("content", [NVIDIA + WRAPPED, WRAPPED + NVIDIA, NVIDIA + LISTED, LISTED + NVIDIA])
def test_both_sections_in_one_text_are_read_in_either_order_and_shape(content: str):
    tables = merged(device_map=content).tables
    assert (tables.of(VgpuTable).named.mib_per_unit, [chip.named.type for chip in tables.of(AscendTable).chips]) == (
        10,
        ["Ascend310P"],
    )


def test_chips_that_one_config_map_does_not_list_are_those_of_the_other():
    tables = merged(device_map=NVIDIA, chips_map=WRAPPED + NVIDIA.replace("10", "3")).tables
    assert (tables.of(VgpuTable).named.mib_per_unit, [chip.named.type for chip in tables.of(AscendTable).chips]) == (
        10,
        ["Ascend310P"],
    )


def test_without_any_device_configuration_the_shipped_chips_count():
    assert (
        merged().tables.of(AscendTable).chips == merged(device_map=NVIDIA).tables.of(AscendTable).chips == SHIPPED_CHIPS
    )


def test_a_merged_chips_map_alone_serves_both_but_not_with_hamis_own_names():
    assert merged(chips_map=WRAPPED + NVIDIA).tables.of(VgpuTable).named.mib_per_unit == 10
    found = merged(chips_map=WRAPPED + HAMIS).tables
    assert (found.of(VgpuTable), [chip.named.type for chip in found.of(AscendTable).chips]) == (
        VgpuTable(),
        ["Ascend310P"],
    )
    assert (found.of(HamiTable).named.cards, found.of(HamiTable).named.mib_per_unit) == ("nvidia.com/vgpu", 4)


@pytest.mark.parametrize("place", ["device_map", "device_file", "chips_map"])
def test_hamis_section_is_hamis_wherever_it_stands(place: str):
    found = merged(**{place: HAMIS + WRAPPED}).tables
    assert found.of(VgpuTable) == VgpuTable()
    assert (found.of(HamiTable).named.cards, found.of(HamiTable).named.mib_per_unit, found.of(HamiTable).installed) == (
        "nvidia.com/vgpu",
        4,
        True,
    )
    assert [chip.named.type for chip in found.of(AscendTable).chips] == ["Ascend310P"]


def test_where_volcano_is_told_to_read_hamis_map_its_chips_alone_count_for_volcano():
    conf = SPREAD.replace("deviceshare.Magic: 1", f"deviceshare.KnownGeometriesCMName: {CHIPS_MAP.split('/')[1]}")
    found = merged(scheduler_map=conf, device_map=HAMIS + WRAPPED, chips_map=HAMIS + WRAPPED)
    assert device_maps(found.settings) == {Source.CHIPS_MAP: CHIPS_MAP, Source.DEVICE_MAP: ""}
    assert (found.tables.of(VgpuTable), found.tables.of(HamiTable).named.cards) == (VgpuTable(), "nvidia.com/vgpu")


def test_hamis_own_map_wins_over_a_copy_of_it():
    found = merged(device_map=HAMIS.replace("4", "8"), chips_map=HAMIS).tables
    assert found.of(HamiTable).named.mib_per_unit == 4


def test_hamis_map_may_stand_anywhere():
    found = merged(own="hami_config_namespace: gpu-stack\nhami_config_name: shares-scheduler-device\n").settings
    assert hami_map(found) == "gpu-stack/shares-scheduler-device"
    assert source_of("gpu-stack/shares-scheduler-device", found) is Source.CHIPS_MAP
    assert source_of(CHIPS_MAP, found) is None


def test_a_file_of_devices_wins_over_config_maps_as_a_whole():
    found = merged(device_file=NVIDIA, device_map=NVIDIA.replace("10", "3"), chips_map=WRAPPED).tables
    assert (found.of(VgpuTable).named.mib_per_unit, found.of(AscendTable).chips) == (10, SHIPPED_CHIPS)


def test_notes_have_their_place():
    found = merged(
        scheduler_map=SPREAD,
        device_map=NVIDIA + "  gpuMemoryFacto: 1\n",
        chips_map=WRAPPED.replace("hamiVnpuCore", "hamiVnpu"),
    )
    assert [note.partition(", has")[0] for note in found.notes] == [
        f"{SCHEDULER_MAP}: plugin deviceshare: deviceshare.Magic: unknown",
        f"{DEVICE_MAP}: nvidia.gpuMemoryFacto: unknown",
        f"{CHIPS_MAP}: vnpus.hamiVnpu: unknown",
    ]


def test_notes_of_a_file_have_its_path():
    (note,) = merged(scheduler_file=SPREAD).notes
    assert note.startswith("/s/volcano-scheduler.conf: plugin deviceshare: ")


def test_a_section_that_another_text_stands_in_for_is_not_noted():
    assert len(merged(chips_map=WRAPPED + HAMIS + "  odd: 1\n").notes) == 1
    assert len(merged(chips_map=WRAPPED + NVIDIA + "  odd: 1\n").notes) == 1
    assert merged(device_map=HAMIS + "  odd: 1\n", chips_map=HAMIS).notes == ()
    assert merged(chips_map=WRAPPED + NVIDIA + "  odd: 1\n", device_map=NVIDIA).notes == ()


@pytest.mark.parametrize(
    ("annotations", "problem"),
    [
        ("{}", "node_kinds.a: it has no cards; copy labels, annotations and capacity of a node that has"),
        ("{volcano.sh/node-vgpu-register: x}", "node_kinds.a: annotation volcano.sh/node-vgpu-register: found 'x'; "),
    ],
)
def test_a_kind_of_node_that_nobody_can_read_is_noted(annotations: str, problem: str):
    have = "{volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory: 1, volcano.sh/vgpu-cores: 1}"
    (note,) = merged(own=f"node_kinds: {{a: {{annotations: {annotations}, capacity: {have}}}}}").notes
    assert note.startswith(f"/s/cardshare.yaml: {problem}")


@pytest.mark.parametrize(
    ("source", "content", "problem"),
    [
        (Source.OWN, "polizy: 1", "/s/cardshare.yaml: polizy: there is no such setting"),
        (Source.SCHEDULER_FILE, "tiers: 7", "/s/volcano-scheduler.conf: tiers: found '7'"),
        (Source.SCHEDULER_MAP, "tiers: 7", "tiers: found '7'"),
        (Source.SCHEDULER_FILE, "- 7", "/s/volcano-scheduler.conf: found 'a list'; write a mapping"),
        (Source.SCHEDULER_MAP, "- 7", "volcano-scheduler.conf: found 'a list'; write a mapping"),
        (Source.DEVICE_MAP, "nvidia: [", "device-config.yaml: this is not YAML"),
    ],
)
def test_problems_of_a_file_name_it(source: Source, content: str, problem: str):
    found = decode(text(source, content), standard_catalog())
    assert found.part is None
    assert found.problems[0].startswith(problem)


def test_texts_that_could_not_be_read_are_problems():
    unread = Text(source=Source.OWN, path="/s/cardshare.yaml", problems=("it is not UTF-8 text",))
    assert decode(unread, standard_catalog()).problems == ("/s/cardshare.yaml: it is not UTF-8 text",)


def test_namespaces_of_others_are_believed_where_that_is_asked_for():
    for name in ("kube-system", "volcano-system", "mindx-dl"):
        assert not believes(name, frozenset())
        assert believes(name, frozenset({name}))
    assert believes("gpu-operator", frozenset())
    places: Any = {name.partition("/")[0] for name in (SCHEDULER_MAP, CHIPS_MAP, DEVICE_MAP)}
    assert places <= NAMESPACES_OF_OTHERS


@pytest.mark.parametrize(
    ("content", "note", "left"),
    [
        pytest.param(
            "hygon: {resourceCountName: cpu}",
            "hygon.resourceCountName: found 'cpu'; write a resource of the "
            "device plugin, with its domain; until then this section is ignored for hygon",
            (),
            id="of Kubernetes",
        ),
        pytest.param(
            "hygon: {resourceMemoryName: /cpu}",
            "hygon.resourceMemoryName: found '/cpu'; write a resource of",
            (),
            id="no domain",
        ),
        pytest.param(
            "hygon: {resourceCountName: node.kubernetes.io/x}",
            "hygon.resourceCountName: found 'node.kuber",
            (),
            id="its domain",
        ),
        pytest.param(
            "hygon: {resourceCountName: 5}", "hygon.resourceCountName: found '5'; write a text", (), id="no text"
        ),
        pytest.param("hygon: [1]\nvastai: {}", "hygon: found 'a list'; write a mapping", ("vastai",), id="a list"),
        pytest.param(
            "hygon: {memoryFactor: x}\nvastai: {}",
            "hygon.memoryFactor: found 'x'; write a whole",
            ("vastai",),
            id="factor",
        ),
        pytest.param("iluvatars: {}", "iluvatars: found '{}'; write a list", (), id="no list"),
        pytest.param(
            "iluvatars: [{commonWord: BI-V100}, {commonWord: MR-V50, resourceCountName: 5}]",
            "iluvatars[1].resourceCountName: found '5'; write a text",
            ("iluvatar_bi_v100",),
            id="in a list",
        ),
        pytest.param(
            "hygon: {5: 6}\nvastai: {}",
            "hygon: found '5'; write this name in quotes, so that it is a text",
            ("vastai",),
            id="a number as a name",
        ),
        pytest.param(
            "hygon: {resourceCountName: a.b/c, resourceMemoryName: a.b/c}",
            "hygon.resourceMemoryName: found 'a.b/c'; write a name that differs from resourceCountName",
            (),
            id="twice",
        ),
        pytest.param(
            "hygon: {resourceMemoryName: hygon.com/dcunum}",
            "hygon.resourceMemoryName: found 'hygon.com/dcunum'; write a name that differs from resourceCountName",
            (),
            id="its own default",
        ),
        pytest.param(
            "hygon: {resourceCountName: hygon.com/dcumem}",
            "hygon.resourceCountName: found 'hygon.com/dcumem'; write a name that differs from resourceMemoryName",
            (),
            id="a default behind it",
        ),
        pytest.param(
            "kunlun: {resourceVCountName: 5}",
            "kunlun.resourceVCountName: found '5'; write a text that is not empty; until then this",
            ("kunlun",),
            id="one of two types",
        ),
        pytest.param(
            "hygon: {resourceCountName: nvidia.com/gpu}",
            "hygon: found 'nvidia.com/gpu'; write another name, because pods request cards of whole_gpu and hami",
            (),
            id="NVIDIA's",
        ),
        pytest.param(
            "hygon: {resourceMemoryName: vastaitech.com/va}\nvastai: {}",
            "hygon: found 'vastaitech.com/va'; write",
            ("vastai",),
            id="usual of another",
        ),
        pytest.param(
            "nvidia: {resourceCountName: amd.com/gpu}\namd: {}",
            "amd: found 'amd.com/gpu'; write another name, because pods request cards of hami by",
            (),
            id="NVIDIA has its name",
        ),
        pytest.param(
            "kunlun: {resourceCountName: a/b, resourceVCountName: a/b}",
            "kunlun: found 'a/b'; write another name, because pods request cards of kunlun_xpu by this one; until",
            (),
            id="two types",
        ),
    ],
)
def test_a_wrong_section_of_a_vendor_is_ignored_alone(content: str, note: str, left: tuple[str, ...]):
    found = merged(chips_map=f"{content}\n{LISTED}")
    assert [one for one in found.notes if one.startswith(f"{CHIPS_MAP}: {note}")], found.notes
    assert {one.dialect for one in found.tables.sections if isinstance(one, VendorNames)} == set(left)
    assert found.tables.of(AscendTable).chips


@pytest.mark.parametrize(
    ("content", "lost"),
    [
        ("hygon: {}\namd: {}", ()),
        ("hygon: {resourceCountName: cpu}\namd: {}", ("hygon",)),
        ("hygon: {resourceCountName: a/b}\nvastai: {resourceCountName: a/b}", ("hygon", "vastai")),
    ],
)
def test_a_pod_waits_while_the_section_of_its_vendor_cannot_be_used(content, lost):
    tables = merged(chips_map=content).tables
    assert tables.lost == set(lost)
    ledger = Ledger(CATALOG, tables, Settings())
    for port in PORTS:
        count = {port.vendor.limits.count: "1"}
        pod = Pod(PodUid("p"), "n", "p", containers=(Container("c", limits=count, requests=count),))
        found = shape_of(pod, ledger)
        assert isinstance(found, Wait) is (port.name in lost)
        if isinstance(found, Wait):
            assert found.cause is Cause.NOT_SOLD
            assert f"the section of {port.name} in device-config.yaml cannot be used; correct" in found.text
    # The section that was read before serves it.
    parts = {Source.CHIPS_MAP: decode(text(Source.CHIPS_MAP, "hygon: {resourceCountName: cpu}"), CATALOG)}
    before = merged(chips_map="hygon: {}").sections
    assert not merge(parts, CATALOG, before=before).tables.lost


@pytest.mark.parametrize(
    ("content", "resource"),
    [
        # HAMi up to v2.6, HAMi v2.7 to v2.9, and a vendor that HAMi may add.
        ("iluvatar: {resourceCountName: iluvatar.ai/vgpu, resourceMemoryName: iluvatar.ai/m}", "iluvatar.ai/vgpu"),
        ("enflame: {resourceNameGCU: enflame.com/gcu, resourceNameVGCU: enflame.com/vgcu}", "enflame.com/vgcu"),
        ("later: [{resourceCountName: later.com/card}]", "later.com/card"),
    ],
)
def test_a_pod_waits_if_hamis_scheduler_alone_assigns_what_it_asks_for(content, resource):
    def found(content):
        ledger = Ledger(CATALOG, merged(chips_map=content).tables, Settings())
        limits = {resource: "1"}
        pod = Pod(PodUid("p"), "n", "p", containers=(Container("c", limits=limits, requests=limits),))
        return shape_of(pod, ledger)

    waits = found(content)
    assert isinstance(waits, Wait)
    assert waits.cause is Cause.NOT_SOLD
    assert f"asks for {resource}, whose cards HAMi's scheduler assigns" in waits.text
    assert not isinstance(found("amd: {resourceCountName: amd.com/gpu}"), Wait)


def test_what_every_dialect_knows_is_not_hamis_alone():
    content = "nvidia: {resourceCountName: nvidia.com/gpu, resourcePriorityName: nvidia.com/priority}\n"
    assert not merged(chips_map=content + "hygon: {resourceCountName: hygon.com/other}").tables.foreign


def test_what_does_not_know_what_was_read_before_does_not_say_that_a_section_is_ignored():
    part = decode(
        text(Source.CHIPS_MAP, "amd: {resourceCountName: cpu}\nhygon: {resourceCountName: nvidia.com/gpu}"), CATALOG
    )
    notes = merge({Source.CHIPS_MAP: part}, CATALOG).notes
    assert [one.rpartition("until then ")[2] for one in notes] == [
        f"the section that was read before stays in force for {name}, if there was one" for name in ("amd", "hygon")
    ]


def test_sections_of_two_texts_that_name_one_resource_are_both_ignored():
    found = merged(chips_map="hygon: {resourceCountName: a/b}\namd: {}", device_map="vastai: {resourceCountName: a/b}")
    assert found.notes == (
        f"{CHIPS_MAP}: hygon: found 'a/b'; write another name, because pods request cards of vastai by this one; "
        "until then this section is ignored for hygon",
        f"{DEVICE_MAP}: vastai: found 'a/b'; write another name, because pods request cards of hygon by this one; "
        "until then this section is ignored for vastai",
    )
    assert [one.dialect for one in found.tables.sections if isinstance(one, VendorNames)] == ["amd"]


@pytest.mark.parametrize("source", ["chips_map", "device_map"])
@pytest.mark.parametrize(
    "content",
    [
        "nvidia: {resourceCountName: nvidia.com/gpu, gpuMemoryFactor: 1}",
        "nvidia: {resourceCountName: nvidia.com/gpu, memoryFactor: 1}",
        "nvidia: {resourceCountName: nvidia.com/vgpu}\nhygon: {resourceCountName: dcu/n, resourceMemoryName: dcu/m}",
        "\n".join([f"{key}: {{}}" for key in ("amd", "hygon", "kunlun", "metax", "enflame", "awsneuron")] + [LISTED]),
    ],
)
def test_own_names_and_those_of_the_same_cards_are_accepted(content: str, source: str):
    assert [one for one in merged(**{source: content}).notes if "ignored for" in one] == []


@pytest.mark.parametrize(
    ("content", "note"),
    [
        pytest.param(
            "hygon: {resourceCountNmae: a/b}",
            "hygon.resourceCountNmae: unknown, has no effect; did you mean 'resourceCountName'?",
            id="misspelt",
        ),
        pytest.param("biren: {resourceMemoryName: 5}", "biren.resourceMemoryName: unknown", id="it has no memory"),
        pytest.param("metax: {topology: 5}", "metax.topology: unknown, has no effect", id="nothing near"),
        pytest.param(
            "hygon: {gpuMemoryFactor: 5}",
            "hygon.gpuMemoryFactor: unknown, has no effect; did you mean 'memoryFactor'?",
            id="of another vendor",
        ),
        pytest.param(
            "iluvatars: [{commonWord: MR-V10O}, {commonWord: MR-V50, chip: MR-V50}]",
            "iluvatars[0].commonWord: MR-V10O: unknown, has no effect; did you mean 'MR-V100'?",
            id="no such type",
        ),
        pytest.param(
            "iluvatars: [{commonWord: MR-V50, chip: MR-V50}]",
            "iluvatars[0].chip: unknown, has no effect; did you mean 'chipName'?",
            id="in a list",
        ),
        pytest.param("iluvatar: {}", "iluvatar: unknown, has no effect; did you mean 'iluvatars'?", id="no section"),
        pytest.param("dcu: {}", "dcu: unknown, has no effect", id="another section"),
        pytest.param(
            "iluvatars: [MR-V50]",
            "iluvatars[0]: has no effect; write a mapping with commonWord, one of BI-V100, BI-V150, MR-V100, MR-V50",
            id="a word in a list",
        ),
        pytest.param(
            "iluvatars: [{commonWord: MR-V50}, {chipName: MR-V100}]",
            "iluvatars[1]: has no effect; write a mapping with commonWord, one of",
            id="no word in a list",
        ),
        pytest.param(
            "iluvatars: [{commonWord: MR-V50}, {commonWord: MR-V50, resourceCountName: a.b/c}]",
            "iluvatars[1].commonWord: MR-V50: an earlier item has it, so this one has no effect; remove one of them",
            id="twice in a list",
        ),
    ],
)
def test_an_unknown_key_of_a_vendor_is_noted_once_with_the_one_that_it_is_near_to(content: str, note: str):
    found = [one for one in merged(chips_map=content).notes if note in one]
    assert len(found) == 1, merged(chips_map=content).notes


def test_a_key_of_one_vendor_is_not_sent_to_the_section_of_another():
    (found,) = merged(chips_map="amd: {memoryFactor: 5}").notes
    assert found.endswith("amd.memoryFactor: unknown, has no effect")


def test_no_key_that_hami_writes_for_its_vendors_is_unknown():
    assert merged(chips_map=SHIPPED).notes == ()


def test_words_are_read_again_only_for_other_tables():
    catalog = standard_catalog()
    first = catalog.words(Tables())
    assert catalog.words(Tables()).names is first.names
    assert catalog.words(Tables(sections=(VgpuTable(),))).names is not first.names


@pytest.mark.parametrize("section", [VgpuTable(), HamiTable(), AscendTable()], ids=lambda one: type(one).__name__)
def test_sections_that_say_what_holds_anyway_clash_with_none(section):
    assert CATALOG.clashes((section,)) == CATALOG.clashes(()) == {}
