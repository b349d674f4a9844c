"""One connection of a port: reads calls within limits of size and time, and answers them one at a time.

llhttp (httptools) decides what is a head, a length or a version. It gets complete heads of limited size, one at a time,
and nothing else. So nothing is parsed ahead of an answer, and no state of the parser outlives a call.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, Protocol, cast
from urllib.parse import unquote

import httptools

from runtime.calls import TEXT, Call, Reply, refusal

MAX_HEAD_BYTES: Final = 8 * 1024
# Limit for data behind a call in progress. A client that sends more gets its answer, then the connection ends.
_MAX_AHEAD_BYTES: Final = 64 * 1024
# A head has a few hundred bytes. A client that needs longer only occupies a connection.
_HEAD_S: Final = 10.0
_LINGER_S: Final = 5.0
_BRIEFLY_S: Final = 0.2
_WRITE_S: Final = 30.0
# At most six bodies over this size are read at a time. The next one waits within its deadline, and no more of it is
# read. So memory is bounded by the bodies in progress, not by the number of connections.
LARGE_BYTES: Final = 64 * 1024
LARGE_AT_A_TIME: Final = 6
# Includes the bodies that are being read. Each waiting one occupies a packet or two.
_MAX_LARGE: Final = 64
# Sent before a connection ends, because a call may be on its way and HTTP/1.1 has no other warning. client-go, through
# which the API server calls webhooks, takes it as the answer to that call and sends the call again, with its body, on
# another connection (k8s.io/client-go/rest/with_retry.go). Without it the call fails with EOF, because Go's client
# repeats no POST (net/http, `shouldRetryRequest`). If no call is on its way, the client closes the connection.
_ASK_AGAIN: Final = (
    b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)
# How long such a call is read, so that no reset arrives before the answer.
_FAREWELL_S: Final = 1.0
_END: Final = b"\r\n"
_CLOSE: Final = b"connection: close" + 2 * _END
_CONTINUE: Final = b"HTTP/1.1 100 Continue" + 2 * _END
_VERSIONS: Final = ("1.1", "1.0")


class ConnectionPort(Protocol):
    """A connection's view of its port."""

    answer: Callable[[Call], Reply | Awaitable[Reply]]
    large: "LargeBodies"
    draining: bool
    asks_again: bool
    max_body_bytes: int

    def head(self, reply: Reply) -> bytes:
        """Return the head of *reply*, without the lines that depend on its body or on the connection."""

    def why_not(self, certificate: Mapping[str, Any]) -> str:
        """Return why the owner of a TLS certificate may not call, or ""."""

    def deadline_s(self, query: bytes) -> float:
        """Return the time limit for the arrival of a body."""

    def ended(self, one: "Connection") -> None:
        """Record that a call was answered."""

    def lost(self, one: "Connection") -> None:
        """Record that the connection is gone."""

    def refuse(self, status: int) -> None:
        """Count a refused call."""


class _Session(Protocol):
    """The extra methods of TLS transports."""

    def set_read_buffer_limits(self, *, high: int) -> None:
        """Set how many unread bytes may arrive before the transport stops reading."""


class LargeBodies:
    """Admits the large bodies of a port, a few at a time, in the order of their arrival."""

    def __init__(self) -> None:
        self._admitted: set[Connection] = set()
        self._waiting: dict[Connection, None] = {}

    def admit(self, one: "Connection") -> bool:
        """Admit *one* now or later, which resumes it; False: too many wait."""
        if len(self._admitted) + len(self._waiting) >= _MAX_LARGE:
            return False
        self._waiting[one] = None
        one.pause_reading()
        self._go_on()
        return True

    def leave(self, one: "Connection") -> None:
        """Record that the body of *one* is complete, or not wanted anymore."""
        self._waiting.pop(one, None)
        self._admitted.discard(one)
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting and len(self._admitted) < LARGE_AT_A_TIME:
            one = next(iter(self._waiting))
            del self._waiting[one]
            self._admitted.add(one)
            one.resume_reading()


