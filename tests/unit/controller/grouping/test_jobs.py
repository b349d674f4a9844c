"""Jobs whose queue does not exist are found, once it has stayed so, and told again after a while."""

import json

import pytest

from core.groups import QueueSpec
from core.wire.groups import JobSpec, decode_job
from tests.support.worlds.world import World


def job(name="j", queue="missing", *, begun=False):
    return JobSpec(namespace="default", name=name, uid=f"uid-{name}", queue=queue, begun=begun)


@pytest.fixture
def world():
    found = World(scheduler_names=("volcano",))
    found.groups_are(queues=[QueueSpec(name="default")])
    return found


def told(world, seconds=0.0):
    world.passes(seconds)
    return [one.name for one in world.scheduler.jobs.to_tell()]


def test_a_job_of_an_unknown_queue_is_told_after_a_moment_and_again_after_half_an_hour(world):
    world.scheduler.jobs.changed(job())
    world.scheduler.jobs.changed(job("fine", "default"))
    assert told(world, 1.0) == []
    assert told(world, 1.0) == ["j"]
    world.scheduler.jobs.changed(job())
    assert told(world, 1000.0) == []
    assert told(world, 800.0) == ["j"]


def test_a_job_whose_queue_comes_or_that_begins_or_goes_is_told_nothing(world):
    jobs = world.scheduler.jobs
    jobs.changed(job("comes", "late"))
    jobs.changed(job("begins"))
    jobs.changed(job("begins", begun=True))
    jobs.changed(job("goes"))
    jobs.gone(job("goes"))
    jobs.changed(job("unlisted"))
    jobs.replaced([job("comes", "late")])
    world.scheduler.cluster.groups.queue_changed(QueueSpec(name="late"))
    assert told(world, 10.0) == []
    assert len(jobs) == 0


def test_while_queues_are_not_known_nothing_is_told():
    world = World(scheduler_names=("volcano",))
    world.scheduler.jobs.changed(job("j", "default"))
    assert told(world, 10.0) == []
    world.groups_are(queues=[QueueSpec(name="default")])
    assert told(world, 10.0) == []


def test_so_many_are_remembered_and_no_more(world):
    for at in range(5000):
        world.scheduler.jobs.changed(job(f"j{at}"))
    assert len(world.scheduler.jobs) == 1000


@pytest.mark.parametrize(
    ("spec", "status", "queue", "begun"),
    [
        ({}, {}, "default", False),
        ({"queue": "q"}, {"state": {"phase": "Pending"}}, "q", False),
        ({"queue": None}, {"state": {"phase": "Running"}}, "default", True),
        ({"queue": "q"}, {"state": None}, "q", False),
    ],
    ids=["empty", "pending", "running", "no-state"],
)
def test_of_a_job_its_queue_and_whether_it_began_are_read(spec, status, queue, begun):
    metadata = {"name": "j", "namespace": "n", "uid": "u", "labels": {}}
    found = decode_job(json.dumps({"metadata": metadata, "spec": spec, "status": status}).encode())
    assert found == JobSpec(namespace="n", name="j", uid="u", queue=queue, begun=begun)
