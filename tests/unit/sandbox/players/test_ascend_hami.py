"""The HAMi player for Ascend against an API server in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from core.model import Node, NodeName, Pod, PodUid
from core.port.handoff import LockQuestion, LockStep, LockWait
from core.settings import Policy
from core.wire.pods import pod_from_object
from sandbox.client import ApiStatusError, Json
from sandbox.nodes.plugin_port import AllocateError
from sandbox.players.ascend_hami import AscendHamiPlugin
from sandbox.players.ascend_hami_protocol import LOCK
from sandbox.players.player import OptionsError
from sandbox.players.registry import build
from tests.support.devices import ascend
from tests.support.devices.ascend import NODE_LOCK, TABLES
from tests.support.servers.memory_api import MemoryApi

NODE = "/api/v1/nodes/node-a"
P = "Ascend310P"
RESOURCE = "huawei.com/Ascend310P"
LEFT = "hami.io/Ascend310P-devices-to-allocate"
TIME = "2026-08-21T09:15:31Z"


class Api(MemoryApi):
    """Answers 404 for what is not there, as the server does."""

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> Json:
        if path not in self.objects:
            raise ApiStatusError(404, "NotFound", f"{path} not found")
        return await super().get(path, params)


def plugin(api: MemoryApi, lock: str | None = None, **options: Any) -> AscendHamiPlugin:
    api.add_node("node-a", {} if lock is None else {LOCK: lock})
    made = build("ascend-hami", "node-a", {"count": 2, **options}, api)
    assert isinstance(made, AscendHamiPlugin)
    return made


def assigned(to_allocate: str, info: str = "[]", **more: str) -> dict[str, str]:
    return {
        LEFT: to_allocate,
        RESOURCE: info,
        "hami.io/vgpu-node": "node-a",
        "hami.io/bind-time": "1",
        "hami.io/bind-phase": "allocating",
        **more,
    }


async def test_start_writes_the_register_and_what_the_node_has():
    api = Api()
    made = plugin(api, chip="Ascend910B4-1", count=5, mode="hami-core")
    await made.set_healthy("NPU-node-a-4", False)
    notes = api.annotations(NODE)
    assert notes["hami-vnpu-core"] == "true"
    assert notes["hami.io/node-handshake-Ascend910B4-1"].startswith("Reported_")
    status = {"capacity": {"huawei.com/Ascend910B4-1": "20"}, "allocatable": {"huawei.com/Ascend910B4-1": "16"}}
    assert api.objects[NODE]["status"] == status
    found = Node(name=NodeName("node-a"), annotations=notes, allocatable=status["allocatable"])
    fixed = [card.fixed for card in ascend.cards_of(found)]
    assert [(one.uuid, one.position, one.cores, one.ring, one.fault is None) for one in fixed] == [
        ("NPU-node-a-0", 0, 100, 0, True),
        ("NPU-node-a-1", 1, 100, 0, True),
        ("NPU-node-a-2", 2, 100, 0, True),
        ("NPU-node-a-3", 3, 100, 0, True),
        ("NPU-node-a-4", 4, 100, 1, False),
    ]


def test_an_unknown_chip_is_refused():
    with pytest.raises(OptionsError, match="Ascend310P"):
        plugin(Api(), chip="Ascend910B")


async def test_a_template_is_told_to_the_runtime_and_the_lock_is_released():
    api = Api()
    text = "NPU-node-a-1,Ascend310P,6144,0:;"
    pod = api.add_pod("p", annotations=assigned(text, '[{"UUID":"NPU-node-a-1","temp":"vir02"}]'))
    env = await plugin(api, f"{TIME},default,p").allocate(RESOURCE, 1)
    assert env == {"ASCEND_VISIBLE_DEVICES": "1", "ASCEND_VNPU_SPECS": "vir02"}
    assert api.annotations(pod)[LEFT] == ";;"
    assert api.annotations(pod)["hami.io/bind-phase"] == "success"
    assert LOCK not in api.annotations(NODE)


async def test_a_soft_slice_is_told_by_memory_and_cores():
    api = Api()
    notes = assigned(
        "NPU-node-a-0,Ascend310P,4096,60:;",
        '[{"UUID":"NPU-node-a-0","memory":4096,"core":60}]',
        **{"huawei.com/vnpu-mode": "hami-core"},
    )
    api.add_pod("p", annotations=notes)
    assert await plugin(api, mode="hami-core").allocate(RESOURCE, 1) == {
        "ASCEND_VISIBLE_DEVICES": "0",
        "NPU_MEM_QUOTA": "4096",
        "NPU_PRIORITY": "60",
        "NPU_GLOBAL_SHM_PATH": "/hami-shared-region/0_global_registry",
        "NPU_LOCAL_SHM_PATH": "/hami-vnpu-shmem/vnpu_local_shmem",
    }


async def test_without_a_lock_the_first_pod_in_api_order_is_served_even_if_it_was_served_before():
    api = Api()
    served = api.add_pod("a", annotations={**assigned(";;"), "hami.io/bind-phase": "success"})
    api.add_pod("b", annotations=assigned("NPU-node-a-0,Ascend310P,3072,0:;"))
    with pytest.raises(AllocateError, match="no pending device allocation found"):
        await plugin(api).allocate(RESOURCE, 1)
    assert api.annotations(served)["hami.io/bind-phase"] == "failed"


async def test_a_lock_of_a_pod_that_is_gone_fails_every_call_and_stays():
    api = Api()
    api.add_pod("b", annotations=assigned("NPU-node-a-0,Ascend310P,3072,0:;"))
    made = plugin(api, f"{TIME},default,gone")
    for _ in range(2):
        with pytest.raises(AllocateError):
            await made.allocate(RESOURCE, 1)
    assert LOCK in api.annotations(NODE)


@pytest.mark.parametrize(
    ("notes", "asked", "message"),
    [
        (assigned("NPU-node-a-0,Ascend310P,3072,0:;"), 2, "not matched"),
        (assigned("other,Ascend310P,3072,0:;"), 1, "unknown uuid"),
        (assigned("NPU-node-a-0,Ascend310P,3072:;"), 1, "information missing"),
        (assigned("NPU-node-a-0,Ascend310P,3072,0:;", "x"), 1, "not valid JSON"),
        ({k: v for k, v in assigned("x").items() if k != RESOURCE}, 1, "not found"),
    ],
    ids=["number", "device", "fields", "json", "absent"],
)
async def test_a_pod_that_cannot_be_served_is_marked_and_its_lock_released(notes, asked, message):
    api = Api()
    pod = api.add_pod("p", annotations=notes)
    with pytest.raises(AllocateError, match=message):
        await plugin(api, f"{TIME},default,p").allocate(RESOURCE, asked)
    assert api.annotations(pod)["hami.io/bind-phase"] == "failed"
    assert LOCK not in api.annotations(NODE)


async def test_a_lock_that_names_nobody_is_released_by_whoever_was_served():
    api = Api()
    api.add_pod("p", annotations=assigned("NPU-node-a-0,Ascend310P,3072,0:;"))
    made = plugin(api, TIME)
    await made.allocate(RESOURCE, 1)
    assert LOCK not in api.annotations(NODE)


async def test_our_placements_locks_and_this_plugin_bring_every_container_its_chip():
    api = Api()
    made = plugin(api)
    await made.start()
    node = _node(api)
    wanted = ascend.pod(P, [1, 3072], [], [1, 6144], name="p1", uid=PodUid("1"))
    answer = ascend.placed(ascend.cards_of(node), wanted, Policy.SPREAD)
    # Bound: the lock first, then the annotations.
    await _obey(api, NODE_LOCK.lock(node, LockQuestion([], 1787303731, TABLES, wanted)))
    path = api.add_pod("p1", annotations=dict(ascend.notes(answer)), limits=({}, {}, {}))
    other = ascend.pod(P, [1, 3072], name="p2", uid=PodUid("2"))
    assert isinstance(NODE_LOCK.lock(_node(api), LockQuestion([_pod(api, path)], 1787303732, TABLES, other)), LockWait)
    assert (await made.allocate(RESOURCE, 1))["ASCEND_VNPU_SPECS"] == "vir01"
    # The plugin has dropped the lock after the first container (D-1): it is renewed, and nobody else gets it.
    assert isinstance(NODE_LOCK.lock(_node(api), LockQuestion([_pod(api, path)], 1787303732, TABLES, other)), LockWait)
    await _obey(api, NODE_LOCK.lock(_node(api), LockQuestion([_pod(api, path)], 1787303732, TABLES)))
    assert api.annotations(NODE)[LOCK] == "2026-08-21T09:15:32Z,default,p1"
    # A pod that is pulling its image would be guessed first: with the lock it is not.
    api.add_pod("a", annotations={**assigned(";;"), "hami.io/bind-phase": "success"})
    assert (await made.allocate(RESOURCE, 1))["ASCEND_VNPU_SPECS"] == "vir02"
    assert api.annotations(path)[LEFT] == ";" * 5
    assert NODE_LOCK.lock(_node(api), LockQuestion([_pod(api, path)], 1787303733, TABLES)) is None
    assert isinstance(NODE_LOCK.lock(_node(api), LockQuestion([_pod(api, path)], 1787303733, TABLES, other)), LockStep)


def _node(api: MemoryApi) -> Node:
    found = api.objects[NODE]
    return Node(
        name=NodeName("node-a"), annotations=api.annotations(NODE), allocatable=found["status"].get("allocatable", {})
    )


def _pod(api: MemoryApi, path: str) -> Pod:
    found: Pod = pod_from_object({**api.objects[path], "metadata": {**api.objects[path]["metadata"], "uid": path}})
    return found._replace(uid=PodUid(path))


async def _obey(api: MemoryApi, step: LockStep | LockWait | None) -> None:
    assert isinstance(step, LockStep)
    await api.patch(NODE, {"metadata": {"annotations": {step.key: step.value}}})
