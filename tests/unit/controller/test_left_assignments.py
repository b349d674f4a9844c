"""Pods that wait with an assignment that nobody bound: Volcano up to v1.15 wrote it first, and left it (nvidia 4.3).

A device plugin looks for its pod by these annotations alone, and would serve another pod's call by them (nvidia 2.4).
"""

import pytest

from controller.actions import Bind
from tests.support.worlds.world import World, node, on, pod

TO_ALLOCATE, QUEUE = "volcano.sh/devices-to-allocate", "cardshare.io/segment-queue"


def left_on(name, devices=1):
    text = "".join(f"{name}-{at},NVIDIA,1000,0:" for at in range(devices))
    return {
        "volcano.sh/vgpu-node": name,
        "volcano.sh/vgpu-time": "7",
        "volcano.sh/vgpu-ids-new": text,
        TO_ALLOCATE: text,
        "volcano.sh/bind-phase": "allocating",
    }


def clears(world):
    """Have all annotations cleared that are to be."""
    found = world.clears()
    for one in found:
        before = world.pods[one.pod.uid]
        assert one.version == before.resource_version
        world.scheduler.cleared(one.pod.uid, done=True)
        world.shows(before, annotations={**before.annotations, **one.annotations})
    return [(one.pod.name, dict(one.annotations)) for one in found]


def test_what_was_left_on_a_pod_is_cleared_and_the_pod_then_bound():
    world = World(node("n1"))
    world.adds(pod("p", annotations={**left_on("n1"), QUEUE: "vgpu/1 ;g,NVIDIA,1,0:"}))
    assert world.binds() == []
    assert world.wait("p").message.startswith("CS510 ")
    assert "n1" in world.wait("p").text
    assert clears(world) == [("p", {TO_ALLOCATE: "", QUEUE: ""})]
    assert world.placed() == {"p": "n1"}
    assert world.clears() == []


def test_until_then_the_pod_goes_nowhere_and_what_could_be_mistaken_for_it_not_to_its_node():
    world = World(node("n1", labels={"name": "n1"}), node("n2", labels={"name": "n2"}))
    world.adds(pod("p", annotations=left_on("n2"), constraints=on("n1")))
    world.adds(pod("q", constraints=on("n1")), pod("r", constraints=on("n2")))
    (bind,) = world.binds()
    assert (bind.pod.name, bind.node) == ("q", "n1")
    world.accepts(bind)
    clears(world)
    world.passes(0.5)
    assert [(bind.pod.name, bind.node) for bind in world.actions(Bind)] == [("r", "n2")]
    world.serves("q")
    assert [(bind.pod.name, bind.node) for bind in world.binds()] == [("p", "n1")]


@pytest.mark.parametrize("fields", [{"scheduler_name": "volcano"}, {"gated": True}], ids=["another's", "gated"])
def test_what_another_may_be_about_to_bind_is_left_as_it_is(fields):
    world = World(node("n1"))
    world.adds(pod("p", annotations=left_on("n1"), **fields), pod("q"))
    assert world.binds() == []
    assert world.clears() == []


def test_a_pod_that_comes_to_be_ours_is_cleared_then():
    world = World(node("n1"))
    waiting = world.shows(pod("p", annotations=left_on("n1"), gated=True))
    world.shows(waiting, gated=False)
    assert clears(world) == [("p", {TO_ALLOCATE: ""})]
    assert world.placed() == {"p": "n1"}


def test_the_pods_of_a_name_that_comes_to_be_ours_are_cleared_too():
    world = World(node("n1"))
    world.adds(pod("p", annotations=left_on("n1"), scheduler_name="volcano"))
    world.configures(scheduler_names=("cardshare", "volcano"))
    assert world.binds() == []
    assert clears(world) == [("p", {TO_ALLOCATE: ""})]
    assert world.placed() == {"p": "n1"}


def test_a_clearing_that_came_too_late_is_asked_for_again():
    world = World(node("n1"))
    shown = world.shows(pod("p", annotations=left_on("n1")))
    (first,) = world.clears()
    world.scheduler.cleared(first.pod.uid, done=False)
    world.shows(shown, labels={"x": "y"})
    assert clears(world) == [("p", {TO_ALLOCATE: ""})]
    assert world.placed() == {"p": "n1"}


@pytest.mark.parametrize("name", ["cardshare", "volcano"])
def test_who_takes_the_assignment_off_frees_pod_and_node(name):
    world = World(node("n1"))
    shown = world.shows(pod("p", annotations=left_on("n1"), scheduler_name=name))
    world.adds(pod("q"))
    assert world.binds() == []
    world.shows(shown, annotations={})
    world.passes(0.5)
    assert set(world.placed()) == ({"p", "q"} if name == "cardshare" else {"q"})


def test_so_does_who_took_it_off_after_our_binding_was_refused_because_of_it():
    world = World(node("n1"))
    shown = world.shows(pod("p"))
    (bind,) = world.binds()
    world.shows(shown, annotations=left_on("n1"))
    world.scheduler.outcomes.refused(bind.pod.uid, bind.attempt)
    assert world.binds() == []
    world.shows(shown, annotations={})
    world.passes(0.5)
    assert [one.pod.name for one in world.actions(Bind)] == ["p"]


def test_for_a_plugin_that_goes_by_time_alone_the_time_is_cleared_as_well():
    beats = {"volcano.sh/node-vgpu-handshake": "Requesting_2026.01.01 00:00:00"}
    made = node("n1")
    world = World(node("n1", annotations={**made.annotations, **beats}))
    world.adds(pod("p", annotations=left_on("n1")))
    assert clears(world) == [("p", {TO_ALLOCATE: "", "volcano.sh/vgpu-time": "18446744073709551615"})]
    assert world.placed() == {"p": "n1"}
