"""Writes the conditions of waiting pods, and an event with each, at a limited rate and never ahead of a Binding.

A condition's text is taken when it is written, so many changes become one write. The rate per second is limited; pods
without a condition come first, and changes of numbers alone are much rarer. If a pod's text keeps changing, the
intervals grow. A failed write is repeated at growing intervals. While all writes fail, only a few are tried.
"""

import asyncio
import re
import time
from collections.abc import Callable, Hashable
from enum import Enum
from functools import partial
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple

import structlog

from controller.actions import Announce, Inbox, about_pod
from controller.deciding.lifecycle import Entry, PodCondition
from controller.deciding.scheduler import Scheduler
from controller.metrics import Metrics
from controller.reporting.events import Recorder
from controller.reporting.work import Rate
from core.errors import escaped
from core.model import PodUid
from core.units import time_text
from core.waiting import Cause, Wait, code_in
from kube.calls import STRATEGIC_PATCH, Calls, pod_path, read_version
from kube.errors import ApiConflictError, ApiError, ApiNotFoundError, UndecodableError

_log = structlog.get_logger()

PER_S: Final = 50.0
# Thousands of waiting pods must not slow down placements only to update numbers.
NUMBERS_PER_S: Final = 10.0
_BURST: Final = 20.0
_WRITES_AT_ONCE: Final = 4
# The second change in a row waits for this long, each further one twice as long.
_FLAP_S: Final = 5.0
FLAP_MAX_S: Final = 300.0
# These causes often end at once, so they are reported only after this delay: writing the condition would make the
# Binding fail that is sent in the meantime.
_PASSING_S: Final = 0.3
_PASSING: Final = frozenset(
    {
        Cause.WAITING_FOR_DECISION,
        Cause.WAITING_FOR_GROUP,
        Cause.GROUP_NOT_FOUND,
        Cause.WAITING_FOR_QUEUE,
        Cause.CLAIM_NOT_FOUND,
    }
)
_TRY_AGAIN_S: Final = 1.0
_TRY_AGAIN_MAX_S: Final = 300.0
# After this many failures in a row, for any pods, tries are made one at a time and at growing intervals.
_FAILURES_FREE: Final = 8
_FAILING_S: Final = 0.5
FAILING_MAX_S: Final = 30.0
_LOG_S: Final = 60.0
# The number of pods without news after which other tasks run.
_SLICE: Final = 256
# The limit keeps kubectl's output readable; /v1/explain has the full text.
_TEXT_MAX: Final = 1024
_DIGITS: Final = re.compile(r"[0-9]+")


class _Differs(Enum):
    """The largest difference between a pod's reported and current text."""

    NUMBERS = "only numbers moved"
    WORDS = "only the words of the nearest node's complaint, and numbers"
    REASONS = "the cause, or reasons"


# Minimum age of a text before it is written again.
_STANDS_S: Final = {_Differs.NUMBERS: 60.0, _Differs.WORDS: 10.0, _Differs.REASONS: 0.0}


class WaitReasons(NamedTuple):
    """The parts of a text that are not numbers: cause and reasons, and the words of the nearest node's complaint."""

    reasons: Hashable
    words: str = ""


class Saying(NamedTuple):
    """What to report about a pod, and its parts that are not numbers."""

    wait: Wait
    why: WaitReasons

    @property
    def text(self) -> str:
        """The text of condition and event; safe for a terminal, although device plugins wrote parts of it."""
        text = escaped(self.wait.message)
        return text if len(text) <= _TEXT_MAX else text[: _TEXT_MAX - 1] + "…"


