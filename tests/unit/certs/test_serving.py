import ssl
from datetime import UTC, datetime, timedelta

import pytest

from certs.files import ensure
from certs.pair import Wanted
from certs.serving import load, server_context, signature, use
from core.errors import ConfigError

NOW = datetime.now(UTC)
WANTED = Wanted(dns_names=("localhost",), days=30, ca_days=60)


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
