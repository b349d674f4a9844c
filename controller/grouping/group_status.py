"""Computes the status of a PodGroup: a pure function of the group, its members and the decisions.

Phases are Volcano's (groups 1.4, 4.8), without its return to Pending: while a Job's group is Pending, Volcano's job
controller neither creates nor counts pods (groups 2.1, 11.6). `Unknown` is written only after a failed attempt to place
members, because policies of Jobs may restart them on it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from core.groups import GroupCondition, GroupPhase, GroupSpec, GroupStatus, is_leaving
from core.model import GroupKind, Phase, Pod
from kube.kinds import FIRST_NATIVE

SCHEDULED: Final = "Scheduled"
UNSCHEDULABLE: Final = "Unschedulable"
# Condition types of Kubernetes' own groups: the one of 1.36, and the later one.
FIRST_NATIVE_SCHEDULED: Final = "PodGroupScheduled"
NATIVE_SCHEDULED: Final = "PodGroupInitiallyScheduled"
NATIVE_ERROR: Final = "SchedulerError"
# Reasons of conditions. The job controller reads the types; people read the rest.
READY: Final = "tasks in gang are ready to be scheduled"
NOT_SUPPORTED: Final = "NotSupported"
NOT_ENOUGH_RESOURCES: Final = "NotEnoughResources"
NOT_ENOUGH_PODS: Final = "NotEnoughTasks"
# As in conditions of pods; the API server rejects messages of more than 32 KiB in Kubernetes' own groups.
_MESSAGE_MAX: Final = 1024


class MemberState(StrEnum):
    """The state of a member; LEAVING is being deleted and no longer counts as a member."""

    WAITING = "waiting"
    GATED = "gated"
    BOUND = "bound"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    LEAVING = "leaving"


def state_of(pod: Pod) -> MemberState:
    """Return the state of *pod* in its group."""
    if pod.phase is Phase.SUCCEEDED:
        return MemberState.SUCCEEDED
    if pod.phase is Phase.FAILED:
        return MemberState.FAILED
    if is_leaving(pod):
        return MemberState.LEAVING
    if not pod.node_name:
        return MemberState.GATED if pod.gated else MemberState.WAITING
    return MemberState.RUNNING if pod.phase is Phase.RUNNING else MemberState.BOUND


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupVerdict:
    """The decisions about a group.

    admitted: its pods may be created and placed. why: why it is not admitted, or why its members found no place; "" if
    neither. reason: a word for that. tried: placing its members was attempted and failed. since_s: start of that state,
    monotonic; None: report it at once.
    """

    admitted: bool
    why: str = ""
    reason: str = NOT_ENOUGH_RESOURCES
    tried: bool = False
    since_s: float | None = None


@dataclass(slots=True)
class MemberCounts:
    """Number of members by state."""

    counts: dict[MemberState, int] = field(default_factory=dict)

    def of(self, *states: MemberState) -> int:
        """Return how many members are in one of *states*."""
        return sum(self.counts.get(state, 0) for state in states)

    def add(self, state: MemberState, count: int = 1) -> None:
        """Add *count* members to *state*; -1 removes one."""
        self.counts[state] = self.counts.get(state, 0) + count

    @property
    def running(self) -> int:
        """Number of running members."""
        return self.of(MemberState.RUNNING)

    @property
    def finished(self) -> int:
        """Number of members that have ended, successfully or not."""
        return self.of(MemberState.SUCCEEDED, MemberState.FAILED)

    @property
    def placed(self) -> int:
        """Number of members on a node or finished."""
        return self.of(MemberState.BOUND, MemberState.RUNNING) + self.finished


def status_of(spec: GroupSpec, tally: MemberCounts, verdict: GroupVerdict) -> GroupStatus:
    """Return the status that *spec* should have; unchanged conditions keep their times, other times are empty.

    Conditions of other types stay.
    """
    wanted = _conditions(spec, tally, verdict)
    known = {one.type: one for one in spec.status.conditions}
    conditions = [wanted.pop(one.type, one) for one in spec.status.conditions]
    conditions += [one for one in wanted.values() if one.status or one.type in known]
    return replace(
        spec.status,
        phase=_phase(spec, tally, verdict),
        written=True,
        running=tally.running,
        succeeded=tally.of(MemberState.SUCCEEDED),
        failed=tally.of(MemberState.FAILED),
        conditions=tuple(_dated(one, known.get(one.type)) for one in conditions),
    )


def _phase(spec: GroupSpec, tally: MemberCounts, verdict: GroupVerdict) -> GroupPhase:
    before = spec.status.phase
    if not verdict.admitted:
        return before
    if tally.running and verdict.tried:
        return GroupPhase.UNKNOWN
    if tally.placed and tally.placed >= spec.min_member:
        return GroupPhase.COMPLETED if tally.placed == tally.finished else GroupPhase.RUNNING
    return GroupPhase.INQUEUE if before is GroupPhase.PENDING else before


def _conditions(spec: GroupSpec, tally: MemberCounts, verdict: GroupVerdict) -> dict[str, GroupCondition]:
    """Return cardshare's conditions of the group, by type; empty before there is news."""
    if verdict.why:
        return {
            UNSCHEDULABLE: GroupCondition(
                type=UNSCHEDULABLE, status=True, reason=verdict.reason, message=_message(verdict)
            ),
            SCHEDULED: GroupCondition(type=SCHEDULED, status=False, reason=verdict.reason),
        }
    if verdict.admitted and tally.placed and tally.placed >= spec.min_member:
        return {
            SCHEDULED: GroupCondition(type=SCHEDULED, status=True, reason=READY),
            UNSCHEDULABLE: GroupCondition(type=UNSCHEDULABLE, status=False, reason=READY),
        }
    if verdict.admitted:
        # Its pods are being created or placed, so the earlier obstacle is gone.
        return {UNSCHEDULABLE: GroupCondition(type=UNSCHEDULABLE, status=False, reason="Admitted")}
    return {}


