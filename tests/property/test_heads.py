"""A port finds the calls in a stream of bytes that a second reader finds, which has only the standard's grammar."""

import asyncio
import re
from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.servers.pipes import transcript

# The grammar of RFC 9112, without chunks: a port reads no body that does not state its length.
HEAD = re.compile(
    rb"([A-Z-]+) +([!-~]+) +HTTP/1\.([01])\r\n((?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[^\0\r\n]*\r\n)*)\r\n",
)
PIECES = st.sampled_from(
    [
        b"GET / HTTP/1.1\r\n", b"POST / HTTP/1.1\r\n", b"PUT /later HTTP/1.1\r\n", b"GET / HTTP/1.0\r\n", b"GET /\r\n",
        b"GET /\n", b"POST / HTTP/1.1\n", b"Host: x\r\n", b"Host: x\n", b"Content-Length: 3\r\n",
        b"Content-Length: 3\n", b"content-length:5 \r\n", b"Content-Length: 0\r\n", b"Content-Length: 3, 3\r\n",
        b"Content-Length : 3\r\n", b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: x\r\n",
        b"Transfer-Encoding:\vchunked\r\n", b"Connection: close\r\n", b"X: a\r\n b\r\n", b"\r\n", b"\r\n\r\n", b"\n",
        b"\n\r\n", b"\r", b"\r\r\n", b" ", b"\t", b":", b"\0", b"abc", b"3\r\nabc\r\n0\r\n\r\n", b"0\r\n\r\n",
    ]
)  # fmt: skip


def calls_of(stream: bytes) -> Iterator[bytes]:
    """The calls before the first mistake, as the port's answers tell them."""
    while found := HEAD.match(stream := stream.lstrip(b"\r\n")):
        method, path, version, lines = found.groups()
        named = [line.partition(b":") for line in lines.split(b"\r\n")]
        headers = [(name.lower(), value.strip(b" \t")) for name, _, value in named]
        lengths = [value for name, value in headers if name == b"content-length"]
        if any(name == b"transfer-encoding" for name, _ in headers) or len(lengths) > 1:
            return
        if not all(map(bytes.isdigit, lengths)):
            return
        length = int(lengths[0]) if lengths else 0
        body, stream = stream[found.end() :][:length], stream[found.end() :][length:]
        if len(body) < length:
            return
        yield b"%b %b b'' %b" % (method, path, repr(body).encode())
        if version == b"0" or (b"connection", b"close") in headers:
            return


@settings(max_examples=500)
@given(st.lists(PIECES, max_size=16).map(b"".join))
def test_no_call_is_answered_that_the_standard_does_not_find_there(stream: bytes):
    writes, state = asyncio.run(transcript(stream))
    answered = re.findall(rb"HTTP/1\.1 200 .*?\r\n\r\n(.*?)\n(?=HTTP/1\.1|$)", b"".join(writes), re.DOTALL)
    found = list(calls_of(stream))
    assert answered == (found if state == "idle" else found[: len(answered)])
