"""device-config.yaml, the configuration that device plugins and schedulers share, to tables.

HAMi and Volcano's vGPU plugin both call their section ``nvidia``. It is read by the grammar of its product, and parts
that cardshare does not use are skipped. Source: protocol reference, nvidia 1.7, ascend 6.3 and hami 1.7.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Any, Final

from core.settings import DialectName, Section
from core.tables import (
    AscendChip,
    AscendTable,
    AscendTemplate,
    HamiTable,
    MigGroup,
    MigModel,
    MigProfile,
    VendorNames,
    VgpuTable,
)
from core.units import MAX_INT32
from core.wire import yaml_text
from core.wire.checked import Checks, each, same_word

_DEFAULT: Final = VgpuTable()
_VOLCANO: Final = "volcano.sh/"
_NVIDIA: Final = "nvidia.com/"
_SECTIONS: Final = (
    "nvidia", "vnpus",
    # Sections of HAMi's own scheduler for cards of other vendors.
    "amd", "awsneuron", "biren", "cambricon", "dcu", "enflame", "hygon", "iluvatar", "iluvatars", "kunlun", "metax",
    "mthreads", "vastai",
)  # fmt: skip
# Keys of both products: those that are read here, and those that only their device plugins read.
_RESOURCES: Final = ("resourceCountName", "resourceMemoryName", "resourceCoreName", "resourceMemoryPercentageName")
_BOTH: Final = (
    *_RESOURCES, "resourcePriorityName", "overwriteEnv", "defaultMemory", "defaultCores", "defaultGPUNum",
    "deviceSplitCount", "deviceMemoryScaling", "deviceCoreScaling", "disableCoreLimit", "passDeviceSpecs",
    "preConfiguredDeviceMemory", "knownMigGeometries",
)  # fmt: skip
_VOLCANO_ONLY: Final = ("gpuMemoryFactor", "disablecorelimit")
_HAMI_ONLY: Final = (
    "memoryFactor", "gpuCorePolicy", "libCudaLogLevel", "runtimeClassName", "enableNumaTopology", "migProfileAllowlist",
)  # fmt: skip
_CHIP_KEYS: Final = (
    "chipName", "commonWord", "resourceName", "resourceMemoryName", "memoryAllocatable", "memoryCapacity", "aiCore",
    "aiCPU", "templates", "resourceCoreName", "memoryFactor", "runtimeClassName", "overwriteEnv", "superPod",
)  # fmt: skip
_TEMPLATE_KEYS: Final = ("name", "memory", "aiCore", "aiCPU")
_LEVELS: Final = (
    (_SECTIONS, "at the top"),
    (_BOTH, "in section nvidia"),
    (("configs", "hamiVnpuCore"), "in section vnpus"),
    (_CHIP_KEYS, "in an item of vnpus.configs"),
)
_FORCE: Final = "force"
# A group's name is part of a device's id between these characters (nvidia 3.6).
_ID_SYNTAX: Final = frozenset("-[],:;")
_MAX_FACTOR: Final = 1 << 20


class Product(StrEnum):
    """The product of the ``nvidia`` section."""

    VOLCANO = "volcano"
    HAMI = "hami"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceConfig:
    """The sections of device-config.yaml; a missing one has its defaults.

    vendors: the sections of HAMi's other vendors, by dialect. product: product of the ``nvidia`` section, None without
    one; has_chips: whether there is a ``vnpus`` section.
    notes: unknown or ineffective parts; configurations that differ only in notes are equal.
    """

    vgpu: VgpuTable = field(default_factory=VgpuTable)
    ascend: AscendTable = field(default_factory=AscendTable)
    hami: HamiTable = field(default_factory=HamiTable)
    vendors: tuple[tuple[str, VendorNames], ...] = ()
    product: Product | None = None
    has_chips: bool = False
    notes: tuple[str, ...] = field(default=(), compare=False)


def decode_device_config(
    text: str, presumed: Product | None = None, sections: Mapping[DialectName, Section] | None = None
) -> DeviceConfig:
    """Read device-config.yaml.

    Args:
        text: the text.
        presumed: its product by its place, which Volcano's resource names override.
        sections: those of HAMi's other vendors, by dialect.

    Raises:
        ConfigError: lists every problem.
    """
    checks = Checks()
    found = checks.mapping(yaml_text.load(text, "device-config.yaml"), "device-config.yaml")
    if found.get("kind") == "ConfigMap":
        checks.wrong("kind", "ConfigMap", "give the text of its key device-config.yaml, not the whole object")
        checks.raise_all()
    checks.note_unknown(found, _SECTIONS, "", _elsewhere)
    section = checks.mapping(found.get("nvidia"), "nvidia")
    product = _product(section, presumed) if found.get("nvidia") is not None else None
    config = DeviceConfig(
        vgpu=_vgpu(checks, section) if product is Product.VOLCANO else _DEFAULT,
        hami=_hami(checks, section) if product is Product.HAMI else HamiTable(),
        ascend=_ascend(checks, found.get("vnpus")),
        vendors=_vendors(checks, found, sections or {}),
        product=product,
        has_chips=found.get("vnpus") is not None,
    )
    checks.raise_all()
    return replace(config, notes=checks.notes)


def _product(section: Mapping[str, Any], presumed: Product | None) -> Product:
    """Return the product of *section*: by its resource names, else by its place, else by keys of only one product."""
    named = [section[key] for key in _RESOURCES if isinstance(section.get(key), str) and section[key].strip()]
    if named and named[0].startswith(_VOLCANO):
        return Product.VOLCANO
    if presumed is not None:
        return presumed
    layouts = [one.get("allowedGeometries") for one in _mappings(section.get("knownMigGeometries"))]
    groups = [group for groups in layouts if isinstance(groups, list) for group in groups]
    if not section.keys().isdisjoint(_VOLCANO_ONLY) or any(isinstance(group, dict) for group in groups):
        return Product.VOLCANO
    is_hami = (
        any(name.startswith(_NVIDIA) for name in named)
        or any(isinstance(group, list) for group in groups)
        or not section.keys().isdisjoint(_HAMI_ONLY)
    )
    return Product.HAMI if is_hami else Product.VOLCANO


def _elsewhere(key: str) -> str:
    """Return what to write where if *key* has a meaning at another place."""
    found = ((same_word(key, names), where) for names, where in _LEVELS)
    return next((f"'{same}' {where}" for same, where in found if same), "")


def _mappings(found: object) -> list[dict[str, Any]]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _vgpu(checks: Checks, section: Mapping[str, Any]) -> VgpuTable:
    checks.note_unknown(section, (*_BOTH, *_VOLCANO_ONLY), "nvidia.", _elsewhere)

    def resource(key: str, default: str) -> str:
        return checks.text(section[key], f"nvidia.{key}", default) if section.get(key) else default

    return VgpuTable(
        number_resource=resource("resourceCountName", _DEFAULT.number_resource),
        memory_resource=resource("resourceMemoryName", _DEFAULT.memory_resource),
        cores_resource=resource("resourceCoreName", _DEFAULT.cores_resource),
        # Without a name, percentages are no request at all (nvidia 1.7), unlike the other three.
        percentage_resource=resource("resourceMemoryPercentageName", ""),
        # 0 means "not set" upstream, and makes the plugin divide by zero.
        memory_factor=checks.whole(section.get("gpuMemoryFactor") or 1, "nvidia.gpuMemoryFactor", 1, _MAX_FACTOR, 1),
        geometries=each(
            checks,
            section.get("knownMigGeometries"),
            "nvidia.knownMigGeometries",
            lambda one, place: _model(checks, one, place),
        ),
    )


def _hami(checks: Checks, section: Mapping[str, Any]) -> HamiTable:
    checks.note_unknown(section, (*_BOTH, *_HAMI_ONLY), "nvidia.", _elsewhere)
    default = HamiTable()
    hides = checks.switch(section.get("overwriteEnv") or False, "nvidia.overwriteEnv")
    if hides:
        checks.note("nvidia.overwriteEnv: partly honoured: only pods that ask for shares of HAMi's are changed")

    def resource(key: str, otherwise: str) -> str:
        return checks.text(section[key], f"nvidia.{key}", otherwise) if section.get(key) else otherwise

    def whole(key: str, most: int = MAX_INT32) -> int:
        return checks.whole(section.get(key) or 0, f"nvidia.{key}", 0, most, 0)

    return HamiTable(
        count_resource=resource("resourceCountName", default.count_resource),
        memory_resource=resource("resourceMemoryName", default.memory_resource),
        percentage_resource=resource("resourceMemoryPercentageName", default.percentage_resource),
        cores_resource=resource("resourceCoreName", default.cores_resource),
        priority_resource=resource("resourcePriorityName", default.priority_resource),
        default_memory=whole("defaultMemory"),
        default_cores=whole("defaultCores", 100),
        memory_factor=max(whole("memoryFactor", _MAX_FACTOR), 1),
        default_count=whole("defaultGPUNum") if section.get("defaultGPUNum") is not None else default.default_count,
        runtime_class=resource("runtimeClassName", ""),
        core_policy=_core_policy(checks, section.get("gpuCorePolicy")),
        hides_devices=hides,
        installed=True,
    )


def _core_policy(checks: Checks, found: object) -> str:
    """Return HAMi's gpuCorePolicy if it tightens a share."""
    if found == "disable":
        checks.note(
            "nvidia.gpuCorePolicy: 'disable' has no effect here: containers keep to the cores that they ask for"
        )
    elif found not in (None, "", "default", _FORCE):
        checks.note_unknown((str(found),), ("default", _FORCE, "disable"), "nvidia.gpuCorePolicy: ")
    return _FORCE if found == _FORCE else ""