def _message(verdict: GroupVerdict) -> str:
    why = verdict.why
    return why if len(why) <= _MESSAGE_MAX else f"{why[: _MESSAGE_MAX - 1]}…"


def _dated(condition: GroupCondition, known: GroupCondition | None) -> GroupCondition:
    if known is not None and replace(condition, changed_at=known.changed_at) == known:
        return known
    return replace(condition, changed_at="")


def native_condition(spec: GroupSpec, tally: MemberCounts, verdict: GroupVerdict, api: str) -> GroupCondition | None:
    """Return the condition of a native group for *api*; never back from True. None: no condition."""
    name = FIRST_NATIVE_SCHEDULED if api == FIRST_NATIVE else NATIVE_SCHEDULED
    known = next((one for one in spec.status.conditions if one.type == name), None)
    if known is not None and known.status:
        return None
    if tally.placed and tally.placed >= spec.min_member:
        found = GroupCondition(type=name, status=True, reason=SCHEDULED)
    elif verdict.why:
        # A new node cannot help a group with unsupported requests.
        reason = NATIVE_ERROR if verdict.reason == NOT_SUPPORTED else UNSCHEDULABLE
        found = GroupCondition(type=name, status=False, reason=reason, message=_message(verdict))
    else:
        return None
    dated = _dated(found, known)
    return None if dated is known else dated


def is_news(spec: GroupSpec, status: GroupStatus) -> bool:
    """Return whether *status* changes more than the wording of conditions, so that the write is urgent."""
    before = spec.status
    return replace(before, conditions=()) != replace(status, conditions=()) or _gist(before) != _gist(status)


def _gist(status: GroupStatus) -> Mapping[str, tuple[bool, str]]:
    return {one.type: (one.status, one.reason) for one in status.conditions}


def rendered(spec: GroupSpec, status: GroupStatus, now: str, transition: str) -> dict[str, object]:
    """Return the merge patch that writes *status* to exactly the judged version of *spec*.

    Args:
        spec: the group as judged.
        status: its new status.
        now: the time in the format of objects.
        transition: id of the transition for changed conditions, as in Volcano.
    """
    conditions = [
        {
            "type": one.type,
            "status": "True" if one.status else "False",
            "reason": one.reason,
            "message": one.message,
            "lastTransitionTime": one.changed_at or now,
            **({"transitionID": transition} if spec.key.kind is GroupKind.VOLCANO else {}),
        }
        for one in status.conditions
    ]
    said: dict[str, object] = {"conditions": conditions}
    if spec.key.kind is GroupKind.VOLCANO:
        said |= {
            "phase": status.phase.value,
            "running": status.running,
            "succeeded": status.succeeded,
            "failed": status.failed,
        }
    return {"metadata": {"resourceVersion": spec.resource_version}, "status": said}
