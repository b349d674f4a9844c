"""The webhook's own watch of nodes: what it knows it tells, and what may be old it forgets."""

import asyncio
import json
import subprocess
import sys
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from core.admission.rulebook import rulebook
from core.catalog import standard_catalog
from core.settings import DialectName, Settings, Tables
from kube.errors import ApiUnreachableError
from webhook.inventory import InventoryWatch
from webhook.preview import ControllerSource

pytestmark = pytest.mark.looptime

CATALOG = standard_catalog()


def node(name, memory=15360):
    amounts = {"volcano.sh/vgpu-number": "10", "volcano.sh/vgpu-memory": "9", "volcano.sh/vgpu-cores": "100"}
    register = f"GPU-{name},10,{memory},NVIDIA-T4,true,hami-core:"
    return {
        "metadata": {
            "name": name,
            "resourceVersion": "5",
            "annotations": {"volcano.sh/node-vgpu-register": register},
        },
        "status": {"capacity": amounts, "allocatable": amounts},
    }


class Api:
    """Serves one list, then the events that are put into it; silent while there are none."""

    def __init__(self, *nodes):
        self.nodes = list(nodes)
        self.events: asyncio.Queue[bytes] = asyncio.Queue()
        self.lists = 0
        self.down = False

    async def request(self, verb, path, *, params, deadline_s, purpose):
        if self.down:
            raise ApiUnreachableError(verb=verb, path=path, message="down")
        self.lists += 1
        body = {"kind": "NodeList", "metadata": {"resourceVersion": "5"}, "items": self.nodes}
        return SimpleNamespace(body=json.dumps(body).encode())

    @asynccontextmanager
    async def stream(self, path, params, *, silence_s):
        yield self._lines()

    async def _lines(self):
        while True:
            yield await self.events.get()

    def tell(self, kind, obj):
        self.events.put_nowait(json.dumps({"type": kind, "object": obj}).encode())


class Rig:
    def __init__(self, api):
        self.api = api
        self.book = rulebook(Settings(), Tables(), CATALOG)
        self.told = []

    @asynccontextmanager
    async def running(self):
        loop = asyncio.get_running_loop()
        watch = InventoryWatch(book=lambda: self.book, tell=self.told.append, clock=loop.time)
        task = asyncio.create_task(watch.follow(self.api), name="watch")
        try:
            yield
        finally:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    def memories(self):
        if not self.told or self.told[-1] is None:
            return None
        return sorted({type_.total for type_ in self.told[-1].by_dialect[DialectName("vgpu")].nodes})


async def test_what_nodes_offer_is_told_once_and_again_when_it_changes():
    rig = Rig(Api(node("a")))
    async with rig.running():
        await asyncio.sleep(5)
        assert rig.memories() == [15360]
        assert len(rig.told) == 1
        rig.api.tell("MODIFIED", node("a"))
        await asyncio.sleep(2)
        assert len(rig.told) == 1
        rig.api.tell("ADDED", node("b", 81920))
        await asyncio.sleep(2)
        assert rig.memories() == [15360, 81920]
        rig.api.tell("DELETED", node("a"))
        await asyncio.sleep(2)
        assert rig.memories() == [81920]


async def test_after_two_minutes_of_silence_nothing_is_known_until_the_next_word():
    rig = Rig(Api(node("a")))
    async with rig.running():
        await asyncio.sleep(100)
        assert rig.memories() == [15360]
        await asyncio.sleep(30)
        assert rig.told[-1] is None
        rig.api.tell("BOOKMARK", {"kind": "Node", "metadata": {"resourceVersion": "9"}})
        await asyncio.sleep(2)
        assert rig.memories() == [15360]


async def test_nothing_is_told_before_the_first_list():
    api = Api(node("a"))
    api.down = True
    rig = Rig(api)
    async with rig.running():
        await asyncio.sleep(60)
        assert rig.told == []
        api.down = False
        await asyncio.sleep(30)
        assert rig.memories() == [15360]


async def test_cards_are_read_anew_by_a_new_configuration():
    rig = Rig(Api(node("a")))
    async with rig.running():
        await asyncio.sleep(5)
        rig.book = rulebook(Settings(dialects=frozenset()), Tables(version=1), CATALOG)
        await asyncio.sleep(5)
        assert rig.api.lists == 2
        assert rig.told[-2] is None
        assert rig.told[-1].by_dialect == {}


@pytest.mark.looptime(False)
def test_a_webhook_with_an_inventory_does_not_import_the_big_client_library():
    code = "import sys, webhook.run, webhook.inventory; sys.exit('kubernetes_asyncio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def test_a_server_that_never_answered_is_told_once_with_the_cause():
    api = Api()
    api.down = True
    with capture_logs() as lines:
        async with Rig(api).running():
            await asyncio.sleep(100)
    (line,) = [line for line in lines if line["event"].startswith("no inventory yet")]
    assert "down" in line["reason"]


def test_files_of_previews_that_cannot_be_read_are_named(tmp_path):
    token = tmp_path / "token"
    assert ControllerSource("https://c", tmp_path / "ca", token).why_not_readable() == (
        f"preview: {token}: no such file or directory"
    )
    token.write_text("t")
    (tmp_path / "ca").write_text("PEM")
    assert not ControllerSource("https://c", tmp_path / "ca", token).why_not_readable()
