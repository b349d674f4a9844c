"""A started pod is removed by force: its processes run on for a while, and so do its cards."""

import pytest

from tests.support.worlds.world import World, node, pod


@pytest.fixture
def world():
    found = World(node("n1", memory=1000))
    found.adds(pod("p"))
    found.placed()
    found.adds(pod("q"))
    assert found.binds() == []
    return found


def places(world):
    return [bind.pod.name for bind in world.binds()]


def test_its_cards_are_free_after_the_shortest_grace_period_and_a_margin(world):
    world.gone("p", by_force=True)
    assert places(world) == []
    world.now_s += 4.9
    assert places(world) == []
    world.now_s += 0.6
    assert places(world) == ["q"]


def test_a_pod_that_has_ended_before_it_goes_holds_nothing(world):
    world.gone("p")
    assert world.holders("n1") == set()


def test_while_its_node_is_not_ready_it_keeps_them_and_as_long_after_that(world):
    world.owner.nodes.changed(node("n1", memory=1000, ready=False, version="2"))
    world.gone("p", by_force=True)
    for _ in range(300):
        world.passes(1.0)
    assert world.holders("n1") == {"uid-p"}
    world.owner.nodes.changed(node("n1", memory=1000, version="3"))
    assert places(world) == []
    world.now_s += 5.6
    assert places(world) == ["q"]


def test_it_keeps_them_over_a_list_and_no_longer_than_its_node_is_there(world):
    world.gone("p", by_force=True)
    for _ in world.owner.pods_replaced(tuple(world.pods.values()), "900"):
        pass
    assert world.holders("n1") == {"uid-p"}
    world.owner.nodes.gone("n1")
    world.passes(1.0)
    assert not world.owner.vanished.uids
    world.owner.nodes.changed(node("n1", memory=1000, version="4"))
    assert places(world) == ["q"]


def test_0_seconds_hold_nothing_on_a_node_that_is_ready():
    world = World(node("n1", memory=1000), removed_pod_hold_s=0.0)
    world.adds(pod("p"))
    world.placed()
    world.adds(pod("q"))
    world.gone("p", by_force=True)
    assert places(world) == ["q"]
