"""The transport, and a reflector on it, against a TLS server on loopback that fails as real ones do."""

import asyncio
import base64
import json
import socket
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import pytest
import trustme
import yaml
from aiohttp import web

from kube.calls import Calls
from kube.credentials import Credentials, CredentialSource, FixedSource, InClusterSource, KubeconfigSource, Tls
from kube.errors import (
    ApiConflictError,
    ApiForbiddenError,
    ApiRefusedError,
    ApiThrottledError,
    ApiUnknownError,
    ApiUnreachableError,
    ApiUnreadableError,
    CredentialsError,
)
from kube.exchange import Purpose
from kube.objects import EventKind
from kube.reflector import Pace, Reflector
from kube.transport import Transport

Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

POD = "/api/v1/namespaces/ns/pods/a"
QUICK = Pace(first_wait_s=0.04, last_wait_s=0.3, last_list_wait_s=1.0, silence_s=0.6, list_deadline_s=5.0)


class CountedSource:
    """A source of credentials that counts how often it was read, and in vain."""

    def __init__(self, source: CredentialSource):
        self.reads = self.failures = 0
        self._source = source

    async def read(self, *, rejected: bool = False) -> Credentials:
        self.reads += 1
        try:
            return await self._source.read(rejected=rejected)
        except CredentialsError:
            self.failures += 1
            raise


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


def event(kind, name, version, **more):
    value = {"metadata": {"name": name, "resourceVersion": version}} | more
    return json.dumps({"type": kind, "object": value}).encode()


def page(*names, version="10"):
    items = [{"metadata": {"name": one}} for one in names]
    return say(200, json.dumps({"metadata": {"resourceVersion": version}, "items": items}).encode())


def name_of(text: bytes) -> str:
    name: str = msgspec.json.decode(text)["metadata"]["name"]
    return name


def pem(authority):
    return authority.cert_pem.bytes().decode()


class Clock:
    """The real one, and what was added to it."""

    def __init__(self):
        self.ahead_s = 0.0

    def __call__(self):
        return time.monotonic() + self.ahead_s


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


def account(directory, authority, token="first"):
    directory.mkdir(exist_ok=True)
    (directory / "token").write_text(token)
    (directory / "ca.crt").write_text(pem(authority))
    return directory


# -- what was asked ---------------------------------------------------------------------------------------------


async def test_a_call_carries_its_token_and_wants_no_compression(transport, server):
    server.answers.append(say(201, b"made"))
    answer = await transport.request("POST", POD, params={"a": "b=c,d"}, body=b"x", content_type="text/x")
    (asked,) = server.asked
    assert (answer.status, answer.body) == (201, b"made")
    assert (asked["verb"], asked["path"], asked["query"], asked["body"]) == ("POST", POD, {"a": "b=c,d"}, b"x")
    assert asked["headers"]["Authorization"] == "Bearer secret"
    assert asked["headers"]["Accept-Encoding"] == "identity"
    assert asked["headers"]["Content-Type"] == "text/x"


async def test_calls_share_connections_but_watches_and_lease_have_their_own(transport, server):
    for purpose in (*Purpose, *Purpose):
        await transport.request("GET", POD, purpose=purpose)
    connections = [asked["connection"] for asked in server.asked]
    assert connections[:3] == connections[3:]
    assert len(set(connections)) == 3


