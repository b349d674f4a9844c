"""What Volcano's vGPU plugin and scheduler are configured with: section ``nvidia``, and exclusive rules.

Source: protocol reference, nvidia 1.7 and 3.10.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from core.errors import quoted
from core.tables import Section
from core.units import MAX_INT32
from core.wire import nvidia_section
from core.wire.checked import Checks, each
from core.wire.vocabulary import MAX_FACTOR, DeviceSection, SchedulerArguments

# A group's name is part of a device's id between these characters (nvidia 3.6).
_ID_SYNTAX: Final = frozenset("-[],:;")
_RULES: Final = "GPUExclusiveRules"


@dataclass(frozen=True, slots=True, kw_only=True)
class MigProfile:
    """One slice type of a MIG layout: memory_mib per slice, count of slices."""

    name: str
    memory_mib: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MigGroup:
    """One allowed layout of a card; profiles in the declared order, which defines positions."""

    name: str
    profiles: tuple[MigProfile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MigModel:
    """The layouts that cards of these models allow; models are texts that occur in the register's type."""

    models: tuple[str, ...]
    groups: tuple[MigGroup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VgpuTable(Section):
    """The ``nvidia`` section of device-config.yaml, as far as placing needs it (nvidia.md 1.7).

    memory_factor: MiB per unit of vgpu-memory. percentage_resource: if empty, percentages are ignored. resources: all
    names.
    """

    number_resource: str = "volcano.sh/vgpu-number"
    memory_resource: str = "volcano.sh/vgpu-memory"
    cores_resource: str = "volcano.sh/vgpu-cores"
    percentage_resource: str = "volcano.sh/vgpu-memory-percentage"
    memory_factor: int = 1
    geometries: tuple[MigModel, ...] = ()
    resources: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        named = {self.number_resource, self.memory_resource, self.cores_resource, self.percentage_resource}
        # Computed once, because it is needed for every container.
        object.__setattr__(self, "resources", frozenset(named - {""}))

    @property
    def claimed(self) -> frozenset[str]:
        """All of its names."""
        return self.resources


@dataclass(frozen=True, slots=True, kw_only=True)
class ExclusiveRule:
    """Pods with all of these labels never share a card with each other (nvidia.md 3.10)."""

    labels: frozenset[tuple[str, str]]

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether *labels* have every label of the rule with exactly its value."""
        return all(labels.get(key) == value for key, value in self.labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExclusiveRules(Section):
    """The exclusive rules of Volcano's scheduler, in order."""

    rules: tuple[ExclusiveRule, ...] = ()


def _table(checks: Checks, found: object) -> VgpuTable:
    section = checks.mapping(found, nvidia_section.KEY)
    checks.note_unknown(section, (*nvidia_section.KEYS, *nvidia_section.VOLCANOS_KEYS), "nvidia.")
    default = VgpuTable()

    def resource(key: str, otherwise: str) -> str:
        return checks.text(section[key], f"nvidia.{key}", otherwise) if section.get(key) else otherwise

    return VgpuTable(
        number_resource=resource("resourceCountName", default.number_resource),
        memory_resource=resource("resourceMemoryName", default.memory_resource),
        cores_resource=resource("resourceCoreName", default.cores_resource),
        # Without a name, percentages are no request at all (nvidia 1.7), unlike the other three.
        percentage_resource=resource("resourceMemoryPercentageName", ""),
        # 0 means "not set" upstream, and makes the plugin divide by zero.
        memory_factor=checks.whole(section.get("gpuMemoryFactor") or 1, "nvidia.gpuMemoryFactor", 1, MAX_FACTOR, 1),
        geometries=each(
            checks, section.get("knownMigGeometries"), "nvidia.knownMigGeometries", partial(_model, checks)
        ),
    )


def _model(checks: Checks, found: Mapping[str, Any], place: str) -> MigModel:
    checks.note_unknown(found, ("models", "allowedGeometries"), f"{place}.")
    return MigModel(
        models=checks.texts(found.get("models"), f"{place}.models"),
        groups=each(checks, found.get("allowedGeometries"), f"{place}.allowedGeometries", partial(_group, checks)),
    )


def _group(checks: Checks, found: Mapping[str, Any], place: str) -> MigGroup:
    checks.note_unknown(found, ("group", "geometries"), f"{place}.")
    name = checks.text(found.get("group"), f"{place}.group")
    if not _ID_SYNTAX.isdisjoint(name):
        checks.wrong(f"{place}.group", name, "write a name without any of - [ ] , : ;")
    return MigGroup(
        name=name,
        profiles=each(checks, found.get("geometries"), f"{place}.geometries", partial(_profile, checks)),
    )


def _profile(checks: Checks, found: Mapping[str, Any], place: str) -> MigProfile:
    checks.note_unknown(found, ("name", "memory", "count", "core"), f"{place}.")
    return MigProfile(
        name=checks.text(found.get("name"), f"{place}.name"),
        memory_mib=checks.whole(found.get("memory"), f"{place}.memory", 1, MAX_INT32, 1),
        count=checks.whole(found.get("count"), f"{place}.count", 1, 1024, 1),
    )


def _rules(checks: Checks, given: Mapping[str, Any], init_params: Mapping[str, bool]) -> ExclusiveRules:
    """Return the exclusive rules. Upstream would drop a label that is not text, so that more pods match (S29)."""
    del init_params
    return ExclusiveRules(rules=each(checks, given.get(_RULES), f"deviceshare.{_RULES}", partial(_rule, checks)))


def _rule(checks: Checks, found: Mapping[str, Any], place: str) -> ExclusiveRule:
    if not found:
        checks.wrong(place, found, "write the labels of the pods that are never to share a card")
    for key, value in found.items():
        if not isinstance(value, str):
            checks.wrong(
                f"{place}: label {quoted(key)}", value, "write a text: labels have no other values; put it in quotes"
            )
    return ExclusiveRule(labels=frozenset([(key, value) for key, value in found.items() if isinstance(value, str)]))


SECTION: Final = DeviceSection(
    key=nvidia_section.KEY,
    table=VgpuTable,
    read=_table,
    means=nvidia_section.is_volcanos_section,
    levels=(nvidia_section.LEVEL,),
)
ARGUMENTS: Final = SchedulerArguments(ExclusiveRules, _rules, deviceshare=(_RULES,))
