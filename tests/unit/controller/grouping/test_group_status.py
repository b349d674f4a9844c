from dataclasses import replace

import pytest

from controller.grouping.group_status import (
    NOT_SUPPORTED,
    GroupVerdict,
    MemberCounts,
    MemberState,
    is_news,
    native_condition,
    rendered,
    state_of,
    status_of,
)
from core.groups import GroupCondition, GroupPhase, GroupSpec, GroupStatus
from core.model import GroupKey, GroupKind, Phase, Pod, PodUid

KEY = GroupKey(GroupKind.VOLCANO, "ml", "g")
ADMITTED = GroupVerdict(admitted=True)
REFUSED = GroupVerdict(admitted=True, why="1 of 2 members fits", tried=True)
FULL = GroupVerdict(admitted=False, why="queue q has too little capacity: 2 cpu requested, 0 of 1 left")


def spec(phase="", min_member=2, **fields):
    status = GroupStatus(phase=GroupPhase(phase), written=True) if phase else GroupStatus()
    return GroupSpec(key=KEY, uid="u", resource_version="7", min_member=min_member, status=status, **fields)


def tally(**counts):
    return MemberCounts({MemberState(name): count for name, count in counts.items()})


def pod(**fields):
    return Pod(uid=PodUid("p"), namespace="ml", name="p", **fields)


def said(status):
    return {one.type: one.status for one in status.conditions}


@pytest.mark.parametrize(
    ("made", "state"),
    [
        (pod(), "waiting"),
        (pod(gated=True), "gated"),
        (pod(node_name="n"), "bound"),
        (pod(node_name="n", phase=Phase.RUNNING), "running"),
        (pod(node_name="n", phase=Phase.RUNNING, deleting=True), "leaving"),
        (pod(annotations={"volcano.sh/controller-out-of-sync": "true"}), "leaving"),
        (pod(node_name="n", phase=Phase.SUCCEEDED, deleting=True), "succeeded"),
        (pod(phase=Phase.FAILED), "failed"),
    ],
)
def test_a_member_stands_somewhere(made, state):
    assert state_of(made) == state


# Phase before, members, verdict, phase after: groups 4.8, 12 steps 4 and 11, and sequences of 11.
@pytest.mark.parametrize(
    ("before", "members", "verdict", "after"),
    [
        ("", {}, FULL, "Pending"),
        ("Pending", {"waiting": 2}, FULL, "Pending"),
        ("", {}, ADMITTED, "Inqueue"),
        ("", {"leaving": 2}, ADMITTED, "Inqueue"),
        ("Inqueue", {"waiting": 2}, REFUSED, "Inqueue"),
        ("Inqueue", {"bound": 1, "waiting": 1}, ADMITTED, "Inqueue"),
        ("Inqueue", {"bound": 2}, ADMITTED, "Running"),
        ("Running", {"running": 1, "failed": 1}, ADMITTED, "Running"),
        ("Running", {"running": 2, "waiting": 2}, REFUSED, "Unknown"),
        ("Unknown", {"running": 2, "waiting": 2}, ADMITTED, "Running"),
        ("Running", {"running": 1, "waiting": 1}, ADMITTED, "Running"),
        ("Running", {}, ADMITTED, "Running"),
        ("Running", {"succeeded": 2}, ADMITTED, "Completed"),
        ("Running", {"running": 1, "succeeded": 1}, ADMITTED, "Running"),
    ],
)
def test_the_phase_follows_the_members_and_never_goes_back_to_pending(before, members, verdict, after):
    assert status_of(spec(before), tally(**members), verdict).phase == after


def test_a_group_without_a_minimum_is_completed_by_a_pod_and_not_by_none():
    assert status_of(spec(min_member=0), tally(), ADMITTED).phase == "Inqueue"
    assert status_of(spec("Inqueue", min_member=0), tally(failed=1), ADMITTED).phase == "Completed"


def test_the_counters_are_the_members_of_each_phase():
    found = status_of(spec("Running"), tally(running=3, succeeded=2, failed=1, waiting=4), ADMITTED)
    assert (found.running, found.succeeded, found.failed) == (3, 2, 1)


def test_of_the_two_conditions_one_is_true():
    waits = status_of(spec(), tally(), FULL)
    assert said(waits) == {"Unschedulable": True}
    assert waits.conditions[0].message == FULL.why
    runs = status_of(replace(spec("Inqueue"), status=waits), tally(bound=2), ADMITTED)
    assert said(runs) == {"Unschedulable": False, "Scheduled": True}
    again = status_of(replace(spec("Running"), status=runs), tally(running=2, waiting=2), REFUSED)
    assert said(again) == {"Unschedulable": True, "Scheduled": False}