class _Head:
    """The head of a call.

    Raises:
        httptools.HttpParserError, httptools.HttpParserUpgrade, ValueError: this is no head of HTTP/1.1.
    """

    __slots__ = (
        "_parser", "has_body", "headers", "is_complete", "keeps_alive", "length", "method", "path", "query", "url",
        "version", "waits_for_leave",
    )  # fmt: skip

    def __init__(self, text: bytes) -> None:
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.keeps_alive = self.waits_for_leave = self.is_complete = False
        self.has_body = True
        self.length = 0
        self._parser = httptools.HttpRequestParser(self)
        try:
            self._parser.feed_data(text)
        finally:
            del self._parser
        # Of a head without a version, llhttp takes bare line feeds as line ends.
        if not self.is_complete or self.version not in _VERSIONS:
            raise ValueError("the head has no end, or no version that is served")
        url = httptools.parse_url(self.url)
        if url.path is None:
            raise ValueError("the address has no path")
        path = url.path.decode("ascii")
        self.path = unquote(path) if "%" in path else path
        self.query = url.query or b""

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        self.headers.append((name, value))
        if name == b"content-length":
            self.length = int(value)
        elif name == b"expect" and value.lower() == b"100-continue":
            self.waits_for_leave = True

    def on_headers_complete(self) -> None:
        parser = self._parser
        self.is_complete = True
        self.method = parser.get_method().decode("ascii")
        self.version = parser.get_http_version()
        self.keeps_alive = self.version != "1.0" and parser.should_keep_alive()

    def on_message_complete(self) -> None:
        self.has_body = False


