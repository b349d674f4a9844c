"""A port of `runtime`, in this process: what is said over it, what is held, and what is ended."""

import asyncio
import contextlib
import socket
import ssl
import struct
import time
from collections.abc import Awaitable, Callable
from datetime import UTC
from email.utils import parsedate_to_datetime

import pytest
import trustme

from runtime.calls import TEXT, Call, Plain, RefusedCallError, Reply
from runtime.listening import Address
from runtime.serving import HttpListener

HERE = Address(host="127.0.0.1", port=0)


class Counted(bytes):
    """A body that tells when its length is wanted: that is when the answer is written."""

    order: list[str]

    def __new__(cls, body, order):
        made = super().__new__(cls, body)
        made.order = order
        return made

    def __len__(self):
        self.order.append("written")
        return super().__len__()


class Echo:
    """Answers with the body's length: at once, or to be awaited where the path says so or `go_on` holds calls."""

    def __init__(self):
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.begun = 0
        self.order: list[str] = []
        self.has_left: Callable[[], bool] = bool

    def answer(self, call: Call) -> Reply | Awaitable[Reply]:
        self.begun += 1
        self.has_left = call.has_left
        is_held = call.path.startswith("/later") or not self.go_on.is_set()
        return self._held(call) if is_held else self._answered(call)

    async def _held(self, call: Call) -> Reply:
        await self.go_on.wait()
        return self._answered(call)

    def _answered(self, call: Call) -> Reply:
        self.order.append("judged")
        if call.path.endswith("/early"):
            raise RefusedCallError(404, "there is nothing here")
        if call.path.endswith("/get"):
            raise RefusedCallError(405, "use GET", allow="GET")
        if call.path.endswith("/busy"):
            raise RefusedCallError(429, "another one is answered", retry_after_s=7)
        if call.path.endswith("/pieces"):
            return Reply(_pieces(), content_type=TEXT)
        if call.path.endswith("/broken"):
            raise KeyError("a mistake of ours")
        return Reply(Counted(b"%d\n" % len(call.body), self.order), content_type=TEXT)


async def _pieces():
    for _ in range(64):
        yield bytes(2**20)


class Served:
    def __init__(self, port, echo, address, context=None):
        self.port, self.echo, self.address, self.context = port, echo, address, context

    async def open(self):
        return await asyncio.open_connection(
            "127.0.0.1", self.address.port, ssl=self.context, server_hostname="localhost" if self.context else None
        )

    @contextlib.asynccontextmanager
    async def connection(self):
        reader, writer = await self.open()
        try:
            yield reader, writer
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


@pytest.fixture(params=["plain", "tls"])
def is_tls(request):
    return request.param == "tls"


@pytest.fixture
async def serve(is_tls):
    found = []
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(server)
    authority.configure_trust(client)

    async def start(**options):
        echo = Echo()
        port = HttpListener("test", echo.answer, server if is_tls else None, **{"max_connections": 8, **options})
        found.append(port)
        return Served(port, echo, await port.start(HERE, "--listen"), client if is_tls else None)

    yield start
    for one in found:
        await one.stop(1.0)


def call(body=b"", path="/", length=None, more=""):
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length or len(body)}\r\n{more}\r\n".encode() + body


async def answer(reader):
    """(status, body) of the next answer."""
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)).decode().lower()
    length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
    return int(head.split()[1]), await asyncio.wait_for(reader.readexactly(length), 60)


async def until(true, deadline_s=60.0):
    end_s = time.monotonic() + deadline_s
    while not true():
        assert time.monotonic() < end_s
        await asyncio.sleep(0.01)


