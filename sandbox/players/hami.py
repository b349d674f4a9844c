"""Plays HAMi's device plugin for NVIDIA cards of one node, v2.10.

Every step of an Allocate follows the real plugin (hami 3.3, 3.4), over the API server, and so do its failures.
`hami_serving` has what it shares with HAMi's other plugins; `hami_instances` has the instances.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sandbox.client import ApiCalls, ApiStatusError, PatchKind, pod_path
from sandbox.nodes.plugin_port import ContainerEnv
from sandbox.players import ascend_hami_protocol as protocol
from sandbox.players import hami_instances
from sandbox.players.hami_serving import HamiLikePlugin, Setup, Turn
from sandbox.players.player import Card, Faults, OptionsError, PluginOptions

RESOURCE: Final = "nvidia.com/gpu"
REGISTER: Final = "hami.io/node-nvidia-register"
TO_ALLOCATE: Final = "hami.io/vgpu-devices-to-allocate"
_NVIDIA: Final = "NVIDIA"
_MIG: Final = "mig"
_CONFLICT: Final = 409
# What strconv reads; Python's int() would also accept blanks, underscores and other scripts' digits.
_SIGNED: Final = re.compile(r"[+-]?[0-9]{1,64}", re.ASCII)
_FROM_INT32: Final = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class HamiSetup(Setup):
    """The plugin's configuration: its cards, the number of shares of each, and the name of the sharing mode."""

    resource: str = RESOURCE
    to_allocate: str = TO_ALLOCATE
    shares: int = 10
    mode: str = "hami-core"

    def notes(self) -> Mapping[str, str]:
        return {REGISTER: self.register()}

    def device(self, at: int, card: Card) -> Mapping[str, Any]:
        mig = self.mode == _MIG
        return {
            "id": card.id,
            "index": at,
            "count": hami_instances.COUNT if mig else self.shares,
            "devmem": card.memory_mib,
            "devcore": 100,
            "type": card.model if card.model.startswith(_NVIDIA) else f"{_NVIDIA}-{card.model}",
            "mode": self.mode,
            "health": card.healthy,
            "migProfiles": hami_instances.profiles() if mig else [],
        }


class HamiPlugin(HamiLikePlugin[HamiSetup]):
    """The plugin of one node."""

    nobody = "no binding pod found on node"
    missing = "device request not found"
    mismatch = "device number not matched"

    def __init__(self, node_name: str, setup: HamiSetup, faults: Faults, api: ApiCalls) -> None:
        super().__init__(node_name, setup, faults, api)
        self._instances = hami_instances.Instances()

    @classmethod
    def read(cls, given: PluginOptions, node_name: str) -> HamiSetup:
        """Read ``split``, ``mode`` and the keys of `PluginOptions.cards`.

        In mode ``mig`` all cards are of the only model with known profiles.
        """
        setup = HamiSetup(
            shares=given.whole("split", 10),
            mode=given.word("mode", "hami-core", ("hami-core", "mps", _MIG)),
            cards=given.cards(node_name),
        )
        known = (hami_instances.MODEL, hami_instances.MEMORY_MIB)
        if setup.mode == _MIG and any((card.model, card.memory_mib) != known for card in setup.cards):
            raise OptionsError(
                f"hami: mode {_MIG} is played for model {known[0]} with memory_mib {known[1]}; write these"
            )
        return setup

    def decoded(self, value: str) -> tuple[protocol.Segment, ...]:
        """Return the segments of *value*; one figure that is no int32 is an error for all of it (hami 1.9)."""
        segments = super().decoded(value)
        for text in (text for segment in segments for device in segment for text in device.fields[2:4]):
            if not _SIGNED.fullmatch(text) or not -_FROM_INT32 <= int(text) < _FROM_INT32:
                raise protocol.HamiRequestError(f'strconv.ParseInt: parsing "{text}": not an int32')
        return segments

    def ends(self, turn: Turn) -> bool:
        """Return whether nothing is left."""
        return _NVIDIA not in turn.left

    async def give(self, pod: Mapping[str, Any], turn: Turn) -> ContainerEnv:
        if turn.position >= len(protocol.container_names(pod)):
            raise protocol.HamiRequestError(f"container index {turn.position} out of range")
        return await self._cut(pod, turn) if self._setup.mode == _MIG else _env(turn.devices)

    async def _cut(self, pod: Mapping[str, Any], turn: Turn) -> ContainerEnv:
        """Return a container's environment with instances, which are written with the version that was read (HN-33)."""
        pods = await self.pods_here()
        self._instances.sweep(pods)
        found, text = self._instances.give(pod, turn.position, turn.devices)
        meta = {
            "resourceVersion": pod["metadata"]["resourceVersion"],
            "annotations": {hami_instances.RESERVATIONS: text},
        }
        try:
            await self._api.patch(pod_path(pod), {"metadata": meta}, PatchKind.STRATEGIC)
        except ApiStatusError as e:
            self._instances.take_back(found, pods)
            if e.status != _CONFLICT:
                raise
            raise protocol.HamiRequestError(f"record MIG runtime placement: {e}") from e
        return {"NVIDIA_VISIBLE_DEVICES": ",".join(dict.fromkeys(one.uuid for one in found))}


def _env(devices: protocol.Segment) -> ContainerEnv:
    """Return the environment of one container (hami 1.8); 0 MiB means no limit, and cores are the first device's."""
    limits = {f"CUDA_DEVICE_MEMORY_LIMIT_{at}": f"{one.fields[2]}m" for at, one in enumerate(devices)}
    visible = ",".join(dict.fromkeys(one.id for one in devices))
    return {"NVIDIA_VISIBLE_DEVICES": visible, "CUDA_DEVICE_SM_LIMIT": devices[0].fields[3], **limits}
