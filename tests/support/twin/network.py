"""The way from one controller to the API server: every message may take any time, or never come.

It stands where aiohttp's session stands, below all that is ours: `kube.transport` with its deadlines, pauses and
permits is the real one. A message that was sent goes its way whatever becomes of its sender.
"""

import random
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import aiohttp

from kube.credentials import Credentials
from kube.transport import Transport, _exchange
from tests.support.servers.fixed_source import FixedSource
from tests.support.twin.api import Api, Event, RefusedError, target
from tests.support.twin.clock import CLOCK

_HEADERS = {"Content-Type": "application/json"}
_BOOKMARK_S = 50.0
# The begin of an event, whose rest never comes.
_TORN = b'{"type":"MODIFIED","object":{"kind":"Pod","metadata":{"name":"p1","resourceV'
# What a connection does that broke; None: nothing, for ever.
_BROKEN = (aiohttp.ServerDisconnectedError, ConnectionResetError, None)


class Line:
    """How messages of one process fare now; the world changes it.

    loss: the chance that a message is lost. slow_s: up to how long one takes. cut_until_s: nothing passes before.
    held_until_s: watches tell nothing before. stick: asked of every write that leaves: seconds that it takes more.
    trouble: the chance of a 429, or another answer of a server in trouble. pages: the chance that a proxy answers with
    a page of its own, before or after the server has executed the request. tears: watches come in pieces, and break
    within a line. no_bookmarks: watches get none.
    """

    def __init__(self) -> None:
        self.loss = 0.0
        self.slow_s = 0.02
        self.cut_until_s = 0.0
        self.held_until_s = 0.0
        self.trouble = 0.0
        self.pages = 0.0
        self.tears = False
        self.no_bookmarks = False
        self.stick: Callable[[str, str], float] = lambda verb, path: 0.0

    def calm(self) -> None:
        """Be a good one from now on."""
        self.__init__()  # type: ignore[misc]