def _vendors(
    checks: Checks, found: Mapping[str, Any], sections: Mapping[DialectName, Section]
) -> tuple[tuple[str, VendorNames], ...]:
    """Return the names of the vendors that *found* has; one that is there and names nothing has the usual names."""
    named: list[tuple[str, VendorNames]] = []
    for dialect, section in sections.items():
        value = found.get(section.key)
        if section.word:
            value = next((one for one in _mappings(value) if one.get("commonWord") == section.word), None)
        if value is None:
            continue
        given, place = checks.mapping(value, section.key), section.key
        cards, memory, cores = [
            checks.text(given[key], f"{place}.{key}", "") if key and given.get(key) else "" for key in section.names
        ]
        factor = checks.whole(given.get("memoryFactor") or 1, f"{place}.memoryFactor", 1, _MAX_FACTOR, 1)
        named.append((dialect, VendorNames(cards, memory, cores, factor if factor > 1 else 0)))
    return tuple(named)


def _model(checks: Checks, found: Mapping[str, Any], place: str) -> MigModel:
    checks.note_unknown(found, ("models", "allowedGeometries"), f"{place}.")
    return MigModel(
        models=checks.texts(found.get("models"), f"{place}.models"),
        groups=each(
            checks,
            found.get("allowedGeometries"),
            f"{place}.allowedGeometries",
            lambda group, where: _group(checks, group, where),
        ),
    )


