"""How a release came about, as a statement that tools verify: in-toto v1 with SLSA's provenance v1.

Sources: https://github.com/in-toto/attestation (Statement v1, Envelope v1) and https://slsa.dev/spec/v1.0/provenance.
"""

import base64
import hashlib
import json
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
_BUILD_TYPE: Final = "urn:cardshare:release:v1"


class UnusableKeyError(Exception):
    """A file holds no key that can sign; the text says why."""


def sha256_of(path: Path) -> str:
    """The digest of a file, as hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def statement(
    files: Iterable[Path], *, version: str, commit: str, locks: Iterable[Path], is_changed: bool = False
) -> bytes:
    """The statement about *files*: which commit and which locked packages they were built from.

    Args:
        files: what was built.
        version: of the project.
        commit: of the sources, "" if they are not under version control.
        locks: the lock files whose packages took part.
        is_changed: the sources differ from the commit.
    """
    name = "source, with changes that are not committed" if is_changed else "source"
    source: list[dict[str, Any]] = [{"name": name, "digest": {"gitCommit": commit}}] if commit else []
    packages = [{"name": lock.name, "digest": {"sha256": sha256_of(lock)}} for lock in locks]
    said = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": path.name, "digest": {"sha256": sha256_of(path)}} for path in sorted(files)],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": _BUILD_TYPE,
                "externalParameters": {"version": version},
                "internalParameters": {"python": platform.python_version(), "machine": platform.machine()},
                "resolvedDependencies": [*source, *packages],
            },
            "runDetails": {"builder": {"id": "urn:cardshare:scripts/release"}},
        },
    }
    return json.dumps(said, indent=2, sort_keys=True).encode() + b"\n"


def signed(payload: bytes, key: Path) -> bytes:
    """*payload* in a DSSE envelope, signed with the Ed25519 key in the PEM file *key*.

    Raises:
        UnusableKeyError: the file cannot be read, or holds another kind of key.
    """
    try:
        private = load_pem_private_key(key.read_bytes(), password=None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as e:
        raise UnusableKeyError(f"{key}: no private key in PEM without a password: {e}") from e
    if not isinstance(private, Ed25519PrivateKey):
        raise UnusableKeyError(f"{key}: found another kind of key; use Ed25519 (openssl genpkey -algorithm ed25519)")
    envelope = {
        "payloadType": PAYLOAD_TYPE,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [{"sig": base64.b64encode(private.sign(encoded(payload))).decode()}],
    }
    return json.dumps(envelope).encode() + b"\n"


def encoded(payload: bytes) -> bytes:
    """What is signed of *payload*: DSSE's encoding before authentication."""
    return b"DSSEv1 %d %s %d %s" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload)
