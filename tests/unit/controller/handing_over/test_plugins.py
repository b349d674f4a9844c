"""Device plugins whose own pods say that they do not run."""

import pytest

from controller.handing_over.plugins import GONE_S, NOT_READY_S
from core.model import Pod, PodUid
from tests.support.worlds.world import World, node, pod


def plugin(uid="plugin", **fields):
    given = {
        "uid": PodUid(uid),
        "namespace": "kube-system",
        "name": uid,
        "owner": "DaemonSet/volcano-device-plugin",
        "service_account": "volcano-device-plugin",
        "node_name": "n1",
        "ready": True,
    }
    return Pod(**(given | fields))


def world_with(*plugins):
    world = World(node("n1"))
    for one in plugins:
        world.shows(one)
    return world


def goes(world):
    del world.pods[PodUid("plugin")]
    world.owner.pod_gone(PodUid("plugin"))


def test_nothing_is_bound_while_the_pod_of_the_plugin_is_not_ready_and_it_is_told_at_once():
    world = world_with(plugin())
    world.shows(plugin(), ready=False)
    world.adds(pod("a"))
    assert world.binds() == []
    assert world.stage("a") == "turn"
    assert world.wait("a").message.startswith("CS513 ")
    assert "its device plugin's pod kube-system/plugin is not ready" in world.wait("a").text
    assert PodUid("uid-a") in world.owner.planner.unreported
    world.passes(5.0)
    assert world.binds() == []
    world.shows(plugin(), ready=True)
    assert [bind.pod.name for bind in world.binds()] == ["a"]


@pytest.mark.parametrize(
    "other",
    [
        plugin(ready=False, node_name="n2"),
        plugin(ready=False, owner="ReplicaSet/mine"),
        plugin(ready=False, service_account="default"),
        plugin(ready=False, namespace="elsewhere"),
        plugin(ready=False, service_account="hami-device-plugin"),
    ],
    ids=["another node", "no DaemonSet", "another account", "another namespace", "another protocol"],
)
def test_where_no_pod_of_the_plugin_is_seen_nothing_changes(other):
    world = world_with(other)
    world.adds(pod("a"))
    assert len(world.binds()) == 1


def test_another_node_is_taken_while_the_plugin_of_the_best_is_away():
    world = World(node("n1"), node("n2"))
    world.shows(plugin(ready=False))
    world.adds(pod("a"), pod("b"))
    found = world.placed()
    assert (found["a"], found["b"]) == ("n2", "n2")


@pytest.mark.parametrize("how", ["deleted", "being deleted", "evicted"])
def test_a_plugin_that_goes_is_away_until_the_next_is_ready(how):
    world = world_with(plugin())
    if how == "deleted":
        goes(world)
    else:
        world.shows(plugin(), deleting=how == "being deleted", phase="Failed" if how == "evicted" else "Running")
    world.adds(pod("a"))
    assert world.binds() == []
    world.shows(plugin("next", ready=False))
    world.passes(1.0)
    assert world.binds() == []
    world.shows(plugin("next"))
    assert len(world.binds()) == 1


def test_kubelet_is_believed_after_its_longest_silence():
    gone, broken = world_with(plugin()), world_with(plugin(ready=False))
    goes(gone)
    for world, after_s in ((gone, GONE_S), (broken, NOT_READY_S)):
        world.adds(pod("a"))
        world.passes(after_s - 0.5)
        assert world.binds() == []
        world.passes(1.0)
        (bind,) = world.binds()
        world.accepts(bind)
        world.serves("a")
    # That it is still not ready is no news.
    broken.shows(plugin(ready=False))
    broken.adds(pod("b", memory=1001))
    assert len(broken.binds()) == 1


def test_one_of_two_plugins_that_runs_is_enough():
    world = world_with(plugin(), plugin("old", deleting=True, ready=False))
    world.adds(pod("a"))
    assert len(world.binds()) == 1


def test_a_pod_that_waits_already_is_told_within_a_second_that_its_node_takes_none():
    world = world_with(plugin())
    world.adds(pod("a"), pod("b"))
    (bind,) = world.binds()
    world.accepts(bind)
    assert world.stage("b") == "turn"
    assert world.entry("b").wait is None
    world.shows(plugin(), ready=False)
    world.passes(1.0)
    assert "is not ready" in world.wait("b").text