async def test_a_proxy_of_the_environment_is_not_used(server, authority, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    async with open_to(server, authority) as transport:
        assert (await transport.request("GET", POD)).status == 200


async def test_a_redirect_is_not_followed(transport, server):
    server.answers.append(say(307, Location="/elsewhere"))
    with pytest.raises(ApiRefusedError):
        await transport.request("POST", POD, body=b"x")
    assert server.paths == [POD]


async def test_what_is_not_permitted_any_more_when_its_turn_to_be_sent_comes_is_not_sent(transport, server):
    asked = []

    def permit():
        asked.append(True)
        return len(asked) > 1

    with pytest.raises(ApiThrottledError, match="may not write now"):
        await transport.request("POST", POD, body=b"x", permit=permit)
    assert (server.paths, transport.pause_s) == ([], 0.0)
    await transport.request("POST", POD, body=b"x", permit=permit)
    assert server.paths == [POD]


@pytest.mark.parametrize(("purpose", "limit_ms"), [("calls", 1000), ("watches", 15_000), ("lease", 5000)])
async def test_the_kernel_delivers_what_was_sent_soon_or_never(transport, purpose, limit_ms, monkeypatch):
    seen = []
    send = aiohttp.ClientRequest.send

    async def noted(request, conn):
        found = conn.transport.get_extra_info("socket")
        seen.append(found.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))
        return await send(request, conn)

    monkeypatch.setattr(aiohttp.ClientRequest, "send", noted)
    await transport.request("GET", POD, purpose=Purpose(purpose))
    assert seen == [limit_ms]


# -- what became of a write -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [reset, silence, cut(), cut(500), say(502, b"<html>", Content_Type="text/html"), say(200, b"x" * 2_000)],
    ids=["reset", "black hole", "cut", "cut 500", "502 page", "too long"],
)
async def test_a_write_that_was_sent_and_not_answered_is_unknown(transport, server, fault):
    await transport.request("GET", POD)  # so that the short deadline holds no handshake
    server.answers.append(fault)
    with pytest.raises(ApiUnknownError):
        await transport.request("POST", POD, body=b"x", deadline_s=0.3, max_bytes=1_000)
    assert [asked["verb"] for asked in server.asked] == ["GET", "POST"]


async def test_a_refusal_whose_text_was_cut_is_still_a_refusal(transport, server):
    server.answers.append(cut(409))
    with pytest.raises(ApiConflictError):
        await transport.request("POST", POD, body=b"x")


async def test_a_replacement_sent_twice_over_a_lost_connection_is_unknown_when_refused(transport, server):
    server.answers.extend([say(200), reset, say(409, b"{}")])
    await transport.request("GET", POD)
    with pytest.raises(ApiUnknownError, match="sent twice"):
        await transport.request("PUT", POD, body=b"x")
    assert [asked["verb"] for asked in server.asked] == ["GET", "PUT", "PUT"]


async def test_a_post_is_never_sent_twice(transport, server):
    server.answers.extend([say(200), reset, say(409, b"{}")])
    await transport.request("GET", POD)
    with pytest.raises(ApiUnknownError):
        await transport.request("POST", POD, body=b"x")
    assert len(server.asked) == 2


async def test_a_closed_port_was_not_reached():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        source = FixedSource(credentials=Credentials(server=f"https://127.0.0.1:{probe.getsockname()[1]}"))
    async with Transport(source) as transport:
        with pytest.raises(ApiUnreachableError):
            await transport.request("POST", POD, body=b"x")


@pytest.mark.parametrize(
    "credentials",
    [
        Credentials(server="nonsense"),
        Credentials(server="https://127.0.0.1:1", authorization="Bearer a\nb"),
        Credentials(server="https://127.0.0.1:1", authorization="Bearer \u2028"),
        Credentials(server="https://127.0.0.1:1", proxy_url="socks5://127.0.0.1:1"),
    ],
    ids=["server", "line break", "not latin", "proxy"],
)
async def test_what_cannot_be_put_into_a_request_was_not_sent_and_is_not_shown(credentials):
    async with Transport(FixedSource(credentials=credentials), deadline_s=2.0) as transport:
        with pytest.raises(ApiUnreachableError) as caught:
            await transport.request("GET", POD)
    assert "Bearer" not in str(caught.value)


async def test_a_server_that_accepts_and_says_nothing_was_not_reached_within_the_deadline(authority):
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        url = f"https://127.0.0.1:{listening.getsockname()[1]}"
        credentials = Credentials(server=url, tls=Tls(ca_pem=pem(authority)))
        async with Transport(FixedSource(credentials=credentials)) as transport:
            started = time.monotonic()
            with pytest.raises(ApiUnreachableError):
                await transport.request("POST", POD, body=b"x", deadline_s=0.3)
            assert time.monotonic() - started < 5.0, "the deadline is the call's, not the transport's"


