"""The page as a process in the cluster: two ports, a certificate that may change, and the feed of the whole cluster.

The page's port limits how many connections there are, and how long one may do nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import socket
import ssl
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NoReturn

import structlog
from aiohttp import web
from aiohttp.web_protocol import RequestHandler
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from certs.serving import PairFiles, server_context
from cli.cluster import Holdings, empty_holdings
from cli.web.feed import Feed, Sees
from cli.web.reviewed import Reviewed
from cli.web.server import Page
from core.configuration import OWN_MAP
from core.errors import ConfigError, InvariantError
from core.wire.history import HISTORY_MAP
from kube.calls import Calls
from kube.credentials import choose_source
from kube.errors import ApiError, UndecodableError
from kube.reviews import Reviews
from kube.transport import Transport
from runtime import flags
from runtime.backoff import Backoff
from runtime.flags import flag, several
from runtime.listening import Address, bound, cannot_listen
from runtime.process import raise_file_limit, stop_event
from runtime.serving import ServingFigures, plain_port

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
_EVERYTHING: Final = Sees(nodes=True, namespace="", home="")
_CERTIFICATE_S: Final = 2.0
_SHUTDOWN_S: Final = 2.0
_BACKLOG: Final = 1024
# Settings are read again after this.
_CONFIGURATION_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The flags."""

    listen: Address = flag(flags.ADDRESS, "address of the page, over TLS", ":8443")
    metrics_listen: Address = flag(flags.ADDRESS, "address for metrics and health, without TLS", ":8081")
    cert_dir: Path = flag(
        flags.PATH,
        "directory with tls.crt, tls.key and ca.crt; the files may come later",
        missing="name the directory of tls.crt, tls.key and ca.crt",
    )
    kubeconfig: str = flag(flags.FILE, "kubeconfig file; default the pod's own credentials")
    audiences: tuple[str, ...] = several(
        flags.TEXT,
        "audiences that callers' tokens must have, comma-separated; default the API server's",
        name="--audience",
        listed=True,
    )
    own_map: str = flag(flags.CONFIG_MAP, "ConfigMap with cardshare's settings", OWN_MAP, name="--settings-map")
    history_map: str = flag(flags.CONFIG_MAP, "ConfigMap in which the controller stores its history", HISTORY_MAP)
    log_format: flags.LogFormat = flag(flags.LOG_FORMAT, "log format", "json")


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> Options:
    """Read the command line and the environment; see `runtime.flags.parse`."""
    parser = argparse.ArgumentParser(
        prog="python -m cli.web",
        description="Serves the page of the cluster's cards to callers with a token of the cluster.",
        allow_abbrev=False,
    )
    return flags.parse(parser, Options, argv, environ, lambda _: ())


