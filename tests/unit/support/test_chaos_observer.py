"""The judge of `scripts/chaos` sees what it is there to see: each case is one that must not be."""

from typing import Any

import pytest

from core.settings import Tables
from tests.chaos.observer import Observer

Json = dict[str, Any]

NODE = {
    "metadata": {
        "name": "t4",
        "uid": "n",
        "annotations": {"volcano.sh/node-vgpu-register": "GPU-a,10,15360,NVIDIA-Tesla T4,true,hami-core:"},
    },
    "status": {"capacity": {"volcano.sh/vgpu-number": "10"}},
}


EVENTS = [
    {"involvedObject": {"uid": uid}, "message": message}
    for uid, message in (("low", "Preempted by pod high on node t4"), ("equal", "Preempted by pod high on node t4"),
                         ("low", "Preempting on node t4"))
]  # fmt: skip


class Server:
    """An API server with that node and these Events."""

    async def list(self, path: str, *, field_selector: str = "") -> tuple[Json, ...]:
        if path == "/api/v1/events":
            assert field_selector == "reason=Preempted"
            return tuple(EVENTS)
        assert path == "/api/v1/nodes"
        return (NODE,)


def bound(name: str, memory_mib: int, *, node: str = "t4", phase: str = "Running", reason: str = "") -> Json:
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "annotations": {"volcano.sh/vgpu-ids-new": f"GPU-a,NVIDIA,{memory_mib},0:"} if memory_mib else {},
        },
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": phase, "reason": reason},
    }


@pytest.fixture
async def observer() -> Observer:
    found = Observer(Server(), Tables())  # type: ignore[arg-type]  # all that it asks of a client here
    await found.learn_nodes()
    return found


def see(observer: Observer, *pods: Json, gone: str = "") -> None:
    for pod in pods:
        observer._heed("MODIFIED", pod)
    if gone:
        observer._heed("DELETED", bound(gone, 1))


async def test_two_pods_that_are_too_much_for_a_card_are_seen_although_one_is_gone_in_the_end(observer):
    see(observer, bound("a", 10_000), bound("b", 10_000), gone="a")
    assert [text for text in observer.overcommits if "GPU-a holds 20000 MiB" in text]


async def test_what_is_over_or_gone_holds_nothing(observer):
    see(observer, bound("a", 10_000), bound("a", 10_000, phase="Succeeded"), bound("b", 10_000), gone="b")
    see(observer, bound("c", 10_000))
    assert not observer.overcommits
    assert observer.placed == {"a", "b", "c"}


@pytest.mark.parametrize(
    "again", [bound("a", 2_000), bound("a", 1_000, node="other")], ids=["with other cards", "on another node"]
)
async def test_a_pod_that_is_bound_twice_is_seen(observer, again):
    see(observer, bound("a", 1_000), again)
    assert len(observer.double) == 1


async def test_an_assignment_that_is_cleared_is_no_second_one_and_a_reason_of_failure_is_counted(observer):
    see(observer, bound("a", 1_000), bound("a", 0, phase="Failed", reason="UnexpectedAdmissionError"))
    assert not observer.double
    assert observer.turned_away == {"UnexpectedAdmissionError": 1}


async def test_who_is_evicted_for_a_pod_of_no_higher_priority_is_seen(observer):
    for name, priority in (("low", -100), ("equal", 100), ("high", 100)):
        pod = bound(name, 1_000)
        pod["spec"]["priority"] = priority
        see(observer, pod)
    evictions = await observer.evictions()
    assert evictions == [("low", "high"), ("equal", "high")]
    assert observer.wronged(evictions) == ["equal of priority 100 was evicted for high of 100"]
