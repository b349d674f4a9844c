"""One request and its answer, whole or line by line. How much was sent determines what a failure means for a write."""

import asyncio
import os
import re
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from urllib.parse import urlencode

import aiohttp
import msgspec

from kube.errors import (
    ApiError,
    ApiThrottledError,
    ApiUnknownError,
    ApiUnreachableError,
    ApiUnreadableError,
    from_answer,
    from_failure,
    from_page,
)

# An object's representation in a library's text: useless to readers, and different in every run.
_OBJECT: Final = re.compile(r"\s*(?:ssl:)?<[^<>]* at 0x[0-9a-fA-F]+>")
_ERRNO: Final = re.compile(r"\[Errno (\d+)\]")
# A page of 500 pods with managedFields has 5 MB [facts 2.2]; no expected answer is several times that size.
MAX_BODY_BYTES: Final = 64 * 2**20
# etcd stores objects of up to 1.5 MiB and the API server sends up to 3 MiB; an event holds one object.
MAX_LINE_BYTES: Final = 16 * 2**20
MAX_ERROR_BYTES: Final = 2**20
NOT_PERMITTED: Final = "held back: this process may not write now"


class _Kind(msgspec.Struct, frozen=True):
    """What every object of the API has. Source: Kubernetes API conventions, "Types (Kinds)"."""

    kind: str = ""
    status: msgspec.Raw = msgspec.Raw()


_FAILURE: Final = b'"Failure"'
_kind_decoder: Final = msgspec.json.Decoder(_Kind)


