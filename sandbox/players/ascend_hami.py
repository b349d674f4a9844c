"""Plays the HAMi device plugin for Ascend of one node, with templates or soft slices.

Every step of an Allocate follows the real plugin (ascend 2.1 step 9, 2.2), over the API server, and so do its failures.
`hami_serving` finds and marks the pod, and `ascend_hami_protocol` reads its annotations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from core.dialects.ascend_hami.table import SHIPPED_CHIPS, AscendChip
from sandbox.nodes.plugin_port import ContainerEnv
from sandbox.players import ascend_hami_protocol as protocol
from sandbox.players.hami_serving import HamiLikePlugin, Setup, Turn
from sandbox.players.objects import annotations_of
from sandbox.players.player import Card, PluginOptions

_CHIPS: Final = {chip.named.type: chip for chip in SHIPPED_CHIPS}
# Positions 0 to 3 of the plugin's list are one ring, all others the next (ascend 1.4).
_RING: Final = 4
_ONE_RING: Final = "Ascend910C"


@dataclass(frozen=True, slots=True, kw_only=True)
class AscendSetup(Setup):
    """The plugin's configuration: chips of one type; soft: slices by memory and cores instead of templates."""

    chip: AscendChip
    soft: bool = False

    def notes(self) -> Mapping[str, str]:
        word, now = self.chip.named.type, datetime.now(UTC)
        return {
            f"hami.io/node-register-{word}": self.register(),
            f"hami.io/node-handshake-{word}": f"Reported_{now:%Y.%m.%d %H:%M:%S}",
            protocol.NODE_SOFT: "true" if self.soft else "false",
        }

    def device(self, at: int, card: Card) -> Mapping[str, Any]:
        word = self.chip.named.type
        found: dict[str, Any] = {
            "id": card.id,
            "index": at,
            "count": self.shares,
            "devmem": self.chip.allocatable_mib,
            "devcore": 100 if self.soft else self.chip.ai_core,
            "type": word,
            "health": card.healthy,
        }
        if word.startswith("Ascend910"):
            found["custominfo"] = {"NetworkID": 0 if word == _ONE_RING else min(at // _RING, 1)}
        return {**found, "devicepairscore": {}}


class AscendHamiPlugin(HamiLikePlugin[AscendSetup]):
    """The plugin of one node."""

    @classmethod
    def read(cls, given: PluginOptions, node_name: str) -> AscendSetup:
        """Read ``chip`` (a common word), ``mode`` and the keys of `PluginOptions.cards`."""
        chip = _CHIPS[given.word("chip", "Ascend310P", tuple(_CHIPS))]
        return AscendSetup(
            chip=chip,
            resource=chip.named.cards,
            to_allocate=protocol.to_allocate(chip.named.type),
            also=protocol.runtime_info(chip.named.type),
            shares=chip.allocatable_mib // chip.templates[0].memory_mib if chip.templates else 1,
            soft=given.word("mode", "template", ("template", "hami-core")) == "hami-core",
            cards=given.cards(node_name, "NPU"),
        )

    async def give(self, pod: Mapping[str, Any], turn: Turn) -> ContainerEnv:
        notes = annotations_of(pod)
        infos = protocol.decode_runtime_info(notes[self._setup.also])
        physical = [self._physical_id(device.id) for device in turn.devices]
        info = [infos.get(device.id, protocol.RuntimeInfo()) for device in turn.devices]
        return _env(physical, info, soft=notes.get(protocol.MODE) == protocol.SOFT_MODE)

    def _physical_id(self, uuid: str) -> int:
        for at, card in enumerate(self._setup.cards):
            if card.id == uuid:
                return at
        raise protocol.HamiRequestError(f"unknown uuid: {uuid}")


def _env(physical: list[int], info: list[protocol.RuntimeInfo], *, soft: bool) -> ContainerEnv:
    """Return the environment of one container (ascend 1.9); only the pod's annotation selects the kind of slices."""
    env = {"ASCEND_VISIBLE_DEVICES": ",".join(map(str, physical))}
    if not soft:
        template = next((one.template for one in info if one.template), "")
        return env | ({"ASCEND_VNPU_SPECS": template} if template else {})
    first = info[0]
    if first.cores:
        env["NPU_PRIORITY"] = str(first.cores)
    return env | {
        "NPU_MEM_QUOTA": str(first.memory_mib),
        "NPU_GLOBAL_SHM_PATH": f"/hami-shared-region/{physical[0]}_global_registry",
        "NPU_LOCAL_SHM_PATH": "/hami-vnpu-shmem/vnpu_local_shmem",
    }
