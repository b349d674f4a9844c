"""A condition of the pod that a process runs in, kept as that process is.

A ConfigMap has no status to say it in, and an event is gone after an hour; a pod's condition stays.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final, Protocol

import msgspec
import structlog

from kube.calls import Calls, Condition
from kube.errors import ApiError, UndecodableError, printable
from runtime.backoff import Backoff

_log: Final = structlog.get_logger()

# What kubectl shows in one go; the log has all of it.
_MESSAGE_MAX: Final = 8192
_LOOK_S: Final = 1.0


class Verdict(Protocol):
    """What is said: whether it is so, in one word and for people."""

    @property
    def accepted(self) -> bool:
        """Whether the condition is True."""
        ...

    @property
    def reason(self) -> str:
        """One word."""
        ...

    @property
    def message(self) -> str:
        """For people."""
        ...


class _Found(msgspec.Struct, frozen=True, rename="camel"):
    type: str = ""
    status: str = ""
    last_transition_time: datetime | None = None


class _Status(msgspec.Struct, frozen=True):
    conditions: tuple[_Found, ...] | None = ()


class _Meta(msgspec.Struct, frozen=True):
    uid: str = ""


class _Pod(msgspec.Struct, frozen=True):
    """Source: Kubernetes API reference, core/v1 Pod (v1.36)."""

    metadata: _Meta = _Meta()
    status: _Status = _Status()


_decoder: Final = msgspec.json.Decoder(_Pod)


class OwnCondition:
    """Keeps one condition of one pod as it should be."""

    def __init__(
        self,
        calls: Calls,
        pod: tuple[str, str],
        kind: str,
        verdict: Callable[[], Verdict],
        *,
        failed: Callable[[], None] = lambda: None,
        wall: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Prepare.

        Args:
            calls: to the API server.
            pod: namespace and name.
            kind: the condition's type.
            verdict: asked again and again.
            failed: called when it could not be written.
            wall: the time, in Unix seconds.
            sleep: how to wait.
        """
        self._calls = calls
        self._pod = pod
        self._kind = kind
        self._verdict = verdict
        self._failed = failed
        self._wall = wall
        self._sleep = sleep
        self._uid = ""
        self._before: _Found | None = None

    async def run(self) -> None:
        """Write whenever there is something else to say, until cancelled."""
        backoff = Backoff(first_s=1.0, cap_s=60.0, jitter=lambda: 0.0)
        written: Verdict | None = None
        told = ""
        while True:
            verdict = self._verdict()
            if verdict == written:
                await self._sleep(_LOOK_S)
                continue
            try:
                await self._write(verdict)
            except (ApiError, UndecodableError) as e:
                self._failed()
                if str(e) != told:
                    told = str(e)
                    _log.warning("the condition of this pod cannot be written", pod="/".join(self._pod), error=told)
                await self._sleep(backoff.next_s())
                continue
            written, told = verdict, ""
            backoff.reset()

    async def _write(self, verdict: Verdict) -> None:
        if not self._uid:
            await self._read()
        status = "True" if verdict.accepted else "False"
        before, changed_at = self._before, datetime.fromtimestamp(self._wall(), UTC)
        if before is not None and before.status == status and before.last_transition_time is not None:
            changed_at = before.last_transition_time
        condition = Condition(
            type=self._kind,
            status=status,
            reason=verdict.reason,
            message=printable(verdict.message, _MESSAGE_MAX),
            changed_at=changed_at,
        )
        await self._calls.patch_pod_status(*self._pod, [condition], uid=self._uid)
        self._before = _Found(self._kind, status, changed_at)

    async def _read(self) -> None:
        """What an earlier process of the same pod wrote: since when it is so, is kept."""
        try:
            found = _decoder.decode(await self._calls.get_pod(*self._pod))
        except msgspec.MsgspecError as e:
            raise UndecodableError(f"pod {'/'.join(self._pod)}: {e}") from e
        self._uid = found.metadata.uid
        conditions = found.status.conditions or ()
        self._before = next((one for one in conditions if one.type == self._kind), None)
