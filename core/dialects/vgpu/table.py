"""What Volcano's vGPU plugin and scheduler are configured with: section ``nvidia``, and exclusive rules.

Source: protocol reference, nvidia 1.7 and 3.10.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from core.errors import quoted
from core.settings import Section
from core.sharing.request import Resources
from core.sharing.slices import Group, Layout, numbered
from core.units import MAX_INT32
from core.wire import nvidia_section
from core.wire.checked import Checks, each
from core.wire.vocabulary import MAX_FACTOR, DeviceSection, SchedulerArguments

# A group's name is part of a device's id between these characters (nvidia 3.6).
_ID_SYNTAX: Final = frozenset("-[],:;")
_RULES: Final = "GPUExclusiveRules"
_USUAL: Final = Resources(
    "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores", "volcano.sh/vgpu-memory-percentage"
)


class MigModel(NamedTuple):
    """How cards of these models can be cut, with charges in MiB; models are texts that occur in the register's type."""

    models: tuple[str, ...]
    layout: Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class VgpuTable(Section):
    """The ``nvidia`` section of device-config.yaml, as far as placing needs it (nvidia.md 1.7).

    Without a name for percentages, these are ignored.
    """

    named: Resources = _USUAL
    geometries: tuple[MigModel, ...] = ()

    @property
    def claimed(self) -> tuple[str, ...]:
        """All of its names."""
        return self.named[:4]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExclusiveRules(Section):
    """The exclusive rules of Volcano's scheduler: pods with all labels of one never share a card (nvidia.md 3.10)."""

    rules: tuple[frozenset[tuple[str, str]], ...] = ()


def _table(checks: Checks, found: object) -> VgpuTable:
    section = checks.mapping(found, nvidia_section.KEY)
    checks.note_unknown(section, (*nvidia_section.KEYS, *nvidia_section.VOLCANOS_KEYS), "nvidia.")
    # Without a name, percentages are no request at all (nvidia 1.7), unlike the other three.
    names = nvidia_section.names(checks, section, (*_USUAL[:3], ""))
    # 0 means "not set" upstream, and makes the plugin divide by zero.
    factor = checks.whole(section.get("gpuMemoryFactor") or 1, "nvidia.gpuMemoryFactor", 1, MAX_FACTOR, 1)
    models = each(checks, section.get("knownMigGeometries"), "nvidia.knownMigGeometries", partial(_model, checks))
    return VgpuTable(named=Resources(*names, factor), geometries=models)


def _model(checks: Checks, found: Mapping[str, Any], place: str) -> MigModel:
    checks.note_unknown(found, ("models", "allowedGeometries"), f"{place}.")
    groups = each(checks, found.get("allowedGeometries"), f"{place}.allowedGeometries", partial(_group, checks))
    return MigModel(checks.texts(found.get("models"), f"{place}.models"), groups)


def _group(checks: Checks, found: Mapping[str, Any], place: str) -> Group:
    checks.note_unknown(found, ("group", "geometries"), f"{place}.")
    name = checks.text(found.get("group"), f"{place}.group")
    if not _ID_SYNTAX.isdisjoint(name):
        checks.wrong(f"{place}.group", name, "write a name without any of - [ ] , : ;")
    return numbered(name, each(checks, found.get("geometries"), f"{place}.geometries", partial(_profile, checks)))


def _profile(checks: Checks, found: Mapping[str, Any], place: str) -> tuple[str, int, int]:
    checks.note_unknown(found, ("name", "memory", "count", "core"), f"{place}.")
    return (
        checks.text(found.get("name"), f"{place}.name"),
        checks.whole(found.get("memory"), f"{place}.memory", 1, MAX_INT32, 1),
        checks.whole(found.get("count"), f"{place}.count", 1, 1024, 1),
    )


def _rules(checks: Checks, given: Mapping[str, Any], init_params: Mapping[str, bool]) -> ExclusiveRules:
    """Return the exclusive rules. Upstream would drop a label that is not text, so that more pods match (S29)."""
    return ExclusiveRules(rules=each(checks, given.get(_RULES), f"deviceshare.{_RULES}", partial(_rule, checks)))


def _rule(checks: Checks, found: Mapping[str, Any], place: str) -> frozenset[tuple[str, str]]:
    if not found:
        checks.wrong(place, found, "write the labels of the pods that are never to share a card")
    for key, value in found.items():
        if not isinstance(value, str):
            checks.wrong(
                f"{place}: label {quoted(key)}", value, "write a text: labels have no other values; put it in quotes"
            )
    return frozenset([(key, value) for key, value in found.items() if isinstance(value, str)])


SECTION: Final = DeviceSection(
    key=nvidia_section.KEY,
    table=VgpuTable,
    read=_table,
    means=nvidia_section.is_volcanos_section,
    levels=(nvidia_section.LEVEL,),
)
ARGUMENTS: Final = SchedulerArguments(ExclusiveRules, _rules, deviceshare=(_RULES,))
