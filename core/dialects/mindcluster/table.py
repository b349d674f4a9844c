"""Arguments of configuration init-params in volcano-scheduler.conf. Source: protocol reference, ascend 6.2."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from core.settings import Section
from core.wire.checked import Checks
from core.wire.vocabulary import SchedulerArguments

_PRESET: Final = "presetVirtualDevice"
_MAINTAIN: Final = "self-maintain-available-card"
_CLUSTER_INFO: Final = "useClusterInfoManager"


@dataclass(frozen=True, slots=True, kw_only=True)
class MindClusterTable(Section):
    """Whether NPUs are cut in advance, which chips count as available, and which ConfigMaps describe nodes first."""

    preset_virtual_device: bool = False
    self_maintain_available_card: bool = True
    use_cluster_info_manager: bool = True


def _table(checks: Checks, deviceshare: Mapping[str, Any], given: Mapping[str, bool]) -> MindClusterTable:
    return MindClusterTable(
        preset_virtual_device=given.get(_PRESET, False),
        self_maintain_available_card=given.get(_MAINTAIN, True),
        use_cluster_info_manager=given.get(_CLUSTER_INFO, True),
    )


ARGUMENTS: Final = SchedulerArguments(MindClusterTable, _table, init_params=(_PRESET, _MAINTAIN, _CLUSTER_INFO))
