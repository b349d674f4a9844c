"""What stands between a connection and the server: how much of it may come, how fast, and how much ahead.

The server is uvicorn's protocol on httptools (llhttp): what is a call, a length or an answer is decided by code that
the world has tried. It bounds neither heads nor bodies nor time, and parses every call that a packet holds before the
first is answered. So it is given no more than one head, then that call's body, then nothing until the answer is out.
"""

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, Protocol, cast

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

MAX_HEAD_BYTES: Final = 8 * 1024
# What may wait behind a call that is being answered; a client that sends more ahead gets that answer and an end.
_MAX_AHEAD_BYTES: Final = 64 * 1024
# A head is a few hundred bytes; whoever takes longer holds a connection and means nothing by it.
_HEAD_S: Final = 10.0
_LINGER_S: Final = 5.0
_WRITE_S: Final = 30.0
_HEAD_END: Final = b"\r\n\r\n"


class Place(Protocol):
    """What a connection knows of its port."""

    config: Config
    state: ServerState
    draining: bool
    max_body_bytes: int

    def why_not(self, certificate: Mapping[str, Any]) -> str:
        """Why the owner of a TLS certificate may not call, or ""."""

    def deadline_s(self, query: bytes) -> float:
        """How long a body may take to arrive."""

    def began(self, one: "Guarded") -> None:
        """The first bytes of a call came."""

    def ended(self, one: "Guarded") -> None:
        """The call is answered."""

    def lost(self, one: "Guarded") -> None:
        """The connection is gone."""

    def refuse(self, status: int) -> None:
        """Count what was no call."""


