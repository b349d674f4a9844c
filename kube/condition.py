"""Keeps a condition on the pod of this process up to date.

A ConfigMap has no status, and an event expires after an hour; a pod's condition stays.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NoReturn, TypeVar

import msgspec
import structlog

from core.wire.objects import ObjectMeta
from kube.calls import Calls, Condition
from kube.errors import ApiError, UndecodableError, printable
from runtime.backoff import Backoff

_log: Final = structlog.get_logger()

_T = TypeVar("_T")

# The limit keeps the output of kubectl readable; the log has the full text.
_MESSAGE_MAX: Final = 8192
_LOOK_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The state to publish: whether the condition is True, a one-word reason, and a message for people."""

    accepted: bool
    reason: str
    message: str


class _Found(msgspec.Struct, frozen=True, rename="camel"):
    type: str = ""
    status: str = ""
    last_transition_time: datetime | None = None


class _Status(msgspec.Struct, frozen=True):
    conditions: tuple[_Found, ...] | None = ()


class _Pod(msgspec.Struct, frozen=True):
    """Source: Kubernetes API reference, core/v1 Pod (v1.36)."""

    metadata: ObjectMeta = ObjectMeta()
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
    ) -> None:
        """Prepare.

        Args:
            calls: connection to the API server.
            pod: namespace and name.
            kind: the condition's type.
            verdict: returns the current state; called repeatedly.
            failed: called after a failed write.
            wall: returns Unix seconds.
        """
        self._calls = calls
        self._pod = pod
        self._kind = kind
        self._verdict = verdict
        self._failed = failed
        self._wall = wall
        self._uid = ""
        self._before: _Found | None = None

    async def run(self) -> NoReturn:
        """Write the condition whenever it changes, until cancelled."""
        await keep_written(self._verdict, self._write, self._complain)

    def _complain(self, error: str, is_news: bool) -> None:
        self._failed()
        if is_news:
            _log.warning("the condition of this pod cannot be written", pod="/".join(self._pod), error=error)

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
        self._uid = found.metadata.uid or ""
        conditions = found.status.conditions or ()
        self._before = next((one for one in conditions if one.type == self._kind), None)


async def keep_written(
    wanted: Callable[[], _T],
    write: Callable[[_T], Awaitable[None]],
    complain: Callable[[str, bool], None],
) -> NoReturn:
    """Write what *wanted* returns whenever that changes, and again after a failure, until cancelled.

    *complain* is called with each error, and whether it is another one than before.
    """
    backoff = Backoff(first_s=1.0, cap_s=60.0, jitter=lambda: 0.0)
    written: _T | None = None
    told = ""
    while True:
        now = wanted()
        if now == written:
            await asyncio.sleep(_LOOK_S)
            continue
        try:
            await write(now)
        except (ApiError, UndecodableError) as e:
            complain(str(e), str(e) != told)
            told = str(e)
            await asyncio.sleep(backoff.next_s())
            continue
        written, told = now, ""
        backoff.reset()
