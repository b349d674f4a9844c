"""HTTP calls and replies over ASGI, the only HTTP interface of the ports, so that the server is a replaceable library.

A port's answer is a function of the whole call. An invalid call raises `RefusedCallError`, which is counted by status.
A `Reply` is an answer, with any status.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import structlog

_log: Final = structlog.get_logger()

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"
# At most six bodies over this size are read at a time. The next one waits within its deadline, and no more of it is
# read. So memory is bounded by the bodies in progress, not by the number of connections.
LARGE_BYTES: Final = 64 * 1024
_LARGE_AT_A_TIME: Final = 6
# Includes the bodies that are being read. Each waiting one occupies a packet or two.
_MAX_WAITING: Final = 64

# The three types of ASGI; their keys: https://asgi.readthedocs.io/en/latest/specs/www.html
Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]


class RefusedCallError(Exception):
    """Answers the call with *status* and a line of text; *allow* lists the methods for a 405.

    retry_after_s: when to ask again, 0 to leave that to the caller.
    """

    def __init__(self, status: int, text: str, *, allow: str = "", retry_after_s: int = 0) -> None:
        super().__init__(text)
        self.status = status
        self.allow = allow
        self.retry_after_s = retry_after_s


class _GoneError(Exception):
    """The caller is gone, or its body was refused. No one waits for an answer."""


class Reply(NamedTuple):
    """An answer; body: one piece of text, or pieces generated while they are sent; allow: methods, for a 405.

    retry_after_s: when to ask again, 0 for no such header.
    """

    body: bytes | AsyncIterator[bytes]
    status: int = 200
    content_type: str = JSON
    allow: str = ""
    retry_after_s: int = 0

    @property
    def more_headers(self) -> list[tuple[bytes, bytes]]:
        """The headers that few answers have."""
        found = [(b"allow", self.allow.encode())] if self.allow else []
        return [*found, (b"retry-after", b"%d" % self.retry_after_s)] if self.retry_after_s else found


def _stays() -> bool:
    return False


class Call(NamedTuple):
    """One complete call. headers: names in lower case; stranger: why the caller may not call, "" if it may.

    has_left: returns whether the connection is closed, so that no one waits for the answer.
    """

    method: str
    path: str
    query: bytes
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes | bytearray
    stranger: str
    has_left: Callable[[], bool] = _stays

    def header(self, name: bytes) -> bytes | None:
        """Return the first header called *name*, or None."""
        for found, value in self.headers:
            if found == name:
                return value
        return None


Answer = Callable[[Call], Reply | Awaitable[Reply]]


class App:
    """An ASGI application around a port's *answer*; refused: number of refused calls, by status."""

    def __init__(self, answer: Answer, refused: Counter[int]) -> None:
        self._answer = answer
        self._refused = refused
        self._turns = asyncio.Semaphore(_LARGE_AT_A_TIME)
        self._waiting = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        message = await receive()
        if message["type"] != "http.request":
            return
        body = message["body"]
        try:
            if message["more_body"]:
                body = await self._gathered(bytearray(body), receive)
        except _GoneError:
            return
        except RefusedCallError as e:
            await _send(self._refusal(e), scope, send)
        else:
            await self.finish(self.reply(scope, body), scope, send)

    def reply(self, scope: Scope, body: bytes | bytearray) -> Reply | Awaitable[Reply]:
        """Return the answer to a complete call; `finish` awaits it if it is awaitable."""
        try:
            return self._answer(
                Call(
                    scope["method"],
                    scope["path"],
                    scope["query_string"],
                    scope["headers"],
                    body,
                    scope["state"]["stranger"],
                    scope["state"]["has_left"],
                )
            )
        except Exception as e:  # noqa: BLE001 (the outermost frame of a call)
            return self._refusal(e)

    async def finish(self, found: Reply | Awaitable[Reply], scope: Scope, send: Send) -> None:
        """Wait for the result of `reply` and send it."""
        try:
            reply = found if isinstance(found, Reply) else await found
        except Exception as e:  # noqa: BLE001 (the outermost frame of a call)
            reply = self._refusal(e)
        await _send(reply, scope, send)

    def _refusal(self, error: Exception) -> Reply:
        if isinstance(error, RefusedCallError):
            self._refused[error.status] += 1
            return Reply(f"{error}\n".encode(), error.status, TEXT, error.allow, error.retry_after_s)
        _log.error("call failed", exc_info=error)
        self._refused[500] += 1
        return Reply(b"cardshare failed; see its log\n", 500, TEXT)

    async def _gathered(self, body: bytearray, receive: Receive) -> bytearray:
        """Return the complete body that starts with *body*; a large one waits for a turn."""
        more = True
        while more and len(body) <= LARGE_BYTES:
            more = await _grow(body, receive)
        if more:
            if self._waiting >= _MAX_WAITING:
                raise RefusedCallError(503, "too many large calls at a time; try again")
            self._waiting += 1
            try:
                async with self._turns:
                    while more:
                        more = await _grow(body, receive)
            finally:
                self._waiting -= 1
        return body


