"""Streams, and a reflector that lists and watches, against a TLS server on loopback that fails as real ones do."""

import asyncio
import json
import time
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec
import pytest

from kube.errors import (
    ApiThrottledError,
    ApiUnknownError,
    ApiUnreadableError,
)
from kube.reflector import EventKind, Pace, Reflector
from kube.transport import Purpose
from tests.support.servers.failing_api import POD, dripping, reset, say, silence, stream

QUICK = Pace(first_wait_s=0.04, last_wait_s=0.3, last_list_wait_s=1.0, silence_s=3.0, list_deadline_s=5.0)


def event(kind, name, version, **more):
    value = {"metadata": {"name": name, "resourceVersion": version}} | more
    return json.dumps({"type": kind, "object": value}).encode()


def page(*names, version="10"):
    items = [{"metadata": {"name": one}} for one in names]
    return say(200, json.dumps({"metadata": {"resourceVersion": version}, "items": items}).encode())


def name_of(text: bytes) -> str:
    name: str = msgspec.json.decode(text)["metadata"]["name"]
    return name


# -- streams ----------------------------------------------------------------------------------------------------


async def lines_of(transport, **options):
    async with transport.stream(POD, {}, **({"silence_s": 2.0} | options)) as lines:
        return [line async for line in lines]


async def test_lines_come_whole_however_they_were_cut(transport, server):
    text = b"\n".join([b"one", b"", b"two" * 50, b"three"]) + b"\n"
    server.answers.extend([dripping(text, 1), dripping(text, 7), dripping(text, 1_000)])
    for _ in range(3):
        assert await lines_of(transport) == [b"one", b"two" * 50, b"three"]


async def test_an_event_of_six_megabytes_is_one_line(transport, server):
    big = b"x" * 6_000_000
    server.answers.append(stream(b"small", big, b"small"))
    assert await lines_of(transport) == [b"small", big, b"small"]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (stream(b"x" * 2_000_000), ApiUnreadableError),
        (dripping(b"whole\nhalf", 100), ApiUnreadableError),
        (stream(b"one", then=reset), ApiUnknownError),
        (stream(b"one", then=silence), ApiUnknownError),
        (silence, ApiUnknownError),
        (say(429, b"no"), ApiThrottledError),
        (say(502, b"<html>"), ApiUnknownError),
    ],
    ids=["too long", "cut", "reset", "half-open", "no head", "429", "502 page"],
)
async def test_a_stream_that_fails_is_an_error_and_never_a_line(transport, server, answer, kind):
    await transport.request("GET", POD, purpose=Purpose.WATCHES)  # so that the short limit holds no handshake
    server.answers.append(answer)
    # Of those that go on being silent, no more is to be waited for.
    limit_s = 0.4 if kind is ApiUnknownError else 60.0
    with pytest.raises(kind):
        await lines_of(transport, start_s=limit_s, silence_s=limit_s, max_line_bytes=1_000_000)


# -- list and watch ---------------------------------------------------------------------------------------------


class Picture:
    """What a consumer knows."""

    def __init__(self):
        self.names = set()
        self.changed = asyncio.Event()

    async def on_replace(self, objects, resource_version):
        self.names = set(objects)
        self.changed.set()

    async def on_event(self, kind, value):
        (self.names.discard if kind is EventKind.DELETED else self.names.add)(value)
        self.changed.set()

    async def becomes(self, *names):
        async with asyncio.timeout(60):
            while self.names != set(names):
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def reflecting(transport, picture, pace=QUICK):
    reflector = Reflector(
        transport,
        "/api/v1/pods",
        decode=name_of,
        sink=picture,
        pace=pace,
    )
    task = asyncio.create_task(reflector.run(), name="reflector")
    try:
        yield reflector
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_the_picture_follows_through_every_fault(transport, server):
    expired = json.dumps({"type": "ERROR", "object": {"code": 410, "reason": "Expired"}}).encode()
    picture = Picture()

    async def reset_once_seen(request):
        await picture.becomes("b")
        return await reset(request)

    # After each watch that did not end at its time, the next one begins with the last event again, and is followed by a
    # look at the server's version.
    server.answers.extend(
        [
            say(502, b"<html>", Content_Type="text/html"),
            page("a"),
            stream(event("ADDED", "b", "11"), then=silence),
            stream(event("ADDED", "b", "11"), event("DELETED", "a", "12"), then=reset_once_seen),
            page(version="11"),
            say(429, b"text"),
            stream(event("DELETED", "a", "12"), event("ADDED", "c", "13"), event("BOOKMARK", "", "20")),
            page(version="12"),
            stream(event("ADDED", "c", "13"), event("ADDED", "big", "21", blob="x" * 6_000_000), expired),
            page(version="20"),
            page("b", "d", version="30"),
            stream(event("ADDED", "e", "31"), b'{"type":"ADDED","obj'),
            page("z", version="40"),
            stream(then=silence),
        ]
    )
    async with reflecting(transport, picture) as reflector:
        await picture.becomes("z")
        assert reflector.counters.lists == 4
        assert reflector.counters.expired == 1
        assert reflector.counters.undecodable == 1
    versions = [asked["query"]["resourceVersion"] for asked in server.asked if "watch" in asked["query"]]
    assert versions[:7] == ["10", "10", "11", "11", "12", "30", "40"]


async def test_while_all_kinds_are_watched_each_can_ask_beside_its_watch(transport, server):
    # As the controller does after an API server came back: the longest answer delays no other.
    kinds = 30
    together = asyncio.Barrier(kinds)

    async def when_all_have_asked(request):
        await together.wait()
        return await page()(request)

    async with AsyncExitStack() as stack:
        for _ in range(kinds):
            server.answers.append(stream(then=silence))
            await stack.enter_async_context(transport.stream(POD, {}, silence_s=10.0))
        server.answers.extend([when_all_have_asked] * kinds)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(kinds):
                tasks.create_task(transport.request("GET", POD, purpose=Purpose.CALLS, deadline_s=5.0))


async def test_a_list_of_ten_thousand_pods_never_holds_the_loop_for_long(transport, server):
    pods = [{"metadata": {"name": f"p{i}", "labels": {"k": "v" * 4_000}}} for i in range(500)]
    for part in range(20):
        token = "" if part == 19 else f"t{part}"
        body = json.dumps({"metadata": {"resourceVersion": "10", "continue": token}, "items": pods})
        server.answers.append(say(200, body.encode()))
    server.answers.append(stream(then=silence))
    longest_s = 0.0
    async with reflecting(transport, Picture(), Pace()) as reflector:
        while not reflector.synced.is_set():
            # CPU time: what else runs on the machine is not held against us. The server's work is included.
            before_s = time.thread_time()
            await asyncio.sleep(0)
            longest_s = max(longest_s, time.thread_time() - before_s)
    assert longest_s < 0.1
