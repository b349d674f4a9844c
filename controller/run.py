"""The process: one task owns what is decided, others bring it news and carry out what it wants.

Order of a start: the device plugins' configuration, nodes, pods; then decisions, no earlier than the start delay.
"""

import asyncio
import gc
import signal
import ssl
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

import structlog

from certs import serving
from controller.acting.act import Actor
from controller.acting.group_writes import GroupWrites
from controller.actions import Announce
from controller.cards import card_series
from controller.config import Config
from controller.deciding.lifecycle import UndefinedEventError
from controller.deciding.owner import Owner
from controller.failpoints import Reached, go_on
from controller.garbage import Garbage
from controller.inbox import Inbox
from controller.last_good import LastGood
from controller.leading import WRITE_ENDS_S, Gated, Leading, Phase
from controller.metrics import Metrics, show
from controller.reporting import packing
from controller.reporting.answers import Explain, answer
from controller.reporting.audit import Audit
from controller.reporting.callers import Callers
from controller.reporting.condition import OwnCondition, refusal, verdict
from controller.reporting.events import Recorder
from controller.reporting.onlooker import Onlooker
from controller.reporting.preview import preview
from controller.reporting.serve import BODY_S, MAX_POD_BYTES, Trusted, exposition
from controller.reporting.shadow import Shadow
from controller.reporting.status import StatusWriter
from controller.scheduler_names import RIVALS, Rival, SchedulerName, SchedulerNames
from controller.takeover import Kept, derive
from controller.watching.mirror import pods_on
from controller.watching.watches import Watches, age_s
from core.catalog import standard_catalog
from core.errors import ConfigError
from core.model import PodUid
from core.settings import Settings
from core.waiting import Cause, Wait
from kube.calls import Calls
from kube.configuration import Follower
from kube.credentials import choose_source, mistake_in
from kube.errors import CredentialsError
from kube.lease import Lease
from kube.reflector import Reflector
from kube.transport import Transport
from runtime.backoff import Backoff
from runtime.calls import Plain
from runtime.configuration import ActiveConfiguration
from runtime.figures import ServingFigures
from runtime.process import connections_of, raise_file_limit
from runtime.serving import MAX_PLAIN_CONNECTIONS, HttpListener

_log: Final = structlog.get_logger()

# The loop is given back after this long, so that watches and answers are read meanwhile.
_SLICE_S: Final = 0.01
_REPORT_S: Final = 1.0
_CERTIFICATE_S: Final = 2.0
_SHUTDOWN_S: Final = 2.0
# Of the TLS port: webhooks, and people who ask.
_MAX_CALLERS: Final = 256
_LAG_S: Final = 0.02
# A pod is given 30 s to end in (deploy/base/controller.yaml): a Binding, before it the lock of its node, and the lease.
DRAIN_S: Final = 14.0
RELEASE_S: Final = 2.0
# How often a standby brings its indices up to date, and how soon a leader looks again that may not decide now.
_KEEP_UP_S: Final = 1.0
_LOOK_AGAIN_S: Final = 0.1
# Until the first sync, and while another configuration is taken, nearly everything made is kept, and nothing is
# collected; after it little leaves garbage with cycles, and what is kept for long is not looked through again: either
# would hold the loop for too long.
_GC_THRESHOLDS: Final = (20_000, 10, 1000)


