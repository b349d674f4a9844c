"""Stands between a client and an API server and spoils single calls: cut off, late, or refused.

It listens without TLS, on the loopback interface; a test names it as the server in a kubeconfig.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web

Answer = Callable[[], Awaitable[web.StreamResponse]]
# A line of a watch carries one object.
_LINE_BYTES = 2**22
_EXPIRED = json.dumps(
    {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old version"}}
)
_HOP = frozenset({"host", "connection", "transfer-encoding", "content-length", "keep-alive"})


@dataclass(slots=True)
class Fault:
    """What happens to calls of *verb* whose path ends in *ending*, *times* in all.

    kind: cut-before (never forwarded), cut-after (forwarded, the answer lost), late (cut now, forwarded after
    *delay_s*), stuck (not answered, and forwarded once it is *released*, whoever waits for it still), half (forwarded,
    of the answer's body one half), expired (a watch is told that its version is too old), or a status as text.
    """

    verb: str
    ending: str
    kind: str
    times: int = 1
    delay_s: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    def is_for(self, request: web.Request) -> bool:
        """Whether it is to happen to *request*."""
        watches = request.query.get("watch") == "true"
        fits = {"expired": watches, "half": not watches}.get(self.kind, True)
        return fits and request.method == self.verb and request.path.endswith(self.ending)


class FaultProxy:
    """Forwards everything to *upstream* but what `faults` name; *seen* lists (seconds, verb, path) of calls.

    way: "open", "hole" (every call and every watch is swallowed, also those that are open), "cut" (every call is cut
    off) or a status as text, for every call. held: endings of paths whose watches say nothing more; doubled: of those
    that say everything twice; refused: those that are answered with a status until they are taken out, also watches
    that are open. lag_s: by how much every call is late. late_answers: the statuses of what was forwarded late.
    """

    def __init__(self, upstream: str, ca_pem: bytes) -> None:
        self.way = "open"
        self.held: set[str] = set()
        self.doubled: set[str] = set()
        self.refused: dict[str, str] = {}
        self.lag_s = 0.0
        self.faults: list[Fault] = []
        self.seen: list[tuple[float, str, str]] = []
        # The path and the body of each.
        self.patches: list[tuple[str, bytes]] = []
        self.url = ""
        self._upstream = upstream
        self._tls = ssl.create_default_context(cadata=ca_pem.decode())
        self._session: aiohttp.ClientSession | None = None
        self.late_answers: list[int] = []
        self._late: set[asyncio.Task[None]] = set()
        self._watching: list[web.Request] = []

    def times(self, verb: str, ending: str) -> list[float]:
        """When calls of this kind came, in seconds of the loop."""
        return [at_s for at_s, method, path in self.seen if method == verb and path.endswith(ending)]

    def cut_watches(self, ending: str = "") -> None:
        """Cut off the watches that are open of paths with that *ending*."""
        for request in self._watching:
            if request.path.endswith(ending) and request.transport is not None:
                request.transport.abort()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.append((asyncio.get_running_loop().time(), request.method, request.path))
        body = await request.read()
        if request.method == "PATCH":
            self.patches.append((request.path, body))
        if self.way == "hole":
            await asyncio.Event().wait()
        if self.lag_s:
            await asyncio.sleep(self.lag_s)
        if self.way != "open":
            return await self._spoil(request, body, Fault(request.method, "", self.way))
        status = next((status for ending, status in self.refused.items() if request.path.endswith(ending)), "")
        if status:
            return await self._spoil(request, body, Fault(request.method, "", status))
        for fault in self.faults:
            if fault.times and fault.is_for(request):
                fault.times -= 1
                return await self._spoil(request, body, fault)
        return await self._forward(request, body)

    async def _spoil(self, request: web.Request, body: bytes, fault: Fault) -> web.StreamResponse:
        if fault.kind.isdigit():
            return web.Response(status=int(fault.kind), text="<html>no</html>", headers=fault.headers)
        if fault.kind == "expired":
            return web.Response(text=_EXPIRED, content_type="application/json")
        if fault.kind == "half":
            await self._halve(request, body)
        if fault.kind == "cut-after":
            await self._call(request, body)
        if fault.kind in ("late", "stuck"):
            task = asyncio.create_task(self._call_late(request, body, fault), name="late")
            self._late.add(task)
            task.add_done_callback(self._late.discard)
        if fault.kind == "stuck":
            await asyncio.Event().wait()
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async def _halve(self, request: web.Request, body: bytes) -> None:
        async with self._ask(request, body) as answer:
            content = await answer.read()
            response = web.StreamResponse(status=answer.status, headers=_passed_on(answer.headers))
        response.content_length = len(content)
        await response.prepare(request)
        await response.write(content[: len(content) // 2])

    async def _call_late(self, request: web.Request, body: bytes, fault: Fault) -> None:
        await asyncio.sleep(fault.delay_s)
        if fault.kind == "stuck":
            await fault.released.wait()
        self.late_answers.append(await self._call(request, body))

    async def _call(self, request: web.Request, body: bytes) -> int:
        async with self._ask(request, body) as answer:
            await answer.read()
            return answer.status

    async def _forward(self, request: web.Request, body: bytes) -> web.StreamResponse:
        async with self._ask(request, body) as answer:
            headers = _passed_on(answer.headers)
            if request.query.get("watch") != "true":
                return web.Response(status=answer.status, headers=headers, body=await answer.read())
            response = web.StreamResponse(status=answer.status, headers=headers)
            await response.prepare(request)
            self._watching.append(request)
            try:
                await self._pass_on(request, answer.content, response)
            finally:
                self._watching = [one for one in self._watching if one is not request]
            return response

    async def _pass_on(self, request: web.Request, source: aiohttp.StreamReader, to: web.StreamResponse) -> None:
        async for line in source:
            await self._hold(request)
            await to.write(line * 2 if any(map(request.path.endswith, self.doubled)) else line)
        # The end of a watch is news as well: it shows that all before it has arrived.
        await self._hold(request)

    async def _hold(self, request: web.Request) -> None:
        while self.way == "hole" or any(map(request.path.endswith, self.held)):  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    def _ask(self, request: web.Request, body: bytes) -> "aiohttp.client._RequestContextManager":
        assert self._session is not None
        url = self._upstream + request.path_qs
        return self._session.request(request.method, url, headers=_passed_on(request.headers), data=body)

    async def open(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._tls, limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            read_bufsize=_LINE_BYTES,
            # Long answers come packed, and are passed on as they are.
            auto_decompress=False,
        )

    async def close(self) -> None:
        for task in tuple(self._late):
            task.cancel()
        if self._session is not None:
            await self._session.close()


def _passed_on(headers: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in headers.items() if key.lower() not in _HOP}


@asynccontextmanager
async def fault_proxy(upstream: str, ca_pem: bytes) -> AsyncIterator[FaultProxy]:
    """A proxy before *upstream*; its own address is `url`."""
    proxy = FaultProxy(upstream, ca_pem)
    await proxy.open()
    app = web.Application(client_max_size=2**24)
    app.router.add_route("*", "/{path:.*}", proxy._handle)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.5)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        proxy.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield proxy
    finally:
        await runner.cleanup()
        await proxy.close()