async def test_a_read_that_was_cut_is_unreadable(transport, server):
    server.answers.extend([cut(), say(200, b"x" * 2_000)])
    for _ in range(2):
        with pytest.raises(ApiUnreadableError):
            await transport.request("GET", POD, max_bytes=1_000)


async def test_a_failed_call_leaves_no_half_read_answer_for_the_next(transport, server):
    server.answers.extend([say(200, b"x" * 500_000), say(200, b"next")])
    with pytest.raises(ApiUnreadableError):
        await transport.request("GET", POD, max_bytes=1_000)
    assert (await transport.request("GET", POD)).body == b"next"


# -- throttling -------------------------------------------------------------------------------------------------


async def test_429_slows_the_whole_client_but_not_the_lease(transport, server):
    server.answers.append(say(429, b"slow down", Retry_After="1"))
    with pytest.raises(ApiThrottledError) as caught:
        await transport.request("POST", POD, body=b"x")
    told = time.monotonic()
    assert caught.value.retry_after_s == 1.0
    lease = transport.request("GET", "/lease", purpose=Purpose.LEASE)
    await asyncio.gather(transport.request("GET", "/one"), transport.request("GET", "/two"), lease)
    waits = {asked["path"]: asked["at"] - told for asked in server.asked[1:]}
    assert next(iter(waits)) == "/lease"
    assert min(waits["/one"], waits["/two"]) >= 0.95


async def test_a_binding_does_not_wait_in_a_pause(transport, server):
    server.answers.append(say(503, b"", Retry_After="30"))
    with pytest.raises(ApiThrottledError):
        await transport.request("GET", POD)
    started = time.monotonic()
    with pytest.raises(ApiThrottledError) as caught:
        await Calls(transport).bind("ns", "a", uid="u", resource_version="1", node="n", annotations={})
    assert time.monotonic() - started < 5.0
    assert caught.value.retry_after_s == pytest.approx(30, abs=5)
    assert len(server.asked) == 1


# -- credentials ------------------------------------------------------------------------------------------------


async def test_after_one_401_the_token_is_read_again_and_the_call_repeated_once(server, authority, tmp_path):
    directory = account(tmp_path / "sa", authority)
    async with Transport(InClusterSource(server=server.url, directory=directory)) as transport:
        (directory / "token").write_text("second")
        server.answers.extend([say(401, b"{}"), say(201, b"made")])
        assert (await transport.request("POST", POD, body=b"x")).body == b"made"
    assert [asked["headers"]["Authorization"] for asked in server.asked] == ["Bearer first", "Bearer second"]


async def test_a_second_401_is_the_answer(transport, server):
    server.answers.extend([say(401, b"{}"), say(401, b"{}")])
    with pytest.raises(ApiForbiddenError):
        await transport.request("GET", POD)
    assert len(server.asked) == 2


async def test_many_401_at_once_read_the_token_once(server, authority, tmp_path):
    directory = account(tmp_path / "sa", authority)
    source = CountedSource(InClusterSource(server=server.url, directory=directory))
    async with Transport(source) as transport:
        server.answers.extend([say(401, b"{}")] * 8)
        await asyncio.gather(*(transport.request("GET", POD) for _ in range(8)))
    assert source.reads == 2


async def test_a_rotated_token_file_is_seen_within_a_minute(server, authority, tmp_path):
    directory, clock = account(tmp_path / "sa", authority), Clock()
    source = CountedSource(InClusterSource(server=server.url, directory=directory))
    async with Transport(source, clock=clock) as transport:
        (directory / "token").write_text("second")
        await transport.request("GET", POD)
        clock.ahead_s = 61
        await transport.request("GET", POD)
        (directory / "token").unlink()
        clock.ahead_s = 122
        await transport.request("GET", POD)
        assert source.failures == 1
    tokens = [asked["headers"]["Authorization"] for asked in server.asked]
    assert tokens == ["Bearer first", "Bearer second", "Bearer second"]


