"""The share player, with both strategies, against an API server in memory."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.nodes.plugin_port import AllocateError
from sandbox.players import gpushare as protocol
from sandbox.players.gpushare import SharePlugin
from sandbox.players.registry import build
from tests.support.servers.memory_api import MemoryApi

NODE = "/api/v1/nodes/node-a"
MEMORY, NUMBER = "volcano.sh/gpu-memory", "volcano.sh/gpu-number"


def plugin(api: MemoryApi, **options: Any) -> SharePlugin:
    api.add_node("node-a", {"gpu": "2026-01-01T00:00:00Z", "volcano.sh/gpu-unhealthy-ids": "1"})
    made = build("gpushare", "node-a", {"memory_mib": 11178, "count": 2, **options}, api)
    assert isinstance(made, SharePlugin)
    return made


def assigned(index: str = "0", time: str = "100") -> dict[str, str]:
    return {"volcano.sh/gpu-index": index, "volcano.sh/predicate-time": time}


async def test_start_advertises_memory_and_number_and_forgets_unhealthy_cards():
    api = MemoryApi()
    await plugin(api).start()
    totals = {NUMBER: "2", MEMORY: "22356"}
    assert api.objects[NODE]["status"] == {"capacity": totals, "allocatable": totals}
    assert "volcano.sh/gpu-unhealthy-ids" not in api.annotations(NODE)


async def test_unhealthy_cards_are_told_by_index_and_only_whole_cards_leave_the_list():
    sick = [{"healthy": False}, {}, {"healthy": False}]
    share, number = MemoryApi(), MemoryApi()
    await plugin(share, cards=sick).start()
    await plugin(number, cards=sick, strategy="number").start()
    assert share.annotations(NODE)["volcano.sh/gpu-unhealthy-ids"] == "0,2"
    assert share.objects[NODE]["status"]["allocatable"] == {NUMBER: "3", MEMORY: "33534"}
    assert number.objects[NODE]["status"] == {"capacity": {NUMBER: "3"}, "allocatable": {NUMBER: "1"}}


async def test_a_served_container_sees_the_pods_card_and_its_memory():
    api = MemoryApi()
    pod = api.add_pod("a", annotations=assigned("1"), limits=({MEMORY: "1k"},))
    env = await plugin(api).allocate(MEMORY, 1000)
    assert env == {
        "NVIDIA_VISIBLE_DEVICES": "1",
        "VOLCANO_GPU_ALLOCATED": "1000",
        "VOLCANO_GPU_MEMORY_TOTAL": "11178",
    }
    assert api.annotations(pod)["volcano.sh/gpu-assigned"] == "true"
    assert "gpu" not in api.annotations(NODE)


async def test_whole_cards_are_multiplied_by_the_factor_as_the_real_plugin_does():
    api = MemoryApi()
    api.add_pod("a", annotations=assigned("0,1"), limits=({NUMBER: "2"},))
    env = await plugin(api, strategy="number", memory_factor=10).allocate(NUMBER, 2)
    assert (env["NVIDIA_VISIBLE_DEVICES"], env["VOLCANO_GPU_ALLOCATED"]) == ("0,1", "20")


async def test_the_oldest_open_pod_of_exactly_this_amount_is_served():
    api = MemoryApi()
    amount = ({MEMORY: "1024"},)
    api.add_pod("a-younger", annotations=assigned(time="200"), limits=amount)
    api.add_pod("b-without-time", annotations={"volcano.sh/gpu-index": "0"}, limits=amount)
    api.add_pod("c-done", annotations=assigned(time="1") | {"volcano.sh/gpu-assigned": "true"}, limits=amount)
    api.add_pod("d-other-amount", annotations=assigned(time="2"), limits=({MEMORY: "1023"},))
    api.add_pod("e-going", annotations=assigned(time="3"), limits=amount, deletionTimestamp="2026-01-01T00:00:00Z")
    api.add_pod("f-elsewhere", annotations=assigned(time="4"), limits=amount, node="node-b")
    api.add_pod("g-running", annotations=assigned(time="5"), limits=amount, status={"phase": "Running"})
    api.add_pod(
        "h-refused", annotations=assigned(time="6"), limits=amount, status={"reason": "UnexpectedAdmissionError"}
    )
    expected = api.add_pod(
        "i-open", annotations=assigned(time="7") | {"volcano.sh/gpu-assigned": "false"}, limits=amount
    )
    before = {
        path for path in api.objects if api.objects[path]["metadata"]["annotations"].get(protocol.ASSIGNED) == "true"
    }
    await plugin(api).allocate(MEMORY, 1024)
    after = {
        path for path in api.objects if api.objects[path]["metadata"]["annotations"].get(protocol.ASSIGNED) == "true"
    }
    assert after - before == {expected}


async def test_the_second_container_of_a_pod_is_never_found():
    api = MemoryApi()
    api.add_pod("a", annotations=assigned(), limits=({MEMORY: "5"}, {MEMORY: "5"}))
    player = plugin(api)
    await player.allocate(MEMORY, 5)
    with pytest.raises(AllocateError, match="failed to find candidate pod"):
        await player.allocate(MEMORY, 5)


@pytest.mark.parametrize("index", [None, "", "x", "0,", "7", "-1"])
async def test_an_index_that_cannot_be_used_fails_the_call_and_leaves_the_pod_open(index):
    api = MemoryApi()
    annotations = {} if index is None else assigned(index)
    pod = api.add_pod("a", annotations=annotations, limits=({MEMORY: "5"},))
    with pytest.raises(AllocateError):
        await plugin(api).allocate(MEMORY, 5)
    assert "volcano.sh/gpu-assigned" not in api.annotations(pod)


def test_memory_comes_before_number_when_a_container_asks_for_both():
    assert protocol.amount({"resources": {"limits": {MEMORY: "7", NUMBER: "2"}}}) == 7
    assert protocol.amount({"resources": {"limits": {NUMBER: "2"}}}) == 2
    assert protocol.amount({"resources": {"limits": {MEMORY: "nonsense"}}}) == 0
