"""When a member leaves, fails or comes back, the others are told what is true then, or decided."""

from unittest.mock import Mock

import pytest

from core.groups import OUT_OF_SYNC, GroupSpec, NetworkTopology
from core.model import GroupKey, GroupKind, Phase
from tests.support.worlds.world import World, node, pod

NAMED = "scheduling.k8s.io/group-name"
LEAST = "scheduling.volcano.sh/group-min-member"
THREE = {NAMED: "g", LEAST: "3"}
TWO = {NAMED: "g", LEAST: "2"}


def world_of(*pods, memory=10_000):
    world = World(node("n1", memory=memory))
    world.has_no_kind()
    world.adds(*pods)
    world.passes(1.0)
    return world


def runs(name, **changes):
    return pod(name, annotations=TWO, node_name="n1", limits={"cpu": "1"}, phase=Phase.RUNNING, started=True, **changes)


def test_how_many_can_be_decided_is_told_when_one_goes():
    world = world_of(pod("a", annotations=THREE), pod("b", annotations=THREE))
    assert "2 are ready" in world.wait("a").text
    world.scheduler.cluster.unreported.clear()
    world.gone("b")
    world.passes(1.0)
    assert "1 is ready" in world.wait("a").text
    assert world.entry("a").pod.uid in world.scheduler.cluster.unreported


def test_nobody_is_pointed_to_a_member_that_is_gone():
    world = world_of(pod("a", annotations=THREE), pod("b", annotations=THREE), pod("c", annotations=THREE, gated=True))
    assert "1 more is not ready" in world.wait("a").text
    world.gone("c")
    world.passes(1.0)
    assert "not ready" not in world.wait("a").text


@pytest.mark.parametrize(
    ("member", "said"),
    [({"gated": True}, "1 more is not ready"), ({"scheduler_name": "other"}, "1 more names another scheduler")],
)
def test_that_a_member_came_which_may_not_be_placed_is_said_by_those_that_wait(member, said):
    world = world_of(pod("a", annotations=THREE), pod("b", annotations=THREE))
    advice = f"Create 1 more, or set annotation {LEAST} to 2"
    assert advice in world.wait("a").text
    world.adds(pod("c", annotations=THREE, **member))
    world.passes(1.0)
    assert said in world.wait("a").text
    assert "Create" not in world.wait("a").text


def test_that_a_gate_of_another_schedulers_member_is_lifted_is_said_by_those_that_wait():
    gated = pod("c", annotations=THREE, scheduler_name="other", gated=True)
    world = world_of(pod("a", annotations=THREE), pod("b", annotations=THREE), gated)
    assert "1 more is not ready" in world.wait("a").text
    world.shows(world.seen("c"), gated=False)
    world.passes(1.0)
    assert "1 more names another scheduler: write cardshare" in world.wait("a").text


def test_that_another_schedulers_pod_names_its_group_late_is_said_by_those_that_wait():
    world = world_of(pod("a", annotations=THREE), pod("b", annotations=THREE), pod("c", scheduler_name="other"))
    assert "Create 1 more" in world.wait("a").text
    world.shows(world.seen("c"), annotations=THREE)
    world.passes(1.0)
    assert "1 more names another scheduler: write cardshare" in world.wait("a").text


def test_that_a_member_is_missing_is_told_instead_of_room():
    world = world_of(*[pod(name, annotations=THREE) for name in "abc"], memory=100)
    assert "0 of the 3 members" in world.wait("a").text
    world.gone("c")
    world.passes(1.0)
    assert "2 are ready" in world.wait("a").text
    assert world.wait("b") == world.wait("a")


def test_a_member_that_fails_counts_no_more_for_those_that_wait():
    world = world_of(runs("a"), pod("b", annotations={**TWO, LEAST: "3"}))
    assert "2 are ready" in world.wait("b").text
    world.shows(world.seen("a"), phase=Phase.FAILED)
    world.passes(1.0)
    assert "1 is ready" in world.wait("b").text


def test_a_member_that_ends_well_while_it_is_deleted_counts_for_those_that_wait():
    world = world_of(runs("a", deleting=True), pod("b", annotations=TWO))
    assert world.stage("b") == "held"
    world.shows(world.seen("a"), phase=Phase.SUCCEEDED)
    world.passes(1.0)
    assert world.stage("b") == "binding"


def test_a_member_that_its_controller_keeps_after_all_counts_for_those_that_wait():
    world = world_of(runs("a"))
    world.shows(world.seen("a"), annotations={**TWO, OUT_OF_SYNC: "true"})
    world.adds(pod("b", annotations=TWO))
    world.passes(1.0)
    assert world.stage("b") == "held"
    world.shows(world.seen("a"), annotations=TWO)
    world.passes(1.0)
    assert world.stage("b") == "binding"


@pytest.mark.parametrize("was_seen_before", [True, False])
def test_a_member_that_another_scheduler_binds_counts_for_those_that_wait(was_seen_before):
    world = world_of(*[pod(name, annotations=THREE, limits={"cpu": "1"}) for name in "ab"])
    other = pod("c", annotations=THREE, limits={"cpu": "1"}, scheduler_name="other")
    if was_seen_before:
        world.adds(other)
        world.passes(1.0)
    assert world.stage("a") == world.stage("b") == "held"
    world.shows(other, node_name="n1")
    world.passes(1.0)
    assert world.stage("a") == world.stage("b") == "binding"


def test_those_that_wait_are_found_in_one_look_at_the_group(monkeypatch):
    world = World(node("n1", labels={"rack": "a"}), network_tiers=("rack",))
    near = NetworkTopology(hard=True, highest=1)
    world.groups_are(GroupSpec(key=GroupKey(GroupKind.VOLCANO, "default", "g"), uid="u", network_topology=near))
    world.adds(*[pod(f"p{at:02d}", memory=10_000, annotations={NAMED: "g"}) for at in range(20)])
    world.passes(1.0)
    waiting = [entry for entry in world.scheduler.cluster.queue if entry.stage.value == "refused"]
    assert len(waiting) == 19
    units = world.scheduler.cluster.gangs
    gang = Mock(wraps=units.gang)
    monkeypatch.setattr(units, "gang", gang)
    world.gone("p19")
    assert gang.call_count == 1
    assert [entry.stage.value for entry in waiting[:-1]] == ["ready"] * 18
