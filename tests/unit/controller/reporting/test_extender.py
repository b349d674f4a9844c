"""The scheduler extender says which nodes would take a pod, also nodes that do not exist yet, and keeps nothing."""

import asyncio
import json
import tracemalloc
from contextlib import suppress
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from controller.actions import Inbox
from controller.reporting import extender
from controller.reporting.extender import PATH, Extender
from core.errors import InvalidRequestError
from core.settings import NodeKind
from core.wire.extender import decode_extender_args
from runtime.calls import RefusedCallError
from tests.support.worlds.world import MEMORY, NUMBER, World, node, pod

pytestmark = pytest.mark.looptime

POOL = {"pool": "t4"}
SOLD = node("n", cards=2)
KIND = NodeKind(
    name="t4-pool",
    labels=tuple(POOL.items()),
    annotations=tuple(SOLD.annotations.items()),
    capacity=tuple((key, text) for key, text in SOLD.capacity.items() if key.startswith("volcano.sh/")),
)


def asked(memory: int = 1000, scheduler: str = "cardshare", **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "resources": {"limits": {NUMBER: "1", MEMORY: str(memory)}}}
    return {
        "metadata": {"name": "p", "namespace": "default", "uid": "u"},
        "spec": {"schedulerName": scheduler, "containers": [container], **spec},
    }


POD = json.dumps(asked()).encode()