async def delivered():
    """Go on once the port has read what was written: over loopback a few turns of the loop are enough."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("path", ["/", "/later"])
async def test_calls_are_answered_one_after_the_other_and_the_connection_is_kept(serve, path):
    served = await serve()
    async with served.connection() as (reader, writer):
        for body in (b"", b"abc", b"x" * 60_000, b"x" * 200_000):
            writer.write(call(body, path=path))
            assert await answer(reader) == (200, b"%d\n" % len(body))
        writer.write(b"".join(call(b"y" * size, path=path) for size in range(5)))
        assert [await answer(reader) for _ in range(5)] == [(200, b"%d\n" % size) for size in range(5)]
        assert len(served.port.connections) == 1


async def test_calls_that_came_together_are_judged_before_the_first_is_written(serve):
    served = await serve()
    async with contextlib.AsyncExitStack() as stack:
        ends = [await stack.enter_async_context(served.connection()) for _ in range(4)]
        for reader, writer in ends:
            writer.write(call(b"a"))
            assert await answer(reader) == (200, b"1\n")
        served.echo.order.clear()
        for _, writer in ends:
            writer.write(call(b"ab"))
        assert [await answer(reader) for reader, _ in ends] == [(200, b"2\n")] * 4
        assert served.echo.order == ["judged"] * 4 + ["written"] * 4


@pytest.mark.parametrize("path", ["/", "/later"])
async def test_an_answer_says_what_http_wants_of_it(serve, path):
    served = await serve()
    async with served.connection() as (reader, writer):
        writer.write(call(b"abc", path=path))
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        assert await reader.readexactly(2) == b"3\n"
        assert lines[0] == "HTTP/1.1 200 OK"
        told = dict(line.split(": ", 1) for line in lines[1:-2])
        assert parsedate_to_datetime(told.pop("date")).tzinfo is UTC
        assert told == {"content-type": TEXT, "content-length": "2"}
        writer.write(call(path=path + "/get"))
        assert b"\r\nallow: GET\r\n" in await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(len("use GET\n"))
        # A client that waits for leave to send its body.
        writer.write(call(path=path, length=3, more="Expect: 100-continue\r\n"))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"abc")
        assert await answer(reader) == (200, b"3\n")
        writer.write(f"HEAD {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode() + call(b"abcd", path=path))
        assert b"content-length: 2\r\n" in await reader.readuntil(b"\r\n\r\n")
        assert await answer(reader) == (200, b"4\n")
        writer.write(f"GET {path} HTTP/1.0\r\nHost: x\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"\r\nconnection: close\r\n" in head
        assert await reader.read() == b"0\n"


async def test_blank_lines_before_a_call_are_no_call(serve):
    served = await serve()
    async with served.connection() as (reader, writer):
        for path in ("/", "/later", "/"):
            writer.write(b"\r\n\r\n")
            await delivered()
            writer.write(call(b"abc", path=path))
            assert await answer(reader) == (200, b"3\n")
        assert served.echo.begun == 3


@pytest.mark.parametrize("blank", [b"\r\n", b"\r\n\r\n", b"\r\n" * 9_000], ids=["one", "two", "many"])
async def test_blank_lines_may_come_with_the_call(serve, blank):
    served = await serve()
    async with served.connection() as (reader, writer):
        for path in ("/", "/later", "/"):
            writer.write(blank + call(b"abc", path=path) + blank + call(b"d", path=path))
            assert [await answer(reader) for _ in range(2)] == [(200, b"3\n"), (200, b"1\n")]
        assert served.echo.begun == 6


async def test_a_call_may_come_byte_by_byte(serve):
    served = await serve()
    async with served.connection() as (reader, writer):
        for byte in call(b"abc") + call(b"de"):
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        assert [await answer(reader), await answer(reader)] == [(200, b"3\n"), (200, b"2\n")]


async def test_no_call_begins_before_the_one_ahead_of_it_is_answered_and_little_of_it_is_kept(serve):
    served = await serve()
    served.echo.go_on.clear()
    async with served.connection() as (reader, writer):
        writer.write(call() * 2000)
        await delivered()
        assert served.echo.begun == 1
        (one,) = served.port.connections
        assert len(one._held) <= 64 * 1024
        served.echo.go_on.set()
        assert await answer(reader) == (200, b"0\n")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET / HTTP/9.9\r\n\r\n", 400),
        (b"GET /" + b"x" * 9000, 431),
        (b"POST / HTTP/1.1\r\nX: " + b"x" * 9000 + b"\r\n\r\n", 431),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", 411),
        (call(length=3000), 413),
        (call(b"x" * 1000, path="/early"), 404),
        (call(b"x" * 1000, path="/later/early"), 404),
        (call(b"x" * 1000, path="/get"), 405),
        (call(b"x" * 1000, path="/broken"), 500),
        (call(b"x" * 1000, path="/later/broken"), 500),
        (call(length=1000) + b"{", 408),
    ],
    ids=[
        "version",
        "long line",
        "long header",
        "no length",
        "large body",
        "nothing there",
        "nothing there, later",
        "method",
        "our mistake",
        "our mistake, later",
        "half",
    ],
)
async def test_what_is_no_call_gets_its_status_and_is_counted(serve, sent, status):
    served = await serve(max_body_bytes=2000, deadline_s=lambda _: 1.0)
    async with served.connection() as (reader, writer):
        writer.write(sent)
        assert (await answer(reader))[0] == status
    assert served.port.refused == {status: 1}
    async with served.connection() as (reader, writer):
        writer.write(call(b"abc"))
        assert await answer(reader) == (200, b"3\n")


async def test_the_deadline_of_a_body_is_asked_by_the_calls_query(serve):
    served = await serve(deadline_s=lambda query: float(query.partition(b"=")[2]))
    async with served.connection() as (reader, writer):
        began_s = time.monotonic()
        writer.write(call(path="/?timeout=0.3", length=5) + b"a")
        assert (await answer(reader))[0] == 408
        assert time.monotonic() - began_s > 0.2
        assert await reader.read() == b""


async def test_an_answer_to_half_a_call_arrives_although_the_rest_is_still_coming(serve):
    served = await serve(max_body_bytes=2000)
    async with served.connection() as (reader, writer):
        writer.write(call(length=10**6))
        assert (await answer(reader))[0] == 413
        for _ in range(16):
            writer.write(b"x" * 65_536)
            await asyncio.sleep(0)


async def test_with_one_connection_more_the_one_that_is_idle_longest_goes(serve):
    served = await serve()
    async with contextlib.AsyncExitStack() as stack:
        first = await stack.enter_async_context(served.connection())
        others = [await stack.enter_async_context(served.connection()) for _ in range(7)]
        await until(lambda: len(served.port.connections) == 8)
        first[1].write(call())
        assert (await answer(first[0]))[0] == 200
        await stack.enter_async_context(served.connection())
        await until(lambda: served.port.dropped_connections == 1)
        with contextlib.suppress(OSError):
            assert await others[0][0].read() == b""
        first[1].write(call())
        assert (await answer(first[0]))[0] == 200, "who was used last stays"


async def test_who_makes_room_is_told_to_ask_again_where_calls_may_be_on_their_way(serve):
    served = await serve(asks_again=True)
    served.echo.go_on.clear()
    async with contextlib.AsyncExitStack() as stack:
        idle = await stack.enter_async_context(served.connection())
        busy = [await stack.enter_async_context(served.connection()) for _ in range(7)]
        await until(lambda: len(served.port.connections) == 8)
        for at, (_, writer) in enumerate(busy):
            writer.write(call(b"x" * 100))
            await until(lambda at=at: served.echo.begun == at + 1)
        busy.append(await stack.enter_async_context(served.connection()))
        await is_told_to_ask_again(idle[0])
        busy[-1][1].write(call())
        await until(lambda: served.echo.begun == 8)
        # All have a call under way, which is not answered otherwise either.
        await stack.enter_async_context(served.connection())
        await is_told_to_ask_again(busy[0][0])
        assert served.port.dropped_connections == 2
        served.echo.go_on.set()
        assert [(await answer(reader))[0] for reader, _ in busy[1:]] == [200] * 7


async def test_silent_ones_do_not_keep_others_out(serve):
    served = await serve()
    silent = [await asyncio.open_connection("127.0.0.1", served.address.port) for _ in range(30)]
    try:
        async with served.connection() as (reader, writer):
            writer.write(call(b"abc"))
            assert await answer(reader) == (200, b"3\n")
        assert len(served.port.connections) <= 8
    finally:
        for _, writer in silent:
            writer.close()


async def test_who_idles_too_long_is_told_to_ask_again_where_calls_may_be_on_their_way(serve):
    served = await serve(keepalive_s=1.0, asks_again=True)
    async with served.connection() as (silent, _), served.connection() as (reader, writer):
        writer.write(call())
        assert (await answer(reader))[0] == 200
        for one in (silent, reader):
            await is_told_to_ask_again(one)
    await until(lambda: len(served.port.connections) == 0)


async def test_idle_connections_are_ended_in_time_whether_they_ever_asked_or_not(serve):
    served = await serve(keepalive_s=1.0)
    async with served.connection() as (silent, _), served.connection() as (reader, writer):
        writer.write(call())
        assert (await answer(reader))[0] == 200
        for one in (silent, reader):
            with contextlib.suppress(OSError):
                assert await asyncio.wait_for(one.read(), 60) == b""
    await until(lambda: len(served.port.connections) == 0)


async def test_a_head_that_does_not_come_to_its_end_is_refused_in_time(serve):
    served = await serve()
    async with served.connection() as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nHost:")
        await until(lambda: served.port.busy == 1)
        (one,) = served.port.connections
        one.look(one.since_s + 9.0, 120.0)
        assert served.port.refused == {}
        one.look(one.since_s + 11.0, 120.0)
        assert (await answer(reader))[0] == 408


async def test_large_bodies_take_turns(serve):
    served = await serve(max_connections=32)
    body = b"x" * 300_000

    async def ask():
        async with served.connection() as (reader, writer):
            writer.write(call(body))
            return await answer(reader)

    served.echo.go_on.clear()
    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(ask()) for _ in range(20)]
        await until(lambda: served.port.busy == 20)
        await delivered()
        served.echo.go_on.set()
    assert {one.result() for one in asked} == {(200, b"300000\n")}


async def test_to_read_a_long_answer_there_is_time_from_its_beginning(serve):
    here, now_s = await serve(), asyncio.get_running_loop().time

    def looks(one, after_s):
        one.look(now_s() + after_s, 120.0)
        return not here.port.connections

    here.echo.go_on.clear()
    async with here.connection() as (reader, writer):
        writer.write(b"GET /pieces HTTP/1.1\r\nHost: a\r\n\r\n")
        await until(lambda: here.echo.begun)
        (one,) = here.port.connections
        one.since_s -= 100.0
        here.echo.go_on.set()
        for _ in range(20):
            assert not looks(one, 29.0)
            await reader.readexactly(2**17)
        await until(lambda: looks(one, 31.0))


async def test_more_large_bodies_than_may_wait_are_refused(serve):
    served = await serve(max_connections=100)
    async with contextlib.AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(served.connection()) for _ in range(80)]
        for _, writer in opened:
            writer.write(call(b"x" * 100_000, length=200_000))
        await until(lambda: served.port.refused[503] == 16)


async def test_an_answer_knows_that_its_caller_is_gone(serve):
    served = await serve()
    served.echo.go_on.clear()
    async with served.connection() as (_, writer):
        writer.write(call(b"abc"))
        await until(lambda: served.echo.begun)
        assert not served.echo.has_left()
        # In plain text, a client that only closes its side may still read; one that resets the connection is gone.
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        await until(served.echo.has_left)
    served.echo.go_on.set()


@pytest.mark.parametrize("path", ["/busy", "/later/busy"])
async def test_who_is_to_come_again_is_told_when(serve, path):
    served = await serve()
    async with served.connection() as (reader, writer):
        for _ in range(2):
            writer.write(call(path=path))
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            assert (" 429 " in head, "\r\nretry-after: 7\r\n" in head) == (True, True)
            await reader.readexactly(24)
            writer.write(call())
            assert b"retry-after" not in (await reader.readuntil(b"\r\n\r\n")).lower()
            await reader.readexactly(2)


async def test_a_stop_waits_for_the_call_that_is_under_way(serve):
    served = await serve()
    served.echo.go_on.clear()
    async with served.connection() as (reader, writer), served.connection() as (idle, _):
        writer.write(call(b"abc"))
        await until(lambda: served.echo.begun == 1)
        stopping = asyncio.create_task(served.port.stop(5.0), name="stop")
        assert await idle.read() == b""
        served.echo.go_on.set()
        assert await answer(reader) == (200, b"3\n")
        assert await reader.read() == b""
        writer.close()
        await stopping


async def is_told_to_ask_again(reader):
    """Reads the answer on which client-go sends a call again, and that nothing follows it."""
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)).decode().lower().split("\r\n")
    assert head[0] == "http/1.1 429 too many requests"
    assert set(head[1:-2]) == {"retry-after: 1", "content-length: 0", "connection: close"}
    with contextlib.suppress(OSError):
        assert await asyncio.wait_for(reader.read(), 60) == b""


@pytest.mark.parametrize(
    "sent",
    [b"", call(b"abc"), b"\r\n", b"POST / HT", call(b"abc") + b"POST / HTTP/1.1\r\nHost: x\r\n"],
    ids=["nothing", "a call", "a blank line", "half a head", "a call and half a head"],
)
async def test_a_stop_tells_whose_call_may_be_on_its_way_to_ask_again(serve, sent):
    served = await serve(asks_again=True)
    async with served.connection() as (reader, writer):
        writer.write(sent)
        if sent.startswith(call(b"abc")):
            assert await answer(reader) == (200, b"3\n")
        if not sent.endswith(b"abc"):
            await until(lambda: served.port.busy == bool(sent))
        await until(lambda: len(served.port.connections) == 1)
        stopping = asyncio.create_task(served.port.stop(10.0), name="stop")
        await is_told_to_ask_again(reader)
        writer.close()
        await stopping
    assert served.port.refused == {}


async def test_a_call_that_comes_while_its_connection_ends_meets_no_reset_before_it_is_told_to_ask_again(serve):
    served = await serve(asks_again=True)
    async with served.connection() as (reader, writer):
        writer.write(call(b"abc"))
        assert await answer(reader) == (200, b"3\n")
        stopping = asyncio.create_task(served.port.stop(10.0), name="stop")
        await delivered()
        writer.write(call(length=10**6))
        for _ in range(10):
            writer.write(b"x" * 100_000)
            await writer.drain()
            await delivered()
        await is_told_to_ask_again(reader)
        writer.close()
        await stopping
    assert served.echo.begun == 1


async def test_a_stop_answers_the_calls_that_are_under_way_and_those_alone(serve):
    served = await serve(asks_again=True)
    served.echo.go_on.clear()
    async with served.connection() as answered, served.connection() as half, served.connection() as idle:
        answered[1].write(call(b"abc"))
        half[1].write(call(length=3) + b"a")
        await until(lambda: served.port.busy == 2)
        stopping = asyncio.create_task(served.port.stop(10.0), name="stop")
        await is_told_to_ask_again(idle[0])
        served.echo.go_on.set()
        half[1].write(b"bc")
        for reader, writer in (answered, half):
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ")
            assert b"connection: close" in head
            assert await reader.read() == b"3\n"
            writer.close()
        idle[1].close()
        await stopping


async def test_a_stop_does_not_wait_for_a_connection_that_is_accepted_just_before(serve):
    served = await serve()
    with socket.create_connection(("127.0.0.1", served.address.port)):
        # In the second turn of the loop its task is made but has not begun.
        for _ in range(2):
            await asyncio.sleep(0)
        assert served.port.connections
        async with asyncio.timeout(30.0):
            await served.port.stop(60.0)
    assert not served.port.connections


async def test_a_draining_port_answers_and_ends_the_connection(serve):
    served = await serve()
    served.port.drain()
    async with served.connection() as (reader, writer):
        writer.write(call(b"abc"))
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"connection: close" in head.lower()
        assert await reader.read() == b"3\n"


async def test_readiness_has_a_line_for_each_reason():
    reasons: list[str] = []
    plain = Plain(lambda: reasons, lambda: b"figures\n")
    port = HttpListener("plain", plain.answer, max_connections=8)
    address = await port.start(HERE, "--listen")

    async def ask(path, method="GET"):
        reader, writer = await asyncio.open_connection("127.0.0.1", address.port)
        writer.write(f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        text = await reader.read()
        writer.close()
        return int(text.split()[1]), text.partition(b"\r\n\r\n")[2]

    assert await ask("/readyz") == (200, b"ok\n")
    reasons += ["one", "two"]
    assert await ask("/readyz") == (503, b"one\ntwo\n")
    assert await ask("/healthz") == (200, b"ok\n")
    assert await ask("/metrics") == (200, b"figures\n")
    assert (await ask("/"))[0] == 404
    assert (await ask("/healthz", "POST"))[0] == 405
    assert (await ask("/healthz", "HEAD")) == (405, b"")
    await port.stop(1.0)
