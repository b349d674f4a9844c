"""A played device plugin behind kubelet's real gRPC API: ``python -m tests.support.node.device_plugin KIND OPTIONS``.

What it answers is decided by the players of `sandbox.players`, over the API server, with the account of its pod. This
file speaks to kubelet: it registers each resource, streams its devices, and passes on calls of Allocate. Where kubelet
starts anew it registers again.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

import grpc
import structlog

from sandbox.client import ApiClient, ApiStatusError, Json, PatchKind, pod_path
from sandbox.nodes.plugin_port import AllocateError, BeatingPlugin, ContainerEnv, DevicePlugin, SettlingPlugin
from sandbox.players import registry
from tests.support.node import kubelet_wire as wire

_FOLDER: Final = Path("/var/lib/kubelet/device-plugins")
_KUBELET: Final = _FOLDER / "kubelet.sock"
_POD_RESOURCES: Final = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# As long as those of Volcano's plugin: kubelet lists them in the status of pods.
_ID: Final = "GPU-00000000-0000-4000-8000-000000000000"
_LOOK_EVERY_S: Final = 0.25
_CALL_WITHIN_S: Final = 5.0
_log = structlog.get_logger()


class NodeApi(ApiClient):
    """The plugin's way to the API server; what it says of devices that kubelet lists, kubelet hears.

    Attributes:
        listed: resources that the plugin registers with kubelet.
        totals: how many devices of each there are, and how many are healthy.
        changed: set whenever these change.
    """

    def __init__(self, *, server: str, token: str, ca_pem: bytes) -> None:
        super().__init__(server=server, token=token, ca_pem=ca_pem)
        self.listed: frozenset[str] = frozenset()
        self.totals: dict[str, tuple[int, int]] = {}
        self.changed = asyncio.Condition()

    async def patch(
        self, path: str, body: Any, kind: PatchKind = PatchKind.MERGE, params: Mapping[str, str] | None = None
    ) -> Json:
        """See `ApiClient.patch`. Resources that kubelet does not list go to the node's status."""
        if not (path.startswith("/api/v1/nodes/") and path.endswith("/status")):
            return await super().patch(path, body, kind, params)
        status: dict[str, dict[str, Any]] = body["status"]
        for resource in self.listed & status["capacity"].keys():
            whole, healthy = (status[part][resource] or "0" for part in ("capacity", "allocatable"))
            self.totals[resource] = int(whole), int(healthy)
        async with self.changed:
            self.changed.notify_all()
        rest = {part: {k: v for k, v in of.items() if k not in self.listed} for part, of in status.items()}
        return await super().patch(path, {"status": rest}, kind, params) if any(rest.values()) else {}


