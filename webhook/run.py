"""The webhook process: two ports, the files it watches, and a shutdown that loses no call."""

import asyncio
import gc
import time
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Final

import structlog

from core.admission.rulebook import Rulebook, rulebook
from core.catalog import Catalog, standard_catalog
from core.errors import ConfigError
from kube.calls import Calls
from kube.configuration import Follower
from kube.credentials import mistake_in
from kube.transport import Transport
from runtime.configuration import ActiveConfiguration
from runtime.process import connections_of, raise_file_limit, stop_event
from runtime.serving import HttpListener, ServingFigures, plain_port
from webhook.calls import Edits, ReviewCalls, body_deadline_s
from webhook.denials import Denials
from webhook.identity import Clients, TlsIdentity
from webhook.inventory import Budgets, Cluster, InventoryWatch
from webhook.metrics import Metrics
from webhook.options import Options
from webhook.preview import ControllerSource, Previewer
from webhook.reviews import Reviewer

_log: Final = structlog.get_logger()

_WATCH_S: Final = 1.0
_SHUTDOWN_S: Final = 10.0
# Time limit for the first read of the configuration's ConfigMaps; admission must not depend on them.
_LISTING_S: Final = 10.0
_CONFIGURATION: Final = "configuration"
# Judging a review creates hardly any cyclic garbage. A full collection would stall the loop for no gain.
_GC_THRESHOLDS: Final = (50_000, 20, 100)


