"""The connections of the page's port in the cluster: how many there may be, and how long one may do nothing."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter
from typing import Any, Final, NoReturn

import structlog
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from core.errors import InvariantError

_log: Final = structlog.get_logger()

CONNECTIONS_MAX: Final = 1024
# A proxy has one address for everybody behind it.
CONNECTIONS_OF_ADDRESS: Final = 384
# A connection without a call in progress ends after this; so does one whose head of a call does not arrive.
_IDLE_S: Final = 30.0
_SWEEP_S: Final = 1.0
_HANDSHAKE_S: Final = 10.0
# Without a free descriptor, accept fails at once; an immediate retry would loop.
_PAUSE_S: Final = 0.2
_HEAD_BYTES: Final = 16 * 1024
# The library logs the heads of calls that it cannot read, with tokens in them.
_SILENT: Final = logging.getLogger(f"{__name__}.silent")
_SILENT.disabled = True
# A body, which no call needs, is not read.
_LIMITS: Final[dict[str, Any]] = {
    "access_log": None,
    "logger": _SILENT,
    "lingering_time": 0.0,
    "max_line_size": _HEAD_BYTES,
    "max_field_size": _HEAD_BYTES,
}


class Connections:
    """Accepts connections, and closes those over a limit, and idle ones.

    A connection counts from the first packet on, because one whose TLS session never begins costs no less.
    """

    def __init__(
        self,
        *,
        most: int = CONNECTIONS_MAX,
        of_address: int = CONNECTIONS_OF_ADDRESS,
        idle_s: float = _IDLE_S,
    ) -> None:
        self._most: Final = most
        self._of_address: Final = of_address
        self._idle_s: Final = idle_s
        self._open: Final[dict[_Connection, str]] = {}
        self._addresses: Final[Counter[str]] = Counter()
        self._beginning: Final[set[asyncio.Task[None]]] = set()
        self.refused = 0

    def __len__(self) -> int:
        return len(self._open)

    async def accept(self, listening: socket.socket, server: web.Server, context: ssl.SSLContext | None) -> NoReturn:
        """Let *server* answer calls to *listening*, over TLS if there is a *context*, until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    found, peer = await loop.sock_accept(listening)
                except OSError as e:
                    _log.warning("connection not accepted", error=str(e), pause_s=_PAUSE_S)
                    await asyncio.sleep(_PAUSE_S)
                    continue
                one = _Connection(self, server)
                if self._came(one, str(peer[0])):
                    task = loop.create_task(self._begin(one, found, context), name="connection")
                    self._beginning.add(task)
                    task.add_done_callback(self._beginning.discard)
                else:
                    found.close()
        finally:
            listening.close()
            for task in self._beginning:
                task.cancel()

    async def _begin(self, one: _Connection, found: socket.socket, context: ssl.SSLContext | None) -> None:
        try:
            found.setblocking(False)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: one, found, ssl=context, ssl_handshake_timeout=_HANDSHAKE_S if context is not None else None
            )
        except OSError:  # common, and includes timeouts
            found.close()
            self.left(one)
        except asyncio.CancelledError:
            found.close()
            self.left(one)
            raise

    async def run(self) -> None:
        """Close idle connections until cancelled."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            now_s = asyncio.get_running_loop().time()
            for one in [one for one in self._open if not one.calls and now_s - one.since_s > self._idle_s]:
                one.abort()

    @web.middleware
    async def counted(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Keep the connection of a call while the call is in progress."""
        one = request.protocol
        if not isinstance(one, _Connection):
            raise InvariantError("a call came over a connection that is not counted")
        one.calls += 1
        try:
            answer: web.StreamResponse = await handler(request)
            return answer
        except ConnectionError:
            raise  # the caller is gone
        except Exception as e:  # noqa: BLE001 (the outermost frame of a call)
            _log.error("call failed", exc_info=e)
            return web.Response(status=500, text="cardshare failed; see its log\n")
        finally:
            one.calls -= 1
            one.since_s = asyncio.get_running_loop().time()

    def _came(self, one: _Connection, address: str) -> bool:
        """Return whether *one* may stay, and count it."""
        if len(self._open) >= self._most or self._addresses[address] >= self._of_address:
            self.refused += 1
            return False
        self._open[one] = address
        self._addresses[address] += 1
        return True

    def left(self, one: _Connection) -> None:
        """Forget *one*."""
        address = self._open.pop(one, None)
        if address is not None:
            self._addresses[address] -= 1
            if not self._addresses[address]:
                del self._addresses[address]


class _Connection(RequestHandler):
    """One connection. calls: in progress; since_s: end of the last one, by the loop's clock."""

    __slots__ = ("_place", "calls", "since_s")

    def __init__(self, place: Connections, server: web.Server) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(server, loop=loop, **_LIMITS)
        self._place = place
        self.calls = 0
        self.since_s = loop.time()

    def connection_lost(self, exc: BaseException | None) -> None:
        """See `asyncio.Protocol`."""
        self._place.left(self)
        super().connection_lost(exc)

    def abort(self) -> None:
        """Close at once."""
        if isinstance(self.transport, asyncio.Transport):
            self.transport.abort()
