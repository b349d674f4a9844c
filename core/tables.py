"""The device configuration that dialects need besides pod and node, as values, with the plugins' defaults.

`core.wire.device_config` and `core.wire.scheduler_conf` read and validate the text.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class VgpuTable:
    """The ``nvidia`` section of device-config.yaml, as far as placing needs it (nvidia.md 1.7).

    memory_factor: MiB per unit of vgpu-memory. percentage_resource: if empty, percentages are ignored. resources: all
    names.
    """

    number_resource: str = "volcano.sh/vgpu-number"
    memory_resource: str = "volcano.sh/vgpu-memory"
    cores_resource: str = "volcano.sh/vgpu-cores"
    percentage_resource: str = "volcano.sh/vgpu-memory-percentage"
    memory_factor: int = 1
    geometries: tuple["MigModel", ...] = ()
    resources: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        named = {self.number_resource, self.memory_resource, self.cores_resource, self.percentage_resource}
        # Computed once, because it is needed for every container.
        object.__setattr__(self, "resources", frozenset(named - {""}))


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
class AscendTable:
    """The ``vnpus`` section of device-config.yaml; soft_by_default applies to nodes that do not define it."""

    chips: tuple[AscendChip, ...] = SHIPPED_CHIPS
    soft_by_default: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HamiTable:
    """The ``nvidia`` section of HAMi's own device-config.yaml, for placing and admission (hami.md 1.7).

    memory_factor: MiB per unit of gpumem. default_memory in MiB and default_cores in percent: for containers without
    them, 0 for all memory and no cores. default_count: number of cards, 0 for none. runtime_class: runtime class for
    pods with shares, "" for none. core_policy: how the cores of containers with shares are limited, "" for the plugin's
    default. hides_devices: whether containers without shares in the same pod see no GPU. installed: whether the section
    exists, so that plain ``nvidia.com/gpu`` means HAMi's. resources: all that request shares; the priority does not.
    """

    count_resource: str = "nvidia.com/gpu"
    memory_resource: str = "nvidia.com/gpumem"
    percentage_resource: str = "nvidia.com/gpumem-percentage"
    cores_resource: str = "nvidia.com/gpucores"
    priority_resource: str = "nvidia.com/priority"
    default_memory: int = 0
    default_cores: int = 0
    memory_factor: int = 1
    default_count: int = 1
    runtime_class: str = ""
    core_policy: str = ""
    hides_devices: bool = False
    installed: bool = False
    resources: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        shares = {self.memory_resource, self.percentage_resource, self.cores_resource}
        object.__setattr__(self, "resources", frozenset(shares | {self.count_resource}))


class VendorNames(NamedTuple):
    """The section of device-config.yaml for one of HAMi's other vendors: names of resources, "" and 0 for the usual."""

    cards: str = ""
    memory: str = ""
    cores: str = ""
    mib_per_unit: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExclusiveRule:
    """Pods with all of these labels never share a card with each other (nvidia.md 3.10)."""

    labels: frozenset[tuple[str, str]]

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether *labels* have every label of the rule with exactly its value."""
        return all(labels.get(key) == value for key, value in self.labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """Device configuration: what dialects need besides pod and node. A new version re-judges everything.

    vendors: the sections of HAMi's other vendors, by dialect; those without one sell nothing.
    """

    version: int = 0
    vgpu: VgpuTable = VgpuTable()
    ascend: AscendTable = AscendTable()
    hami: HamiTable = HamiTable()
    vendors: tuple[tuple[str, VendorNames], ...] = ()
    exclusive_rules: tuple[ExclusiveRule, ...] = ()
    preset_virtual_device: bool = False
    self_maintain_available_card: bool = True
    use_cluster_info_manager: bool = True

    def sells_shares_as(self, resource: str) -> bool:
        """Return whether the vGPU plugin sells its shares by *resource*, which then has no other meaning."""
        return resource in self.vgpu.resources
