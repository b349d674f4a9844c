"""Plays HAMi's device plugin for NVIDIA cards of one node, v2.10.

Every step of an Allocate follows the real plugin (hami 3.3, 3.4), over the API server, and so do its failures.
`hami_serving`, shared with HAMi's plugin for Ascend, finds and marks the pod; `hami_instances` has the instances.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from sandbox.client import ApiStatusError, PatchKind
from sandbox.nodes.plugin_port import ContainerEnv
from sandbox.players import ascend_hami_protocol as protocol
from sandbox.players import calls, hami_instances
from sandbox.players.calls import Api
from sandbox.players.hami_serving import Serving
from sandbox.players.hardware import Card, Faults, Options, OptionsError

RESOURCE: Final = "nvidia.com/gpu"
REGISTER: Final = "hami.io/node-nvidia-register"
TO_ALLOCATE: Final = "hami.io/vgpu-devices-to-allocate"
_NVIDIA: Final = "NVIDIA"
_MIG: Final = "mig"
_CONFLICT: Final = 409


@dataclass(frozen=True, slots=True, kw_only=True)
class HamiSetup:
    """The plugin's configuration: its cards, the number of shares of each, and the name of the sharing mode."""

    cards: tuple[Card, ...]
    split: int = 10
    mode: str = "hami-core"

    def register(self) -> str:
        """Return the node's register; zero and false fields are omitted (hami 2.1)."""
        return json.dumps([self._device(at, card) for at, card in enumerate(self.cards)], separators=(",", ":"))

    def _device(self, at: int, card: Card) -> dict[str, Any]:
        mig = self.mode == _MIG
        found: dict[str, Any] = {
            "id": card.id,
            "index": at,
            "count": hami_instances.COUNT if mig else self.split,
            "devmem": card.memory_mib,
            "devcore": 100,
            "type": card.model if card.model.startswith(_NVIDIA) else f"{_NVIDIA}-{card.model}",
            "mode": self.mode,
            "health": card.healthy,
            "migProfiles": hami_instances.profiles() if mig else [],
        }
        return {key: value for key, value in found.items() if value}


class HamiPlugin:
    """The plugin of one node.

    Attributes:
        faults: the faults to inject.
    """

    def __init__(self, node_name: str, setup: HamiSetup, faults: Faults, api: Api) -> None:
        self.faults = faults
        self._node_name = node_name
        self._setup = setup
        self._api = api
        self._serving = Serving(node_name, api, "no binding pod found on node", faults)
        self._instances = hami_instances.Instances()

    @property
    def meant_for(self) -> str:
        """The uid of the pod whose assignment the last answered call used."""
        return self._serving.meant_for

    @classmethod
    def from_options(cls, node_name: str, options: Mapping[str, Any], api: Api) -> HamiPlugin:
        """Build the plugin from plain data: ``split``, ``mode``, the keys of `Options.cards`, `Faults`.

        In mode ``mig`` all cards are of the only model with known profiles.

        Raises:
            OptionsError: a key or value is invalid.
        """
        given = Options("hami", options)
        setup = HamiSetup(
            split=given.whole("split", 10),
            mode=given.word("mode", "hami-core", ("hami-core", "mps", _MIG)),
            cards=given.cards(node_name),
        )
        known = (hami_instances.MODEL, hami_instances.MEMORY_MIB)
        if setup.mode == _MIG and any((card.model, card.memory_mib) != known for card in setup.cards):
            raise OptionsError(
                f"hami: mode {_MIG} is played for model {known[0]} with memory_mib {known[1]}; write these"
            )
        faults = given.faults()
        given.end()
        return cls(node_name, setup, faults, api)

    @property
    def resources(self) -> tuple[str, ...]:
        """The plugin's only device list in kubelet."""
        return (RESOURCE,)

    async def start(self) -> None:
        """Write the register and the node's resources."""
        setup = self._setup
        total = len(setup.cards) * setup.split
        healthy = sum(card.healthy for card in setup.cards) * setup.split
        await calls.advertise(self._api, self._node_name, {RESOURCE: total}, {RESOURCE: healthy})
        await calls.annotate(self._api, calls.node_path(self._node_name), {REGISTER: setup.register()})

    async def set_healthy(self, card_id: str, healthy: bool) -> None:
        """Set whether a card is healthy and register again."""
        cards = tuple(replace(card, healthy=healthy) if card.id == card_id else card for card in self._setup.cards)
        self._setup = replace(self._setup, cards=cards)
        await self.start()

    async def allocate(self, resource: str, count: int) -> ContainerEnv:
        """Serve the next container of the pod in the lock, or of the guessed pod."""
        del resource
        await self.faults.before_call()

        async def give(pod: Mapping[str, Any]) -> tuple[ContainerEnv, bool]:
            env, left = await self._give(pod, count)
            return env, _NVIDIA not in left

        return await self._serving.serve(give)

    async def _give(self, pod: Mapping[str, Any], asked: int) -> tuple[ContainerEnv, str]:
        notes = protocol.annotations_of(pod)
        if TO_ALLOCATE not in notes:
            raise protocol.RequestError("device request not found")
        segments = protocol.decode(notes[TO_ALLOCATE])
        names = protocol.container_names(pod)
        position, _, devices = protocol.next_request(segments, names)
        if position >= len(names):
            raise protocol.RequestError(f"container index {position} out of range")
        if len(devices) != asked:
            raise protocol.RequestError("device number not matched")
        self.faults.fail_if_asked()
        env = await self._cut(pod, position, devices) if self._setup.mode == _MIG else _env(devices)
        left = protocol.erase(segments, position)
        await calls.annotate(self._api, calls.pod_path(pod), {TO_ALLOCATE: left})
        return env, left

    async def _cut(self, pod: Mapping[str, Any], position: int, devices: protocol.Segment) -> ContainerEnv:
        """Return a container's environment with instances, which are written with the version that was read (HN-33)."""
        pods = await self._api.list(calls.PODS, field_selector=f"spec.nodeName={self._node_name}")
        self._instances.sweep(pods)
        found, text = self._instances.give(pod, position, devices)
        meta = {
            "resourceVersion": pod["metadata"]["resourceVersion"],
            "annotations": {hami_instances.RESERVATIONS: text},
        }
        try:
            await self._api.patch(calls.pod_path(pod), {"metadata": meta}, PatchKind.STRATEGIC)
        except ApiStatusError as e:
            self._instances.take_back(found, pods)
            if e.status != _CONFLICT:
                raise
            raise protocol.RequestError(f"record MIG runtime placement: {e}") from e
        return {"NVIDIA_VISIBLE_DEVICES": ",".join(dict.fromkeys(one.uuid for one in found))}


def _env(devices: protocol.Segment) -> ContainerEnv:
    """Return the environment of one container (hami 1.8); 0 MiB means no limit, and cores are the first device's."""
    limits = {f"CUDA_DEVICE_MEMORY_LIMIT_{at}": f"{one.fields[2]}m" for at, one in enumerate(devices)}
    visible = ",".join(dict.fromkeys(one.id for one in devices))
    return {"NVIDIA_VISIBLE_DEVICES": visible, "CUDA_DEVICE_SM_LIMIT": devices[0].fields[3], **limits}
