"""Section ``vnpus`` of device-config.yaml: the chips, as HAMi's plugin for Ascend is configured.

Source: protocol reference, ascend 1.1 and 6.3.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from core.dialects.ascend_hami import keys
from core.settings import Section
from core.sharing.request import Resources
from core.sharing.slices import Profile
from core.units import MAX_INT32
from core.wire.checked import Checks, each
from core.wire.vocabulary import MAX_FACTOR, DeviceSection

# Those of the later lines are of HAMi after v2.10.
_SECTION_KEYS: Final = (
    "configs", "hamiVnpuCore",
    "hamiVnpuMode", "overwriteEnv", "runtimeClassName",
    "enpuPolicy", "deviceCoreScaling", "vnpuDeviceSplitCount",
)  # fmt: skip
_MODES: Final = {
    keys.TEMPLATE: keys.TEMPLATE, keys.SOFT: keys.SOFT, "hamicore": keys.SOFT, keys.ENPU: keys.ENPU,
}  # fmt: skip
_CHIP_KEYS: Final = (
    "chipName", "commonWord", "resourceName", "resourceMemoryName", "memoryAllocatable", "memoryCapacity", "aiCore",
    "aiCPU", "templates", "resourceCoreName", "memoryFactor", "runtimeClassName", "overwriteEnv", "superPod",
)  # fmt: skip
_TEMPLATE_KEYS: Final = ("name", "memory", "aiCore", "aiCPU")


# The name of the template of all of a chip, which the plugin does not cut.
WHOLE_CHIP: Final = "the whole chip"


@dataclass(frozen=True, slots=True, kw_only=True)
class AscendChip:
    """One chip model of the vnpus section; templates in ascending memory, each with AI cores and AI CPUs (ascend 1.1).

    named: its resources; the figures here and in annotations are MiB, whatever their unit. paired: chips are dies of
    modules of two, which are allocated as a whole. runtime_class: runtime class for pods with such chips, "" for none.
    """

    named: Resources
    allocatable_mib: int
    capacity_mib: int
    ai_core: int
    ai_cpu: int
    templates: tuple[Profile, ...]
    runtime_class: str = ""
    paired: bool = False

    @property
    def whole(self) -> Profile:
        """What stands for a template where a pod gets all of a chip."""
        return Profile(WHOLE_CHIP, self.allocatable_mib, self.allocatable_mib, counted=(self.ai_core, self.ai_cpu))


def _shipped(
    word: str, mib: tuple[int, int], ai: tuple[int, int], templates: tuple[tuple[str, int, int, int], ...]
) -> AscendChip:
    name = f"huawei.com/{word}"
    cuts = [Profile(cut, memory, memory, counted=(core, cpu)) for cut, memory, core, cpu in templates]
    return AscendChip(
        named=Resources(name, f"{name}-memory", f"{name}-core", type=word),
        allocatable_mib=mib[0],
        capacity_mib=mib[1],
        ai_core=ai[0],
        ai_cpu=ai[1],
        templates=tuple(cuts),
    )


_UP_TO_32G: Final = (("vir05_1c_16g", 16384, 5, 1), ("vir10_3c_32g", 32768, 10, 3))

# The chips of ConfigMap kube-system/hami-scheduler-device as shipped with Project-HAMi/ascend-device-plugin
# (ascend-device-configmap.yaml, v1.4.0): in force if the cluster's device-config.yaml has no ``vnpus``.
SHIPPED_CHIPS: Final = (
    _shipped(
        "Ascend910A",
        (32768, 32768),
        (30, 0),
        (("vir02", 2184, 2, 0), ("vir04", 4369, 4, 0), ("vir08", 8738, 8, 0), ("vir16", 17476, 16, 0)),
    ),
    _shipped(
        "Ascend910B2",
        (65536, 65536),
        (24, 6),
        (("vir03_1c_8g", 8192, 3, 1), ("vir06_1c_16g", 16384, 6, 1), ("vir12_3c_32g", 32768, 12, 3)),
    ),
    _shipped("Ascend910B3", (65536, 65536), (20, 7), _UP_TO_32G),
    _shipped("Ascend910B4-1", (65536, 65536), (20, 7), _UP_TO_32G),
    _shipped(
        "Ascend910B4",
        (32768, 32768),
        (20, 7),
        (("vir05_1c_8g", 8192, 5, 1), ("vir10_3c_16g", 16384, 10, 3)),
    ),
    _shipped(
        "Ascend310P",
        (21527, 24576),
        (8, 7),
        (("vir01", 3072, 1, 1), ("vir02", 6144, 2, 2), ("vir04", 12288, 4, 4)),
    ),
    _shipped("Ascend910C", (65536, 65536), (20, 7), _UP_TO_32G),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AscendTable(Section):
    """The ``vnpus`` section of device-config.yaml; mode: how nodes that do not say it slice their chips."""

    chips: tuple[AscendChip, ...] = SHIPPED_CHIPS
    mode: str = keys.TEMPLATE


def _table(checks: Checks, found: object) -> AscendTable:
    # The older form is the list itself, without a setting for soft slicing (ascend 6.3).
    if isinstance(found, list):
        return AscendTable(chips=each(checks, found, "vnpus", partial(_chip, checks, "")))
    section = checks.mapping(found, "vnpus")
    checks.note_unknown(section, _SECTION_KEYS, "vnpus.")
    _note_overwriting(checks, section, "vnpus")
    given = section.get("runtimeClassName")
    runtime_class = checks.text(given, "vnpus.runtimeClassName") if given else ""
    return AscendTable(
        chips=each(checks, section.get("configs"), "vnpus.configs", partial(_chip, checks, runtime_class)),
        mode=_mode(checks, section),
    )


def _mode(checks: Checks, section: Mapping[str, Any]) -> str:
    """Return how nodes slice; the older switch counts without a mode."""
    is_soft = checks.switch(section.get("hamiVnpuCore") or False, "vnpus.hamiVnpuCore")
    given = section.get("hamiVnpuMode") or ""
    word = str(given).strip().lower()
    if word and word not in _MODES:
        checks.wrong("vnpus.hamiVnpuMode", given, f"write {keys.TEMPLATE}, {keys.SOFT} or {keys.ENPU}")
    return _MODES.get(word, keys.SOFT if is_soft else keys.TEMPLATE)


def _note_overwriting(checks: Checks, found: Mapping[str, Any], place: str) -> None:
    if str(found.get("overwriteEnv")).lower() == "true":
        checks.note(f"{place}.overwriteEnv: has no effect here; set admission.hide_devices of cardshare.yaml")


def _chip(checks: Checks, runtime_class: str, found: Mapping[str, Any], place: str) -> AscendChip:
    checks.note_unknown(found, _CHIP_KEYS, f"{place}.")
    _note_overwriting(checks, found, place)

    def whole(key: str, least: int) -> int:
        return checks.whole(found.get(key, least), f"{place}.{key}", least, MAX_INT32, least)

    def text(key: str) -> str:
        return checks.text(found.get(key), f"{place}.{key}")

    def given(key: str) -> str:
        return text(key) if found.get(key) else ""

    text("chipName")
    templates = each(checks, found.get("templates"), f"{place}.templates", partial(_template, checks))
    word, resource, memory = text("commonWord"), text("resourceName"), text("resourceMemoryName")
    factor = max(checks.whole(found.get("memoryFactor") or 1, f"{place}.memoryFactor", 1, MAX_FACTOR, 1), 1)
    return AscendChip(
        named=Resources(
            resource, memory, given("resourceCoreName") or f"{resource}-core", mib_per_unit=factor, type=word
        ),
        allocatable_mib=whole("memoryAllocatable", 1),
        capacity_mib=whole("memoryCapacity", 1),
        ai_core=whole("aiCore", 0),
        ai_cpu=whole("aiCPU", 0),
        templates=tuple(sorted(templates, key=lambda template: template.memory_mib)),
        runtime_class=given("runtimeClassName") or runtime_class,
        paired=checks.switch(found.get("superPod") or False, f"{place}.superPod"),
    )


def _template(checks: Checks, found: Mapping[str, Any], place: str) -> Profile:
    checks.note_unknown(found, _TEMPLATE_KEYS, f"{place}.")
    memory_mib = checks.whole(found.get("memory"), f"{place}.memory", 1, MAX_INT32, 1)
    counted = tuple([checks.whole(found.get(key, 0), f"{place}.{key}", 0, MAX_INT32, 0) for key in ("aiCore", "aiCPU")])
    return Profile(checks.text(found.get("name"), f"{place}.name"), memory_mib, memory_mib, counted=counted)


SECTION: Final = DeviceSection(
    key="vnpus",
    table=AscendTable,
    read=_table,
    levels=((_SECTION_KEYS, "in section vnpus"), (_CHIP_KEYS, "in an item of vnpus.configs")),
)