class Network:
    """Between one process and the server. at: how the world calls back: (seconds from now, what)."""

    def __init__(
        self,
        api: Api,
        loop: Any,
        line: Line,
        draw: random.Random,
        at: Callable[[float, Callable[[], None]], None],
        counts: Counter[str],
    ) -> None:
        self.alive = True
        self.streams: list[Stream] = []
        self._epoch = 0
        self._api = api
        self._loop = loop
        self._line = line
        self._draw = draw
        self._at = at
        self._counts = counts

    def transport(self) -> Transport:
        """A transport that goes this way."""
        return _MemoryTransport(self)

    async def request(self, verb: str, target_: str, body: bytes | None, content_type: str) -> "Answered":
        """Send, and wait for what comes back, which may be nothing."""
        _exchange.get().begin_sending()
        line, future = self._line, self._loop.create_future()
        if "watch=true" in target_:
            self._send(lambda: self._open(target_, future))
            return self._given(await future)
        write = verb != "GET"
        stuck_s = line.stick(verb, target_) if write else 0.0

        epoch = self._epoch

        def execute() -> None:
            if epoch != self._epoch:
                self._break(future)
                return
            self._counts["requests"] += 1
            if self._draw.random() < line.trouble:
                self._counts["fault: answers of a server in trouble"] += 1
                self._answer(future, *_trouble(self._draw))
                return
            page = self._page(verb)
            if page is not None and not page.executes:
                self._answer(future, page.status, _PAGE, page.headers)
                return
            answer = self._api.request(verb, target_, body, content_type)
            if page is not None:
                self._answer(future, page.status, _PAGE, page.headers)
                return
            self._answer(future, answer.status, answer.body)

        if stuck_s:
            self._counts["fault: writes stuck on the way"] += 1
            self._at(stuck_s, execute)
        else:
            self._send(execute, future)
        return self._given(await future)

    @staticmethod
    def _given(found: Any) -> "Answered":
        assert isinstance(found, Answered)
        return found

    def _send(self, execute: Callable[[], None], future: Any = None) -> None:
        line, draw = self._line, self._draw
        if CLOCK.now_s < line.cut_until_s or draw.random() < line.loss:
            self._counts["fault: requests lost"] += 1
            self._break(future)
            return
        self._at(draw.random() * line.slow_s, execute)

    def _answer(self, future: Any, status: int, body: bytes, headers: Any = None) -> None:
        line, draw = self._line, self._draw
        if CLOCK.now_s < line.cut_until_s or draw.random() < line.loss:
            self._counts["fault: answers lost"] += 1
            self._break(future)
            return
        found = Answered(status, body, {**_HEADERS, **(headers or {})})
        self._at(draw.random() * line.slow_s, lambda: self._give(future, found))

    def _give(self, future: Any, found: Any) -> None:
        if self.alive and not future.done():
            future.set_result(found)

    def _begin(self, future: Any, stream: "Stream") -> None:
        if not self.alive or future.done():
            stream.leave()
        else:
            future.set_result(Answered(200, b"", _HEADERS, stream))

    def _break(self, future: Any) -> None:
        kind = self._draw.choice(_BROKEN)
        if kind is None or future is None:
            return

        def fail() -> None:
            if self.alive and not future.done():
                future.set_exception(kind())

        self._at(self._draw.random() * self._line.slow_s, fail)

    def _page(self, verb: str) -> "_Page | None":
        """The page with which a proxy answers a request; None: it lets it pass."""
        if not self._line.pages or self._draw.random() >= self._line.pages:
            return None
        self._counts["fault: pages of a proxy"] += 1
        page = self._draw.choice(_PAGES)
        return page if verb != "GET" else page._replace(executes=False)

    # ------------------------------------------------------------------ watches

    def _open(self, target_: str, future: Any) -> None:
        path, _, query = target_.partition("?")
        told = dict(part.split("=", 1) for part in query.split("&"))
        what = target(path)
        page = self._page("GET")
        if page is not None and page.status != 200:
            self._answer(future, page.status, _PAGE, page.headers)
            return
        since = int(told["resourceVersion"])
        stream = Stream(
            self, what.resource, float(told["timeoutSeconds"]), only=told.get("fieldSelector", ""), since=since
        )
        if page is not None:
            stream.push(_PAGE)
            stream.end()
            self._at(self._draw.random() * self._line.slow_s, lambda: self._begin(future, stream))
            return
        try:
            before = list(self._api.since(what.resource, since))
        except RefusedError as e:
            line = b'{"type":"ERROR","object":%s}\n' % e.answer.body
            stream.push(line)
            stream.end()
        else:
            self.streams.append(stream)
            for event in before:
                stream.tell(event)
        self._at(self._draw.random() * self._line.slow_s, lambda: self._begin(future, stream))

    def lag_s(self) -> float:
        """How long what a watch tells is on its way."""
        held_s = max(self._line.held_until_s, self._line.cut_until_s) - CLOCK.now_s
        return float(max(held_s, 0.0)) + self._draw.random() * self._line.slow_s

    def tell(self, resource: str, event: Event) -> None:
        """A change happened."""
        for stream in self.streams:
            if stream.resource == resource:
                stream.tell(event)

    def at(self, delay_s: float, what: Callable[[], None]) -> None:
        self._at(delay_s, what)

    def revision(self) -> int:
        return self._api.revision

    def tears(self) -> bool:
        return self._line.tears

    def no_bookmarks(self) -> bool:
        return self._line.no_bookmarks

    def cut(self, size: int) -> int:
        """Where a piece of *size* bytes is cut in two."""
        return self._draw.randint(1, size - 1)

    def torn_end(self) -> Any:
        """How a watch ends within a line: as if the server had ended it, or not."""
        return self._draw.choice((None, ConnectionResetError))

    def break_watches(self, share: float) -> None:
        """Some connections of watches break."""
        for stream in list(self.streams):
            if self._draw.random() < share:
                stream.fail()

    def reset(self) -> None:
        """The server is another one: what was on its way is lost, and all connections break."""
        self._epoch += 1
        self.break_watches(1.0)

    def kill(self) -> None:
        """The process is no more; what it sent goes its way."""
        self.alive = False
        self.streams.clear()


class _Page(NamedTuple):
    """A proxy's answer. executes: the server has executed the request before."""

    status: int
    executes: bool = False
    headers: Mapping[str, str] = {"Content-Type": "text/html"}


# A line break within, as pages have.
_PAGE = b"<html><head><title>Sorry</title></head>\n<body>A proxy speaks, and no API server.</body></html>\n"
_WAIT = {"Content-Type": "text/html", "Retry-After": "2"}
_PAGES = (
    _Page(200),
    _Page(200, executes=True),
    _Page(302),
    _Page(403),
    _Page(404),
    _Page(404, executes=True),
    _Page(409, executes=True),
    _Page(410),
    _Page(429, headers=_WAIT),
    _Page(502),
    _Page(502, executes=True),
    _Page(503),
    _Page(503, headers=_WAIT),
    _Page(503, executes=True, headers=_WAIT),
    _Page(504, executes=True),
)


