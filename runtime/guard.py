"""Limits what a connection passes to the server: size, time, and the data sent ahead of an answer.

The server is uvicorn's protocol on httptools (llhttp), so proven code decides what is a call, a length or an answer. It
limits neither heads, bodies nor time, and it parses every call in a packet before it answers the first. So the guard
passes on one head, then that call's body, then nothing until the answer is sent.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, Final, Protocol, cast

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from runtime.calls import LARGE_BYTES, App, Reply

MAX_HEAD_BYTES: Final = 8 * 1024
# Limit for data behind a call in progress. A client that sends more gets its answer, then the connection ends.
_MAX_AHEAD_BYTES: Final = 64 * 1024
# A head has a few hundred bytes. A client that needs longer only occupies a connection.
_HEAD_S: Final = 10.0
_LINGER_S: Final = 5.0
_BRIEFLY_S: Final = 0.2
_WRITE_S: Final = 30.0
# Sent before a connection ends, because a call may be on its way and HTTP/1.1 has no other warning. client-go, through
# which the API server calls webhooks, takes it as the answer to that call and sends the call again, with its body, on
# another connection (k8s.io/client-go/rest/with_retry.go). Without it the call fails with EOF, because Go's client
# repeats no POST (net/http, `shouldRetryRequest`). If no call is on its way, the client closes the connection.
_ASK_AGAIN: Final = (
    b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)
# How long such a call is read, so that no reset arrives before the answer.
_FAREWELL_S: Final = 1.0
_HEAD_END: Final = b"\r\n\r\n"
_BLANK: Final = b"\r\n"
_CLOSE: Final = b"\r\nconnection: close" + _HEAD_END
_DIRECT: Final = ("GET", "POST")
# Status lines other than 100 Continue.
_FINAL_HEADS: Final = tuple(b"HTTP/1.1 %d" % first for first in range(2, 6))


class Place(Protocol):
    """A connection's view of its port."""

    app: App
    config: Config
    state: ServerState
    draining: bool
    asks_again: bool
    max_body_bytes: int

    def head(self, reply: Reply) -> bytes:
        """Return the head of *reply*, up to the value of the content length."""

    def why_not(self, certificate: Mapping[str, Any]) -> str:
        """Return why the owner of a TLS certificate may not call, or ""."""

    def deadline_s(self, query: bytes) -> float:
        """Return the time limit for the arrival of a body."""

    def ended(self, one: "Guarded") -> None:
        """Record that a call was answered."""

    def lost(self, one: "Guarded") -> None:
        """Record that the connection is gone."""

    def refuse(self, status: int) -> None:
        """Count a refused call."""


class _Session(Protocol):
    """The extra methods of TLS transports."""

    def set_read_buffer_limits(self, *, high: int) -> None:
        """Set how many unread bytes may arrive before the transport stops reading."""


