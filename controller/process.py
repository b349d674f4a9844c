"""The state of one process: its configuration, its view of the cluster, and the parts that are added as it starts."""

import asyncio
import gc
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from controller.acting.act import Actor
from controller.actions import Announce, Inbox
from controller.config import Config
from controller.deciding.scheduler import Scheduler
from controller.loop import LeaderPhase, Leading
from controller.metrics import Metrics
from controller.reporting.audit import Audit
from controller.reporting.configuration import refusal
from controller.reporting.history import History
from controller.reporting.serve import Callers
from controller.reporting.shadow import Onlooker, Shadow
from controller.reporting.share_seconds import ShareSeconds
from controller.reporting.status import StatusWriter
from controller.scheduler_names import RIVALS, Rival, SchedulerName, SchedulerNames
from controller.watches import Watches
from core.catalog import standard_catalog
from core.errors import ConfigError
from core.model import PodUid
from core.settings import Settings
from kube.configuration import Follower
from kube.credentials import mistake_in
from kube.reflector import Reflector
from runtime.configuration import ActiveConfiguration


class Process:
    """The shared state of a process; None: not created yet, or not part of this kind of process.

    Attributes:
        config: the options.
        active: the configuration in force.
        metrics: the process's metrics.
        inbox: the calls for the scheduler.
        names: scheduler names that other schedulers may use too.
        scheduler: the state of the cluster; only its own task calls it.
        configuration: follows the files and ConfigMaps of the configuration.
        watches: the mirror.
        connection: why there is no connection, or "".
        leading: whether the process may decide and write.
        callers: authenticates and authorizes callers.
        actor: performs actions.
        status_writer: reports why pods wait.
        audit: compares the ledger with the cluster, in a leader.
        shadow: judges waiting pods, in shadow mode.
        share_seconds: accounts the time of cards.
        history: keeps what happened.
        synced: set once the cluster was listed.
        is_stopping: whether the process starts nothing new.
    """

    def __init__(self, config: Config, environ: Mapping[str, str]) -> None:
        """Read all files.

        Raises:
            ConfigError: lists every problem of every file.
        """
        self.config: Final = config
        self.active: Final = _load(config, environ)
        self.metrics: Final = Metrics()
        self.inbox: Final = Inbox(time.monotonic)
        self.names: Final = SchedulerNames(self._name_of(rival) for rival in RIVALS)
        self.scheduler: Final = (Onlooker if config.shadow else Scheduler)(
            standard_catalog(),
            self.active.tables,
            self._settings(),
            metrics=self.metrics,
            clock=time.monotonic,
            wall=time.time,
            strict=False,
        )
        self.active.tell_refusals(lambda name, why: self._announce(refusal(name, why)))
        self.configuration: Final = Follower(
            self.active, config.files, trusted=config.trusted, changed=partial(self.inbox.put_and_wait, self._configure)
        )
        self.watches: Final = Watches(self.scheduler, self.inbox, self.configuration, config.trusted, self.names)
        self.connection = "connection: not made yet"
        self.leading: Leading | None = None
        self.callers: Callers | None = None
        self.actor: Actor | None = None
        self.status_writer: StatusWriter | None = None
        self.audit: Audit | None = None
        self.shadow: Shadow | None = None
        self.share_seconds: Final = ShareSeconds(
            lambda: self.scheduler.cluster.ledger, self.scheduler.cluster.queue_order.of
        )
        self.history: Final = History(self.scheduler, self.inbox, self.share_seconds, config.keep_history)
        self.synced: Final = asyncio.Event()
        self.is_stopping = False

    @property
    def leads(self) -> bool:
        """Whether this process decides."""
        return self.leading is not None and self.leading.phase is LeaderPhase.LEADING

    @property
    def given_up(self) -> dict[str, str]:
        """Why this leader does not place pods of the configured scheduler names, by scheduler name."""
        wanted = self.active.settings.scheduler_names if self.leads else ()
        return {name: why for name, why in self.names.given_up.items() if name in wanted}

    @property
    def reflectors(self) -> Mapping[str, Reflector[Any]]:
        """All reflectors by name."""
        return {**self.configuration.reflectors, **self.watches.reflectors}

    # ------------------------------------------------------------------ configuration

    def _settings(self) -> Settings:
        """Return the settings in force, without the names whose pods another scheduler places."""
        settings, given_up = self.active.settings, self.names.given_up
        # In shadow mode, judging the pods of another scheduler is the purpose.
        if self.config.shadow or given_up.keys().isdisjoint(settings.scheduler_names):
            return settings
        return replace(settings, scheduler_names=tuple(one for one in settings.scheduler_names if one not in given_up))

    def _name_of(self, rival: Rival) -> SchedulerName:
        def is_wanted() -> bool:
            return rival.name in self.active.settings.scheduler_names

        def changed() -> None:
            if is_wanted():
                self.inbox.put(self._configure)

        return SchedulerName(
            rival,
            is_wanted=is_wanted,
            is_sent=self._has_sent,
            changed=changed,
            tell=self._announce,
            trusted=self.config.trusted,
        )

    def _has_sent(self, uid: PodUid) -> bool:
        return self.scheduler.has_sent(uid)

    def _configure(self) -> Iterator[None]:
        gc.disable()
        yield from self.scheduler.configure(self.active.tables, self._settings())
        if self.synced.is_set():
            keep_all()

    def _announce(self, event: Announce) -> None:
        self.scheduler.cluster.actions.append(event)
        self.inbox.filled.set()


def keep_all() -> None:
    """Exempt all existing objects from collection, and enable collection for new ones."""
    gc.freeze()
    gc.enable()


def _load(config: Config, environ: Mapping[str, str]) -> ActiveConfiguration:
    mistake = mistake_in(kubeconfig=config.kubeconfig, environ=environ)
    problems = [mistake] if mistake else []
    try:
        found = ActiveConfiguration(
            config.files,
            standard_catalog(),
            scheduler_names=config.scheduler_names,
            hami_config=config.hami_config,
        )
    except ConfigError as e:
        raise ConfigError([*problems, *e.problems]) from e
    if problems:
        raise ConfigError(problems)
    return found
