"""device-config.yaml: the device configuration that device plugins and schedulers share, to tables.

HAMi and Volcano's vGPU plugin write their names into one section: it is read by the rules of both, and whose it
is settles whoever knows where it stood. Source: protocol reference, nvidia 1.7, ascend 6.3 and hami 1.7. Keys that only
a plugin reads are left alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from core.tables import AscendChip, AscendTable, AscendTemplate, HamiTable, MigGroup, MigModel, MigProfile, VgpuTable
from core.units import MAX_INT32
from core.wire import yaml_text
from core.wire.checked import Checks, each

_DEFAULT: Final = VgpuTable()
_SECTIONS: Final = (
    "nvidia", "vnpus",
    # Of HAMi's own scheduler, for cards of others.
    "amd", "awsneuron", "biren", "cambricon", "dcu", "enflame", "hygon", "iluvatar", "iluvatars", "kunlun", "metax",
    "mthreads", "vastai",
)  # fmt: skip
# What is read here, and what device plugins and HAMi read (nvidia 1.7).
_NVIDIA_KEYS: Final = (
    "resourceCountName", "resourceMemoryName", "resourceMemoryPercentageName", "resourceCoreName", "gpuMemoryFactor",
    "knownMigGeometries",
    "resourcePriorityName", "overwriteEnv", "defaultMemory", "defaultCores", "defaultGPUNum", "deviceSplitCount",
    "deviceMemoryScaling", "deviceCoreScaling", "disableCoreLimit", "disablecorelimit", "passDeviceSpecs",
    "preConfiguredDeviceMemory", "gpuCorePolicy", "libCudaLogLevel", "memoryFactor", "runtimeClassName",
)  # fmt: skip
# The last five are HAMi's.
_CHIP_KEYS: Final = (
    "chipName", "commonWord", "resourceName", "resourceMemoryName", "memoryAllocatable", "memoryCapacity", "aiCore",
    "aiCPU", "templates", "resourceCoreName", "memoryFactor", "runtimeClassName", "overwriteEnv", "superPod",
)  # fmt: skip
# A group's name stands inside a device's id between these characters (nvidia 3.6).
_ID_SYNTAX: Final = frozenset("-[],:;")
_MAX_FACTOR: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceConfig:
    """The two sections of device-config.yaml, ``nvidia`` as each of its readers has it; a missing one has its defaults.

    notes: what is unknown and has no effect; two configurations that differ in nothing else are the same.
    """

    vgpu: VgpuTable = field(default_factory=VgpuTable)
    ascend: AscendTable = field(default_factory=AscendTable)
    hami: HamiTable = field(default_factory=HamiTable)
    notes: tuple[str, ...] = field(default=(), compare=False)


def decode_device_config(text: str) -> DeviceConfig:
    """Read device-config.yaml.

    Raises:
        ConfigError: with every problem found.
    """
    checks = Checks()
    found = checks.mapping(yaml_text.load(text, "device-config.yaml"), "device-config.yaml")
    checks.note_unknown(found, _SECTIONS, "")
    vgpu = _vgpu(checks, found["nvidia"]) if found.get("nvidia") is not None else _DEFAULT
    hami = _hami(checks, found["nvidia"]) if found.get("nvidia") is not None else HamiTable()
    ascend = _ascend(checks, found.get("vnpus"))
    checks.raise_all()
    return DeviceConfig(vgpu=vgpu, ascend=ascend, hami=hami, notes=checks.notes)


def _vgpu(checks: Checks, found: object) -> VgpuTable:
    section = checks.mapping(found, "nvidia")
    checks.note_unknown(section, _NVIDIA_KEYS, "nvidia.")

    def resource(key: str, default: str) -> str:
        return checks.text(section[key], f"nvidia.{key}", default) if section.get(key) else default

    return VgpuTable(
        number_resource=resource("resourceCountName", _DEFAULT.number_resource),
        memory_resource=resource("resourceMemoryName", _DEFAULT.memory_resource),
        cores_resource=resource("resourceCoreName", _DEFAULT.cores_resource),
        # Without a name percentages are no request at all (nvidia 1.7), unlike the other three.
        percentage_resource=resource("resourceMemoryPercentageName", ""),
        # 0 stands for "not set" upstream, and divides by zero in the plugin.
        memory_factor=checks.whole(section.get("gpuMemoryFactor") or 1, "nvidia.gpuMemoryFactor", 1, _MAX_FACTOR, 1),
        geometries=each(
            checks,
            section.get("knownMigGeometries"),
            "nvidia.knownMigGeometries",
            lambda one, place: _model(checks, one, place),
        ),
    )


def _hami(checks: Checks, found: object) -> HamiTable:
    section = checks.mapping(found, "nvidia")
    default = HamiTable()

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
        runtime_class=resource("runtimeClassName", ""),
        installed=True,
    )


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
            lambda one, where: MigProfile(
                name=checks.text(one.get("name"), f"{where}.name"),
                memory_mib=checks.whole(one.get("memory"), f"{where}.memory", 1, MAX_INT32, 1),
                count=checks.whole(one.get("count"), f"{where}.count", 1, 1024, 1),
            ),
        ),
    )


def _ascend(checks: Checks, found: object) -> AscendTable:
    if found is None:
        return AscendTable()
    # The older shape is the list itself; it has no word on soft slicing (ascend 6.3).
    if isinstance(found, list):
        return AscendTable(chips=each(checks, found, "vnpus", lambda one, place: _chip(checks, one, place)))
    section = checks.mapping(found, "vnpus")
    checks.note_unknown(section, ("configs", "hamiVnpuCore"), "vnpus.")
    return AscendTable(
        chips=each(checks, section.get("configs"), "vnpus.configs", lambda one, place: _chip(checks, one, place)),
        soft_by_default=checks.switch(section.get("hamiVnpuCore") or False, "vnpus.hamiVnpuCore"),
    )


def _chip(checks: Checks, found: Mapping[str, Any], place: str) -> AscendChip:
    checks.note_unknown(found, _CHIP_KEYS, f"{place}.")

    def whole(key: str, least: int) -> int:
        return checks.whole(found.get(key, least), f"{place}.{key}", least, MAX_INT32, least)

    templates = each(
        checks,
        found.get("templates"),
        f"{place}.templates",
        lambda one, where: AscendTemplate(
            name=checks.text(one.get("name"), f"{where}.name"),
            memory_mib=checks.whole(one.get("memory"), f"{where}.memory", 1, MAX_INT32, 1),
            ai_core=checks.whole(one.get("aiCore", 0), f"{where}.aiCore", 0, MAX_INT32, 0),
            ai_cpu=checks.whole(one.get("aiCPU", 0), f"{where}.aiCPU", 0, MAX_INT32, 0),
        ),
    )
    return AscendChip(
        chip_name=checks.text(found.get("chipName"), f"{place}.chipName"),
        common_word=checks.text(found.get("commonWord"), f"{place}.commonWord"),
        resource=checks.text(found.get("resourceName"), f"{place}.resourceName"),
        memory_resource=checks.text(found.get("resourceMemoryName"), f"{place}.resourceMemoryName"),
        allocatable_mib=whole("memoryAllocatable", 1),
        capacity_mib=whole("memoryCapacity", 1),
        ai_core=whole("aiCore", 0),
        ai_cpu=whole("aiCPU", 0),
        templates=tuple(sorted(templates, key=lambda template: template.memory_mib)),
        runtime_class=checks.text(found["runtimeClassName"], f"{place}.runtimeClassName")
        if found.get("runtimeClassName")
        else "",
    )
