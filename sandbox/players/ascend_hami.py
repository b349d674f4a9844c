"""Plays the HAMi device plugin for Ascend of one node, with templates or soft slices.

Every step of an Allocate follows the real plugin (ascend 2.1 step 9, 2.2), over the API server, and so do its failures.
`hami_serving` finds and marks the pod, and `ascend_hami_protocol` reads its annotations.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from core.tables import SHIPPED_CHIPS, AscendChip
from sandbox.nodes.plugin_port import ContainerEnv
from sandbox.players import ascend_hami_protocol as protocol
from sandbox.players import calls
from sandbox.players.calls import Api
from sandbox.players.hami_serving import Serving
from sandbox.players.hardware import Card, Faults, Options

_CHIPS: Final = {chip.common_word: chip for chip in SHIPPED_CHIPS}
# Positions 0 to 3 of the plugin's list are one ring, all others the next (ascend 1.4).
_RING: Final = 4
_ONE_RING: Final = "Ascend910C"


@dataclass(frozen=True, slots=True, kw_only=True)
class AscendSetup:
    """The plugin's configuration: chips of one type; soft: slices by memory and cores instead of templates."""

    chip: AscendChip
    cards: tuple[Card, ...]
    soft: bool = False

    @property
    def split_count(self) -> int:
        """The number of kubelet devices for one chip."""
        return self.chip.allocatable_mib // self.chip.templates[0].memory_mib if self.chip.templates else 1

    def register(self) -> str:
        """Return the node's register; zero and false fields are omitted (ascend 1.4)."""
        return json.dumps([self._device(at, card) for at, card in enumerate(self.cards)], separators=(",", ":"))

    def _device(self, at: int, card: Card) -> dict[str, Any]:
        word = self.chip.common_word
        found: dict[str, Any] = {
            "id": card.id,
            "index": at,
            "count": self.split_count,
            "devmem": self.chip.allocatable_mib,
            "devcore": 100 if self.soft else self.chip.ai_core,
            "type": word,
            "health": card.healthy,
        }
        found = {key: value for key, value in found.items() if value}
        if word.startswith("Ascend910"):
            found["custominfo"] = {"NetworkID": 0 if word == _ONE_RING else min(at // _RING, 1)}
        return {**found, "devicepairscore": {}}


class AscendHamiPlugin:
    """The plugin of one node.

    Attributes:
        faults: the faults to inject.
    """

    def __init__(self, node_name: str, setup: AscendSetup, faults: Faults, api: Api) -> None:
        self.faults = faults
        self._node_name = node_name
        self._setup = setup
        self._api = api
        self._serving = Serving(node_name, api, "no pending pod found on node", faults)

    @property
    def meant_for(self) -> str:
        """The uid of the pod whose assignment the last answered call used."""
        return self._serving.meant_for

    @classmethod
    def from_options(cls, node_name: str, options: Mapping[str, Any], api: Api) -> AscendHamiPlugin:
        """Build the plugin from plain data: ``chip`` (a common word), ``mode``, the keys of `Options.cards`, `Faults`.

        Raises:
            OptionsError: a key or value is invalid.
        """
        given = Options("ascend-hami", options)
        setup = AscendSetup(
            chip=_CHIPS[given.word("chip", "Ascend310P", tuple(_CHIPS))],
            soft=given.word("mode", "template", ("template", "hami-core")) == "hami-core",
            cards=given.cards(node_name, "NPU"),
        )
        faults = given.faults()
        given.end()
        return cls(node_name, setup, faults, api)

    @property
    def resources(self) -> tuple[str, ...]:
        """The plugin's only device list in kubelet."""
        return (self._setup.chip.resource,)

    async def start(self) -> None:
        """Write the register and the node's resources."""
        setup = self._setup
        total = len(setup.cards) * setup.split_count
        healthy = sum(card.healthy for card in setup.cards) * setup.split_count
        await calls.advertise(self._api, self._node_name, {setup.chip.resource: total}, {setup.chip.resource: healthy})
        word, now = setup.chip.common_word, datetime.now(UTC)
        notes = {
            f"hami.io/node-register-{word}": setup.register(),
            f"hami.io/node-handshake-{word}": f"Reported_{now:%Y.%m.%d %H:%M:%S}",
            protocol.NODE_SOFT: "true" if setup.soft else "false",
        }
        await calls.annotate(self._api, calls.node_path(self._node_name), notes)

    async def set_healthy(self, card_id: str, healthy: bool) -> None:
        """Set whether a chip is healthy and register again."""
        cards = tuple(replace(card, healthy=healthy) if card.id == card_id else card for card in self._setup.cards)
        self._setup = replace(self._setup, cards=cards)
        await self.start()

    async def allocate(self, resource: str, count: int) -> ContainerEnv:
        """Serve the next container of the pod in the lock, or of the guessed pod."""
        del resource
        await self.faults.before_call()

        async def give(pod: Mapping[str, Any]) -> tuple[ContainerEnv, bool]:
            # The mark is set after the first container, whatever is left for the others (D-1).
            return await self._served(pod, count), True

        return await self._serving.serve(give)

    async def _served(self, pod: Mapping[str, Any], asked: int) -> ContainerEnv:
        word, notes = self._setup.chip.common_word, protocol.annotations_of(pod)
        keys = (protocol.runtime_info(word), protocol.to_allocate(word))
        for key in keys:
            if key not in notes:
                raise protocol.RequestError(f"annotation {key} not found")
        infos = protocol.decode_runtime_info(notes[keys[0]])
        segments = protocol.decode(notes[keys[1]])
        position, _, devices = protocol.next_request(segments, protocol.container_names(pod))
        if len(devices) != asked:
            raise protocol.RequestError(f"device number not matched: asked {asked}, assigned {len(devices)}")
        self.faults.fail_if_asked()
        physical = [self._physical_id(device.id) for device in devices]
        erased = protocol.erase(segments, position)
        await calls.annotate(self._api, calls.pod_path(pod), {keys[1]: erased})
        info = [infos.get(device.id, protocol.RuntimeInfo()) for device in devices]
        return _env(physical, info, soft=notes.get(protocol.MODE) == protocol.SOFT_MODE)

    def _physical_id(self, uuid: str) -> int:
        for at, card in enumerate(self._setup.cards):
            if card.id == uuid:
                return at
        raise protocol.RequestError(f"unknown uuid: {uuid}")


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
