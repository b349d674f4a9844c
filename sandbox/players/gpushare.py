"""Plays the Volcano share plugin of one node, with strategy ``share`` (gpu-memory) or ``number`` (gpu-number).

Source: volcano-sh/devices, according to the protocol reference (nvidia 1.9, 2.2, 2.3, 5.3, 10.8).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from sandbox.client import PODS, pod_path
from sandbox.nodes.plugin_port import AllocateError, ContainerEnv
from sandbox.players import objects
from sandbox.players.objects import annotations_of, limits_of, time_of, whole
from sandbox.players.player import CardPlayer, CardSetup, PluginOptions

MEMORY: Final = "volcano.sh/gpu-memory"
NUMBER: Final = "volcano.sh/gpu-number"
INDEX: Final = "volcano.sh/gpu-index"
PREDICATE_TIME: Final = "volcano.sh/predicate-time"
ASSIGNED: Final = "volcano.sh/gpu-assigned"
UNHEALTHY: Final = "volcano.sh/gpu-unhealthy-ids"
LOCK: Final = "gpu"

_INDEX: Final = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)


class Strategy(StrEnum):
    """What the plugin sells: memory of shared cards, or whole cards."""

    SHARE = "share"
    NUMBER = "number"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareSetup(CardSetup):
    """The plugin's configuration; the first card's memory counts for all, as in the real plugin."""

    strategy: Strategy = Strategy.SHARE
    memory_factor: int = 1

    @property
    def unhealthy(self) -> str:
        """The indices of unhealthy cards, as in the node annotation."""
        return ",".join(str(i) for i, card in enumerate(self.cards) if not card.healthy)


class SharePlugin(CardPlayer[ShareSetup]):
    """The plugin of one node."""

    @classmethod
    def read(cls, given: PluginOptions, node_name: str) -> ShareSetup:
        """Read the keys of `ShareSetup` and of `PluginOptions.cards`."""
        return ShareSetup(
            cards=given.cards(node_name),
            strategy=Strategy(given.word("strategy", Strategy.SHARE, tuple(Strategy))),
            memory_factor=given.whole("memory_factor", 1),
        )

    @property
    def resources(self) -> tuple[str, ...]:
        """The plugin's only device list in kubelet."""
        return (MEMORY if self._setup.strategy is Strategy.SHARE else NUMBER,)

    async def start(self) -> None:
        """Write the node's resources and its unhealthy cards."""
        count = len(self._setup.cards)
        capacity: dict[str, int | None] = {NUMBER: count}
        allocatable = dict(capacity)
        if self._setup.strategy is Strategy.SHARE:
            # With this strategy, unhealthy cards stay in kubelet's list; only the annotation lists them.
            capacity[MEMORY] = count * (self._setup.cards[0].memory_mib // self._setup.memory_factor)
            allocatable = dict(capacity)
        else:
            allocatable[NUMBER] = sum(card.healthy for card in self._setup.cards)
        await objects.advertise(self._api, self._node_name, capacity, allocatable)
        await self.note({UNHEALTHY: self._setup.unhealthy or None})

    async def serve(self, resource: str, count: int) -> ContainerEnv:
        """Serve *count* units to the pod that the plugin assumes is being admitted."""
        selector = f"spec.nodeName={self._node_name},status.phase=Pending"
        pods = await self._api.list(PODS, field_selector=selector)
        pod = candidate(pods, count)
        if pod is None:
            raise AllocateError("failed to find candidate pod")
        self.faults.fail_if_asked()
        try:
            cards = indices(pod, len(self._setup.cards))
        except IndexAnnotationError as e:
            raise AllocateError(str(e)) from e
        await self._mark_assigned(pod)
        await objects.drop_lock(self._api, self._node_name, LOCK)
        self.meant_for = pod["metadata"].get("uid", "")
        return {
            "NVIDIA_VISIBLE_DEVICES": ",".join(map(str, cards)),
            "VOLCANO_GPU_ALLOCATED": str(count * self._setup.memory_factor),
            "VOLCANO_GPU_MEMORY_TOTAL": str(self._setup.cards[0].memory_mib),
        }

    async def _mark_assigned(self, pod: Mapping[str, Any]) -> None:
        # A full update with the listed version: a write in between makes the call fail (409).
        assigned = deepcopy(dict(pod))
        assigned.setdefault("apiVersion", "v1")
        assigned.setdefault("kind", "Pod")
        assigned["metadata"].setdefault("annotations", {})[ASSIGNED] = "true"
        await self._api.update(pod_path(pod), assigned)


class IndexAnnotationError(Exception):
    """The pod's ``gpu-index`` is missing or unreadable, or names a card that the node lacks."""


def amount(container: Mapping[str, Any]) -> int:
    """Return the request that the plugin assumes for the container: its gpu-memory if set, else its gpu-number."""
    limits = limits_of(container)
    return whole(limits.get(MEMORY, "0")) or whole(limits.get(NUMBER, "0"))


def candidate(pods: Sequence[Mapping[str, Any]], asked: int) -> Mapping[str, Any] | None:
    """Return the pod that the plugin serves: the oldest by predicate-time with a container of exactly this amount.

    Init containers are ignored. Equal times keep the order of *pods* (the real order is arbitrary).

    Args:
        pods: the node's pending pods as JSON.
        asked: the number of device ids in kubelet's call.
    """
    open_pods = sorted((pod for pod in pods if _is_open(pod)), key=lambda pod: time_of(pod, PREDICATE_TIME))
    return next((pod for pod in open_pods if any(amount(c) == asked for c in _containers(pod))), None)


def indices(pod: Mapping[str, Any], card_count: int) -> tuple[int, ...]:
    """Return the cards of ``gpu-index``.

    Raises:
        IndexAnnotationError: missing, unreadable, or a card that is not on the node.
    """
    text = annotations_of(pod).get(INDEX)
    if text is None:
        raise IndexAnnotationError(f"pod has no annotation {INDEX}")
    pieces = text.split(",")
    if not all(_INDEX.fullmatch(piece) for piece in pieces):
        raise IndexAnnotationError(f"failed to parse annotation {INDEX}: {text!r}")
    found = tuple(int(piece) for piece in pieces)
    for index in found:
        if not 0 <= index < card_count:
            raise IndexAnnotationError(f"failed to find the dev for pod: no card {index}")
    return found


def _is_open(pod: Mapping[str, Any]) -> bool:
    if pod["metadata"].get("deletionTimestamp") or pod.get("status", {}).get("reason") == "UnexpectedAdmissionError":
        return False
    if annotations_of(pod).get(ASSIGNED, "false") != "false":
        return False
    return any(amount(container) > 0 for container in _containers(pod))


def _containers(pod: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    containers: Sequence[Mapping[str, Any]] = pod["spec"]["containers"]
    return containers