class Controller:
    """What one process holds."""

    def __init__(self, config: Config, environ: Mapping[str, str], reached: Reached = go_on) -> None:
        """Read all files. *reached*: what a test has happen at fail points.

        Raises:
            ConfigError: with every problem of every file.
        """
        self._config = config
        self._environ = environ
        self._reached: Final = reached
        self._active: Final = self._load()
        self._metrics = Metrics()
        self._started_s = time.monotonic()
        self._inbox = Inbox(time.monotonic)
        self._names: Final = SchedulerNames(self._name_of(rival) for rival in RIVALS)
        self._owner = (Onlooker if config.shadow else Owner)(
            standard_catalog(),
            self._active.tables,
            self._settings(),
            metrics=self._metrics,
            clock=time.monotonic,
            wall=time.time,
            strict=False,
        )
        self._active.tell_refusals(lambda name, why: self._announce(refusal(name, why)))
        self._configuration: Final = Follower(
            self._active, config.files, trusted=config.trusted, changed=self._take_configuration
        )
        self._watches: Final = Watches(self._owner, self._inbox, self._configuration, config.trusted, self._names)
        self._actor: Actor | None = None
        self._status_writer: StatusWriter | None = None
        self._group_writes: GroupWrites | None = None
        self._audit: Audit | None = None
        self._shadow: Shadow | None = None
        self._transport: Transport | None = None
        self._callers: Callers | None = None
        self._plain = HttpListener(
            "plain", Plain(self.reasons, self._exposition, self.notes).answer, max_connections=MAX_PLAIN_CONNECTIONS
        )
        self._context = serving.server_context()
        self._trusted = HttpListener(
            "trusted",
            Trusted(
                lambda: self._callers,
                preview=self._preview,
                explain=self._answer,
                audit=self._audited,
                packing=self._packed,
                shadow=self._shadowed if config.shadow else None,
            ).answer,
            self._context,
            max_connections=connections_of(_MAX_CALLERS, raise_file_limit()),
            max_body_bytes=MAX_POD_BYTES,
            deadline_s=lambda _: BODY_S,
        )
        self._metrics.registry.register(ServingFigures((self._plain, self._trusted)))
        self._connection = "connection: not made yet"
        self._leading: Leading | None = None
        self._gated: Gated | None = None
        self._kept: Final = Kept(lambda clear: self._owner.cleared(clear.pod.uid, done=False))
        self._kept_up_s = 0.0
        self._synced: Final = asyncio.Event()
        self._stopping = False
        # Whether all that was written has ended, so that another one need not wait.
        self._has_ended = False

    def _load(self) -> ActiveConfiguration:
        mistake = mistake_in(kubeconfig=self._config.kubeconfig, environ=self._environ)
        problems = [mistake] if mistake else []
        try:
            found = ActiveConfiguration(
                self._config.files, standard_catalog(), scheduler_names=self._config.scheduler_names
            )
        except ConfigError as e:
            raise ConfigError([*problems, *e.problems]) from e
        if problems:
            raise ConfigError(problems)
        return found

    async def run(self) -> None:
        """Work until SIGTERM or SIGINT, then let what is in flight end.

        Raises:
            ConfigError: the address cannot be had.
            ExceptionGroup: an `InvariantError` and whatever else ended a task.
        """
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        gc.disable()
        listen = await self._plain.start(self._config.listen, "--listen")
        _log.info(
            "controller serving",
            listen=str(listen),
            names=self._owner.planner.settings.scheduler_names,
            trusted_namespaces=sorted(self._config.trusted) or "none",
        )
        try:
            await self._until(stop)
        finally:
            await self._plain.stop(_SHUTDOWN_S)
        _log.info("controller stopped")

    async def _until(self, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(self._work(), name="work"),
                tasks.create_task(self._measure_lag(), name="lag"),
                tasks.create_task(self._report(), name="report"),
                tasks.create_task(self._configuration.follow_files(), name="settings"),
                tasks.create_task(self._garbage().run(), name="garbage"),
                tasks.create_task(self._serve_previews(), name="previews"),
            ]
            await stop.wait()
            self._stopping = True
            await self._end_writes()
            for task in running:
                task.cancel()

    def _garbage(self) -> Garbage:
        return Garbage(
            lambda: self._owner.ledger.cursor,
            failures=lambda: sum(one.counters.failures for one in self._reflectors().values()),
        )

    def _reflectors(self) -> Mapping[str, Reflector[Any]]:
        return {**self._configuration.reflectors, **self._watches.reflectors}

    async def _end_writes(self) -> None:
        """Begin nothing more, and let what is under way end, within less than a pod is given to end in."""
        leading, actor, gated = self._leading, self._actor, self._gated
        if leading is None or actor is None or gated is None:
            return
        leading.stop()
        try:
            async with asyncio.timeout(DRAIN_S):
                await actor.drain()
                leading.close()
                await gated.idle()
            self._has_ended = True
        except TimeoutError:
            leading.close()
            _log.warning("what was under way has not ended; the lease is not released", waited_s=DRAIN_S)

    # ------------------------------------------------------------------ work

    async def _work(self) -> None:
        async with AsyncExitStack() as stack:
            transport = await self._connect(stack)
            leading = self._leading = self._may_lead(transport)
            self._gated = Gated(transport, leading.may_write)
            calls = Calls(self._gated)
            recorder = Recorder(calls, self._metrics, instance=self._config.identity)
            actor = Actor(calls, self._owner, self._inbox, recorder, self._metrics, reached=self._reached)
            status_writer = StatusWriter(self._owner, calls, self._inbox, recorder, self._metrics)
            self._actor, self._status_writer, self._transport = actor, status_writer, transport
            self._callers = Callers(Calls(transport), self._config.audience)
            # Last of all, once nothing here can write any more.
            stack.push_async_callback(self._release, leading)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._own(tasks, actor, status_writer, leading), name="own")
                tasks.create_task(self._mirror(tasks, transport), name="mirror")
                if isinstance(self._owner, Onlooker):
                    # It stands by for ever: whoever stands by keeps everything warm, and its gate lets no write pass.
                    await self._look_on(self._owner, status_writer)
                tasks.create_task(self._lead(leading), name="lead")
                await leading.began.wait()
                await self._inbox.put_and_wait(self._derive)
                tasks.create_task(recorder.run(), name="record")
                tasks.create_task(status_writer.run(), name="tell")
                writes = GroupWrites(self._owner.groups, calls, self._inbox, recorder, self._metrics)
                self._group_writes = writes
                tasks.create_task(writes.run(), name="write groups")
                for name in self._names.names:
                    lease = self._lease(transport, *name.rival.lease, makes=False) if name.rival.lease else None
                    if lease is not None:
                        stack.push_async_callback(self._release, lease)
                    tasks.create_task(name.run(lease, WRITE_ENDS_S + 1.0), name=f"the name {name.rival.name}")
                self._audit = Audit(self._owner, self._inbox, partial(pods_on, transport), self._metrics)
                tasks.create_task(self._audit.run(), name="audit")
                if self._config.pod is not None:
                    told = OwnCondition(calls, self._config.pod, lambda: verdict(self._active), self._metrics)
                    tasks.create_task(told.run(), name="condition")
                if self._config.keep_in is not None:
                    keeping = LastGood(calls, self._config.keep_in, self._active.good)
                    tasks.create_task(keeping.run(), name="last good")

    async def _look_on(self, owner: Onlooker, status_writer: StatusWriter) -> NoReturn:
        """Tell what would be done, until cancelled."""
        await self._synced.wait()
        shadow = self._shadow = Shadow(
            owner, self._inbox, status_writer.explain, self._metrics, is_current=self._watches.is_current
        )
        await shadow.run()

    def _may_lead(self, transport: Transport) -> Leading:
        """The gate before all that this process decides and writes."""
        config = self._config
        return Leading(
            self._lease(transport, *config.lease) if config.lease is not None and not config.shadow else None,
            settle_s=config.start_delay_s,
            is_current=self._watches.is_current,
            catch_up=partial(self._watches.catch_up, Calls(transport)),
            changed=self._inbox.filled.set,
        )

    def _lease(self, transport: Transport, namespace: str, name: str, *, makes: bool = True) -> Lease:
        config = self._config
        who = config.pod.name if config.pod is not None else config.identity
        identity = f"{who}_{uuid.uuid4().hex[:12]}"
        return Lease(transport, namespace=namespace, name=name, identity=identity, timing=config.timing, makes=makes)

    async def _lead(self, leading: Leading) -> None:
        """Compete once there is something to decide on: who cannot read the cluster must not keep others from it."""
        await self._synced.wait()
        await leading.run()

    def _derive(self) -> Iterator[None]:
        refused = [refusal(name, why) for name, why in self._active.refused.items()]
        return derive(self._owner, refused, time.monotonic())

    async def _release(self, held: Leading | Lease) -> None:
        if self._has_ended:
            await held.release(RELEASE_S)

    async def _connect(self, stack: AsyncExitStack) -> Transport:
        """The transport, as soon as there are credentials to begin with."""
        backoff = Backoff(first_s=1.0, cap_s=15.0, jitter=lambda: 0.0)
        while True:
            try:
                source = choose_source(kubeconfig=self._config.kubeconfig, environ=self._environ)
                transport = await stack.enter_async_context(Transport(source, user_agent="cardshare-controller"))
            except CredentialsError as e:
                self._connection = f"credentials: {e}"
                await asyncio.sleep(backoff.next_s())
                continue
            self._connection = ""
            return transport

    async def _mirror(self, tasks: asyncio.TaskGroup, transport: Transport) -> None:
        await self._watches.configuration(tasks, transport)
        await self._watches.cluster(tasks, transport)
        self._synced.set()
        gc.set_threshold(*_GC_THRESHOLDS)
        _keep()
        _log.info(
            "synced",
            nodes=len(self._owner.ledger.states),
            pods_with_cards=len(self._owner.carded),
            pending=len(self._owner.life),
            elapsed_ms=round(1000 * (time.monotonic() - self._started_s)),
        )
        self._inbox.filled.set()

    async def _own(self, tasks: asyncio.TaskGroup, actor: Actor, status_writer: StatusWriter, leading: Leading) -> None:
        """The one task in which ledger, queue and hand-off change."""
        owner, inbox = self._owner, self._inbox
        while True:
            inbox.filled.clear()
            due_s = time.monotonic()
            try:
                more = inbox.work(time.monotonic() + _SLICE_S)
                due_s = self._may_plan_s(leading)
                if due_s <= time.monotonic() and not inbox.is_halfway:
                    more = owner.planner.plan(time.monotonic() + _SLICE_S) or more
                    due_s = owner.planner.next_due_s()
            except UndefinedEventError as e:
                _log.exception("a pod is not what it was thought to be, and is read anew", pod_uid=e.uid)
                owner.mistrust(e)
                more = True
            if leading.phase in (Phase.STANDBY, Phase.SETTLING):
                due_s = self._stand_by(actor, tasks)
            else:
                owner.planner.actions.extend(self._kept.take())
                while owner.planner.actions:
                    actor.perform(owner.planner.actions.popleft(), tasks)
            if owner.wakes.unreported or owner.planner.unreported:
                status_writer.wake.set()
            if self._group_writes is not None and owner.groups.unreported:
                self._group_writes.wake.set()
            if more:
                await asyncio.sleep(0)
            else:
                await _wait(inbox.filled, due_s)

    def _stand_by(self, actor: Actor, tasks: asyncio.TaskGroup) -> float:
        """Keep everything warm and write nothing; when to look again, monotonic."""
        actions = self._owner.planner.actions
        while actions:
            now = self._kept.keep(actions.popleft())
            if now is not None:
                actor.perform(now, tasks)
        if time.monotonic() >= self._kept_up_s + _KEEP_UP_S and not self._inbox.is_halfway:
            self._kept_up_s = time.monotonic()
            self._owner.planner.search.keep_up()
            self._owner.handoff.seconds.clear()
        return self._kept_up_s + _KEEP_UP_S

    def _may_plan_s(self, leading: Leading) -> float:
        """From when on decisions may be taken, monotonic; infinite while something else must happen first."""
        if leading.phase is not Phase.LEADING:
            return float("inf")
        if not leading.may_decide():
            return time.monotonic() + _LOOK_AGAIN_S
        pause_s = self._transport.pause_s if self._transport is not None else 0.0
        return time.monotonic() + pause_s if pause_s else 0.0

    # ------------------------------------------------------------------ configuration

    def _settings(self) -> Settings:
        """Those in force, less the names that others place pods of."""
        settings, given_up = self._active.settings, self._names.given_up
        # A shadow judges pods that another places; it is there for that.
        if self._config.shadow or given_up.keys().isdisjoint(settings.scheduler_names):
            return settings
        return replace(settings, scheduler_names=tuple(one for one in settings.scheduler_names if one not in given_up))

    def _name_of(self, rival: Rival) -> SchedulerName:
        def is_wanted() -> bool:
            return rival.name in self._active.settings.scheduler_names

        def changed() -> None:
            if is_wanted():
                self._inbox.put(self._configure)

        return SchedulerName(
            rival,
            is_wanted=is_wanted,
            is_sent=self._is_sent,
            changed=changed,
            tell=self._announce,
            trusted=self._config.trusted,
        )

    def _is_sent(self, uid: PodUid) -> bool:
        entry = self._owner.life.get(uid)
        return entry is not None and entry.attempt > 0

    async def _take_configuration(self) -> None:
        """Another configuration is in force; returns once the owner has taken it."""
        await self._inbox.put_and_wait(self._configure)

    def _configure(self) -> Iterator[None]:
        gc.disable()
        yield from self._owner.configure(self._active.tables, self._settings())
        if self._synced.is_set():
            _keep()

    def _announce(self, event: Announce) -> None:
        self._owner.planner.actions.append(event)
        self._inbox.filled.set()

    # ------------------------------------------------------------------ what others see

    def reasons(self) -> list[str]:
        """Why this process is not ready, a line each."""
        found = [self._connection] if self._connection else []
        found += self._watches.reasons()
        found += self._leading.reasons() if self._leading is not None else []
        if self._actor is not None and self._actor.state:
            found.append(self._actor.state)
        if self._stopping:
            found.append("stopping")
        return found

    def notes(self) -> list[str]:
        """What whoever asks for readiness should know beside, a line each."""
        trouble = self._owner.preempting.trouble
        found = [f"pods with schedulerName {name} are left alone: {why}" for name, why in self._given_up.items()]
        return [*found, *self._watches.notes(), *([trouble] if trouble else [])]

    @property
    def _leads(self) -> bool:
        return self._leading is not None and self._leading.phase is Phase.LEADING

    @property
    def _given_up(self) -> dict[str, str]:
        """Why this process, which leads, leaves pods alone that are ours by the settings; by their scheduler's name."""
        wanted = self._active.settings.scheduler_names if self._leads else ()
        return {name: why for name, why in self._names.given_up.items() if name in wanted}

    def _explain(self) -> Explain | None:
        return self._status_writer.explain if self._status_writer is not None else None

    async def _preview(self, text: bytes) -> dict[str, Any] | None:
        explain_shape = self._explain()
        return (
            await preview(self._owner, self._inbox, explain_shape, text)
            if self._synced.is_set() and explain_shape
            else None
        )

    async def _answer(self, key: str) -> dict[str, Any] | None:
        explain_shape = self._explain()
        return (
            await answer(
                self._owner,
                self._inbox,
                explain_shape,
                key,
                explain_unit=self._status_writer.explain_unit if self._status_writer is not None else None,
                idle=self._idle(),
                given_up=() if self._config.shadow else self._names.given_up.keys(),
            )
            if self._synced.is_set() and explain_shape
            else None
        )

    def _idle(self) -> Wait | None:
        """Why this process decides nothing at the moment; None if it does."""
        if self._config.shadow:
            return Wait(
                Cause.NOT_LEADING, "waits for its scheduler; this process only looks on (--shadow), see /v1/shadow"
            )
        leading = self._leading
        if leading is not None and leading.phase is Phase.LEADING and leading.may_decide():
            return None
        if leading is not None and leading.phase is Phase.STANDBY:
            lease = "/".join(self._config.lease) if self._config.lease is not None else ""
            text = f"waits for the process that decides, which is not this one: see who holds the Lease {lease}"
            return Wait(Cause.NOT_LEADING, text)
        why = "; ".join(self.reasons()) or "it does not know yet all that was written before"
        return Wait(Cause.NOT_READY, f"waits until this process may decide: {why}")

    def _audited(self) -> dict[str, Any] | None:
        return self._audit.report() if self._audit is not None else None

    def _packed(self) -> dict[str, Any] | None:
        return packing.answer(self._owner.planner.search.learning) if self._synced.is_set() else None

    def _shadowed(self) -> dict[str, Any] | None:
        return self._shadow.report() if self._shadow is not None else None

    async def _serve_previews(self) -> None:
        """Serve them as soon as there is a pair to serve them with, and by the newest."""
        listen, is_served = self._config.preview_listen, False
        if listen is None:
            return
        directory, seen = Path(self._config.cert_dir), None
        try:
            while True:
                found = await asyncio.to_thread(serving.signature, directory)
                if found != seen:
                    seen = found
                    try:
                        pair = await asyncio.to_thread(serving.load, directory, datetime.now(UTC))
                        serving.use(self._context, pair.stored)
                    except (ConfigError, ssl.SSLError, OSError) as e:
                        _log.warning("no certificate to serve previews and explanations with", error=str(e))
                    else:
                        if not is_served:
                            taken, is_served = await self._trusted.start(listen, "--preview-listen"), True
                            _log.info("previews and explanations served", listen=str(taken))
                await asyncio.sleep(_CERTIFICATE_S)
        finally:
            await self._trusted.stop(_SHUTDOWN_S)

    def _exposition(self) -> AsyncIterator[bytes]:
        self._fill()
        settings = self._owner.planner.settings
        return exposition(self._metrics, card_series(self._owner.ledger, per_pod=settings.metrics_per_pod))

    def _fill(self) -> None:
        """Bring the gauges up to date."""
        owner, metrics = self._owner, self._metrics
        for stage, count in owner.life.counts().items():
            metrics.pods.labels(stage.value).set(count)
        aside = dict.fromkeys(owner.ledger.catalog.dialects, 0)
        complained = {(name, one.dialect) for name, some in owner.nodes.complaints.items() for one in some}
        contradicted = {(name, dialect) for name in owner.ledger.aside for dialect in owner.ledger.states[name].offers}
        for _, dialect in complained | contradicted:
            aside[dialect] += 1
        for dialect, count in aside.items():
            metrics.nodes_set_aside.labels(dialect).set(count)
        kept = owner.planner.barring.keeping_free.kept
        metrics.nodes_kept_free.set(len(kept.nodes) if kept is not None else 0)
        metrics.nodes_claimed.set(len(owner.planner.barring.nominations.barred(None)))
        metrics.nodes_silent.set(len(owner.handoff.closed_nodes(time.monotonic())))
        metrics.in_flight.set(owner.handoff.in_flight)
        metrics.ghosts.set(len(owner.handoff.ghosts))
        for dialect in owner.ledger.catalog.dialects:
            metrics.nodes_resting.labels(dialect).set(len(owner.handoff.rests.resting(dialect)))
        for dialect, count in owner.nodes.flaps.counts(owner.ledger.catalog.dialects).items():
            metrics.cards_unsteady.labels(dialect).set(count)
        metrics.nodes_avoided.set(sum(1 for _ in owner.handoff.rests.avoidances()))
        metrics.nodes.set(len(owner.ledger.states))
        metrics.tasks.set(len(asyncio.all_tasks()))
        remembered = owner.planner.search.candidates.remembered
        metrics.index_bytes.set(remembered.index_bytes)
        metrics.verdicts.set(remembered.verdicts)
        packing.show(metrics, owner.planner.search.learning)
        metrics.configuration_refused.set(bool(self._active.refused))
        metrics.settings_from_before.set(self._active.from_before)
        metrics.configuration_notes.set(len(self._active.notes))
        if self._audit is not None:
            for fault, count in self._audit.counts().items():
                metrics.audit_findings.labels(fault.value).set(count)
        if self._shadow is not None:
            self._shadow.fill()
        metrics.stray_pods.set(len(owner.ledger.stray_pods()))
        metrics.documents_forbidden.set(self._watches.forbidden)
        for name, reflector in self._reflectors().items():
            show(metrics.watch_restarts.labels(name), reflector.counters.watch_restarts)
            show(metrics.lists.labels(name), reflector.counters.lists)
            metrics.watch_age_s.labels(name).set(age_s(reflector))
        for kind, read in (("nodes", self._watches.nodes_read), ("pods", self._watches.pods_read)):
            show(metrics.unreadable.labels(kind), read.salvaged)
        metrics.name_given_up.set(bool(self._given_up))
        metrics.leading.set(self._leads)

    async def _report(self) -> None:
        """Say once, in one line, why nothing can be done, and when that is over."""
        told: list[str] | None = None
        while True:
            reasons = [] if self._stopping else self.reasons()
            if reasons != told and (told or not _is_starting(reasons)):
                if reasons:
                    _log.warning("not ready", reason="; ".join(reasons))
                else:
                    _log.info("ready")
                told = reasons
            await asyncio.sleep(_REPORT_S)

    async def _measure_lag(self) -> None:
        longest_s = 0.0
        while True:
            before_s = time.monotonic()
            await asyncio.sleep(_LAG_S)
            lag_s = max(time.monotonic() - before_s - _LAG_S, 0.0)
            self._metrics.loop_lag_s.observe(lag_s)
            if lag_s > longest_s:
                longest_s = lag_s
                self._metrics.loop_lag_max_s.set(lag_s)


def _is_starting(reasons: list[str]) -> bool:
    """Whether these are only what every start goes through."""
    return bool(reasons) and all(
        reason.endswith(("not listed yet", "being listed", "not made yet")) for reason in reasons
    )


def _keep() -> None:
    """Let all that there is be kept, and what comes after it be collected."""
    gc.freeze()
    gc.enable()


async def _wait(event: asyncio.Event, until_s: float) -> None:
    delay_s = until_s - time.monotonic()
    try:
        async with asyncio.timeout(None if delay_s == float("inf") else max(delay_s, 0.0)):
            await event.wait()
    except TimeoutError:
        pass
