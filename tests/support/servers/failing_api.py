"""A TLS server on loopback that fails as real API servers do, and a transport to it."""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trustme
from aiohttp import web

from kube.credentials import Credentials, Tls
from kube.transport import Transport
from tests.support.servers.fixed_source import FixedSource

Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

POD = "/api/v1/namespaces/ns/pods/a"


class Server:
    """Answers with what `answers` holds next, or with 200; takes down what it was asked."""

    def __init__(self, authority):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(self.context)
        self.answers: deque[Answer] = deque()
        self.asked: list[dict[str, Any]] = []
        self.port = 0
        self._runner = web.ServerRunner(web.Server(self._handle), shutdown_timeout=0.1)

    @property
    def url(self):
        return f"https://127.0.0.1:{self.port}"

    @property
    def paths(self):
        return [asked["path"] for asked in self.asked]

    async def __aenter__(self):
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=self.context)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *exc):
        await self._runner.cleanup()

    async def _handle(self, request):
        body = await request.read()
        self.asked.append(
            {
                "at": time.monotonic(),
                "verb": request.method,
                "path": request.path,
                "query": dict(request.query),
                "headers": request.headers,
                "body": body,
                "connection": id(request.transport),
            }
        )
        answer = self.answers.popleft() if self.answers else say(200, b"{}")
        return await answer(request)


def say(status, body=b"", **headers):
    async def answer(request):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(status=status, body=body, headers=named)

    return answer


async def reset(request):
    request.transport.abort()
    return web.Response()


async def silence(request):
    await asyncio.Event().wait()


def cut(status=200):
    async def answer(request):
        response = web.StreamResponse(status=status, headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b'{"half":')
        request.transport.abort()
        return response

    return answer


def stream(*lines, then=None):
    async def answer(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for line in lines:
            await response.write(line + b"\n")
        if then is not None:
            await then(request)
        return response

    return answer


def dripping(text, size):
    async def answer(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for start in range(0, len(text), size):
            await response.write(text[start : start + size])
        return response

    return answer


def pem(authority):
    return authority.cert_pem.bytes().decode()


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
async def server(authority):
    async with Server(authority) as one:
        yield one


@pytest.fixture
async def transport(server, authority):
    async with open_to(server, authority) as one:
        yield one


def open_to(server, authority, **options):
    tls = Tls(ca_pem=pem(authority))
    source = FixedSource(credentials=Credentials(server=server.url, authorization="Bearer secret", tls=tls))
    return Transport(source, **({"deadline_s": 2.0} | options))
