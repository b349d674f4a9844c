"""What a PodGroup's status should say: a pure function of the group, its members and what was decided.

Phases are those of Volcano (groups 1.4, 4.8), less its way back to Pending: while a Job's group is Pending, Volcano's
job controller neither makes pods nor counts them (groups 2.1, 11.6). `Unknown` is written only after members were
tried and found no place, for policies of Jobs may restart them on it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from core.groups import GroupCondition, GroupKind, GroupPhase, GroupSpec, GroupStatus, is_leaving
from core.model import Phase, Pod
from kube.groups import FIRST_NATIVE

SCHEDULED: Final = "Scheduled"
UNSCHEDULABLE: Final = "Unschedulable"
# Of Kubernetes' own groups: the name that 1.36 had for it, and the later one.
FIRST_NATIVE_SCHEDULED: Final = "PodGroupScheduled"
NATIVE_SCHEDULED: Final = "PodGroupInitiallyScheduled"
NATIVE_ERROR: Final = "SchedulerError"
# Why a condition is what it is. The job controller reads the types, people the rest.
READY: Final = "tasks in gang are ready to be scheduled"
NOT_SUPPORTED: Final = "NotSupported"
NOT_ENOUGH_RESOURCES: Final = "NotEnoughResources"
NOT_ENOUGH_PODS: Final = "NotEnoughTasks"


class MemberState(StrEnum):
    """Where a member stands; LEAVING is one that is being deleted, which is no member any more."""

    WAITING = "waiting"
    GATED = "gated"
    BOUND = "bound"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    LEAVING = "leaving"


def state_of(pod: Pod) -> MemberState:
    """Where *pod* stands in its group."""
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
    """What was decided on a group.

    admitted: its pods may be made and placed. why: why it is not admitted, or why its members found no place; "" where
    neither is so. reason: a word for that. tried: its members were tried, and found no place. since_s: since when,
    monotonic; None: it is told at once.
    """

    admitted: bool
    why: str = ""
    reason: str = NOT_ENOUGH_RESOURCES
    tried: bool = False
    since_s: float | None = None


@dataclass(slots=True)
class Tally:
    """How many members stand where."""

    counts: dict[MemberState, int] = field(default_factory=dict)

    def of(self, *states: MemberState) -> int:
        """How many stand in one of *states*."""
        return sum(self.counts.get(state, 0) for state in states)

    def add(self, state: MemberState, count: int = 1) -> None:
        """One more stands there, or with -1 one less."""
        self.counts[state] = self.counts.get(state, 0) + count

    @property
    def running(self) -> int:
        """Members that run."""
        return self.of(MemberState.RUNNING)

    @property
    def finished(self) -> int:
        """Members that have ended, either way."""
        return self.of(MemberState.SUCCEEDED, MemberState.FAILED)

    @property
    def placed(self) -> int:
        """Members on a node, or finished."""
        return self.of(MemberState.BOUND, MemberState.RUNNING) + self.finished


def status_of(spec: GroupSpec, tally: Tally, verdict: GroupVerdict) -> GroupStatus:
    """The status that *spec* should have; times of conditions that did not change are kept, of others empty.

    What is written of conditions of other types stays.
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


def _phase(spec: GroupSpec, tally: Tally, verdict: GroupVerdict) -> GroupPhase:
    before = spec.status.phase
    if not verdict.admitted:
        return before
    if tally.running and verdict.tried:
        return GroupPhase.UNKNOWN
    if tally.placed and tally.placed >= spec.min_member:
        return GroupPhase.COMPLETED if tally.placed == tally.finished else GroupPhase.RUNNING
    return GroupPhase.INQUEUE if before is GroupPhase.PENDING else before


def _conditions(spec: GroupSpec, tally: Tally, verdict: GroupVerdict) -> dict[str, GroupCondition]:
    """What we say of the group, by type; nothing before there is anything to say."""
    if verdict.why:
        return {
            UNSCHEDULABLE: GroupCondition(type=UNSCHEDULABLE, status=True, reason=verdict.reason, message=verdict.why),
            SCHEDULED: GroupCondition(type=SCHEDULED, status=False, reason=verdict.reason),
        }
    if verdict.admitted and tally.placed and tally.placed >= spec.min_member:
        return {
            SCHEDULED: GroupCondition(type=SCHEDULED, status=True, reason=READY),
            UNSCHEDULABLE: GroupCondition(type=UNSCHEDULABLE, status=False, reason=READY),
        }
    if verdict.admitted:
        # Its pods are being made, or placed: what kept it from that is over.
        return {UNSCHEDULABLE: GroupCondition(type=UNSCHEDULABLE, status=False, reason="Admitted")}
    return {}


def _dated(condition: GroupCondition, known: GroupCondition | None) -> GroupCondition:
    if known is not None and replace(condition, changed_at=known.changed_at) == known:
        return known
    return replace(condition, changed_at="")


def native_condition(spec: GroupSpec, tally: Tally, verdict: GroupVerdict, api: str) -> GroupCondition | None:
    """Whether a native group was placed, as one of *api* says it; never back from True. None: nothing to say."""
    name = FIRST_NATIVE_SCHEDULED if api == FIRST_NATIVE else NATIVE_SCHEDULED
    known = next((one for one in spec.status.conditions if one.type == name), None)
    if known is not None and known.status:
        return None
    if tally.placed and tally.placed >= spec.min_member:
        found = GroupCondition(type=name, status=True, reason=SCHEDULED)
    elif verdict.why:
        # No node that may come helps a group that asks for what is not honoured.
        reason = NATIVE_ERROR if verdict.reason == NOT_SUPPORTED else UNSCHEDULABLE
        found = GroupCondition(type=name, status=False, reason=reason, message=verdict.why)
    else:
        return None
    dated = _dated(found, known)
    return None if dated is known else dated


def is_news(spec: GroupSpec, status: GroupStatus) -> bool:
    """Whether *status* says more than other words in the same conditions: what may not wait."""
    before = spec.status
    if (before.phase, before.written, before.running, before.succeeded, before.failed) != (
        status.phase,
        status.written,
        status.running,
        status.succeeded,
        status.failed,
    ):
        return True
    return _gist(before) != _gist(status)


def _gist(status: GroupStatus) -> Mapping[str, tuple[bool, str]]:
    return {one.type: (one.status, one.reason) for one in status.conditions}


def rendered(spec: GroupSpec, status: GroupStatus, now: str, transition: str) -> dict[str, object]:
    """The merge patch that makes *status* of *spec*'s, in just the version that was judged.

    Args:
        spec: the group as it was judged.
        status: what it should say.
        now: the time, as objects carry it.
        transition: goes along with conditions that change, as in Volcano.
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
