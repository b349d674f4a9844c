"""How stored pairs are judged, and what takes their place."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from certs.authority import new_authority
from certs.pair import State, StoredPem, WantedPair, judge, judge_authority, renewal_time, renewed

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
WANTED = WantedPair(dns_names=("web.ns.svc",), ip_addresses=("127.0.0.1",), days=90, ca_days=900)


def days(count: float) -> timedelta:
    return timedelta(days=count)


# A certificate whose key is on the curve SM2 (GB/T 32918), which the library reads no key of.
SM2 = b"""-----BEGIN CERTIFICATE-----
MIIBcjCCARmgAwIBAgIUAw8VhOXQ4zo3V1fIpLLC7LVft7swCgYIKoEcz1UBg3Uw
DjEMMAoGA1UEAwwDc20yMCAXDTI2MTEyODIyMDExNVoYDzIxMjYxMTA0MjIwMTE1
WjAOMQwwCgYDVQQDDANzbTIwWTATBgcqhkjOPQIBBggqgRzPVQGCLQNCAASPCf3y
6cnhYPQh/Y9T7TQ1+UmpXgvyfbrilotvFHQM1E74N3T0K2RBXrmMfUKYv80OcoNM
+IY/Xd/VqC1UB1qXo1MwUTAdBgNVHQ4EFgQULVnOZE/vObes01pYP/NmjAvwhJcw
HwYDVR0jBBgwFoAULVnOZE/vObes01pYP/NmjAvwhJcwDwYDVR0TAQH/BAUwAwEB
/zAKBggqgRzPVQGDdQNHADBEAiBrjL+k043fb7A1TIHkCHLwzJJn3BW1sDDw5H8N
E+AiWQIgUZ6PSn6MmWD6yvAnsaYZWq2C/lDNuTBcWBrJGNphTog=
-----END CERTIFICATE-----
"""


@pytest.fixture(scope="module")
def good() -> StoredPem:
    return renewed(StoredPem(), WANTED, NOW)


@pytest.fixture(scope="module")
def other() -> StoredPem:
    return renewed(StoredPem(), WANTED, NOW)


def state(stored: StoredPem, now: datetime = NOW, *names: str) -> State:
    return judge(stored, now, names).state


def test_a_fresh_pair_is_good_and_tells_its_days(good):
    verdict = judge(good, NOW, WANTED.dns_names, WANTED.ip_addresses)
    assert verdict.state is State.GOOD
    assert verdict.text == "good: expires in 90 days"


def test_nothing_stored_is_missing_and_names_the_files():
    assert judge(StoredPem(), NOW).text == "missing: tls.crt, tls.key, ca.crt"


@pytest.mark.parametrize("part", ["cert_pem", "key_pem", "ca_pem"])
def test_a_part_that_is_absent_or_garbled_is_told_by_its_file(good, part):
    file = {"cert_pem": "tls.crt", "key_pem": "tls.key", "ca_pem": "ca.crt"}[part]
    for text, expected in ((b"", State.MISSING), (b"\x00garbage", State.UNREADABLE)):
        verdict = judge(replace(good, **{part: text}), NOW)
        assert verdict.state is expected
        assert file in verdict.text


def test_a_key_that_is_none_is_told_in_words(good):
    assert judge(replace(good, key_pem=b"garbled"), NOW).text == (
        "unreadable: tls.key holds no readable, unencrypted PEM key"
    )


def test_a_half_written_certificate_is_unreadable(good):
    assert state(replace(good, cert_pem=good.cert_pem[: len(good.cert_pem) // 2])) is State.UNREADABLE


def test_a_complaint_of_the_reader_is_told():
    assert judge(StoredPem(complaints=("tls.key: Permission denied",)), NOW).text == (
        "unreadable: tls.key: Permission denied"
    )


def test_another_pairs_key_does_not_match(good, other):
    assert state(replace(good, key_pem=other.key_pem)) is State.KEY_MISMATCH


def test_a_leaf_of_an_authority_that_is_not_in_the_bundle_is_untrusted(good, other):
    assert state(replace(good, ca_pem=other.ca_pem)) is State.UNTRUSTED
    assert state(replace(good, ca_pem=other.ca_pem + good.ca_pem)) is State.GOOD


def test_a_certificate_with_a_key_of_an_unknown_kind_is_judged_like_any_other(good):
    assert state(replace(good, cert_pem=SM2)) is State.KEY_MISMATCH
    beside = replace(good, ca_pem=SM2 + good.ca_pem)
    assert state(beside) is State.GOOD
    assert judge_authority(beside, NOW).state is State.GOOD
    assert renewed(beside, WANTED, NOW).ca_pem == beside.ca_pem


def test_names_that_the_leaf_lacks_are_listed(good):
    verdict = judge(good, NOW, ("WEB.ns.svc", "new.ns.svc"), ("127.0.0.1", "::1"))
    assert verdict.text == "names missing: new.ns.svc, ::1"


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (-days(1), State.UNTRUSTED),
        (days(59), State.GOOD),
        (days(61), State.DUE),
        (days(89.9), State.DUE),
        (days(91), State.EXPIRED),
    ],
    ids=str,
)
def test_a_pair_is_due_at_two_thirds_of_its_life(good, at, expected):
    assert state(good, NOW + at) is expected


def test_a_pair_that_is_due_tells_the_days_that_are_left(good):
    verdict = judge(good, NOW + days(70.5))
    assert verdict.text.startswith("expires in 19 days")
    assert verdict.serves


def test_a_renewed_pair_keeps_the_authority_and_changes_the_key(good):
    after = renewed(good, WANTED, NOW + days(61))
    assert (after.ca_pem, after.ca_key_pem) == (good.ca_pem, good.ca_key_pem)
    assert after.key_pem != good.key_pem
    assert state(after, NOW + days(61), "web.ns.svc") is State.GOOD


def test_a_renewed_authority_stands_before_its_predecessor_and_old_leaves_stay_trusted(good):
    late = NOW + days(610)
    before = renewed(good, WANTED, NOW + days(590))
    after = renewed(before, WANTED, late)
    assert after.ca_pem.endswith(before.ca_pem)
    assert after.ca_pem != before.ca_pem
    assert after.ca_key_pem != before.ca_key_pem
    assert state(after, late) is State.GOOD
    assert state(replace(before, ca_pem=after.ca_pem), late) is State.GOOD


def test_a_bundle_holds_one_predecessor_and_none_that_has_expired(good):
    stored, count = good, []
    for at in (610, 1220, 1830, 9000):
        stored = renewed(stored, WANTED, NOW + days(at))
        count.append(len(x509.load_pem_x509_certificates(stored.ca_pem)))
    assert count == [2, 2, 2, 1]


def test_the_authority_that_the_key_fits_signs_wherever_it_stands_in_the_bundle(good, other):
    # A crash fell between writing the new bundle and the new key.
    stored = replace(good, ca_pem=other.ca_pem + good.ca_pem)
    after = renewed(stored, WANTED, NOW)
    assert after.ca_key_pem == good.ca_key_pem
    assert state(after) is State.GOOD


@pytest.mark.parametrize("ca_key", [b"", b"garbage"], ids=["no key", "garbled key"])
def test_without_the_authoritys_key_a_new_authority_is_made_and_the_old_stays_trusted(good, ca_key):
    after = renewed(replace(good, ca_key_pem=ca_key), WANTED, NOW)
    assert after.ca_pem.endswith(good.ca_pem)
    assert state(after) is State.GOOD


def test_renewal_comes_after_two_thirds_of_the_whole_life():
    cert = x509.load_pem_x509_certificate(new_authority("ca", 30, NOW).cert_pem)
    assert abs(renewal_time(cert) - (NOW + days(20))) < timedelta(minutes=30)


def test_a_pair_of_a_machine_whose_clock_is_ahead_is_good_at_once():
    assert state(renewed(StoredPem(), WANTED, NOW + timedelta(minutes=45))) is State.GOOD


def test_no_key_shows_in_a_repr(good):
    assert "PRIVATE" not in repr(good)