class Connection(asyncio.Protocol):
    """See the module. has_begun: whether a call is in progress; since_s: time of that state, by the loop's clock."""

    def __init__(self, place: ConnectionPort) -> None:
        self._place = place
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._held = b""
        # A call is in progress from its head to its answer; its body is `_left` bytes short.
        self._call: _Head | None = None
        self._body = bytearray()
        self._left = 0
        # From the first bytes over the limit until the call is judged, even if its client has left: judging takes more
        # memory than the body.
        self._is_large = self._is_judged_later = False
        self._keeps_alive = self._has_started = False
        self._is_reading = True
        self._writable = asyncio.Event()
        self._writable.set()
        self._timer: asyncio.TimerHandle | None = None
        # Nothing is read or answered anymore.
        self._is_over = False
        self._saw_eof = False
        self._task: asyncio.Task[None] | None = None
        # The one that accepts the connection.
        self.task: asyncio.Task[None] | None = None
        self.has_begun = False
        self.since_s = self._loop.time()

    # ------------------------------------------------------------------ what the transport says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports implement the interface without inheriting from the class.
        self._transport = cast(asyncio.Transport, transport)
        self._lingers = self._transport.can_write_eof()
        if not self._lingers:
            # TLS buffers this much even while reading is paused; the library's default is four times as large.
            cast(_Session, transport).set_read_buffer_limits(high=_MAX_AHEAD_BYTES)
        self._stranger = self._place.why_not(transport.get_extra_info("peercert") or {})
        peer = transport.get_extra_info("peername")
        self._address = str(peer[0]) if peer else ""

    def connection_lost(self, exc: Exception | None) -> None:
        self._give_up()
        self._writable.set()
        self._place.lost(self)

    def data_received(self, data: bytes) -> None:
        if not self._is_over:
            self._held = self._held + data if self._held else data
            self._go_on()

    def eof_received(self) -> bool:
        if self._is_answering:
            # A client that has closed its sending side may still read.
            self._keeps_alive, self._saw_eof = False, True
            return self._lingers
        if self.has_begun:
            self._refuse(400, "the call ends before its body does")
        else:
            self._give_up()
        return False

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # ------------------------------------------------------------------ calls

    @property
    def _is_answering(self) -> bool:
        return self._call is not None and not self._left

    def _go_on(self) -> None:
        """Read on in one call, and keep the data behind it until that call is answered."""
        if self._held and self._call is None:
            self._read_head()
        if self._call is None:
            return
        if self._left:
            self._read_body(self._call)
        elif self._held:
            self.pause_reading()
            if len(self._held) > _MAX_AHEAD_BYTES:
                self._held, self._keeps_alive = b"", False

    def _read_head(self) -> None:
        if not self.has_begun:
            self.has_begun, self.since_s = True, self._loop.time()
        # Blank lines before a call are not calls.
        data = self._held = self._held.lstrip(_END)
        found = data.find(2 * _END)
        end = found + 4 if found >= 0 else len(data)
        if end > MAX_HEAD_BYTES:
            self._refuse(431, f"send a head of at most {MAX_HEAD_BYTES} bytes")
        if found < 0 or self._is_over:
            return
        try:
            head = _Head(data[:end])
        except (httptools.HttpParserError, httptools.HttpParserUpgrade, ValueError):
            self._refuse(400, "this is not HTTP/1.1")
            return
        # The caller and the announced length are checked before any of the body is read.
        if self._stranger:
            self._refuse(403, self._stranger)
        elif head.has_body and not head.length:
            self._refuse(411, "send the body with its length")
        elif head.length > self._place.max_body_bytes:
            self._refuse(413, f"send at most {self._place.max_body_bytes} bytes")
        else:
            self._call, self._left, self._held = head, head.length, data[end:]
            self._keeps_alive = head.keeps_alive and not self._place.draining
            if head.waits_for_leave and head.version != "1.0":
                self._write(_CONTINUE)
            if not self._left:
                self._loop.call_soon(self._answer)

    def _read_body(self, head: _Head) -> None:
        piece, self._held = self._held[: self._left], self._held[self._left :]
        self._body += piece
        self._left -= len(piece)
        if not self._left:
            self._stop_timer()
            # Not at once: over TLS, this runs inside the loop's read, where a write costs more than the delay.
            self._loop.call_soon(self._answer)
            self._go_on()
            return
        if self._timer is None:
            seconds = self._place.deadline_s(head.query)
            self._timer = self._loop.call_later(seconds, self._refuse, 408, "the call did not arrive in time")
        if len(self._body) > LARGE_BYTES and not self._is_large:
            self._is_large = self._place.large.admit(self)
            if not self._is_large:
                self._refuse(503, "too many large calls at a time; try again")
                # Free its buffers soon.
                self._stop_timer()
                self._timer = self._loop.call_later(_BRIEFLY_S, self.abort)

    def _free_body(self) -> None:
        self._body = bytearray()
        if self._is_large and not self._is_judged_later:
            self._is_large = False
            self._place.large.leave(self)

    def _answer(self) -> None:
        head = self._call
        if head is None:
            return
        call = Call(head.method, head.path, head.query, head.headers, self._body, self._has_left, self._address)
        try:
            found = self._place.answer(call)
        except Exception as e:  # noqa: BLE001 (the outermost frame of a call)
            found = self._refused(e)
        del call
        self._is_judged_later = not isinstance(found, Reply)
        self._free_body()
        if isinstance(found, Reply) and isinstance(found.body, bytes) and self._writable.is_set():
            # Not at once: calls that arrive together are all judged before any answer is encrypted and sent. So the
            # processor's caches hold one kind of work at a time.
            self._loop.call_soon(self._send, head, found, found.body)
        else:
            self._task = self._loop.create_task(self._finish(head, found), name="answer")

    def _has_left(self) -> bool:
        return self._is_over

    def _refused(self, error: Exception) -> Reply:
        reply = refusal(error)
        self._place.refuse(reply.status)
        return reply

    async def _finish(self, head: _Head, found: Reply | Awaitable[Reply]) -> None:
        """Send an answer that is awaited, or comes in pieces, or has to wait for the client to read."""
        try:
            reply = found if isinstance(found, Reply) else await found
            if not isinstance(reply.body, bytes) and (head.method == "HEAD" or head.version == "1.0"):
                # Neither has chunks.
                reply = reply._replace(body=b"".join([piece async for piece in reply.body]))
        except Exception as e:  # noqa: BLE001 (the outermost frame of a call)
            reply = self._refused(e)
        finally:
            self._is_judged_later = False
            self._free_body()
        # The client has as long to read an answer that took long.
        self.since_s = self._loop.time()
        await self._writable.wait()
        if isinstance(reply.body, bytes):
            self._send(head, reply, reply.body)
            return
        try:
            await self._send_pieces(reply, reply.body)
        except Exception as e:  # noqa: BLE001 (the outermost frame of a call)
            reply = self._refused(e)
            if self._has_started:
                self.abort()
            else:
                self._send(head, reply, cast(bytes, reply.body))

    def _send(self, head: _Head, reply: Reply, body: bytes) -> None:
        """Write *reply* with *body* in one piece: one TLS record instead of two."""
        if self._is_over:
            return
        length = b"content-length: %d\r\n" % len(body)
        end = _END if self._keeps_alive else _CLOSE
        self._write(b"".join((self._place.head(reply), length, end, b"" if head.method == "HEAD" else body)))
        self._end_call()

    async def _send_pieces(self, reply: Reply, pieces: AsyncIterator[bytes]) -> None:
        end = _END if self._keeps_alive else _CLOSE
        head = self._place.head(reply) + b"transfer-encoding: chunked\r\n" + end
        async for piece in pieces:
            await self._writable.wait()
            if self._is_over:
                return
            if piece:
                self._write(b"%b%x\r\n%b\r\n" % (head, len(piece), piece))
                head, self._has_started = b"", True
        if not self._is_over:
            self._write(head + b"0\r\n\r\n")
            self._end_call()

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _end_call(self) -> None:
        """Continue with the held data after an answer."""
        if not self._keeps_alive:
            if self._lingers:
                self._linger()
            else:
                self.end()
            return
        self._call, self._has_started = None, False
        self.has_begun, self.since_s = False, self._loop.time()
        self._place.ended(self)
        self.resume_reading()
        self._go_on()

    def _refuse(self, status: int, text: str) -> None:
        """Refuse an invalid or incomplete call; nothing can follow it on this connection."""
        self._place.refuse(status)
        body = f"{text}\n".encode()
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: {TEXT}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self._write(head.encode() + body)
        self._linger()

    def _linger(self, seconds: float = _LINGER_S) -> None:
        """End the connection after the answer has arrived; an immediate close would reset a client that still sends."""
        self._give_up()
        if self._saw_eof or self._transport is None:
            self.end()
            return
        if self._lingers:
            # The default loop raises this for a client that has just reset the connection.
            with contextlib.suppress(OSError):
                self._transport.write_eof()
        self.resume_reading()
        self._timer = self._loop.call_later(seconds, self.end)

    def _give_up(self) -> None:
        """Read and answer nothing more."""
        self._stop_timer()
        self._free_body()
        self._is_over, self._call, self._held, self._left = True, None, b"", 0
        self.has_begun, self.since_s = False, self._loop.time()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # ------------------------------------------------------------------ what the port does

    def pause_reading(self) -> None:
        """Read nothing until `resume_reading`."""
        if self._is_reading and self._transport is not None:
            self._is_reading = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Undo `pause_reading`."""
        if not self._is_reading and self._transport is not None:
            self._is_reading = True
            self._transport.resume_reading()

    def look(self, now_s: float, keepalive_s: float) -> None:
        """End a connection that idles too long, whose head is late, or whose answer is not read."""
        age_s = now_s - self.since_s
        if self._transport is None:
            return
        if self._is_over:
            # A transport that is closed keeps what the client does not read.
            if age_s > _WRITE_S:
                self.abort()
        elif not self._writable.is_set() and age_s > _WRITE_S:
            self.abort()
        elif not self.has_begun:
            if age_s > keepalive_s:
                self._part()
        elif age_s > _HEAD_S and self._call is None:
            self._refuse(408, "the call did not arrive in time")

    def retire(self) -> None:
        """Answer the call in progress, if any, then end."""
        if self._transport is None:
            self.abort()
        elif self._call is not None:
            self._keeps_alive = False
        else:
            self._part()

    def _part(self) -> None:
        """End a connection without a call in progress; a client that is about to send one is asked to send it again."""
        if self._asks_again:
            self._write(_ASK_AGAIN)
            self._linger(_FAREWELL_S)
        else:
            self.end()

    def give_way(self) -> None:
        """End as soon as possible, even with a call in progress; ask the client to send its call again."""
        if not self._asks_again:
            self.abort()
            return
        if not self._has_started:
            self._write(_ASK_AGAIN)
        self._give_up()
        # The loop writes pending data before it runs this callback.
        self._loop.call_soon(self.abort)

    @property
    def _asks_again(self) -> bool:
        transport = self._transport
        return self._place.asks_again and not self._is_over and transport is not None and not transport.is_closing()

    def end(self) -> None:
        """Read and answer nothing more, and close after all pending data is written."""
        self._give_up()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once, even during the TLS handshake."""
        if self._transport is not None:
            self._transport.abort()
        elif self.task is not None:
            self.task.cancel()
