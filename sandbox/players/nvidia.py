"""Plays NVIDIA's own device plugin of one node: whole GPUs by count, chosen only by kubelet and the plugin.

It reads and writes no annotations of pods. It also plays GPU feature discovery: the node's labels show the model.
Plugins of other vendors that do the same are played by it too, without labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sandbox.client import ApiCalls, node_path
from sandbox.nodes.plugin_port import AllocateError, ContainerEnv
from sandbox.players import objects
from sandbox.players.objects import is_over
from sandbox.players.player import CardPlayer, CardSetup, Faults, PluginOptions

RESOURCE: Final = "nvidia.com/gpu"
SEEN: Final = "NVIDIA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True, kw_only=True)
class NvidiaSetup(CardSetup):
    """The plugin's configuration.

    replicas: above 1, time-slicing, with this many advertised devices per card. resource: of the cards. seen: the
    variable in which a container finds their ids.
    """

    replicas: int = 1
    resource: str = RESOURCE
    seen: str = SEEN

    @property
    def product(self) -> str:
        """The product in the label of GPU feature discovery."""
        model = "-".join(self.cards[0].model.split())
        return f"{model}-SHARED" if self.replicas > 1 else model


class NvidiaPlugin(CardPlayer[NvidiaSetup]):
    """The plugin of one node."""

    def __init__(self, node_name: str, setup: NvidiaSetup, faults: Faults, api: ApiCalls) -> None:
        super().__init__(node_name, setup, faults, api)
        # Allocated cards, once per replica, by the uid of their pod; "" until kubelet reports the pod.
        self._given: list[tuple[str, tuple[str, ...]]] = []

    @classmethod
    def read(cls, given: PluginOptions, node_name: str) -> NvidiaSetup:
        """Read ``replicas`` and the keys of `PluginOptions.cards`."""
        return NvidiaSetup(cards=given.cards(node_name), replicas=given.whole("replicas", 1))

    @property
    def resources(self) -> tuple[str, ...]:
        """The plugin's only device list in kubelet."""
        return (self._setup.resource,)

    async def start(self) -> None:
        """Write the labels of GPU feature discovery and the node's resources; unhealthy cards are not allocatable."""
        cards, replicas, resource = self._setup.cards, self._setup.replicas, self._setup.resource
        labels = {
            "nvidia.com/gpu.present": "true",
            "nvidia.com/gpu.product": self._setup.product,
            "nvidia.com/gpu.count": str(len(cards)),
            "nvidia.com/gpu.memory": str(cards[0].memory_mib),
            "nvidia.com/gpu.replicas": str(replicas),
        }
        if resource == RESOURCE:
            await self._api.patch(node_path(self._node_name), {"metadata": {"labels": labels}})
        healthy = sum(card.healthy for card in cards)
        await objects.advertise(
            self._api, self._node_name, {resource: len(cards) * replicas}, {resource: healthy * replicas}
        )

    async def serve(self, resource: str, count: int) -> ContainerEnv:
        """Allocate *count* free cards, those with the fewest holders first."""
        del resource
        pods = await self.pods_here()
        self.faults.fail_if_asked()
        alive = {pod["metadata"]["uid"] for pod in pods if not is_over(pod)}
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
        return {self._setup.seen: ",".join(dict.fromkeys(chosen))}

    async def settle(self, pod: Mapping[str, Any], env: ContainerEnv) -> None:
        """Learn from kubelet which pod has the cards of *env*."""
        for at, (uid, cards) in enumerate(self._given):
            if not uid and ",".join(dict.fromkeys(cards)) == env.get(self._setup.seen):
                self._given[at] = (pod["metadata"]["uid"], cards)
                return
