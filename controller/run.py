"""The controller process: starts its tasks in order, and lets work in progress end when it stops.

Order of a start: the device plugins' configuration, nodes, pods; then the lease, and decisions.
"""

import asyncio
import gc
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Final, NoReturn

import structlog

from controller.acting.act import Actor
from controller.acting.group_writes import GroupWrites
from controller.config import Config
from controller.garbage import Garbage
from controller.kueue.checks import AdmissionChecks
from controller.loop import WRITE_ENDS_S, Gated, LeaderPhase, Leading, Loop, derive
from controller.process import Process, keep_all
from controller.reporting.audit import Audit
from controller.reporting.configuration import keep_last_good, refusal, verdict
from controller.reporting.events import Recorder
from controller.reporting.serve import Callers
from controller.reporting.shadow import Onlooker, Shadow
from controller.reporting.status import StatusWriter
from controller.serving import Serving
from controller.watches import pods_on
from core.names import CONFIGURATION_ACCEPTED
from kube.calls import Calls
from kube.condition import OwnCondition
from kube.credentials import choose_source
from kube.errors import CredentialsError
from kube.lease import How, Lease
from kube.transport import Transport
from runtime.backoff import Backoff
from runtime.process import stop_event

_log: Final = structlog.get_logger()

# Waking an idle process always costs more than the work that it then does.
_LAG_S: Final = 0.05
# A pod has 30 s to end (deploy/base/controller.yaml): for a Binding, the node lock before it, and the lease.
DRAIN_S: Final = 14.0
_SETTLE_LOOK_S: Final = 0.02
RELEASE_S: Final = 2.0
# Until the first sync, and during a change of the configuration, nearly all new objects are kept, so nothing is
# collected. Later, little work leaves cyclic garbage, and long-lived objects are not examined again. Either would block
# the loop for too long.
_GC_THRESHOLDS: Final = (20_000, 10, 1000)


