"""Tables of device-config.yaml."""

from pathlib import Path

import pytest
import yaml

from core.dialects.ascend_hami.table import SHIPPED_CHIPS, AscendTable
from core.dialects.hami.table import HamiTable
from core.dialects.vgpu.table import VgpuTable
from core.errors import ConfigError
from core.sharing.slices import numbered
from tests.support.devices.texts import decode_device_config, device_tables

DATA = Path(__file__).parents[3] / "data"


def test_an_empty_text_has_the_defaults_of_both_sections():
    found = device_tables("")
    assert found.of(VgpuTable).named.cards == "volcano.sh/vgpu-number"
    assert found.of(VgpuTable).named.percentage == "volcano.sh/vgpu-memory-percentage"
    assert found.of(AscendTable).chips == SHIPPED_CHIPS


def test_a_section_without_a_percentage_name_ignores_percentages():
    found = device_tables("nvidia:\n  resourceCountName: a.b/n\n  gpuMemoryFactor: 10\n").of(VgpuTable)
    assert (found.named.cards, found.named.memory) == ("a.b/n", "volcano.sh/vgpu-memory")
    assert (found.named.percentage, found.named.mib_per_unit) == ("", 10)


def test_layouts_keep_their_order():
    found = (
        device_tables(
            "nvidia:\n  knownMigGeometries:\n  - models: [A30, A31]\n    allowedGeometries:\n    - group: g1\n"
            "      geometries:\n      - {name: 2g, memory: 12, count: 2}\n      - {name: 1g, memory: 6, count: 1}\n"
        )
        .of(VgpuTable)
        .geometries
    )
    assert found[0].models == ("A30", "A31")
    assert found[0].layout == (numbered("g1", [("2g", 12, 2), ("1g", 6, 1)]),)


CHIP = (
    "{chipName: 310P3, commonWord: Ascend310P, resourceName: huawei.com/Ascend310P, "
    "resourceMemoryName: huawei.com/Ascend310P-memory, memoryAllocatable: 21527, memoryCapacity: 24576, aiCore: 8, "
    "aiCPU: 7, templates: [{name: vir02, memory: 6144, aiCore: 2, aiCPU: 2}, {name: vir01, memory: 3072, aiCore: 1}]}"
)


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        (f"vnpus:\n- {CHIP}\n", "template"),
        (f"vnpus:\n  hamiVnpuCore: true\n  configs:\n  - {CHIP}\n", "hami-core"),
        (f"vnpus:\n  hamiVnpuMode: ''\n  hamiVnpuCore: true\n  configs:\n  - {CHIP}\n", "hami-core"),
        (f"vnpus:\n  hamiVnpuMode: hami-core\n  configs:\n  - {CHIP}\n", "hami-core"),
        (f"vnpus:\n  hamiVnpuMode: ' hamiCore'\n  configs:\n  - {CHIP}\n", "hami-core"),
        (f"vnpus:\n  hamiVnpuMode: template\n  hamiVnpuCore: true\n  configs:\n  - {CHIP}\n", "template"),
        (f"vnpus:\n  hamiVnpuMode: enpu\n  configs:\n  - {CHIP}\n", "enpu"),
    ],
    ids=["list", "switch", "no mode", "mode", "spelling", "mode and switch", "enpu"],
)
def test_every_shape_of_the_chips_is_read(text, mode):
    found = device_tables(text).of(AscendTable)
    assert found.mode == mode
    assert found.chips[0].named.cores == "huawei.com/Ascend310P-core"
    assert [t.name for t in found.chips[0].templates] == ["vir01", "vir02"]


def test_a_chip_type_may_name_a_runtime_class():
    for more, found in (("", ""), (", runtimeClassName: ''", ""), (", runtimeClassName: ascend", "ascend")):
        (chip,) = device_tables(f"vnpus:\n- {CHIP[:-1]}{more}}}\n").of(AscendTable).chips
        assert chip.runtime_class == found


def test_a_runtime_class_of_all_chip_types_is_that_of_those_that_name_none():
    section = f"vnpus:\n  runtimeClassName: ascend\n  configs:\n  - {CHIP}\n  - {CHIP[:-1]}, runtimeClassName: own}}\n"
    assert [chip.runtime_class for chip in device_tables(section).of(AscendTable).chips] == ["ascend", "own"]


