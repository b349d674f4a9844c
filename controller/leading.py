"""The one gate: whether this process may decide now, and whether it may write at all.

Several replicas run and keep their mirrors warm; one holds the lease. It decides once everything that was written
before is in its mirror, and only while that is current. Every write that changes the cluster goes through `Gated`,
which asks again right before the first byte: a process that was stopped for a while wakes up without the lease.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Final, NoReturn, Protocol

import structlog

from kube.calls import BIND_DEADLINE_S, BIND_SERVER_TIMEOUT, JSON
from kube.errors import ApiThrottledError
from kube.exchange import NOT_PERMITTED, Purpose, Response
from kube.lease import How, Lease

_log: Final = structlog.get_logger()

# A call has an answer, or is given up, after this: nothing is sent with less left of the lease.
WRITE_ENDS_S: Final = BIND_DEADLINE_S


class Requester(Protocol):
    """What of `kube.transport.Transport` is needed here."""

    async def request(
        self,
        verb: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        deadline_s: float | None = None,
        purpose: Purpose = Purpose.CALLS,
        wait_out_pause: bool = True,
        permit: Callable[[], bool] | None = None,
    ) -> Response:
        """See `Transport.request`."""
        ...


class Phase(StrEnum):
    """Where a process stands; also the words of logs.

    STANDBY: another may be the leader. SETTLING: this one is, and does not know yet all that was written before.
    LEADING: it decides. STOPPING: it ends what is under way, and begins nothing.
    """

    STANDBY = "standby"
    SETTLING = "settling"
    LEADING = "leading"
    STOPPING = "stopping"


class Leading:
    """Who may decide and write, and since when.

    Attributes:
        phase: where this process stands.
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
        """Prepare; nothing is asked before `run`.

        Args:
            lease: None where no other process can run: this one leads at once.
            is_current: whether what the mirror shows is no older than a decision may be founded on.
            take_over: returns once the mirror shows all that was written before it was called, and it is known which
                Bindings of the leader before may still be written.
            changed: called when the phase is another one.
        """
        self.phase = Phase.STANDBY
        self.began: Final = asyncio.Event()
        self._lease: Final = lease
        self._is_current: Final = is_current
        self._take_over: Final = take_over
        self._changed: Final = changed
        self._closed = False

    async def run(self) -> NoReturn:
        """Wait for the lease, settle, lead, until cancelled.

        Raises:
            ExceptionGroup: a `LeaseLostError`: nothing may be written any more.
        """
        how = How.NEW if self._lease is None else await self._lease.acquire()
        _log.info("leader now", how=how.value, lease=self._lease.name if self._lease is not None else "none")
        async with asyncio.TaskGroup() as tasks:
            if self._lease is not None:
                tasks.create_task(self._lease.keep(), name="keep lease")
            await self._settle(how)
            await asyncio.Event().wait()
        raise AssertionError  # a holder ends by losing the lease, or cancelled

    async def _settle(self, how: How) -> None:
        self._enter(Phase.SETTLING)
        await self._take_over(how)
        self._enter(Phase.LEADING)
        self.began.set()

    def _enter(self, phase: Phase) -> None:
        if self.phase is Phase.STOPPING:
            return
        self.phase = phase
        _log.info("phase", phase=phase.value)
        self._changed()

    def may_decide(self) -> bool:
        """Whether a pod may be given a place now."""
        return self.phase is Phase.LEADING and self._has_time() and self._is_current()

    def may_write(self) -> bool:
        """Whether anything may be written now: it ends before another can be the leader."""
        return self.phase in (Phase.LEADING, Phase.STOPPING) and not self._closed and self._has_time()

    def _has_time(self) -> bool:
        return self._lease is None or self._lease.left_s() >= WRITE_ENDS_S

    def reasons(self) -> list[str]:
        """Why this process could not become or stay the leader, a line each; none in a standby that could."""
        lease = self._lease
        return [f"lease {lease.name}: {lease.problem}"] if lease is not None and lease.is_failing() else []

    def stop(self) -> None:
        """Decide nothing any more; what is under way may end."""
        if self.phase is not Phase.LEADING:
            self._closed = True
        self._enter(Phase.STOPPING)

    def close(self) -> None:
        """Write nothing any more either."""
        self._closed = True

    async def release(self, limit_s: float) -> None:
        """Let another one lead at once; only after `close`, and once the last write has ended."""
        if self._lease is None:
            return
        if await self._lease.release(limit_s):
            _log.info("lease released", lease=self._lease.name)
        elif self._lease.problem:
            _log.warning("lease not released; it passes on when its time is over", error=self._lease.problem)


class Gated:
    """The way of all writes that change the cluster; reads pass."""

    def __init__(self, requester: Requester, permit: Callable[[], bool]) -> None:
        """Prepare; *permit*: `Leading.may_write`."""
        self._requester: Final = requester
        self._permit: Final = permit
        self._under_way = 0
        self._idle: Final = asyncio.Event()
        self._idle.set()

    async def request(
        self,
        verb: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        deadline_s: float | None = None,
        purpose: Purpose = Purpose.CALLS,
        wait_out_pause: bool = True,
    ) -> Response:
        """See `kube.transport.Transport.request`; a write is bounded like a Binding.

        Raises:
            ApiThrottledError: not permitted, and not sent.
            ApiError: see there.
        """
        if verb == "GET":
            return await self._requester.request(
                verb, path, params=params, deadline_s=deadline_s, purpose=purpose, wait_out_pause=wait_out_pause
            )
        if not self._permit():
            raise ApiThrottledError(verb=verb, path=path, message=NOT_PERMITTED, retry_after_s=1.0)
        self._under_way += 1
        self._idle.clear()
        try:
            return await self._requester.request(
                verb,
                path,
                params={"timeout": BIND_SERVER_TIMEOUT, **(params or {})},
                body=body,
                content_type=content_type,
                deadline_s=min(deadline_s or WRITE_ENDS_S, WRITE_ENDS_S),
                purpose=purpose,
                wait_out_pause=wait_out_pause,
                permit=self._permit,
            )
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()

    async def idle(self) -> None:
        """Wait until no write is under way; each ends by its own deadline."""
        await self._idle.wait()