def _group(checks: Checks, found: Mapping[str, Any], place: str) -> MigGroup:
    checks.note_unknown(found, ("group", "geometries"), f"{place}.")
    name = checks.text(found.get("group"), f"{place}.group")
    if not _ID_SYNTAX.isdisjoint(name):
        checks.wrong(f"{place}.group", name, "write a name without any of - [ ] , : ;")
    return MigGroup(
        name=name,
        profiles=each(
            checks,
            found.get("geometries"),
            f"{place}.geometries",
            partial(_profile, checks),
        ),
    )


def _profile(checks: Checks, found: Mapping[str, Any], place: str) -> MigProfile:
    checks.note_unknown(found, ("name", "memory", "count", "core"), f"{place}.")
    return MigProfile(
        name=checks.text(found.get("name"), f"{place}.name"),
        memory_mib=checks.whole(found.get("memory"), f"{place}.memory", 1, MAX_INT32, 1),
        count=checks.whole(found.get("count"), f"{place}.count", 1, 1024, 1),
    )


def _ascend(checks: Checks, found: object) -> AscendTable:
    if found is None:
        return AscendTable()
    # The older form is the list itself, without a setting for soft slicing (ascend 6.3).
    if isinstance(found, list):
        return AscendTable(chips=each(checks, found, "vnpus", lambda one, place: _chip(checks, one, place)))
    section = checks.mapping(found, "vnpus")
    checks.note_unknown(section, ("configs", "hamiVnpuCore"), "vnpus.", _elsewhere)
    return AscendTable(
        chips=each(checks, section.get("configs"), "vnpus.configs", lambda one, place: _chip(checks, one, place)),
        soft_by_default=checks.switch(section.get("hamiVnpuCore") or False, "vnpus.hamiVnpuCore"),
    )


def _chip(checks: Checks, found: Mapping[str, Any], place: str) -> AscendChip:
    checks.note_unknown(found, _CHIP_KEYS, f"{place}.", _elsewhere)
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
        memory_factor=max(checks.whole(found.get("memoryFactor") or 1, f"{place}.memoryFactor", 1, _MAX_FACTOR, 1), 1),
        core_name="" if core == f"{resource}-core" else core,
        paired=checks.switch(found.get("superPod") or False, f"{place}.superPod"),
    )


def _template(checks: Checks, found: Mapping[str, Any], place: str) -> AscendTemplate:
    checks.note_unknown(found, _TEMPLATE_KEYS, f"{place}.", _elsewhere)
    return AscendTemplate(
        name=checks.text(found.get("name"), f"{place}.name"),
        memory_mib=checks.whole(found.get("memory"), f"{place}.memory", 1, MAX_INT32, 1),
        ai_core=checks.whole(found.get("aiCore", 0), f"{place}.aiCore", 0, MAX_INT32, 0),
        ai_cpu=checks.whole(found.get("aiCPU", 0), f"{place}.aiCPU", 0, MAX_INT32, 0),
    )
