"""The page as a process in the cluster: two ports, a certificate that may change, and the feed of the whole cluster."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from certs.serving import Source, server_context
from cli.cluster import Holdings, empty_holdings
from cli.web.connections import Connections
from cli.web.feed import Feed, Sees
from cli.web.options import Options
from cli.web.reviewed import Reviewed
from cli.web.server import Page
from core.errors import ConfigError, InvariantError
from kube.calls import Calls
from kube.credentials import choose_source
from kube.errors import ApiError, UndecodableError
from kube.reviews import Reviews
from kube.transport import Transport
from runtime.backoff import Backoff
from runtime.calls import Plain
from runtime.figures import ServingFigures
from runtime.listening import Address, bound, cannot_listen
from runtime.process import raise_file_limit
from runtime.serving import MAX_PLAIN_CONNECTIONS, HttpListener

_log: Final = structlog.get_logger()

_EVERYTHING: Final = Sees(nodes=True, namespace="", home="")
_CERTIFICATE_S: Final = 2.0
_SHUTDOWN_S: Final = 2.0
_BACKLOG: Final = 1024
# Settings are read again after this.
_CONFIGURATION_S: Final = 60.0


async def run(options: Options, environ: Mapping[str, str]) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        ConfigError: an address is unavailable.
        CredentialsError: there are no usable credentials.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
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


class Serving:
    """The state of the process."""

    def __init__(self, options: Options, transport: Transport) -> None:
        """Prepare."""
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
        self._source: Final = Source(options.cert_dir)
        self._why_no_certificate = "no certificate yet"
        self._why_not_connected = "not connected to the API server yet"
        self._registry: Final = CollectorRegistry()
        self._plain: Final = HttpListener(
            "plain",
            Plain(self.reasons, lambda: generate_latest(self._registry)).answer,
            max_connections=MAX_PLAIN_CONNECTIONS,
        )
        self._registry.register(ServingFigures((self._plain,)))
        self._registry.register(Figures(self._connections, self._callers))

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


class Figures(Collector):
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
