"""Which pair and which clients' authority the TLS port takes, when its files change, and which clients may call."""

import ssl
from datetime import UTC, datetime, timedelta

import pytest
from structlog.testing import capture_logs

from certs.authority import new_authority
from certs.files import ensure
from certs.pair import WantedPair
from webhook.identity import Clients, TlsIdentity, names_in
from webhook.metrics import Metrics

NOW = datetime.now(UTC)
WANTED = WantedPair(dns_names=("localhost",), days=30, ca_days=60)
FILES = ("ca.crt", "tls.key", "tls.crt")


@pytest.fixture
def directory(tmp_path):
    ensure(tmp_path, WANTED, NOW)
    return tmp_path


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
def identity(directory, metrics):
    return TlsIdentity(directory, None, metrics)


@pytest.fixture
def ahead(tmp_path_factory):
    """A pair of one whose clock is an hour ahead of ours."""
    other = tmp_path_factory.mktemp("ahead")
    ensure(other, WANTED, NOW + timedelta(hours=2))
    return other


def no_context(context):
    raise AssertionError(f"no new context is wanted: {context}")


@pytest.mark.may_block(reason="OpenSSL reads pairs from files only: from one that lies in memory")
async def test_a_pair_that_is_not_valid_yet_is_taken_once_it_is_though_its_files_stay(
    identity, directory, metrics, ahead
):
    for name in FILES:
        (directory / name).write_bytes((ahead / name).read_bytes())
    for minute in range(5):
        await identity.look(NOW + timedelta(minutes=minute), no_context)
    assert (metrics.reloads["certificate"], metrics.reload_failures["certificate"]) == (0, 1)
    await identity.look(NOW + timedelta(hours=2), no_context)
    assert (metrics.reloads["certificate"], metrics.reload_failures["certificate"]) == (1, 1)
    assert metrics.certificate_expires_s > (NOW + timedelta(days=30)).timestamp()


async def test_each_other_pair_that_will_not_do_is_told_of_once(identity, directory, metrics):
    for content in (b"-----BEGIN", b"-----BEGIN", b"-----BEGIN CERTIFICATE"):
        (directory / "tls.key").write_bytes(content)
        await identity.look(NOW, no_context)
        await identity.look(NOW, no_context)
    # Written anew, even alike, it is another file.
    assert metrics.reload_failures["certificate"] == 3


async def test_a_pair_that_comes_back_is_refused_anew_when_it_breaks_again(identity, directory, metrics):
    key = (directory / "tls.key").read_bytes()
    for content in (b"-----BEGIN", key, b"-----BEGIN"):
        (directory / "tls.key").write_bytes(content)
        await identity.look(NOW, no_context)
    assert metrics.reload_failures["certificate"] == 2
    assert metrics.reloads["certificate"] == 0


@pytest.fixture
def clients(tmp_path_factory):
    path = tmp_path_factory.mktemp("clients") / "ca.pem"
    path.write_bytes(new_authority("first", 30, NOW).cert_pem)
    return path


@pytest.fixture
def guarded(directory, clients, metrics):
    return TlsIdentity(directory, clients, metrics)


@pytest.mark.may_block(reason="OpenSSL reads pairs from files only: from one that lies in memory")
async def test_an_authority_of_clients_that_is_none_is_told_of_once_and_one_that_is_is_taken(guarded, clients, metrics):
    renewed: list[ssl.SSLContext] = []
    clients.write_bytes(b"none")
    for _ in range(3):
        await guarded.look(NOW, no_context)
    assert metrics.reload_failures["certificate"] == 1
    clients.write_bytes(new_authority("second", 30, NOW).cert_pem)
    for _ in range(3):
        await guarded.look(NOW, renewed.append)
    assert renewed == [guarded.context]
    assert metrics.reloads["client_ca"] == 1


def certificate(*common, dns=(), others=()):
    return {
        "subject": (*((("commonName", one),) for one in common), (("organizationName", "wanted"),)),
        "subjectAltName": (*(("DNS", one) for one in dns), *others),
    }


def test_names_are_common_names_and_dns_names():
    found = certificate("a", dns=("b", "c"), others=(("IP Address", "10.0.0.1"), ("email", "d@x")))
    assert names_in(found) == {"a", "b", "c"}
    assert names_in({}) == frozenset()


@pytest.mark.parametrize("found", [certificate("wanted"), certificate("x", dns=("wanted",))], ids=["common", "dns"])
def test_a_client_of_a_given_name_is_let_in(found):
    assert Clients(frozenset({"wanted"}), lambda: 0.0).why_not(found) == ""


@pytest.mark.parametrize(
    "found",
    [{}, certificate("WantedPair"), certificate("wanted.x"), certificate(others=(("email", "wanted"),))],
    ids=["no names", "another case", "a longer name", "a name of another kind"],
)
def test_any_other_is_refused_with_the_names_that_were_found(found):
    now = [0.0]
    clients = Clients(frozenset({"wanted"}), lambda: now[0])
    with capture_logs() as logs:
        for now[0] in (0.0, 10.0, 61.0):
            assert "no client of --client-name" in clients.why_not(found)
    assert len(logs) == 2


def test_what_a_client_calls_itself_is_shown_without_control_characters():
    assert "\\x1b" in Clients(frozenset({"wanted"}), lambda: 0.0).why_not(certificate("\x1b[2J"))
