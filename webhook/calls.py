"""What each port answers: reviews on the one, health and metrics on the other."""

import inspect
import re
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from core.errors import InvalidRequestError
from webhook import metrics as metrics_text
from webhook.app import JSON, TEXT, Head, Reply
from webhook.reviews import Path, Reviewer

BODY_DEADLINE_S: Final = 5.0
# Of the caller's own patience: what is left is for the way back.
_DEADLINE_SHARE: Final = 0.8
_DEFAULT_TIMEOUT_S: Final = 10.0
_DURATION: Final = re.compile(r"(?:^|&)timeout=([0-9]{1,6}(?:\.[0-9]{1,9})?)(ms|s|m)(?:&|$)", re.ASCII)
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0}


class Previews(Protocol):
    """Who tells on a dry run where the pod would go."""

    def is_wanted(self, body: bytes | bytearray) -> bool:
        """Whether the review in *body* is a dry run that a preview has anything to say to; quick."""
        ...

    async def completed(self, body: bytes | bytearray, answer: bytes, deadline_s: float) -> bytes:
        """*answer* with the preview as a warning, or as it is where there is none in time."""
        ...


class ReviewCalls:
    """The TLS port."""

    def __init__(self, reviewer: Reviewer, previews: Previews | None = None) -> None:
        self._reviewer = reviewer
        self._metrics = reviewer.metrics
        self._previews = previews
        self._paths = {path.value: path for path in Path}

    def begun(self) -> None:
        """See `Answers`."""
        self._metrics.in_flight += 1

    def ended(self) -> None:
        """See `Answers`."""
        self._metrics.in_flight -= 1

    def refusal(self, head: Head) -> Reply | None:
        """See `Answers`."""
        if head.path not in self._paths:
            return self.trouble(404, "there is nothing here; reviews go to /mutate and /validate")
        if head.method != "POST":
            return self.trouble(405, "send reviews by POST", allow="POST")
        headers = head.headers
        content_type = headers.get("Content-Type", "")
        if content_type != JSON and content_type.partition(";")[0].strip().lower() != JSON:
            return self.trouble(415, f"send {JSON}")
        if "Content-Encoding" in headers:
            return self.trouble(415, "send the review uncompressed")
        return None

    def answer(self, head: Head, body: bytes | bytearray) -> Reply | Awaitable[Reply]:
        """See `Answers`."""
        path = self._paths[head.path]
        try:
            found = self._reviewer.answer(path, body)
        except InvalidRequestError as e:
            return self.trouble(400, str(e))
        previews = self._previews
        if previews is not None and path is Path.VALIDATE and previews.is_wanted(body):
            return _completed(previews, body, found, deadline_s(head.query))
        return Reply(found)

    def trouble(self, status: int, text: str, *, allow: str = "") -> Reply:
        """See `Answers`."""
        self._metrics.refused_calls[status] += 1
        if status == 500:
            self._metrics.failures += 1
        return Reply(f"{text}\n".encode(), status, TEXT, allow)

    def deadline_s(self, head: Head) -> float:
        """See `Answers`."""
        return min(BODY_DEADLINE_S, deadline_s(head.query))


async def _completed(previews: Previews, body: bytes | bytearray, answer: bytes, patience_s: float) -> Reply:
    return Reply(await previews.completed(body, answer, patience_s))


class PlainCalls:
    """The plain port; *exposition* and *why_not_ready* may have to ask other processes."""

    def __init__(
        self,
        exposition: Callable[[], bytes | Awaitable[bytes]],
        why_not_ready: Callable[[], str | Awaitable[str]],
    ) -> None:
        self._exposition = exposition
        self._why_not_ready = why_not_ready

    def begun(self) -> None:
        """See `Answers`."""

    def ended(self) -> None:
        """See `Answers`."""

    def refusal(self, head: Head) -> Reply | None:
        """See `Answers`."""
        return None if head.method == "GET" else self.trouble(405, "ask by GET", allow="GET")

    def answer(self, head: Head, body: bytes | bytearray) -> Reply | Awaitable[Reply]:
        """See `Answers`."""
        del body
        match head.path:
            case "/healthz":
                return Reply(b"ok\n", content_type=TEXT)
            case "/readyz":
                return self._ready()
            case "/metrics":
                return self._figures()
            case _:
                return self.trouble(404, "there is nothing here; ask /healthz, /readyz or /metrics")

    async def _ready(self) -> Reply:
        found = self._why_not_ready()
        reason = await found if inspect.isawaitable(found) else found
        return Reply(f"{reason or 'ok'}\n".encode(), 503 if reason else 200, TEXT)

    async def _figures(self) -> Reply:
        found = self._exposition()
        text = await found if inspect.isawaitable(found) else found
        return Reply(text, content_type=metrics_text.CONTENT_TYPE)

    def trouble(self, status: int, text: str, *, allow: str = "") -> Reply:
        """See `Answers`."""
        return Reply(f"{text}\n".encode(), status, TEXT, allow)

    def deadline_s(self, head: Head) -> float:
        """See `Answers`."""
        del head
        return BODY_DEADLINE_S


def deadline_s(query: str) -> float:
    """How long the caller's ``timeout`` leaves us; its clock began before ours.

    Source: Kubernetes, dynamic admission control: the API server adds ``?timeout=10s`` to the URL of a call.
    """
    found = _DURATION.search(query)
    given = float(found[1]) * _UNITS[found[2]] if found else _DEFAULT_TIMEOUT_S
    return max(0.01, given * _DEADLINE_SHARE)
