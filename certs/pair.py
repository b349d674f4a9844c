"""Judges a stored certificate pair, and makes a replacement if necessary.

Pure: stored content is passed as bytes, from files (`certs.files`) or a Secret, and the clock as ``now``.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from ipaddress import ip_address
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from certs.authority import Authority, issue, new_authority

AUTHORITY_NAME: Final = "cardshare webhook CA"

# Clients need two authorities only while leaves of both are in use; more predecessors would be unnecessary trust.
_KEPT_PREDECESSORS: Final = 1

# Two replicas that start at once may each add an authority; a third is unnecessary.
_KEPT_FOREIGN: Final = 2

_PUBLIC: Final = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPem:
    """Stored PEM content; empty parts are missing.

    Attributes:
        cert_pem: the serving certificate (``tls.crt``).
        key_pem: its key (``tls.key``).
        ca_pem: one or more authorities that clients must trust, the signing one first (``ca.crt``).
        ca_key_pem: the signing authority's key (``ca.key``).
        complaints: one line for each part that exists and cannot be read.
    """

    cert_pem: bytes = b""
    key_pem: bytes = field(default=b"", repr=False)
    ca_pem: bytes = b""
    ca_key_pem: bytes = field(default=b"", repr=False)
    complaints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedPair:
    """The specification of a serving certificate: its names, and its own and its authority's lifetime in days."""

    dns_names: tuple[str, ...] = ()
    ip_addresses: tuple[str, ...] = ()
    days: int
    ca_days: int


class State(StrEnum):
    """The state of a stored pair; every state except GOOD requires a replacement."""

    GOOD = "good"
    DUE = "due"
    EXPIRED = "expired"
    NOT_YET_VALID = "not yet valid"
    MISSING = "missing"
    UNREADABLE = "unreadable"
    KEY_MISMATCH = "key does not match"
    UNTRUSTED = "not signed by ca.crt"
    NAMES_MISSING = "names missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairVerdict:
    """The state of a stored pair, and a sentence for people that starts with it."""

    state: State
    text: str

    @property
    def serves(self) -> bool:
        """Whether clients accept it now, even if it should be renewed."""
        return self.state in {State.GOOD, State.DUE}


def judge(
    stored: StoredPem, now: datetime, dns_names: tuple[str, ...] = (), ip_addresses: tuple[str, ...] = ()
) -> PairVerdict:
    """Judge *stored* at *now* for the given names; report the first problem, in the order of `State`."""
    if stored.complaints:
        return _verdict(State.UNREADABLE, "; ".join(stored.complaints))
    parts = {"tls.crt": stored.cert_pem, "tls.key": stored.key_pem, "ca.crt": stored.ca_pem}
    absent = [name for name, pem in parts.items() if not pem.strip()]
    if absent:
        return _verdict(State.MISSING, ", ".join(absent))
    try:
        chain = _certificates("tls.crt", stored.cert_pem)
        authorities = _certificates("ca.crt", stored.ca_pem)
        public_key = _public_key("tls.key", stored.key_pem)
        absent_names = _absent_names(chain[0], dns_names, ip_addresses)
    except ValueError as e:
        return _verdict(State.UNREADABLE, str(e))
    leaf = chain[0]
    if not _has_key(leaf, public_key):
        return _verdict(State.KEY_MISMATCH, "tls.key belongs to another certificate than tls.crt")
    if not any(_issued(signer, leaf, now) for signer in (*authorities, *chain[1:])):
        return _verdict(State.UNTRUSTED, f"no valid authority in it issued {leaf.subject.rfc4514_string()}")
    if absent_names:
        return _verdict(State.NAMES_MISSING, ", ".join(absent_names))
    return _age("tls.crt", leaf, now)


def renewal_time(cert: x509.Certificate) -> datetime:
    """Return the time for renewal, after two thirds of the certificate's life."""
    life = cert.not_valid_after_utc - cert.not_valid_before_utc
    return cert.not_valid_before_utc + life * 2 / 3


