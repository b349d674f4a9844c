"""The ports of the process: readiness, metrics, and answers about pods, cards and the process itself."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

import structlog

from certs import serving
from controller.loop import LeaderPhase
from controller.metrics import card_series, show
from controller.process import Process
from controller.reporting.answers import answer, held, learned, preview, show_packing
from controller.reporting.extender import BODY_MAX, Extender
from controller.reporting.serve import BODY_S, MAX_POD_BYTES, TrustedCalls, exposition
from controller.reporting.share_seconds import now_ms
from controller.simulating.simulator import Simulator
from controller.watches import age_s
from core.errors import ConfigError
from core.waiting import Cause, Wait
from runtime.calls import Call, Reply
from runtime.listening import Address
from runtime.process import connections_of, raise_file_limit
from runtime.serving import HttpListener, ServingFigures, plain_port

_log: Final = structlog.get_logger()

_REPORT_S: Final = 1.0
_CERTIFICATE_S: Final = 2.0
_SHUTDOWN_S: Final = 2.0
# The TLS port serves webhooks and people.
_MAX_CALLERS: Final = 256
# One or two autoscalers.
_MAX_EXTENDING: Final = 16


class _TlsPort(NamedTuple):
    """A port that is served once there is a certificate: its address, and the flag that named it."""

    listener: HttpListener
    context: ssl.SSLContext
    address: Address
    flag: str


class Serving:
    """The port for probes and metrics, one with TLS for authenticated callers, and on request a scheduler extender."""

    def __init__(self, process: Process) -> None:
        """Prepare.

        Raises:
            ConfigError: the authorities of the extender's clients cannot be read.
        """
        self._process: Final = process
        self._plain: Final = plain_port(self.reasons, self._exposition, self.notes)
        self._simulator: Final = Simulator(
            process.scheduler, process.inbox, process.config, lambda: process.active.parts
        )
        context = serving.server_context()
        trusted = HttpListener(
            "trusted",
            TrustedCalls(
                lambda: process.callers,
                preview=self._preview,
                explain=self._explain,
                why=process.history.why,
                day=process.history.day,
                audit=lambda: process.audit.report() if process.audit is not None else None,
                packing=self._packing,
                held=self._held,
                simulate=self._simulate,
                shadow=self._shadow if process.config.shadow else None,
            ).answer,
            context,
            max_connections=connections_of(_MAX_CALLERS, raise_file_limit()),
            max_body_bytes=MAX_POD_BYTES,
            deadline_s=lambda _: BODY_S,
        )
        config = process.config
        self._tls: Final[list[_TlsPort]] = []
        if config.preview_listen is not None:
            self._tls.append(_TlsPort(trusted, context, config.preview_listen, "--preview-listen"))
        if config.extender_listen is not None:
            self._tls.append(self._extender(config.extender_listen, config.extender_client_ca))
        extenders = [port.listener for port in self._tls if port.listener is not trusted]
        process.metrics.registry.register(ServingFigures((self._plain, trusted, *extenders)))

    async def start(self) -> str:
        """Start the port for probes and metrics; return its address.

        Raises:
            ConfigError: the address is unavailable.
        """
        return str(await self._plain.start(self._process.config.listen, "--listen"))

    async def stop(self) -> None:
        """Stop the port for probes and metrics."""
        await self._plain.stop(_SHUTDOWN_S)

    async def run_trusted(self) -> None:
        """Serve the ports with TLS as soon as there is a certificate pair, always with the newest one."""
        async with asyncio.TaskGroup() as tasks:
            for port in self._tls:
                tasks.create_task(self._serve(port), name=port.flag)

    async def _serve(self, port: _TlsPort) -> None:
        source, is_served = serving.PairFiles(Path(self._process.config.cert_dir)), False
        try:
            while True:
                try:
                    pair = await asyncio.to_thread(source.look, datetime.now(UTC))
                    if pair is not None:
                        source.serve(port.context, pair)
                except ConfigError as e:
                    _log.warning("no certificate to serve with", port=port.listener.name, error=str(e))
                if source.is_serving and not is_served:
                    taken = await port.listener.start(port.address, port.flag)
                    is_served = True
                    _log.info("serving", port=port.listener.name, listen=str(taken))
                await asyncio.sleep(_CERTIFICATE_S)
        finally:
            await port.listener.stop(_SHUTDOWN_S)

    def _extender(self, address: Address, client_ca: str) -> _TlsPort:
        process = self._process
        flag = "--extender-client-ca"
        context = serving.server_context(serving.read_client_ca(Path(client_ca), flag), flag)
        listener = HttpListener(
            "extender",
            Extender(lambda: process.scheduler if process.synced.is_set() else None, process.inbox).answer,
            context,
            max_connections=_MAX_EXTENDING,
            max_body_bytes=BODY_MAX,
        )
        return _TlsPort(listener, context, address, "--extender-listen")

    # ------------------------------------------------------------------ probes and metrics

    def reasons(self) -> list[str]:
        """Return why this process is not ready, one line each."""
        process = self._process
        found = [process.connection] if process.connection else []
        found += process.watches.reasons()
        found += process.leading.reasons() if process.leading is not None else []
        if process.actor is not None and process.actor.state:
            found.append(process.actor.state)
        if process.leads and (fence := process.scheduler.cluster.fencing.trouble(time.monotonic(), time.time())):
            found.append(fence)
        if process.is_stopping:
            found.append("stopping")
        return found

    def notes(self) -> list[str]:
        """Return additional notes for the readiness answer, one line each."""
        process = self._process
        trouble = process.scheduler.preempting.trouble
        found = [f"pods with schedulerName {name} are ignored here: {why}" for name, why in process.given_up.items()]
        return [*found, *process.watches.notes(), *([trouble] if trouble else [])]

    async def report(self) -> None:
        """Log once, in one line, why nothing can be done, and when that ends."""
        told: list[str] | None = None
        while True:
            reasons = [] if self._process.is_stopping else self.reasons()
            if reasons != told and (told or not _is_starting(reasons)):
                if reasons:
                    _log.warning("not ready", reason="; ".join(reasons))
                else:
                    _log.info("ready")
                told = reasons
            await asyncio.sleep(_REPORT_S)

    def _exposition(self) -> AsyncIterator[bytes]:
        process = self._process
        _fill(process)
        per_pod = process.scheduler.cluster.settings.metrics_per_pod
        cards = card_series(process.scheduler.cluster.ledger, per_pod=per_pod) if process.leads else ()
        return exposition(process.metrics, chain(cards, process.share_seconds.series(now_ms())))

    # ------------------------------------------------------------------ answers; None while nothing can be said yet

    async def _preview(self, text: bytes) -> dict[str, Any] | None:
        process, status_writer = self._process, self._process.status_writer
        if status_writer is None or not process.synced.is_set():
            return None
        return await preview(process.scheduler, process.inbox, status_writer.explain, text)

    async def _explain(self, key: str) -> dict[str, Any] | None:
        process, status_writer = self._process, self._process.status_writer
        if status_writer is None or not process.synced.is_set():
            return None
        return await answer(
            process.scheduler,
            process.inbox,
            status_writer.explain,
            key,
            explain_unit=status_writer.explain_unit,
            idle=self._idle(),
            given_up=() if process.config.shadow else process.names.given_up.keys(),
        )

    async def _simulate(self, call: Call) -> Reply | None:
        return await self._simulator.answer(call) if self._process.synced.is_set() else None

    def _idle(self) -> Wait | None:
        """Return why this process currently decides nothing; None if it does."""
        config, leading = self._process.config, self._process.leading
        if config.shadow:
            return Wait(
                Cause.NOT_LEADING, "waits for its scheduler; this process only observes (--shadow), see /v1/shadow"
            )
        if leading is not None and leading.phase is LeaderPhase.LEADING and leading.may_decide():
            return None
        if leading is not None and leading.phase is LeaderPhase.STANDBY:
            lease = "/".join(config.lease) if config.lease is not None else ""
            text = f"waits for the leader, which is another process: see the holder of Lease {lease}"
            return Wait(Cause.NOT_LEADING, text)
        why = "; ".join(self.reasons()) or "it does not know all earlier writes yet"
        return Wait(Cause.NOT_READY, f"waits until this process may decide: {why}")

    def _packing(self) -> dict[str, Any] | None:
        process = self._process
        return learned(process.scheduler.cluster.search.learning) if process.synced.is_set() else None

    def _held(self) -> dict[str, Any] | None:
        process = self._process
        return held(process.scheduler, time.monotonic()) if process.synced.is_set() else None

    def _shadow(self) -> dict[str, Any] | None:
        shadow = self._process.shadow
        return shadow.report() if shadow is not None else None


def _is_starting(reasons: list[str]) -> bool:
    """Return whether *reasons* are only those of every start."""
    return bool(reasons) and all(
        reason.endswith(("not listed yet", "being listed", "not made yet")) for reason in reasons
    )


def _fill(process: Process) -> None:
    """Set all gauges to the current state, at each scrape."""
    metrics, cluster = process.metrics, process.scheduler.cluster
    metrics.tasks.set(len(asyncio.all_tasks()))
    remembered = cluster.search.candidates.remembered
    metrics.vector_bytes.set(remembered.size_bytes)
    metrics.shapes.set(remembered.shapes)
    show_packing(metrics, cluster.search.learning)
    metrics.leading.set(process.leads)
    metrics.name_given_up.set(bool(process.given_up))
    # Every replica knows the cluster. If each showed it, sums would count it twice, and pods that the leader refused
    # would look ready for a decision in the others.
    if process.leads:
        _fill_pods(process)
        _fill_nodes(process)
    _fill_configuration(process)
    _fill_watches(process)
    if process.audit is not None:
        process.audit.fill()
    if process.shadow is not None:
        process.shadow.fill()


def _fill_pods(process: Process) -> None:
    metrics, cluster = process.metrics, process.scheduler.cluster
    for stage, count in cluster.queue.counts().items():
        metrics.pods.labels(stage.value).set(count)
    metrics.in_flight.set(cluster.handoff.in_flight)
    metrics.ghosts.set(len(cluster.handoff.unserved_pods))
    metrics.stray_pods.set(len(cluster.ledger.stray_pods()))


def _fill_nodes(process: Process) -> None:
    """Set the gauges of nodes, and of those that take no new pods, or only some."""
    metrics, scheduler, cluster = process.metrics, process.scheduler, process.scheduler.cluster
    metrics.nodes.set(len(cluster.ledger.states))
    dialects, rests = cluster.ledger.catalog.dialects, cluster.handoff.cooldown
    aside = dict.fromkeys(dialects, 0)
    complained = {
        (name, one.dialect) for name, some in scheduler.nodes.complaints.items() for one in some if one.closes
    }
    contradicted = {(name, dialect) for name in cluster.ledger.aside for dialect in cluster.ledger.states[name].offers}
    for _, dialect in complained | contradicted:
        aside[dialect] += 1
    for dialect, count in aside.items():
        metrics.nodes_set_aside.labels(dialect).set(count)
    kept = scheduler.reservations.keeping_free.kept
    metrics.nodes_kept_free.set(len(kept.nodes) if kept is not None else 0)
    metrics.nodes_claimed.set(len(frozenset().union(*(one.nodes for one in scheduler.reservations.nominations))))
    metrics.nodes_silent.set(len(cluster.handoff.closed_nodes(time.monotonic())))
    for dialect in dialects:
        metrics.nodes_resting.labels(dialect).set(len(rests.resting(dialect)))
    for dialect, count in scheduler.nodes.flaps.counts(dialects).items():
        metrics.cards_unsteady.labels(dialect).set(count)
    for dialect, count in cluster.ledger.claimed_cards().items():
        metrics.cards_claimed.labels(dialect).set(count)
    metrics.nodes_avoided.set(sum(1 for _ in rests.avoidances()))


def _fill_configuration(process: Process) -> None:
    metrics, active = process.metrics, process.active
    metrics.configuration_refused.set(bool(active.refused))
    metrics.settings_from_before.set(active.from_before)
    metrics.configuration_notes.set(len(active.notes))
    metrics.documents_forbidden.set(len(process.watches.forbidden))


def _fill_watches(process: Process) -> None:
    metrics, watches = process.metrics, process.watches
    metrics.watch_age_s.clear()
    for name, reflector in process.reflectors.items():
        show(metrics.watch_restarts.labels(name), reflector.counters.watch_restarts)
        show(metrics.lists.labels(name), reflector.counters.lists)
        # Where MindCluster is not installed there is nothing to know, so no age of it may raise an alert.
        if name not in watches.forbidden:
            metrics.watch_age_s.labels(name).set(age_s(reflector))
    for kind, read in (("nodes", watches.nodes_read), ("pods", watches.pods_read)):
        show(metrics.unreadable.labels(kind), read.salvaged)
