"""Section ``vnpus`` of device-config.yaml: the chips, as HAMi's plugin for Ascend is configured.

Source: protocol reference, ascend 1.1 and 6.3.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from core.tables import Section
from core.units import MAX_INT32
from core.wire.checked import Checks, each
from core.wire.vocabulary import MAX_FACTOR, DeviceSection

_SECTION_KEYS: Final = ("configs", "hamiVnpuCore")
_CHIP_KEYS: Final = (
    "chipName", "commonWord", "resourceName", "resourceMemoryName", "memoryAllocatable", "memoryCapacity", "aiCore",
    "aiCPU", "templates", "resourceCoreName", "memoryFactor", "runtimeClassName", "overwriteEnv", "superPod",
)  # fmt: skip
_TEMPLATE_KEYS: Final = ("name", "memory", "aiCore", "aiCPU")


@dataclass(frozen=True, slots=True, kw_only=True)
class AscendTemplate:
    """One slice template of an Ascend chip: memory_mib, AI cores, AI CPUs (ascend.md 1.1)."""

    name: str
    memory_mib: int
    ai_core: int
    ai_cpu: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AscendChip:
    """One chip model of the vnpus section; templates in ascending order of memory (ascend.md 1.1).

    memory_factor: MiB per unit of memory_resource; the figures here and in annotations are MiB. core_name: resource of
    soft slicing's percentage of cores, "" for its usual name. paired: chips are dies of modules of two, which are
    allocated as a whole. runtime_class: runtime class for pods with such chips, "" for none.
    """

    chip_name: str
    common_word: str
    resource: str
    memory_resource: str
    allocatable_mib: int
    capacity_mib: int
    ai_core: int
    ai_cpu: int
    templates: tuple[AscendTemplate, ...]
    runtime_class: str = ""
    memory_factor: int = 1
    core_name: str = ""
    paired: bool = False

    @property
    def core_resource(self) -> str:
        """The resource name of soft slicing's percentage of cores."""
        return self.core_name or f"{self.resource}-core"


def _shipped(
    name: str, word: str, mib: tuple[int, int], ai: tuple[int, int], templates: tuple[tuple[str, int, int, int], ...]
) -> AscendChip:
    return AscendChip(
        chip_name=name,
        common_word=word,
        resource=f"huawei.com/{word}",
        memory_resource=f"huawei.com/{word}-memory",
        allocatable_mib=mib[0],
        capacity_mib=mib[1],
        ai_core=ai[0],
        ai_cpu=ai[1],
        templates=tuple(AscendTemplate(name=n, memory_mib=m, ai_core=c, ai_cpu=p) for n, m, c, p in templates),
    )


_UP_TO_32G: Final = (("vir05_1c_16g", 16384, 5, 1), ("vir10_3c_32g", 32768, 10, 3))

