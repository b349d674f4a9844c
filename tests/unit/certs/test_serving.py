import ssl
from datetime import UTC, datetime, timedelta

import pytest

from certs.files import ensure
from certs.pair import WantedPair
from certs.serving import PairFiles, load, server_context, signature, use
from core.errors import ConfigError, InvariantError

NOW = datetime.now(UTC)
WANTED = WantedPair(dns_names=("localhost",), days=30, ca_days=60)


@pytest.fixture
def directory(tmp_path):
    ensure(tmp_path, WANTED, NOW)
    return tmp_path


def test_a_good_pair_is_loaded_with_its_end(directory):
    loaded = load(directory, NOW)
    assert timedelta(days=29) < loaded.expires - NOW <= timedelta(days=30)
    use(server_context(), loaded.stored)


def test_old_protocols_are_refused_by_the_context():
    assert server_context().minimum_version == ssl.TLSVersion.TLSv1_2


def test_a_pair_that_will_not_do_is_told_why(directory, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    ensure(other, WANTED, NOW)
    (directory / "tls.key").write_bytes((other / "tls.key").read_bytes())
    with pytest.raises(ConfigError, match="key does not match"):
        load(directory, NOW)
    (directory / "tls.key").write_bytes(b"-----BEGIN")
    with pytest.raises(ConfigError, match="unreadable"):
        load(directory, NOW)
    (directory / "tls.crt").unlink()
    with pytest.raises(ConfigError, match=r"missing: tls\.crt"):
        load(directory, NOW)


def test_an_expired_pair_is_refused(directory):
    with pytest.raises(ConfigError, match="expired"):
        load(directory, NOW + timedelta(days=31))


def test_the_signature_changes_with_the_files(directory):
    before = signature(directory)
    assert signature(directory) == before
    (directory / "ca.crt").unlink()
    assert signature(directory) != before


def test_a_source_finds_a_pair_once_and_again_when_it_is_another(directory, tmp_path_factory):
    source, context = PairFiles(directory), server_context()
    pair = source.look(NOW)
    assert pair is not None
    assert not source.is_serving
    with pytest.raises(InvariantError, match="no pair of"):
        _ = source.serving
    assert source.serve(context, pair)
    assert source.serving is pair
    (directory / "tls.crt").write_bytes(pair.stored.cert_pem)
    assert source.look(NOW) is None
    other = tmp_path_factory.mktemp("other")
    ensure(other, WANTED, NOW)
    for name in ("ca.crt", "tls.key", "tls.crt"):
        (directory / name).write_bytes((other / name).read_bytes())
    assert source.look(NOW) is not None
    assert source.serving is pair


def test_what_a_source_refuses_is_told_once_and_found_when_it_is_valid(tmp_path):
    ensure(tmp_path, WANTED, NOW + timedelta(hours=2))
    source = PairFiles(tmp_path)
    with pytest.raises(ConfigError, match="not signed by"):
        source.look(NOW)
    assert source.look(NOW + timedelta(minutes=1)) is None
    assert source.look(NOW + timedelta(hours=2)) is not None


def test_a_pair_that_cannot_be_served_leaves_the_one_before(directory, monkeypatch):
    source, context = PairFiles(directory), server_context()
    pair = source.look(NOW)
    assert pair is not None

    def fails(*_):
        raise ssl.SSLError("no memory")

    monkeypatch.setattr("certs.serving.use", fails)
    with pytest.raises(ConfigError, match="no memory"):
        source.serve(context, pair)
    assert not source.serve(context, pair)
    assert not source.is_serving
