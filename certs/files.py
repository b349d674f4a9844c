"""Reads certificate files in one directory, and replaces each atomically with access for its owner only.

The files are ``tls.crt``, ``tls.key``, ``ca.crt`` and ``ca.key``. `certs.pair` judges their content.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final

from certs.pair import PairVerdict, State, StoredPem, WantedPair, authority_due, judge, renewed

CERT_FILE: Final = "tls.crt"
KEY_FILE: Final = "tls.key"
CA_FILE: Final = "ca.crt"
CA_KEY_FILE: Final = "ca.key"

# A bundle of a few certificates has some KiB; a larger file is not a bundle and is not read.
MAX_FILE_BYTES: Final = 2**20

_OWNER_ONLY: Final = 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class Ensured:
    """The result of `ensure`: the state before and now; *written* is false if a good pair was kept."""

    found: PairVerdict
    stands: PairVerdict
    written: bool
    new_authority: bool


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
    """Replace the files atomically with mode 0600, synced to disk on return; an empty part leaves its file unchanged.

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


def ensure(directory: Path, wanted: WantedPair, now: datetime, *, rotate: bool = False) -> Ensured:
    """Keep a good pair, or replace what is missing, broken or due. Idempotent and safe to run concurrently.

    With *rotate*, authority and pair are replaced in any case.

    Raises:
        OSError: *directory* cannot be created, locked or written.
        ValueError: no certificate can be made from *wanted*.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(directory):
        _sweep(directory)
        stored = read(directory)
        found = judge(stored, now, wanted.dns_names, wanted.ip_addresses)
        if not rotate and found.state is State.GOOD and not authority_due(stored, now):
            _tighten(directory)
            return Ensured(found=found, stands=found, written=False, new_authority=False)
        fresh = renewed(stored, wanted, now, new_signer=rotate)
        write(directory, fresh)
        stands = judge(read(directory), now, wanted.dns_names, wanted.ip_addresses)
        return Ensured(found=found, stands=stands, written=True, new_authority=fresh.ca_key_pem != stored.ca_key_pem)


def publish(directory: Path, stored: StoredPem) -> bool:
    """Copy a pair and its bundle into *directory*; return whether anything differed.

    The authority's key is not copied, because servers do not sign.

    Raises:
        OSError: *directory* cannot be created, locked or written.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    pair = replace(stored, ca_key_pem=b"")
    with _locked(directory):
        _sweep(directory)
        if replace(read(directory), ca_key_pem=b"") == pair:
            return False
        write(directory, pair)
        return True


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
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    _sync(path.parent)


def _sync(directory: Path) -> None:
    """Sync the directory, which holds the name, so that the rename survives a power failure."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _sweep(directory: Path) -> None:
    """Remove partial files of a killed process; the lock excludes other writers."""
    for name in (CERT_FILE, KEY_FILE, CA_FILE, CA_KEY_FILE):
        for left in directory.glob(f".{name}.*.tmp"):
            left.unlink(missing_ok=True)


def _tighten(directory: Path) -> None:
    """Remove access for others from the keys."""
    for name in (KEY_FILE, CA_KEY_FILE):
        with suppress(FileNotFoundError):
            if (directory / name).stat().st_mode & 0o077:
                (directory / name).chmod(_OWNER_ONLY)
