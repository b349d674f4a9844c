"""Writes events on pods whose assignment a service account tried to write; operators should check such accounts.

A background task writes a few events at a time and never delays an answer. Without an API server, or without the right
to write events, only the metric and the log line report the denial.
"""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Final, NamedTuple

import structlog

from core.admission.verdict import Verdict
from core.settings import SERVICE_ACCOUNT, plugin_remedy
from core.wire.reviews import Review
from kube.calls import Calls
from kube.errors import ApiError, CredentialsError
from kube.events import About, EventBody, event, event_name
from webhook.metrics import Metrics

_log: Final = structlog.get_logger()

REASON: Final = "AssignmentWriteDenied"
# Accounts that must not write assignments, and a device plugin that writes to pods of other nodes.
_CODES: Final = frozenset({"CS301", "CS315"})
# Minimum interval between events about the same account.
_SAME_S: Final = 300.0
# Longer accounts are shortened: an event has 1,024 characters.
_ACCOUNT_MAX: Final = 128
_WAITING_MAX: Final = 64
_KNOWN_MAX: Final = 1024
_PER_S: Final = 1.0
_DEADLINE_S: Final = 5.0


class _Denial(NamedTuple):
    pod: About
    text: str
    at_s: float


class Denials:
    """The events that wait to be written, and the recent ones."""

    def __init__(
        self, metrics: Metrics, *, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        self._metrics = metrics
        self._clock = clock
        self._wall = wall
        self._waiting: deque[_Denial] = deque()
        self._told_s: OrderedDict[tuple[About, str], float] = OrderedDict()
        self._filled = asyncio.Event()
        self._failing = False

    def note(self, review: Review, verdict: Verdict) -> None:
        """Queue an event for *verdict*, which denies *review*, if operators need to know of it."""
        # A Binding may carry the uid of its pod.
        found = review.object if review.is_binding else review.old_object
        denied = [one for one in verdict.violations if one.code in _CODES]
        if found is None or not denied or review.dry_run or not review.user_name.startswith(SERVICE_ACCOUNT):
            return
        pod = About("Pod", found.metadata.name, found.metadata.uid or "", review.namespace)
        key, now_s = (pod, review.user_name), self._clock()
        if now_s - self._told_s.get(key, -_SAME_S) < _SAME_S:
            return
        if len(self._waiting) >= _WAITING_MAX:
            self._metrics.events["dropped"] += 1
            return
        self._remember(key, now_s)
        fields = ", ".join([one.field for one in denied])
        account = review.user_name[:_ACCOUNT_MAX]
        text = f"{denied[0].code} {account} may not write assignments; only schedulers and device plugins may"
        # A shortened account would be of no use in the settings.
        if not review.is_binding and account == review.user_name:
            text += f"; {plugin_remedy(account)}"
        # Last, because many keys exceed the length of an event.
        text += f"; it tried to write {fields}"
        if denied[0].code == "CS315":
            text = f"CS315 {account} tried to write a pod of another node than its own"
        self._waiting.append(_Denial(pod, text, self._wall()))
        self._filled.set()

    def _remember(self, key: tuple[About, str], now_s: float) -> None:
        self._told_s[key] = now_s
        self._told_s.move_to_end(key)
        if len(self._told_s) > _KNOWN_MAX:
            self._told_s.popitem(last=False)

    async def run(self, opened: Callable[[AsyncExitStack], Awaitable[Calls]]) -> None:
        """Write until cancelled. Calls *opened* when there is an event to write, and again after a failure."""
        while True:
            await self._filled.wait()
            async with AsyncExitStack() as stack:
                try:
                    calls = await opened(stack)
                    while self._waiting:
                        await self._write(calls, self._waiting[0])
                        self._waiting.popleft()
                        await asyncio.sleep(1.0 / _PER_S)
                except (ApiError, CredentialsError, TimeoutError) as e:
                    await self._failed(e)
                except Exception as e:  # noqa: BLE001 (the outermost frame of what admission must never depend on)
                    _log.exception("denials cannot be reported")
                    await self._failed(e)
            if not self._waiting:
                self._filled.clear()

    async def _write(self, calls: Calls, one: _Denial) -> None:
        name = event_name(one.pod.name, one.pod.uid, one.text, str(one.at_s))
        body = EventBody(REASON, one.text, warning=True, instance="cardshare-webhook")
        written = event(one.pod, body, name=name, namespace=one.pod.namespace, at_s=one.at_s)
        async with asyncio.timeout(_DEADLINE_S):
            await calls.create_event(one.pod.namespace, written)
        self._metrics.events["written"] += 1
        self._failing = False

    async def _failed(self, error: Exception) -> None:
        if self._waiting:
            self._waiting.popleft()
        self._metrics.events["failed"] += 1
        if not self._failing:
            self._failing = True
            _log.warning("an event cannot be written", reason=REASON, error=str(error) or type(error).__name__)
        await asyncio.sleep(1.0 / _PER_S)
