import json

import pytest

from core.errors import InvalidRequestError
from core.groups import GroupPhase, NetworkTopology, SubGroups
from core.model import GroupKey, GroupKind, Requirement
from core.units import MAX_AMOUNT
from core.wire.groups import (
    UNREADABLE,
    decode_native_group,
    decode_queue,
    decode_volcano_group,
    salvage_group,
    salvage_queue,
)

# As Volcano's job controller makes it (groups 2.3, 11.5), and a status of ours.
MIXED = {
    "metadata": {
        "name": "jf-0a1b",
        "namespace": "ml",
        "uid": "g",
        "resourceVersion": "7",
        "creationTimestamp": "2026-03-01T10:00:00Z",
        "ownerReferences": [{"kind": "Job", "name": "jf", "controller": True}],
    },
    "spec": {
        "minMember": 3,
        "minTaskMember": {"ps": 1, "worker": 2},
        "minResources": {"cpu": "4", "requests.cpu": "3500m", "memory": "1Gi", "pods": "3"},
        "queue": "small",
        "priorityClassName": "high",
    },
    "status": {
        "phase": "Inqueue",
        "running": 1,
        "conditions": [{"type": "Scheduled", "status": "False", "reason": "r", "message": "m"}],
    },
}


def volcano(**spec):
    return decode_volcano_group(json.dumps({"metadata": {"name": "g"}, "spec": spec}).encode())


KEY = "volcano.sh/preemptable"


@pytest.mark.parametrize(
    ("meta", "stays"),
    [
        ({}, False),
        ({"annotations": {KEY: "false"}}, True),
        ({"labels": {KEY: "False"}}, True),
        ({"annotations": {KEY: "true"}, "labels": {KEY: "false"}}, False),
        ({"annotations": {KEY: "no"}}, True),
    ],
)
def test_a_group_stays_if_its_annotation_or_else_its_label_says_so(meta, stays):
    found = decode_volcano_group(json.dumps({"metadata": {"name": "g", **meta}}).encode())
    assert found.stays is stays


def native(**spec):
    return decode_native_group(json.dumps({"metadata": {"name": "g"}, "spec": spec}).encode())


def queue(**spec):
    return decode_queue(json.dumps({"metadata": {"name": "q"}, "spec": spec}).encode())


def test_everything_that_a_gang_needs_is_read():
    found = decode_volcano_group(json.dumps(MIXED).encode())
    assert found.key == GroupKey(GroupKind.VOLCANO, "ml", "jf-0a1b")
    assert (found.uid, found.resource_version, found.owner, found.created_s) == ("g", "7", "Job/jf", 1772359200)
    assert (found.min_member, found.min_task_member) == (3, {"ps": 1, "worker": 2})
    assert found.min_resources == {"cpu": 4000, "requests.cpu": 3500, "memory": 2**30, "pods": 3}
    assert (found.queue, found.priority_class, found.problems) == ("small", "high", ())
    assert (found.status.phase, found.status.written, found.status.running) == (GroupPhase.INQUEUE, True, 1)
    assert [(one.type, one.status) for one in found.status.conditions] == [("Scheduled", False)]


def test_a_group_without_a_phase_is_pending_and_nobody_wrote_that():
    found = volcano(minMember=2)
    assert (found.status.phase, found.status.written, found.queue) == (GroupPhase.PENDING, False, "default")
    assert found.min_resources is None


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, NetworkTopology()),
        ({"mode": "hard", "highestTierAllowed": 0}, NetworkTopology(highest=0)),
        ({"mode": "soft", "highestTierName": "rack"}, NetworkTopology(hard=False, highest_name="rack")),
        (None, None),
    ],
)
def test_a_network_topology_is_hard_unless_it_says_soft(asked, found):
    assert volcano(networkTopology=asked).network_topology == found
    (subgroups,) = volcano(subGroupPolicy=[{"networkTopology": asked}]).sub_groups
    assert subgroups.network_topology == found