def test_the_section_of_later_versions_of_hami_is_read_without_a_note():
    section = (
        "vnpus:\n  hamiVnpuMode: hami-core\n  enpuPolicy: elastic\n  overwriteEnv: false\n  runtimeClassName: ''\n"
    )
    more = f"  deviceCoreScaling: 1.5\n  vnpuDeviceSplitCount: 10\n  configs:\n  - {CHIP}\n"
    assert decode_device_config(section + more).notes == ()
    with pytest.raises(ConfigError, match=r"vnpus\.hamiVnpuMode: found 'enup'; write template, hami-core or enpu"):
        decode_device_config(f"vnpus:\n  hamiVnpuMode: enup\n  configs:\n  - {CHIP}\n")


def test_every_problem_of_a_device_configuration_is_listed():
    with pytest.raises(ConfigError) as caught:
        decode_device_config(
            "nvidia:\n  gpuMemoryFactor: -1\n  knownMigGeometries:\n  - models: []\n    allowedGeometries:\n"
            "    - group: a-b\n      geometries: [{name: x, memory: much, count: 1}]\nvnpus: 5\n"
        )
    assert len(caught.value.problems) == 4
    assert caught.value.problems[0] == "nvidia.gpuMemoryFactor: found '-1'; write a whole number from 1 to 1048576"


def test_keys_that_nobody_reads_are_noted_with_the_one_that_was_probably_meant():
    found = decode_device_config(
        "nvidai: {}\nnvidia:\n  deviceSplitCount: 10\n  gpuMemoryFacto: 2\n  knownMigGeometries:\n"
        "  - models: [A30]\n    x: 1\n    allowedGeometries: [{group: g, geometries: [], y: 1}]\n"
        f"vnpus:\n- {CHIP[:-1]}, aiCPUs: 3}}\n"
    )
    assert found.notes == (
        "nvidai: unknown, has no effect; did you mean 'nvidia'?",
        "nvidia.gpuMemoryFacto: unknown, has no effect; did you mean 'gpuMemoryFactor'?",
        "nvidia.knownMigGeometries[0].x: unknown, has no effect",
        "nvidia.knownMigGeometries[0].allowedGeometries[0].y: unknown, has no effect",
        "vnpus[0].aiCPUs: unknown, has no effect; did you mean 'aiCPU'?",
    )
    assert [table.named.mib_per_unit for _, table in found.found if isinstance(table, VgpuTable)] == [1]


def test_what_is_not_used_of_hamis_section_is_not_read():
    found = decode_device_config(
        "nvidia:\n  resourceCountName: nvidia.com/gpu\n  defaultCores: 30\n  libCudaLogLevel: {}\n"
        "  knownMigGeometries:\n  - models: 3\n    allowedGeometries:\n    - - {name: 1g.6gb}\n"
        "  migProfileAllowlist: [x]\n  deviceSplitCount: many\n"
    )
    ((_, table),) = found.found
    assert isinstance(table, HamiTable)
    assert (table.default_cores, found.notes) == (30, ())


@pytest.mark.parametrize(
    ("section", "is_hamis", "table"),
    [
        ("resourceCountName: volcano.sh/vgpu-number", True, VgpuTable),
        ("resourceCountName: nvidia.com/gpu", False, HamiTable),
        ("resourceCountName: a.b/gpu", True, HamiTable),
        ("resourceCountName: a.b/gpu", False, VgpuTable),
        ("resourceCountName: a.b/gpu, memoryFactor: 1", False, HamiTable),
        ("resourceCountName: nvidia.com/gpu, gpuMemoryFactor: 1", False, VgpuTable),
        ("knownMigGeometries: [{models: [A], allowedGeometries: [[]]}]", False, HamiTable),
        (
            "resourceMemoryName: nvidia.com/m, knownMigGeometries: [{models: [A], allowedGeometries: [{group: g}]}]",
            False,
            VgpuTable,
        ),
        ("", True, HamiTable),
        ("", False, VgpuTable),
    ],
)
def test_a_section_is_of_the_product_that_writes_such_ones(section, is_hamis, table):
    ((_, found),) = decode_device_config(f"nvidia: {{{section}}}", is_hamis=is_hamis).found
    assert type(found) is table


def test_a_whole_config_map_is_told_from_its_text():
    with pytest.raises(ConfigError, match=r"kind: found 'ConfigMap'; give the text of its key device-config\.yaml"):
        decode_device_config("apiVersion: v1\nkind: ConfigMap\ndata: {}\n")


@pytest.mark.parametrize("name", ["vgpu-device-config.yaml", "ascend-device-config.yaml"])
def test_what_device_plugins_ship_is_known_to_the_last_key(name):
    documents = [*yaml.safe_load_all((DATA / name).read_text(encoding="utf-8"))]
    (text,) = [text for one in documents for key, text in one["data"].items() if key == "device-config.yaml"]
    assert decode_device_config(text).notes == ()
