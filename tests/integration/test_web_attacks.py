"""The page's port in the cluster under callers that flood it or hold it, or whose tokens are not valid any more."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from cli.web import server
from cli.web.feed import Sees, Update
from cli.web.reviewed import Reviewed
from cli.web.run import Connections
from cli.web.server import Page
from kube.calls import Access, Identity
from kube.reviews import NO_S, YES_S, Reviews

HOST = "127.0.0.1"


class Fed:
    """A feed that a test fills; readers: how many are being sent to."""

    def __init__(self, *updates: Update) -> None:
        self.first, self.readers = updates, 0

    async def updates(self, sees: Sees) -> AsyncGenerator[Update, None]:
        self.readers += 1
        try:
            for one in self.first or (Update(sees=sees),):
                yield one
            await asyncio.Event().wait()
        finally:
            self.readers -= 1


@dataclass
class Server:
    """The API server's reviews, and how often it was asked.

    rights: by user, where it may list pods; "*": all. A token is the name of its user, and what follows a dot.
    """

    rights: dict[str, set[str]] = field(default_factory=dict)
    asked: int = 0

    async def token_review(self, token: str, *, audiences: tuple[str, ...]) -> Identity:
        self.asked += 1
        account = token.partition(".")[0]
        return Identity(authenticated=account in self.rights, username=f"system:serviceaccount:default:{account}")

    async def subject_access_review(self, identity: Identity, access: Access) -> bool:
        self.asked += 1
        given = self.rights.get(identity.username.rpartition(":")[2], set())
        return "*" in given or (access.resource == "pods" and access.namespace in given)


class Clock:
    now_s = 1000.0
    looks = 0

    def __call__(self) -> float:
        self.looks += 1
        return self.now_s


@dataclass
class Stage:
    """The page, and all that it stands on."""

    port: int
    server: Server
    feed: Fed
    clock: Clock
    callers: Reviewed
    connections: Connections
    session: aiohttp.ClientSession

    async def get(self, path: str = "/v1/feed", token: str = "", **headers: str) -> int:
        shown = {"Authorization": f"Bearer {token}"} if token else {}
        async with self.session.get(f"http://{HOST}:{self.port}{path}", headers={**shown, **headers}) as answer:
            return answer.status

    async def raw(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(HOST, self.port)


@asynccontextmanager
async def staged(
    *updates: Update, idle_s: float = 30.0, of_address: int = 384, context: ssl.SSLContext | None = None
) -> AsyncIterator[Stage]:
    server, feed, clock = Server({"anna": {"default"}}), Fed(*updates), Clock()
    calls: Any = server
    callers = Reviewed(Reviews(calls, clock=clock), clock=clock, again_s=0.01)
    fed: Any = feed
    page = Page(None, fed, callers)  # type: ignore[arg-type]  # nothing is read from a cluster
    connections = Connections(idle_s=idle_s, of_address=of_address)
    app = page.app()
    app.middlewares.insert(0, connections.counted)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    assert runner.server is not None
    listening = socket.create_server((HOST, 0), backlog=1024)
    listening.setblocking(False)
    port = listening.getsockname()[1]
    connector = aiohttp.TCPConnector(limit=0)
    async with asyncio.timeout(400), aiohttp.ClientSession(connector=connector) as session:
        serving = [connections.run(), connections.accept(listening, runner.server, context)]
        tasks = [asyncio.create_task(one) for one in serving]
        try:
            yield Stage(port, server, feed, clock, callers, connections, session)
        finally:
            for task in tasks:
                task.cancel()
            await runner.cleanup()


@asynccontextmanager
async def stream(stage: Stage, token: str = "anna") -> AsyncIterator[aiohttp.StreamReader]:
    url = f"http://{HOST}:{stage.port}/v1/feed"
    async with stage.session.get(url, headers={"Authorization": f"Bearer {token}"}) as answer:
        assert answer.status == 200
        yield answer.content


async def eventually(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 (the server tells nobody)
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("lost", ["token", "right"])
async def test_a_stream_ends_when_its_caller_may_not_see_it_any_more(lost):
    async with staged() as stage, stream(stage) as content:
        await content.readuntil(b"\n\n")
        if lost == "token":
            stage.server.rights.clear()
        else:
            stage.server.rights["anna"] = {"another"}
        assert stage.feed.readers == 1
        stage.clock.now_s += YES_S
        assert await content.read() == b""
        await eventually(lambda: stage.feed.readers == 0 and not stage.callers.streams)
        assert await stage.get(token="anna") == (401 if lost == "token" else 403)


async def test_a_stream_ends_when_the_api_server_cannot_be_asked_about_it():
    async with staged() as stage, stream(stage) as content:
        await content.readuntil(b"\n\n")
        stage.clock.now_s += YES_S
        stage.server.rights.clear()
        assert await content.read() == b""


async def test_a_stream_of_a_caller_with_few_rights_asks_the_api_server_about_once_a_minute():
    async with staged() as stage, stream(stage) as content:
        await content.readuntil(b"\n\n")
        before = stage.server.asked
        for _ in range(12):
            stage.clock.now_s += NO_S
            enough = stage.clock.looks + 20
            await eventually(lambda enough=enough: stage.clock.looks > enough)
        assert stage.feed.readers == 1
        assert 0 < stage.server.asked - before <= 6


async def test_a_stream_ends_when_its_caller_may_see_more():
    async with staged() as stage, stream(stage) as content:
        await content.readuntil(b"\n\n")
        stage.server.rights["anna"] = {"*"}
        stage.clock.now_s += YES_S
        assert await content.read() == b""


async def test_ten_thousand_bad_calls_ask_the_api_server_a_few_times_and_others_are_served():
    async with staged() as stage:
        assert await stage.get("/v1/pods/other/p", "anna") == 403
        before = stage.server.asked

        async def flood(first: int) -> list[int]:
            return [await stage.get(token=f"bad-{first}-{number}") for number in range(200)]

        async with asyncio.TaskGroup() as tasks:
            floods = [tasks.create_task(flood(first)) for first in range(50)]
        found = [status for one in floods for status in one.result()]
        assert len(found) == 10_000
        assert {*found} == {401, 429}
        assert found.count(401) == stage.server.asked - before <= 40
        assert stage.callers.limited == found.count(429)
        assert await stage.get("/") == 200
        connector = aiohttp.TCPConnector(local_addr=("127.0.0.2", 0))
        async with aiohttp.ClientSession(connector=connector) as other:
            stage.session, ours = other, stage.session
            assert await stage.get("/v1/pods/other/p", "anna") == 403
            stage.session = ours
        stage.clock.now_s += 10.0
        assert await stage.get(token="anna", path="/v1/pods/other/p") == 403


async def test_ten_thousand_calls_with_a_good_token_ask_the_api_server_no_more_than_one():
    async with staged() as stage:
        assert await stage.get("/v1/pods/other/p", "anna") == 403
        before = stage.server.asked
        for _ in range(300):
            assert await stage.get("/v1/pods/other/p", "anna") == 403
        assert stage.server.asked == before
        stage.clock.now_s += NO_S
        assert await stage.get("/v1/pods/other/p", "anna") == 403
        assert stage.server.asked == before + 1


async def test_streams_of_one_namespace_are_bounded():
    async with staged() as stage:
        stage.server.rights["bert"] = {"default"}
        opened = [stream(stage, f"{account}.{number}") for account in ("anna", "bert") for number in range(16)]
        for one in opened:
            await one.__aenter__()
        assert await stage.get(token="anna") == 429
        await opened.pop().__aexit__(None, None, None)
        await eventually(lambda: stage.callers.streams.total() == 31)
        async with stream(stage) as content:
            await content.readuntil(b"\n\n")
        for one in opened:
            await one.__aexit__(None, None, None)


async def test_a_reader_who_takes_nothing_is_let_go_and_little_is_held_for_it(monkeypatch):
    monkeypatch.setattr("cli.web.server._PIECE_S", 0.2)
    notes = tuple("x" * 1000 for _ in range(10_000))
    large = Update(sees=Sees(nodes=False, namespace="default", home="default"), notes=notes)
    async with staged(*[large] * 50) as stage:
        reader, writer = await stage.raw()
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(b"GET /v1/feed HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer anna\r\n\r\n")
        await eventually(lambda: stage.feed.readers == 1)
        await eventually(lambda: stage.feed.readers == 0 and len(stage.connections) == 0)
        writer.close()


@pytest.mark.parametrize(
    "head",
    [
        b"GET /v1/feed HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + b"a" * 70_000,
        b"GET /" + b"a" * 70_000,
        b"GET /v1/feed HTTP/1.1\r\n" + b"".join(b"X-%d: 1\r\n" % number for number in range(10_000)),
        b"\x16\x03\x01\x02\x00" * 1000 + b"\r\n",
    ],
    ids=["header", "line", "headers", "not-http"],
)
async def test_an_oversized_head_is_refused_and_the_connection_ends(head, caplog):
    async with staged() as stage:
        reader, writer = await stage.raw()
        writer.write(head + b"\r\n\r\n")
        answer = await reader.read()
        assert answer.split()[1] in (b"400", b"431")
        writer.close()
        await eventually(lambda: len(stage.connections) == 0)
        assert await stage.get("/") == 200
    assert "Traceback" not in caplog.text


async def test_a_body_is_not_read(caplog):
    async with staged() as stage:
        reader, writer = await stage.raw()
        writer.write(b"POST /v1/feed HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000000\r\n\r\n" + b"a" * 100_000)
        answer = await reader.read()
        assert answer.split()[1] in (b"401", b"405")
        writer.close()
        await eventually(lambda: len(stage.connections) == 0)
    assert "Traceback" not in caplog.text


async def test_a_manifest_that_does_not_arrive_is_not_waited_for(monkeypatch):
    """Otherwise who may no longer see the cluster asks with rights of an hour ago."""
    monkeypatch.setattr(server, "_ARRIVES_S", 0.05)
    async with staged() as stage:
        stage.server.rights["anna"] = {"*"}
        reader, writer = await stage.raw()
        head = b"POST /v1/fits HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer anna\r\nContent-Length: 9\r\n\r\n"
        writer.write(head + b"kind")
        async with asyncio.timeout(60):
            answer = await reader.read()
        assert answer.split()[1] == b"408"
        writer.close()
        await eventually(lambda: len(stage.connections) == 0)


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost:"], ids=["silent", "half-a-head"])
async def test_a_connection_that_does_nothing_ends_and_a_stream_stays(sent):
    async with staged(idle_s=0.3) as stage, stream(stage) as content:
        await content.readuntil(b"\n\n")
        reader, writer = await stage.raw()
        writer.write(sent)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await reader.readexactly(1)
        assert stage.feed.readers == 1
        writer.close()


@pytest.mark.parametrize("has_tls", [False, True], ids=["plain", "before TLS sessions begin"])
async def test_one_address_does_not_take_all_connections(has_tls):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if has_tls else None
    async with staged(of_address=5, context=context) as stage:
        held = [await stage.raw() for _ in range(5)]
        await eventually(lambda: len(stage.connections) == 5)
        reader, writer = await stage.raw()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await reader.readexactly(1)
        assert stage.connections.refused == 1
        for _, one in (*held, (reader, writer)):
            one.close()
        await eventually(lambda: len(stage.connections) == 0)
        if not has_tls:
            assert await stage.get("/") == 200