def test_minimums_of_tasks_hold_only_where_the_group_wants_all_of_them():
    assert volcano(minMember=3, minTaskMember={"a": 1, "b": 2}).task_minimums == {"a": 1, "b": 2}
    assert volcano(minMember=2, minTaskMember={"a": 1, "b": 2}).task_minimums == {}


@pytest.mark.parametrize(
    ("spec", "problems"),
    [
        ({"subGroupPolicy": [{"name": "w"}]}, ()),
        ({"subGroupPolicy": [{"name": "w"}, {"name": "v", "minSubGroups": 1}]}, ()),
        ({"subGroupPolicy": [{"name": "w"}, {"name": "w"}]}, ("spec.subGroupPolicy with one name twice",)),
        (
            {"subGroupPolicy": [{"name": "w", "minSubGroups": 10_001}]},
            ("more than 10000 subgroups in spec.subGroupPolicy",),
        ),
        (
            {"subGroupPolicy": [{"name": f"w{at}"} for at in range(1001)]},
            ("more than 1000 entries in spec.subGroupPolicy",),
        ),
        (
            {"subGroupPolicy": [{"name": "w", "matchLabelKeys": ["part"] * 10_001}]},
            ("more than 10000 matchLabelKeys and values of labelSelectors in spec.subGroupPolicy",),
        ),
        (
            {
                "subGroupPolicy": [
                    {
                        "name": "w",
                        "labelSelector": {
                            "matchExpressions": [{"key": "a", "operator": "In", "values": [*map(str, range(10_000))]}]
                        },
                    }
                ]
            },
            ("more than 10000 matchLabelKeys and values of labelSelectors in spec.subGroupPolicy",),
        ),
        (
            {"minTaskMember": {f"t{at}": 1 for at in range(1001)}},
            ("more than 1000 tasks in spec.minTaskMember",),
        ),
    ],
)
def test_what_is_not_honoured_is_named(spec, problems):
    assert volcano(minMember=1, **spec).problems == problems


def test_subgroups_are_read():
    policy = {
        "name": "w",
        "labelSelector": {"matchLabels": {"role": "w"}},
        "matchLabelKeys": ["part"],
        "subGroupSize": 4,
        "minSubGroups": 2,
    }
    found = volcano(minMember=1, subGroupPolicy=[policy, {}]).sub_groups
    selector = (Requirement(key="role", operator="In", values=("w",)),)
    assert found == (SubGroups(name="w", selector=selector, keys=("part",), size=4, least=2), SubGroups(name="1"))


def test_a_native_group_wants_its_minimum_count():
    found = native(schedulingPolicy={"gang": {"minCount": 4}})
    assert (found.key.kind, found.min_member, found.queue, found.problems) == (GroupKind.NATIVE, 4, "", ())
    assert native(schedulingPolicy={"basic": {}}).min_member == 0


@pytest.mark.parametrize(
    ("spec", "problems"),
    [
        ({}, ("spec.schedulingPolicy",)),
        ({"schedulingPolicy": {"together": {}}}, ("spec.schedulingPolicy",)),
        (
            {"schedulingPolicy": {"basic": {}}, "schedulingConstraints": {"topology": [{"key": "a"}, {"key": "b"}]}},
            ("spec.schedulingConstraints.topology of more than one key",),
        ),
        ({"schedulingPolicy": {"basic": {}}, "resourceClaims": [{"name": "c"}]}, ("spec.resourceClaims",)),
        (
            {"schedulingPolicy": {"basic": {}}, "parentCompositePodGroupName": "c"},
            ("spec.parentCompositePodGroupName",),
        ),
        ({"schedulingPolicy": {"basic": {}}, "disruptionMode": {"half": {}}}, ("spec.disruptionMode",)),
        ({"schedulingPolicy": {"basic": {}}, "disruptionMode": "Half"}, ("spec.disruptionMode",)),
    ],
)
def test_what_a_native_group_asks_beyond_its_count_is_named(spec, problems):
    assert native(**spec).problems == problems


