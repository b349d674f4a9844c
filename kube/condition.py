"""Keeps a condition on the pod of this process up to date.

A ConfigMap has no status, and an event expires after an hour; a pod's condition stays.
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

# The limit keeps the output of kubectl readable; the log has the full text.
_MESSAGE_MAX: Final = 8192
_LOOK_S: Final = 1.0


class Verdict(Protocol):
    """The state to publish: true or false, a one-word reason, and a message."""

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
        """The text for people."""
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
    """Keeps one condition of one pod up to date."""

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
            calls: connection to the API server.
            pod: namespace and name.
            kind: the condition's type.
            verdict: returns the current state; called repeatedly.
            failed: called after a failed write.
            wall: returns Unix seconds.
            sleep: waits.
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
        """Write the condition whenever it changes, until cancelled."""
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
        """Read what an earlier process of the same pod wrote, to keep its transition time."""
        try:
            found = _decoder.decode(await self._calls.get_pod(*self._pod))
        except msgspec.MsgspecError as e:
            raise UndecodableError(f"pod {'/'.join(self._pod)}: {e}") from e
        self._uid = found.metadata.uid
        conditions = found.status.conditions or ()
        self._before = next((one for one in conditions if one.type == self._kind), None)
