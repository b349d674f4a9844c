"""Plays the Volcano share plugin of one node, with strategy ``share`` (gpu-memory) or ``number`` (gpu-number)."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import aiohttp

from sandbox.client import ApiStatusError
from sandbox.nodes.plugin_port import AllocateError, ContainerEnv
from sandbox.players import calls
from sandbox.players import gpushare_protocol as protocol
from sandbox.players.calls import Api
from sandbox.players.hardware import Card, Faults, Options


class Strategy(StrEnum):
    """What the plugin sells: memory of shared cards, or whole cards."""

    SHARE = "share"
    NUMBER = "number"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareSetup:
    """The plugin's configuration; the first card's memory counts for all, as in the real plugin."""

    cards: tuple[Card, ...]
    strategy: Strategy = Strategy.SHARE
    memory_factor: int = 1

    @property
    def unhealthy(self) -> str:
        """The indices of unhealthy cards, as in the node annotation."""
        return ",".join(str(i) for i, card in enumerate(self.cards) if not card.healthy)


class SharePlugin:
    """The plugin of one node.

    Attributes:
        faults: the faults to inject.
        meant_for: the uid of the pod whose assignment the last answered call used.
    """

    def __init__(self, node_name: str, setup: ShareSetup, faults: Faults, api: Api) -> None:
        self.faults = faults
        self._node_name = node_name
        self._setup = setup
        self._api = api
        self.meant_for = ""

    @classmethod
    def from_options(cls, node_name: str, options: Mapping[str, Any], api: Api) -> SharePlugin:
        """Build the plugin from plain data: the keys of `ShareSetup`, of `Options.cards` and of `Faults`.

        Raises:
            OptionsError: a key or value is invalid.
        """
        given = Options("gpushare", options)
        setup = ShareSetup(
            cards=given.cards(node_name),
            strategy=Strategy(given.word("strategy", Strategy.SHARE, tuple(Strategy))),
            memory_factor=given.whole("memory_factor", 1),
        )
        faults = given.faults()
        given.end()
        return cls(node_name, setup, faults, api)

    @property
    def resources(self) -> tuple[str, ...]:
        """The plugin's only device list in kubelet."""
        return (protocol.MEMORY if self._setup.strategy is Strategy.SHARE else protocol.NUMBER,)

    async def start(self) -> None:
        """Write the node's resources and its unhealthy cards."""
        count = len(self._setup.cards)
        capacity: dict[str, int | None] = {protocol.NUMBER: count}
        allocatable = dict(capacity)
        if self._setup.strategy is Strategy.SHARE:
            # With this strategy, unhealthy cards stay in kubelet's list; only the annotation lists them.
            capacity[protocol.MEMORY] = count * (self._setup.cards[0].memory_mib // self._setup.memory_factor)
            allocatable = dict(capacity)
        else:
            allocatable[protocol.NUMBER] = sum(card.healthy for card in self._setup.cards)
        await calls.advertise(self._api, self._node_name, capacity, allocatable)
        path = calls.node_path(self._node_name)
        await calls.annotate(self._api, path, {protocol.UNHEALTHY: self._setup.unhealthy or None})

    async def allocate(self, resource: str, count: int) -> ContainerEnv:
        """Serve *count* units to the pod that the plugin assumes is being admitted."""
        await self.faults.before_call()
        try:
            return await self._serve(count)
        except (ApiStatusError, aiohttp.ClientError, TimeoutError) as e:
            raise AllocateError(f"failed to reach the API server: {e}") from e

    async def _serve(self, asked: int) -> ContainerEnv:
        selector = f"spec.nodeName={self._node_name},status.phase=Pending"
        pods = await self._api.list(calls.PODS, field_selector=selector)
        pod = protocol.candidate(pods, asked)
        if pod is None:
            raise AllocateError("failed to find candidate pod")
        self.faults.fail_if_asked()
        try:
            indices = protocol.indices(pod, len(self._setup.cards))
        except protocol.IndexAnnotationError as e:
            raise AllocateError(str(e)) from e
        await self._mark_assigned(pod)
        await calls.drop_lock(self._api, self._node_name, protocol.LOCK)
        self.meant_for = pod["metadata"].get("uid", "")
        return {
            "NVIDIA_VISIBLE_DEVICES": ",".join(map(str, indices)),
            "VOLCANO_GPU_ALLOCATED": str(asked * self._setup.memory_factor),
            "VOLCANO_GPU_MEMORY_TOTAL": str(self._setup.cards[0].memory_mib),
        }

    async def _mark_assigned(self, pod: Mapping[str, Any]) -> None:
        # A full update with the listed version: a write in between makes the call fail (409).
        assigned = deepcopy(dict(pod))
        assigned.setdefault("apiVersion", "v1")
        assigned.setdefault("kind", "Pod")
        assigned["metadata"].setdefault("annotations", {})[protocol.ASSIGNED] = "true"
        await self._api.update(calls.pod_path(pod), assigned)
