"""Plays the Volcano vGPU device plugin of one node, in hami-core, mps or mig mode.

Every step of an Allocate follows the real plugin (nvidia 2.4, step 9), over the API server, and so do its failures.
`vgpu_protocol` reads the annotations.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

from sandbox.client import PODS, WORLD_FAILED, ApiCalls, ApiStatusError, pod_path
from sandbox.nodes.plugin_port import DIED, AllocateError, ContainerEnv
from sandbox.players import mig, objects
from sandbox.players import vgpu_protocol as protocol
from sandbox.players.objects import annotations_of, is_over
from sandbox.players.player import Card, CardPlayer, CardSetup, Faults, PluginOptions

NUMBER: Final = "volcano.sh/vgpu-number"
MEMORY: Final = "volcano.sh/vgpu-memory"
CORES: Final = "volcano.sh/vgpu-cores"
MIG: Final = "mig"
# Where the plugin reads its configuration; the first existing one wins (nvidia 1.7).
CONFIG_MAP: Final = "volcano-vgpu-device-config"
CONFIG_NAMESPACES: Final = ("kube-system", "volcano-system")
CONFIG_KEY: Final = "device-config.yaml"

# How often a plugin writes what it does not find again, and how long it waits in between (P21).
_WRITES: Final = 3
_REST_S: Final = 0.5

_SWITCHED_ON: Final = ("NVIDIA_GDRCOPY", "NVIDIA_GDS", "NVIDIA_MOFED")


@dataclass(frozen=True, slots=True, kw_only=True)
class VgpuSetup(CardSetup):
    """The plugin's configuration: memory_factor is MiB per unit, core_scaling multiplies a card's 100 percent.

    version: the release to play. beat_s: interval between heartbeats of releases that write them. lists_step_s: delay
    between the reports of two device lists to kubelet, at every start.
    """

    mode: str = "hami-core"
    split_count: int = 10
    memory_factor: int = 1
    core_scaling: float = 1.0
    version: protocol.Version = protocol.Version.MAIN
    beat_s: float = 30.0
    lists_step_s: float = 0.0

    def register(self, cards: Sequence[Card] | None = None) -> str:
        """Return the node's register, in the order of *cards*, or of the node's own (nvidia 1.10)."""
        return "".join(
            f"{card.id},{self.split_count},{card.memory_mib // self.memory_factor},NVIDIA-{card.model},"
            f"{'true' if card.healthy else 'false'},{self.mode}:"
            for card in (self.cards if cards is None else cards)
        )

    def totals(self) -> dict[str, int]:
        """Return what kubelet advertises for the three device lists."""
        return {
            NUMBER: len(self.cards) * self.split_count,
            MEMORY: sum(card.memory_mib // self.memory_factor for card in self.cards),
            CORES: len(self.cards) * int(100 * self.core_scaling),
        }


class _NotFoundAgainError(Exception):
    """What was written is not what is read."""


class VgpuPlugin(CardPlayer[VgpuSetup]):
    """The plugin of one node.

    Attributes:
        panics: how often its process died: a value crashed it, or a MIG layout could not be applied.
        layouts: the MIG layouts of its cards.
    """

    def __init__(self, node_name: str, setup: VgpuSetup, faults: Faults, api: ApiCalls) -> None:
        super().__init__(node_name, setup, faults, api)
        self.panics = 0
        self.layouts = mig.Layouts()
        self._order = random.Random(node_name)  # noqa: S311  (an order for tests, repeatable)

    @classmethod
    def read(cls, given: PluginOptions, node_name: str) -> VgpuSetup:
        """Read the keys of `VgpuSetup` and of `PluginOptions.cards`."""
        return VgpuSetup(
            cards=given.cards(node_name),
            mode=given.word("mode", "hami-core", ("hami-core", "mps", MIG)),
            split_count=given.whole("split_count", 10),
            memory_factor=given.whole("memory_factor", 1),
            core_scaling=given.number("core_scaling", 1.0),
            version=protocol.Version(given.word("version", protocol.Version.MAIN, tuple(protocol.Version))),
            beat_s=given.number("beat_s", 30.0),
            lists_step_s=given.number("lists_step_s", 0.0),
        )

    @property
    def resources(self) -> tuple[str, ...]:
        """The plugin's three device lists in kubelet."""
        return (NUMBER, MEMORY, CORES)

    @property
    def beat_s(self) -> float:
        """The interval between heartbeats in seconds; 0 if the version writes only changes."""
        return self._setup.beat_s if self._setup.version.beats else 0.0

    async def beat(self) -> None:
        """Write register and handshake once more."""
        await self.report()

    async def become(self, version: protocol.Version) -> None:
        """Restart as another version; what the previous one wrote stays on the node."""
        self._setup = replace(self._setup, version=version)
        await self.start()

    async def start(self) -> None:
        """Write the register and the node's resources; the three device lists are reported one at a time."""
        if self._setup.mode == MIG:
            self.layouts.read(await self._device_config())
        totals = self._setup.totals()
        if not self._setup.lists_step_s:
            await objects.advertise(self._api, self._node_name, totals, totals)
            await self.report()
            return
        await self.report()
        for resource, total in totals.items():
            await objects.advertise(self._api, self._node_name, {resource: total}, {resource: total})
            await asyncio.sleep(self._setup.lists_step_s)

    async def serve(self, resource: str, count: int) -> ContainerEnv:
        """Serve the next container of the pod that the plugin assumes is being admitted."""
        self.meant_for = ""
        if resource != NUMBER:
            return {}
        try:
            return await self._serve(count)
        except protocol.PluginPanicError as e:
            self.panics += 1
            await self.start()
            raise AllocateError(DIED) from e

    async def _serve(self, asked: int) -> ContainerEnv:
        pods = await self._api.list(PODS)
        if self._setup.version.reads_back:
            pods = tuple([pod for pod in pods if pod.get("status", {}).get("phase") == "Pending"])
        by_time = self._setup.version is protocol.Version.V1_11_0
        found = protocol.oldest_by_time(pods, self._node_name) if by_time else None
        pod = found if by_time else protocol.oldest(pods, self._node_name, asked)
        if pod is None:
            await objects.drop_lock(self._api, self._node_name, protocol.LOCK)
            raise AllocateError("cannot get valid pod")
        segments = protocol.decode(annotations_of(pod).get(protocol.TO_ALLOCATE, ""))
        try:
            _, devices = protocol.next_request(segments, [c["name"] for c in pod["spec"]["containers"]])
        except protocol.VgpuRequestError as e:
            await self._mark(pod, "failed")
            raise AllocateError(str(e)) from e
        if len(devices) != asked:
            await self._mark(pod, "failed")
            raise AllocateError("device number not matched")
        self.faults.fail_if_asked()
        env = self._mig_env(devices, pod, pods) if self._setup.mode == MIG else self._env(devices)
        await self._erase(pod, segments)
        await self._finish_if_served(pod)
        self.meant_for = pod["metadata"].get("uid", "")
        return env

    async def _device_config(self) -> str:
        """Return the plugin's own configuration; without one, it serves nothing that needs it."""
        for namespace in CONFIG_NAMESPACES:
            try:
                found = await self._api.get(f"/api/v1/namespaces/{namespace}/configmaps/{CONFIG_MAP}")
            except ApiStatusError as e:
                if e.status != 404:
                    raise
            else:
                return str((found.get("data") or {}).get(CONFIG_KEY, ""))
        return ""

    def _card(self, card_id: str) -> Card:
        # An id that the node does not have fails the call; pod and lock stay unchanged (nvidia 2.4, 9g).
        found = next((card for card in self._setup.cards if card.id == card_id), None)
        if found is None:
            raise AllocateError(f"unknown device: {card_id}")
        return found

    async def _erase(self, pod: Mapping[str, Any], segments: tuple[protocol.Segment, ...]) -> None:
        try:
            await self._annotate(pod, {protocol.TO_ALLOCATE: protocol.erase(segments)})
        except (*WORLD_FAILED, _NotFoundAgainError) as e:
            await self._mark(pod, "failed")
            raise AllocateError(f"failed to erase the served devices: {e}") from e

    async def _annotate(self, pod: Mapping[str, Any], values: Mapping[str, str]) -> None:
        """Write *values* on *pod*; a version that reads back writes what it does not find again.

        Raises:
            _NotFoundAgainError: it was not there after the last write either.
        """
        for attempt in range(_WRITES if self._setup.version.reads_back else 1):
            if attempt:
                await asyncio.sleep(_REST_S)
            await objects.annotate(self._api, pod_path(pod), values)
            if not self._setup.version.reads_back:
                return
            found = annotations_of(await self._api.get(pod_path(pod)))
            if all(found.get(key) == value for key, value in values.items()):
                return
        raise _NotFoundAgainError(f"annotations {', '.join(values)} are not as they were written")

    async def _finish_if_served(self, pod: Mapping[str, Any]) -> None:
        # An admission webhook may have inserted the next container's segment in place of the erased one (nvidia 2.8).
        now = await self._api.get(pod_path(pod))
        if "GPU" not in annotations_of(now).get(protocol.TO_ALLOCATE, ""):
            await self._mark(now, "success")

    async def _mark(self, pod: Mapping[str, Any], phase: str) -> None:
        done = {protocol.BIND_PHASE: phase, protocol.TIME: str(protocol.DONE_TIME)}
        with suppress(_NotFoundAgainError):
            await self._annotate(pod, done)
        await objects.drop_lock(self._api, self._node_name, protocol.LOCK)

    async def report(self) -> None:
        """Write the register, and the handshake of versions that have one."""
        setup = self._setup
        if not setup.version.beats:
            await self.note({protocol.REGISTER: setup.register()})
            return
        cards = self._order.sample(setup.cards, len(setup.cards))
        handshake = protocol.handshake(datetime.now(UTC))
        await self.note({protocol.REGISTER: setup.register(cards), protocol.HANDSHAKE: handshake})

    def _mig_env(
        self, devices: protocol.Segment, pod: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]
    ) -> ContainerEnv:
        """Return the environment of one container in mode mig (nvidia 1.9), after applying the required layouts."""
        in_use = {
            instance.card
            for other in pods
            if other["metadata"].get("uid", other["metadata"]["name"])
            != pod["metadata"].get("uid", pod["metadata"]["name"])
            for instance in _instances_of(other, self._node_name)
        }
        seen: list[str] = []
        for device in devices:
            instance = mig.decode(device.id)
            card = self._card(instance.card if instance is not None else device.id)
            seen.append(self.layouts.resolve(card, instance, in_use) if instance is not None else card.id)
        env = {"NVIDIA_VISIBLE_DEVICES": ",".join(dict.fromkeys(filter(None, seen)))}
        return env | dict.fromkeys(_SWITCHED_ON, "enabled")

    def _env(self, devices: protocol.Segment) -> ContainerEnv:
        """Return the environment of one container (nvidia 1.9, hami-core)."""
        for device in devices:
            self._card(device.id)
        env = {"NVIDIA_VISIBLE_DEVICES": ",".join(dict.fromkeys(device.id for device in devices))}
        for i, device in enumerate(devices):
            env[f"CUDA_DEVICE_MEMORY_LIMIT_{i}"] = f"{device.mem * self._setup.memory_factor}m"
        env["CUDA_DEVICE_SM_LIMIT"] = str(devices[0].cores)
        env["CUDA_DEVICE_MEMORY_SHARED_CACHE"] = f"/tmp/vgpu/{uuid4()}.cache"  # noqa: S108 - a path inside the container
        if self._setup.core_scaling > 1:
            env["CUDA_OVERSUBSCRIBE"] = "true"
        return env | dict.fromkeys(_SWITCHED_ON, "enabled")


def _instances_of(pod: Mapping[str, Any], node_name: str) -> list[mig.MigSlice]:
    """Return the slices that *pod* was given on the node and holds while it exists, even while being deleted.

    Slices that are still to be allocated are not in use: the driver uses the layout of the first pod served.
    """
    annotations = annotations_of(pod)
    if is_over(pod) or pod["spec"].get("nodeName") != node_name or annotations.get(protocol.NODE) != node_name:
        return []
    waiting = {device.id for s in protocol.decode(annotations.get(protocol.TO_ALLOCATE, "")) for device in s}
    held = (device.id for s in protocol.decode(annotations.get(protocol.IDS, "")) for device in s)
    found = (mig.decode(device_id) for device_id in held if device_id not in waiting)
    return [instance for instance in found if instance is not None]
