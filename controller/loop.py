"""The one task that changes ledger, queue and hand-off: it takes news in, decides, and starts actions."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NoReturn

import structlog

from controller.acting.act import Actor
from controller.actions import Action, Announce, Clear, Inbox, Lock, ReadOwner, ReadPod
from controller.deciding.lifecycle import Told, UndefinedEventError
from controller.deciding.scheduler import Scheduler
from controller.leading import LeaderPhase, Leading
from kube.transport import Transport

_log: Final = structlog.get_logger()

# The task yields the loop after this long, so that watches and answers are read in the meantime.
_SLICE_S: Final = 0.01
# How often a standby reads the changed nodes, and how soon a leader that may not decide checks again.
_KEEP_UP_S: Final = 1.0
_LOOK_AGAIN_S: Final = 0.1
_NEVER: Final = float("inf")
# The number of pods after which other tasks run.
_SLICE: Final = 256
_KEPT_MAX: Final = 4096


class StandbyActions:
    """Actions that the leader performs, remembered by a standby in case the leader stops before they are done.

    A standby sees all that its leader sees and writes nothing. If an event was not written, the state that called for
    it still shows it. So no change is lost, and nothing outdated is kept.

    The actions are idempotent: a lock is repaired only if it is wrong, and cleared annotations stay cleared.
    """

    def __init__(self, given_up: Callable[[Clear], None]) -> None:
        """Begin with none; *given_up*: called for a clearing without space, so that it is requested again."""
        self._given_up: Final = given_up
        self._actions: Final[OrderedDict[object, Action]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._actions)

    def keep(self, action: Action) -> Action | None:
        """Remember *action*, or drop it if the state shows the need for it; return it if it only reads."""
        match action:
            case ReadPod() | ReadOwner():
                return action
            case Lock():
                self._actions[action.node, action.dialect] = action
            case Clear():
                self._actions[action.pod.uid] = action
            case _:
                return None
        if len(self._actions) > _KEPT_MAX:
            self._drop_oldest_clearing()
        return None

    def take(self) -> list[Action]:
        """Return and remove all remembered actions, oldest first."""
        actions = list(self._actions.values())
        self._actions.clear()
        return actions

    def _drop_oldest_clearing(self) -> None:
        for key, action in self._actions.items():
            if isinstance(action, Clear):
                del self._actions[key]
                self._given_up(action)
                return


def derive(scheduler: Scheduler, announcements: Iterable[Announce], now_s: float) -> Iterator[None]:
    """Start all writes that the mirror shows to be due. Yields so that other tasks can run."""
    scheduler.cluster.actions.extend(announcements)
    for at, entry in enumerate(list(scheduler.cluster.queue)):
        # The previous leader's message is in the pod; it is as old as this process's first sight of it.
        if entry.pod.scheduled_message:
            before = entry.told
            if before is None or before.text != entry.pod.scheduled_message:
                scheduler.cluster.queue.tell(entry, Told(text=entry.pod.scheduled_message, at_s=now_s))
        if at % _SLICE == 0:
            yield
    yield from scheduler.announce_anew()


class Loop:
    """Drives the scheduler."""

    def __init__(
        self,
        scheduler: Scheduler,
        inbox: Inbox,
        leading: Leading,
        actor: Actor,
        *,
        transport: Transport,
        pods_wait: asyncio.Event,
        groups_wait: asyncio.Event,
    ) -> None:
        """Prepare; *pods_wait* and *groups_wait* are set when there is news to report on pods and groups."""
        self._scheduler: Final = scheduler
        self._inbox: Final = inbox
        self._leading: Final = leading
        self._actor: Final = actor
        self._transport: Final = transport
        self._pods_wait: Final = pods_wait
        self._groups_wait: Final = groups_wait
        self._kept: Final = StandbyActions(lambda clear: scheduler.cleared(clear.pod.uid, done=False))
        self._kept_up_s = 0.0

    async def run(self, tasks: asyncio.TaskGroup) -> NoReturn:
        """Work until cancelled; actions become tasks of *tasks*."""
        inbox = self._inbox
        while True:
            inbox.filled.clear()
            more, due_s = self._work()
            if self._leading.phase in (LeaderPhase.STANDBY, LeaderPhase.SETTLING):
                due_s = self._stand_by(tasks)
            else:
                self._act(tasks)
            self._have_told()
            if more:
                await asyncio.sleep(0)
            else:
                await _wait(inbox.filled, due_s)

    def _work(self) -> tuple[bool, float]:
        """Take news in and decide, for one slice; return whether work is left, and when to continue (monotonic)."""
        inbox, cycle = self._inbox, self._scheduler.cycle
        due_s = time.monotonic()
        try:
            more = inbox.work(time.monotonic() + _SLICE_S)
            due_s = self._may_plan_s()
            if due_s <= time.monotonic() and not inbox.is_halfway:
                more = cycle.plan(time.monotonic() + _SLICE_S) or more
                due_s = cycle.next_due_s()
        except UndefinedEventError as e:
            _log.exception("a pod is in an unexpected state and is read again", pod_uid=e.uid)
            self._scheduler.mistrust(e)
            more = True
        return more, due_s

    def _may_plan_s(self) -> float:
        """Return the time from which decisions are allowed, monotonic; infinite while another event must come first."""
        if self._leading.phase is not LeaderPhase.LEADING:
            return _NEVER
        if not self._leading.may_decide():
            return time.monotonic() + _LOOK_AGAIN_S
        pause_s = self._transport.pause_s
        return time.monotonic() + pause_s if pause_s else 0.0

    def _act(self, tasks: asyncio.TaskGroup) -> None:
        """Start all pending actions."""
        actions = self._scheduler.cluster.actions
        actions.extend(self._kept.take())
        while actions:
            self._actor.perform(actions.popleft(), tasks)

    def _stand_by(self, tasks: asyncio.TaskGroup) -> float:
        """Keep the state warm and write nothing; return when to check again, monotonic."""
        actions = self._scheduler.cluster.actions
        while actions:
            now = self._kept.keep(actions.popleft())
            if now is not None:
                self._actor.perform(now, tasks)
        if time.monotonic() >= self._kept_up_s + _KEEP_UP_S and not self._inbox.is_halfway:
            self._kept_up_s = time.monotonic()
            self._scheduler.stand_by()
        return self._kept_up_s + _KEEP_UP_S

    def _have_told(self) -> None:
        """Wake the tasks that report to users why their pods and groups wait."""
        if self._scheduler.cluster.requeue.unreported or self._scheduler.cluster.unreported:
            self._pods_wait.set()
        if self._scheduler.cluster.groups.unreported:
            self._groups_wait.set()


async def _wait(event: asyncio.Event, until_s: float) -> None:
    """Wait until *event* is set; set it at *until_s* (monotonic)."""
    if until_s == _NEVER:
        await event.wait()
        return
    timer = asyncio.get_running_loop().call_later(max(until_s - time.monotonic(), 0.0), event.set)
    try:
        await event.wait()
    finally:
        timer.cancel()
