"""Pods to which Volcano's PodGroup controller may give a group wait for it: no gang starts in part."""

from typing import Any

from controller.deciding.pending import GROUP_GIVEN_S
from core.groups import GroupKey, GroupKind, GroupSpec, QueueSpec
from core.waiting import Cause
from tests.support.worlds.world import START_UNIX_S, World, node, pod

KEY = GroupKey(GroupKind.VOLCANO, "default", "podgroup-u")
NAMED = {"scheduling.k8s.io/group-name": "podgroup-u"}
MIN = "scheduling.volcano.sh/group-min-member"
OF_A_SET: dict[str, Any] = {"scheduler_name": "volcano", "owner": "ReplicaSet/web"}


def world(*specs, served=True):
    found = World(node("n1", cards=8), scheduler_names=("cardshare", "volcano"))
    if served:
        found.groups_are(*specs, queues=[QueueSpec(name="default")])
    else:
        found.has_no_kind()
    return found


def group(least):
    return GroupSpec(key=KEY, uid="u", resource_version="1", min_member=least)


def test_four_of_five_pods_wait_before_and_after_they_are_named():
    found = world()
    found.adds(*(pod(f"p{at}", **OF_A_SET) for at in range(4)))
    assert found.placed() == {}
    assert found.wait("p0").cause is Cause.WAITING_FOR_GROUP
    found.owner.groups.changed(group(5))
    for at in range(4):
        found.shows(found.seen(f"p{at}"), annotations=NAMED)
    found.passes(2 * GROUP_GIVEN_S)
    assert found.placed() == {}
    found.adds(pod("p4", **OF_A_SET, created_s=START_UNIX_S + 2 * int(GROUP_GIVEN_S)))
    assert found.placed() == {}
    found.shows(found.seen("p4"), annotations=NAMED)
    assert len(found.placed()) == 5


def test_a_pod_that_nobody_names_is_placed_alone_after_a_while():
    found = world()
    found.adds(pod("p", **OF_A_SET))
    found.passes(GROUP_GIVEN_S - 1.0)
    assert found.placed() == {}
    found.passes(2.0)
    assert found.placed() == {"p": "n1"}


def test_a_pod_that_was_created_long_ago_does_not_wait():
    found = world()
    found.adds(pod("p", **OF_A_SET, created_s=START_UNIX_S - 60))
    assert found.placed() == {"p": "n1"}


def test_only_pods_of_a_controller_under_volcanos_name_wait_and_only_if_there_are_podgroups():
    found = world()
    found.adds(pod("bare", scheduler_name="volcano"), pod("ours", owner="ReplicaSet/web"))
    assert found.placed().keys() == {"bare", "ours"}
    found = world(served=False)
    found.adds(pod("p", **OF_A_SET))
    assert found.placed().keys() == {"p"}


def test_a_pod_that_asks_for_others_beside_it_waits_for_its_group_however_long_that_takes():
    found = world()
    found.adds(pod("p", owner="Job/j", annotations={MIN: "5"}), pod("one", annotations={MIN: "1"}))
    found.passes(10 * GROUP_GIVEN_S)
    assert found.placed().keys() == {"one"}
    assert found.wait("p").cause is Cause.WAITING_FOR_GROUP
    assert "asks for 5 pods together, but it names no group" in found.wait("p").text
