"""Judges a stored certificate pair, and says what to store instead when it will not do.

Pure: what is stored comes in as bytes, wherever it lies (`certs.files`, a Secret), and the clock as ``now``.
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

# Clients need both authorities only while leaves of both are in use; more than one predecessor is a leak of trust.
_KEPT_PREDECESSORS: Final = 1

# Two replicas that start at once may each bring an authority; a third that nobody needs is one too many.
_KEPT_FOREIGN: Final = 2

_PUBLIC: Final = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What is stored, PEM; empty where nothing is.

    Attributes:
        cert_pem: the serving certificate (``tls.crt``).
        key_pem: its key (``tls.key``).
        ca_pem: one or more authorities that clients are to trust, the signing one first (``ca.crt``).
        ca_key_pem: the signing authority's key (``ca.key``).
        complaints: one line for each thing that is there and could not be read.
    """

    cert_pem: bytes = b""
    key_pem: bytes = field(default=b"", repr=False)
    ca_pem: bytes = b""
    ca_key_pem: bytes = field(default=b"", repr=False)
    complaints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a serving certificate is to be: its names, and how long it and its authority are to live."""

    dns_names: tuple[str, ...] = ()
    ip_addresses: tuple[str, ...] = ()
    days: int
    ca_days: int


class State(StrEnum):
    """How a stored pair stands; all but GOOD ask for another one."""

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
    """How a stored pair stands, and a sentence for people that begins with it."""

    state: State
    text: str

    @property
    def serves(self) -> bool:
        """Whether clients accept it now, also if it should be renewed."""
        return self.state in {State.GOOD, State.DUE}


def judge(
    stored: Stored, now: datetime, dns_names: tuple[str, ...] = (), ip_addresses: tuple[str, ...] = ()
) -> PairVerdict:
    """How *stored* stands at *now* for the names given; the first obstacle is told, in the order of `State`."""
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
    if leaf.public_key().public_bytes(*_PUBLIC) != public_key:
        return _verdict(State.KEY_MISMATCH, "tls.key belongs to another certificate than tls.crt")
    if not any(_issued(signer, leaf, now) for signer in (*authorities, *chain[1:])):
        return _verdict(State.UNTRUSTED, f"no valid authority in it issued {leaf.subject.rfc4514_string()}")
    if absent_names:
        return _verdict(State.NAMES_MISSING, ", ".join(absent_names))
    return _age("tls.crt", leaf, now)


def renewal_time(cert: x509.Certificate) -> datetime:
    """When a certificate has lived two thirds of its life, and another one should take its place."""
    life = cert.not_valid_after_utc - cert.not_valid_before_utc
    return cert.not_valid_before_utc + life * 2 / 3


def renewed(stored: Stored, wanted: Wanted, now: datetime, *, new_signer: bool = False) -> Stored:
    """What to store in place of *stored*: a new pair, by the stored authority if that is good, else by a new one.

    A new authority is put before its predecessor, so that clients trust leaves of both until all have changed.

    Args:
        stored: what is there.
        wanted: what the pair is to be.
        now: with a time zone.
        new_signer: bring a new authority, also where the stored one is good.

    Raises:
        ValueError: *wanted* makes no certificate (`certs.authority.issue`).
    """
    known = succeeded((stored.ca_pem,), wanted, now) if new_signer or signer_of(stored, now) is None else stored
    return replace(signed(known, wanted, now), ca_key_pem=known.ca_key_pem)


def succeeded(ca_pems: Iterable[bytes], wanted: Wanted, now: datetime) -> Stored:
    """A new authority and its key, before the first of *ca_pems* that has not ended, and without a pair.

    Raises:
        ValueError: *wanted* makes no certificate (`certs.authority.new_authority`).
    """
    signer = new_authority(AUTHORITY_NAME, wanted.ca_days, now)
    ca_pem = signer.cert_pem + b"".join(_predecessors(ca_pems, now))
    return Stored(ca_pem=ca_pem, ca_key_pem=signer.key_pem)


def signed(known: Stored, wanted: Wanted, now: datetime) -> Stored:
    """A new pair by the authority of *known*, without the key that signed it.

    Raises:
        ValueError: *known* holds no authority that can sign, or *wanted* makes no certificate.
    """
    signer = signer_of(known, now)
    if signer is None:
        raise ValueError(f"no authority that can sign: {judge_authority(known, now).text}")
    leaf = issue(signer, wanted.dns_names, wanted.ip_addresses, wanted.days, now)
    return Stored(cert_pem=leaf.cert_pem, key_pem=leaf.key_pem, ca_pem=known.ca_pem)


def authority_due(stored: Stored, now: datetime) -> bool:
    """Whether the authority that issued the stored leaf has lived two thirds of its life."""
    try:
        leaf = _certificates("tls.crt", stored.cert_pem)[0]
        issuers = [cert for cert in _certificates("ca.crt", stored.ca_pem) if _issued(cert, leaf, now)]
    except ValueError:
        return False
    return bool(issuers) and all(now >= renewal_time(cert) for cert in issuers)


def signer_of(stored: Stored, now: datetime) -> Authority | None:
    """The stored authority that can still sign: its key is there and it has not lived two thirds of its life."""
    try:
        public_key = _public_key("ca.key", stored.ca_key_pem)
        certs = _certificates("ca.crt", stored.ca_pem)
    except ValueError:
        return None
    for cert in certs:
        # Not the first in the file, but the one that the key fits: a crash may fall between the two files.
        matches = cert.public_key().public_bytes(*_PUBLIC) == public_key
        if matches and cert.not_valid_before_utc <= now < renewal_time(cert):
            return Authority(cert_pem=cert.public_bytes(serialization.Encoding.PEM), key_pem=stored.ca_key_pem)
    return None


def judge_authority(stored: Stored, now: datetime) -> PairVerdict:
    """How the stored authority stands at *now*; good while it can sign, which it does for two thirds of its life."""
    if stored.complaints:
        return _verdict(State.UNREADABLE, "; ".join(stored.complaints))
    absent = [name for name, pem in (("ca.crt", stored.ca_pem), ("ca.key", stored.ca_key_pem)) if not pem.strip()]
    if absent:
        return _verdict(State.MISSING, ", ".join(absent))
    try:
        certs, public_key = _certificates("ca.crt", stored.ca_pem), _public_key("ca.key", stored.ca_key_pem)
    except ValueError as e:
        return _verdict(State.UNREADABLE, str(e))
    own = [cert for cert in certs if cert.public_key().public_bytes(*_PUBLIC) == public_key]
    if not own:
        return _verdict(State.KEY_MISMATCH, "ca.key belongs to no certificate of ca.crt")
    return _age("ca.crt", own[0], now)


def is_issued_by_signer(pair: Stored, known: Stored, now: datetime) -> bool:
    """Whether the authority that signs now, and none before it, issued the stored pair."""
    signer = signer_of(known, now)
    if signer is None:
        return False
    try:
        leaf = _certificates("tls.crt", pair.cert_pem)[0]
    except ValueError:
        return False
    return _issued(_certificates("ca.crt", signer.cert_pem)[0], leaf, now)


def end_of(pem: bytes) -> datetime | None:
    """When the first certificate of *pem* ends; None where there is none that can be read."""
    try:
        return x509.load_pem_x509_certificates(pem)[0].not_valid_after_utc
    except ValueError:
        return None


def merged_bundle(needed_pem: bytes, current_pem: bytes, now: datetime) -> bytes:
    """*needed_pem*, then authorities of *current_pem* that it lacks and that have not expired, at most two.

    What a client trusts already stays trusted until it expires: somewhere a leaf of it may still be served. Equal to
    *current_pem* where that holds no more and no less, in any order.
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


def describe(cert_pem: bytes) -> str:
    """One line on a certificate: its names and its end. Raises ValueError where it cannot be read."""
    leaf = _certificates("tls.crt", cert_pem)[0]
    dns_names, addresses = _names(leaf)
    return f"names {', '.join((*dns_names, *addresses)) or '(none)'}; until {leaf.not_valid_after_utc.isoformat()}"


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


def _public_key(name: str, key_pem: bytes) -> bytes:
    try:
        key = serialization.load_pem_private_key(key_pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # The cause is not told: a parser's message may quote what it read.
        raise ValueError(f"{name} holds no readable, unencrypted PEM key") from None
    return key.public_key().public_bytes(*_PUBLIC)