_CONTENT_TYPES: Final = {text: (b"content-type", text.encode()) for text in (JSON, TEXT, METRICS)}


async def _send(reply: Reply, scope: Scope, send: Send) -> None:
    text = reply.body
    if not isinstance(text, bytes):
        await _send_pieces(reply, text, scope, send)
        return
    headers = [_CONTENT_TYPES[reply.content_type], _length(text), *reply.more_headers]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": text})


async def _send_pieces(reply: Reply, pieces: AsyncIterator[bytes], scope: Scope, send: Send) -> None:
    headers = [_CONTENT_TYPES[reply.content_type]]
    if scope["http_version"] == "1.0":
        # HTTP/1.0 has no chunked transfer.
        whole = b"".join([piece async for piece in pieces])
        await send({"type": "http.response.start", "status": reply.status, "headers": [*headers, _length(whole)]})
        await send({"type": "http.response.body", "body": whole})
        return
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    async for piece in pieces:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def head_of(reply: Reply, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return the head of *reply* with *headers*, up to the value of the content length, which the caller appends."""
    told = [*headers, _CONTENT_TYPES[reply.content_type], *reply.more_headers]
    lines = b"".join(b"%s: %s\r\n" % one for one in told)
    return b"HTTP/1.1 %d %s\r\n%scontent-length: " % (reply.status, HTTPStatus(reply.status).phrase.encode(), lines)


def _length(text: bytes) -> tuple[bytes, bytes]:
    return b"content-length", b"%d" % len(text)


async def _grow(body: bytearray, receive: Receive) -> bool:
    message = await receive()
    if message["type"] != "http.request":
        raise _GoneError
    body += message["body"]
    return bool(message["more_body"])


class Plain:
    """The answers of every plain port: liveness, readiness, metrics."""

    def __init__(
        self,
        reasons: Callable[[], list[str]],
        exposition: Callable[[], bytes | AsyncIterator[bytes]],
        notes: Callable[[], list[str]] = list,
    ) -> None:
        """Prepare.

        Args:
            reasons: returns why no calls should be routed to this process, one line each.
            exposition: returns the text for Prometheus.
            notes: returns extra lines for the readiness answer, ready or not.
        """
        self._reasons = reasons
        self._notes = notes
        self._exposition = exposition

    def answer(self, call: Call) -> Reply:
        """See `App`."""
        if call.method != "GET":
            raise RefusedCallError(405, "use GET", allow="GET")
        match call.path:
            case "/healthz":
                return Reply(b"ok\n", content_type=TEXT)
            case "/readyz":
                reasons = self._reasons()
                lines = [*(reasons or ["ok"]), *self._notes()]
                return Reply("".join(f"{one}\n" for one in lines).encode(), 503 if reasons else 200, TEXT)
            case "/metrics":
                return Reply(self._exposition(), content_type=METRICS)
            case _:
                raise RefusedCallError(404, "not found; available: /healthz, /readyz or /metrics")