class Webhook:
    """The state of the process: the rulebook in force, its ports, and its readiness."""

    def __init__(self, options: Options) -> None:
        """Read all files.

        Raises:
            ConfigError: lists every problem of every file.
        """
        self._options = options
        self._catalog: Catalog = standard_catalog()
        self._metrics = Metrics()
        self._draining = False
        self._active, self._identity = self._load()
        self._active.tell_refusals(self._count_refusal)
        self._configuration = Follower(
            self._active, options.files, trusted=options.trusted, changed=self._take_configuration
        )
        self._started_s = time.monotonic()
        self._denials = Denials(self._metrics)
        # Any other caller could get an account blamed in events, or query the controller through the webhook.
        self._is_told = options.inventory and options.knows_callers
        heard = self._denials.note if self._is_told else None
        # Unknown callers must not learn the remaining quota of a namespace, nor see previews.
        self._cluster = Cluster(kubeconfig=options.kubeconfig, environ=options.cluster)
        self._budgets = Budgets() if self._is_told else None
        quotas_of = self._budgets.of if self._budgets is not None else None
        self._reviewer = Reviewer(self._rulebook(), self._metrics, heard, quotas_of)
        self._previewer = _previewer(options, self._metrics) if options.knows_callers else None
        if not options.knows_callers:
            _log.info(
                "callers are not known; no previews, no budgets, and no events on denied accounts",
                wanted="--client-name",
            )
        self._plain = plain_port(self._reasons, self._exposition)
        edits = Edits(self._active, self._catalog, options.trusted, self._metrics)
        names = Clients(options.client_names, time.monotonic)
        self._reviews = HttpListener(
            "reviews",
            ReviewCalls(self._reviewer, edits, self._previewer).answer,
            self._identity.context,
            max_connections=_connections(options.max_connections),
            deadline_s=body_deadline_s,
            why_not=names.why_not,
            asks_again=True,
        )
        self._metrics.registry.register(ServingFigures((self._plain, self._reviews)))

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT, then drain.

        Raises:
            ConfigError: an address is unavailable.
        """
        stop = stop_event()
        try:
            listen = await self._reviews.start(self._options.listen, "--listen")
            metrics_listen = await self._plain.start(self._options.metrics_listen, "--metrics-listen")
            _log.info("webhook serving", listen=str(listen), metrics_listen=str(metrics_listen))
            self._freeze()
            await self._serve(stop)
        finally:
            await self._reviews.stop(_SHUTDOWN_S)
            if self._previewer is not None:
                await self._previewer.close()
            await self._plain.stop(1.0)
        _log.info("webhook stopped")

    async def _serve(self, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as tasks:
            watching = [
                tasks.create_task(self._watch(), name="watch"),
                tasks.create_task(self._configuration.follow_files(), name="settings"),
            ]
            follow = self._cluster.follow
            if self._options.inventory:
                config_maps = follow("ConfigMaps", self._follow_config_maps)
                watching.append(tasks.create_task(config_maps, name="configuration"))
                inventory = InventoryWatch(book=lambda: self._reviewer.book, tell=self._reviewer.know)
                watching.append(tasks.create_task(follow("nodes", inventory.follow), name="inventory"))
            if self._budgets is not None:
                quotas = follow("ResourceQuotas", self._budgets.follow)
                watching.append(tasks.create_task(quotas, name="budgets"))
            if self._is_told:
                watching.append(tasks.create_task(self._denials.run(self._calls), name="denials"))
            await stop.wait()
            # Endpoints change with a delay, so calls still arrive and are answered during the drain.
            self._draining = True
            self._reviews.drain()
            _log.info("webhook draining", drain_s=self._options.drain_s)
            await asyncio.sleep(self._options.drain_s)
            for task in watching:
                task.cancel()

    async def _calls(self, stack: AsyncExitStack) -> Calls:
        return Calls(await self._cluster.connect(stack))

    def _load(self) -> tuple[ActiveConfiguration, TlsIdentity]:
        problems: list[str] = []
        active, identity = None, None
        try:
            active = ActiveConfiguration(self._options.files, self._catalog, hami_config=self._options.hami_config)
        except ConfigError as e:
            problems += e.problems
        try:
            identity = TlsIdentity(self._options.cert_dir, self._options.client_ca, self._metrics)
        except ConfigError as e:
            problems += e.problems
        if self._options.inventory and self._options.names_a_kubeconfig:
            mistake = mistake_in(kubeconfig=self._options.kubeconfig, environ=self._options.cluster)
            problems += [f"{mistake}; or give --no-inventory"] if mistake else []
        if identity is None or active is None or problems:
            raise ConfigError(problems)
        return active, identity

    def _reasons(self) -> list[str]:
        reason = "draining" if self._draining else self._identity.why_not_ready(datetime.now(UTC))
        found = [reason] if reason else []
        is_starting = time.monotonic() - self._started_s < _LISTING_S
        if is_starting and self._options.inventory and self._configuration.wants_config_maps:
            found += self._configuration.reasons()
        return found

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_WATCH_S)
            await self._identity.look(datetime.now(UTC), self._reviews.renew)

    # ------------------------------------------------------------------ configuration

    async def _follow_config_maps(self, api: Transport) -> None:
        """Follow the ConfigMaps of trusted namespaces."""
        while not self._configuration.wants_config_maps:  # noqa: ASYNC110 (there is no event to wait for)
            await asyncio.sleep(_WATCH_S)
        await self._configuration.follow_config_maps(api)

    async def _take_configuration(self) -> None:
        self._metrics.reloads[_CONFIGURATION] += 1
        self._reviewer.obey(self._rulebook())

    def _rulebook(self) -> Rulebook:
        return rulebook(self._active.settings, self._active.tables, self._catalog)

    def _count_refusal(self, name: str, why: str) -> None:
        del name, why
        self._metrics.reload_failures[_CONFIGURATION] += 1

    def _exposition(self) -> bytes:
        self._metrics.configuration_refused = int(bool(self._active.refused))
        self._metrics.settings_from_before = int(self._active.from_before)
        self._metrics.configuration_notes = len(self._active.notes)
        return self._metrics.exposition()

    def _freeze(self) -> None:
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_GC_THRESHOLDS)


def _previewer(options: Options, metrics: Metrics) -> Previewer | None:
    if not options.preview_url or options.preview_ca is None:
        return None
    source = ControllerSource(options.preview_url, options.preview_ca, options.preview_token)
    if why_not := source.why_not_readable():
        _log.warning("no preview yet; dry runs are answered without one until the files exist", error=why_not)
    return Previewer(source, metrics)


def _connections(wanted: int) -> int:
    files = raise_file_limit()
    found = connections_of(wanted, files)
    if found < wanted:
        _log.warning("fewer connections than configured; raise the limit of open files", files=files, connections=found)
    return found
