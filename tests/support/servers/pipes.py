"""A connection of a port without sockets: what is written in answer to a stream of bytes, however it is cut."""

import asyncio
from collections.abc import AsyncIterator, Awaitable

from runtime.calls import TEXT, Call, RefusedCallError, Reply
from runtime.connection import Connection
from runtime.serving import HttpListener

# Turns of the loop within which every answer is written.
TURNS = 12


class Pipe(asyncio.Transport):
    """A transport that keeps what is written; it can end one side, as plain TCP, or not, as TLS."""

    def __init__(self, *, tls: bool) -> None:
        super().__init__({"peername": ("10.0.0.1", 40_000)})
        self.writes: list[bytes] = []
        self.end = ""
        self.is_aborted = self.is_paused = False
        self._is_tls = tls

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def can_write_eof(self) -> bool:
        return not self._is_tls

    def write(self, data: bytes) -> None:  # type: ignore[override]  # no more is written here
        assert not self.end, "nothing is written after the end"
        self.writes.append(bytes(data))

    def write_eof(self) -> None:
        assert not self._is_tls
        self.end = "ended"

    def close(self) -> None:
        self.end = "ended"

    def abort(self) -> None:
        self.end, self.is_aborted = "ended", True

    def is_closing(self) -> bool:
        return self._is_tls and bool(self.end)

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def set_read_buffer_limits(self, *, high: int) -> None:
        assert self._is_tls
        assert high == 64 * 1024


def answer(call: Call) -> Reply | Awaitable[Reply]:
    """Tells what it understood; the path says how."""
    text = f"{call.method} {call.path} {call.query!r} {bytes(call.body)!r}\n".encode()
    match call.path:
        case "/later":
            return later(Reply(text, content_type=TEXT))
        case "/pieces":
            return Reply(pieces(text), content_type=TEXT)
        case "/pieces/broken":
            return Reply(pieces(text, fails=True), content_type=TEXT)
        case "/pieces/none":
            return Reply(pieces(b"", fails=True), content_type=TEXT)
        case "/busy":
            raise RefusedCallError(429, "busy", retry_after_s=7)
        case _:
            return Reply(text, content_type=TEXT)


async def later(reply: Reply) -> Reply:
    await asyncio.sleep(0)
    return reply


async def pieces(text: bytes, *, fails: bool = False) -> AsyncIterator[bytes]:
    for at in range(0, len(text), 8):
        yield text[at : at + 8]
    if fails:
        raise RefusedCallError(500, "a mistake of ours")


async def turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def transcript(*sent: bytes, closes: bool = False, tls: bool = False) -> tuple[list[bytes], str]:
    """What is written in answer to the pieces *sent*; how the connection stands then, and the refused calls."""
    port = HttpListener("test", answer, max_connections=8, max_body_bytes=2_000)
    one, pipe = Connection(port), Pipe(tls=tls)
    one.connection_made(pipe)
    for piece in sent:
        one.data_received(piece)
        await turns()
    if closes and not one.eof_received():
        pipe.close()
    await turns()
    state = pipe.end or ("in a call" if one.has_begun else "idle")
    one.connection_lost(None)
    await turns()
    return pipe.writes, " ".join([state, *map(str, port.refused.elements())])


def call(method="GET", path="/", *lines: str, body: bytes = b"", version="1.1") -> bytes:
    head = "".join(f"{line}\r\n" for line in (f"{method} {path} HTTP/{version}", "Host: x", *lines))
    return head.encode() + b"\r\n" + body


def post(body: bytes, path="/", *lines: str) -> bytes:
    return call("POST", path, f"Content-Length: {len(body)}", *lines, body=body)
