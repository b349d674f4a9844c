"""One request and its answer. How much was sent determines what a failure means for a write."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from urllib.parse import urlencode

import aiohttp

from kube.causes import cause_of
from kube.errors import (
    ApiError,
    ApiThrottledError,
    ApiUnknownError,
    ApiUnreachableError,
    ApiUnreadableError,
    from_answer,
)

# A page of 500 pods with managedFields has 5 MB [facts 2.2]; no expected answer is several times that size.
MAX_BODY_BYTES: Final = 64 * 2**20
MAX_ERROR_BYTES: Final = 2**20
NOT_PERMITTED: Final = "held back: this process may not write now"


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
