"""Reads certificate files in one directory, and replaces each atomically with access for its owner only.

The files are ``tls.crt``, ``tls.key``, ``ca.crt`` and ``ca.key``. `certs.pair` judges their content.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from certs.pair import PairVerdict, State, StoredPem, WantedPair, judge, renewed

CERT_FILE: Final = "tls.crt"
KEY_FILE: Final = "tls.key"
CA_FILE: Final = "ca.crt"
CA_KEY_FILE: Final = "ca.key"

# A bundle of a few certificates has some KiB; a larger file is not a bundle and is not read.
MAX_FILE_BYTES: Final = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Ensured:
    """The result of `ensure`: the state before and now; *written* is false if a good pair was kept."""

    found: PairVerdict
    stands: PairVerdict
    written: bool


def read(directory: Path) -> StoredPem:
    """Read the files in *directory*; a missing file is empty, an unreadable one is a complaint."""
    complaints: list[str] = []
    return StoredPem(
        cert_pem=_read(directory / CERT_FILE, complaints),
        key_pem=_read(directory / KEY_FILE, complaints),
        ca_pem=_read(directory / CA_FILE, complaints),
        # Only signing needs this key, so an unreadable one does not stop a pair from serving.
        ca_key_pem=_read(directory / CA_KEY_FILE, []),
        complaints=tuple(complaints),
    )


def write(directory: Path, stored: StoredPem) -> None:
    """Replace each file atomically, with mode 0600; an empty part leaves its file unchanged.

    The bundle is written first and the leaf last, so the bundle always trusts the leaf beside it. Key and certificate
    are two files; a reader between the two writes sees a mismatch and keeps its current pair.

    Raises:
        OSError: a file cannot be written; earlier ones are written, and another run repairs the rest.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, pem in (
        (CA_FILE, stored.ca_pem),
        (CA_KEY_FILE, stored.ca_key_pem),
        (KEY_FILE, stored.key_pem),
        (CERT_FILE, stored.cert_pem),
    ):
        if pem:
            _replace(directory / name, pem)


def ensure(directory: Path, wanted: WantedPair, now: datetime) -> Ensured:
    """Keep a good pair, or replace what is missing, broken or due. Idempotent; for one process at a time.

    Raises:
        OSError: *directory* cannot be created or written.
        ValueError: no certificate can be made from *wanted*.
    """
    stored = read(directory)
    found = judge(stored, now, wanted.dns_names, wanted.ip_addresses)
    if found.state is State.GOOD:
        return Ensured(found=found, stands=found, written=False)
    write(directory, renewed(stored, wanted, now))
    stands = judge(read(directory), now, wanted.dns_names, wanted.ip_addresses)
    return Ensured(found=found, stands=stands, written=True)


def why_not_written(directory: Path, error: OSError) -> str:
    """Return why files cannot be written to *directory*, and the remedy, in one line."""
    if isinstance(error, FileExistsError | NotADirectoryError):
        return f"{directory}: it is no directory; name one"
    why = (error.strerror or str(error)).lower()
    return f"{error.filename or directory}: it cannot be written: {why}; make it writable, or name another directory"


def _read(path: Path, complaints: list[str]) -> bytes:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return b""
    except OSError as e:
        complaints.append(f"{path}: {e.strerror}")
        return b""
    if len(text) > MAX_FILE_BYTES:
        complaints.append(f"{path}: over {MAX_FILE_BYTES} bytes")
        return b""
    return text


def _replace(path: Path, pem: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")  # 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(pem)
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
