"""Plays the kubelets of many nodes: one API client that admits the pods bound to them, in its own order.

It is an ordinary client with its own user. `admit` has its decisions, `admit` its writes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

import structlog

from sandbox.client import PODS, WORLD_FAILED, ApiClient, ApiStatusError, Json, PatchKind, node_path, pod_path
from sandbox.nodes import admit
from sandbox.nodes.nodefile import NodeSpec
from sandbox.nodes.plugin_port import (
    DIED,
    AllocateError,
    BeatingPlugin,
    ContainerEnv,
    DeviceLists,
    DevicePlugin,
    DevicesUnavailableError,
    Records,
    Served,
    SettlingPlugin,
    TellingPlugin,
)

# A pod with this annotation ends as Succeeded after this many seconds.
RUN_SECONDS: Final = "sandbox.cardshare.io/run-seconds"
# A pod with this annotation takes this many seconds to stop, at most its grace period.
STOP_SECONDS: Final = "sandbox.cardshare.io/stop-seconds"

_RETRY_S: Final = 0.5
_log = structlog.get_logger()


class AdmissionOrder(StrEnum):
    """The order in which waiting pods of one node are admitted; the order of binding is not available."""

    CREATED = "created"
    NEWEST_FIRST = "newest-first"
    SHUFFLED = "shuffled"
    WATCH = "watch"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedNode:
    """A node and its device plugins; devices: kubelet's lists of their devices."""

    spec: NodeSpec
    plugins: tuple[DevicePlugin, ...] = ()
    devices: DeviceLists = field(default_factory=DeviceLists)


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletSettings:
    """Settings of the player.

    Attributes:
        order: admission order of pods that wait on one node.
        seed: seed of the shuffled order.
        admission_delay_s: wait before each admission, so that several pods can wait at once.
        heartbeat_s: interval between writes of a node's Ready condition.
        admits_vanished: whether a pod that is deleted while it waits is still admitted, from kubelet's copy.
        node_status_delay_s: delay until the node's status shows the plugins' devices; on real nodes up to 10 s.
        plugin_calls_per_s: limit of the API calls of the plugins of one node; 0: unlimited.
    """

    order: AdmissionOrder = AdmissionOrder.CREATED
    seed: int = 0
    admission_delay_s: float = 0.0
    heartbeat_s: float = 300.0
    admits_vanished: bool = True
    node_status_delay_s: float = 0.0
    plugin_calls_per_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class _Node:
    """The player's state of one of its nodes."""

    played: PlayedNode
    address: str
    allocatable: Mapping[str, str] = field(default_factory=dict)
    pending: dict[str, Json] = field(default_factory=dict)
    holding: dict[str, dict[str, Decimal]] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    stopping: set[str] = field(default_factory=set)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    is_ready: bool = True
    # Set while it admits pods; while cleared, it only records them.
    admits: asyncio.Event = field(default_factory=asyncio.Event)
    # Pods that were deleted while they waited: already gone, or to be stopped after their admission.
    vanished: dict[str, Json | None] = field(default_factory=dict)
    dead: set[object] = field(default_factory=set)
    calling: tuple[DevicePlugin, asyncio.Task[ContainerEnv]] | None = None


