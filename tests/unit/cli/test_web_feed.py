"""The page's feed leaves nothing running when it ends."""

import asyncio
import json
import time
from contextlib import asynccontextmanager, suppress
from email.utils import formatdate
from typing import Any

import pytest

from cli.cluster import empty_holdings
from cli.web.feed import Feed, Sees
from cli.web.followed import Examining
from kube.errors import ApiNotFoundError
from kube.transport import Response
from tests.support.worlds.doctor import T4, facts, pod

NODES = "/api/v1/nodes"


class Server:
    """Has one node; every watch is silent."""

    def __init__(self) -> None:
        self.watches = 0

    async def request(self, verb, path, **_):
        if "configmaps/" in path:
            raise ApiNotFoundError(verb=verb, path=path, status=404, message="none")
        items = [{"metadata": {"name": "a"}}] if path == NODES else []
        page = {"metadata": {"resourceVersion": "10"}, "items": items}
        return Response(status=200, headers={}, body=json.dumps(page).encode())

    @asynccontextmanager
    async def stream(self, path, params, **_):
        self.watches += 1
        try:
            yield self._silence()
        finally:
            self.watches -= 1

    async def _silence(self):
        await asyncio.Event().wait()
        yield b""


async def test_a_failure_in_the_feed_ends_its_watches(monkeypatch):
    def fails(*_):
        raise LookupError("a bug")

    server: Any = Server()
    feed = Feed(server, await empty_holdings(server), Sees(nodes=True, namespace="", home=""))
    monkeypatch.setattr("cli.web.feed.cards_of", fails)
    with pytest.raises(ExceptionGroup) as failed:
        await feed.run()
    assert failed.value.subgroup(LookupError) is not None
    assert server.watches == 0
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize(("ahead_s", "count"), [(0.0, 0), (-3600.0, 1)])
async def test_the_findings_of_the_page_go_by_the_clock_of_the_api_server(ahead_s, count):
    class Clock(Server):
        async def request(self, verb, path, **_):
            assert path == "/version"
            return Response(status=200, headers={"Date": formatdate(time.time() - ahead_s, usegmt=True)}, body=b"{}")

    server: Any = Clock()
    found = facts()
    # By the clock here, nobody has reacted to it for no time at all.
    waiting = pod(limits=T4, scheduler="nobodys", created_s=int(time.time()))
    examining, told = Examining(server, found.catalog), asyncio.Event()
    looking = asyncio.create_task(examining.run(lambda: found.ledger, lambda: (waiting,), told.set))
    await told.wait()
    looking.cancel()
    with suppress(asyncio.CancelledError):
        await looking
    assert examining.found is not None
    assert [one.code for one in examining.found.findings] == ["CS642"] * count
