"""HTTP: calls in, answers out. The one file that knows aiohttp, of which it uses the parser.

The parser is llhttp, so what is a request, a length or a chunk is decided by code that the world has tried. The rest of
the library's server is left out: a task, a router and an answer built header by header cost twice what a review does.
A connection answers its calls one after the other, in the order in which they came.
"""

import asyncio
import contextlib
import socket
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Final, NamedTuple, Protocol, cast

import structlog
from aiohttp.http import HttpRequestParser, RawRequestMessage
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.streams import StreamReader

from webhook.options import Address
from webhook.sharing import Outlet

_log: Final = structlog.get_logger()

# The API server takes writes of up to 3 MiB; a review holds at most two objects and an envelope under 1 MiB.
MAX_BODY_BYTES: Final = 7 * 2**20
# The API server's client keeps idle connections for 90 s; closing first would race with its next call.
KEEPALIVE_S: Final = 120.0
# A head is a few hundred bytes; whoever takes longer holds a connection and means nothing by it.
_HEAD_S: Final = 10.0
_LINGER_S: Final = 5.0
_WRITE_S: Final = 30.0
_HANDSHAKE_S: Final = 10.0
_SWEEP_S: Final = 1.0
BACKLOG: Final = 1024
_MAX_LINE_BYTES: Final = 8190
# How many bodies over this size are taken in at a time; the next waits, inside its deadline. So memory is bounded by
# what is being read, not by who connects.
_LARGE_BYTES: Final = 256 * 1024
_LARGE_AT_A_TIME: Final = 6

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"


