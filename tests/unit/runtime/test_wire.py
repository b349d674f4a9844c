"""What a port answers to every stream of bytes, and that it answers the same however the stream is cut."""

import asyncio
import errno
from collections.abc import Sequence

import pytest

from runtime.calls import Call, Reply
from runtime.connection import Connection
from runtime.serving import HttpListener
from tests.support.servers.pipes import Pipe, answer, call, post, transcript, turns


def statuses_of(writes: Sequence[bytes]) -> str:
    return " ".join(part[:3].decode() for part in b"".join(writes).split(b"HTTP/1.1 ")[1:])


# what it is: what is sent, the statuses of the answers, the state after them with the statuses of refused calls
STREAMS: dict[str, tuple[bytes, str, str]] = {
    "nothing": (b"", "", "idle"),
    "a get": (call(), "200", "idle"),
    "a post": (post(b"abc"), "200", "idle"),
    "a post of nothing": (post(b""), "200", "idle"),
    "calls in a row": (
        post(b"a") + post(b"bc", "/later") + call("GET", "/pieces") + call(), "200 200 200 200", "idle"
    ),
    "blank lines": (b"\r\n\n\r\n" + post(b"a") + b"\r\n" + call(), "200 200", "idle"),
    "a blank line": (b"\r\n", "", "in a call"),
    "half a head": (call()[:-5], "", "in a call"),
    "half a body": (post(b"abcdef")[:-3], "", "in a call"),
    "a body that looks like a call": (post(call()), "200", "idle"),
    "a body longer than its length": (post(b"abc") + b"def", "200", "in a call"),
    "no call": (b"hello\r\n\r\n", "400", "ended 400"),
    "zero bytes": (b"\x00\x00\r\n\r\n", "400", "ended 400"),
    "a TLS hello": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "", "in a call"),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "400", "ended 400"),
    "version 9.9": (call(version="9.9"), "400", "ended 400"),
    "version 2.0": (call(version="2.0"), "400", "ended 400"),
    "version 1.0": (call(version="1.0") + call(), "200", "ended"),
    "version 1.0, kept": (call("GET", "/", "Connection: keep-alive", version="1.0") + call(), "200", "ended"),
    "version 1.0, in pieces": (call("GET", "/pieces", version="1.0"), "200", "ended"),
    "version 0.9": (call(version="0.9"), "400", "ended 400"),
    "no version": (b"GET /\r\n\r\n", "400", "ended 400"),
    "no version and a bare line feed": (b"GET /\nContent-Length: 3\r\n\r\nabc", "400", "ended 400"),
    "head": (call("HEAD") + call("HEAD", "/later") + call(), "200 200 200", "idle"),
    "head in pieces": (call("HEAD", "/pieces") + call(), "200 200", "idle"),
    "close": (call("GET", "/", "Connection: close") + call(), "200", "ended"),
    "close among others": (call("GET", "/later", "Connection: x, Close"), "200", "ended"),
    "close of pieces": (call("GET", "/pieces", "Connection: close") + call(), "200", "ended"),
    "close of a post": (post(b"abc", "/", "Connection: close") + post(b"d"), "200", "ended"),
    "pieces that fail": (call("GET", "/pieces/broken") + call(), "200", "ended 500"),
    "no piece but a mistake": (call("GET", "/pieces/none") + call(), "500 200", "idle 500"),
    "busy": (call("GET", "/busy") + call(), "429 200", "idle 429"),
    "leave to send": (post(b"abc", "/", "Expect: 100-continue") + call(), "100 200 200", "idle"),
    "leave to send, awaited": (post(b"abc", "/later", "expect: 100-Continue"), "100 200", "idle"),
    "leave to send nothing": (call("GET", "/", "Expect: 100-continue"), "100 200", "idle"),
    "leave to send too much": (
        call("POST", "/", "Expect: 100-continue", "Content-Length: 2001"), "413", "ended 413"
    ),
    "leave to send, of version 1.0": (
        call("POST", "/", "Expect: 100-continue", "Content-Length: 3", version="1.0", body=b"abc"), "200", "ended"
    ),
    "another expectation": (post(b"abc", "/", "Expect: more"), "200", "idle"),
    "chunks": (
        call("POST", "/", "Transfer-Encoding: chunked", body=b"3\r\nabc\r\n0\r\n\r\n"), "411", "ended 411"
    ),
    "chunks with an extension": (
        call("POST", "/", "Transfer-Encoding: chunked", body=b"3;a=b\r\nabc\r\n0\r\n\r\n"), "411", "ended 411"
    ),
    "chunks of a get": (call("GET", "/", "Transfer-Encoding: chunked", body=b"0\r\n\r\n"), "411", "ended 411"),
    "chunks of version 1.0": (
        call("POST", "/", "Transfer-Encoding: chunked", version="1.0", body=b"0\r\n\r\n"), "411", "ended 411"
    ),
    "chunks twice": (
        call("POST", "/", "Transfer-Encoding: chunked", "Transfer-Encoding: chunked", body=b"0\r\n\r\n"),
        "400", "ended 400",
    ),
    "chunks after a vertical tab": (call("POST", "/", "Transfer-Encoding: \vchunked"), "400", "ended 400"),
    "identity": (call("POST", "/", "Transfer-Encoding: identity", body=b"abc"), "400", "ended 400"),
    "chunks, then identity": (call("POST", "/", "Transfer-Encoding: chunked, identity"), "400", "ended 400"),
    "gzip": (call("POST", "/", "Transfer-Encoding: gzip", body=b"abc"), "400", "ended 400"),
    "a length and chunks": (
        call("POST", "/", "Content-Length: 3", "Transfer-Encoding: chunked", body=b"0\r\n\r\n"), "400", "ended 400"
    ),
    "chunks and a length": (
        call("POST", "/", "Transfer-Encoding: chunked", "Content-Length: 3", body=b"0\r\n\r\n"), "400", "ended 400"
    ),
    "two lengths": (call("POST", "/", "Content-Length: 3", "Content-Length: 4", body=b"abcd"), "400", "ended 400"),
    "equal lengths": (call("POST", "/", "Content-Length: 3", "Content-Length: 3", body=b"abc"), "400", "ended 400"),
    "lengths in one line": (call("POST", "/", "Content-Length: 3, 3", body=b"abc"), "400", "ended 400"),
    "a negative length": (call("POST", "/", "Content-Length: -1", body=b"abc"), "400", "ended 400"),
    "a length with a sign": (call("POST", "/", "Content-Length: +3", body=b"abc"), "400", "ended 400"),
    "a length in hex": (call("POST", "/", "Content-Length: 0x3", body=b"abc"), "400", "ended 400"),
    "a length between blanks": (call("POST", "/", "Content-Length:  3 ", body=b"abc"), "200", "idle"),
    "a length with zeros in front": (call("POST", "/", "Content-Length: 003", body=b"abc"), "200", "idle"),
    "a length with an underscore": (call("POST", "/", "Content-Length: 1_0", body=b"abc"), "400", "ended 400"),
    "a length after a vertical tab": (call("POST", "/", "Content-Length: \v3", body=b"abc"), "400", "ended 400"),
    "a length of zero, and more": (
        call("POST", "/", "Content-Length: 0", body=b"GET / HTTP/1.1\r\n\r\n"), "200 200", "idle"
    ),
    "an empty length": (call("POST", "/", "Content-Length:", body=b"abc"), "400", "ended 400"),
    "a length beyond 64 bits": (call("POST", "/", "Content-Length: 99999999999999999999"), "400", "ended 400"),
    "too long a body": (call("POST", "/", "Content-Length: 2001", body=b"abc"), "413", "ended 413"),
    "the longest head": (call("GET", "/", "X: " + "x" * (8192 - len(call()) - 5)), "200", "idle"),
    "a head of one byte more": (call("GET", "/", "X: " + "x" * (8192 - len(call()) - 4)), "431", "ended 431"),
    "many headers": (call("GET", "/", *["a:"] * 2000), "200", "idle"),
    "too many headers": (call("GET", "/", *["a:"] * 2100), "431", "ended 431"),
    "too long a head": (b"GET / HTTP/1.1\r\nX: " + b"x" * 8_300, "431", "ended 431"),
    "a get with a body": (call("GET", "/", "Content-Length: 3", body=b"abc") + call(), "200 200", "idle"),
    "bare line feeds": (b"GET / HTTP/1.1\nHost: x\n\n\r\n\r\n", "400", "ended 400"),
    "bare carriage returns": (b"GET / HTTP/1.1\rHost: x\r\r\n\r\n", "400", "ended 400"),
    "a folded line": (call("GET", "/", "X: a\r\n b"), "400", "ended 400"),
    "a blank before the colon": (call("GET", "/", "X : a"), "400", "ended 400"),
    "a name with a blank": (call("GET", "/", "X y: a"), "400", "ended 400"),
    "no colon": (call("GET", "/", "X"), "400", "ended 400"),
    "no name": (call("GET", "/", ": a"), "400", "ended 400"),
    "a zero byte in a value": (call("GET", "/", "X: a\0b"), "400", "ended 400"),
    "bytes beyond ASCII in a value": (call("GET", "/", "X: é"), "200", "idle"),
    "a method in lower case": (call("get"), "400", "ended 400"),
    "an unknown method": (call("FETCH"), "400", "ended 400"),
    "another method": (call("PATCH", "/x"), "200", "idle"),
    "a blank before the method": (b" " + call(), "400", "ended 400"),
    "connect": (call("CONNECT", "x:443") + b"abc", "400", "ended 400"),
    "an asterisk": (call("OPTIONS", "*"), "200", "idle"),
    "a whole address": (call("GET", "http://y:1/a?b"), "200", "idle"),
    "an address without a path": (call("GET", "http://y"), "400", "ended 400"),
    "two slashes": (call("GET", "//a/b"), "200", "idle"),
    "a query and a fragment": (call("GET", "/a?b=c&d#e"), "200", "idle"),
    "percents": (call("GET", "/a%20%2e%zz%ff?%20"), "200", "idle"),
    "a blank in the path": (call("GET", "/a b"), "400", "ended 400"),
    "bytes beyond ASCII in the path": ("GET /é HTTP/1.1\r\n\r\n".encode(), "400", "ended 400"),
    "an upgrade": (call("GET", "/", "Connection: upgrade", "Upgrade: websocket"), "400", "ended 400"),
    "an upgrade to HTTP/2": (
        call("GET", "/", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c"), "400", "ended 400"
    ),
    "an upgrade of a post": (post(b"abc", "/", "Connection: upgrade", "Upgrade: x"), "400", "ended 400"),
    "an upgrade that no connection names": (call("GET", "/", "Upgrade: websocket"), "200", "idle"),
}  # fmt: skip
by_stream = pytest.mark.parametrize(("sent", "statuses", "state"), STREAMS.values(), ids=STREAMS)


