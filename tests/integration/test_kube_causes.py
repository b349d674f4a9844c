"""What is said of a server that cannot be reached or trusted: host and port, a plain cause, and what to look at."""

import asyncio
import datetime
import re
import socket
import ssl
from contextlib import asynccontextmanager

import pytest
import trustme

from kube.credentials import Credentials, Tls
from kube.errors import ApiError
from kube.transport import Transport
from sandbox.demo.processes import free_port
from tests.support.servers.fixed_source import FixedSource

ADVICE = "; check the address, the network and the certificate authority"


async def said(server, *, ca_pem="", **more):
    """What a GET answers in place of an object."""
    source = FixedSource(credentials=Credentials(server=server, tls=Tls(ca_pem=ca_pem), **more))
    async with Transport(source) as transport:
        with pytest.raises(ApiError) as caught:
            await transport.request("GET", "/api/v1/nodes", deadline_s=60)
    text = str(caught.value)
    assert not re.search(r"0x[0-9a-f]|object at|ssl:|_ssl|\[Errno", text), text
    return text


@asynccontextmanager
async def listening(context=None, *, answer=b""):
    async def handle(reader, writer):
        await reader.read(100)
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


def context_of(authority, name, **more):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name, **more).configure_cert(context)
    return context


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


async def test_a_port_where_nobody_listens():
    port = free_port()
    text = await said(f"https://127.0.0.1:{port}")
    assert text == f"GET /api/v1/nodes: 127.0.0.1:{port}: connection refused{ADVICE}"


async def test_an_address_without_a_route_or_protocol():
    text = await said("https://[::ffff:240.0.0.1]:6443")
    assert text.startswith("GET /api/v1/nodes: [::ffff:240.0.0.1]:6443: ")


async def test_a_host_that_does_not_exist():
    text = await said("https://nobody.invalid:6443")
    assert text == f"GET /api/v1/nodes: nobody.invalid:6443: there is no such host{ADVICE}"


async def test_an_authority_that_is_not_trusted(authority):
    async with listening(context_of(authority, "127.0.0.1")) as port:
        text = await said(f"https://127.0.0.1:{port}", ca_pem=trustme.CA().cert_pem.bytes().decode())
    assert f"127.0.0.1:{port}: its certificate is not trusted: unable to get local issuer certificate" in text
    assert text.endswith(ADVICE)


async def test_a_certificate_for_another_name(authority):
    async with listening(context_of(authority, "other.example")) as port:
        text = await said(f"https://127.0.0.1:{port}", ca_pem=authority.cert_pem.bytes().decode())
    assert "its certificate is not trusted: IP address mismatch" in text


async def test_a_certificate_that_has_ended(authority):
    ended = context_of(authority, "127.0.0.1", not_after=datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC))
    async with listening(ended) as port:
        text = await said(f"https://127.0.0.1:{port}", ca_pem=authority.cert_pem.bytes().decode())
    assert text.endswith(f"127.0.0.1:{port}: its certificate is not trusted: certificate has expired{ADVICE}")


async def test_a_server_that_does_not_speak_tls():
    async with listening(answer=b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        text = await said(f"https://127.0.0.1:{port}")
    assert f"127.0.0.1:{port}: no TLS session: " in text


async def test_a_server_that_speaks_tls_where_plain_is_asked(authority):
    async with listening(context_of(authority, "127.0.0.1")) as port:
        text = await said(f"http://127.0.0.1:{port}")
    assert text.startswith("GET /api/v1/nodes: ")


async def test_a_server_that_ends_what_is_plain_is_to_be_called_by_https():
    async with listening() as port:
        text = await said(f"http://127.0.0.1:{port}")
    assert "Server disconnected; the address begins with http:, and an API server speaks https" in text


async def test_a_proxy_where_nobody_listens():
    port = free_port()
    text = await said("https://127.0.0.1:1", proxy_url=f"http://127.0.0.1:{port}")
    assert text == f"GET /api/v1/nodes: proxy 127.0.0.1:{port}: connection refused{ADVICE}"


@pytest.mark.parametrize("server", ["https://", "nonsense", "ftp://x"])
async def test_what_is_no_url(server):
    assert server in await said(server)


async def test_a_connection_that_is_reset():
    async def handle(_, writer):
        writer.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        writer.transport.abort()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        text = await said(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    assert re.search("connection reset by peer|Server disconnected", text)
