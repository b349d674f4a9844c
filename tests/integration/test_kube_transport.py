"""The transport, against a TLS server on loopback that fails as real ones do."""

import asyncio
import base64
import json
import socket
import ssl
import time

import aiohttp
import pytest
import trustme
import yaml

from kube.calls import Calls
from kube.credentials import Credentials, CredentialSource, InClusterSource, KubeconfigSource, Tls
from kube.errors import (
    ApiForbiddenError,
    ApiThrottledError,
    ApiUnknownError,
    ApiUnreachableError,
    ApiUnreadableError,
    CredentialsError,
)
from kube.transport import Purpose, Transport
from tests.support.servers.failing_api import POD, Server, cut, open_to, pem, reset, say, silence
from tests.support.servers.fixed_source import FixedSource


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


class Clock:
    """The real one, and what was added to it."""

    def __init__(self):
        self.ahead_s = 0.0

    def __call__(self):
        return time.monotonic() + self.ahead_s


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
    with pytest.raises(ApiUnknownError):  # a proxy's, as the API server sends none for pods
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


async def test_a_connection_may_take_longer_than_delivery(transport, monkeypatch):
    seen, loop = [], asyncio.get_running_loop()
    connect = loop.sock_connect

    async def noted(found, address):
        seen.append(found.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))
        await connect(found, address)

    monkeypatch.setattr(loop, "sock_connect", noted)
    await transport.request("GET", POD)
    assert seen == [0]


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
        await transport.request("POST", POD, body=b"x", deadline_s=2.0, max_bytes=1_000)
    assert [asked["verb"] for asked in server.asked] == ["GET", "POST"]


@pytest.mark.parametrize(("status", "kind"), [(409, ApiUnknownError), (403, ApiForbiddenError)])
async def test_a_refusal_whose_text_was_cut_may_be_a_proxys_where_proxies_do_not_refuse(
    transport, server, status, kind
):
    server.answers.append(cut(status))
    with pytest.raises(kind):
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
            assert time.monotonic() - started < 8.0, "the deadline is the call's, not the transport's"


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
    told = time.monotonic()
    with pytest.raises(ApiThrottledError) as caught:
        await transport.request("POST", POD, body=b"x")
    assert caught.value.retry_after_s == 1.0
    lease = transport.request("GET", "/lease", purpose=Purpose.LEASE)
    await asyncio.gather(transport.request("GET", "/one"), transport.request("GET", "/two"), lease)
    waits = {asked["path"]: asked["at"] - told for asked in server.asked[1:]}
    assert next(iter(waits)) == "/lease"
    assert min(waits["/one"], waits["/two"]) >= 1.0


async def test_a_binding_does_not_wait_in_a_pause(transport, server):
    server.answers.append(say(503, b'{"kind":"Status","code":503}', Retry_After="30"))
    with pytest.raises(ApiThrottledError):
        await transport.request("GET", POD)
    started = time.monotonic()
    with pytest.raises(ApiThrottledError) as caught:
        await Calls(transport).bind("ns", "a", uid="u", resource_version="1", node="n", annotations={})
    assert time.monotonic() - started < 20.0
    assert caught.value.retry_after_s == pytest.approx(30, abs=5)
    assert len(server.asked) == 1


async def test_a_proxys_page_slows_the_whole_client_too(transport, server):
    server.answers.append(say(503, b"<html>maintenance</html>", Retry_After="30"))
    with pytest.raises(ApiUnknownError):
        await transport.request("POST", POD, body=b"x")
    assert transport.pause_s > 20.0


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


async def test_a_kind_that_the_api_server_still_reads_holds_back_no_other_call(transport, server):
    """As kube-apiserver answers after its start, or after a kind was installed."""
    body = {"kind": "Status", "status": "Failure", "message": "storage is (re)initializing", "code": 429}
    reading = say(429, json.dumps(body | {"reason": "TooManyRequests"}).encode(), Retry_After="30")
    server.answers.extend([reading, reading])
    with pytest.raises(ApiThrottledError) as caught:
        async with transport.stream("/apis/x/v1/queues", {"watch": "true"}, silence_s=10.0):
            pass
    assert caught.value.retry_after_s == 30.0
    with pytest.raises(ApiThrottledError):
        await transport.request("GET", "/api/v1/configmaps", params={"fieldSelector": "metadata.name=a"})
    assert transport.pause_s == 0.0


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
