import asyncio
import json

import pytest

from controller.inbox import Inbox
from controller.preview import preview
from core.settings import DialectName, Settings
from tests.support.world import MEMORY, NUMBER, World, node

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


async def test_nothing_is_previewed_while_another_configuration_is_taken():
    world = World(*[node(f"n{i}") for i in range(40)])
    inbox = Inbox(asyncio.get_running_loop().time)
    another = Settings(dialects=frozenset({DialectName.GPU_MEMORY}))
    inbox.put(lambda: world.owner.configure(world.ledger.tables, another))
    inbox.work(0.0)
    previewing = asyncio.create_task(preview(world.owner, inbox, unasked, json.dumps(ASKED).encode()))
    while inbox.work(0.0):
        assert not previewing.done()
        await asyncio.sleep(0)
    answer = await previewing
    assert answer["state"] == "waits"
    assert "switched off" in answer["text"]
