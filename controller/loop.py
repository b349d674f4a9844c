"""The one task that changes ledger, queue and hand-off, and the one gate: whether it may decide now, and write.

The task takes news in, decides, and starts actions. Several replicas run and keep their mirrors warm; one holds the
lease. It decides once its mirror contains all earlier writes, and only while the mirror is current. Every write that
changes the cluster goes through `Gated`, which checks again right before the first byte, because a process that was
stopped for a while may have lost the lease.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator
from enum import StrEnum
from typing import Final, NoReturn, Unpack

import structlog

from controller.acting.act import Actor
from controller.actions import Action, Announce, Clear, Inbox, Lock, ReadOwner, ReadPod
from controller.deciding.lifecycle import PodCondition, UndefinedEventError
from controller.deciding.scheduler import Scheduler
from kube.calls import BIND_DEADLINE_S, BIND_SERVER_TIMEOUT, Requester, Sending
from kube.errors import ApiThrottledError
from kube.lease import How, Lease
from kube.transport import NOT_PERMITTED, Response, Transport

_log: Final = structlog.get_logger()

# A call ends within this time, so nothing is sent with less time left on the lease.
WRITE_ENDS_S: Final = BIND_DEADLINE_S


class LeaderPhase(StrEnum):
    """The phase of a process; also a word in logs.

    STANDBY: another process may lead. SETTLING: this one leads, but does not yet know all earlier writes.
    LEADING: it decides. STOPPING: it completes work in progress and starts nothing.
    """

    STANDBY = "standby"
    SETTLING = "settling"
    LEADING = "leading"
    STOPPING = "stopping"


class Leading:
    """Whether this process may decide and write.

    Attributes:
        phase: the current phase.
        began: set once it decides; stays set.
    """

    def __init__(
        self,
        lease: Lease | None,
        *,
        is_current: Callable[[], bool],
        take_over: Callable[[How], Awaitable[None]],
        changed: Callable[[], None],
    ) -> None:
        """Prepare; `run` does the first call.

        Args:
            lease: None if no other process can run; this one then leads at once.
            is_current: whether the mirror is recent enough for decisions.
            take_over: returns once the mirror contains everything that was written before the call, and it is known
                which Bindings of the previous leader may still take effect.
            changed: called after a change of the phase.
        """
        self.phase = LeaderPhase.STANDBY
        self.began: Final = asyncio.Event()
        self._lease: Final = lease
        self._is_current: Final = is_current
        self._take_over: Final = take_over
        self._changed: Final = changed
        self._closed = False

    async def run(self) -> NoReturn:
        """Wait for the lease, settle, and lead, until cancelled.

        Raises:
            ExceptionGroup: with a `LeaseLostError`: nothing may be written any more.
        """
        how = How.NEW if self._lease is None else await self._lease.acquire()
        _log.info("leader now", how=how.value, lease=self._lease.name if self._lease is not None else "none")
        async with asyncio.TaskGroup() as tasks:
            if self._lease is not None:
                tasks.create_task(self._lease.keep(), name="keep lease")
            await self._settle(how)
            await asyncio.Event().wait()
        raise AssertionError  # a holder ends by losing the lease or by cancellation

    async def _settle(self, how: How) -> None:
        self._enter(LeaderPhase.SETTLING)
        await self._take_over(how)
        self._enter(LeaderPhase.LEADING)
        self.began.set()

    def _enter(self, phase: LeaderPhase) -> None:
        if self.phase is LeaderPhase.STOPPING:
            return
        self.phase = phase
        _log.info("phase", phase=phase.value)
        self._changed()

    def may_decide(self) -> bool:
        """Return whether a pod may be placed now."""
        return self.phase is LeaderPhase.LEADING and self._has_time() and self._is_current()

    def may_write(self) -> bool:
        """Return whether a write is allowed now: it would end before another process can lead."""
        return self.phase in (LeaderPhase.LEADING, LeaderPhase.STOPPING) and not self._closed and self._has_time()

    def _has_time(self) -> bool:
        return self._lease is None or self._lease.left_s() >= WRITE_ENDS_S

    def reasons(self) -> list[str]:
        """Return why this process could not become or stay the leader, one line each; empty for a healthy standby."""
        lease = self._lease
        return [f"lease {lease.name}: {lease.problem}"] if lease is not None and lease.is_failing() else []

    def stop(self) -> None:
        """Stop deciding; writes in progress may end."""
        if self.phase is not LeaderPhase.LEADING:
            self._closed = True
        self._enter(LeaderPhase.STOPPING)

    def close(self) -> None:
        """Also stop writing."""
        self._closed = True

    async def release(self, limit_s: float) -> None:
        """Let another process lead at once; only after `close` and after the end of the last write."""
        if self._lease is None:
            return
        if await self._lease.release(limit_s):
            _log.info("lease released", lease=self._lease.name)
        elif self._lease.problem:
            _log.warning("lease not released; it passes on when it expires", error=self._lease.problem)


class Gated:
    """The path of all writes that change the cluster; reads pass through."""

    def __init__(self, requester: Requester, permit: Callable[[], bool]) -> None:
        """Prepare; *permit*: `Leading.may_write`."""
        self._requester: Final = requester
        self._permit: Final = permit
        self._under_way = 0
        self._idle: Final = asyncio.Event()
        self._idle.set()

    async def request(self, verb: str, path: str, **sending: Unpack[Sending]) -> Response:
        """See `kube.transport.Transport.request`; a write has the time limit of a Binding.

        Raises:
            ApiThrottledError: not permitted, and not sent.
            ApiError: as in `Transport.request`.
        """
        if verb == "GET":
            return await self._requester.request(verb, path, **sending)
        if not self._permit():
            raise ApiThrottledError(verb=verb, path=path, message=NOT_PERMITTED, retry_after_s=1.0)
        self._under_way += 1
        self._idle.clear()
        try:
            sending["params"] = {"timeout": BIND_SERVER_TIMEOUT, **(sending.get("params") or {})}
            sending["deadline_s"] = min(sending.get("deadline_s") or WRITE_ENDS_S, WRITE_ENDS_S)
            return await self._requester.request(verb, path, **(sending | {"permit": self._permit}))
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()

    async def idle(self) -> None:
        """Wait until no write is in progress; each ends by its own deadline."""
        await self._idle.wait()


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
            before = entry.condition
            if before is None or before.text != entry.pod.scheduled_message:
                scheduler.cluster.queue.set_condition(entry, PodCondition(text=entry.pod.scheduled_message, at_s=now_s))
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
            self._wake_reporters()
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

    def _wake_reporters(self) -> None:
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
