"""Etcd goes back to a backup: a full list is the truth, whatever was known of a pod."""

import asyncio
from typing import Any

import pytest

from controller.actions import Inbox
from controller.scheduler_names import SchedulerNames
from controller.watches import PodSink
from kube.reflector import EventKind
from tests.support.worlds.world import World, node, pod


def listed(world, *pods, version="", back=False):
    world.pods = {one.uid: one for one in pods}
    for _ in world.scheduler.pods_replaced(pods, version, has_gone_back=back):
        pass


@pytest.mark.parametrize(
    ("version", "back"), [("900", False), ("60", True)], ids=["revisions go on", "revisions go back"]
)
def test_a_pod_whose_binding_the_backup_does_not_have_is_decided_again(version, back):
    world = World(node("n1", memory=1000))
    waiting = pod("p", resource_version="50")
    listed(world, waiting)
    (bind,) = world.binds()
    world.accepts(bind)
    world.serves("p")
    listed(world, waiting, version=version, back=back)
    assert world.holders("n1") == set()
    assert world.binds() == []
    assert world.moves() == ["p"]
    (again,) = world.binds()
    assert again.pod.name == "p"


def test_after_a_restore_the_fence_of_a_leader_that_fenced_before_is_written_although_nothing_else_happens():
    world = World(node("n1"))
    waiting, bound = pod("p", resource_version="50"), pod("q", resource_version="51")
    listed(world, bound, waiting)
    world.scheduler.take_over(("cardshare",))
    world.plan()
    assert sorted(world.moves()) == ["p", "q"]
    for bind in world.binds():
        world.accepts(bind)
        world.serves(bind.pod.name)
    listed(world, bound, waiting, version="60", back=True)
    world.plan()
    assert sorted(world.moves()) == ["p", "q"]
    assert world.binds()


def test_after_a_restore_no_pod_in_line_is_bound_before_the_fence_is_written():
    world = World(node("n1"))
    first, second, third = [pod(f"{at}", resource_version=f"5{at}") for at in (1, 2, 3)]
    listed(world, first)
    (bind,) = world.binds()
    world.accepts(bind)
    world.adds(second)
    assert world.binds() == []
    assert world.stage("2") == "turn"
    waiting = world.seen("2")
    listed(world, world.seen("1"), waiting, third, version="60", back=True)
    assert world.stage("2") == "turn"
    world.serves("1")
    assert world.binds() == []
    assert sorted(world.moves()) == ["2", "3"]
    assert [bind.pod.name for bind in world.binds()] == ["2"]


@pytest.mark.parametrize(
    ("version", "back"), [("900", False), ("60", True)], ids=["revisions go on", "revisions go back"]
)
def test_a_pod_that_no_watch_showed_on_its_node_before_the_restore_is_decided_again(version, back):
    world = World(node("n1", memory=1000))
    waiting = pod("p", resource_version="50")
    listed(world, waiting)
    (bind,) = world.binds()
    world.scheduler.outcomes.bound(bind.pod.uid, bind.attempt)
    listed(world, waiting, version=version, back=back)
    assert (world.stage("p"), world.holders("n1")) == ("settling", {"uid-p"})
    world.reads_back(waiting)
    assert world.holders("n1") == set()
    world.plan()
    world.moves()
    (again,) = world.binds()
    assert again.pod.name == "p"


def test_a_list_from_before_a_binding_costs_a_read_and_frees_nothing():
    world = World(node("n1", memory=1000))
    waiting = pod("p", resource_version="50")
    listed(world, waiting)
    (bind,) = world.binds()
    world.scheduler.outcomes.bound(bind.pod.uid, bind.attempt)
    listed(world, waiting, version="60")
    world.reads_back(waiting._replace(node_name="n1", annotations=bind.annotations, resource_version="61"))
    assert (world.stage("p"), world.holders("n1")) == ("none", {"uid-p"})


def test_a_list_that_began_before_an_answer_came_takes_nothing_back():
    world = World(node("n1", memory=1000))
    waiting = pod("p", resource_version="50")
    listed(world, waiting)
    (bind,) = world.binds()
    world.accepts(bind)
    listed(world, waiting, version="60")
    assert world.holders("n1") == {"uid-p"}
    world.pods = {bind.pod.uid: world.scheduler.cluster.carded[bind.pod.uid]}


def test_the_same_version_of_another_history_is_another_pod():
    world = World(node("n1", memory=1000))
    waiting = pod("p", resource_version="50")
    listed(world, waiting)
    (bind,) = world.binds()
    bound = world.accepts(bind)
    listed(world, waiting._replace(resource_version=bound.resource_version), version="60", back=True)
    assert world.holders("n1") == set()


def test_a_pod_that_no_list_has_is_forgotten():
    world = World(node("n1", memory=1000))
    world.adds(pod("p"))
    (bind,) = world.binds()
    world.accepts(bind)
    listed(world, version="60", back=True)
    assert (world.holders("n1"), world.stage("p")) == (set(), "none")


class _Scheduler:
    def __init__(self):
        self.lists = []

    def pods_replaced(self, pods, version, *, has_gone_back):
        self.lists.append((version, has_gone_back))

    def pod_changed(self, pod): ...
    def pod_gone(self, uid): ...


async def test_a_list_that_is_older_than_a_watch_before_it_is_of_a_backup():
    scheduler: Any = _Scheduler()
    inbox = Inbox(lambda: 0.0)
    sink = PodSink(scheduler, inbox, SchedulerNames(()))

    async def works(call):
        task = asyncio.create_task(call, name="told")
        await asyncio.sleep(0)
        inbox.work(1.0)
        await task

    await works(sink.on_replace((), "100"))
    await works(sink.on_event(EventKind.MODIFIED, pod("p", resource_version="150")))
    await works(sink.on_replace((), "150"))
    await works(sink.on_event(EventKind.DELETED, pod("p", resource_version="170")))
    await works(sink.on_replace((), "160"))
    await works(sink.on_replace((), "161"))
    assert scheduler.lists == [("100", False), ("150", False), ("160", True), ("161", False)]