def renewed(stored: StoredPem, wanted: WantedPair, now: datetime) -> StoredPem:
    """Return a replacement for *stored*: a new pair, signed by the stored authority if it is good, else by a new one.

    A new authority precedes its predecessor in the bundle, so clients trust leaves of both until all have changed.

    Raises:
        ValueError: no certificate can be made from *wanted* (`certs.authority.issue`).
    """
    known = stored if signer_of(stored, now) is not None else succeeded((stored.ca_pem,), wanted, now)
    return replace(signed(known, wanted, now), ca_key_pem=known.ca_key_pem)


def succeeded(ca_pems: Iterable[bytes], wanted: WantedPair, now: datetime) -> StoredPem:
    """Return a new authority with its key, followed by the first unexpired one of *ca_pems*, without a pair.

    Raises:
        ValueError: no authority can be made from *wanted* (`certs.authority.new_authority`).
    """
    signer = new_authority(AUTHORITY_NAME, wanted.ca_days, now)
    ca_pem = signer.cert_pem + b"".join(_predecessors(ca_pems, now))
    return StoredPem(ca_pem=ca_pem, ca_key_pem=signer.key_pem)


def signed(known: StoredPem, wanted: WantedPair, now: datetime) -> StoredPem:
    """Return a new pair signed by the authority of *known*, without the signing key.

    Raises:
        ValueError: *known* has no authority that can sign, or no certificate can be made from *wanted*.
    """
    signer = signer_of(known, now)
    if signer is None:
        raise ValueError(f"no authority that can sign: {judge_authority(known, now).text}")
    leaf = issue(signer, wanted.dns_names, wanted.ip_addresses, wanted.days, now)
    return StoredPem(cert_pem=leaf.cert_pem, key_pem=leaf.key_pem, ca_pem=known.ca_pem)


def signer_of(stored: StoredPem, now: datetime) -> Authority | None:
    """Return the stored authority if it can still sign: it has its key, and two thirds of its life are not over."""
    try:
        public_key = _public_key("ca.key", stored.ca_key_pem)
        certs = _certificates("ca.crt", stored.ca_pem)
    except ValueError:
        return None
    for cert in certs:
        # The certificate that matches the key, and not the first in the file, because a crash may fall between two
        # writes.
        if _has_key(cert, public_key) and cert.not_valid_before_utc <= now < renewal_time(cert):
            return Authority(cert_pem=cert.public_bytes(serialization.Encoding.PEM), key_pem=stored.ca_key_pem)
    return None


def judge_authority(stored: StoredPem, now: datetime) -> PairVerdict:
    """Judge the stored authority at *now*; it is good while it can sign, for two thirds of its life."""
    if stored.complaints:
        return _verdict(State.UNREADABLE, "; ".join(stored.complaints))
    absent = [name for name, pem in (("ca.crt", stored.ca_pem), ("ca.key", stored.ca_key_pem)) if not pem.strip()]
    if absent:
        return _verdict(State.MISSING, ", ".join(absent))
    try:
        certs, public_key = _certificates("ca.crt", stored.ca_pem), _public_key("ca.key", stored.ca_key_pem)
    except ValueError as e:
        return _verdict(State.UNREADABLE, str(e))
    own = [cert for cert in certs if _has_key(cert, public_key)]
    if not own:
        return _verdict(State.KEY_MISMATCH, "ca.key belongs to no certificate of ca.crt")
    return _age("ca.crt", own[0], now)


def is_issued_by_signer(pair: StoredPem, known: StoredPem, now: datetime) -> bool:
    """Return whether the currently signing authority issued the stored pair."""
    signer = signer_of(known, now)
    if signer is None:
        return False
    try:
        leaf = _certificates("tls.crt", pair.cert_pem)[0]
    except ValueError:
        return False
    return _issued(_certificates("ca.crt", signer.cert_pem)[0], leaf, now)


def end_of(pem: bytes) -> datetime | None:
    """Return when the first certificate of *pem* expires; None without a readable one."""
    try:
        return x509.load_pem_x509_certificates(pem)[0].not_valid_after_utc
    except ValueError:
        return None


