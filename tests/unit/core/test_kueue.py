"""Kueue's Workloads as they are read, who of them asks, and how long a promise lasts (docs/operators/kueue.md)."""

import json

import pytest

from core.errors import InvalidRequestError
from core.kueue import PROMISE_S, Additions, Answer, CheckState, answered, believed, marks_of, pod_with
from core.model import Toleration
from core.wire.kueue import decode_admission_check, decode_flavor, decode_workload, pod_in, salvage_workload
from tests.support.worlds.kueue import AT, check, condition, reserved, workload
from tests.support.worlds.world import MEMORY, NUMBER, pod

AT_S = 1_795_600_800.0  # 2026-11-25T10:00:00Z
NAMES = frozenset({"fits"})
ASKED = {NUMBER: "1", MEMORY: "1000"}


def read(status=None, **more):
    made = workload("w", ASKED, **more)
    return decode_workload(json.dumps(made | ({"status": status} if status else {})).encode())


def test_a_workload_has_the_pods_that_have_quota_with_their_flavors():
    found = read(reserved(pods=2, flavor="t4"), pods=5)
    (main,) = found.pod_sets
    assert (found.key, main.name, main.pods, main.flavors) == ("default/w", "main", 2, ("t4",))
    made, reviewed, _ = pod_in(main.template, "default")
    assert made.scheduler_name == reviewed.scheduler_name == "default-scheduler"
    assert made.containers[0].limits == reviewed.containers[0].limits == ASKED


@pytest.mark.parametrize(
    ("status", "asks", "is_promised"),
    [
        (None, False, False),
        ({"admissionChecks": [check()]}, False, False),
        (reserved(check("Pending")), True, False),
        (reserved(check("Retry")), False, False),
        (reserved(check("Rejected")), False, False),
        (reserved(check("Ready")), False, True),
        (reserved(check("Pending", name="another")), False, False),
        (reserved(check("Ready"), more=[condition("Finished")]), False, False),
        (reserved(check("Pending"), more=[condition("Evicted")]), False, False),
        (reserved(check("Pending"), more=[condition("Evicted", "False")]), True, False),
    ],
)
def test_who_asks_and_who_is_promised_room(status, asks, is_promised):
    found = read(status)
    assert found.is_asking(NAMES, AT_S) == asks
    assert (found.promised_until_s(NAMES) > AT_S) == is_promised


def test_an_inactive_workload_does_not_ask():
    made = workload("w", ASKED)
    made["spec"]["active"] = False
    assert not decode_workload(json.dumps(made | {"status": reserved()}).encode()).is_asking(NAMES, AT_S)


def test_a_promise_lasts_from_the_answer_and_again_from_the_admission_and_then_is_not_renewed():
    waits = read(reserved(check("Ready")))
    assert waits.promised_until_s(NAMES) == AT_S + PROMISE_S
    assert not waits.is_asking(NAMES, AT_S + PROMISE_S - 1)
    assert waits.is_asking(NAMES, AT_S + PROMISE_S)
    admitted = read(reserved(check("Ready"), more=[condition("Admitted", at="2026-11-25T10:00:30Z")]))
    assert admitted.promised_until_s(NAMES) == AT_S + 30 + PROMISE_S
    assert not admitted.is_asking(NAMES, AT_S + 1000)


def test_an_answer_leaves_other_checks_and_what_is_not_ours_as_they_were():
    other = check("Ready", name="another", podSetUpdates=[{"name": "main", "labels": {"a": "b"}}])
    found = read(reserved(other, check("Pending", retryCount=2, requeueAfterSeconds=9)))
    ready = answered(found, NAMES, Answer(CheckState.READY, "yes"), "now")
    assert ready == (other, check("Ready", retryCount=2, at="now") | {"message": "yes"})
    no = answered(found, NAMES, Answer(CheckState.RETRY, "no"), "now")[1]
    # With requeueAfterSeconds, Kueue would hold the quota for so long.
    assert no == check("Retry", retryCount=2, at="now") | {"message": "no"}
    waits = answered(found, NAMES, Answer(CheckState.PENDING, "why"), "now")[1]
    assert (waits["state"], waits["message"], waits["lastTransitionTime"]) == ("Pending", "why", AT)
    told = believed(found, NAMES, Answer(CheckState.READY, "yes"), AT_S)
    assert told.promised_until_s(NAMES) == AT_S + PROMISE_S


