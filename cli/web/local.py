"""Serves the page on 127.0.0.1: its files to every local client, the cluster's data only to clients with the key."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import webbrowser
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, Final

from aiohttp import web

from cli.cluster import empty_holdings
from cli.options import Web
from cli.web.feed import Feed, Sees, what_is_seen
from cli.web.server import Page, RefusedError
from kube.calls import Access
from kube.reviews import bearer
from kube.transport import Transport

HOST: Final = "127.0.0.1"
# The redirecting file is removed after this time, when the browser has read it.
_FILE_S: Final = 30.0


async def serve(transport: Transport, options: Web, announce: Callable[[str], None]) -> None:
    """Serve the page until cancelled; *announce* receives its address.

    Raises:
        ApiError: neither cards nor pods may be seen, or the server does not answer.
        OSError: the port is unavailable.
    """
    namespace = options.namespace or transport.namespace or "default"
    sees = await what_is_seen(transport, namespace)
    feed = Feed(transport, await empty_holdings(transport, options.settings_map), sees, options.history_map)
    callers = WithKey(secrets.token_urlsafe(24), sees)
    page = Page(transport, feed, callers, options.settings_map)
    runner = web.AppRunner(page.app(), access_log=None, shutdown_timeout=1.0, handler_cancellation=True)
    await runner.setup()
    try:
        site = web.TCPSite(runner, HOST, options.port)
        await site.start()
        callers.port = runner.addresses[0][1]
        address = f"http://{HOST}:{callers.port}/#key={callers.key}"
        announce(address)
        with _file_to(address) if options.browser else nullcontext() as file:
            if file is not None:
                # Some browsers block until they are closed; a daemon thread delays neither the server nor the exit.
                Thread(target=webbrowser.open, args=(file,), daemon=True).start()
            await feed.run()
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
class WithKey:
    """`cli.web.server.Callers` who know the key; the API server judges them by the user's kubeconfig.

    Attributes:
        key: part of the address; the page sends it with each call.
        seen: what the user may see.
        port: the local port; requests with another Host are refused, so that no other site reaches the page by DNS
            rebinding.
    """

    key: str
    seen: Sees
    port: int = 0

    async def admit(self, request: web.Request) -> None:
        if request.host not in (f"{HOST}:{self.port}", f"localhost:{self.port}"):
            raise RefusedError(421, "this page is served on 127.0.0.1 alone")
        if request.headers.get("Origin", origin := f"http://{request.host}") != origin:
            raise RefusedError(403, "only this page may ask")
        if request.path.startswith("/v1/"):
            shown = bearer(request.headers.get("Authorization", ""))
            if not hmac.compare_digest(shown.encode(errors="surrogateescape"), self.key.encode()):
                raise RefusedError(401, "open the address that kubectl cards web printed")

    async def sees(self, request: web.Request) -> Sees:
        del request
        return self.seen

    async def may(self, request: web.Request, access: Access) -> bool:
        del request, access
        return True

    def streaming(self, request: web.Request) -> AbstractAsyncContextManager[None]:
        del request
        return nullcontext()

    async def while_seen(self, request: web.Request, sees: Sees, sending: Coroutine[Any, Any, None]) -> None:
        del request, sees
        await sending

    def trouble(self, error: Exception) -> str:
        return str(error)
