"""One request and its answer: how far it came, and therefore what its failure means for a write."""

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

# A page of 500 pods with managedFields is 5 MB [facts 2.2]; nothing we ask for is several times that.
MAX_BODY_BYTES: Final = 64 * 2**20
MAX_ERROR_BYTES: Final = 2**20
NOT_PERMITTED: Final = "held back: this process may not write now"


class Purpose(StrEnum):
    """Which connections a call travels on: watches must not use up those of calls, nor either those of the lease."""

    CALLS = "calls"
    WATCHES = "watches"
    LEASE = "lease"


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """An answer of status 200 to 299, whole. *headers* are found whatever their case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True, kw_only=True)
class Exchange:
    """One request, and how far it came. More than one *sending*: aiohttp repeated it on a new connection.

    permit: asked right before the first byte is sent; what it forbids is not sent.
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
        """Path and query, as the request line has them."""
        return f"{self.path}?{urlencode(self.params)}" if self.params else self.path

    def begin_sending(self) -> None:
        """The first byte is to be sent now.

        Raises:
            ApiThrottledError: it is not, because that is not permitted any more.
        """
        if self.permit is not None and not self.permit():
            raise ApiThrottledError(verb=self.verb, path=self.path, message=NOT_PERMITTED, retry_after_s=1.0)
        self.sendings += 1

    async def read(self, answer: aiohttp.ClientResponse) -> Response:
        """The whole of *answer*, which its caller closes.

        Raises:
            ApiError: it is no success, too long, or was cut off.
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
        """What *answer*, which is no success, says about the request."""
        try:
            content, _ = await _read(answer, min(self.max_bytes, MAX_ERROR_BYTES))
        except (aiohttp.ClientError, OSError) as e:
            if not 300 <= answer.status < 500:
                return self._unreadable(answer, f"the answer was cut off: {cause_of(e)}")
            content = b""  # why was lost, but the head has told that nothing was written
        error = from_answer(self.verb, self.path, answer.status, answer.headers, content)
        if self.sendings < 2 or self.verb == "GET":
            return error
        # aiohttp sent it twice: the first may be what the second was refused for.
        return ApiUnknownError(
            verb=error.verb,
            path=error.path,
            status=error.status,
            reason=error.reason,
            message=f"sent twice over a lost connection, the second time refused: {error.message}",
            retry_after_s=error.retry_after_s,
        )

    def lost(self, text: str) -> ApiError:
        """No answer came."""
        kind = ApiUnknownError if self.sendings else ApiUnreachableError
        return kind(verb=self.verb, path=self.path, message=text)

    def _unreadable(self, answer: aiohttp.ClientResponse, text: str) -> ApiError:
        kind = ApiUnreadableError if self.verb == "GET" else ApiUnknownError
        return kind(verb=self.verb, path=self.path, status=answer.status, message=text)


async def _read(answer: aiohttp.ClientResponse, max_bytes: int) -> tuple[bytes, bool]:
    """The body, and whether that is all of it."""
    parts: list[bytes] = []
    size = 0
    async for chunk in answer.content.iter_any():
        parts.append(chunk)
        size += len(chunk)
        if size > max_bytes:
            return b"".join(parts)[:max_bytes], False
    return b"".join(parts), True