class Conditions:
    """Keeps the conditions of reported pods up to date."""

    def __init__(
        self,
        scheduler: Scheduler,
        calls: Calls,
        inbox: Inbox,
        recorder: Recorder,
        metrics: Metrics,
        *,
        what: Callable[[Entry], Saying | None],
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Begin with none; *what*: returns what to report about a pod now, None if nothing."""
        self._scheduler: Final = scheduler
        self._calls: Final = calls
        self._inbox: Final = inbox
        self._recorder: Final = recorder
        self._metrics: Final = metrics
        self._what: Final = what
        self._clock: Final = clock
        self._wall: Final = wall
        self._rate: Final = Rate(clock, PER_S, _BURST)
        self._failed_in_a_row = 0
        self._filled: Final = asyncio.Event()
        # Pods without a condition, and others: each pod is in at most one of both, and in none while it is written.
        self._first: Final[dict[PodUid, None]] = {}
        self._again: Final[dict[PodUid, None]] = {}
        # Pods with changes of numbers alone, except those being written, and when the first of them is due.
        self._numbers: Final[dict[PodUid, None]] = {}
        self._numbers_s = float("-inf")
        # Pods to check again, and when.
        self._later: Final[dict[PodUid, float]] = {}
        self._dues: Final[list[tuple[float, PodUid]]] = []
        # Pods without a condition whose cause may end at once, and when they are reported.
        self._passing: Final[dict[PodUid, float]] = {}
        # Pods whose condition is being written, and whether to check them again afterwards.
        self._writing: Final[dict[PodUid, bool]] = {}
        self._failures: Final[dict[PodUid, int]] = {}
        self._logged_s = float("-inf")

    def put(self, uid: PodUid) -> None:
        """Check a pod soon, because its condition may have to change."""
        if uid in self._writing:
            self._writing[uid] = True
        elif uid not in self._failures or uid not in self._later:  # a failed write keeps its retry interval
            entry = self._scheduler.cluster.queue.get(uid)
            line, other = self._first, self._again
            if entry is None or entry.condition is not None:
                line, other = other, line
            other.pop(uid, None)
            line[uid] = None
            self._filled.set()

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for at in range(_WRITES_AT_ONCE):
                tasks.create_task(self._work(), name=f"conditions {at}")

    async def _work(self) -> None:
        looked = 0
        while True:
            uid, in_turn = self._take()
            if uid is None:
                await self._wait()
                continue
            # No await up to here: a pod moves from the queue to the pods being written, or is finished.
            if self._is_news(uid, in_turn=in_turn):
                self._numbers.pop(uid, None)
                self._writing[uid] = False
                await self._rate.turn()
                await self._tell(uid)
                if self._writing.pop(uid):
                    self.put(uid)
            looked += 1
            if looked % _SLICE == 0:
                await asyncio.sleep(0)

    def _take(self) -> tuple[PodUid | None, bool]:
        """Return the next pod to check, and whether its numbers are due."""
        now_s = self._clock()
        while self._dues and self._dues[0][0] <= now_s:
            due_s, uid = heappop(self._dues)
            if self._later.get(uid) == due_s:
                del self._later[uid]
                self.put(uid)
        for line in (self._first, self._again):
            if line:
                uid = next(iter(line))
                del line[uid]
                return uid, False
        if self._numbers_due_s() <= now_s:
            uid = next(iter(self._numbers))
            del self._numbers[uid]
            return uid, True
        return None, False

    def _numbers_due_s(self) -> float:
        """Return when numbers are due next; never while that would leave no writer for other news."""
        is_full = len(self._writing) >= _WRITES_AT_ONCE - 1
        return self._numbers_s if self._numbers and not is_full else float("inf")

    async def _wait(self) -> None:
        self._filled.clear()
        due_s = min(self._dues[0][0] if self._dues else float("inf"), self._numbers_due_s())
        try:
            async with asyncio.timeout(max(due_s - self._clock(), 0.01) if due_s < float("inf") else None):
                await self._filled.wait()
        except TimeoutError:
            pass

    def _look_again(self, uid: PodUid, due_s: float) -> None:
        self._later[uid] = due_s
        heappush(self._dues, (due_s, uid))

    def _is_news(self, uid: PodUid, *, in_turn: bool) -> bool:
        """Return whether to report something about a pod now; otherwise schedule the next check if needed."""
        entry = self._scheduler.cluster.queue.get(uid)
        saying = self._what(entry) if entry is not None else None
        if entry is None or saying is None or (entry.condition is not None and entry.condition.text == saying.text):
            self._failures.pop(uid, None)
            self._passing.pop(uid, None)
            return False
        if entry.condition is None:
            return not self._may_pass(uid, saying)
        due_s = _due_s(entry.condition, saying)
        if due_s > self._clock():
            self._look_again(uid, due_s)
            return False
        if _differs(entry.condition, saying) is _Differs.NUMBERS:
            if not in_turn:
                self._numbers.setdefault(uid)
                return False
            self._numbers_s = max(self._numbers_s, self._clock() - 1.0) + 1.0 / NUMBERS_PER_S
        return True

    def _may_pass(self, uid: PodUid, saying: Saying) -> bool:
        """Return whether the pod's cause may end in a moment; if so, schedule another check."""
        due_s = self._passing.setdefault(uid, self._clock() + _PASSING_S)
        if saying.wait.cause in _PASSING and due_s > self._clock():
            self._look_again(uid, due_s)
            return True
        del self._passing[uid]
        return False

    async def _tell(self, uid: PodUid) -> None:
        entry = self._scheduler.cluster.queue.get(uid)
        saying = self._what(entry) if entry is not None else None
        if entry is None or saying is None or (entry.condition is not None and entry.condition.text == saying.text):
            return
        pod, base = entry.pod, entry.version
        path = pod_path(pod.namespace, pod.name) + "/status"
        try:
            answer = await self._calls.patch(path, self._condition(entry, saying), content_type=STRATEGIC_PATCH)
            version = read_version(answer)
        except ApiNotFoundError:
            self._failures.pop(uid, None)
            return
        except (ApiError, UndecodableError) as e:
            self._failed(entry, e)
            return
        self._failures.pop(uid, None)
        self._failed_in_a_row = 0
        self._recorder.note(Announce(about=about_pod(pod), reason="FailedScheduling", message=saying.text))
        written = partial(self._scheduler.condition_written, uid, saying.text, saying.why, base, version)
        await self._inbox.put_and_wait(written)

    def _failed(self, entry: Entry, error: Exception) -> None:
        pod, now_s = entry.pod, self._clock()
        self._metrics.api_errors.labels("write condition").inc()
        failures = self._failures[pod.uid] = self._failures.get(pod.uid, 0) + 1
        self._look_again(pod.uid, now_s + min(_TRY_AGAIN_S * 2.0 ** min(failures - 1, 30), _TRY_AGAIN_MAX_S))
        if isinstance(error, ApiConflictError):
            return
        self._failed_in_a_row += 1
        if self._failed_in_a_row > _FAILURES_FREE:
            rest_s = min(_FAILING_S * 2.0 ** min(self._failed_in_a_row - _FAILURES_FREE, 30), FAILING_MAX_S)
            self._rate.rest(now_s + rest_s)
        if now_s >= self._logged_s + _LOG_S:
            self._logged_s = now_s
            _log.warning(
                "conditions of pods cannot be written", pod=pod.key, error=str(error), pods=len(self._failures)
            )

    def _condition(self, entry: Entry, saying: Saying) -> dict[str, Any]:
        condition: dict[str, Any] = {
            "type": "PodScheduled",
            "status": "False",
            "reason": saying.wait.cause.reason,
            "message": saying.text,
        }
        if entry.condition is None:
            condition["lastTransitionTime"] = time_text(self._wall())
        return {
            # The version prevents a user's change from being missed, because cardshare's own write counts as seen.
            "metadata": {"uid": entry.pod.uid, "resourceVersion": entry.version},
            "status": {"conditions": [condition]},
        }


def numberless(text: str) -> str:
    """Return *text* without its numbers."""
    return _DIGITS.sub("#", text)


def _due_s(before: PodCondition, saying: Saying) -> float:
    """Return until when *before* stays although *saying* is current: longer for small or frequent differences."""
    flap_s = min(_FLAP_S * 2.0 ** min(before.times - 1, 30), FLAP_MAX_S) if before.times else 0.0
    return max(before.at_s + _STANDS_S[_differs(before, saying)], before.changed_s + flap_s)


def _differs(before: PodCondition, saying: Saying) -> _Differs:
    if before.why is None:  # found in the pod and not written by this process: compared as text
        same = numberless(before.text) == numberless(saying.text)
        return _Differs.NUMBERS if same and code_in(before.text) == saying.wait.cause.code else _Differs.REASONS
    if before.why == saying.why:
        return _Differs.NUMBERS
    same = isinstance(before.why, WaitReasons) and before.why.reasons == saying.why.reasons
    return _Differs.WORDS if same else _Differs.REASONS