def merged_bundle(needed_pem: bytes, current_pem: bytes, now: datetime) -> bytes:
    """Return *needed_pem*, followed by at most two unexpired authorities of *current_pem* that it lacks.

    A trusted authority stays trusted until it expires, because one of its leaves may still be served. The result equals
    *current_pem* if that has the same authorities in any order.
    """
    needed = x509.load_pem_x509_certificates(needed_pem)
    try:
        current = x509.load_pem_x509_certificates(current_pem)
    except ValueError:
        current = []
    kept = [cert for cert in current if cert not in needed and now <= cert.not_valid_after_utc][:_KEPT_FOREIGN]
    if {*needed, *kept} == set(current):
        return current_pem
    return b"".join(cert.public_bytes(serialization.Encoding.PEM) for cert in (*needed, *kept))


def _verdict(state: State, detail: str) -> PairVerdict:
    return PairVerdict(state=state, text=f"{state}: {detail}")


def _age(name: str, leaf: x509.Certificate, now: datetime) -> PairVerdict:
    if now > leaf.not_valid_after_utc:
        return _verdict(State.EXPIRED, f"{name} ended at {leaf.not_valid_after_utc.isoformat()}")
    if now < leaf.not_valid_before_utc:
        return _verdict(State.NOT_YET_VALID, f"{name} begins at {leaf.not_valid_before_utc.isoformat()}")
    days = (leaf.not_valid_after_utc - now) // timedelta(days=1)
    expires = f"expires in {days} {'day' if days == 1 else 'days'}"
    if now >= renewal_time(leaf):
        return PairVerdict(state=State.DUE, text=f"{expires}: two thirds of its life are over, renew it")
    return _verdict(State.GOOD, expires)


def _predecessors(ca_pems: Iterable[bytes], now: datetime) -> tuple[bytes, ...]:
    certs: list[x509.Certificate] = []
    for pem in ca_pems:
        with suppress(ValueError):
            certs += _certificates("ca.crt", pem)
    alive = [cert for cert in certs if now <= cert.not_valid_after_utc]
    return tuple(cert.public_bytes(serialization.Encoding.PEM) for cert in alive[:_KEPT_PREDECESSORS])


def _issued(signer: x509.Certificate, leaf: x509.Certificate, now: datetime) -> bool:
    if not signer.not_valid_before_utc <= now <= signer.not_valid_after_utc:
        return False
    try:
        leaf.verify_directly_issued_by(signer)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def _absent_names(leaf: x509.Certificate, dns_names: tuple[str, ...], ip_addresses: tuple[str, ...]) -> tuple[str, ...]:
    has_names, has_addresses = _names(leaf)
    lower = {name.lower() for name in has_names}
    addresses = {str(ip_address(address)) for address in has_addresses}
    return (
        *(name for name in dns_names if name.lower() not in lower),
        *(address for address in ip_addresses if str(ip_address(address)) not in addresses),
    )


def _names(leaf: x509.Certificate) -> tuple[tuple[str, ...], tuple[str, ...]]:
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return (), ()
    addresses = names.get_values_for_type(x509.IPAddress)
    return tuple(names.get_values_for_type(x509.DNSName)), tuple(str(address) for address in addresses)


def _certificates(name: str, pem: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError as e:
        raise ValueError(f"{name} holds no readable PEM certificate") from e


def _has_key(cert: x509.Certificate, public_key: bytes) -> bool:
    try:
        return cert.public_key().public_bytes(*_PUBLIC) == public_key
    except (ValueError, UnsupportedAlgorithm):
        return False  # of another kind than the known key


def _public_key(name: str, key_pem: bytes) -> bytes:
    try:
        key = serialization.load_pem_private_key(key_pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # Not chained, because a parser's message may quote the key.
        raise ValueError(f"{name} holds no readable, unencrypted PEM key") from None
    return key.public_key().public_bytes(*_PUBLIC)
