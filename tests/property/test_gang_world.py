"""A small part of `scripts/twin --gangs`: groups, queues and failures against what pods and nodes alone say."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.support.devices.gang_world import GangWorld


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(6))
def test_gangs_are_whole_queues_are_kept_and_nobody_waits_who_fits(seed):
    world = GangWorld(seed)
    for number in range(400):
        world.step()
        if number % 50 == 49:
            world.settle()
        assert world.faults == []
    assert min(world.counts[name] for name in ("answer", "take_pod", "gangs placed", "waiting")) > 0


def test_pods_wait_for_quotas_and_for_queues():
    counts = Counter[str]()
    for seed in range(3):
        world = GangWorld(f"quotas {seed}")
        for _ in range(300):
            world.step()
        world.settle()
        assert world.faults == []
        counts += world.counts
    assert min(counts["waiting for a quota"], counts["waiting for a queue"]) > 0


def lived(seed, until):
    world = GangWorld(seed)
    while not until(world):
        world.step()
    assert world.faults == []
    return world


def test_a_gang_that_is_not_whole_is_seen():
    world = lived("part", lambda world: world.counts["gangs placed"] > 50)
    world.broken.clear()
    for name, spec in world.specs.items():
        world.specs[name] = replace(spec, min_member=99)
    world.look()
    assert any("and nothing was taken from it" in text for text in world.faults)


def test_a_queue_that_holds_too_much_is_seen():
    world = lived("queue", lambda world: world.counts["gangs placed"] > 50)
    world.broken.clear()
    world.limits["small"] = {"cpu": 0}
    world.look()
    assert any("queue small holds more" in text for text in world.faults)


def test_a_namespace_that_holds_too_much_is_seen():
    world = lived("quota", lambda world: world._limited_mib() > 0)
    world.broken.clear()
    world.quotas["a"] = 0
    world.look()
    assert any("are held under quotas" in text for text in world.faults)


def test_who_waits_and_fits_is_seen():
    world = lived("waits 4", lambda world: len(world.nodes) > 3 and world.counts["gangs placed"] > 50)
    world.settle()
    for name in list(world.nodes):
        world.nodes[name] = replace(world.nodes[name], allocatable={"cpu": "99", "volcano.sh/vgpu-number": "990"})
    world.faults.clear()
    world.quotas.clear()
    for _ in range(20):
        world.add_pods()
    world.look_at_waiting()
    assert any(" waits for " in text for text in world.faults)