# The chips of ConfigMap kube-system/hami-scheduler-device as shipped with Project-HAMi/ascend-device-plugin
# (ascend-device-configmap.yaml, v1.4.0): in force if the cluster's device-config.yaml has no ``vnpus``.
SHIPPED_CHIPS: Final = (
    _shipped(
        "910A",
        "Ascend910A",
        (32768, 32768),
        (30, 0),
        (("vir02", 2184, 2, 0), ("vir04", 4369, 4, 0), ("vir08", 8738, 8, 0), ("vir16", 17476, 16, 0)),
    ),
    _shipped(
        "910B2",
        "Ascend910B2",
        (65536, 65536),
        (24, 6),
        (("vir03_1c_8g", 8192, 3, 1), ("vir06_1c_16g", 16384, 6, 1), ("vir12_3c_32g", 32768, 12, 3)),
    ),
    _shipped("910B3", "Ascend910B3", (65536, 65536), (20, 7), _UP_TO_32G),
    _shipped("910B4-1", "Ascend910B4-1", (65536, 65536), (20, 7), _UP_TO_32G),
    _shipped(
        "910B4",
        "Ascend910B4",
        (32768, 32768),
        (20, 7),
        (("vir05_1c_8g", 8192, 5, 1), ("vir10_3c_16g", 16384, 10, 3)),
    ),
    _shipped(
        "310P3",
        "Ascend310P",
        (21527, 24576),
        (8, 7),
        (("vir01", 3072, 1, 1), ("vir02", 6144, 2, 2), ("vir04", 12288, 4, 4)),
    ),
    _shipped("Ascend910", "Ascend910C", (65536, 65536), (20, 7), _UP_TO_32G),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AscendTable(Section):
    """The ``vnpus`` section of device-config.yaml; soft_by_default applies to nodes that do not define it."""

    chips: tuple[AscendChip, ...] = SHIPPED_CHIPS
    soft_by_default: bool = False


def _table(checks: Checks, found: object) -> AscendTable:
    # The older form is the list itself, without a setting for soft slicing (ascend 6.3).
    if isinstance(found, list):
        return AscendTable(chips=each(checks, found, "vnpus", partial(_chip, checks)))
    section = checks.mapping(found, "vnpus")
    checks.note_unknown(section, _SECTION_KEYS, "vnpus.")
    return AscendTable(
        chips=each(checks, section.get("configs"), "vnpus.configs", partial(_chip, checks)),
        soft_by_default=checks.switch(section.get("hamiVnpuCore") or False, "vnpus.hamiVnpuCore"),
    )


def _chip(checks: Checks, found: Mapping[str, Any], place: str) -> AscendChip:
    checks.note_unknown(found, _CHIP_KEYS, f"{place}.")
    if str(found.get("overwriteEnv")).lower() == "true":
        checks.note(f"{place}.overwriteEnv: has no effect here; set admission.hide_devices of cardshare.yaml")

    def whole(key: str, least: int) -> int:
        return checks.whole(found.get(key, least), f"{place}.{key}", least, MAX_INT32, least)

    templates = each(checks, found.get("templates"), f"{place}.templates", partial(_template, checks))
    resource = checks.text(found.get("resourceName"), f"{place}.resourceName")
    core = checks.text(found["resourceCoreName"], f"{place}.resourceCoreName") if found.get("resourceCoreName") else ""
    return AscendChip(
        chip_name=checks.text(found.get("chipName"), f"{place}.chipName"),
        common_word=checks.text(found.get("commonWord"), f"{place}.commonWord"),
        resource=resource,
        memory_resource=checks.text(found.get("resourceMemoryName"), f"{place}.resourceMemoryName"),
        allocatable_mib=whole("memoryAllocatable", 1),
        capacity_mib=whole("memoryCapacity", 1),
        ai_core=whole("aiCore", 0),
        ai_cpu=whole("aiCPU", 0),
        templates=tuple(sorted(templates, key=lambda template: template.memory_mib)),
        runtime_class=checks.text(found["runtimeClassName"], f"{place}.runtimeClassName")
        if found.get("runtimeClassName")
        else "",
        memory_factor=max(checks.whole(found.get("memoryFactor") or 1, f"{place}.memoryFactor", 1, MAX_FACTOR, 1), 1),
        core_name="" if core == f"{resource}-core" else core,
        paired=checks.switch(found.get("superPod") or False, f"{place}.superPod"),
    )


def _template(checks: Checks, found: Mapping[str, Any], place: str) -> AscendTemplate:
    checks.note_unknown(found, _TEMPLATE_KEYS, f"{place}.")
    return AscendTemplate(
        name=checks.text(found.get("name"), f"{place}.name"),
        memory_mib=checks.whole(found.get("memory"), f"{place}.memory", 1, MAX_INT32, 1),
        ai_core=checks.whole(found.get("aiCore", 0), f"{place}.aiCore", 0, MAX_INT32, 0),
        ai_cpu=checks.whole(found.get("aiCPU", 0), f"{place}.aiCPU", 0, MAX_INT32, 0),
    )


SECTION: Final = DeviceSection(
    key="vnpus",
    table=AscendTable,
    read=_table,
    levels=((_SECTION_KEYS, "in section vnpus"), (_CHIP_KEYS, "in an item of vnpus.configs")),
)
