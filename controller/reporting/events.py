"""Writes core/v1 events for users: merged by pod and reason, at a limited rate, and never ahead of Bindings.

Warnings come first. Normal events wait while Bindings or evictions are in progress, because they are not urgent.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import structlog

from controller.actions import Announce
from controller.metrics import Metrics
from controller.reporting.work import Rate
from core.units import time_text
from kube.calls import Calls, namespace_path
from kube.errors import ApiConflictError, ApiError, ApiNotFoundError
from kube.events import About, EventBody, event, event_name, message_text

_log = structlog.get_logger()

_WAITING_MAX: Final = 2048
_KNOWN_MAX: Final = 4096
# An event costs the API server about as much as a Binding.
_PER_S: Final = 40.0
_BURST: Final = 200.0
_NODE_NAMESPACE: Final = "default"
# The longest wait of normal events for Bindings, and the interval of checks.
_PATIENCE_S: Final = 5.0
_LOOK_S: Final = 0.25

Key = tuple[str, str]


class _Count(msgspec.Struct, frozen=True):
    count: int | None = 1


_count_decoder: Final = msgspec.json.Decoder(_Count)


@dataclass(slots=True)
class _Waiting:
    announce: Announce
    times: int
    since_s: float


class Recorder:
    """Writes events in the background; excess events are dropped and counted."""

    def __init__(
        self,
        calls: Calls,
        metrics: Metrics,
        *,
        instance: str,
        is_binding: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Prepare; *is_binding*: whether Bindings, or evictions, are in progress."""
        self._calls = calls
        self._metrics = metrics
        self._instance = instance
        self._is_binding = is_binding
        self._clock = clock
        self._wall = wall
        self._warnings: OrderedDict[Key, _Waiting] = OrderedDict()
        self._news: OrderedDict[Key, _Waiting] = OrderedDict()
        # How often each event was written, so that a repetition raises its count and creates no new object.
        self._known: OrderedDict[Key, int] = OrderedDict()
        self._filled = asyncio.Event()
        self._forbidden = False

    def note(self, announce: Announce) -> None:
        """Queue an event; an unwritten one with the same object and reason is merged."""
        key = (announce.about.uid or announce.about.name, announce.reason)
        line = self._warnings if announce.warning else self._news
        waiting = line.get(key)
        if waiting is not None:
            waiting.announce = announce
            waiting.times += 1
            return
        if len(self._warnings) + len(self._news) >= _WAITING_MAX:
            self._metrics.events_dropped.inc()
            if not announce.warning or not self._news:
                return
            self._news.popitem(last=False)  # warnings are more important
        line[key] = _Waiting(announce, 1, self._clock())
        self._filled.set()

    async def run(self) -> None:
        """Write until cancelled."""
        rate = Rate(self._clock, _PER_S, _BURST)
        while True:
            await self._filled.wait()
            while self._warnings or self._news:
                if not self._warnings and self._must_wait():
                    await asyncio.sleep(_LOOK_S)
                    continue
                await rate.turn()
                key, one = (self._warnings or self._news).popitem(last=False)
                await self._write(key, one)
            self._filled.clear()

    def _must_wait(self) -> bool:
        """Return whether the oldest normal event must wait for Bindings."""
        oldest = next(iter(self._news.values()))
        return self._is_binding() and self._clock() < oldest.since_s + _PATIENCE_S

    async def _write(self, key: Key, one: _Waiting) -> None:
        try:
            await self._create_or_count(key, one)
        except ApiError as e:
            self._metrics.api_errors.labels("write event").inc()
            self._metrics.events_dropped.inc()
            if not self._forbidden:
                self._forbidden = True
                _log.warning("an event cannot be written", reason=one.announce.reason, error=str(e))
            return
        self._forbidden = False

    async def _create_or_count(self, key: Key, one: _Waiting) -> None:
        about, name = one.announce.about, event_name(one.announce.about.name, *key)
        namespace = about.namespace or _NODE_NAMESPACE
        count = self._known.pop(key, 0)
        if not count:
            try:
                await self._calls.create_event(namespace, self._event(one, namespace, name))
            except ApiConflictError:
                # It exists from before a restart; the cluster has its count.
                text = await self._calls.get_raw(f"{namespace_path(namespace)}/events/{name}")
                count = _count(text)
            else:
                self._remember(key, one.times)
                return
        changes = {
            "count": count + one.times,
            "lastTimestamp": time_text(self._wall()),
            "message": message_text(one.announce.message),
        }
        try:
            await self._calls.patch_event(namespace, name, changes)
            self._remember(key, count + one.times)
        except ApiNotFoundError:  # expired
            await self._calls.create_event(namespace, self._event(one, namespace, name))
            self._remember(key, one.times)

    def _remember(self, key: Key, count: int) -> None:
        self._known[key] = count
        if len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)

    def _event(self, one: _Waiting, namespace: str, name: str) -> dict[str, Any]:
        announce = one.announce
        subject = announce.about
        about = About(subject.kind, subject.name, subject.uid, subject.namespace, subject.api_version)
        body = EventBody(announce.reason, announce.message, announce.warning, self._instance)
        return event(about, body, name=name, namespace=namespace, at_s=self._wall(), count=one.times)


def _count(text: bytes) -> int:
    try:
        return _count_decoder.decode(text).count or 1
    except (msgspec.MsgspecError, ValueError):
        return 1