def test_a_message_is_no_longer_than_that_of_a_pod():
    """The API server rejects long ones, and names of tasks may have any length."""
    long = GroupVerdict(admitted=False, why="x" * 40_000)
    waits = status_of(spec(), tally(), long)
    assert waits.conditions[0].message == "x" * 1023 + "…"
    assert not is_news(replace(spec(), status=waits), status_of(replace(spec(), status=waits), tally(), long))
    native = native_condition(replace(spec(), key=GroupKey(GroupKind.NATIVE, "ml", "g")), tally(), long, "")
    assert native is not None
    assert native.message == "x" * 1023 + "…"


def test_an_admitted_group_without_pods_says_nothing_or_that_what_kept_it_is_over():
    assert status_of(spec(), tally(), ADMITTED).conditions == ()
    waits = status_of(spec(), tally(), FULL)
    assert said(status_of(replace(spec(), status=waits), tally(), ADMITTED)) == {"Unschedulable": False}


def test_what_did_not_change_keeps_its_time_and_conditions_of_others_stay():
    theirs = GroupCondition(type="Theirs", status=True, changed_at="2026-01-01T00:00:00Z")
    ours = GroupCondition(
        type="Unschedulable",
        status=True,
        reason="NotEnoughResources",
        message=FULL.why,
        changed_at="2026-01-02T00:00:00Z",
    )
    known = GroupStatus(written=True, conditions=(theirs, ours))
    assert status_of(replace(spec(), status=known), tally(), FULL) == known
    found = status_of(replace(spec(), status=known), tally(), replace(FULL, why="another"))
    assert [(one.type, one.changed_at) for one in found.conditions] == [
        ("Theirs", theirs.changed_at),
        ("Unschedulable", ""),
    ]


def test_other_words_are_no_news():
    known = status_of(spec(), tally(), FULL)
    now = replace(spec(), status=known)
    assert not is_news(now, status_of(now, tally(), replace(FULL, why="another")))
    assert is_news(now, status_of(now, tally(), replace(FULL, why="another", reason="NotSupported")))
    assert is_news(now, status_of(now, tally(), ADMITTED))
    assert is_news(spec(), status_of(spec(), tally(), FULL))


def test_what_is_written_names_the_version_that_was_judged():
    judged = spec("Inqueue")
    found = rendered(judged, status_of(judged, tally(bound=2), ADMITTED), "2026-03-01T10:00:00Z", "t")
    assert found["metadata"] == {"resourceVersion": "7"}
    assert found["status"] == {
        "phase": "Running",
        "running": 0,
        "succeeded": 0,
        "failed": 0,
        "conditions": [
            {
                "type": "Scheduled",
                "status": "True",
                "reason": "tasks in gang are ready to be scheduled",
                "message": "",
                "lastTransitionTime": "2026-03-01T10:00:00Z",
                "transitionID": "t",
            }
        ],
    }


@pytest.mark.parametrize(
    ("api", "name"),
    [
        ("/apis/scheduling.k8s.io/v1alpha2", "PodGroupScheduled"),
        ("/apis/scheduling.k8s.io/v1alpha3", "PodGroupInitiallyScheduled"),
        ("/apis/scheduling.k8s.io/v1beta1", "PodGroupInitiallyScheduled"),
    ],
)
def test_a_native_group_that_was_scheduled_stays_so(api, name):
    native = replace(spec(), key=GroupKey(GroupKind.NATIVE, "ml", "g"))
    assert native_condition(native, tally(waiting=2), ADMITTED, api) is None
    waits = native_condition(native, tally(waiting=2), REFUSED, api)
    assert waits is not None
    assert (waits.type, waits.status, waits.reason) == (name, False, "Unschedulable")
    done = native_condition(native, tally(bound=2), ADMITTED, api)
    assert done is not None
    assert (done.status, done.reason) == (True, "Scheduled")
    known = replace(native, status=GroupStatus(conditions=(done,)))
    assert native_condition(known, tally(waiting=2), REFUSED, api) is None
    odd = native_condition(native, tally(waiting=2), GroupVerdict(admitted=False, why="w", reason=NOT_SUPPORTED), api)
    assert odd is not None
    assert odd.reason == "SchedulerError"
