"""Writes the status of PodGroups and queues, and creates the queues that Volcano's Jobs require.

Each status is one conditional merge patch of the judged version. If the group changed in the meantime, that change wins
and the group is judged again. Simultaneous changes of one group form one write. Source: groups 1.1.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final
from urllib.parse import quote

import structlog

from controller.actions import Announce, Inbox, Subject
from controller.grouping import group_status
from controller.grouping.admitting import queue_problem
from controller.grouping.budgets import Budgets
from controller.grouping.enqueue import Jobs
from controller.grouping.group_status import GroupVerdict, MemberCounts
from controller.grouping.groups import Groups
from controller.metrics import Metrics
from controller.reporting.conditions import numberless
from controller.reporting.events import Recorder
from core.constraints.quota import shown
from core.errors import InvalidRequestError
from core.groups import DEFAULT_QUEUE, ROOT_QUEUE, GroupPhase, GroupSpec, GroupStatus, QueueSpec
from core.model import GroupKey, GroupKind
from core.units import time_text
from core.wire.groups import decode_queue, group_in, queue_in
from kube.calls import Calls
from kube.errors import ApiConflictError, ApiError, ApiNotFoundError
from kube.kinds import JOBS_VERSION, PODGROUPS, QUEUES_PATH, VOLCANO_VERSION

_log: Final = structlog.get_logger()

# Volcano's scheduler creates them at its start, because its job controller fails every Job without them (groups G1).
QUEUES: Final[Mapping[str, Mapping[str, Any]]] = {
    ROOT_QUEUE: {"weight": 1, "reclaimable": False},
    DEFAULT_QUEUE: {"weight": 1, "reclaimable": True},
}
_AT_ONCE: Final = 8
# Minimum interval between writes of one group's status; changes in between go with the next write.
_PAUSE_S: Final = 0.2
# The pods of a Job appear one at a time, so missing ones are reported only after this delay.
_MISSING_S: Final = 1.0
# Minimum interval between writes that change only the wording, or only its numbers.
_WORDS_S: Final = 10.0
_NUMBERS_S: Final = 60.0
# If many groups wait, their figures change with every pod that ends. Those of all of them are written at this rate.
_WORDS_PER_S: Final = 50.0
_AGAIN_S: Final = 1.0
_QUEUES_S: Final = 1.0
_LOOK_S: Final = 0.1


class GroupWrites:
    """Keeps the status of groups and queues in the API server up to date."""

    def __init__(
        self,
        groups: Groups,
        calls: Calls,
        inbox: Inbox,
        recorder: Recorder,
        metrics: Metrics,
        *,
        budgets: Budgets,
        jobs: Jobs,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.wake: Final = asyncio.Event()
        self._groups: Final = groups
        self._budgets: Final = budgets
        self._jobs: Final = jobs
        self._calls: Final = calls
        self._inbox: Final = inbox
        self._recorder: Final = recorder
        self._metrics: Final = metrics
        self._clock: Final = clock
        self._wall: Final = wall
        # When each group is looked at again, and the earliest next write of those written lately.
        self._due: Final[dict[GroupKey, float]] = {}
        self._paused: Final[dict[GroupKey, float]] = {}
        self._queues_s = 0.0
        self._failing: Final[set[str]] = set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._wait()
            await self._make_queues()
            await self._write_groups()
            await self._write_queues()
            self._tell_jobs()

    async def _wait(self) -> None:
        """Wait for a change or for the next delayed write."""
        self.wake.clear()
        try:
            async with asyncio.timeout(_LOOK_S if self._due or self._groups.queues_unreported else _QUEUES_S):
                await self.wake.wait()
        except TimeoutError:
            pass

    # ------------------------------------------------------------------ groups

    async def _write_groups(self) -> None:
        now_s, groups = self._clock(), self._groups
        for key in [key for key, until_s in self._paused.items() if until_s <= now_s]:
            del self._paused[key]
        for key in groups.unreported:
            self._due[key] = self._paused.get(key, 0.0)
        for key in groups.reworded:
            self._due.setdefault(key, 0.0)
        due = [key for key, due_s in self._due.items() if due_s <= now_s]
        due.sort(key=lambda key: key not in groups.unreported)
        groups.unreported.clear()
        groups.reworded.clear()
        for at in range(0, len(due), _AT_ONCE):
            async with asyncio.TaskGroup() as tasks:
                for key in due[at : at + _AT_ONCE]:
                    del self._due[key]
                    judged = self._groups.judged(key)
                    if judged is not None:
                        tasks.create_task(self._write_group(*judged), name=f"write {key}")

    async def _write_group(self, spec: GroupSpec, tally: MemberCounts, verdict: GroupVerdict) -> None:
        due_s = verdict.since_s + _MISSING_S if verdict.since_s is not None else 0.0
        if due_s <= self._clock():
            await self._write_status(spec, tally, verdict)
            return
        await self._write_status(spec, tally, replace(verdict, why=""))
        self._due[spec.key] = min(self._due.get(spec.key, due_s), due_s)

    async def _write_status(self, spec: GroupSpec, tally: MemberCounts, verdict: GroupVerdict) -> None:
        api = self._groups.apis[spec.key.kind]
        status = _wanted(spec, tally, verdict, api)
        if status is None or status == spec.status:
            return
        if not group_status.is_news(spec, status) and self._is_fresh(spec, status):
            self._due[spec.key] = self._clock() + _WORDS_S
            return
        path = _path(api, spec.key)
        patch = group_status.rendered(spec, status, time_text(self._wall()), spec.uid)
        self._pause(spec.key, _PAUSE_S)
        try:
            answer = await self._calls.patch(path, patch)
            found = group_in(spec.key.kind, answer)
        except ApiNotFoundError:
            self._due.pop(spec.key, None)  # the group or its kind is gone, and the mirror will report it
            return
        except (ApiError, InvalidRequestError) as e:
            self._failed("write podgroup", f"{spec.key}", e, is_race=isinstance(e, ApiConflictError))
            self._pause(spec.key, _PAUSE_S if isinstance(e, ApiConflictError) else _AGAIN_S)
            return
        self._failing.discard("write podgroup")
        self._inbox.put(partial(self._groups.answered, found))
        self._announce(spec, status)

    def _pause(self, key: GroupKey, pause_s: float) -> None:
        """Write group *key* no earlier than after *pause_s*, and look at it again then."""
        self._due[key] = self._paused[key] = self._clock() + pause_s

    def _is_fresh(self, spec: GroupSpec, status: GroupStatus) -> bool:
        """Return whether its conditions are too recent for the wording of *status*."""
        newest = max((one.changed_at for one in spec.status.conditions), default="")
        rest_s = max(
            _NUMBERS_S if _words(spec.status) == _words(status) else _WORDS_S,
            len(self._groups.wanting) / _WORDS_PER_S,
        )
        # A replica whose clock was ahead may have written a time that is still to come.
        return time_text(self._wall() - rest_s) < newest <= time_text(self._wall() + rest_s)

    def _announce(self, spec: GroupSpec, status: GroupStatus) -> None:
        about = Subject(
            kind="PodGroup",
            namespace=spec.key.namespace,
            name=spec.key.name,
            uid=spec.uid,
            api_version=f"{spec.key.kind.value}/v1beta1",
        )
        if spec.key.kind is not GroupKind.VOLCANO:
            return
        said = {one.type: one for one in status.conditions}
        waits = said.get(group_status.UNSCHEDULABLE)
        if waits is not None and waits.status:
            self._recorder.note(Announce(about=about, reason="Unschedulable", message=waits.message))
        elif status.phase is not spec.status.phase and status.phase is GroupPhase.INQUEUE:
            message = f"admitted to queue {spec.queue}: its pods may be created and placed"
            self._recorder.note(Announce(about=about, reason="Admitted", message=message, warning=False))
        elif status.phase is not spec.status.phase and status.phase is GroupPhase.RUNNING:
            self._recorder.note(Announce(about=about, reason="Scheduled", message="pod group is ready", warning=False))

    def _tell_jobs(self) -> None:
        """Write events for Jobs without a queue, because they have no group whose status could report it."""
        if not self._groups.governs:
            return
        for job in self._jobs.to_tell():
            about = Subject(kind="Job", namespace=job.namespace, name=job.name, uid=job.uid, api_version=JOBS_VERSION)
            message = f"waits because {queue_problem(job.queue, None)}"
            self._recorder.note(Announce(about=about, reason="QueueNotFound", message=message))

    # ------------------------------------------------------------------ queues

    async def _make_queues(self) -> None:
        """Create missing queues if Volcano's kinds are installed and this process admits its groups."""
        groups = self._groups
        if not (groups.governs and groups.queues_served):
            return
        for name, spec in QUEUES.items():
            if name not in groups.queues:
                await self._make_queue(name, spec)

    async def _make_queue(self, name: str, spec: Mapping[str, Any]) -> None:
        body = {
            "apiVersion": VOLCANO_VERSION,
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": dict(spec),
        }
        try:
            found = decode_queue(await self._calls.create(QUEUES_PATH, body))
        except ApiConflictError:
            return  # it exists already; the mirror will report it
        except (ApiError, InvalidRequestError) as e:
            self._failed("make queue", f"queue {name}", e)
            return
        self._failing.discard("make queue")
        _log.info("queue created", queue=name)
        self._inbox.put(partial(self._groups.queue_changed, found))

    async def _write_queues(self) -> None:
        groups = self._groups
        if not (groups.governs and groups.queues_unreported and groups.queues_served):
            return
        if self._clock() < self._queues_s + _QUEUES_S:
            return
        self._queues_s = self._clock()
        groups.queues_unreported = False
        for name, amounts in self._budgets.allocated().items():
            queue = groups.queues.get(name)
            said = {one: shown(one, amount) for one, amount in amounts.items()}
            if queue is not None and said != queue.allocated:
                await self._write_queue(queue, said)

    async def _write_queue(self, queue: QueueSpec, said: Mapping[str, str]) -> None:
        gone = dict.fromkeys(queue.allocated.keys() - said.keys())
        patch = {"status": {"allocated": {**said, **gone}}}
        try:
            answer = await self._calls.patch(f"{QUEUES_PATH}/{quote(queue.name, safe='')}/status", patch)
            found = queue_in(answer)
        except ApiNotFoundError:
            return
        except (ApiError, InvalidRequestError) as e:
            self._failed("write queue", f"queue {queue.name}", e)
            self._groups.queues_unreported = True
            return
        self._failing.discard("write queue")
        self._inbox.put(partial(self._groups.queue_answered, found))

    def _failed(self, doing: str, what: str, error: Exception, *, is_race: bool = False) -> None:
        """Count a failure, and log it once until a success."""
        self._metrics.api_errors.labels(doing).inc()
        if not is_race and doing not in self._failing:
            self._failing.add(doing)
            _log.warning("the status of groups cannot be written", doing=doing, what=what, error=str(error))


def _path(api: str, key: GroupKey) -> str:
    """Return the path of a group's status; Volcano's has no status subresource (groups 1.1)."""
    name, namespace = quote(key.name, safe=""), quote(key.namespace, safe="")
    path = f"{api}/namespaces/{namespace}/{PODGROUPS}/{name}"
    return path if key.kind is GroupKind.VOLCANO else f"{path}/status"


def _words(status: GroupStatus) -> Mapping[str, str]:
    """Return the messages of conditions without their numbers, by type."""
    return {one.type: numberless(one.message) for one in status.conditions}


def _wanted(spec: GroupSpec, tally: MemberCounts, verdict: GroupVerdict, api: str) -> GroupStatus | None:
    """Return the status of *spec*; None if there is nothing to write."""
    if spec.key.kind is GroupKind.VOLCANO:
        return group_status.status_of(spec, tally, verdict)
    condition = group_status.native_condition(spec, tally, verdict, api)
    if condition is None:
        return None
    others = tuple(one for one in spec.status.conditions if one.type != condition.type)
    return GroupStatus(phase=spec.status.phase, written=spec.status.written, conditions=(*others, condition))
