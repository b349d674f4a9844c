"""Creates a certificate authority and the serving certificates that it signs.

Except for the keys, these are pure functions of their inputs: the clock is passed as ``now``, and nothing is read or
written. `certs.files` decides where certificates are stored and when they are renewed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# Clocks of nodes differ, by many minutes if nobody sets them; the slower one rejects a certificate that starts "now".
BACKDATING: Final = timedelta(hours=1)

# RFC 5280, upper bound of a common name (ub-common-name). Clients check the SAN; the name is for people.
_MAX_COMMON_NAME: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """A certificate authority: its self-signed certificate and its private key, both PEM."""

    cert_pem: bytes
    key_pem: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A serving certificate and its private key, both PEM."""

    cert_pem: bytes
    key_pem: bytes = field(repr=False)


def new_authority(common_name: str, days: int, now: datetime) -> Authority:
    """Create an authority with a new EC P-256 key, valid for *days* from *now* (with a time zone).

    It has the extensions that `ssl.VERIFY_X509_STRICT`, the default of Python 3.13, requires of an authority.

    Raises:
        ValueError: *common_name* is empty or over 64 characters, or *days* is below 1.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(common_name)
    cert = (
        _builder(name, name, key.public_key(), now, _end(now, days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority(cert_pem=cert.public_bytes(serialization.Encoding.PEM), key_pem=_key_pem(key))


def issue(
    authority: Authority,
    dns_names: tuple[str, ...],
    ip_addresses: tuple[str, ...],
    days: int,
    now: datetime,
    *,
    for_client: bool = False,
) -> Leaf:
    """Sign a serving or client certificate for *dns_names* and *ip_addresses*, valid for *days* from *now*.

    It ends no later than the authority, because clients reject a leaf whose signer has expired.

    Raises:
        ValueError: there is no name, a name is not ASCII, an address is invalid, *days* is below 1, or *authority* is
            unreadable.
    """
    if not dns_names and not ip_addresses:
        raise ValueError("a serving certificate needs at least one DNS name or IP address")
    signer = x509.load_pem_x509_certificate(authority.cert_pem)
    signer_key = serialization.load_pem_private_key(authority.key_pem, password=None)
    if not isinstance(signer_key, ec.EllipticCurvePrivateKey):
        raise ValueError("the authority's key is not an elliptic curve key")
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in dns_names]
    names += [x509.IPAddress(ip_address(address)) for address in ip_addresses]
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name((*dns_names, *ip_addresses)[0][:_MAX_COMMON_NAME])
    end = min(_end(now, days), signer.not_valid_after_utc)
    usage = ExtendedKeyUsageOID.CLIENT_AUTH if for_client else ExtendedKeyUsageOID.SERVER_AUTH
    cert = (
        _builder(subject, signer.subject, key.public_key(), now, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_authority_key_id(signer), critical=False)
        .sign(signer_key, hashes.SHA256())
    )
    return Leaf(cert_pem=cert.public_bytes(serialization.Encoding.PEM), key_pem=_key_pem(key))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now.replace(microsecond=0) - BACKDATING)
        .not_valid_after(end)
    )


def _end(now: datetime, days: int) -> datetime:
    if days < 1:
        raise ValueError(f"a certificate must be valid for at least 1 day, not {days}")
    return now.replace(microsecond=0) + timedelta(days=days)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _authority_key_id(signer: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    """Return the signer's key identifier, which distinguishes two authorities of one name during a rotation."""
    try:
        identifier = signer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound as e:
        raise ValueError("the authority's certificate has no subject key identifier") from e
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
