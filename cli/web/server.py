"""Serves the page on 127.0.0.1: its files to every local client, the cluster's data only to clients with the key."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import webbrowser
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Final

import msgspec
from aiohttp import web

from cli.cluster import empty_holdings, fetch_events, fetch_holding, fetch_pod
from cli.options import Web
from cli.web.asking import MANIFEST_MAX, Asking
from cli.web.feed import Feed, what_is_seen
from core.errors import InvalidRequestError
from core.view.explained import explained
from kube.calls import Calls
from kube.errors import ApiError, ApiNotFoundError, UndecodableError
from kube.transport import Transport

HOST: Final = "127.0.0.1"
# The redirecting file is removed after this time, when the browser has read it.
_FILE_S: Final = 30.0
_TYPES: Final = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
# Only these files are served: a requested name is looked up here and never becomes a path.
_FILES: Final = {one.name: one for one in (files("cli.web") / "page").iterdir() if PurePath(one.name).suffix in _TYPES}
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_encode: Final = msgspec.json.Encoder().encode
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def serve(transport: Transport, options: Web, announce: Callable[[str], None]) -> None:
    """Serve the page until cancelled; *announce* receives its address.

    Raises:
        ApiError: neither cards nor pods may be seen, or the server does not answer.
        OSError: the port is unavailable.
    """
    namespace = options.namespace or transport.namespace or "default"
    sees = await what_is_seen(transport, namespace)
    page = Page(transport, Feed(transport, await empty_holdings(transport), sees), secrets.token_urlsafe(24))
    runner = web.AppRunner(page.app(), access_log=None, shutdown_timeout=1.0, handler_cancellation=True)
    await runner.setup()
    try:
        site = web.TCPSite(runner, HOST, options.port)
        await site.start()
        page.port = runner.addresses[0][1]
        address = f"http://{HOST}:{page.port}/#key={page.key}"
        announce(address)
        with _file_to(address) if options.browser else nullcontext() as file:
            if file is not None:
                # Some browsers block until they are closed; a daemon thread delays neither the server nor the exit.
                Thread(target=webbrowser.open, args=(file,), daemon=True).start()
            await page.feed.run()
    finally:
        await runner.cleanup()


@contextmanager
def _file_to(address: str) -> Iterator[str | None]:
    """Yield the URL of a file that redirects to *address*; None if the file cannot be written.

    The file hides *address* from other users, who can see the browser's arguments. It is in the home directory,
    because confined browsers cannot read other directories.
    """
    with ExitStack() as stack:
        try:
            folder = TemporaryDirectory(prefix="kubectl-cards-", dir=Path.home())
            file = Path(stack.enter_context(folder), "page.html")
            file.write_text(f'<!doctype html><meta http-equiv="refresh" content="0;url={address}">', encoding="ascii")
        except (OSError, RuntimeError):  # there is no home
            yield None
        else:
            # Removes the file early, so that it seldom stays behind if the process is killed.
            stack.callback(asyncio.get_running_loop().call_later(_FILE_S, folder.cleanup).cancel)
            yield file.as_uri()


@dataclass(slots=True)
class Page:
    """The served page.

    Attributes:
        key: part of the address; the page sends it with each call.
        port: the local port; requests with another Host are refused, so that no other site reaches the page by DNS
            rebinding.
    """

    transport: Transport
    feed: Feed
    key: str
    port: int = 0

    def app(self) -> web.Application:
        """Return the routes."""
        app = web.Application(middlewares=[self._guarded], client_max_size=MANIFEST_MAX)
        app.router.add_get("/", self._file)
        app.router.add_get("/page/{name}", self._file)
        app.router.add_get("/v1/feed", self._feed)
        app.router.add_post("/v1/fits", Asking(self.transport, self.feed).fits)
        app.router.add_get("/v1/pods/{namespace}/{name}", self._pod)
        return app

    @web.middleware
    async def _guarded(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        if request.host not in (f"{HOST}:{self.port}", f"localhost:{self.port}"):
            return web.Response(status=421, text="this page is served on 127.0.0.1 alone\n", headers=_HEADERS)
        if request.headers.get("Origin", origin := f"http://{request.host}") != origin:
            return web.Response(status=403, text="only this page may ask\n", headers=_HEADERS)
        if request.path.startswith("/v1/"):
            shown = request.headers.get("Authorization", "").removeprefix("Bearer ")
            if not hmac.compare_digest(shown.encode(errors="surrogateescape"), self.key.encode()):
                return web.Response(
                    status=401, text="open the address that kubectl cards web printed\n", headers=_HEADERS
                )
        try:
            answer = await handler(request)
        except web.HTTPException as e:
            answer = web.Response(status=e.status, text=f"{e.reason}\n")
        except (ApiError, UndecodableError, InvalidRequestError) as e:
            answer = web.Response(status=502, text=f"{e}\n")
        if not answer.prepared:
            answer.headers.update(_HEADERS)
        return answer

    async def _file(self, request: web.Request) -> web.Response:
        name = request.match_info.get("name", "index.html")
        file = _FILES.get(name)
        if file is None:
            return web.Response(status=404, text="no such file\n")
        return web.Response(body=file.read_bytes(), content_type=_TYPES[PurePath(name).suffix], charset="utf-8")

    async def _feed(self, request: web.Request) -> web.StreamResponse:
        """Send server-sent events, each an `Update`."""
        answer = web.StreamResponse(headers={**_HEADERS, "Content-Type": "text/event-stream; charset=utf-8"})
        await answer.prepare(request)
        async for update in self.feed.updates():
            await answer.write(b"data: " + _encode(update) + b"\n\n")
        return answer

    async def _pod(self, request: web.Request) -> web.Response:
        """Send one pod in the form of ``kubectl cards explain -o json``."""
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        try:
            pod = await fetch_pod(Calls(self.transport), namespace, name)
            events = await fetch_events(self.transport, pod)
            if not pod.node_name:
                return _json(explained(pod, events.items))
            holding = await fetch_holding(self.transport, pod)
            is_read = not holding.node_unread
            return _json(explained(pod, events.items, holding.ledger, node_is_read=is_read))
        except ApiNotFoundError:
            return web.Response(status=404, text=f"there is no pod {namespace}/{name}\n")


def _json(value: object) -> web.Response:
    return web.Response(body=_encode(value), content_type="application/json")
