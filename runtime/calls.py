"""A call and its answer: the one way in which our ports speak HTTP, over ASGI, so that the server beneath is a library.

A port's answers are a function of the whole call. What is no call for it is raised as `RefusedCallError`, which is
counted by status; a `Reply` is an answer, whatever its status.
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
# How many bodies over this size are taken in at a time; the next waits, inside its deadline, and nothing more is read
# of it meanwhile. So memory is bounded by what is being read, not by who connects.
LARGE_BYTES: Final = 64 * 1024
_LARGE_AT_A_TIME: Final = 6
# With those that are read; of each that waits there is a packet or two.
_MAX_WAITING: Final = 64

# The three of ASGI; what their keys mean: https://asgi.readthedocs.io/en/latest/specs/www.html
Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]


class RefusedCallError(Exception):
    """The call is answered with *status* and a line of text; *allow* lists the methods of a 405."""

    def __init__(self, status: int, text: str, *, allow: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.allow = allow


class _GoneError(Exception):
    """Whoever called is gone, or was refused while the body came: there is nobody to answer."""


class Reply(NamedTuple):
    """What is answered: text in one piece, or in pieces that are made while they are sent; allow: methods, of a 405."""

    body: bytes | AsyncIterator[bytes]
    status: int = 200
    content_type: str = JSON
    allow: str = ""


class Call(NamedTuple):
    """One call, whole. headers by name in lower case; stranger: why who calls may not, "" for everybody who may."""

    method: str
    path: str
    query: bytes
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes | bytearray
    stranger: str

    def header(self, name: bytes) -> bytes | None:
        """The first of the headers called *name*; None without."""
        for found, value in self.headers:
            if found == name:
                return value
        return None


Answer = Callable[[Call], Reply | Awaitable[Reply]]


class App:
    """An ASGI application around a port's *answer*; refused: calls that were none, by status."""

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
        """The answer to a call that is there whole; what is awaited of it is for `finish`."""
        try:
            return self._answer(
                Call(
                    scope["method"],
                    scope["path"],
                    scope["query_string"],
                    scope["headers"],
                    body,
                    scope["state"]["stranger"],
                )
            )
        except Exception as e:  # noqa: BLE001 (the outermost frame of a call)
            return self._refusal(e)

    async def finish(self, found: Reply | Awaitable[Reply], scope: Scope, send: Send) -> None:
        """Send what `reply` gave, once it is there."""
        try:
            reply = found if isinstance(found, Reply) else await found
        except Exception as e:  # noqa: BLE001 (the outermost frame of a call)
            reply = self._refusal(e)
        await _send(reply, scope, send)

    def _refusal(self, error: Exception) -> Reply:
        if isinstance(error, RefusedCallError):
            self._refused[error.status] += 1
            return Reply(f"{error}\n".encode(), error.status, TEXT, error.allow)
        _log.error("call failed", exc_info=error)
        self._refused[500] += 1
        return Reply(b"cardshare failed; see its log\n", 500, TEXT)

    async def _gathered(self, body: bytearray, receive: Receive) -> bytearray:
        """*body* and the rest of it; a large one waits for its turn."""
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
    headers = [_CONTENT_TYPES[reply.content_type], _length(text)]
    if reply.allow:
        headers.append((b"allow", reply.allow.encode()))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": text})


async def _send_pieces(reply: Reply, pieces: AsyncIterator[bytes], scope: Scope, send: Send) -> None:
    headers = [_CONTENT_TYPES[reply.content_type]]
    if scope["http_version"] == "1.0":
        # Which knows no pieces.
        whole = b"".join([piece async for piece in pieces])
        await send({"type": "http.response.start", "status": reply.status, "headers": [*headers, _length(whole)]})
        await send({"type": "http.response.body", "body": whole})
        return
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    async for piece in pieces:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def head_of(reply: Reply, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """The head of *reply* with *headers*, up to the number that is its length; an end of lines is still to come."""
    told = [*headers, _CONTENT_TYPES[reply.content_type]]
    if reply.allow:
        told.append((b"allow", reply.allow.encode()))
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
    """The answers of every plain port: liveness, readiness, figures."""

    def __init__(
        self,
        reasons: Callable[[], list[str]],
        exposition: Callable[[], bytes | AsyncIterator[bytes]],
        notes: Callable[[], list[str]] = list,
    ) -> None:
        """Prepare.

        Args:
            reasons: why nobody should be sent to this process, a line each.
            exposition: the text for Prometheus.
            notes: what else the answer about readiness tells, a line each, ready or not.
        """
        self._reasons = reasons
        self._notes = notes
        self._exposition = exposition

    def answer(self, call: Call) -> Reply:
        """See `App`."""
        if call.method != "GET":
            raise RefusedCallError(405, "ask by GET", allow="GET")
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
                raise RefusedCallError(404, "there is nothing here; ask /healthz, /readyz or /metrics")
