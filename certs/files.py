"""Certificate files in one directory: reads them, and replaces each at once and for its owner only.

``tls.crt``, ``tls.key``, ``ca.crt`` and, beside them, ``ca.key``. Whether they will do is judged in `certs.pair`.
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

from certs.pair import PairVerdict, State, Stored, Wanted, authority_due, judge, renewed

CERT_FILE: Final = "tls.crt"
KEY_FILE: Final = "tls.key"
CA_FILE: Final = "ca.crt"
CA_KEY_FILE: Final = "ca.key"

# A bundle of a few certificates is some KiB; what is larger is no such file and is not read into memory.
MAX_FILE_BYTES: Final = 2**20

_OWNER_ONLY: Final = 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class Ensured:
    """What `ensure` found and what stands now; *written* is false where a good pair was kept."""

    found: PairVerdict
    stands: PairVerdict
    written: bool
    new_authority: bool


def read(directory: Path) -> Stored:
    """Read what lies in *directory*; a missing file is empty, one that cannot be read is a complaint."""
    complaints: list[str] = []
    return Stored(
        cert_pem=_read(directory / CERT_FILE, complaints),
        key_pem=_read(directory / KEY_FILE, complaints),
        ca_pem=_read(directory / CA_FILE, complaints),
        # Only signing needs it: a pair serves well beside an authority's key that is out of reach.
        ca_key_pem=_read(directory / CA_KEY_FILE, []),
        complaints=tuple(complaints),
    )


def write(directory: Path, stored: Stored) -> None:
    """Replace the files, each at once, mode 0600, on disk when this returns; an empty part's file is left alone.

    The bundle goes first and the leaf last: at no moment is there a leaf that the bundle beside it does not
    trust. Key and certificate are two files; a reader in between sees a pair that does not match and keeps the
    one it has.

    Raises:
        OSError: a file cannot be written; those before it are, and running again mends the rest.
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


def ensure(directory: Path, wanted: Wanted, now: datetime, *, rotate: bool = False) -> Ensured:
    """Keep a good pair, or make what is missing, broken or due. Twice is once, also when run twice at a time.

    With *rotate* the authority and the pair are made anew whatever is there.

    Raises:
        OSError: *directory* cannot be made, locked or written.
        ValueError: *wanted* makes no certificate.
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


def publish(directory: Path, stored: Stored) -> bool:
    """Bring the pair and its bundle, kept elsewhere, into *directory*; whether anything differed.

    The authority's key stays where it is kept: who serves has no need to sign.

    Raises:
        OSError: *directory* cannot be made, locked or written.
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
    """What keeps files from being written to *directory*, and what to do, in one line."""
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
    """Make the rename outlive a power cut: the name lives in the directory, not in the file."""
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
    """Remove what a killed process left half-written; under the lock nobody else writes."""
    for name in (CERT_FILE, KEY_FILE, CA_FILE, CA_KEY_FILE):
        for left in directory.glob(f".{name}.*.tmp"):
            left.unlink(missing_ok=True)


def _tighten(directory: Path) -> None:
    """Close keys that others on the machine may read."""
    for name in (KEY_FILE, CA_KEY_FILE):
        with suppress(FileNotFoundError):
            if (directory / name).stat().st_mode & 0o077:
                (directory / name).chmod(_OWNER_ONLY)