@by_stream
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_every_stream_has_its_answers(sent, statuses, state, tls):
    writes, found = await transcript(sent, tls=tls)
    if tls:
        # A refusal ends TLS later, because no half of such a connection can end alone.
        state = state.replace("ended 4", "idle 4")
    assert (statuses_of(writes), found) == (statuses, state)
    if b"/pieces" not in sent:
        assert len(writes) == len(statuses.split()), "head and body are one write, so one TLS record"


@by_stream
async def test_the_answers_are_the_same_however_the_stream_is_cut(sent, statuses, state):
    whole = await transcript(sent)
    for at in range(1, min(len(sent), 300)):
        assert await transcript(sent[:at], sent[at:]) == whole, sent[:at]
    assert await transcript(*(bytes([byte]) for byte in sent[:300]), sent[300:]) == whole


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_a_client_that_ends_its_side_is_refused_half_a_call_and_answered_a_whole_one(tls):
    sent = post(b"abcdef", "/later")
    for at in range(1, len(sent)):
        writes, state = await transcript(sent[:at], closes=True, tls=tls)
        assert (statuses_of(writes), state) == ("400", "ended 400"), sent[:at]
    assert statuses_of((await transcript(sent, closes=True, tls=tls))[0]) == "200"


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("sent", [call("GET", "/", "Connection: close"), b"no call\r\n\r\n"], ids=["closed", "refused"])
async def test_a_client_that_does_not_read_its_last_answer_is_not_kept(sent, tls):
    port = HttpListener("test", answer, max_connections=8)
    one, pipe = Connection(port), Pipe(tls=tls)
    one.connection_made(pipe)
    one.data_received(sent)
    await turns()
    one.look(one.since_s + 29.0, 120.0)
    assert not pipe.is_aborted
    one.look(one.since_s + 31.0, 120.0)
    assert pipe.is_aborted, "a closed transport waits for its client without a limit"
    one.connection_lost(None)