class Controller:
    """One controller process, from start to end."""

    def __init__(self, config: Config, environ: Mapping[str, str]) -> None:
        """Read all files.

        Raises:
            ConfigError: lists every problem of every file.
        """
        self._started_s: Final = time.monotonic()
        self._config: Final = config
        self._environ: Final = environ
        self._process: Final = Process(config, environ)
        self._serving: Final = Serving(self._process)
        self._gated: Gated | None = None
        # Whether nothing that was sent can take effect any more, so that the next leader has nothing to fence.
        self._has_ended = False

    async def run(self) -> None:
        """Work until SIGTERM or SIGINT, then let calls in progress end.

        Raises:
            ConfigError: the address is unavailable.
            ExceptionGroup: an `InvariantError`, or another error that ended a task.
        """
        stop = stop_event()
        gc.disable()
        _log.info(
            "controller serving",
            listen=await self._serving.start(),
            names=self._process.scheduler.cluster.settings.scheduler_names,
            trusted_namespaces=sorted(self._config.trusted) or "none",
        )
        try:
            await self._until(stop)
        finally:
            await self._serving.stop()
        _log.info("controller stopped")

    async def _until(self, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(self._work(), name="work"),
                tasks.create_task(self._measure_lag(), name="lag"),
                tasks.create_task(self._count_card_time(), name="card time"),
                tasks.create_task(self._serving.report(), name="report"),
                tasks.create_task(self._process.configuration.follow_files(), name="settings"),
                tasks.create_task(self._garbage().run(), name="garbage"),
                tasks.create_task(self._serving.run_trusted(), name="previews"),
            ]
            await stop.wait()
            self._process.is_stopping = True
            await self._end_writes()
            for task in running:
                task.cancel()

    def _garbage(self) -> Garbage:
        process = self._process
        return Garbage(
            lambda: process.scheduler.cluster.ledger.cursor,
            failures=lambda: sum(one.counters.failures for one in process.reflectors.values()),
        )

    async def _end_writes(self) -> None:
        """Start nothing new and let calls in progress end, in less time than the pod has for its end.

        The end of a call does not settle its attempt: a sent write may take effect at any later time.
        """
        leading, actor, gated = self._process.leading, self._process.actor, self._gated
        if leading is None or actor is None or gated is None:
            return
        has_led = leading.phase is LeaderPhase.LEADING
        leading.stop()
        try:
            async with asyncio.timeout(DRAIN_S):
                await actor.drain()
                if has_led:
                    await self._settle()
                leading.close()
                await gated.idle()
            self._has_ended = has_led
        except TimeoutError:
            leading.close()
            _log.warning("calls in progress have not ended; the lease is not released", waited_s=DRAIN_S)

    async def _settle(self) -> None:
        """Wait until no Binding of this leader or an earlier one can take effect any more."""
        is_settled = False

        def settle() -> None:
            nonlocal is_settled
            is_settled = self._process.scheduler.settle()

        while not is_settled:
            await self._process.inbox.put_and_wait(settle)
            await asyncio.sleep(_SETTLE_LOOK_S)

    async def _measure_lag(self) -> None:
        longest_s = 0.0
        metrics = self._process.metrics
        while True:
            before_s = time.monotonic()
            await asyncio.sleep(_LAG_S)
            lag_s = max(time.monotonic() - before_s - _LAG_S, 0.0)
            metrics.loop_lag_s.observe(lag_s)
            if lag_s > longest_s:
                longest_s = lag_s
                metrics.loop_lag_max_s.set(lag_s)

    async def _count_card_time(self) -> None:
        process = self._process
        await process.share_seconds.run(
            counts=lambda: process.leads, by_owner=lambda: process.scheduler.cluster.settings.metrics_per_pod
        )

    # ------------------------------------------------------------------ work

    async def _work(self) -> None:
        """Connect, then start the tasks, each once it has what it needs."""
        config, process = self._config, self._process
        scheduler, inbox, metrics = process.scheduler, process.inbox, process.metrics
        async with AsyncExitStack() as stack:
            transport = await self._connect(stack)
            leading = process.leading = self._may_lead(transport)
            self._gated = Gated(transport, leading.may_write)
            calls = Calls(self._gated)
            recorder = Recorder(
                calls,
                metrics,
                instance=config.identity,
                is_binding=lambda: scheduler.cluster.queue.in_flight > 0 or scheduler.preempting.asking > 0,
            )
            actor = process.actor = Actor(calls, scheduler, inbox, recorder, metrics)
            status_writer = process.status_writer = StatusWriter(scheduler, calls, inbox, recorder, metrics)
            budgets, jobs = scheduler.cluster.budgets, scheduler.jobs
            group_writes = GroupWrites(
                scheduler.cluster.groups, calls, inbox, recorder, metrics, budgets=budgets, jobs=jobs
            )
            process.callers = Callers(Calls(transport), config.audience)
            process.history.calls = calls
            loop = Loop(
                scheduler,
                inbox,
                leading,
                actor,
                transport=transport,
                pods_wait=status_writer.wake,
                groups_wait=group_writes.wake,
            )
            # Last, once nothing here can write any more.
            stack.push_async_callback(self._release, leading)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(loop.run(tasks), name="own")
                tasks.create_task(self._mirror(tasks, transport), name="mirror")
                if isinstance(scheduler, Onlooker):
                    # In shadow mode the process stays a standby for ever: it keeps everything warm, and its gate blocks
                    # all writes.
                    await self._look_on(scheduler, status_writer)
                tasks.create_task(self._lead(leading), name="lead")
                await leading.began.wait()
                await inbox.put_and_wait(self._derive)
                tasks.create_task(recorder.run(), name="record")
                tasks.create_task(status_writer.run(), name="tell")
                tasks.create_task(group_writes.run(), name="write groups")
                tasks.create_task(process.watches.jobs(transport), name="follow Jobs of Volcano")
                for name in process.names.names:
                    lease = self._lease(transport, *name.rival.lease, makes=False) if name.rival.lease else None
                    if lease is not None:
                        stack.push_async_callback(self._release, lease)
                    tasks.create_task(name.run(lease, WRITE_ENDS_S + 1.0), name=f"the name {name.rival.name}")
                fetch, list_again = partial(pods_on, transport), process.watches.reflectors["pods"].list_again
                tasks.create_task(process.history.run(), name="history")
                audit = process.audit = Audit(scheduler, inbox, fetch, metrics, list_again=list_again)
                tasks.create_task(audit.run(), name="audit")
                if config.kueue:
                    tasks.create_task(self._answer_kueue(transport, calls, status_writer), name="admission checks")
                if config.pod is not None:
                    told = OwnCondition(
                        calls,
                        config.pod,
                        CONFIGURATION_ACCEPTED,
                        lambda: verdict(process.active),
                        failed=metrics.api_errors.labels("write configuration condition").inc,
                    )
                    tasks.create_task(told.run(), name="condition")
                if config.keep_last_good is not None:
                    keeping = keep_last_good(calls, config.keep_last_good, process.active.good)
                    tasks.create_task(keeping, name="last good")

    async def _answer_kueue(self, transport: Transport, calls: Calls, status_writer: StatusWriter) -> NoReturn:
        """Answer Kueue's admission checks until cancelled."""
        process = self._process
        leading, is_current = process.leading, process.watches.is_current
        checks = AdmissionChecks(
            process.scheduler,
            process.inbox,
            transport,
            calls,
            process.metrics,
            explain_shape=status_writer.explain,
            may_answer=lambda: leading is not None and leading.may_decide() and is_current(),
        )
        process.watches.reflectors.update(checks.reflectors)
        await checks.run()

    async def _look_on(self, scheduler: Onlooker, status_writer: StatusWriter) -> NoReturn:
        """Report what would be done, until cancelled."""
        process = self._process
        await process.synced.wait()
        shadow = process.shadow = Shadow(
            scheduler, process.inbox, status_writer.explain, process.metrics, is_current=process.watches.is_current
        )
        await shadow.run()

    def _may_lead(self, transport: Transport) -> Leading:
        """Return the gate for all decisions and writes of this process."""
        config, watches = self._config, self._process.watches
        return Leading(
            self._lease(transport, *config.lease) if config.lease is not None and not config.shadow else None,
            is_current=watches.is_current,
            take_over=partial(self._take_over, Calls(transport)),
            changed=self._process.inbox.filled.set,
        )

    async def _take_over(self, calls: Calls, how: How) -> None:
        """Learn all earlier writes and those that may still take effect: none, if the last holder ended cleanly."""
        process = self._process
        await process.watches.catch_up(calls)
        await process.history.take_over()
        if how is not How.NEW:
            await process.inbox.put_and_wait(process.scheduler.follow)
        if how is not How.RELEASED:
            names = process.active.settings.scheduler_names
            await process.inbox.put_and_wait(lambda: process.scheduler.take_over(names))

    def _lease(self, transport: Transport, namespace: str, name: str, *, makes: bool = True) -> Lease:
        config = self._config
        who = config.pod.name if config.pod is not None else config.identity
        identity = f"{who}_{uuid.uuid4().hex[:12]}"
        return Lease(transport, namespace=namespace, name=name, identity=identity, timing=config.timing, makes=makes)

    async def _lead(self, leading: Leading) -> None:
        """Compete once the cluster is listed, because a process that cannot read the cluster must not block others."""
        await self._process.synced.wait()
        await leading.run()

    def _derive(self) -> Iterator[None]:
        refused = [refusal(name, why) for name, why in self._process.active.refused.items()]
        return derive(self._process.scheduler, refused, time.monotonic())

    async def _release(self, held: Leading | Lease) -> None:
        if self._has_ended:
            await held.release(RELEASE_S)

    async def _connect(self, stack: AsyncExitStack) -> Transport:
        """Return the transport as soon as there are usable credentials."""
        backoff = Backoff(first_s=1.0, cap_s=15.0, jitter=lambda: 0.0)
        while True:
            try:
                source = choose_source(kubeconfig=self._config.kubeconfig, environ=self._environ)
                transport = await stack.enter_async_context(Transport(source, user_agent="cardshare-controller"))
            except CredentialsError as e:
                self._process.connection = f"credentials: {e}"
                await asyncio.sleep(backoff.next_s())
                continue
            self._process.connection = ""
            return transport

    async def _mirror(self, tasks: asyncio.TaskGroup, transport: Transport) -> None:
        process = self._process
        await process.watches.configuration(tasks, transport)
        await process.watches.cluster(tasks, transport)
        process.synced.set()
        gc.set_threshold(*_GC_THRESHOLDS)
        keep_all()
        _log.info(
            "synced",
            nodes=len(process.scheduler.cluster.ledger.states),
            pods_with_cards=len(process.scheduler.cluster.carded),
            pending=len(process.scheduler.cluster.queue),
            elapsed_ms=round(1000 * (time.monotonic() - self._started_s)),
        )
        process.inbox.filled.set()