class Served:
    """One resource, as kubelet sees it."""

    def __init__(self, resource: str, plugin: DevicePlugin, api: NodeApi, tasks: asyncio.TaskGroup) -> None:
        self.resource = resource
        self.endpoint = f"{resource.replace('/', '-')}.sock"
        self._plugin = plugin
        self._api = api
        self._tasks = tasks
        self._unsettled: dict[frozenset[str], ContainerEnv] = {}

    def handlers(self) -> grpc.GenericRpcHandler:
        """The service, on bytes."""
        return grpc.method_handlers_generic_handler(
            wire.DEVICE_PLUGIN,
            {
                "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(_nothing),
                "ListAndWatch": grpc.unary_stream_rpc_method_handler(self._list),
                "Allocate": grpc.unary_unary_rpc_method_handler(self._allocate),
            },
        )

    async def _list(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        del request, context
        name = f"{_ID}-{self.resource.rpartition('-')[2]}"
        while True:
            whole, healthy = self._api.totals[self.resource]
            health = {f"{name}-{at}": (wire.UNHEALTHY, wire.HEALTHY)[at < healthy] for at in range(whole)}
            yield wire.device_list(health)
            async with self._api.changed:
                await self._api.changed.wait()

    async def _allocate(self, request: bytes, context: Any) -> bytes:
        # Kubelet admits one pod after the other: by now it can tell whose the devices before are.
        await self._settle()
        envs = []
        for ids in wire.allocate_request(request):
            try:
                env = await self._plugin.allocate(self.resource, len(ids))
            except AllocateError as e:
                _log.warning("refused", resource=self.resource, count=len(ids), error=e.message)
                await context.abort(grpc.StatusCode.UNKNOWN, e.message)
            _log.info("allocated", resource=self.resource, count=len(ids), env=dict(env))
            self._unsettled[frozenset(ids)] = env
            envs.append(env)
        return wire.allocate_response(envs)

    async def settle(self) -> None:
        """Ask kubelet again and again which pods have the devices that were given out, until cancelled."""
        while isinstance(self._plugin, SettlingPlugin):
            await asyncio.sleep(_LOOK_EVERY_S)
            await self._settle()

    async def _settle(self) -> None:
        """Tell the plugin of the pods that kubelet names by now."""
        if not self._unsettled or not isinstance(self._plugin, SettlingPlugin):
            return
        for held in await _pod_resources():
            if held.resource == self.resource and held.device_ids in self._unsettled:
                env = self._unsettled.pop(held.device_ids)
                with contextlib.suppress(ApiStatusError):
                    path = pod_path({"metadata": {"namespace": held.namespace, "name": held.pod}})
                    self._tasks.create_task(self._plugin.settle(await self._api.get(path), env))
        # The plugin notes what it learns at once, and reports it later.
        await asyncio.sleep(0)


async def serve(kind: str, options: Mapping[str, Any], node: str, api: NodeApi) -> None:
    """Play one plugin until cancelled."""
    plugin = registry.build(kind, node, options, api)
    api.listed = frozenset(plugin.resources)
    while True:
        try:
            async with asyncio.TaskGroup() as tasks:
                await _serve_once(plugin, api, tasks)
        except* (ApiStatusError, OSError, grpc.RpcError) as failed:
            _log.warning("starting again", error=str(failed.exceptions[0]))
            await asyncio.sleep(1)


async def _serve_once(plugin: DevicePlugin, api: NodeApi, tasks: asyncio.TaskGroup) -> None:
    """Serve one kubelet until it is gone or another."""
    kubelet = await _other_kubelet_than(0)
    await plugin.start()
    for resource in plugin.resources:
        served = Served(resource, plugin, api, tasks)
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((served.handlers(),))
        (_FOLDER / served.endpoint).unlink(missing_ok=True)
        server.add_insecure_port(f"unix://{_FOLDER / served.endpoint}")
        await server.start()
        tasks.create_task(_until_cancelled(server), name=f"serve {resource}")
        tasks.create_task(served.settle(), name=f"settle {resource}")
        await _call(_KUBELET, wire.REGISTER, wire.register_request(served.endpoint, resource))
        _log.info("registered", resource=resource, devices=api.totals.get(resource))
    tasks.create_task(_beat(plugin), name="beat")
    await _other_kubelet_than(kubelet)
    raise OSError("kubelet has started anew")


async def _other_kubelet_than(inode: int) -> int:
    """Wait for a kubelet's socket that is not *inode*, and return its inode."""
    while True:
        with contextlib.suppress(FileNotFoundError):
            if (found := _KUBELET.stat().st_ino) != inode:
                return found
        await asyncio.sleep(_LOOK_EVERY_S)


async def _until_cancelled(server: Any) -> None:
    try:
        await server.wait_for_termination()
    finally:
        await server.stop(0)


async def _beat(plugin: DevicePlugin) -> None:
    while isinstance(plugin, BeatingPlugin) and plugin.beat_s:
        await asyncio.sleep(plugin.beat_s)
        await plugin.beat()


async def _pod_resources() -> tuple[wire.Held, ...]:
    return wire.pod_resources(await _call(_POD_RESOURCES, wire.LIST_POD_RESOURCES, b""))


async def _call(socket: Path, method: str, request: bytes) -> bytes:
    async with grpc.aio.insecure_channel(f"unix://{socket}") as channel:
        answer: bytes = await channel.unary_unary(method)(request, timeout=_CALL_WITHIN_S)
        return answer


async def _nothing(request: bytes, context: Any) -> bytes:
    del request, context
    return b""


async def main() -> None:
    """As the pod's arguments and account say, until SIGTERM."""
    kind, options = sys.argv[1:]
    server = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
    token = (_ACCOUNT / "token").read_text(encoding="ascii")
    api = NodeApi(server=server, token=token, ca_pem=(_ACCOUNT / "ca.crt").read_bytes())
    async with api:
        serving = asyncio.create_task(serve(kind, json.loads(options), os.environ["NODE_NAME"], api))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await serving


if __name__ == "__main__":
    asyncio.run(main())
