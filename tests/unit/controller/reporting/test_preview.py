import asyncio
import json
import re
from itertools import count

import pytest

from controller.actions import Inbox
from controller.reporting.answers import LIMIT_S, preview
from core.errors import InvalidRequestError
from core.settings import DialectName, Settings, Tables
from core.wire.policies import ResourceQuota
from tests.support.worlds.world import MEMORY, NUMBER, World, node

pytestmark = pytest.mark.looptime

ASKED = {
    "metadata": {"name": "p", "namespace": "default", "uid": "u"},
    "spec": {
        "schedulerName": "cardshare",
        "containers": [{"name": "c", "resources": {"limits": {NUMBER: "1", MEMORY: "1000"}}}],
    },
}


async def unasked(shape):
    raise AssertionError(shape)


def tolerating(number):
    asked = json.loads(json.dumps(ASKED))
    asked["spec"]["tolerations"] = [{"key": f"k{number}", "operator": "Exists"}]
    return json.dumps(asked).encode()


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b"", "pod: found 'Input data was truncated'"),
        (b"[]", "pod: found 'a list where a mapping belongs'"),
        (b"{}", "pod spec.containers: found 'nothing'; write at least one container"),
        (b'{"kind":"Pod","spec":{"containers":[]}}', "pod spec.containers: found 'nothing'; write at least one contai"),
        (b'{"spec":{"containers":5}}', "pod spec.containers: found 'a number where a list belongs'"),
        (
            b'{"apiVersion":"apps/v1","kind":"Deployment","spec":{"template":{}}}',
            "kind: found 'apps/v1 Deployment'; send a pod: apiVersion v1, kind Pod",
        ),
        (json.dumps({"apiVersion": "v2", "kind": "Pod", **ASKED}).encode(), "kind: found 'v2 Pod'; send a pod"),
        (json.dumps({"kind": "List", "items": [ASKED]}).encode(), "kind: found 'List'; send a pod"),
    ],
    ids=["nothing", "a list", "empty", "no container", "a number", "Deployment", "another version", "List"],
)
async def test_what_is_no_pod_is_refused_in_a_sentence(sent, told):
    world = World(node("n1"))
    with pytest.raises(InvalidRequestError, match=f"^{re.escape(told)}"):
        await preview(world.scheduler, Inbox(asyncio.get_running_loop().time), unasked, sent)


async def test_previews_leave_nothing_with_the_planner():
    world = World(*[node(f"n{i}") for i in range(100)])
    inbox = Inbox(asyncio.get_running_loop().time)
    before = world.scheduler.cluster.search.candidates.remembered
    for number in range(100):
        answer = await preview(world.scheduler, inbox, unasked, tolerating(number))
        assert answer["state"] == "fits"
    assert world.scheduler.cluster.search.candidates.remembered == before


async def test_a_preview_tells_what_the_namespace_has_left():
    world = World(node("n1"))
    quota = ResourceQuota("default", "q", {f"limits.{MEMORY}": 999}, {})
    world.scheduler.cluster.budgets.quotas.replaced([quota])
    inbox = Inbox(asyncio.get_running_loop().time)
    answer = await preview(world.scheduler, inbox, unasked, json.dumps(ASKED).encode())
    assert (answer["state"], answer["code"]) == ("waits", "CS532")
    assert f"1000 {MEMORY} requested, 999 of 999 left" in answer["text"]


async def test_a_preview_of_a_large_cluster_ends_in_time_and_says_so():
    world = World(*[node(f"n{i}") for i in range(40)])
    inbox = Inbox(asyncio.get_running_loop().time)

    async def never(shape):
        await asyncio.sleep(60)

    asked = json.loads(json.dumps(ASKED))
    asked["spec"]["containers"][0]["resources"]["limits"][MEMORY] = "99999"
    answer = await preview(world.scheduler, inbox, never, json.dumps(asked).encode())
    assert answer["state"] == "late"
    assert asyncio.get_running_loop().time() == pytest.approx(LIMIT_S, abs=0.01)


async def test_a_preview_that_another_configuration_overtakes_says_so():
    world = World(*[node(f"n{i}") for i in range(100)])
    inbox = Inbox(asyncio.get_running_loop().time)
    ticks = count()
    previewing = asyncio.create_task(
        preview(world.scheduler, inbox, unasked, json.dumps(ASKED).encode(), clock=lambda: float(next(ticks)))
    )
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    inbox.put(lambda: world.scheduler.configure(Tables(version=7), Settings()))
    while inbox.work(0.0):
        pass
    assert (await previewing)["state"] == "late"


async def test_nothing_is_previewed_while_another_configuration_is_taken():
    world = World(*[node(f"n{i}") for i in range(40)])
    inbox = Inbox(asyncio.get_running_loop().time)
    another = Settings(dialects=frozenset({DialectName("gpu_memory")}))
    inbox.put(lambda: world.scheduler.configure(world.ledger.tables, another))
    inbox.work(0.0)
    previewing = asyncio.create_task(preview(world.scheduler, inbox, unasked, json.dumps(ASKED).encode()))
    while inbox.work(0.0):
        assert not previewing.done()
        await asyncio.sleep(0)
    answer = await previewing
    assert answer["state"] == "waits"
    assert "switched off" in answer["text"]