class Guarded(HttpToolsProtocol):
    """One connection. since_s: since when it is idle, or its call under way, by the loop's clock."""

    transport: asyncio.Transport

    def __init__(self, place: Place) -> None:
        super().__init__(place.config, place.state, {})
        self._place = place
        self._held = b""
        self._left = 0
        self._timer: asyncio.TimerHandle | None = None
        self._has_begun = False
        self._is_over = False
        self._saw_eof = False
        self.arrival: asyncio.Task[None] | None = None
        self.since_s = self.loop.time()

    # ------------------------------------------------------------------ what the transport says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        plain = transport.get_extra_info("sslcontext") is None
        # uvloop's transports are of the interface and not of the class.
        found = cast(asyncio.Transport, _Lingering(transport, self._linger) if plain else transport)
        super().connection_made(found)
        self.app_state["stranger"] = self._place.why_not(transport.get_extra_info("peercert") or {})

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._is_over, self._held = True, b""
        self._stop_timer()
        self._place.lost(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        if self._is_over:
            return
        if not self._has_begun:
            self._begin()
        self._feed(self._held + data if self._held else data)

    def eof_received(self) -> bool | None:  # type: ignore[override]  # as asyncio has it
        """See `asyncio.Protocol`."""
        if self._is_over or not self._has_begun:
            return None
        if self._is_answering:
            # Who sends no more may still read.
            self.cycle.keep_alive, self._saw_eof = False, True
            return True
        self._refuse(400, "the call ends before its body does")
        return None

    # ------------------------------------------------------------------ calls

    @property
    def _is_answering(self) -> bool:
        cycle = self.cycle
        return cycle is not None and not cycle.response_complete and not cycle.more_body

    @property
    def _is_in_body(self) -> bool:
        cycle = self.cycle
        return cycle is not None and not cycle.response_complete and cycle.more_body

    def _begin(self) -> None:
        self._has_begun = True
        self.since_s = self.loop.time()
        self._place.began(self)

    def _feed(self, data: bytes) -> None:
        """Give the parser what it may have of *data*, and hold the rest."""
        at, size = 0, len(data)
        while at < size and not self._is_over and not self._is_answering:
            if self._is_in_body:
                end = min(at + self._left, size)
                self._left -= end - at
                super().data_received(data[at:end])
            else:
                found = data.find(_HEAD_END, at)
                end = found + len(_HEAD_END) if found >= 0 else size
                if end - at > MAX_HEAD_BYTES:
                    self._refuse(431, f"send a head of at most {MAX_HEAD_BYTES} bytes")
                    return
                if found < 0:
                    break
                super().data_received(data[at:end])
                self._look_at_head()
            at = end
        self._held = b"" if self._is_over else data[at:]
        if self._is_in_body:
            if self._timer is None:
                seconds = self._place.deadline_s(self.scope["query_string"])
                self._timer = self.loop.call_later(seconds, self._refuse, 408, "the call did not arrive in time")
        elif self._timer is not None and not self._is_over:
            self._stop_timer()
        if self._held and self._is_answering:
            self._wait_for_answer()

    def _wait_for_answer(self) -> None:
        self.flow.pause_reading()
        if len(self._held) > _MAX_AHEAD_BYTES:
            self._held, self._is_over = b"", True
            self.cycle.keep_alive = False

    def _look_at_head(self) -> None:
        """Judge the length that was announced before any of it is taken."""
        if self.cycle is None or self.cycle.response_complete or self._is_over:
            return
        if self._place.draining:
            self.cycle.keep_alive = False
        if not self.cycle.more_body:
            return
        self._left = 0
        for name, value in self.headers:
            if name == b"content-length":
                self._left = int(value)
        if not self._left:
            self._refuse(411, "send the body with its length")
        elif self._left > self._place.max_body_bytes:
            self._refuse(413, f"send at most {self._place.max_body_bytes} bytes")

    def on_response_complete(self) -> None:
        """Go on with what came meanwhile."""
        super().on_response_complete()
        if self.transport.is_closing() or self._is_over:
            return
        if self.cycle.more_body:
            # Answered before it was whole: nothing can follow it on this connection.
            self._linger()
            return
        self._has_begun = False
        self.since_s = self.loop.time()
        self._place.ended(self)
        if self._held:
            self._begin()
            self._feed(self._held)

    def send_400_response(self, msg: str) -> None:
        """What the parser does not take."""
        del msg
        self._refuse(400, "this is not HTTP/1.1")

    def _refuse(self, status: int, text: str) -> None:
        """Answer what is no call, or not a whole one; nothing can follow it on this connection."""
        cycle = self.cycle
        started = False
        if cycle is not None and not cycle.response_complete:
            started, cycle.disconnected = cycle.response_started, True
            cycle.message_event.set()
        self._place.refuse(status)
        if not started and not self.transport.is_closing():
            self.transport.write(
                f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: text/plain; charset=utf-8\r\n"
                f"Content-Length: {len(text) + 1}\r\nConnection: close\r\n\r\n{text}\n".encode()
            )
        self._linger()

    def _linger(self) -> None:
        """End the connection so that the answer arrives: who is still sending would meet a reset before it."""
        self._is_over, self._held = True, b""
        self._stop_timer()
        if self._saw_eof:
            self.end()
            return
        transport = self.transport
        if transport.can_write_eof():
            transport.write_eof()
        self.flow.resume_reading()
        self._timer = self.loop.call_later(_LINGER_S, self.end)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # ------------------------------------------------------------------ what the port does

    def look(self, now_s: float) -> None:
        """Refuse a call that has not its head for too long, or whose answer nobody reads."""
        if self._is_over:
            return
        age_s = now_s - self.since_s
        if self.flow.write_paused and age_s > _WRITE_S:
            self.abort()
        elif age_s > _HEAD_S and not self._is_in_body and not self._is_answering:
            self._refuse(408, "the call did not arrive in time")

    def end(self) -> None:
        """Close after what was written."""
        self._transport_itself().close()

    def abort(self) -> None:
        """Close at once, also while the session is only being made."""
        if self.transport is None:
            if self.arrival is not None:
                self.arrival.cancel()
        else:
            self._transport_itself().abort()

    def _transport_itself(self) -> asyncio.Transport:
        found = self.transport
        return found.inner if isinstance(found, _Lingering) else found


class _Lingering:
    """A plain transport that does not end before its last words have arrived; TLS has a farewell of its own."""

    def __init__(self, transport: asyncio.BaseTransport, linger: Any) -> None:
        self.inner = cast(asyncio.Transport, transport)
        self._linger = linger
        self._is_closing = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def is_closing(self) -> bool:
        """See `asyncio.BaseTransport`."""
        return self._is_closing or self.inner.is_closing()

    def close(self) -> None:
        """See `asyncio.BaseTransport`."""
        if not self.is_closing():
            self._is_closing = True
            self._linger()
