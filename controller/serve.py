"""The ports. The one file that knows the aiohttp server.

Plain: metrics, health and readiness. Over TLS, for callers that prove who they are: where a pod would go, and where
one is or why it waits.
"""

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from aiohttp import web
from prometheus_client import generate_latest

from controller.answers import UNKNOWN
from controller.callers import Callers
from controller.cards import card_series
from controller.metrics import Metrics
from controller.owner import Owner
from core.errors import ConfigError, InvalidRequestError
from kube.errors import ApiError
from kube.listening import cannot_listen

_METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
PREVIEW: Final = "/v1/preview"
# Followed by namespace and name of the pod; RBAC grants it by /v1/explain/* or /v1/explain/NAMESPACE/*.
EXPLAIN: Final = "/v1/explain"
# What the API server takes as an object.
_MAX_POD_BYTES: Final = 3 * 2**20
_CALLER_S: Final = 2.0
_BODY_S: Final = 2.0
_CHUNK_CHARACTERS: Final = 1 << 16
_STEP_S: Final = 0.005


class Port:
    """Serves until `stop`."""

    def __init__(
        self,
        owner: Owner,
        metrics: Metrics,
        *,
        reasons: Callable[[], list[str]],
        fill: Callable[[], None],
    ) -> None:
        """Prepare.

        Args:
            owner: what is asked.
            metrics: what is shown.
            reasons: why this process is not ready, a line each.
            fill: brings the gauges up to date.
        """
        self._owner = owner
        self._metrics = metrics
        self._reasons = reasons
        self._fill = fill
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; the port taken.

        Raises:
            ConfigError: the address cannot be used.
        """
        app = web.Application(client_max_size=1024)
        app.add_routes([
            web.get("/healthz", self._healthz),
            web.get("/readyz", self._readyz),
            web.get("/metrics", self._show_metrics),
        ])  # fmt: skip
        self._runner = web.AppRunner(app, access_log=None, keepalive_timeout=120.0, shutdown_timeout=2.0)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port).start()
        except OSError as e:
            await self._runner.cleanup()
            raise ConfigError([cannot_listen("--listen", f"{host}:{port}", e)]) from e
        taken: int = self._runner.addresses[0][1]
        return taken

    async def stop(self) -> None:
        """Close."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        reasons = self._reasons()
        if reasons:
            return web.Response(status=503, text="".join(f"{reason}\n" for reason in reasons))
        return web.Response(text="ok\n")

    async def _show_metrics(self, request: web.Request) -> web.StreamResponse:
        self._fill()
        response = web.StreamResponse(headers={"Content-Type": _METRICS_TYPE})
        await response.prepare(request)
        await response.write(generate_latest(self._metrics.registry))
        pieces: list[str] = []
        size, started_s = 0, time.monotonic()
        for piece in card_series(self._owner.ledger, per_pod=self._owner.planner.settings.metrics_per_pod):
            pieces.append(piece)
            size += len(piece)
            if size >= _CHUNK_CHARACTERS or time.monotonic() - started_s > _STEP_S:
                await response.write("".join(pieces).encode())
                await asyncio.sleep(0)
                pieces.clear()
                size, started_s = 0, time.monotonic()
        await response.write("".join(pieces).encode())
        await response.write_eof()
        return response


class TrustedPort:
    """/v1/preview and /v1/explain over TLS; serves until `stop`."""

    def __init__(
        self,
        callers: Callable[[], Callers | None],
        *,
        preview: Callable[[bytes], Awaitable[dict[str, Any] | None]],
        explain: Callable[[str], Awaitable[dict[str, Any] | None]],
    ) -> None:
        """Prepare.

        Args:
            callers: who judges callers; None before there is a connection to the API server.
            preview: the answer to a pod's JSON; None while nothing can be said yet.
            explain: the answer for a pod by namespace/name; the same.
        """
        self._callers = callers
        self._preview = preview
        self._explain = explain
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int, context: ssl.SSLContext) -> int:
        """Listen; the port taken.

        Raises:
            ConfigError: the address cannot be used.
        """
        app = web.Application(client_max_size=_MAX_POD_BYTES)
        app.add_routes([
            web.post(PREVIEW, self._show_preview),
            web.get(f"{EXPLAIN}/{{namespace}}/{{pod}}", self._show_pod),
        ])  # fmt: skip
        self._runner = web.AppRunner(app, access_log=None, keepalive_timeout=120.0, shutdown_timeout=2.0)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port, ssl_context=context).start()
        except OSError as e:
            await self._runner.cleanup()
            raise ConfigError([cannot_listen("--preview-listen", f"{host}:{port}", e)]) from e
        taken: int = self._runner.addresses[0][1]
        return taken

    async def stop(self) -> None:
        """Close."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _show_preview(self, request: web.Request) -> web.Response:
        async def found() -> dict[str, Any] | None:
            async with asyncio.timeout(_BODY_S):
                body = await request.read()
            return await self._preview(body)

        return await self._answered(request, PREVIEW, found)

    async def _show_pod(self, request: web.Request) -> web.Response:
        key = f"{request.match_info['namespace']}/{request.match_info['pod']}"
        return await self._answered(request, f"{EXPLAIN}/{key}", lambda: self._explain(key))

    async def _answered(
        self, request: web.Request, path: str, ask: Callable[[], Awaitable[dict[str, Any] | None]]
    ) -> web.Response:
        """The answer of *ask*, for a caller that may *path*."""
        callers = self._callers()
        if callers is None:
            return _json({"text": "not connected to the API server yet; see /readyz"}, status=503)
        try:
            async with asyncio.timeout(_CALLER_S):
                authorization = request.headers.get("Authorization", "")
                denied = await callers.judge(authorization, request.method.lower(), path)
            if denied is not None:
                return _json({"text": denied.text}, status=denied.status)
            found = await ask()
        except (ApiError, TimeoutError):
            return _json({"text": "the caller cannot be judged, or what it sends did not arrive in time"}, status=503)
        except InvalidRequestError as e:
            return _json({"text": str(e)}, status=400)
        if found is None:
            return _json({"text": "the cluster is not known yet; see /readyz"}, status=503)
        return _json(found, status=404 if found.get("state") == UNKNOWN else 200)


def _json(found: object, status: int = 200) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(found) + b"\n", content_type="application/json")
