"""HTTP calls and replies: the only HTTP interface of the ports.

A port's answer is a function of the whole call. An invalid call raises `RefusedCallError`, which is counted by status.
A `Reply` is an answer, with any status.
"""

from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Final, NamedTuple

import structlog

_log: Final = structlog.get_logger()

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"


class RefusedCallError(Exception):
    """Answers the call with *status* and a line of text; *allow* lists the methods for a 405.

    retry_after_s: when to ask again, 0 to leave that to the caller.
    """

    def __init__(self, status: int, text: str, *, allow: str = "", retry_after_s: int = 0) -> None:
        super().__init__(text)
        self.status = status
        self.allow = allow
        self.retry_after_s = retry_after_s


class Reply(NamedTuple):
    """An answer; body: one piece of text, or pieces generated while they are sent; allow: methods, for a 405.

    retry_after_s: when to ask again, 0 for no such header.
    """

    body: bytes | AsyncIterator[bytes]
    status: int = 200
    content_type: str = JSON
    allow: str = ""
    retry_after_s: int = 0


def _stays() -> bool:
    return False


class Call(NamedTuple):
    """One complete call. headers: names in lower case; address: the caller's, without a port, "" if unknown.

    has_left: returns whether the connection is closed, so that no one waits for the answer.
    """

    method: str
    path: str
    query: bytes
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes | bytearray
    has_left: Callable[[], bool] = _stays
    address: str = ""

    def header(self, name: bytes) -> bytes | None:
        """Return the first header called *name*, or None."""
        for found, value in self.headers:
            if found == name:
                return value
        return None


Answer = Callable[[Call], Reply | Awaitable[Reply]]


def refusal(error: Exception) -> Reply:
    """Return the answer to a call that raised *error*; log all but `RefusedCallError`."""
    if isinstance(error, RefusedCallError):
        return Reply(f"{error}\n".encode(), error.status, TEXT, error.allow, error.retry_after_s)
    _log.error("call failed", exc_info=error)
    return Reply(b"cardshare failed; see its log\n", 500, TEXT)


def head_of(reply: Reply, date: bytes) -> bytes:
    """Return the head of *reply*, without the lines that depend on its body or on the connection."""
    lines = [(b"date", date), (b"content-type", reply.content_type.encode())]
    if reply.allow:
        lines.append((b"allow", reply.allow.encode()))
    if reply.retry_after_s:
        lines.append((b"retry-after", b"%d" % reply.retry_after_s))
    text = b"".join(b"%b: %b\r\n" % one for one in lines)
    return b"HTTP/1.1 %d %b\r\n%b" % (reply.status, HTTPStatus(reply.status).phrase.encode(), text)


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
        """See `Answer`."""
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


class Buckets:
    """One bucket of *size* for each address; *per_s* flows in. The address that asked longest ago is forgotten."""

    def __init__(self, size: float, per_s: float, *, addresses_max: int, clock: Callable[[], float]) -> None:
        self._size: Final = size
        self._per_s: Final = per_s
        self._addresses_max: Final = addresses_max
        self._clock: Final = clock
        self._left: Final[OrderedDict[str, tuple[float, float]]] = OrderedDict()

    def takes(self, address: str, cost: float) -> bool:
        """Return whether the bucket of *address* has *cost* left, and take it."""
        now_s = self._clock()
        left, since_s = self._left.get(address, (self._size, now_s))
        left = min(self._size, left + (now_s - since_s) * self._per_s)
        is_enough = left >= cost
        self._left[address] = left - cost if is_enough else left, now_s
        self._left.move_to_end(address)
        if len(self._left) > self._addresses_max:
            self._left.popitem(last=False)
        return is_enough