async def test_an_unread_answer_counts_against_its_client_although_the_next_call_may_come():
    one, pipe = connected(HttpListener("test", answer, max_connections=8), call())
    await turns()
    one.pause_writing()
    one.look(one.since_s + 29.0, 120.0)
    assert not pipe.is_aborted
    one.look(one.since_s + 31.0, 120.0)
    assert pipe.is_aborted
    one.connection_lost(None)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("ends", ["idle", "client"])
async def test_a_client_that_does_not_read_is_not_kept_after_a_time_without_calls(ends, tls):
    one, pipe = Connection(HttpListener("test", answer, max_connections=8)), Pipe(tls=tls)
    one.connection_made(pipe)
    one.data_received(call())
    await turns()
    if ends == "client":
        assert not one.eof_received()
        pipe.close()
    else:
        one.look(one.since_s + 121.0, 120.0)
    assert (pipe.end, pipe.is_aborted) == ("ended", False)
    one.look(one.since_s + 31.0, 120.0)
    assert pipe.is_aborted, "a closed transport waits for its client without a limit"
    one.connection_lost(None)


class Reset(Pipe):
    """Its client has reset the connection, which the loop has not reported yet."""

    def write_eof(self) -> None:
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")


@pytest.mark.parametrize("ends", ["late", "stop"])
async def test_a_client_that_resets_the_connection_disturbs_no_other(ends):
    one, pipe = Connection(HttpListener("test", answer, max_connections=8, asks_again=True)), Reset(tls=False)
    one.connection_made(pipe)
    one.data_received(b"GET / HTTP/1.1\r\n")
    if ends == "stop":
        one.retire()
    else:
        one.look(one.since_s + 11.0, 120.0)
    one.look(one.since_s + 31.0, 120.0)
    assert pipe.is_aborted
    one.connection_lost(None)


