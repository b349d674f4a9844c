"""A port: accepts, counts and limits connections, and has metrics. `connection` handles what is sent over them.

The port accepts connections itself, so that their number is limited from the first packet on. A flood of silent
connections, which never send a call, closes only the oldest of them.
"""

import asyncio
import contextlib
import socket
import ssl
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from email.utils import formatdate
from functools import partial
from typing import Any, Final

import structlog
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from core.errors import ConfigError
from runtime.calls import Answer, Plain, Reply, head_of
from runtime.connection import Connection, LargeBodies
from runtime.listening import Address, bound, cannot_listen

_log: Final = structlog.get_logger()

# The API server accepts writes of up to 3 MiB. A review holds at most two objects and an envelope under 1 MiB.
MAX_BODY_BYTES: Final = 7 * 2**20
# The API server's client keeps idle connections for 90 s. A shorter limit here would race with its next call.
KEEPALIVE_S: Final = 120.0
BODY_S: Final = 5.0
# A plain port serves probes and scrapes.
_MAX_PLAIN_CONNECTIONS: Final = 64
_HANDSHAKE_S: Final = 10.0
_LINGER_S: Final = 5.0
_SWEEP_S: Final = 1.0
_BACKLOG: Final = 1024
_AT_A_TIME: Final = 16
# Without a free descriptor, accept fails at once; an immediate retry would loop.
_PAUSE_S: Final = 0.2


class HttpListener:
    """Listens from `start` to `stop`.

    Attributes:
        name: name of the port, in metrics and in the log.
        connections: all connections, including arriving ones, ordered by the end of their last call, oldest first.
        dropped_connections: number of connections closed to make room.
        failed_handshakes: number of TLS sessions that were never established.
        refused: number of refused calls, by status.
    """

    def __init__(
        self,
        name: str,
        answer: Answer,
        context: ssl.SSLContext | None = None,
        *,
        max_connections: int,
        max_body_bytes: int = MAX_BODY_BYTES,
        deadline_s: Callable[[bytes], float] = lambda query: BODY_S,
        why_not: Callable[[Mapping[str, Any]], str] = lambda certificate: "",
        keepalive_s: float = KEEPALIVE_S,
        asks_again: bool = False,
    ) -> None:
        """Prepare.

        Args:
            name: name of the port.
            answer: answers a call.
            context: for TLS; None for plain text. `renew` replaces it.
            max_connections: one more closes the connection that has been idle longest.
            max_body_bytes: a larger body is refused before it is read.
            deadline_s: returns the time limit for the arrival of a body, from the call's query.
            why_not: returns why the owner of a TLS certificate may not call, or "".
            keepalive_s: how long a connection may idle.
            asks_again: whether callers repeat a call that is answered with 429, but not one whose connection ends
                without an answer. If so, each idle connection gets that answer before it ends, because a call may be on
                its way. Not for probes and scrapes: their clients repeat a GET after the connection ends, and not after
                429.
        """
        self.name = name
        self.connections: OrderedDict[Connection, None] = OrderedDict()
        self.dropped_connections = 0
        self.failed_handshakes = 0
        self.refused: Counter[int] = Counter()
        self.draining = False
        self.asks_again = asks_again
        self.max_body_bytes = max_body_bytes
        self.deadline_s = deadline_s
        self.why_not = why_not
        self.answer = answer
        self.large = LargeBodies()
        self._date = b""
        self._heads: dict[tuple[int, str, str, int], bytes] = {}
        self._keepalive_s = keepalive_s
        self._context = context
        self._max_connections = max_connections
        self._socket: socket.socket | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._emptied = asyncio.Event()

    @property
    def busy(self) -> int:
        """The number of connections with a call in progress."""
        return sum(one.has_begun for one in self.connections)

    async def start(self, address: Address, flag: str) -> Address:
        """Listen on *address*, which *flag* named, and return the address; for port 0, with the assigned port.

        Raises:
            ConfigError: the address is unavailable.
        """
        try:
            self._socket = bound(address)
            self._socket.listen(_BACKLOG)
        except OSError as e:
            raise ConfigError([cannot_listen(flag, address, e)]) from e
        self._tell_date()
        self._sweeper = asyncio.create_task(self._sweep(), name=f"sweep {self.name}")
        self._listen()
        return Address(host=address.host, port=self._socket.getsockname()[1])

    def renew(self, context: ssl.SSLContext) -> None:
        """Use *context* for the TLS sessions of new connections."""
        self._context = context

    def drain(self) -> None:
        """Keep serving, but ask every client in use to open a new connection elsewhere."""
        self.draining = True

    async def stop(self, patience_s: float) -> None:
        """Accept no new connections, wait for calls in progress, then close the rest."""
        self.draining = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
        for one in tuple(self.connections):
            one.retire()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                while self.connections:
                    self._emptied.clear()
                    await self._emptied.wait()
        for one in tuple(self.connections):
            one.abort()

    # ------------------------------------------------------------------ connections

    def _listen(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().add_reader(self._socket, self._accept, self._socket)

    def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(_AT_A_TIME):
            try:
                found, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as e:
                _log.warning("connection not accepted", port=self.name, error=str(e), pause_s=_PAUSE_S)
                self._make_room(len(self.connections) - 1)
                loop.remove_reader(listening)
                loop.call_later(_PAUSE_S, self._listen)
                return
            self._make_room(self._max_connections - 1)
            one = Connection(self)
            self.connections[one] = None
            one.task = loop.create_task(self._serve(one, found), name="connection")
            one.task.add_done_callback(partial(self._served, one, found))

    def _make_room(self, most: int) -> None:
        """Close connections until *most* are left: idle ones first, the longest idle first."""
        while len(self.connections) > max(most, 0):
            one = next((one for one in self.connections if not one.has_begun), None) or next(iter(self.connections))
            self.dropped_connections += 1
            self.lost(one)
            one.give_way()

    async def _serve(self, one: Connection, found: socket.socket) -> None:
        try:
            found.setblocking(False)
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: one,
                found,
                ssl=self._context,
                ssl_handshake_timeout=_HANDSHAKE_S if self._context else None,
                ssl_shutdown_timeout=_LINGER_S if self._context else None,
            )
        except OSError:
            # Includes timeouts. Such failures are common, so they are counted and not logged.
            self.failed_handshakes += 1
            found.close()
            self.lost(one)

    def _served(self, one: Connection, found: socket.socket, task: asyncio.Task[None]) -> None:
        """Free what a cancelled task leaves; if it had not begun, it could not do that itself."""
        if task.cancelled():
            found.close()
            self.lost(one)

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_SWEEP_S)
            self._tell_date()
            now_s = loop.time()
            for one in tuple(self.connections):
                one.look(now_s, self._keepalive_s)

    def _tell_date(self) -> None:
        self._date = formatdate(usegmt=True).encode()
        self._heads.clear()

    # ------------------------------------------------------------------ what a connection says, see `ConnectionPort`

    def head(self, reply: Reply) -> bytes:
        """See `ConnectionPort`. Within one second, replies that differ only in length share a head."""
        key = reply.status, reply.content_type, reply.allow, reply.retry_after_s
        found = self._heads.get(key)
        if found is None:
            found = self._heads[key] = head_of(reply, self._date)
        return found

    def ended(self, one: Connection) -> None:
        """See `ConnectionPort`."""
        if one in self.connections:
            self.connections.move_to_end(one)

    def lost(self, one: Connection) -> None:
        """See `ConnectionPort`."""
        self.connections.pop(one, None)
        self._emptied.set()

    def refuse(self, status: int) -> None:
        """See `ConnectionPort`."""
        self.refused[status] += 1


