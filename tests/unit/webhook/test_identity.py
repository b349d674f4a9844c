"""Which pair and which clients' authority the TLS port takes, when its files change."""

import ssl
from datetime import UTC, datetime, timedelta

import pytest

from certs.authority import new_authority
from certs.files import ensure
from certs.pair import Wanted
from webhook.identity import Identity
from webhook.metrics import Metrics

NOW = datetime.now(UTC)
WANTED = Wanted(dns_names=("localhost",), days=30, ca_days=60)
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
    return Identity(directory, None, metrics)


@pytest.fixture
def ahead(tmp_path_factory):
    """A pair of one whose clock is an hour ahead of ours."""
    other = tmp_path_factory.mktemp("ahead")
    ensure(other, WANTED, NOW + timedelta(hours=1))
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
    return Identity(directory, clients, metrics)


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