class Kubelet:
    """The kubelets of *nodes*."""

    def __init__(
        self,
        client: ApiClient,
        nodes: tuple[PlayedNode, ...],
        records: Records,
        clock: Callable[[], datetime],
        settings: KubeletSettings | None = None,
    ) -> None:
        self._client = client
        self._settings = settings or KubeletSettings()
        self._records = records
        self._clock = clock
        self._random = random.Random(self._settings.seed)  # noqa: S311  (an order for tests, repeatable)
        addresses = admit.addresses(len(nodes))
        self._nodes = {
            played.spec.name: _Node(played=played, address=address)
            for played, address in zip(nodes, addresses, strict=True)
        }

    async def register(self) -> None:
        """Create the nodes and start their plugins; an existing node becomes ready again."""
        async with asyncio.TaskGroup() as group:
            limit = asyncio.Semaphore(16)
            for name, node in self._nodes.items():
                group.create_task(self._register(node, limit), name=f"register-{name}")

    async def run(self) -> None:
        """Play until cancelled; call `register` first."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._mirror("/api/v1/nodes", "", self._heed_node, group), name="kubelet-nodes")
            group.create_task(self._mirror(PODS, "spec.nodeName!=", self._heed_pod, group), name="kubelet-pods")
            group.create_task(self._beat(), name="kubelet-heartbeat")
            for name, node in self._nodes.items():
                group.create_task(self._work(node, group), name=f"kubelet-{name}")
                if self._settings.node_status_delay_s:
                    group.create_task(self._tell_devices(name, node.played.devices), name=f"kubelet-status-{name}")
                for plugin in node.played.plugins:
                    if isinstance(plugin, BeatingPlugin):
                        group.create_task(self._let_beat(node, plugin), name=f"plugin-beat-{name}")

    async def set_ready(self, name: str, *, is_ready: bool) -> None:
        """Set whether a node is ready; running pods continue."""
        self._nodes[name].is_ready = is_ready
        await self._write_ready(name)

    async def rejoin(self, name: str) -> None:
        """Register a deleted node again; its running pods continue."""
        await self._register(self._nodes[name], asyncio.Semaphore(1))

    def pause(self, name: str) -> None:
        """Stop admitting pods on a node, but keep recording them."""
        self._nodes[name].admits.clear()

    def resume(self, name: str) -> None:
        """Resume admitting pods on a node."""
        self._nodes[name].admits.set()

    async def kill_plugins(self, name: str) -> None:
        """End the processes of a node's plugins, including calls in progress; kubelet notices at once."""
        node = self._nodes[name]
        node.dead.update(node.played.plugins)
        node.played.devices.lose([resource for plugin in node.played.plugins for resource in plugin.resources])
        if node.calling is not None:
            node.calling[1].cancel()
        if not self._settings.node_status_delay_s:
            await self._write_devices(name, node.played.devices)

    async def revive_plugins(self, name: str) -> None:
        """Start the plugins of a node again."""
        node = self._nodes[name]
        node.dead.clear()
        for plugin in node.played.plugins:
            await plugin.start()

    def devices(self, name: str) -> DeviceLists:
        return self._nodes[name].played.devices

    def plugins(self, name: str) -> tuple[DevicePlugin, ...]:
        """Return the plugins of a node, so that tests can make them fail or their cards unhealthy."""
        return self._nodes[name].played.plugins

    async def _register(self, node: _Node, limit: asyncio.Semaphore) -> None:
        async with limit:
            obj = admit.node(node.played.spec, node.address, self._now())
            try:
                await self._client.create("/api/v1/nodes", obj)
            except ApiStatusError as e:
                if e.reason != "AlreadyExists":
                    raise
                await self._write_ready(node.played.spec.name)
            for plugin in node.played.plugins:
                await plugin.start()
            await self._write_devices(node.played.spec.name, node.played.devices)
            node.admits.set()

    async def _tell_devices(self, name: str, devices: DeviceLists) -> None:
        """Write the plugins' devices into the node's status, with the delay."""
        while True:
            await devices.changed.wait()
            await asyncio.sleep(self._settings.node_status_delay_s)
            try:
                await self._write_devices(name, devices)
            except WORLD_FAILED as e:
                _log.warning("devices not written", node=name, error=str(e))

    async def _write_devices(self, name: str, devices: DeviceLists) -> None:
        if status := devices.told():
            await self._client.patch(f"{node_path(name)}/status", {"status": status}, PatchKind.STRATEGIC)

    async def _let_beat(self, node: _Node, plugin: BeatingPlugin) -> None:
        """Let a plugin write its heartbeats while it lives."""
        while plugin.beat_s:
            await asyncio.sleep(plugin.beat_s)
            if plugin in node.dead:
                continue
            try:
                await plugin.beat()
            except WORLD_FAILED as e:
                _log.warning("plugin cannot write to its node", node=node.played.spec.name, error=str(e))

    async def _mirror(
        self, path: str, fields: str, heed: Callable[[str, Json, asyncio.TaskGroup], None], group: asyncio.TaskGroup
    ) -> None:
        async for event in self._client.follow(path, {"fieldSelector": fields} if fields else None):
            heed(event.type, event.object, group)

    def _heed_node(self, kind: str, obj: Json, group: asyncio.TaskGroup) -> None:
        del group
        node = self._nodes.get(obj["metadata"]["name"])
        if node is None:
            return
        node.allocatable = {} if kind == "DELETED" else (obj.get("status") or {}).get("allocatable") or {}
        node.wake.set()

    def _heed_pod(self, kind: str, pod: Json, group: asyncio.TaskGroup) -> None:
        node = self._nodes.get(pod["spec"].get("nodeName") or "")
        if node is None:
            return
        uid = pod["metadata"]["uid"]
        if uid in node.pending and self._settings.admits_vanished and kind == "DELETED":
            node.vanished[uid] = None
            node.stopping.discard(uid)
        elif kind == "DELETED":
            self._forget(node, uid)
            node.stopping.discard(uid)
            node.seen.discard(uid)
        elif uid in node.pending and self._settings.admits_vanished and pod["metadata"].get("deletionTimestamp"):
            node.vanished[uid] = pod
        elif pod["metadata"].get("deletionTimestamp"):
            self._forget(node, uid)
            node.seen.add(uid)
            if uid not in node.stopping:
                node.stopping.add(uid)
                group.create_task(self._stop(node, pod), name=f"stop-{uid}")
        elif admit.is_terminal(pod):
            self._forget(node, uid)
            node.seen.add(uid)
        elif uid in node.pending or uid not in node.seen:
            self._heed_new(node, pod, group)

    def _heed_new(self, node: _Node, pod: Json, group: asyncio.TaskGroup) -> None:
        uid = pod["metadata"]["uid"]
        node.seen.add(uid)
        if (pod.get("status") or {}).get("phase") == "Running":
            # It was admitted before this player started, and has its devices.
            node.holding[uid] = admit.requests(pod)
            self._let_end(node, pod, group)
            return
        node.pending[uid] = pod
        node.wake.set()

    def _forget(self, node: _Node, uid: str) -> None:
        node.pending.pop(uid, None)
        node.holding.pop(uid, None)

    async def _work(self, node: _Node, group: asyncio.TaskGroup) -> None:
        """Admit the pods of one node, one at a time, as kubelet does."""
        while True:
            await node.wake.wait()
            node.wake.clear()
            while node.pending and node.allocatable:
                await node.admits.wait()
                if self._settings.admission_delay_s:
                    await asyncio.sleep(self._settings.admission_delay_s)
                if not node.pending:
                    break
                pod = node.pending.pop(self._next(node))
                try:
                    await self._admit(node, pod, group)
                except WORLD_FAILED as e:
                    _log.warning("pod status not written", pod=_name(pod), node=node.played.spec.name, error=str(e))
                self._part_with_vanished(node, pod["metadata"]["uid"], group)

    def _part_with_vanished(self, node: _Node, uid: str, group: asyncio.TaskGroup) -> None:
        """Drop a pod that was deleted before its admission."""
        if uid not in node.vanished:
            return
        stopping = node.vanished.pop(uid)
        self._forget(node, uid)
        if stopping is None:
            node.seen.discard(uid)
        elif uid not in node.stopping:
            node.stopping.add(uid)
            group.create_task(self._stop(node, stopping), name=f"stop-{uid}")

    def _next(self, node: _Node) -> str:
        order = self._settings.order
        if order is AdmissionOrder.WATCH:
            return next(iter(node.pending))
        if order is AdmissionOrder.SHUFFLED:
            # Uids differ from run to run; names do not.
            return self._random.choice(sorted(node.pending, key=lambda uid: _name(node.pending[uid])))
        # Of pods created in the same second, the one that was seen first counts as older.
        by_age = sorted(node.pending, key=lambda uid: node.pending[uid]["metadata"]["creationTimestamp"])
        return by_age[-1 if order is AdmissionOrder.NEWEST_FIRST else 0]

    async def _admit(self, node: _Node, pod: Json, group: asyncio.TaskGroup) -> None:
        uid = pod["metadata"]["uid"]
        wanted = admit.requests(pod)
        short = admit.shortage(wanted, node.holding.values(), node.allocatable)
        if short is not None:
            await self._write_status(pod, admit.turned_away(short.reason, short.message, self._now()))
            return
        node.holding[uid] = wanted
        try:
            await self._allocate(node, pod, group)
        except (AllocateError, DevicesUnavailableError) as e:
            node.holding.pop(uid, None)
            why = f"rpc error: code = Unknown desc = {e.message}" if isinstance(e, AllocateError) else str(e)
            message = f"Allocate failed due to {why}, which is unexpected"
            await self._write_status(pod, admit.turned_away("UnexpectedAdmissionError", message, self._now()))
            return
        await self._write_status(pod, admit.running(pod, node.address, self._now()))
        self._let_end(node, pod, group)

    async def _allocate(self, node: _Node, pod: Json, group: asyncio.TaskGroup) -> None:
        plugins = {resource: plugin for plugin in node.played.plugins for resource in plugin.resources}
        uid = pod["metadata"]["uid"]
        for ask in admit.asks(pod, plugins):
            plugin = plugins[ask.resource]
            held = [amounts for holder, amounts in node.holding.items() if holder != uid]
            node.played.devices.check(ask.resource, ask.count, held)
            env = await self._call(node, plugin, ask)
            self._records.put(_name(pod), uid, ask.container, env)
            if isinstance(plugin, TellingPlugin) and plugin.meant_for:
                self._records.served.append(Served(_name(pod), uid, ask.container, plugin.meant_for))
            if isinstance(plugin, SettlingPlugin):
                group.create_task(plugin.settle(pod, env), name=f"settle-{pod['metadata']['uid']}")

    async def _call(self, node: _Node, plugin: DevicePlugin, ask: admit.Ask) -> ContainerEnv:
        """Return a plugin's answer; the plugin may die during the call and leave its work half done."""
        if plugin in node.dead:
            raise AllocateError(DIED)
        # A task outside the group, awaited here, because in a group its failure would end the kubelet.
        task = asyncio.create_task(plugin.allocate(ask.resource, ask.count), name=f"allocate {ask.resource}")
        node.calling = (plugin, task)
        try:
            return await task
        except asyncio.CancelledError as e:
            if plugin in node.dead and task.cancelled():
                raise AllocateError(DIED) from e
            task.cancel()
            raise
        except WORLD_FAILED as e:
            # A plugin that cannot reach the API server returns an error like any other.
            raise AllocateError(str(e)) from e
        finally:
            node.calling = None

    def _let_end(self, node: _Node, pod: Json, group: asyncio.TaskGroup) -> None:
        seconds = admit.seconds_of(pod, RUN_SECONDS)
        if seconds is not None:
            group.create_task(self._end(node, pod, seconds), name=f"end-{pod['metadata']['uid']}")

    async def _end(self, node: _Node, pod: Json, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if node.holding.pop(pod["metadata"]["uid"], None) is None:
            return
        await self._insist(pod, lambda: self._write_status(pod, admit.succeeded(pod, self._now())))

    async def _stop(self, node: _Node, pod: Json) -> None:
        """Stop the containers within the grace period and write how they ended, then remove the object."""
        metadata = pod["metadata"]
        grace_s = float(metadata.get("deletionGracePeriodSeconds") or 0)
        await asyncio.sleep(min(admit.seconds_of(pod, STOP_SECONDS) or 0.0, grace_s))
        if (pod.get("status") or {}).get("phase") == "Running":
            await self._write_status(pod, admit.stopped(pod, self._now()))
        await self._insist(pod, lambda: self._client.delete(pod_path(pod), grace_s=0, uid=metadata["uid"]))

    async def _insist(self, pod: Json, write: Callable[[], Any]) -> None:
        """Write until the server accepts, or reports that the pod is gone or another."""
        while True:
            try:
                await write()
            except ApiStatusError as e:
                if e.status in (404, 409, 422):
                    return
                _log.warning("pod not written", pod=_name(pod), error=str(e))
            except WORLD_FAILED as e:
                _log.warning("pod not written", pod=_name(pod), error=str(e))
            else:
                return
            await asyncio.sleep(_RETRY_S)

    async def _write_status(self, pod: Json, status: Json) -> None:
        path = f"{pod_path(pod)}/status"
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        # Admission policies let only the kubelet of a pod's own node end it.
        client = self._client.named(f"system:node:{pod['spec']['nodeName']}")
        await self._insist(pod, lambda: client.patch(path, body, PatchKind.STRATEGIC))

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._settings.heartbeat_s)
            for name in self._nodes:
                try:
                    await self._write_ready(name)
                except WORLD_FAILED as e:
                    _log.warning("heartbeat not written", node=name, error=str(e))

    async def _write_ready(self, name: str) -> None:
        status = admit.ready(self._now(), is_ready=self._nodes[name].is_ready)
        await self._client.patch(f"{node_path(name)}/status", {"status": status}, PatchKind.STRATEGIC)

    def _now(self) -> str:
        return self._clock().strftime("%Y-%m-%dT%H:%M:%SZ")


def _name(pod: Mapping[str, Any]) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
