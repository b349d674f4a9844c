"""Section ``nvidia`` of HAMi's own device-config.yaml. Source: protocol reference, hami 1.7."""

from dataclasses import dataclass
from typing import Final

from core.settings import Section
from core.sharing.request import Resources
from core.units import MAX_INT32
from core.wire import nvidia_section
from core.wire.checked import Checks
from core.wire.vocabulary import MAX_FACTOR, DeviceSection

_FORCE: Final = "force"
_USUAL: Final = Resources("nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores", "nvidia.com/gpumem-percentage")


@dataclass(frozen=True, slots=True, kw_only=True)
class HamiTable(Section):
    """The ``nvidia`` section of HAMi's own device-config.yaml, for placing and admission (hami.md 1.7).

    default_memory in MiB and default_cores in percent: for containers without
    them, 0 for all memory and no cores. default_count: number of cards, 0 for none. runtime_class: runtime class for
    pods with shares, "" for none. core_policy: how the cores of containers with shares are limited, "" for the plugin's
    default. hides_devices: whether containers without shares in the same pod see no GPU. installed: whether the section
    exists, so that plain ``nvidia.com/gpu`` means HAMi's.
    """

    named: Resources = _USUAL
    priority_resource: str = "nvidia.com/priority"
    default_memory: int = 0
    default_cores: int = 0
    default_count: int = 1
    runtime_class: str = ""
    core_policy: str = ""
    hides_devices: bool = False
    installed: bool = False


def _table(checks: Checks, found: object) -> HamiTable:
    section = checks.mapping(found, nvidia_section.KEY)
    checks.note_unknown(section, (*nvidia_section.KEYS, *nvidia_section.HAMIS_KEYS), "nvidia.")
    hides = checks.switch(section.get("overwriteEnv") or False, "nvidia.overwriteEnv")
    if hides:
        checks.note("nvidia.overwriteEnv: partly honoured: only pods that ask for shares of HAMi's are changed")

    def resource(key: str, otherwise: str) -> str:
        return checks.text(section[key], f"nvidia.{key}", otherwise) if section.get(key) else otherwise

    def whole(key: str, most: int = MAX_INT32) -> int:
        return checks.whole(section.get(key) or 0, f"nvidia.{key}", 0, most, 0)

    names = nvidia_section.names(checks, section, _USUAL[:4])
    return HamiTable(
        named=Resources(*names, max(whole("memoryFactor", MAX_FACTOR), 1)),
        priority_resource=resource("resourcePriorityName", "nvidia.com/priority"),
        default_memory=whole("defaultMemory"),
        default_cores=whole("defaultCores", 100),
        default_count=whole("defaultGPUNum") if section.get("defaultGPUNum") is not None else 1,
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


SECTION: Final = DeviceSection(
    key=nvidia_section.KEY,
    table=HamiTable,
    read=_table,
    means=nvidia_section.is_hamis_section,
    is_hamis=True,
    levels=(nvidia_section.LEVEL,),
)