def _trouble(draw: random.Random) -> tuple[int, bytes, Any]:
    status = draw.choice((429, 500, 503, 504))
    return status, b"{}", {"Retry-After": "1"} if status == 429 else None


class Stream:
    """One watch: what it tells comes in order, each not before it was told and has gone its way.

    It tells nothing, not even a bookmark, of a version up to *since*, even if the server has not reached that yet: so
    does the cacheWatcher of kube-apiserver.
    """

    def __init__(self, network: Network, resource: str, seconds: float, *, only: str, since: int) -> None:
        self.resource = resource
        self._since = since
        self.chunks: deque[bytes | type[Exception] | None] = deque()
        self.waiter: Any = None
        self._network = network
        self._only = only.rpartition("%3D")[2] or only.rpartition("=")[2]
        self._last_s = 0.0
        self._ended = False
        network.at(seconds, self.end)
        network.at(_BOOKMARK_S, self._bookmark)

    def tell(self, event: Event) -> None:
        if event.version > self._since and (not self._only or event.key.endswith(self._only)):
            self.push(event.line)

    def push(self, chunk: Any) -> None:
        """Send *chunk*: bytes, None for the end, or an exception's type."""
        if self._network.tears() and isinstance(chunk, bytes):
            at = self._network.cut(len(chunk))
            self._push(chunk[:at])
            chunk = chunk[at:]
        self._push(chunk)

    def _push(self, chunk: Any) -> None:
        at_s = max(self._last_s, CLOCK.now_s + self._network.lag_s())
        self._last_s = at_s
        self._network.at(at_s - CLOCK.now_s, lambda: self._arrive(chunk))

    def _arrive(self, chunk: Any) -> None:
        if not self._network.alive:
            return
        if self.chunks and isinstance(chunk, bytes) and isinstance(self.chunks[-1], bytes):
            self.chunks[-1] += chunk
        else:
            self.chunks.append(chunk)
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    def _bookmark(self) -> None:
        if not self._ended and self._network.alive:
            now = self._network.revision()
            if now > self._since and not self._network.no_bookmarks():
                self.push(b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"%d"}}}\n' % now)
            self._network.at(_BOOKMARK_S, self._bookmark)

    def end(self) -> None:
        """The server ends it."""
        self._close(None)

    def fail(self) -> None:
        """The connection breaks."""
        if self._network.tears() and not self._ended:
            self._push(_TORN)
            self._close(self._network.torn_end())
            return
        self._close(ConnectionResetError)

    def _close(self, last: Any) -> None:
        if self._ended:
            return
        self._ended = True
        if self in self._network.streams:
            self._network.streams.remove(self)
        self.push(last)

    def leave(self) -> None:
        """Its reader is gone."""
        self._ended = True
        if self in self._network.streams:
            self._network.streams.remove(self)

    async def readany(self) -> bytes:
        while not self.chunks:
            self.waiter = self._network._loop.create_future()
            await self.waiter
        chunk = self.chunks[0]
        if isinstance(chunk, bytes):
            self.chunks.popleft()
            return chunk
        if chunk is None:
            return b""
        raise chunk


class Answered:
    """What of `aiohttp.ClientResponse` is used."""

    def __init__(self, status: int, body: bytes, headers: Any, stream: Stream | None = None) -> None:
        self.status = status
        self.headers = headers
        self.content = stream if stream is not None else _Body(body)
        self._stream = stream

    def release(self) -> None:
        pass

    def close(self) -> None:
        if self._stream is not None:
            self._stream.leave()


class _Body:
    def __init__(self, body: bytes) -> None:
        self._body = body

    async def iter_any(self):
        yield self._body


class _Session:
    """What of `aiohttp.ClientSession` is used."""

    def __init__(self, network: Network) -> None:
        self._network = network

    async def request(self, verb: str, url: Any, *, data: bytes | None, headers: Any, **_: Any) -> Answered:
        return await self._network.request(verb, url.raw_path_qs, data, headers.get("Content-Type", ""))

    async def close(self) -> None:
        pass


class _MemoryTransport(Transport):
    """The transport itself, over this network."""

    def __init__(self, network: Network) -> None:
        super().__init__(FixedSource(credentials=Credentials(server="http://twin.invalid")), user_agent="twin")
        self._network = network

    def _open_session(self, purpose: Any) -> Any:
        return _Session(self._network)
