"""Section ``nvidia`` of device-config.yaml, which HAMi and Volcano's vGPU plugin both have, each by its own grammar.

Source: protocol reference, nvidia 1.7 and hami 1.7.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from core.wire.checked import Checks

KEY: Final = "nvidia"
_VOLCANO: Final = "volcano.sh/"
_NVIDIA: Final = "nvidia.com/"
_RESOURCES: Final = ("resourceCountName", "resourceMemoryName", "resourceCoreName", "resourceMemoryPercentageName")
# Keys of both products: those that are read here, and those that only their device plugins read.
KEYS: Final = (
    *_RESOURCES, "resourcePriorityName", "overwriteEnv", "defaultMemory", "defaultCores", "defaultGPUNum",
    "deviceSplitCount", "deviceMemoryScaling", "deviceCoreScaling", "disableCoreLimit", "passDeviceSpecs",
    "preConfiguredDeviceMemory", "knownMigGeometries",
)  # fmt: skip
VOLCANOS_KEYS: Final = ("gpuMemoryFactor", "disablecorelimit")
HAMIS_KEYS: Final = (
    "memoryFactor", "gpuCorePolicy", "libCudaLogLevel", "runtimeClassName", "enableNumaTopology", "migProfileAllowlist",
)  # fmt: skip
LEVEL: Final = (KEYS, "in section nvidia")


def names(checks: Checks, section: Mapping[str, Any], usual: Sequence[str]) -> tuple[str, str, str, str]:
    """Return what *section* calls cards, memory, cores and percentages of memory; *usual*: otherwise."""
    cards, memory, cores, percentage = [
        checks.text(section[key], f"{KEY}.{key}", name) if section.get(key) else name
        for key, name in zip(_RESOURCES, usual, strict=True)
    ]
    return cards, memory, cores, percentage


def is_hamis_section(section: object, *, is_hamis: bool) -> bool:
    """Return whether *section* is HAMi's: by its resource names, else by its place, else by keys of only one product.

    is_hamis: whether its text is in HAMi's ConfigMap.
    """
    found: Mapping[str, Any] = section if isinstance(section, dict) else {}
    named = [found[key] for key in _RESOURCES if isinstance(found.get(key), str) and found[key].strip()]
    if named and named[0].startswith(_VOLCANO):
        return False
    if is_hamis:
        return True
    layouts = [one.get("allowedGeometries") for one in _mappings(found.get("knownMigGeometries"))]
    groups = [group for groups in layouts if isinstance(groups, list) for group in groups]
    if not found.keys().isdisjoint(VOLCANOS_KEYS) or any(isinstance(group, dict) for group in groups):
        return False
    return (
        any(name.startswith(_NVIDIA) for name in named)
        or any(isinstance(group, list) for group in groups)
        or not found.keys().isdisjoint(HAMIS_KEYS)
    )


def is_volcanos_section(section: object, *, is_hamis: bool) -> bool:
    """Return whether *section* is that of Volcano's vGPU plugin; see `is_hamis_section`."""
    return not is_hamis_section(section, is_hamis=is_hamis)


def _mappings(found: object) -> list[dict[str, Any]]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
