"""Plays MindCluster's device plugin of one node with Ascend 310P chips, which it divides by template for each pod.

Besides serving calls, it reports the devices of a pod some time after kubelet has allocated them
(``huawei.com/AscendReal``), and destroys unused devices before it creates new ones. Source: protocol reference, ascend
1.3 to 1.9, 2.3.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from sandbox.client import WORLD_FAILED, ApiCalls, node_path, pod_path
from sandbox.nodes.plugin_port import AllocateError, ContainerEnv
from sandbox.players import mindcluster_protocol as protocol
from sandbox.players import objects
from sandbox.players.objects import annotations_of, is_over
from sandbox.players.player import Faults, Player, PluginOptions

_NAMESPACE: Final = "kube-system"
_TRIES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MindClusterSetup:
    """The plugin's configuration: the health of each chip by id, and delays of its reports and retries."""

    healthy: tuple[bool, ...]
    cores_per_chip: int = 8
    report_after_s: float = 5.0
    retry_after_s: float = 1.0
    first_vnpu: int = 100

    @property
    def usable(self) -> tuple[int, ...]:
        """The ids of healthy chips."""
        return tuple(at for at, healthy in enumerate(self.healthy) if healthy)


class MindClusterPlugin(Player[MindClusterSetup]):
    """The plugin of one node."""

    def __init__(self, node_name: str, setup: MindClusterSetup, faults: Faults, api: ApiCalls) -> None:
        super().__init__(node_name, setup, faults, api)
        self._next_id = setup.first_vnpu
        self._next_core = 0
        # Devices of calls that kubelet has not reported yet, and devices of pods by uid.
        self._made: list[tuple[protocol.Device, ...]] = []
        self._of_pod: dict[str, tuple[protocol.Device, ...]] = {}

    @classmethod
    def read(cls, given: PluginOptions, node_name: str) -> MindClusterSetup:
        """Read ``chips``, ``unhealthy`` and the other keys of `MindClusterSetup`."""
        del node_name
        chips = given.whole("chips", 1)
        unhealthy = {piece for piece in given.word("unhealthy", "").split(",") if piece}
        return MindClusterSetup(
            healthy=tuple(str(at) not in unhealthy for at in range(chips)),
            cores_per_chip=given.whole("cores_per_chip", 8),
            report_after_s=given.number("report_after_s", 5.0),
            retry_after_s=given.number("retry_after_s", 1.0),
            first_vnpu=given.whole("first_vnpu", 100),
        )

    @property
    def resources(self) -> tuple[str, ...]:
        """The plugin's only device list in kubelet."""
        return (protocol.CORES,)

    async def start(self) -> None:
        """Write labels, the names of the chips, the node's resources, and the unhealthy chips."""
        setup = self._setup
        path = node_path(self._node_name)
        node = await self._api.get(path)
        labels = node["metadata"].get("labels") or {}
        told = {"node.kubernetes.io/npu.chip.name": "310P3"}
        if "servertype" not in labels:
            told["servertype"] = f"Ascend310P-{setup.cores_per_chip}"
        base = {f"Ascend310P-{at}": {"IP": "", "SuperDeviceID": 0} for at in range(len(setup.healthy))}
        annotations = {"baseDeviceInfos": json.dumps(base, separators=(",", ":"))}
        await self._api.patch(path, {"metadata": {"labels": told, "annotations": annotations}})
        await objects.advertise(
            self._api,
            self._node_name,
            {protocol.CORES: len(setup.healthy) * setup.cores_per_chip},
            {protocol.CORES: len(setup.usable) * setup.cores_per_chip},
        )
        await self._write_devices()

    async def set_healthy(self, chip: int, healthy: bool) -> None:
        """Set whether a chip is healthy and report it."""
        states = list(self._setup.healthy)
        states[chip] = healthy
        self._setup = replace(self._setup, healthy=tuple(states))
        await self.start()

    async def settle(self, pod: Mapping[str, Any], env: ContainerEnv) -> None:
        """Learn from kubelet which pod has the devices of *env*, and report them later if not yet reported."""
        uid = pod["metadata"]["uid"]
        visible = env.get("ASCEND_VISIBLE_DEVICES", "")
        made = next((one for one in self._made if ",".join(str(device.id) for device in one) == visible), None)
        if made is None:
            return
        self._made.remove(made)
        self._of_pod[uid] = made
        cores = sum(protocol.TEMPLATES[one.template][0] if one.template else self._setup.cores_per_chip for one in made)
        ids = sorted(f"npu-core-{self._next_core + at}" for at in range(cores))
        self._next_core += cores
        await asyncio.sleep(self._setup.report_after_s)
        try:
            now = await self._api.get(pod_path(pod))
            if now["metadata"]["uid"] == uid and protocol.REAL not in annotations_of(now):
                report = {protocol.REAL: protocol.real_names(made), protocol.KUBELET_DEVICES: ",".join(ids)}
                await objects.annotate(self._api, pod_path(pod), report)
            await self._write_devices()
        except WORLD_FAILED:
            # The pod or the server is gone; the real plugin retries in its next round if the pod exists.
            return

    @property
    def devices(self) -> tuple[protocol.Device, ...]:
        """All existing vNPUs, and all whole chips in use."""
        return tuple(device for group in (*self._made, *self._of_pod.values()) for device in group)

    async def serve(self, resource: str, count: int) -> ContainerEnv:
        """Serve *count* AI cores to the pod that the plugin assumes is being admitted."""
        del resource
        pod = await self._find(count)
        await objects.annotate(self._api, pod_path(pod), {protocol.PREDICATE_TIME: protocol.SERVED})
        self.faults.fail_if_asked()
        assigned = protocol.decode(annotations_of(pod)[protocol.ASSIGNED])
        if assigned is None:
            raise AllocateError("not get valid pod")
        await self._destroy_idle()
        setup = self._setup
        try:
            made = protocol.cut(self.devices, assigned, setup.usable, setup.cores_per_chip, self._next_id)
        except protocol.SegmentError as e:
            raise AllocateError(str(e)) from e
        self._next_id += 1
        self._made.append(tuple(made))
        self.meant_for = pod["metadata"].get("uid", "")
        return protocol.environment(made)

    async def _find(self, asked: int) -> Mapping[str, Any]:
        for attempt in range(_TRIES):
            if attempt:
                await asyncio.sleep(self._setup.retry_after_s)
            pod = protocol.candidate(await self.pods_here(), self._node_name, asked, self._setup.cores_per_chip)
            if pod is not None:
                return pod
        raise AllocateError("not get valid pod")

    async def _destroy_idle(self) -> None:
        """Destroy unused devices: of pods that ended or are gone, and of failed calls."""
        alive = {pod["metadata"]["uid"] for pod in await self.pods_here() if not is_over(pod)}
        self._of_pod = {uid: devices for uid, devices in self._of_pod.items() if uid in alive}
        self._made.clear()

    async def _write_devices(self) -> None:
        """Write the plugin's own ConfigMap: completely free chips, and unhealthy chips."""
        setup = self._setup
        in_use = {device.chip for device in self.devices}
        names = {at: f"Ascend310P-{at}" for at in range(len(setup.healthy))}
        devices = {
            "huawei.com/Ascend310P": ",".join(names[at] for at in setup.usable if at not in in_use),
            "huawei.com/Ascend310P-Fault": "[]",
            "huawei.com/Ascend310P-Unhealthy": ",".join(names[at] for at in names if at not in setup.usable),
        }
        text = json.dumps({"DeviceInfo": {"DeviceList": devices, "UpdateTime": 0}, "SuperPodID": -2, "ServerIndex": -2})
        await objects.write_config_map(
            self._api,
            _NAMESPACE,
            f"mindx-dl-deviceinfo-{self._node_name}",
            {"DeviceInfoCfg": text, "ManuallySeparateNPU": ""},
            {"mx-consumer-cim": "true"},
        )
