"""Plays NVIDIA's own device plugin of one node: whole GPUs by count, chosen only by kubelet and the plugin.

It reads and writes no annotations of pods. It also plays GPU feature discovery: the node's labels show the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import aiohttp

from sandbox.client import ApiStatusError
from sandbox.nodes.plugin_port import AllocateError, ContainerEnv
from sandbox.players import calls
from sandbox.players.calls import Api
from sandbox.players.hardware import Card, Faults, Options

RESOURCE: Final = "nvidia.com/gpu"
_WORLD_FAILED: Final = (ApiStatusError, aiohttp.ClientError, TimeoutError)


@dataclass(frozen=True, slots=True, kw_only=True)
class NvidiaSetup:
    """The plugin's configuration; replicas above 1 mean time-slicing, with this many advertised devices per card."""

    cards: tuple[Card, ...]
    replicas: int = 1

    @property
    def product(self) -> str:
        """The product in the label of GPU feature discovery."""
        model = "-".join(self.cards[0].model.split())
        return f"{model}-SHARED" if self.replicas > 1 else model


class NvidiaPlugin:
    """The plugin of one node."""

    def __init__(self, node_name: str, setup: NvidiaSetup, faults: Faults, api: Api) -> None:
        self.faults = faults
        self._node_name = node_name
        self._setup = setup
        self._api = api
        # Allocated cards, once per replica, by the uid of their pod; "" until kubelet reports the pod.
        self._given: list[tuple[str, tuple[str, ...]]] = []

    @classmethod
    def from_options(cls, node_name: str, options: Mapping[str, Any], api: Api) -> NvidiaPlugin:
        """Build the plugin from plain data: ``replicas``, the keys of `Options.cards`, and those of `Faults`.

        Raises:
            OptionsError: a key or value is invalid.
        """
        given = Options("nvidia", options)
        setup = NvidiaSetup(cards=given.cards(node_name), replicas=given.whole("replicas", 1))
        faults = given.faults()
        given.end()
        return cls(node_name, setup, faults, api)

    @property
    def resources(self) -> tuple[str, ...]:
        """The plugin's only device list in kubelet."""
        return (RESOURCE,)

    async def start(self) -> None:
        """Write the labels of GPU feature discovery and the node's resources; unhealthy cards are not allocatable."""
        cards, replicas = self._setup.cards, self._setup.replicas
        labels = {
            "nvidia.com/gpu.present": "true",
            "nvidia.com/gpu.product": self._setup.product,
            "nvidia.com/gpu.count": str(len(cards)),
            "nvidia.com/gpu.memory": str(cards[0].memory_mib),
            "nvidia.com/gpu.replicas": str(replicas),
        }
        await self._api.patch(calls.node_path(self._node_name), {"metadata": {"labels": labels}})
        healthy = sum(card.healthy for card in cards)
        await calls.advertise(
            self._api, self._node_name, {RESOURCE: len(cards) * replicas}, {RESOURCE: healthy * replicas}
        )

    async def set_healthy(self, card_id: str, healthy: bool) -> None:
        """Set whether a card is healthy and advertise again."""
        cards = tuple(replace(card, healthy=healthy) if card.id == card_id else card for card in self._setup.cards)
        self._setup = replace(self._setup, cards=cards)
        await self.start()

    async def allocate(self, resource: str, count: int) -> ContainerEnv:
        """Allocate *count* free cards, those with the fewest holders first."""
        del resource
        await self.faults.before_call()
        try:
            pods = await self._api.list(calls.PODS, field_selector=f"spec.nodeName={self._node_name}")
        except _WORLD_FAILED as e:
            raise AllocateError(f"failed to reach the API server: {e}") from e
        self.faults.fail_if_asked()
        alive = {pod["metadata"]["uid"] for pod in pods if not _is_over(pod)}
        self._given = [given for given in self._given if given[0] in alive]
        held = [card for _, cards in self._given for card in cards]
        free = sorted(
            (held.count(card.id) + replica, at, card.id)
            for at, card in enumerate(self._setup.cards)
            if card.healthy
            for replica in range(self._setup.replicas - held.count(card.id))
        )
        if len(free) < count:
            raise AllocateError(f"requested {count} devices, {len(free)} are free")
        chosen = tuple(card for _, _, card in free[:count])
        self._given.append(("", chosen))
        return {"NVIDIA_VISIBLE_DEVICES": ",".join(dict.fromkeys(chosen))}

    async def settle(self, pod: Mapping[str, Any], env: ContainerEnv) -> None:
        """Learn from kubelet which pod has the cards of *env*."""
        for at, (uid, cards) in enumerate(self._given):
            if not uid and ",".join(dict.fromkeys(cards)) == env.get("NVIDIA_VISIBLE_DEVICES"):
                self._given[at] = (pod["metadata"]["uid"], cards)
                return


def _is_over(pod: Mapping[str, Any]) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