def template(name: str = "template-1", labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A node as Cluster Autoscaler makes it of a pool: without device annotations and resources."""
    have = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    metadata = {"name": name, "labels": {**(POOL if labels is None else labels), "kubernetes.io/hostname": name}}
    return {"metadata": metadata, "spec": spec, "status": {"capacity": have, "allocatable": have}}


async def ask(world: World, question: Any) -> dict[str, Any]:
    body = question if isinstance(question, bytes) else json.dumps(question).encode()
    call: Any = SimpleNamespace(path=PATH, method="POST", body=body)
    before = world.ledger.cursor
    serving = Extender(lambda: world.scheduler, Inbox(asyncio.get_running_loop().time))
    reply = await serving.answer(call)
    assert (reply.status, world.ledger.cursor) == (200, before)
    assert isinstance(reply.body, bytes)
    found: dict[str, Any] = json.loads(reply.body)
    assert found.keys() == {"Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"}
    return found


async def test_names_get_the_names_of_nodes_that_would_take_the_pod_now():
    world = World(node("a"), node("b"), node("c", unschedulable=True))
    world.ledger.count(
        pod("q", memory=9500, node_name="b", annotations={"volcano.sh/vgpu-ids-new": "b-0,NVIDIA,9500,0:"})
    )
    found = await ask(world, {"Pod": asked(), "Nodes": None, "NodeNames": ["a", "b", "c", "none"]})
    assert (found["Nodes"], found["NodeNames"], found["Error"]) == (None, ["a"], "")
    assert found["FailedNodes"]["b"].startswith("too little free memory on every card")
    assert found["FailedNodes"]["c"]
    assert found["FailedNodes"]["none"] == "no such node, and its object was not sent"
    world.ledger.release(pod("q").uid)


async def test_objects_of_nodes_come_back_as_they_were_and_the_ledger_decides_on_nodes_of_the_cluster():
    world = World(node("a"))
    lies = {"metadata": {"name": "a", "annotations": {}, "x": {"y": 1}}, "status": {"unknown": [1]}}
    found = await ask(world, {"pod": asked(), "nodes": {"kind": "NodeList", "items": [lies]}})
    assert (found["Nodes"]["items"], found["NodeNames"], found["FailedNodes"]) == ([lies], None, {})


async def test_a_template_without_device_annotations_is_judged_by_the_kind_that_settings_describe():
    world = World(node_kinds=(KIND,))
    nodes = [
        template(),
        template("other", {"pool": "x"}),
        template("tainted", taints=[{"key": "a", "effect": "NoSchedule"}]),
        template("starting", taints=[{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]),
    ]
    found = await ask(world, {"Pod": asked(9000), "Nodes": {"items": nodes}})
    assert [one["metadata"]["name"] for one in found["Nodes"]["items"]] == ["template-1", "starting"]
    assert "node_kinds" in found["FailedNodes"]["other"]
    assert "taint" in found["FailedNodes"]["tainted"]
    found = await ask(world, {"Pod": asked(10_001), "Nodes": {"items": nodes[:1]}})
    assert found["FailedNodes"] == {"template-1": "a new, empty node of this kind does not take it"}


async def test_a_template_with_device_annotations_needs_no_kind_and_the_most_special_kind_is_taken():
    whole = template("whole", {})
    whole["metadata"]["annotations"] = dict(SOLD.annotations)
    whole["status"] = {"capacity": dict(SOLD.capacity), "allocatable": dict(SOLD.capacity)}
    assert (await ask(World(), {"Pod": asked(), "Nodes": {"items": [whole]}}))["FailedNodes"] == {}
    small = node("s", memory=500)
    special = NodeKind(
        name="small",
        labels=(*POOL.items(), ("size", "s")),
        annotations=tuple(small.annotations.items()),
        capacity=tuple(small.capacity.items()),
    )
    world = World(node_kinds=(KIND, special))
    nodes = [template(), template("small", {**POOL, "size": "s"})]
    found = await ask(world, {"Pod": asked(), "Nodes": {"items": nodes}})
    assert [*found["FailedNodes"]] == ["small"]


async def test_pods_of_other_schedulers_are_not_filtered_and_wrong_ones_fit_nowhere():
    world = World(node("a"))
    found = await ask(world, {"Pod": asked(99_999, scheduler="other"), "NodeNames": ["a", "none"]})
    assert found["NodeNames"] == ["a", "none"]
    wrong = asked()
    wrong["metadata"]["annotations"] = {"volcano.sh/vgpu-mode": "x"}
    found = await ask(world, {"Pod": wrong, "NodeNames": ["a"]})
    assert found["NodeNames"] == []
    assert "volcano.sh/vgpu-mode" in found["FailedNodes"]["a"]


@pytest.mark.parametrize(
    "question",
    [
        b"",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        {},
        {"Pod": asked()},
        {"Pod": [], "NodeNames": []},
        {"Pod": asked(), "NodeNames": "a"},
        {"Pod": asked(), "NodeNames": [1]},
        {"Pod": asked(), "Nodes": []},
        {"Pod": asked(), "Nodes": {"items": [{"metadata": 1}]}},
        {"Pod": asked(), "NodeNames": ["n"] * 20_001},
    ],
    ids=["empty", "list", "bytes", "deep", "nothing", "no-nodes", "pod", "names", "name", "nodes", "node", "many"],
)
async def test_a_question_that_is_none_gets_an_error_that_says_where(question):
    found = await ask(World(node("a")), question)
    assert found["Error"]
    assert (found["Nodes"], found["NodeNames"], found["FailedNodes"]) == (None, None, {})


async def test_an_object_that_cannot_be_read_matters_only_if_it_is_judged():
    broken = {"metadata": {"name": "a"}, "status": {"capacity": 1}}
    found = await ask(World(node("a")), {"Pod": asked(), "Nodes": {"items": [broken]}})
    assert (found["Nodes"]["items"], found["Error"]) == ([broken], "")
    found = await ask(World(), {"Pod": asked(), "Nodes": {"items": [broken]}})
    assert "status.capacity" in found["Error"]


@pytest.mark.parametrize(
    "text",
    [
        b'{"Pod":%s,"Nodes":{"items":[%s0]}}' % (POD, b"0," * 10**6),
        b'{"Pod":%s,"NodeNames":[%s"aa"]}' % (POD, b'"aa",' * 10**6),
        b'{%s"Pod":%s,"NodeNames":["a"]}' % (b"".join(b'"%d":0,' % key for key in range(10**5)), POD),
    ],
    ids=["nodes", "names", "keys"],
)
def test_what_nobody_asks_takes_no_more_memory_than_its_text(text):
    tracemalloc.start()
    try:
        with suppress(InvalidRequestError):
            decode_extender_args(text)
        assert tracemalloc.get_traced_memory()[1] < 2 * len(text)
    finally:
        tracemalloc.stop()


async def test_what_takes_too_long_is_said_and_too_many_at_once_are_refused(monkeypatch):
    monkeypatch.setattr(extender, "LIMIT_S", 0.0)
    world = World(*[node(f"n{number}") for number in range(20)])
    names = [*world.ledger.states]
    slow = Extender(lambda: world.scheduler, Inbox(asyncio.get_running_loop().time), clock=count().__next__)
    large: Any = SimpleNamespace(
        path=PATH, method="POST", body=json.dumps({"Pod": asked(), "NodeNames": names}).encode()
    )
    reply = await slow.answer(large)
    assert isinstance(reply.body, bytes)
    assert "ask about fewer nodes" in json.loads(reply.body)["Error"]
    monkeypatch.undo()
    async with asyncio.TaskGroup() as tasks:
        first = [tasks.create_task(slow.answer(large)) for _ in range(16)]
        await asyncio.sleep(0)
        with pytest.raises(RefusedCallError) as caught:
            await slow.answer(large)
        assert caught.value.status == 429
    assert {one.result().status for one in first} == {200}


async def test_nothing_is_answered_before_the_cluster_is_known_or_elsewhere():
    serving = Extender(lambda: None, Inbox(asyncio.get_running_loop().time))
    call: Any = SimpleNamespace(path=PATH, method="POST", body=b"{}")
    reply = await serving.answer(call)
    assert isinstance(reply.body, bytes)
    assert "not known yet" in json.loads(reply.body)["Error"]
    for path, method, status in (("/v1/preview", "POST", 404), (PATH, "GET", 405)):
        other: Any = SimpleNamespace(path=path, method=method, body=b"")
        with pytest.raises(RefusedCallError) as caught:
            await serving.answer(other)
        assert caught.value.status == status