class Purpose(StrEnum):
    """The connection pool of a call. Watches, calls and the lease must not use up each other's connections."""

    CALLS = "calls"
    WATCHES = "watches"
    LEASE = "lease"


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A complete answer with status 200 to 299; *headers* have case-insensitive keys."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def check_kind(self, verb: str, path: str) -> None:
        """Check that this is an object with a kind, as all of the API server's are, and no Status of a failure.

        Raises:
            ApiUnknownError: it is a proxy's page, so a write may not have happened, and a read shows nothing.
            ApiRefusedError: the API server refused.
        """
        try:
            found = _kind_decoder.decode(self.body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            found = _Kind()
        if not found.kind:
            raise from_page(verb, path, self.status, self.headers, self.body)
        if bytes(found.status) == _FAILURE:
            raise from_failure(verb, path, self.body)


@dataclass(slots=True, kw_only=True)
class Exchange:
    """One request and its progress. If *sendings* is above 1, aiohttp repeated it on a new connection.

    permit: called right before the first byte is sent; if it returns False, nothing is sent.
    """

    verb: str
    path: str
    purpose: Purpose
    params: Mapping[str, str] | None = None
    body: bytes | None = None
    content_type: str = ""
    max_bytes: int = MAX_BODY_BYTES
    permit: Callable[[], bool] | None = None
    sendings: int = 0

    @property
    def target(self) -> str:
        """Return path and query as in the request line."""
        return f"{self.path}?{urlencode(self.params)}" if self.params else self.path

    def begin_sending(self) -> None:
        """Record that the first byte is about to be sent.

        Raises:
            ApiThrottledError: sending is no longer permitted, so nothing is sent.
        """
        if self.permit is not None and not self.permit():
            raise ApiThrottledError(verb=self.verb, path=self.path, message=NOT_PERMITTED, retry_after_s=1.0)
        self.sendings += 1

    async def read(self, answer: aiohttp.ClientResponse) -> Response:
        """Read the whole of *answer*, which the caller closes.

        Raises:
            ApiError: the status is not a success, or the body is too long or cut off.
        """
        if not 200 <= answer.status < 300:
            raise await self.refusal(answer)
        try:
            content, whole = await _read(answer, self.max_bytes)
        except (aiohttp.ClientError, OSError) as e:
            raise self._unreadable(answer, f"the answer was cut off: {cause_of(e)}") from e
        if not whole:
            raise self._unreadable(answer, f"the answer is longer than {self.max_bytes} bytes; ask for less at a time")
        return Response(status=answer.status, headers=answer.headers, body=content)

    async def refusal(self, answer: aiohttp.ClientResponse) -> ApiError:
        """Return the error for *answer*, whose status is not a success."""
        try:
            content, _ = await _read(answer, min(self.max_bytes, MAX_ERROR_BYTES))
        except (aiohttp.ClientError, OSError) as e:
            if not 300 <= answer.status < 500:
                return self._unreadable(answer, f"the answer was cut off: {cause_of(e)}")
            content = b""  # the reason is lost, but the status shows that nothing was written
        error = from_answer(self.verb, self.path, answer.status, answer.headers, content)
        if self.sendings < 2 or self.verb == "GET":
            return error
        # aiohttp sent it twice, and the second may be refused because the first succeeded.
        return ApiUnknownError(
            verb=error.verb,
            path=error.path,
            status=error.status,
            reason=error.reason,
            message=f"sent twice over a lost connection, the second time refused: {error.message}",
            retry_after_s=error.retry_after_s,
        )

    def lost(self, text: str) -> ApiError:
        """Return the error for a request without an answer."""
        kind = ApiUnknownError if self.sendings else ApiUnreachableError
        return kind(verb=self.verb, path=self.path, message=text)

    def _unreadable(self, answer: aiohttp.ClientResponse, text: str) -> ApiError:
        kind = ApiUnreadableError if self.verb == "GET" else ApiUnknownError
        return kind(verb=self.verb, path=self.path, status=answer.status, message=text)


async def _read(answer: aiohttp.ClientResponse, max_bytes: int) -> tuple[bytes, bool]:
    """Return the body, and whether it is complete."""
    parts: list[bytes] = []
    size = 0
    async for chunk in answer.content.iter_any():
        parts.append(chunk)
        size += len(chunk)
        if size > max_bytes:
            return b"".join(parts)[:max_bytes], False
    return b"".join(parts), True


class Lines:
    """The lines of a body, in linear time even for a line of many chunks. A slow reader slows the server down."""

    def __init__(self, answer: aiohttp.ClientResponse, exchange: Exchange, silence_s: float, max_bytes: int) -> None:
        self._answer = answer
        self._exchange = exchange
        self._silence_s = silence_s
        self._max_bytes = max_bytes
        self._ready: deque[bytes] = deque()
        self._parts: list[bytes] = []
        self._size = 0

    def __aiter__(self) -> "Lines":
        return self

    async def __anext__(self) -> bytes:
        while not self._ready:
            chunk = await self._chunk()
            if not chunk:
                if self._size:
                    raise self._unreadable(f"the last line was cut off after {self._size} bytes")
                raise StopAsyncIteration
            self._take(chunk)
        return self._ready.popleft()

    async def _chunk(self) -> bytes:
        try:
            async with asyncio.timeout(self._silence_s):
                return await self._answer.content.readany()
        except TimeoutError as e:
            raise self._exchange.lost(f"silent for {self._silence_s:g} s") from e
        except (aiohttp.ClientError, OSError) as e:
            raise self._exchange.lost(cause_of(e)) from e

    def _take(self, chunk: bytes) -> None:
        first, *others = chunk.split(b"\n")
        self._parts.append(first)
        self._size += len(first)
        if self._size > self._max_bytes:
            raise self._unreadable(f"a line is longer than {self._max_bytes} bytes")
        if not others:
            return
        lines = (b"".join(self._parts), *others[:-1])
        self._ready.extend(line for line in lines if line.strip())
        self._parts = [others[-1]]
        self._size = len(others[-1])

    def _unreadable(self, text: str) -> ApiUnreadableError:
        return ApiUnreadableError(
            verb=self._exchange.verb, path=self._exchange.path, status=self._answer.status, message=text
        )


def cause_of(error: Exception) -> str:
    """Return what failed, in plain words, with host and port if the error has them.

    The library's own messages name objects and their addresses.
    """
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return (
                f"{_place(error.host, error.port)}: its certificate is not trusted: {_plain(error.certificate_error)}"
            )
        case aiohttp.ClientConnectorDNSError():
            return f"{_place(error.host, error.port)}: there is no such host"
        case aiohttp.ClientConnectorSSLError():
            return f"{_place(error.host, error.port)}: no TLS session: {_plain(error.os_error)}"
        case aiohttp.ClientProxyConnectionError():
            return f"proxy {_place(error.host, error.port)}: {_plain(error.os_error)}"
        case aiohttp.ClientConnectorError():
            return f"{_place(error.host, error.port)}: {_plain(error.os_error)}"
        case aiohttp.ClientHttpProxyError():
            return f"the proxy answers {error.status} {error.message}".rstrip()
        case aiohttp.InvalidURL():
            return f"'{error.url}' is no URL that can be called"
        case _:
            return _plain(error)


def _place(host: str, port: int | None) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _plain(error: BaseException) -> str:
    """Return the operating system's message, or the error's own without internals."""
    text = str(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message.rstrip(".")
    if isinstance(error, ssl.SSLError):
        return (error.reason or "it failed").lower().replace("_", " ")
    # If several addresses were tried, the first error represents them.
    found = _ERRNO.search(text)
    number = getattr(error, "errno", None) or (int(found[1]) if found else None)
    if isinstance(number, int) and number > 0:
        return os.strerror(number).lower()
    return _OBJECT.sub("", text).strip() or type(error).__name__