async def test_a_refused_call_is_not_in_progress():
    port = HttpListener("test", answer, max_connections=8)
    one = Connection(port)
    port.connections[one] = None
    one.connection_made(Pipe(tls=True))
    one.data_received(b"GET / HTTP/1.1\r\n")
    assert port.busy == 1
    one.data_received(b"no header\r\n\r\n")
    assert port.busy == 0, "so it makes room before one that is answered"
    one.connection_lost(None)


async def test_a_call_has_the_address_of_its_caller():
    found: list[str] = []

    def note(call: Call) -> Reply:
        found.append(call.address)
        return Reply(b"")

    one = Connection(HttpListener("test", note, max_connections=8))
    one.connection_made(Pipe(tls=False))
    one.data_received(call())
    await turns()
    assert found == ["10.0.0.1"]
    one.connection_lost(None)


def connected(port: HttpListener, sent: bytes) -> tuple[Connection, Pipe]:
    one, pipe = Connection(port), Pipe(tls=False)
    one.connection_made(pipe)
    one.data_received(sent)
    return one, pipe


async def test_a_large_body_waits_until_another_is_judged_or_gone():
    port = HttpListener("test", answer, max_connections=16)
    begun = [connected(port, post(b"x" * 100_000)[:-1]) for _ in range(9)]
    ones, pipes = zip(*begun, strict=True)
    assert [pipe.is_paused for pipe in pipes] == [False] * 6 + [True] * 3
    ones[0].data_received(b"x")
    assert pipes[6].is_paused, "judging takes memory too"
    await turns()
    assert [pipe.is_paused for pipe in pipes[6:]] == [False, True, True]
    ones[1].connection_lost(ConnectionResetError())
    ones[7].connection_lost(None)
    ones[2].eof_received()
    assert not pipes[8].is_paused
    for at in (3, 4, 5, 6, 8):
        ones[at].data_received(b"x")
    await turns()
    assert [statuses_of(pipe.writes) for pipe in pipes] == ["200", "", "400", "200", "200", "200", "200", "", "200"]


