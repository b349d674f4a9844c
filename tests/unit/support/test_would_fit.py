"""The judge of waiting pods knows room that is kept for others, and is not blinded by it."""

from typing import Any

import pytest

from core.settings import Tables
from tests.support.devices.mixed import would_fit

Json = dict[str, Any]

CARD_MIB = 15360


def node(name: str) -> Json:
    register = f"GPU-{name},10,{CARD_MIB},NVIDIA-Tesla T4,true,hami-core:"
    vgpu = {"volcano.sh/vgpu-number": "10", "volcano.sh/vgpu-memory": str(CARD_MIB), "volcano.sh/vgpu-cores": "100"}
    amounts = {**vgpu, "cpu": "8", "pods": "20"}
    return {
        "metadata": {"name": name, "uid": name, "annotations": {"volcano.sh/node-vgpu-register": register}},
        "spec": {},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def waiting(name: str, memory_mib: int, *, priority: int = 0, at: str = "10:00:00", nominated: str = "") -> Json:
    limits = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": str(memory_mib)}
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "creationTimestamp": f"2026-01-01T{at}Z",
        },
        "spec": {
            "schedulerName": "cardshare",
            "priority": priority,
            "containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}],
        },
        "status": {"phase": "Pending", "nominatedNodeName": nominated},
    }


def ending(name: str, memory_mib: int, on: str) -> Json:
    pod = waiting(name, memory_mib)
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T10:00:00Z"
    pod["metadata"]["annotations"] = {
        "volcano.sh/vgpu-ids-new": f"GPU-{on},NVIDIA,{memory_mib},0:",
        "volcano.sh/vgpu-node": on,
    }
    pod["spec"]["nodeName"] = on
    return pod


def fitting(*pods: Json, nodes: tuple[str, ...] = ("a",)) -> list[str]:
    return would_fit([node(name) for name in nodes], pods, [], Tables())


BIG, SMALL = 12_000, 4_000


def test_a_pod_that_fits_is_named():
    assert fitting(waiting("p", SMALL)) == ["p"]


@pytest.mark.parametrize("priority", [0, 5], ids=["of its own priority", "of a higher one"])
def test_room_that_a_nominated_pod_needs_is_not_for_pods_after_it(priority):
    first = waiting("first", BIG, priority=priority, nominated="a")
    assert fitting(first, waiting("p", SMALL, at="10:00:05")) == ["first"]


def test_what_a_nominated_pod_leaves_over_is_for_others():
    first = waiting("first", BIG, priority=5, nominated="a")
    assert fitting(first, waiting("p", CARD_MIB - BIG)) == ["first", "p"]


def test_a_node_on_which_pods_end_is_kept_as_a_whole():
    first = waiting("first", BIG, priority=5, nominated="a")
    assert fitting(first, ending("v", BIG, "a"), waiting("p", 1_000)) == []
    assert fitting(first, ending("v", BIG, "a"), waiting("p", 1_000), nodes=("a", "b")) == ["first", "p"]


@pytest.mark.parametrize(
    "p",
    [waiting("p", SMALL, priority=9), waiting("p", SMALL, at="09:59:59", priority=5)],
    ids=["of a higher priority", "as important and older"],
)
def test_nothing_is_kept_from_pods_before_the_nominated_one(p):
    first = waiting("first", BIG, priority=5, nominated="a")
    assert "p" in fitting(first, p)


def test_an_older_pod_for_which_other_room_is_made_is_not_before_it():
    first = waiting("first", BIG, priority=5, nominated="a")
    p = waiting("p", SMALL, at="09:59:59", priority=5, nominated="b")
    assert fitting(first, p, ending("v", BIG, "b"), nodes=("a", "b")) == ["first"]


def test_a_nomination_that_serves_nobody_hides_nobody():
    never = waiting("never", CARD_MIB, priority=5, nominated="a")
    runs = ending("runs", SMALL, "a")
    del runs["metadata"]["deletionTimestamp"]
    assert fitting(never, runs, waiting("p", SMALL)) == ["p"]


def test_a_nomination_to_a_node_that_is_gone_hides_nobody():
    assert fitting(waiting("first", BIG, priority=5, nominated="gone"), waiting("p", SMALL)) == ["first", "p"]
