"""Enflame's player: instances on the card that the pod names, for the pod of the size that kubelet asks for."""

from __future__ import annotations

import json

import pytest

from core.port.cards import Offer
from core.wire.nodes import node_from_object
from sandbox.nodes.plugin_port import AllocateError
from sandbox.players import registry
from sandbox.players.enflame import INSTANCE, MINOR, RESOURCE, SEEN, EnflamePlugin
from tests.support.devices.vendors import TABLES, port_of
from tests.support.servers.memory_api import MemoryApi

NODE = "/api/v1/nodes/node-a"
CONTAINERS, SERVED = "assigned-containers", "enflame.com/gcu-assigned"


async def started(api: MemoryApi, count: int = 2) -> EnflamePlugin:
    api.add_node("node-a")
    player = registry.build("enflame-drs", "node-a", {"count": count}, api)
    assert isinstance(player, EnflamePlugin)
    await player.start()
    return player


def waiting(api: MemoryApi, name: str, time: int, *slices: int) -> str:
    told = {f"c{at}": {"allocated": False, "request": one} for at, one in enumerate(slices)}
    notes = {"enflame.com/gcu-assigned-time": str(time), MINOR: "1", CONTAINERS: json.dumps(told), SERVED: "false"}
    limits = tuple({RESOURCE: str(one)} for one in slices)
    return api.add_pod(name, annotations=notes, limits=limits, uid=name)


async def test_the_register_is_what_the_dialect_reads():
    api = MemoryApi()
    player = await started(api)
    await player.set_healthy("GCU-node-a-0", healthy=False)
    found = port_of("enflame_drs").offer(node_from_object(api.objects[NODE]), TABLES)
    assert isinstance(found, Offer)
    assert [(one.fixed.uuid, one.fixed.slots) for one in found.cards] == [("node-a-enflame-drs-1", 6)]
    assert api.objects[NODE]["status"] == {"capacity": {RESOURCE: "12"}, "allocatable": {RESOURCE: "6"}}


async def test_the_oldest_pod_with_a_container_of_the_size_is_served_until_all_its_containers_are():
    api = MemoryApi()
    player = await started(api)
    waiting(api, "later", 9, 2)
    path = waiting(api, "first", 5, 1, 2)
    env = await player.allocate(RESOURCE, 2)
    assert (env[SEEN], bool(env[INSTANCE]), player.meant_for) == ("1", True, "first")
    assert api.objects[path]["metadata"]["annotations"][SERVED] == "false"
    await player.allocate(RESOURCE, 1)
    notes = api.objects[path]["metadata"]["annotations"]
    assert notes[SERVED] == "true"
    assert [one["allocated"] for one in json.loads(notes[CONTAINERS]).values()] == [True, True]
    await player.allocate(RESOURCE, 2)
    assert player.meant_for == "later"
    with pytest.raises(AllocateError, match="no pod with 2 slices"):
        await player.allocate(RESOURCE, 2)