class Guarded(HttpToolsProtocol):
    """One connection. has_begun: whether a call is in progress; since_s: time of that state, by the loop's clock."""

    transport: asyncio.Transport

    def __init__(self, place: Place) -> None:
        super().__init__(place.config, place.state, {})
        self._place = place
        self._held = b""
        self._left = 0
        self._timer: asyncio.TimerHandle | None = None
        self.has_begun = False
        self._is_over = False
        self._is_gone = False
        self._saw_eof = False
        self._is_direct = False
        self._call: tuple[RequestResponseCycle, ASGI3Application] | None = None
        self._called: asyncio.Future[None] | None = None
        self.task: asyncio.Task[None] | None = None
        self.since_s = self.loop.time()

    # ------------------------------------------------------------------ what the transport says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        # uvloop's transports implement the interface without inheriting from the class.
        self._out = _Out(cast(asyncio.Transport, transport), self._linger)
        super().connection_made(cast(asyncio.Transport, self._out))
        if not self._out.lingers:
            # TLS buffers this much even while reading is paused; the library's default is four times as large.
            cast(_Session, transport).set_read_buffer_limits(high=_MAX_AHEAD_BYTES)
        self.app_state["has_left"] = lambda: self._is_gone
        self.app_state["stranger"] = self._place.why_not(transport.get_extra_info("peercert") or {})

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._is_gone = True
        self._give_up()
        self._place.lost(self)
        super().connection_lost(exc)
        self._wake()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        if self._is_over:
            return
        self._held = self._held + data if self._held else data
        if self._is_answering:
            self._bound()
        else:
            self._go_on()

    def eof_received(self) -> bool | None:  # type: ignore[override]  # as asyncio has it
        """See `asyncio.Protocol`."""
        if self._is_over or not self.has_begun:
            return None
        if self._is_answering:
            # A client that has closed its sending side may still read.
            self.cycle.keep_alive, self._saw_eof = False, True
            return self._out.lingers
        self._refuse(400, "the call ends before its body does")
        return None

    # ------------------------------------------------------------------ calls

    @property
    def _is_answering(self) -> bool:
        cycle = self.cycle
        return cycle is not None and not cycle.response_complete and not cycle.more_body

    @property
    def _is_in_body(self) -> bool:
        cycle = self.cycle
        return cycle is not None and not cycle.response_complete and cycle.more_body

    def _go_on(self) -> None:
        """Give the parser one call of the held data, and keep the rest until that call is answered."""
        if self._is_over or not self._held or self._is_answering or self._out.is_closing():
            return
        data, cycle, at = self._held, self.cycle, 0
        if not self.has_begun:
            self.has_begun, self.since_s = True, self.loop.time()
        if cycle is None or cycle.response_complete:
            # Blank lines before a call are not calls.
            self._held = data = data.lstrip(_BLANK)
            found = data.find(_HEAD_END)
            at = found + len(_HEAD_END) if found >= 0 else len(data)
            if at > MAX_HEAD_BYTES:
                self._refuse(431, f"send a head of at most {MAX_HEAD_BYTES} bytes")
                return
            if found < 0:
                return
            self._parse(data[:at])
            self._look_at_head()
            if self._is_over:
                return
            has_call = self._is_answering or self._is_in_body
            self._is_direct = has_call and self._may_be_direct()
            if has_call and not self._is_direct:
                self._hand_over(self.app)
        if self._left and not self._is_over:
            body = data[at : at + self._left]
            at += len(body)
            self._left -= len(body)
            self._parse(body)
        if self._is_over:
            return
        self._held = data[at:]
        if self._left and self._timer is None:
            seconds = self._place.deadline_s(self.scope["query_string"])
            self._timer = self.loop.call_later(seconds, self._refuse, 408, "the call did not arrive in time")
        elif not self._left and self._timer is not None:
            self._stop_timer()
        if self._is_direct and self._is_answering:
            # Not at once: over TLS, this runs inside the loop's read, where a write costs more than the delay.
            self._is_direct = False
            self.loop.call_soon(self._answer)
        self._bound()

    def _bound(self) -> None:
        """Stop reading while a call is being answered."""
        if self._held and self._is_answering:
            self.flow.pause_reading()
            if len(self._held) > _MAX_AHEAD_BYTES:
                self._held, self._is_over = b"", True
                self.cycle.keep_alive = False

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """Replaces the library's method, which creates a task for every call; `_go_on` decides when to answer."""

    def _hand_over(self, app: ASGI3Application) -> None:
        """Let the connection's task answer the call with *app*."""
        self._call = self.cycle, app
        self._wake()

    def _wake(self) -> None:
        if self._called is not None and not self._called.done():
            self._called.set_result(None)

    def _may_be_direct(self) -> bool:
        """Whether the complete call can be answered at once; all others are answered over ASGI."""
        cycle = self.cycle
        return (
            self._left <= LARGE_BYTES
            and self.scope["method"] in _DIRECT
            and not cycle.waiting_for_100_continue
            and not self.flow.write_paused
        )

    def _answer(self) -> None:
        """Answer without a task and in one write, because most calls and answers are complete at once."""
        cycle = self.cycle
        if self._is_gone or cycle.disconnected:
            return
        found = self._place.app.reply(cycle.scope, cycle.body)
        if isinstance(found, Reply) and isinstance(found.body, bytes):
            # Not at once: calls that arrive together are all judged before any answer is encrypted and sent. So the
            # processor's caches hold one kind of work at a time.
            self.loop.call_soon(self._send, found, found.body)
        else:
            self._hand_over(partial(self._finish, found))

    def _send(self, reply: Reply, body: bytes) -> None:
        """Write *reply* with *body* in one piece."""
        cycle = self.cycle
        if self._is_gone or cycle.disconnected:
            return
        if self.flow.write_paused:
            self._hand_over(partial(self._finish, reply))
            return
        cycle.response_started = cycle.response_complete = True
        end = _HEAD_END if cycle.keep_alive else _CLOSE
        self._out.inner.write(b"".join((self._place.head(reply), b"%d" % len(body), end, body)))
        if not cycle.keep_alive:
            self._out.close()
        self.on_response_complete()

    async def _finish(self, found: Reply | Awaitable[Reply], scope: Any, receive: Any, send: Any) -> None:
        del receive
        await self._place.app.finish(found, scope, send)

    async def work(self) -> None:
        """Answer the connection's calls one at a time until it is gone."""
        while not self._is_gone:
            if self._call is None:
                self._called = self.loop.create_future()
                await self._called
            else:
                (cycle, app), self._call = self._call, None
                await cycle.run_asgi(app)

    def _parse(self, piece: bytes) -> None:
        try:
            self.parser.feed_data(piece)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._refuse(400, "this is not HTTP/1.1")

    def _look_at_head(self) -> None:
        """Check the announced length before any of the body is read."""
        if self.cycle is None or self.cycle.response_complete or self._is_over:
            return
        if self._place.draining:
            self.cycle.keep_alive = False
        if not self.cycle.more_body:
            return
        self._left = 0
        for name, value in self.headers:
            if name == b"content-length":
                self._left = int(value)
        if not self._left:
            self._refuse(411, "send the body with its length")
        elif self._left > self._place.max_body_bytes:
            self._refuse(413, f"send at most {self._place.max_body_bytes} bytes")

    def on_response_complete(self) -> None:
        """Continue with the held data. Replaces the library's method, which keeps a timer for every call."""
        self._out.flush()
        if self._out.is_closing() or self._is_over:
            return
        if self.cycle.more_body:
            # Answered before the body was complete because too many large calls wait; free its buffers soon.
            self._linger()
            self._stop_timer()
            self._timer = self.loop.call_later(_BRIEFLY_S, self.abort)
            return
        self.has_begun = False
        self.since_s = self.loop.time()
        self._place.ended(self)
        self.flow.resume_reading()
        if self._held:
            self._go_on()

    def _refuse(self, status: int, text: str) -> None:
        """Refuse an invalid or incomplete call; nothing can follow it on this connection."""
        cycle = self.cycle
        started = False
        if cycle is not None and not cycle.response_complete:
            started, cycle.disconnected = cycle.response_started, True
            cycle.message_event.set()
        self._place.refuse(status)
        if not started and not self._out.is_closing():
            self._out.inner.write(
                f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: text/plain; charset=utf-8\r\n"
                f"Content-Length: {len(text) + 1}\r\nConnection: close\r\n\r\n{text}\n".encode()
            )
        self._linger()

    def _linger(self, seconds: float = _LINGER_S) -> None:
        """End the connection after the answer has arrived; an immediate close would reset a client that still sends."""
        self._give_up()
        if self._saw_eof:
            self.end()
            return
        if self._out.lingers:
            self._out.inner.write_eof()
        self.flow.resume_reading()
        self._timer = self.loop.call_later(seconds, self.end)

    def _give_up(self) -> None:
        """Read nothing more."""
        self._is_over, self._held = True, b""
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # ------------------------------------------------------------------ what the port does

    def look(self, now_s: float, keepalive_s: float) -> None:
        """End a connection that idles too long, whose head is late, or whose answer is not read."""
        age_s = now_s - self.since_s
        if self.transport is None or self._is_over:
            return
        if not self.has_begun:
            if age_s > keepalive_s:
                self._part()
        elif self.flow.write_paused and age_s > _WRITE_S:
            self.abort()
        elif age_s > _HEAD_S and not self._is_in_body and not self._is_answering:
            self._refuse(408, "the call did not arrive in time")

    def retire(self) -> None:
        """Answer the call in progress, if any, then end."""
        if self.transport is None:
            self.abort()
        elif self._is_answering or self._is_in_body:
            self.cycle.keep_alive = False
        else:
            self._part()

    def _part(self) -> None:
        """End a connection without a call in progress; a client that is about to send one is asked to send it again."""
        if self._place.asks_again and not self._is_over and not self._out.is_closing():
            self._out.inner.write(_ASK_AGAIN)
            self._linger(_FAREWELL_S)
        else:
            self.end()

    def give_way(self) -> None:
        """End as soon as possible, even with a call in progress; ask the client to send its call again."""
        if self.transport is None or not self._place.asks_again or self._is_over or self._out.is_closing():
            self.abort()
            return
        cycle = self.cycle
        if cycle is None or cycle.response_complete or not cycle.response_started:
            self._out.inner.write(_ASK_AGAIN)
        if cycle is not None:
            # Answer nothing else.
            cycle.disconnected = True
            cycle.message_event.set()
        self._give_up()
        # The loop writes pending data before it runs this callback.
        self.loop.call_soon(self.abort)

    def end(self) -> None:
        """Close after all pending data is written."""
        self._out.inner.close()

    def abort(self) -> None:
        """Close at once, even during the TLS handshake."""
        if self.transport is not None:
            self._out.inner.abort()
        elif self.task is not None:
            self.task.cancel()


class _Out:
    """The transport as the library sees it. It sends the head of an answer together with the body, in one TLS record.

    A plain connection stays open until its last data has arrived; TLS has its own closing message.
    """

    def __init__(self, inner: asyncio.Transport, linger: Callable[[], None]) -> None:
        self.inner = inner
        self.lingers = inner.can_write_eof()
        self.get_extra_info = inner.get_extra_info
        self.pause_reading = inner.pause_reading
        self.resume_reading = inner.resume_reading
        self._write = inner.write
        self._linger = linger
        self._head = b""
        self._is_closing = False

    def write(self, data: bytes) -> None:
        """See `asyncio.WriteTransport`."""
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(_FINAL_HEADS):
            self._head = data
            return
        self._write(data)

    def flush(self) -> None:
        """Write a head that has no body."""
        if self._head:
            self.write(b"")

    def is_closing(self) -> bool:
        """See `asyncio.BaseTransport`."""
        return self._is_closing or self.inner.is_closing()

    def close(self) -> None:
        """See `asyncio.BaseTransport`."""
        if self.is_closing():
            return
        self._is_closing = True
        self.flush()
        if self.lingers:
            self._linger()
        else:
            self.inner.close()