async def test_a_large_body_counts_until_its_answer_is_there_though_its_client_has_left():
    judged = asyncio.Event()

    async def judge(call: Call) -> Reply:
        await judged.wait()
        return Reply(b"")

    port = HttpListener("test", judge, max_connections=16)
    begun = [connected(port, post(b"x" * 100_000)[:-1]) for _ in range(6)]
    for one, _ in begun:
        one.data_received(b"x")
    await turns()
    begun[0][0].connection_lost(ConnectionResetError())
    _, pipe = connected(port, post(b"x" * 100_000)[:-1])
    await turns()
    assert pipe.is_paused
    judged.set()
    await turns()
    assert not pipe.is_paused
    assert [statuses_of(pipe.writes) for _, pipe in begun] == ["", *["200"] * 5]


@pytest.mark.parametrize("path", ["/", "/later", "/pieces", "/pieces/broken"])
async def test_nothing_is_written_to_a_client_that_left(path):
    for passed in range(8):
        port = HttpListener("test", answer, max_connections=8)
        one, pipe = connected(port, call("GET", path) * 3)
        for _ in range(passed):
            await asyncio.sleep(0)
        written, refused = len(pipe.writes), port.refused.copy()
        one.connection_lost(ConnectionResetError())
        await turns()
        assert (len(pipe.writes), port.refused) == (written, refused)


@pytest.mark.parametrize("path", ["/", "/later", "/pieces"])
async def test_a_client_that_does_not_read_gets_nothing_more_until_it_does(path):
    port = HttpListener("test", answer, max_connections=8)
    one, pipe = connected(port, b"")
    one.pause_writing()
    one.data_received(call("GET", path) * 3)
    await turns()
    assert pipe.writes == []
    one.resume_writing()
    for _ in range(3):
        await turns()
    assert statuses_of(pipe.writes) == "200 200 200"
    one.pause_writing()
    one.data_received(call("GET", path))
    one.look(one.since_s + 31.0, 120.0)
    assert pipe.is_aborted
    one.connection_lost(None)


class Full(Pipe):
    """Its buffer is full after every write."""

    def write(self, data: bytes) -> None:  # type: ignore[override]  # as in `Pipe`
        super().write(data)
        one = self.get_protocol()
        assert isinstance(one, Connection)
        one.pause_writing()


async def test_pieces_wait_until_the_ones_before_are_read():
    one, pipe = Connection(HttpListener("test", answer, max_connections=8)), Full(tls=False)
    pipe.set_protocol(one)
    one.connection_made(pipe)
    one.data_received(call("GET", "/pieces"))
    for written in (1, 2):
        await turns()
        assert len(pipe.writes) == written
        one.resume_writing()
    one.connection_lost(None)


@pytest.mark.parametrize("sent", [call(), post(b"x" * 100_000)[:-50_000]], ids=["a call", "half a body"])
async def test_a_client_that_may_not_call_has_no_body_read(sent):
    port = HttpListener("test", answer, max_connections=8, why_not=lambda _: "the certificate names 'é'")
    one, pipe = connected(port, sent)
    await turns()
    head, _, body = b"".join(pipe.writes).partition(b"\r\n\r\n")
    assert (statuses_of(pipe.writes), body.decode()) == ("403", "the certificate names 'é'\n")
    assert f"Content-Length: {len(body)}".encode() in head
    assert (port.refused, pipe.end) == ({403: 1}, "ended")
    one.connection_lost(None)