async def test_an_authority_replaced_in_its_file_is_trusted_without_a_restart(server, authority, tmp_path):
    directory = account(tmp_path / "sa", trustme.CA())
    async with Transport(InClusterSource(server=server.url, directory=directory)) as transport:
        with pytest.raises(ApiUnreachableError, match="not trusted"):
            await transport.request("GET", POD)
        account(directory, authority)
        assert (await transport.request("GET", POD)).status == 200
    assert len(server.asked) == 1


async def test_an_authority_that_is_no_certificate_is_named_at_the_start(server, authority, tmp_path):
    directory = account(tmp_path / "sa", authority)
    (directory / "ca.crt").write_text("no certificate")
    with pytest.raises(CredentialsError, match=r"ca\.crt"):
        async with Transport(InClusterSource(server=server.url, directory=directory)):
            pass


async def test_a_kubeconfigs_client_certificate_is_shown(authority, tmp_path):
    def encoded(blob):
        return base64.b64encode(blob.bytes()).decode()

    client = authority.issue_cert("client@cards")
    server = Server(authority)
    server.context.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(server.context)
    async with server:
        cluster = {"server": server.url, "certificate-authority-data": encoded(authority.cert_pem)}
        user = {
            "client-certificate-data": encoded(client.cert_chain_pems[0]),
            "client-key-data": encoded(client.private_key_pem),
        }
        config = {
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
        }
        (tmp_path / "config").write_text(yaml.safe_dump(config))
        async with Transport(KubeconfigSource(str(tmp_path / "config"))) as transport:
            assert (await transport.request("GET", POD)).status == 200
        async with open_to(server, authority) as stranger:
            with pytest.raises((ApiUnreachableError, ApiUnknownError)):
                await stranger.request("GET", POD)


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
    with pytest.raises(kind):
        await lines_of(transport, start_s=0.4, silence_s=0.4, max_line_bytes=1_000_000)


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
        async with asyncio.timeout(5):
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
    server.answers.extend(
        [
            say(502, b"<html>", Content_Type="text/html"),
            page("a"),
            stream(event("ADDED", "b", "11"), then=silence),
            stream(event("DELETED", "a", "12"), then=reset),
            say(429, b"text"),
            stream(event("ADDED", "c", "13"), event("BOOKMARK", "", "20")),
            stream(event("ADDED", "big", "21", blob="x" * 6_000_000), expired),
            page("b", "d", version="30"),
            stream(event("ADDED", "e", "31"), b'{"type":"ADDED","obj'),
            page("z", version="40"),
            stream(then=silence),
        ]
    )
    picture = Picture()
    async with reflecting(transport, picture) as reflector:
        await picture.becomes("z")
        assert reflector.counters.lists == 4
        assert reflector.counters.expired == 1
        assert reflector.counters.undecodable == 1
    versions = [asked["query"]["resourceVersion"] for asked in server.asked if "watch" in asked["query"]]
    assert versions[:7] == ["10", "11", "12", "12", "20", "30", "40"]


async def test_a_watch_that_ends_at_once_for_ever_is_asked_less_and_less(transport, server):
    server.answers.append(page("a"))
    server.answers.extend([stream()] * 1_000)
    async with reflecting(transport, Picture()) as reflector:
        await asyncio.sleep(1.2)
        assert reflector.state == "failing: watch pods: each ends at once"
    assert len(server.asked) <= 10


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


async def test_a_pods_disruption_budget_holds_back_no_other_call(transport, server):
    forbids = b'{"message":"Cannot evict pod as it would violate the pod\'s disruption budget.","code":429}'
    server.answers.append(say(429, forbids, Retry_After="10"))
    with pytest.raises(ApiThrottledError):
        await transport.request("POST", f"{POD}/eviction", body=b"{}")
    assert transport.pause_s == 0.0
    server.answers.append(
        say(429, b'{"message":"too many requests, please try again later","code":429}', Retry_After="10")
    )
    with pytest.raises(ApiThrottledError):
        await transport.request("POST", f"{POD}/eviction", body=b"{}")
    assert transport.pause_s > 5.0
