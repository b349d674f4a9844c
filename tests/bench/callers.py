"""Calls of ready bytes over TLS, from one thread: what one costs here must be little beside what it costs the server.

Sockets that do not block and one epoll: an event loop with its transports costs twice as much.
"""

import select
import socket
import ssl
import time
from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"content-length:"
_OK: Final = b"HTTP/1.1 200 "
_ALLOWED: Final = b'"allowed":true'
# One TLS record.
_READ_BYTES: Final = 16384
_SILENCE_S: Final = 10.0


class CallFailedError(RuntimeError):
    """A server refused a call, closed its connection or fell silent under load: what was measured means nothing."""


class _Caller:
    """One connection, and when the call that is on its way was due."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        plain = socket.create_connection(("127.0.0.1", port), timeout=_SILENCE_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = context.wrap_socket(plain, server_hostname="localhost")
        self.socket.setblocking(False)
        self.due_s = 0.0
        self._received = b""

    def send(self, call: bytes, due_s: float) -> None:
        """Send *call*. The one before is answered, so that there is room for it."""
        self.due_s = due_s
        if self.socket.send(call) != len(call):
            raise CallFailedError("a call was sent in part only; the benchmark's calls fit a socket's buffer")

    def is_answered(self) -> bool:
        """Read what is there; whether that makes the answer whole."""
        while True:
            try:
                read = self.socket.recv(_READ_BYTES)
            except ssl.SSLWantReadError:
                return False
            if not read:
                raise CallFailedError("the server closed a connection under load")
            received = self._received = self._received + read if self._received else read
            if _is_whole(received):
                self._received = b""
                return True


def _is_whole(received: bytes) -> bool:
    head = received.find(_END)
    if head < 0:
        return False
    lower = received[:head].lower()
    at = lower.index(_LENGTH) + len(_LENGTH)
    end = lower.find(b"\r", at)
    if len(received) < head + len(_END) + int(lower[at : end if end > 0 else head]):
        return False
    if not received.startswith(_OK) or _ALLOWED not in received:
        raise CallFailedError(f"answered {received[:400]!r}")
    return True


class Callers:
    """Some connections to one server, as a context: closed when it ends."""

    def __init__(self, port: int, context: ssl.SSLContext, connections: int) -> None:
        self._poll = select.epoll()
        self._callers: dict[int, _Caller] = {}
        for _ in range(connections):
            one = _Caller(port, context)
            self._callers[one.socket.fileno()] = one
            self._poll.register(one.socket.fileno(), select.EPOLLIN)

    def __enter__(self) -> "Callers":
        return self

    def __exit__(self, *exc: object) -> None:
        self._poll.close()
        for one in self._callers.values():
            one.socket.close()

    def load(self, calls: Iterable[bytes], seconds: float = 0.0, reviews: int = 0) -> "array[float]":
        """Seconds from sent to answered of every call: each connection sends the next one as soon as it is answered.

        For so many *seconds*, and until *reviews* are answered.
        """
        latencies_s = array("d")
        turn = iter(calls)
        now = time.perf_counter()
        end_s = now + seconds
        for one in self._callers.values():
            one.send(next(turn), now)
        while now < end_s or len(latencies_s) < reviews:
            for one in self._answered(_SILENCE_S):
                now = time.perf_counter()
                latencies_s.append(now - one.due_s)
                one.send(next(turn), now)
        self._drain(len(self._callers))
        return latencies_s

    def load_at(self, calls: Iterable[bytes], seconds: float, rate: float) -> "array[float]":
        """Seconds from due to answered of *rate* calls a second, whatever becomes of those before (an open loop).

        A call's time begins when it is due, also if every connection is busy then.
        """
        latencies_s = array("d")
        turn = iter(calls)
        idle, due = deque(self._callers.values()), deque[float]()
        began_s, count = time.perf_counter(), 0
        total = int(seconds * rate)
        while len(latencies_s) < total:
            now = time.perf_counter()
            while count < total and began_s + count / rate <= now:
                due.append(began_s + count / rate)
                count += 1
            while due and idle:
                idle.popleft().send(next(turn), due.popleft())
            wait_s = (
                _SILENCE_S if count >= total or not idle else max(began_s + count / rate - time.perf_counter(), 0.0)
            )
            # epoll waits in whole milliseconds, which would be a good part of what is measured.
            select.select([self._poll], (), (), wait_s)
            for one in self._answered(0.0):
                latencies_s.append(time.perf_counter() - one.due_s)
                idle.append(one)
        return latencies_s

    def _answered(self, wait_s: float) -> Iterator[_Caller]:
        events = self._poll.poll(wait_s)
        if not events and wait_s:
            raise CallFailedError(f"the server answered nothing for {wait_s:g} s")
        for descriptor, _ in events:
            one = self._callers[descriptor]
            if one.is_answered():
                yield one

    def _drain(self, outstanding: int) -> None:
        while outstanding:
            outstanding -= sum(1 for _ in self._answered(_SILENCE_S))
