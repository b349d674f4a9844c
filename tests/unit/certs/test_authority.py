"""The certificates that certs.authority makes, judged as a strict client and as a reader of X.509."""

import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from certs.authority import BACKDATING, Authority, issue, new_authority

NOW = datetime(2026, 5, 1, 12, 0, 0, 123456, tzinfo=UTC)


def handshake(authority_pem: bytes, leaf, tmp_path, name: str) -> None:
    """Shake hands in memory as a client that verifies strictly; raises what that client would."""
    (tmp_path / "tls.crt").write_bytes(leaf.cert_pem)
    (tmp_path / "tls.key").write_bytes(leaf.key_pem)
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    client_context = ssl.create_default_context(cadata=authority_pem.decode())
    client_context.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname=name)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    waiting = [client, server]
    for _ in range(10):
        for end in tuple(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                continue
        if not waiting:
            return
    raise AssertionError("the handshake does not end")


@pytest.fixture(scope="module")
def today() -> datetime:
    return datetime.now(UTC)


@pytest.mark.parametrize("name", ["web.cards.svc", "127.0.0.1", "::1"])
def test_a_strict_client_accepts_the_leaf_under_each_of_its_names(tmp_path, today, name):
    authority = new_authority("cardshare webhook CA", 10, today)
    leaf = issue(authority, ("web.cards.svc",), ("127.0.0.1", "::1"), 5, today)
    handshake(authority.cert_pem, leaf, tmp_path, name)


@pytest.mark.parametrize(
    ("name", "made_days_ago"), [("other.cards.svc", 0), ("web.cards.svc", 6)], ids=["other name", "expired"]
)
def test_a_strict_client_refuses_what_it_should(tmp_path, today, name, made_days_ago):
    made = today - timedelta(days=made_days_ago)
    authority = new_authority("cardshare webhook CA", 10, made)
    leaf = issue(authority, ("web.cards.svc",), (), 5, made)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(authority.cert_pem, leaf, tmp_path, name)


def test_two_authorities_of_one_name_in_one_bundle_are_told_apart(tmp_path, today):
    old, new = (new_authority("cardshare webhook CA", 10, today) for _ in range(2))
    for signer in (old, new):
        leaf = issue(signer, ("web.cards.svc",), (), 5, today)
        handshake(old.cert_pem + new.cert_pem, leaf, tmp_path, "web.cards.svc")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(old.cert_pem, issue(new, ("web.cards.svc",), (), 5, today), tmp_path, "web.cards.svc")


def test_validity_runs_from_shortly_before_now_for_the_days_asked():
    cert = x509.load_pem_x509_certificate(new_authority("ca", 3, NOW).cert_pem)
    assert cert.not_valid_before_utc == NOW.replace(microsecond=0) - BACKDATING
    assert cert.not_valid_after_utc == NOW.replace(microsecond=0) + timedelta(days=3)


def test_a_leaf_never_outlives_its_authority():
    authority = new_authority("ca", 3, NOW)
    leaf = x509.load_pem_x509_certificate(issue(authority, ("a.b",), (), 30, NOW).cert_pem)
    assert leaf.not_valid_after_utc == x509.load_pem_x509_certificate(authority.cert_pem).not_valid_after_utc


def test_a_name_over_64_characters_still_serves(tmp_path, today):
    name = "a" * 40 + "." + "b" * 40 + ".svc"
    authority = new_authority("ca", 3, today)
    handshake(authority.cert_pem, issue(authority, (name,), (), 1, today), tmp_path, name)


def test_keys_do_not_show_in_a_repr():
    authority = new_authority("ca", 3, NOW)
    leaf = issue(authority, ("a.b",), (), 1, NOW)
    assert "PRIVATE" not in repr(authority) + repr(leaf)
    assert b"PRIVATE" in authority.key_pem


@pytest.mark.parametrize(
    ("dns_names", "ip_addresses", "days", "says"),
    [
        ((), (), 1, "at least one"),
        (("a.b",), (), 0, "at least 1 day"),
        (("ä.b",), (), 1, "A-label"),
        ((), ("300.1.1.1",), 1, "300"),
    ],
    ids=["no name", "no day", "not ascii", "no address"],
)
def test_inputs_that_make_no_certificate_are_a_value_error(dns_names, ip_addresses, days, says):
    with pytest.raises(ValueError, match=says):
        issue(new_authority("ca", 3, NOW), dns_names, ip_addresses, days, NOW)


def test_an_unreadable_authority_is_a_value_error():
    with pytest.raises(ValueError, match="PEM"):
        issue(Authority(cert_pem=b"no", key_pem=b"no"), ("a.b",), (), 1, NOW)