@pytest.mark.parametrize(
    ("mode", "whole"),
    [(None, None), ("Pod", False), ("PodGroup", True), ({"single": {}}, False), ({"all": {}}, True)],
)
def test_a_native_group_says_in_words_or_as_a_union_whether_it_leaves_whole(mode, whole):
    found = native(schedulingPolicy={"basic": {}}, disruptionMode=mode)
    assert (found.disrupted_together, found.problems) == (whole, ())


def test_the_importance_of_a_native_group_is_read():
    found = native(schedulingPolicy={"basic": {}}, priorityClassName="high", priority=7, preemptionPolicy="Never")
    assert (found.priority_class, found.priority, found.preempts) == ("high", 7, False)
    plain = native(schedulingPolicy={"basic": {}})
    assert (plain.priority, plain.preempts) == (None, True)


def test_the_topology_key_of_a_native_group_is_read():
    constraints = {"topology": [{"key": "example.com/rack"}]}
    assert native(schedulingPolicy={"basic": {}}, schedulingConstraints=constraints).topology_key == "example.com/rack"


def test_a_number_that_is_too_large_is_told_in_plain_words():
    with pytest.raises(InvalidRequestError, match="found 'a number above 2147483647'"):
        volcano(minMember=2**31)


@pytest.mark.parametrize("spec", [{"minMember": -1}, {"minMember": 2**31}, {"minResources": {"cpu": "lots"}}])
def test_a_group_that_cannot_be_read_is_refused_whole_and_salvaged_by_name(spec):
    with pytest.raises(InvalidRequestError):
        volcano(**spec)
    found = salvage_group(GroupKind.VOLCANO, json.dumps({"metadata": {"name": "g"}, "spec": spec}).encode())
    assert (found.key.name, found.problems) == ("g", (UNREADABLE,))


def test_the_amounts_of_a_queue_are_read_as_integers():
    found = queue(
        weight=3,
        capability={"cpu": "1500m", "volcano.sh/vgpu-memory": "64k"},
        guarantee={"resource": {"memory": "1Ki"}},
        deserved={"cpu": 2},
        reclaimable=False,
        parent="root",
        priority=5,
    )
    assert (found.weight, found.capability) == (3, {"cpu": 1500, "volcano.sh/vgpu-memory": 64000})
    assert (found.guarantee, found.deserved) == ({"memory": 1024}, {"cpu": 2000})
    assert (found.reclaimable, found.parent, found.priority, found.problems) == (False, "root", 5, ())


def test_a_queue_with_a_limit_larger_than_all_there_is_takes_pods():
    found = queue(capability={"cpu": "10E", "volcano.sh/vgpu-number": "9223372036854775808", "memory": "1Ki"})
    assert found.capability == {"cpu": MAX_AMOUNT, "volcano.sh/vgpu-number": MAX_AMOUNT, "memory": 1024}
    assert not found.problems


def test_a_queue_says_whether_it_takes_groups():
    texts = {state: b'{"status":{"state":"' + state.encode() + b'"}}' for state in ("", "Open", "Closing", "Closed")}
    assert [state for state, text in texts.items() if decode_queue(text).is_open] == ["", "Open"]


def test_a_queue_of_node_groups_is_not_honoured():
    assert queue(affinity={}, extendClusters=[{}]).problems == ("spec.affinity", "spec.extendClusters")


def test_a_queue_that_cannot_be_read_is_there_all_the_same():
    text = b'{"metadata":{"name":"q"},"spec":{"capability":{"cpu":"-1"}}}'
    with pytest.raises(InvalidRequestError, match=r"spec\.capability\.cpu"):
        decode_queue(text)
    assert salvage_queue(text).problems == (UNREADABLE,)
