"""The condition of the controller's own pod that says whether the configuration is in force.

A ConfigMap has no status to say it in, and an event is gone after an hour; a pod's condition stays.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

import msgspec
import structlog

from controller.actions import Announce, Subject
from controller.config import PodName
from controller.metrics import Metrics
from core.names import CONFIGURATION_ACCEPTED
from kube.calls import Calls, Condition
from kube.errors import ApiError, UndecodableError, printable
from runtime.backoff import Backoff
from runtime.configuration import LAST_GOOD, ActiveConfiguration

_log: Final = structlog.get_logger()

# What kubectl shows in one go; the log has each problem and note in full.
_MESSAGE_MAX: Final = 8192
_EVENT_MAX: Final = 900
_LOOK_S: Final = 1.0


class ConfigurationReason(StrEnum):
    """What can be said of the configuration; all but REFUSED say that it is in force."""

    ACCEPTED = "Accepted"
    ACCEPTED_WITH_NOTES = "AcceptedWithNotes"
    REFUSED = "Refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationVerdict:
    """Whether the configuration as it was last edited is in force; in one word and for people."""

    reason: ConfigurationReason
    message: str

    @property
    def accepted(self) -> bool:
        """Whether it is in force."""
        return self.reason is not ConfigurationReason.REFUSED


def verdict(active: ActiveConfiguration) -> ConfigurationVerdict:
    """Whether all that was written is in force."""
    if active.refused:
        told = "; ".join(f"{name}: {why}" for name, why in sorted(active.refused.items()))
        since = ", from before this process began" if active.from_before else ""
        return ConfigurationVerdict(reason=ConfigurationReason.REFUSED, message=f"{told}; {LAST_GOOD}{since}")
    if active.notes:
        return ConfigurationVerdict(
            reason=ConfigurationReason.ACCEPTED_WITH_NOTES, message="in force; " + "; ".join(active.notes)
        )
    return ConfigurationVerdict(reason=ConfigurationReason.ACCEPTED, message="the whole configuration is in force")


def refusal(name: str, why: str) -> Announce:
    """The event that the ConfigMap *name* is not in force, NAMESPACE/NAME."""
    namespace, _, own_name = name.rpartition("/")
    return Announce(
        about=Subject(kind="ConfigMap", namespace=namespace, name=own_name, uid=""),
        reason="ConfigurationRefused",
        message=f"not taken, {LAST_GOOD}: {why}"[:_EVENT_MAX],
    )


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
    """Keeps `CONFIGURATION_ACCEPTED` of one pod as it should be."""

    def __init__(
        self,
        calls: Calls,
        pod: PodName,
        verdict: Callable[[], ConfigurationVerdict],
        metrics: Metrics,
        *,
        wall: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Prepare; *verdict* is asked again and again."""
        self._calls = calls
        self._pod = pod
        self._verdict = verdict
        self._metrics = metrics
        self._wall = wall
        self._sleep = sleep
        self._uid = ""
        self._before: _Found | None = None

    async def run(self) -> None:
        """Write whenever there is something else to say, until cancelled."""
        backoff = Backoff(first_s=1.0, cap_s=60.0, jitter=lambda: 0.0)
        written: ConfigurationVerdict | None = None
        told = ""
        while True:
            verdict = self._verdict()
            if verdict == written:
                await self._sleep(_LOOK_S)
                continue
            try:
                await self._write(verdict)
            except (ApiError, UndecodableError) as e:
                self._metrics.api_errors.labels("write configuration condition").inc()
                if str(e) != told:
                    told = str(e)
                    _log.warning("the condition of this pod cannot be written", pod=str(self._pod), error=told)
                await self._sleep(backoff.next_s())
                continue
            written, told = verdict, ""
            backoff.reset()

    async def _write(self, verdict: ConfigurationVerdict) -> None:
        if not self._uid:
            await self._read()
        status = "True" if verdict.accepted else "False"
        before, changed_at = self._before, datetime.fromtimestamp(self._wall(), UTC)
        if before is not None and before.status == status and before.last_transition_time is not None:
            changed_at = before.last_transition_time
        condition = Condition(
            type=CONFIGURATION_ACCEPTED,
            status=status,
            reason=verdict.reason,
            message=printable(verdict.message, _MESSAGE_MAX),
            changed_at=changed_at,
        )
        await self._calls.patch_pod_status(self._pod.namespace, self._pod.name, [condition], uid=self._uid)
        self._before = _Found(CONFIGURATION_ACCEPTED, status, changed_at)

    async def _read(self) -> None:
        """What an earlier process of the same pod wrote: since when it is so, is kept."""
        try:
            found = _decoder.decode(await self._calls.get_pod(self._pod.namespace, self._pod.name))
        except msgspec.MsgspecError as e:
            raise UndecodableError(f"pod {self._pod}: {e}") from e
        self._uid = found.metadata.uid
        conditions = found.status.conditions or ()
        self._before = next((one for one in conditions if one.type == CONFIGURATION_ACCEPTED), None)
