"""How both of HAMi's device plugins find and release their pod: by the lock, or by a guess.

Every step follows the real plugins (hami 3.3, 3.4; ascend 2.2), over the API server, and so do the failures.
`ascend_hami_protocol` reads the annotations; each plugin decides what a pod gets.
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
# The number of tries to release a lock, and the pause after the first try, which doubles (hami 3.4, 3.5).
_TRIES: Final = 5
_FIRST_PAUSE_S: Final = 0.1
_WORLD_FAILED: Final = (ApiStatusError, aiohttp.ClientError, TimeoutError)


class Serving:
    """Answers the calls of one node's kubelet, one at a time.

    Attributes:
        meant_for: the uid of the pod whose assignment the last answered call used.
    """

    def __init__(self, node_name: str, api: Api, nobody: str, faults: Faults) -> None:
        """*nobody*: the plugin's message if it finds no pod to guess; *faults*: the plugin's own."""
        self.meant_for = ""
        self._node_name = node_name
        self._api = api
        self._nobody = nobody
        self._faults = faults

    async def serve(self, give: Callable[[Json], Awaitable[tuple[ContainerEnv, bool]]]) -> ContainerEnv:
        """Return what *give* has for the next container of the current pod; with True the pod is marked as served.

        Raises:
            AllocateError: the plugin's own refusal, which it marks on the pod, or the API server is unavailable.
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
            # Phase, node and cards are ignored; for a pod that is gone, every call fails and the lock stays (HN-18,
            # D-3).
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
        """Release the lock, only of *pod* if the plugin *asks* for its holder; return False if the node has changed."""
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
