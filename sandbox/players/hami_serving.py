"""How both of HAMi's device plugins come to their pod and leave it: by the lock, or by a guess; never by a name.

Every step is the real one (hami 3.3, 3.4; ascend 2.2), over the API server, and so are its failures. What is read into
the annotations stands in `ascend_hami_protocol`; what a pod gets is for the plugin of its cards to say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import aiohttp

from sandbox.client import ApiStatusError, PatchKind
from sandbox.nodes.plugin_port import AllocateError, ContainerEnv
from sandbox.players import ascend_hami_protocol as protocol
from sandbox.players import calls
from sandbox.players.calls import Api
from sandbox.players.hardware import Faults

Json = Mapping[str, Any]
_CONFLICT: Final = 409
# How often it tries to drop a lock, and the pause after the first try, which doubles (hami 3.4, 3.5).
_TRIES: Final = 5
_FIRST_PAUSE_S: Final = 0.1
_WORLD_FAILED: Final = (ApiStatusError, aiohttp.ClientError, TimeoutError)


class Serving:
    """The calls of one node's kubelet, answered one by one.

    Attributes:
        meant_for: the uid of the pod whose assignment the last answered call took.
    """

    def __init__(self, node_name: str, api: Api, nobody: str, faults: Faults) -> None:
        """*nobody*: what the plugin says where it finds no pod to guess; *faults*: the plugin's own."""
        self.meant_for = ""
        self._node_name = node_name
        self._api = api
        self._nobody = nobody
        self._faults = faults

    async def serve(self, give: Callable[[Json], Awaitable[tuple[ContainerEnv, bool]]]) -> ContainerEnv:
        """What *give* has for the next container of the pod whose turn it is; with True the pod is marked as served.

        Raises:
            AllocateError: the plugin's own refusal, of which it marks the pod, or the API server is not to be had.
        """
        try:
            return await self._serve(give)
        except _WORLD_FAILED as e:
            raise AllocateError(f"failed to reach the API server: {e}") from e

    async def _serve(self, give: Callable[[Json], Awaitable[tuple[ContainerEnv, bool]]]) -> ContainerEnv:
        pod = await self._find()
        try:
            env, ends = await give(pod)
        except (protocol.RequestError, AllocateError) as e:
            await self._end(pod, "failed")
            raise AllocateError(str(e)) from e
        if ends:
            await self._end(pod, "success")
        self.meant_for = pod["metadata"].get("uid", "")
        return env

    async def _find(self) -> Json:
        node = await self._api.get(calls.node_path(self._node_name))
        lock = protocol.annotations_of(node).get(protocol.LOCK)
        try:
            named = protocol.locked_pod(lock) if lock is not None else None
        except protocol.RequestError as e:
            raise AllocateError(str(e)) from e
        if named is not None:
            # No look at phase, node or cards; a pod that is gone fails every call, and the lock stays (HN-18, D-3).
            return await self._api.get(calls.pod_path({"metadata": {"namespace": named[0], "name": named[1]}}))
        pods = await self._api.list(calls.PODS, field_selector=f"spec.nodeName={self._node_name}")
        found = protocol.guess(pods, self._node_name)
        if found is None:
            raise AllocateError(f"{self._nobody} {self._node_name}")
        return found

    async def _end(self, pod: Json, phase: str) -> None:
        await calls.annotate(self._api, calls.pod_path(pod), {protocol.BIND_PHASE: phase})
        for at in range(_TRIES):
            if await self._release(pod, asks=at == 0 or not self._faults.blind_release):
                return
            await asyncio.sleep(_FIRST_PAUSE_S * 2**at)

    async def _release(self, pod: Json, *, asks: bool) -> bool:
        """Drop the lock, of *pod* if the plugin *asks* whose it is; False if the node has changed meanwhile."""
        path = calls.node_path(self._node_name)
        node = await self._api.get(path)
        lock = protocol.annotations_of(node).get(protocol.LOCK)
        if lock is None or (asks and not protocol.releases(lock, pod)):
            return True
        meta = {"resourceVersion": node["metadata"]["resourceVersion"], "annotations": {protocol.LOCK: None}}
        try:
            await self._api.patch(path, {"metadata": meta}, PatchKind.STRATEGIC)
        except ApiStatusError as e:
            if e.status != _CONFLICT:
                raise
            return False
        self._faults.robbed += not protocol.releases(lock, pod)
        return True
