"""A device plugin's API client: with its rate limit, and with devices reported to kubelet first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from sandbox.client import PatchKind
from sandbox.nodes.devices import DeviceLists
from sandbox.nodes.kubelet import KubeletSettings
from sandbox.players.calls import Api, Json

# The burst of client-go's default rate limiter.
BURST: Final = 10


class PacedApi:
    """*api* for the plugins of one node."""

    def __init__(
        self,
        api: Api,
        devices: DeviceLists,
        *,
        calls_per_s: float = 0.0,
        status_is_late: bool = False,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Prepare.

        Args:
            api: client with the plugin's account.
            devices: kubelet's lists.
            calls_per_s: sustained limit of calls (nvidia 5.2: client-go allows 5); 0: unlimited.
            status_is_late: kubelet writes the node's status itself, and later.
            clock: monotonic seconds; None: the event loop's.
        """
        self._api = api
        self._devices = devices
        self._calls_per_s = calls_per_s
        self._status_is_late = status_is_late
        self._clock = clock or (lambda: asyncio.get_running_loop().time())
        self._next_s = float("-inf")

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> Json:
        """See `Api.get`."""
        await self._turn()
        return await self._api.get(path, params)

    async def list(self, path: str, *, field_selector: str = "", label_selector: str = "") -> tuple[Json, ...]:
        """See `Api.list`."""
        await self._turn()
        return await self._api.list(path, field_selector=field_selector, label_selector=label_selector)

    async def create(self, path: str, body: Mapping[str, Any], params: Mapping[str, str] | None = None) -> Json:
        """See `Api.create`."""
        await self._turn()
        return await self._api.create(path, body, params)

    async def update(self, path: str, body: Mapping[str, Any], params: Mapping[str, str] | None = None) -> Json:
        """See `Api.update`."""
        await self._turn()
        return await self._api.update(path, body, params)

    async def patch(
        self, path: str, body: Any, kind: PatchKind = PatchKind.MERGE, params: Mapping[str, str] | None = None
    ) -> Json:
        """See `Api.patch`; kubelet immediately learns a node's devices from it."""
        if path.startswith("/api/v1/nodes/") and path.endswith("/status"):
            self._devices.take(body["status"])
            if self._status_is_late:
                return {}
            self._devices.told()
        await self._turn()
        return await self._api.patch(path, body, kind, params)

    async def _turn(self) -> None:
        """Wait for permission for one call, from a token bucket of `BURST` calls."""
        if not self._calls_per_s:
            return
        now_s, every_s = self._clock(), 1.0 / self._calls_per_s
        self._next_s = max(self._next_s, now_s - BURST * every_s) + every_s
        if self._next_s > now_s:
            await asyncio.sleep(self._next_s - now_s)


def pacing(settings: KubeletSettings) -> Callable[[Api, DeviceLists], PacedApi]:
    """Return a function that connects one node's plugins as *settings* require."""

    def paced(api: Api, devices: DeviceLists) -> PacedApi:
        late = settings.node_status_delay_s > 0
        return PacedApi(api, devices, calls_per_s=settings.plugin_calls_per_s, status_is_late=late)

    return paced