@pytest.mark.parametrize(
    ("retries", "message", "waits_s"),
    [(0, "", 0), (0, "Reset to Pending", 15), (1, "", 15), (2, "", 30), (3, "", 60), (4, "", 60), (2**31 - 1, "", 60)],
)
def test_who_was_told_no_before_waits_longer_each_time_but_never_longer_than_a_minute(retries, message, waits_s):
    found = read(reserved(check("Pending", retryCount=retries) | {"message": message}))
    assert found.waits_s(NAMES) == waits_s


def test_what_is_added_to_pods_does_not_replace_what_they_say():
    flavor = decode_flavor(
        json.dumps(
            {
                "metadata": {"name": "t4"},
                "spec": {"nodeLabels": {"a": "1", "b": "2"}, "tolerations": [{"key": "k", "operator": "Exists"}]},
            }
        ).encode()
    )
    found = read(
        reserved(
            check(),
            check("Ready", name="another", podSetUpdates=[{"name": "main", "nodeSelector": {"c": "3"}}]),
            flavor="t4",
        ),
        nodeSelector={"a": "0"},
    )
    (main,) = found.pod_sets
    made = pod_in(main.template, "default").pod
    for more in found.additions(main, {flavor.name: flavor.additions}):
        made = pod_with(made, more)
    assert dict(made.constraints.selector) == {"a": "0", "b": "2", "c": "3"}
    assert made.constraints.tolerations == (Toleration(key="k", operator="Exists"),)
    assert pod_with(made, Additions()) == made


@pytest.mark.parametrize(
    ("owners", "fields", "is_its"),
    [
        ([], {}, False),
        ([], {"annotations": {"kueue.x-k8s.io/workload": "w"}}, True),
        ([], {"annotations": {"kueue.x-k8s.io/workload": "w"}, "namespace": "other"}, False),
        ([{"kind": "Job", "name": "train"}], {"owner": "Job/train"}, True),
        ([{"kind": "Job", "name": "train"}], {"owner": "Job/other"}, False),
        ([{"kind": "Pod", "name": "p"}], {}, True),
    ],
)
def test_a_pod_is_its_by_annotation_by_its_owner_or_as_its_owner(owners, fields, is_its):
    made = workload("w", ASKED)
    made["metadata"]["ownerReferences"] = owners
    its = set(decode_workload(json.dumps(made).encode()).marks)
    assert its.isdisjoint(marks_of(pod("p", **fields))) != is_its


def test_an_admission_check_says_whose_it_is_and_whether_it_is_answered():
    made = {"metadata": {"name": "fits", "generation": 3}, "spec": {"controllerName": "cardshare.io/fits"}}
    found = decode_admission_check(json.dumps(made).encode())
    assert (found.name, found.controller, found.generation, found.is_active) == ("fits", "cardshare.io/fits", 3, False)
    made |= {"status": {"conditions": [condition("Active")]}}
    assert decode_admission_check(json.dumps(made).encode()).is_active


def test_a_workload_that_cannot_be_read_asks_for_nothing():
    made = workload("w", ASKED)
    made["spec"]["podSets"][0]["count"] = -1
    text = json.dumps(made | {"status": reserved()}).encode()
    with pytest.raises(InvalidRequestError):
        decode_workload(text)
    found = salvage_workload(text)
    assert found.key == "default/w"
    assert not found.is_asking(NAMES, AT_S)
