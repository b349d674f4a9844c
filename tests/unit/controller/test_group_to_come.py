"""Pods to which Volcano's PodGroup controller may give a group wait for it: no gang starts in part."""

from collections import deque
from typing import Any

import pytest

from controller.actions import Action, ReadOwner
from controller.deciding.pending import ASKED_AGAIN_S, FRESH_S, GROUP_GIVEN_S, GroupOwners
from core.groups import GroupSpec, QueueSpec
from core.model import GroupKey, GroupKind
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
    found.scheduler.cluster.groups.changed(group(5))
    for at in range(4):
        found.shows(found.seen(f"p{at}"), annotations=NAMED)
    found.passes(2 * GROUP_GIVEN_S)
    assert found.placed() == {}
    found.adds(pod("p4", **OF_A_SET, created_s=START_UNIX_S + 2 * int(GROUP_GIVEN_S)))
    assert found.placed() == {}
    found.shows(found.seen("p4"), annotations=NAMED)
    assert len(found.placed()) == 5


def answers(found, members):
    """The owners that are to be read say how many pods are placed together; who was read."""
    reads = found.actions(ReadOwner)
    for one in reads:
        found.scheduler.pending.owners.answered(one.namespace, one.owner, members)
    found.passes(1.0)
    return [one.owner for one in reads]


def test_a_pod_that_nobody_names_is_placed_alone_after_a_while_if_its_owner_does_not_ask_for_more():
    found = world()
    found.adds(pod("p", **OF_A_SET))
    found.passes(GROUP_GIVEN_S - 1.5)
    assert answers(found, 1) == []
    found.passes(2.0)
    assert found.placed() == {}
    assert answers(found, 1) == ["ReplicaSet/web"]
    assert found.placed() == {"p": "n1"}


@pytest.mark.parametrize("behind_s", [0.0, 600.0, 8 * 3600.0])
def test_a_clock_that_is_behind_holds_no_pod_up(behind_s):
    found = world()
    found.behind_s = behind_s
    found.adds(pod("p", **OF_A_SET))
    found.passes(GROUP_GIVEN_S - 1.0)
    assert answers(found, 1) == []
    found.passes(1.0)
    assert answers(found, 1) == ["ReplicaSet/web"]
    assert found.placed() == {"p": "n1"}


def test_pods_whose_owner_asks_for_more_wait_for_their_group_however_long_that_takes():
    found = world()
    found.adds(*(pod(f"p{at}", **OF_A_SET) for at in range(4)))
    found.passes(GROUP_GIVEN_S + 1.0)
    assert answers(found, 5) == ["ReplicaSet/web"], "read once for all its pods"
    for _ in range(20):
        assert found.placed() == {}
        assert found.wait("p0").cause is Cause.WAITING_FOR_GROUP
        assert "its owner 'ReplicaSet/web' asks for 5 pods together" in found.wait("p0").text
        found.passes(FRESH_S)
        assert answers(found, 5) == ["ReplicaSet/web"]
    # The owner says another thing now.
    found.passes(FRESH_S)
    answers(found, 0)
    assert found.placed().keys() == {"p0", "p1", "p2", "p3"}


def test_no_pod_is_placed_before_its_owner_was_read_and_one_without_an_answer_is_read_again():
    found = world()
    found.adds(pod("p", **OF_A_SET, created_s=START_UNIX_S - 60))
    reads = []
    for _ in range(int(ASKED_AGAIN_S) + 2):
        assert found.placed() == {}
        reads += found.actions(ReadOwner)
        found.passes(1.0)
    assert [one.owner for one in reads] == ["ReplicaSet/web", "ReplicaSet/web"]
    found.scheduler.pending.owners.answered("default", "ReplicaSet/web", 0)
    found.passes(1.0)
    assert found.placed() == {"p": "n1"}


def test_an_owner_whose_annotations_volcano_does_not_read_is_not_read():
    found = world()
    found.adds(pod("p", scheduler_name="volcano", owner="Workflow/w", created_s=START_UNIX_S - 60))
    assert found.placed() == {"p": "n1"}
    assert found.actions(ReadOwner) == []


def test_what_owners_said_long_ago_is_forgotten():
    now_s, reads = [0.0], deque[Action]()
    owners = GroupOwners(reads, lambda: now_s[0])
    for at in range(5000):
        now_s[0] += 0.1
        assert owners.members(pod("p", owner=f"Job/{at}")) is None
    assert len(reads) == 5000
    assert len(owners) <= 1024


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