def plain_port(
    reasons: Callable[[], list[str]],
    exposition: Callable[[], bytes | AsyncIterator[bytes]],
    notes: Callable[[], list[str]] = list,
) -> HttpListener:
    """Return the port of a process for probes and scrapes; `runtime.calls.Plain` describes the arguments."""
    return HttpListener("plain", Plain(reasons, exposition, notes).answer, max_connections=_MAX_PLAIN_CONNECTIONS)


_Family = type[CounterMetricFamily | GaugeMetricFamily]


def family(
    kind: _Family,
    name: str,
    text: str,
    labels: Sequence[str],
    values: Iterable[tuple[Sequence[str], float]],
) -> Metric:
    """Return a family of metrics with *values* by label."""
    found = kind(name, text, labels=labels)
    for key, value in values:
        found.add_metric(key, value)
    return found


class ServingFigures(Collector):
    """The metrics of some ports, the same in every process; a port that has not started has none."""

    def __init__(self, ports: Sequence[HttpListener]) -> None:
        self._ports = ports

    def collect(self) -> Iterator[Metric]:
        """Yield the families; the registry calls this."""
        figures: Sequence[tuple[_Family, str, str, Callable[[HttpListener], int]]] = (
            (GaugeMetricFamily, "connections", "Open and arriving connections.", lambda one: len(one.connections)),
            (GaugeMetricFamily, "in_flight", "Calls in progress.", lambda one: one.busy),
            (
                CounterMetricFamily,
                "dropped_connections",
                "Connections closed for new ones, the longest idle first.",
                lambda one: one.dropped_connections,
            ),
            (
                CounterMetricFamily,
                "failed_handshakes",
                "Connections that ended before the handshake.",
                lambda one: one.failed_handshakes,
            ),
        )
        for kind, name, text, value in figures:
            values = [((one.name,), value(one)) for one in self._ports]
            yield family(kind, f"cardshare_serving_{name}", text, ("port",), values)
        refused = [((one.name, str(at)), count) for one in self._ports for at, count in sorted(one.refused.items())]
        name, text = "cardshare_serving_refused_calls", "Invalid calls, by HTTP status."
        yield family(CounterMetricFamily, name, text, ("port", "status"), refused)
