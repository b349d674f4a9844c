"""Groups that lack members come before surplus pods of groups that have their minimum."""

from core.groups import GroupSpec, QueueSpec
from core.model import GroupKey, GroupKind
from tests.support.worlds.world import World, node, pod

MIB = 10_000
GROUP = "scheduling.k8s.io/group-name"


def group(name, least):
    key = GroupKey(GroupKind.VOLCANO, "default", name)
    return GroupSpec(key=key, uid=name, resource_version="1", min_member=least)


def member(name, of, **fields):
    return pod(name, memory=MIB, annotations={GROUP: of}, **fields)


def world(cards):
    found = World(node("n1", cards=cards))
    found.groups_are(group("elastic", 1), group("gang", 3), queues=[QueueSpec(name="default")])
    return found


def test_a_gang_that_lost_a_pod_comes_before_older_surplus_pods():
    found = world(cards=4)
    found.adds(*(member(name, "gang") for name in ("g0", "g1", "g2")))
    found.adds(*(member(name, "elastic") for name in ("e0", "e1", "e2")))
    assert found.placed().keys() == {"g0", "g1", "g2", "e0"}
    later_s = pod("x").created_s + 60
    found.adds(pod("blocker", memory=MIB, priority=9))
    found.gone("g1")
    found.passes(1.0)
    assert "blocker" in found.placed()
    found.adds(member("g3", "gang", created_s=later_s))
    found.gone("blocker")
    found.passes(1.0)
    assert found.placed().keys() == {"g0", "g2", "g3", "e0"}


def test_a_higher_priority_comes_first_all_the_same():
    found = world(cards=1)
    found.adds(member("e0", "elastic"))
    found.placed()
    found.adds(member("e1", "elastic", priority=5), pod("alone", memory=MIB))
    found.gone("e0")
    found.passes(1.0)
    assert found.placed().keys() == {"e1"}


def test_a_group_below_its_minimum_again_has_no_surplus():
    found = world(cards=1)
    found.adds(member("e0", "elastic"))
    found.placed()
    found.adds(member("e1", "elastic"), pod("alone", memory=MIB, created_s=pod("x").created_s + 60))
    found.gone("e0")
    found.passes(1.0)
    assert found.placed().keys() == {"e1"}


def test_a_pod_that_has_just_arrived_comes_before_one_of_a_lower_priority_that_was_woken():
    found = World(node("n1"))
    found.adds(pod("held", memory=MIB), pod("low", memory=MIB))
    found.placed()
    found.adds(pod("high", memory=MIB, priority=9))
    found.gone("held")
    found.passes(1.0)
    assert found.placed().keys() == {"high"}


def test_a_gang_that_lost_a_pod_comes_before_older_single_pods():
    """What the other members hold is of no use until the gang is whole again (Volcano, issue 5805)."""
    found = world(cards=3)
    found.adds(*(member(name, "gang") for name in ("g0", "g1", "g2")))
    assert found.placed().keys() == {"g0", "g1", "g2"}
    later_s = pod("x").created_s + 60
    found.adds(pod("blocker", memory=MIB, priority=9), pod("older", memory=MIB))
    found.gone("g1")
    found.passes(1.0)
    assert "blocker" in found.placed()
    found.adds(member("g3", "gang", created_s=later_s))
    found.gone("blocker")
    found.passes(1.0)
    assert found.placed().keys() == {"g0", "g2", "g3"}
