"""The one gate: whether this process may decide now, and whether it may write.

Several replicas run and keep their mirrors warm; one holds the lease. It decides once its mirror contains all earlier
writes, and only while the mirror is current. Every write that changes the cluster goes through `Gated`, which checks
again right before the first byte, because a process that was stopped for a while may have lost the lease.
"""

import asyncio
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Final, NoReturn, Unpack

import structlog

from kube.calls import BIND_DEADLINE_S, BIND_SERVER_TIMEOUT, Requester, Sending
from kube.errors import ApiThrottledError
from kube.exchange import NOT_PERMITTED, Response
from kube.lease import How, Lease

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