async def run(options: Options, environ: Mapping[str, str]) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        ConfigError: an address is unavailable.
        CredentialsError: there are no usable credentials.
    """
    stop = stop_event()
    raise_file_limit()
    source = choose_source(kubeconfig=options.kubeconfig, environ=environ)
    async with Transport(source, user_agent="cardshare-web") as transport:
        serving = Serving(options, transport)
        await serving.start()
        try:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(one) for one in (serving.follow(), serving.serve())]
                await stop.wait()
                for task in running:
                    task.cancel()
        finally:
            await serving.end()


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


class Serving:
    """The state of the process."""

    def __init__(self, options: Options, transport: Transport) -> None:
        self._options: Final = options
        self._transport: Final = transport
        self._callers: Final = Reviewed(Reviews(Calls(transport), audiences=options.audiences))
        self._page: Final = Page(transport, None, self._callers, options.own_map)
        self._connections: Final = Connections()
        app = self._page.app()
        app.middlewares.insert(0, self._connections.counted)
        self._runner: Final = web.AppRunner(
            app, access_log=None, shutdown_timeout=_SHUTDOWN_S, handler_cancellation=True
        )
        self._context: Final = server_context()
        self._source: Final = PairFiles(options.cert_dir)
        self._why_no_certificate = "no certificate yet"
        self._why_not_connected = "not connected to the API server yet"
        self._registry: Final = CollectorRegistry()
        self._plain: Final = plain_port(self.reasons, lambda: generate_latest(self._registry))
        self._registry.register(ServingFigures((self._plain,)))
        self._registry.register(PageFigures(self._connections, self._callers))

    def reasons(self) -> list[str]:
        """Return why this process is not ready, one line each."""
        found = [] if self._source.is_serving else [self._why_no_certificate]
        feed = self._page.feed
        return [*found, *(feed.reasons() if feed is not None else [self._why_not_connected])]

    async def start(self) -> None:
        """Start the port for metrics and health.

        Raises:
            ConfigError: the address is unavailable.
        """
        taken = await self._plain.start(self._options.metrics_listen, "--metrics-listen")
        _log.info("web starting", metrics_listen=str(taken))
        await self._runner.setup()

    async def end(self) -> None:
        """Close both ports."""
        await self._runner.cleanup()
        await self._plain.stop(_SHUTDOWN_S)

    async def follow(self) -> None:
        """Follow the cluster until cancelled; with new settings, from the beginning."""
        backoff = Backoff(first_s=1.0, cap_s=30.0, jitter=random.random)
        while True:
            try:
                holdings = await empty_holdings(self._transport, self._options.own_map)
            except (ApiError, UndecodableError) as e:
                self._why_not_connected = str(e)
                await asyncio.sleep(backoff.next_s())
                continue
            backoff.reset()
            self._page.feed = Feed(self._transport, holdings, _EVERYTHING, self._options.history_map)
            async with asyncio.TaskGroup() as tasks:
                following = tasks.create_task(self._page.feed.run(), name="feed")
                await self._until_other_settings(holdings)
                following.cancel()

    async def _until_other_settings(self, holdings: Holdings) -> None:
        known = holdings.ledger
        while True:
            await asyncio.sleep(_CONFIGURATION_S)
            try:
                found = (await empty_holdings(self._transport, self._options.own_map)).ledger
            except (ApiError, UndecodableError):
                continue
            if (found.tables, found.settings) != (known.tables, known.settings):
                _log.info("the configuration changed; the cluster is read again")
                return

    async def serve(self) -> None:
        """Serve the page as soon as there is a certificate pair, always with the newest one, until cancelled.

        Raises:
            ConfigError: the address is unavailable.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._connections.run(), name="idle connections")
            is_listening = False
            while True:
                await self._look_at_certificate()
                if not is_listening and self._source.is_serving:
                    is_listening = True
                    tasks.create_task(self._answer(self._options.listen), name="page")
                await asyncio.sleep(_CERTIFICATE_S)

    async def _look_at_certificate(self) -> None:
        try:
            pair = await asyncio.to_thread(self._source.look, datetime.now(UTC))
            if pair is not None:
                self._source.serve(self._context, pair)
        except ConfigError as e:
            self._why_no_certificate = str(e)
            _log.warning("no certificate to serve the page with", error=str(e))

    async def _answer(self, address: Address) -> None:
        answering = self._runner.server
        if answering is None:
            raise InvariantError("the page is not set up yet")
        try:
            found = bound(address)
            found.listen(_BACKLOG)
        except OSError as e:
            raise ConfigError([cannot_listen("--listen", address, e)]) from e
        taken = Address(host=address.host, port=found.getsockname()[1])
        _log.info("web serving", listen=str(taken))
        await self._connections.accept(found, answering, self._context)


class PageFigures(Collector):
    """The metrics of the page's port."""

    def __init__(self, connections: Connections, callers: Reviewed) -> None:
        self._connections: Final = connections
        self._callers: Final = callers

    def collect(self) -> Iterator[Metric]:
        """Yield the families; the registry calls this."""
        yield GaugeMetricFamily(
            "cardshare_web_connections", "Open connections of the page's port.", len(self._connections)
        )
        yield GaugeMetricFamily("cardshare_web_streams", "Pages that are open.", self._callers.streams.total())
        yield CounterMetricFamily(
            "cardshare_web_refused_connections", "Connections over a limit, closed at once.", self._connections.refused
        )
        yield CounterMetricFamily(
            "cardshare_web_limited_calls", "Calls over the limit of their address.", self._callers.limited
        )