class Head(NamedTuple):
    """The first lines of a call. headers are found whatever their case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]


class Reply(NamedTuple):
    """What is answered; *close* ends the connection after it, *allow* lists the methods of a 405."""

    body: bytes
    status: int = 200
    content_type: str = JSON
    allow: str = ""
    close: bool = False


class Answers(Protocol):
    """What is behind a port."""

    def begun(self) -> None:
        """A call has come, as far as its head."""

    def ended(self) -> None:
        """A call that had come is answered, or will never be."""

    def refusal(self, head: Head) -> Reply | None:
        """The answer to a call whose body is not worth reading."""

    def answer(self, head: Head, body: bytes | bytearray) -> Reply | Awaitable[Reply]:
        """The answer to a whole call; an exception of it ends in `failure`."""

    def trouble(self, status: int, text: str) -> Reply:
        """The answer to what is no call, or did not arrive."""

    def deadline_s(self, head: Head) -> float:
        """How long the rest of a call may take to arrive."""


class Port:
    """One port and its connections: those that it accepts, or those that another process accepted for it."""

    def __init__(
        self,
        answers: Answers,
        address: Address,
        context: ssl.SSLContext | None = None,
        *,
        max_connections: int = 1024,
        outlet: Outlet | None = None,
        why_not: Callable[[Mapping[str, Any]], str] | None = None,
    ) -> None:
        """Prepare.

        Args:
            answers: what to say.
            address: where to listen.
            context: for TLS; None for plain text.
            max_connections: with one more, the one that has been idle longest is closed.
            outlet: where connections come from; None for those that come to *address*.
            why_not: why the owner of a TLS certificate may not call, or ""; None lets in everybody.
        """
        self.answers = answers
        self.draining = False
        self.dropped = 0
        self.large = 0
        self.large_waiting: deque[_Connection] = deque()
        self.connections: set[_Connection] = set()
        self.address = address
        self.why_not = why_not
        self._context = context
        self._max_connections = max_connections
        self._outlet = outlet
        self._arriving: set[asyncio.Task[None]] = set()
        self._socket: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._emptied: asyncio.Event | None = None

    @property
    def held(self) -> int:
        """How many connections there are, with those that only arrive."""
        return len(self.connections) + len(self._arriving)

    async def start(self) -> Address:
        """Listen, and say where: of port 0 the one that was given.

        Raises:
            OSError: the address cannot be had.
        """
        self._sweeper = asyncio.create_task(self._sweep(), name="sweep")
        if self._outlet is not None:
            asyncio.get_running_loop().add_reader(self._outlet.fileno(), self._take_over, self._outlet)
            self._outlet.say_ready()
            return self.address
        self._socket = bound(self.address, shared=False)
        await self._serve()
        return Address(host=self.address.host, port=self._socket.getsockname()[1])

    async def renew(self, context: ssl.SSLContext) -> None:
        """Serve new connections by *context*. The listening socket stays, so that none is turned away meanwhile."""
        self._context, before = context, self._server
        if self._outlet is None:
            await self._serve()
        if before is not None:
            before.close()

    async def _serve(self) -> None:
        if self._socket is None:
            raise RuntimeError("start() comes first")
        loop = asyncio.get_running_loop()
        # Of its own: the server closes the one it has.
        self._server = await loop.create_server(
            self._connect,
            sock=self._socket.dup(),
            ssl=self._context,
            backlog=BACKLOG,
            ssl_handshake_timeout=_HANDSHAKE_S if self._context else None,
            ssl_shutdown_timeout=_LINGER_S if self._context else None,
        )

    def _take_over(self, outlet: Outlet) -> None:
        try:
            found = outlet.take()
        except EOFError:
            asyncio.get_running_loop().remove_reader(outlet.fileno())
            return
        for connection in found:
            task = asyncio.get_running_loop().create_task(self._welcome(connection), name="handshake")
            self._arriving.add(task)
            task.add_done_callback(self._arriving.discard)

    async def _welcome(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.connect_accepted_socket(
                self._connect,
                connection,
                ssl=self._context,
                ssl_handshake_timeout=_HANDSHAKE_S if self._context else None,
                ssl_shutdown_timeout=_LINGER_S if self._context else None,
            )
        except OSError as e:
            connection.close()
            # As the loop does with those that it accepts itself.
            loop.call_exception_handler({"message": "session does not stand", "exception": e})

    def drain(self) -> None:
        """Go on serving, and have every connection that is used turn over to somebody else."""
        self.draining = True

    async def stop(self, patience_s: float) -> None:
        """Take no new connection, let calls that are under way end, close the rest."""
        self.draining = True
        if self._server is not None:
            self._server.close()
        if self._socket is not None:
            self._socket.close()
        if self._outlet is not None:
            asyncio.get_running_loop().remove_reader(self._outlet.fileno())
            self._outlet.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for one in tuple(self.connections):
            if not one.busy:
                one.close()
        if self.connections:
            self._emptied = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._emptied.wait(), patience_s)
        for task in tuple(self._arriving):
            task.cancel()
        for one in tuple(self.connections):
            one.abort()

    def _connect(self) -> "_Connection":
        return _Connection(self)

    def opened(self, one: "_Connection") -> None:
        """Count *one*, and make room for it."""
        if len(self.connections) >= self._max_connections:
            self.dropped += 1
            idle = [other for other in self.connections if not other.busy]
            min(idle or self.connections, key=lambda other: other.since_s).abort()
        self.connections.add(one)

    def closed(self, one: "_Connection") -> None:
        """Forget *one*."""
        self.connections.discard(one)
        if self._emptied is not None and not self.connections:
            self._emptied.set()

    def leave_large(self) -> None:
        """One of the large bodies is in, or given up: the next that waits may come."""
        self.large -= 1
        while self.large_waiting and self.large < _LARGE_AT_A_TIME:
            self.large_waiting.popleft().go_on_large()

    def enter_large(self, one: "_Connection") -> bool:
        """Whether *one* may read a large body now; if not, it will be told."""
        if self.large < _LARGE_AT_A_TIME:
            self.large += 1
            return True
        self.large_waiting.append(one)
        return False

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            now_s = time.monotonic()
            for one in tuple(self.connections):
                one.look(now_s)


class _Connection(asyncio.Protocol):
    """One connection: what came and is not answered, and since when it is as it is."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._transport: asyncio.Transport | None = None
        # The limit is never reached, for what is parsed is taken out at once; so the parser never pauses.
        self._parser = HttpRequestParser(
            self,  # type: ignore[arg-type]  # the two calls that it makes of its protocol are below
            asyncio.get_running_loop(),
            MAX_BODY_BYTES,
            max_line_size=_MAX_LINE_BYTES,
            max_field_size=_MAX_LINE_BYTES,
            auto_decompress=False,
        )
        self._turn: deque[tuple[RawRequestMessage, StreamReader]] = deque()
        self._head: Head | None = None
        self._body = bytearray()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_large = False
        self._is_waiting = False
        self._is_closing = False
        self._must_close = False
        self._is_full = False
        self._stranger = ""
        self._has_begun = False
        self.since_s = time.monotonic()

    @property
    def busy(self) -> bool:
        """Whether a call is under way."""
        return self._head is not None or bool(self._turn)

    # ------------------------------------------------------------------ what the transport says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are of the interface and not of the class.
        self._transport = cast(asyncio.Transport, transport)
        self._port.opened(self)
        if self._port.why_not is not None:
            self._stranger = self._port.why_not(transport.get_extra_info("peercert") or {})

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._port.closed(self)
        self._transport = None
        self._turn.clear()
        if self._task is not None:
            self._task.cancel()
        self._end_call()

    def data_received(self, data: bytes) -> None:
        if self._is_closing:
            return
        if not self.busy and not self._has_begun:
            self._has_begun = True
            self.since_s = time.monotonic()
        try:
            messages, upgraded, _ = self._parser.feed_data(data)
        except HttpProcessingError as e:
            self._refuse(400, e.message.splitlines()[0][:200] if e.message else "this is not HTTP/1.1")
            return
        except Exception:  # noqa: BLE001 (a parser that fails on odd bytes must not cost the next call)
            _log.exception("call could not be parsed")
            self._refuse(400, "this is not HTTP/1.1")
            return
        self._turn.extend(messages)
        self._go_on()
        if upgraded and not self._is_closing:
            self._refuse(400, "there is nothing to upgrade to")

    def eof_received(self) -> bool:
        # Who sends no more may still read; what is whole is answered first.
        if self._turn and self._task is None and not self._is_full:
            self._refuse(400, "the call ends before its body does")
        return self.busy and not self._is_closing

    def pause_writing(self) -> None:
        self._is_full = True
        self.since_s = time.monotonic()
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._is_full = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
            self._go_on()

    def pause_reading(self) -> None:
        """Asked for by the parser's streams; see the limit above."""

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Asked for by the parser's streams."""

    # ------------------------------------------------------------------ calls

    def _go_on(self) -> None:
        """Answer what is here, up to the first call that is not whole or is being worked on."""
        while (self._turn or self._head is not None) and self._task is None:
            if self._is_closing or self._is_full or self._transport is None:
                return
            if not self._take():
                return

    def _take(self) -> bool:
        """Go on with the first call; whether it is answered."""
        message, content = self._turn[0]
        head = self._head
        if head is None:
            head = self._begin(message)
            answers = self._port.answers
            refusal = answers.trouble(403, self._stranger) if self._stranger else answers.refusal(head)
            if refusal is not None:
                return self._reply(refusal, whole=content.is_eof())
            if not content.is_eof():
                self._await_body(head)
        try:
            body = self._collect(content)
        except Exception as e:  # noqa: BLE001 (the parser puts into the stream whatever it met in the body)
            self._refuse(400, str(e).partition("\n")[0][:200] or "the body cannot be read")
            return False
        if body is None:
            return False
        if len(body) > MAX_BODY_BYTES:
            return self._reply(self._port.answers.trouble(413, f"send at most {MAX_BODY_BYTES} bytes"), whole=True)
        return self._answer(head, body)

    def _await_body(self, head: Head) -> None:
        self._timer = asyncio.get_running_loop().call_later(
            self._port.answers.deadline_s(head), self._refuse, 408, "the call did not arrive in time"
        )
        if head.headers.get("Expect", "").lower() == "100-continue":
            self._write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _begin(self, message: RawRequestMessage) -> Head:
        path, _, query = message.path.partition("?")
        self._head = head = Head(message.method, path, query, message.headers)
        self._must_close = message.should_close
        self._port.answers.begun()
        return head

    def _collect(self, content: StreamReader) -> bytes | bytearray | None:
        """The whole body, or None while there is more to come."""
        if content.is_eof():
            rest = content.read_nowait()
            if not self._body:
                return rest
            self._body += rest
            return self._body
        self._body += content.read_nowait()
        if len(self._body) > MAX_BODY_BYTES:
            self._refuse(413, f"send at most {MAX_BODY_BYTES} bytes")
        elif len(self._body) > _LARGE_BYTES and not self._is_large and not self._is_waiting:
            self._is_large = self._port.enter_large(self)
            self._is_waiting = not self._is_large
            if self._is_waiting and self._transport is not None:
                self._transport.pause_reading()
        return None

    def go_on_large(self) -> None:
        """There is room for this one's large body."""
        if not self._is_waiting or self._transport is None:
            return
        self._is_waiting, self._is_large = False, True
        self._port.large += 1
        self._transport.resume_reading()

    def _answer(self, head: Head, body: bytes | bytearray) -> bool:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            found = self._port.answers.answer(head, body)
        except Exception:  # noqa: BLE001 (the outermost frame of a call)
            found = self._failed()
        if isinstance(found, Reply):
            return self._reply(found, whole=True)
        self._task = asyncio.get_running_loop().create_task(self._finish(found), name="answer")
        return False

    async def _finish(self, found: Awaitable[Reply]) -> None:
        try:
            reply = await found
        except Exception:  # noqa: BLE001 (the outermost frame of a call)
            reply = self._failed()
        self._task = None
        self._reply(reply, whole=True)
        self._go_on()

    def _failed(self) -> Reply:
        _log.exception("call failed")
        return self._port.answers.trouble(500, "cardshare failed; see its log")

    def _refuse(self, status: int, text: str) -> None:
        """Answer what is no call, or not a whole one; nothing can follow it on this connection."""
        if self._is_waiting:
            status, text = 503, "too many large calls at a time; try again"
        self._reply(self._port.answers.trouble(status, text), whole=False)

    def _reply(self, reply: Reply, *, whole: bool) -> bool:
        if self._turn:
            self._turn.popleft()
        close = reply.close or not whole or self._port.draining or (self._head is not None and self._must_close)
        self._write(_encoded(reply, close=close))
        self._end_call()
        if close:
            self._close_after(whole=whole)
        return not close

    def _end_call(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_large:
            self._is_large = False
            self._port.leave_large()
        if self._is_waiting:
            self._is_waiting = False
            self._port.large_waiting.remove(self)
        if self._head is not None:
            self._head = None
            self._port.answers.ended()
        if self._body:
            self._body = bytearray()
        self._has_begun = False
        self.since_s = time.monotonic()

    def _close_after(self, *, whole: bool) -> None:
        """End the connection so that the answer arrives: who is still sending would meet a reset before it.

        A TLS session has a farewell of its own, which the transport waits for when it is closed.
        """
        self._is_closing = True
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        halves = transport.can_write_eof()
        if whole and not halves:
            transport.close()
            return
        if halves:
            transport.write_eof()
        transport.resume_reading()
        self._timer = asyncio.get_running_loop().call_later(_LINGER_S, self.close)

    def _write(self, text: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(text)

    # ------------------------------------------------------------------ what the port does

    def look(self, now_s: float) -> None:
        """Close what has been idle, half begun or unread for too long."""
        if self._is_closing or self._timer is not None or self._task is not None:
            return
        if self._is_full:
            if now_s - self.since_s > _WRITE_S:
                self.abort()
            return
        if now_s - self.since_s > (_HEAD_S if self._has_begun else KEEPALIVE_S):
            self.close()

    def close(self) -> None:
        """End it after what was written."""
        self._is_closing = True
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """End it at once."""
        self._is_closing = True
        if self._transport is not None:
            self._transport.abort()


def bound(address: Address, *, shared: bool) -> socket.socket:
    """A socket bound to *address*, on which nobody listens yet; of no host, every address of the machine.

    Raises:
        OSError: the address cannot be had.
    """
    host, family = address.host, socket.AF_INET6 if ":" in address.host else socket.AF_INET
    if not host and socket.has_dualstack_ipv6():
        family = socket.AF_INET6
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setblocking(False)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1 if host else 0)
        found.bind((host or ("::" if family == socket.AF_INET6 else ""), address.port))
    except OSError:
        found.close()
        raise
    return found


_LINES: Final = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}
_OK: Final = f"{_LINES[200]}Content-Type: {JSON}\r\n".encode()


def _encoded(reply: Reply, *, close: bool) -> bytes:
    if reply.status == HTTPStatus.OK and reply.content_type == JSON:
        start = _OK
    else:
        allow = f"Allow: {reply.allow}\r\n" if reply.allow else ""
        start = f"{_LINES[reply.status]}Content-Type: {reply.content_type}\r\n{allow}".encode()
    end = b"Connection: close\r\n\r\n" if close else b"\r\n"
    return b"%bDate: %b\r\nContent-Length: %d\r\n%b%b" % (start, _date(), len(reply.body), end, reply.body)


class _Clock:
    """The Date header's text, made once a second."""

    second = -1
    text = b""


def _date() -> bytes:
    now = int(time.time())
    if now != _Clock.second:
        _Clock.second, _Clock.text = now, formatdate(now, usegmt=True).encode()
    return _Clock.text
