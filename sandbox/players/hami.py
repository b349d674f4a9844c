"""Plays HAMi's device plugin for NVIDIA cards of one node, v2.10, in the modes without instances.

Every step of an Allocate is the real one (hami 3.3, 3.4), over the API server, and so are its failures. It finds and
reads its pod as HAMi's plugin for Ascend does, which stands in `ascend_hami_protocol`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import aiohttp

from sandbox.client import ApiStatusError
from sandbox.nodes.plugin_port import AllocateError, ContainerEnv
from sandbox.players import ascend_hami_protocol as protocol
from sandbox.players import calls
from sandbox.players.calls import Api
from sandbox.players.hardware import Card, Faults, Options

RESOURCE: Final = "nvidia.com/gpu"
REGISTER: Final = "hami.io/node-nvidia-register"
TO_ALLOCATE: Final = "hami.io/vgpu-devices-to-allocate"
_WORLD_FAILED: Final = (ApiStatusError, aiohttp.ClientError, TimeoutError)
_NVIDIA: Final = "NVIDIA"


@dataclass(frozen=True, slots=True, kw_only=True)
class HamiSetup:
    """The plugin's configuration: its cards, how many shares each has, and the word for how they are shared."""

    cards: tuple[Card, ...]
    split: int = 10
    mode: str = "hami-core"

    def register(self) -> str:
        """The node's register; fields that are zero or false are left out (hami 2.1)."""
        return json.dumps([self._device(at, card) for at, card in enumerate(self.cards)], separators=(",", ":"))

    def _device(self, at: int, card: Card) -> dict[str, Any]:
        found: dict[str, Any] = {
            "id": card.id,
            "index": at,
            "count": self.split,
            "devmem": card.memory_mib,
            "devcore": 100,
            "type": card.model if card.model.startswith(_NVIDIA) else f"{_NVIDIA}-{card.model}",
            "mode": self.mode,
            "health": card.healthy,
        }
        return {key: value for key, value in found.items() if value}


class HamiPlugin:
    """The plugin of one node.

    Attributes:
        faults: what it is to do wrong.
        meant_for: the uid of the pod whose assignment the last answered call took.
    """

    def __init__(self, node_name: str, setup: HamiSetup, faults: Faults, api: Api) -> None:
        self.faults = faults
        self._node_name = node_name
        self._setup = setup
        self._api = api
        self.meant_for = ""

    @classmethod
    def from_options(cls, node_name: str, options: Mapping[str, Any], api: Api) -> HamiPlugin:
        """Build the plugin from plain data: ``split``, ``mode``, the keys of `Options.cards`, `Faults`.

        Raises:
            OptionsError: a key or value cannot be used.
        """
        given = Options("hami", options)
        setup = HamiSetup(
            split=given.whole("split", 10),
            mode=given.word("mode", "hami-core", ("hami-core", "mps")),
            cards=given.cards(node_name),
        )
        faults = given.faults()
        given.end()
        return cls(node_name, setup, faults, api)

    @property
    def resources(self) -> tuple[str, ...]:
        """The one device list that the plugin registers with kubelet."""
        return (RESOURCE,)

    async def start(self) -> None:
        """Write the register and what the node has."""
        setup = self._setup
        total = len(setup.cards) * setup.split
        healthy = sum(card.healthy for card in setup.cards) * setup.split
        await calls.advertise(self._api, self._node_name, {RESOURCE: total}, {RESOURCE: healthy})
        await calls.annotate(self._api, calls.node_path(self._node_name), {REGISTER: setup.register()})

    async def set_healthy(self, card_id: str, healthy: bool) -> None:
        """Let a card become unhealthy, or recover, and register again."""
        cards = tuple(replace(card, healthy=healthy) if card.id == card_id else card for card in self._setup.cards)
        self._setup = replace(self._setup, cards=cards)
        await self.start()

    async def allocate(self, resource: str, count: int) -> ContainerEnv:
        """Serve the next container of the pod that the lock names, or else of the one that is guessed."""
        del resource
        await self.faults.before_call()
        try:
            return await self._serve(count)
        except _WORLD_FAILED as e:
            raise AllocateError(f"failed to reach the API server: {e}") from e

    async def _serve(self, asked: int) -> ContainerEnv:
        pod = await self._find()
        try:
            env, left = await self._served(pod, asked)
        except (protocol.RequestError, AllocateError) as e:
            await self._end(pod, "failed")
            raise AllocateError(str(e)) from e
        if _NVIDIA not in left:
            await self._end(pod, "success")
        self.meant_for = pod["metadata"].get("uid", "")
        return env

    async def _find(self) -> Mapping[str, Any]:
        node = await self._api.get(calls.node_path(self._node_name))
        lock = protocol.annotations_of(node).get(protocol.LOCK)
        try:
            named = protocol.locked_pod(lock) if lock is not None else None
        except protocol.RequestError as e:
            raise AllocateError(str(e)) from e
        if named is not None:
            # No look at node or phase; a pod that is gone fails every call, and the lock stays (HN-18).
            return await self._api.get(calls.pod_path({"metadata": {"namespace": named[0], "name": named[1]}}))
        pods = await self._api.list(calls.PODS, field_selector=f"spec.nodeName={self._node_name}")
        found = protocol.guess(pods, self._node_name)
        if found is None:
            raise AllocateError(f"no binding pod found on node {self._node_name}")
        return found

    async def _served(self, pod: Mapping[str, Any], asked: int) -> tuple[ContainerEnv, str]:
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
        left = protocol.erase(segments, position)
        await calls.annotate(self._api, calls.pod_path(pod), {TO_ALLOCATE: left})
        return _env(devices), left

    async def _end(self, pod: Mapping[str, Any], phase: str) -> None:
        await calls.annotate(self._api, calls.pod_path(pod), {protocol.BIND_PHASE: phase})
        node = await self._api.get(calls.node_path(self._node_name))
        lock = protocol.annotations_of(node).get(protocol.LOCK)
        if lock is not None and protocol.releases(lock, pod):
            await calls.annotate(self._api, calls.node_path(self._node_name), {protocol.LOCK: None})


def _env(devices: protocol.Segment) -> ContainerEnv:
    """The environment of one container (hami 1.8); 0 MiB is no limit, and cores are those of the first device."""
    limits = {f"CUDA_DEVICE_MEMORY_LIMIT_{at}": f"{one.fields[2]}m" for at, one in enumerate(devices)}
    visible = ",".join(dict.fromkeys(one.id for one in devices))
    return {"NVIDIA_VISIBLE_DEVICES": visible, "CUDA_DEVICE_SM_LIMIT": devices[0].fields[3], **limits}
