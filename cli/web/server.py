"""The page: its files for every client, and the cluster's data for callers who may see it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, aclosing
from functools import partial
from importlib.resources import files
from pathlib import PurePath
from typing import Any, Final, Protocol

import msgspec
from aiohttp import web

from cli.cluster import Events, fetch_events, fetch_holding, fetch_pod
from cli.fits import UnusableFileError, fetch_quotas, fits_manifest, quotas_unread
from cli.web.feed import Feed, Sees, Update
from core.configuration import OWN_MAP
from core.errors import InvalidRequestError
from core.port.cards import CardWish
from core.view.explained import explained
from core.view.fits import Fits, Place, fits_wish
from kube.calls import Access, Calls
from kube.errors import ApiError, ApiNotFoundError, UndecodableError
from kube.transport import Transport

_TYPES: Final = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
# Only these files are served: a requested name is looked up here and never becomes a path.
_FILES: Final = {
    one.name: one.read_bytes() for one in (files("cli.web") / "page").iterdir() if PurePath(one.name).suffix in _TYPES
}
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_LOGIN: Final = {"WWW-Authenticate": "Bearer"}
# A reader who takes none of so much for so long is disconnected.
_PIECE_BYTES: Final = 2**16
_PIECE_S: Final = 30.0
_END_S: Final = 5.0
# Bytes.
MANIFEST_MAX: Final = 256 * 2**10
# Who may ask was decided before the manifest arrives, so a later one is not waited for.
_ARRIVES_S: Final = 10.0
_WHOLE: Final = re.compile(r"[1-9][0-9]{0,7}", re.ASCII)
_encode: Final = msgspec.json.Encoder().encode
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class RefusedError(Exception):
    """The call is answered with *status* and a line of text; *is_login*: the page asks for a token then."""

    def __init__(self, status: int, text: str, *, is_login: bool = False) -> None:
        super().__init__(text)
        self.status = status
        self.is_login = is_login


class Callers(Protocol):
    """Knows who calls, and who may see what; each method raises `RefusedError` for who may not.

    Two servers share the page: `cli.web.local` asks for a key and shows what the user's kubeconfig may read;
    `cli.web.reviewed` asks the API server about each caller's token.
    """

    async def admit(self, request: web.Request) -> None:
        """Refuse a call before it is looked at.

        Raises:
            ApiError: the API server does not answer.
        """
        ...

    async def sees(self, request: web.Request) -> Sees:
        """Return what the caller may see.

        Raises:
            ApiError: the API server does not answer.
        """
        ...

    async def may(self, request: web.Request, access: Access) -> bool:
        """Return whether the caller has one right, as far as this is known before the data is read.

        Raises:
            ApiError: the API server does not answer.
        """
        ...

    def streaming(self, request: web.Request) -> AbstractAsyncContextManager[None]:
        """Count a stream of the caller while it is open.

        Raises:
            ApiError: the API server does not answer.
        """
        ...

    async def while_seen(self, request: web.Request, sees: Sees, sending: Coroutine[Any, Any, None]) -> None:
        """Run *sending* until it ends, or until the caller may not see *sees* any more."""
        ...

    def trouble(self, error: Exception) -> str:
        """Return what to answer if the cluster could not be read because of *error*."""
        ...


class Page:
    """The served page. feed: the cluster's data; None before it is known how to read it."""

    def __init__(
        self,
        transport: Transport,
        feed: Feed | None,
        callers: Callers,
        own_map: str = OWN_MAP,
    ) -> None:
        """Prepare.

        Args:
            transport: connection to the API server, for what the feed does not have.
            feed: see above.
            callers: knows who calls.
            own_map: the ConfigMap of cardshare's own settings, NAMESPACE/NAME.
        """
        self.feed = feed
        self._transport: Final = transport
        self._callers: Final = callers
        self._own_map: Final = own_map
        self._counting: asyncio.Future[Fits] | None = None

    def app(self) -> web.Application:
        """Return the routes."""
        app = web.Application(middlewares=[self._guarded], client_max_size=MANIFEST_MAX)
        app.router.add_get("/", self._file)
        app.router.add_get("/page/{name}", self._file)
        app.router.add_get("/v1/feed", self._stream)
        app.router.add_post("/v1/fits", self._fits)
        app.router.add_get("/v1/pods/{namespace}/{name}", self._pod)
        app.router.add_get("/v1/history/pods/{namespace}/{name}", self._why)
        app.router.add_get("/v1/history/card", self._card)
        return app

    @web.middleware
    async def _guarded(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        try:
            await self._callers.admit(request)
            answer = await handler(request)
        except web.HTTPException as e:
            answer = web.Response(status=e.status, text=f"{e.reason}\n")
        except RefusedError as e:
            answer = web.Response(status=e.status, text=f"{e}\n", headers=_LOGIN if e.is_login else None)
        except (ApiError, UndecodableError, InvalidRequestError) as e:
            answer = web.Response(status=502, text=f"{self._callers.trouble(e)}\n")
        if not answer.prepared:
            answer.headers.update(_HEADERS)
        return answer

    async def _file(self, request: web.Request) -> web.Response:
        name = request.match_info.get("name", "index.html")
        found = _FILES.get(name)
        if found is None:
            return web.Response(status=404, text="no such file\n")
        return web.Response(body=found, content_type=_TYPES[PurePath(name).suffix], charset="utf-8")

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        """Send server-sent events, each an `Update`."""
        sees, feed = await self._callers.sees(request), self._fed()
        async with self._callers.streaming(request):
            answer = web.StreamResponse(headers={**_HEADERS, "Content-Type": "text/event-stream; charset=utf-8"})
            await answer.prepare(request)
            await self._callers.while_seen(request, sees, self._send(request, answer, feed.updates(sees)))
            await _end(request, answer)
        return answer

    async def _send(
        self, request: web.Request, answer: web.StreamResponse, updates: AsyncGenerator[Update, None]
    ) -> None:
        try:
            async with aclosing(updates):
                async for update in updates:
                    await _write(answer, b"data: " + _encode(update) + b"\n\n")
        except TimeoutError:
            _abort(request)
        except ConnectionError:
            return  # the reader is gone

    async def _fits(self, request: web.Request) -> web.Response:
        """Send how many pods fit into what the feed has seen: pods of the manifest in the body, or of the query.

        The query has memory (MiB) and cards. The answer has the form of ``kubectl cards fits -o json``. One question is
        answered at a time, on a copy of the ledger in another thread, so that the page stays live.
        """
        sees, feed = await self._callers.sees(request), self._fed()
        if not sees.nodes or sees.namespace:
            raise RefusedError(403, "the cards are not known, because you may not list nodes and all pods")
        namespace = request.query.get("namespace") or sees.home
        access = Access(verb="list", resource="resourcequotas", namespace=namespace)
        sees_quotas = await self._callers.may(request, access)
        text, wish = await _asked(request)
        notes = [*feed.notes]
        if sees_quotas:
            quotas = await fetch_quotas(self._transport, namespace, notes)
        else:
            quotas = ()
            notes.append(quotas_unread(namespace))
        if self._counting is not None and not self._counting.done():
            raise RefusedError(503, "another question is being answered; try again in some seconds")
        ledger = feed.ledger()
        if ledger is None:
            raise RefusedError(
                403, "the cards are not known, because you may not list nodes or the page is not live yet"
            )
        place = Place(ledger, namespace, quotas, feed.bound(namespace))
        count = (
            partial(fits_wish, place, wish, notes) if wish is not None else partial(fits_manifest, place, text, notes)
        )
        self._counting = asyncio.get_running_loop().run_in_executor(None, count)
        try:
            # The thread goes on if the browser hangs up; until it ends, no other question is taken.
            return _json(await asyncio.shield(self._counting))
        except UnusableFileError as e:
            raise RefusedError(400, str(e)) from e

    def _fed(self) -> Feed:
        if self.feed is None:
            raise RefusedError(503, "the cluster is not known yet; try again")
        return self.feed

    async def _card(self, request: web.Request) -> web.Response:
        """Send what a card was while this process watched it, a `CardHistory`."""
        sees, feed = await self._callers.sees(request), self._fed()
        node, card, protocol = (request.query.get(name, "") for name in ("node", "card", "protocol"))
        found = feed.card(node, card, protocol, sees)
        if found is None:
            raise RefusedError(404, "you see no such card")
        return _json(found)

    async def _why(self, request: web.Request) -> web.Response:
        """Send what happened to a pod in the form of ``kubectl cards why -o json``."""
        namespace, name, sees_events = await self._named(request)
        try:
            return _json(await self._fed().history.why(namespace, name, reads_events=sees_events))
        except ApiNotFoundError:
            raise RefusedError(404, f"nothing is remembered of a pod {namespace}/{name}") from None

    async def _named(self, request: web.Request) -> tuple[str, str, bool]:
        """Return namespace and name of a pod that the caller may see, and whether its events may be seen."""
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        if not await self._callers.may(request, Access(verb="list", resource="pods", namespace=namespace)):
            raise RefusedError(403, f"you may not list pods in namespace {namespace}")
        return (
            namespace,
            name,
            await self._callers.may(request, Access(verb="list", resource="events", namespace=namespace)),
        )

    async def _pod(self, request: web.Request) -> web.Response:
        """Send one pod in the form of ``kubectl cards explain -o json``."""
        namespace, name, sees_events = await self._named(request)
        sees_nodes = await self._callers.may(request, Access(verb="list", resource="nodes"))
        try:
            pod = await fetch_pod(Calls(self._transport), namespace, name)
            events = await fetch_events(self._transport, pod) if sees_events else Events(())
            if not pod.node_name:
                return _json(explained(pod, events.items))
            holding = await fetch_holding(self._transport, pod, reads_node=sees_nodes, own_map=self._own_map)
            return _json(explained(pod, events.items, holding.ledger, node_is_read=not holding.node_unread))
        except ApiNotFoundError:
            return web.Response(status=404, text=f"there is no pod {namespace}/{name}\n")


async def _asked(request: web.Request) -> tuple[str, CardWish | None]:
    """Return the manifest in the body of *request*, and the request for cards in its query, None if it has none.

    Raises:
        RefusedError: one of them is wrong.
    """
    query = request.query
    given = {name: query[name] for name in ("memory", "cards") if query.get(name)}
    for name, figure in given.items():
        if not _WHOLE.fullmatch(figure):
            raise RefusedError(400, f"{name}: write a whole number from 1 to 99999999")
    try:
        async with asyncio.timeout(_ARRIVES_S):
            text = (await request.read()).decode()
    except TimeoutError:
        raise RefusedError(408, f"the manifest did not arrive within {_ARRIVES_S:g} s; send it again") from None
    except web.HTTPRequestEntityTooLarge:
        raise RefusedError(413, f"the manifest is too long; send at most {MANIFEST_MAX // 2**10} KiB") from None
    except UnicodeDecodeError:
        raise RefusedError(400, "the manifest is not text in UTF-8") from None
    if not given:
        return text, None
    return text, CardWish(int(given.get("cards", 1)), int(given["memory"]) if "memory" in given else None)


async def _write(answer: web.StreamResponse, text: bytes) -> None:
    """Send *text* in pieces.

    Raises:
        TimeoutError: the reader is too slow.
    """
    for at in range(0, len(text), _PIECE_BYTES):
        async with asyncio.timeout(_PIECE_S):
            await answer.write(text[at : at + _PIECE_BYTES])


async def _end(request: web.Request, answer: web.StreamResponse) -> None:
    try:
        async with asyncio.timeout(_END_S):
            await answer.write_eof()
    except TimeoutError:
        _abort(request)
    except ConnectionError:
        return


def _abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


def _json(value: object) -> web.Response:
    return web.Response(body=_encode(value), content_type="application/json")
