"""Answers calls on the TLS port: admission reviews."""

import re
from collections.abc import Awaitable
from typing import Final, Protocol

from core.errors import InvalidRequestError
from runtime.calls import JSON, Call, RefusedCallError, Reply
from runtime.serving import BODY_S
from webhook import edits
from webhook.reviews import Path, Reviewer

# Share of the caller's timeout. The rest leaves time for the answer to travel back.
_DEADLINE_SHARE: Final = 0.8
_DEFAULT_TIMEOUT_S: Final = 10.0
_DURATION: Final = re.compile(rb"(?:^|&)timeout=([0-9]{1,6}(?:\.[0-9]{1,9})?)(ms|s|m)(?:&|$)")
_UNITS: Final = {b"ms": 0.001, b"s": 1.0, b"m": 60.0}
_JSON: Final = JSON.encode()


class Previews(Protocol):
    """Adds a placement preview to the answers of dry runs."""

    def is_wanted(self, body: bytes | bytearray) -> bool:
        """Return whether *body* may be a dry run that needs a preview; cheap."""
        ...

    async def completed(self, body: bytes | bytearray, answer: bytes, deadline_s: float) -> bytes:
        """Return *answer* with the preview as a warning, or unchanged if there is no preview in time."""
        ...


class ReviewCalls:
    """Answers calls with a reviewer, with `Edits` for ConfigMaps of the configuration, and with *previews* if given."""

    def __init__(self, reviewer: Reviewer, configuration: edits.Edits, previews: Previews | None = None) -> None:
        self._reviewer = reviewer
        self._configuration = configuration
        self._previews = previews
        self._paths = {path.value: path for path in Path}

    def answer(self, call: Call) -> Reply | Awaitable[Reply]:
        """See `runtime.calls.App`."""
        if call.stranger:
            raise RefusedCallError(403, call.stranger)
        path = self._paths.get(call.path)
        if path is None and call.path != edits.PATH:
            raise RefusedCallError(404, "not found; send reviews to /mutate, /validate and /configuration")
        if call.method != "POST":
            raise RefusedCallError(405, "send reviews by POST", allow="POST")
        content_type = call.header(b"content-type") or b""
        if content_type != _JSON and content_type.partition(b";")[0].strip().lower() != _JSON:
            raise RefusedCallError(415, f"send {JSON}")
        if call.header(b"content-encoding") is not None:
            raise RefusedCallError(415, "send the review uncompressed")
        if path is None:
            return self._edited(call)
        try:
            found = self._reviewer.answer(path, call.body)
        except InvalidRequestError as e:
            raise RefusedCallError(400, str(e)) from e
        previews = self._previews
        if previews is not None and path is Path.VALIDATE and previews.is_wanted(call.body):
            return _completed(previews, call, found)
        return Reply(found)

    async def _edited(self, call: Call) -> Reply:
        try:
            return Reply(await self._configuration.answer(call.body, deadline_s(call.query)))
        except InvalidRequestError as e:
            raise RefusedCallError(400, str(e)) from e


async def _completed(previews: Previews, call: Call, answer: bytes) -> Reply:
    return Reply(await previews.completed(call.body, answer, deadline_s(call.query)))


def deadline_s(query: bytes) -> float:
    """Return how long the caller's ``timeout`` leaves for the answer; the caller's clock started earlier.

    Source: Kubernetes, dynamic admission control: the API server adds ``?timeout=10s`` to the URL of a call.
    """
    found = _DURATION.search(query)
    given = float(found[1]) * _UNITS[found[2]] if found else _DEFAULT_TIMEOUT_S
    return max(0.01, given * _DEADLINE_SHARE)


def body_deadline_s(query: bytes) -> float:
    """Return the time limit for the arrival of a body."""
    return min(BODY_S, deadline_s(query))
