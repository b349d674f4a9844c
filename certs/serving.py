"""The pair that a TLS port serves: loads it, watches it, and replaces it on the live context.

No connection is closed: existing ones continue, and the next handshake uses the new pair. A pair that is half written,
does not match or is invalid is ignored, and the current one stays.
"""

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from cryptography import x509

from certs.files import CA_FILE, CERT_FILE, KEY_FILE, read
from certs.pair import StoredPem, judge
from core.errors import ConfigError, InvariantError

Signature = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A usable pair, with its expiry."""

    stored: StoredPem
    expires: datetime


class PairFiles:
    """The pair in a directory whose files may change: `look` for another one, then `serve` it."""

    def __init__(self, directory: Path) -> None:
        """Start without reading *directory*."""
        self._directory: Final = directory
        self._looked: Signature | None = None
        self._taken: Signature | None = None
        self._refused: tuple[Signature | None, str] | None = None
        self._serving: Loaded | None = None

    @property
    def is_serving(self) -> bool:
        """Whether a pair is being served."""
        return self._serving is not None

    @property
    def serving(self) -> Loaded:
        """The pair being served.

        Raises:
            InvariantError: there is none yet.
        """
        if self._serving is None:
            raise InvariantError(f"no pair of {self._directory} serves yet")
        return self._serving

    def look(self, now: datetime) -> Loaded | None:
        """Return the pair in the files if it differs from the one being served; reads files.

        Raises:
            ConfigError: the pair is unusable; raised once for the same files and reason. Unchanged files are read
                again, because the issuer's clock may be ahead.
        """
        self._looked = signature(self._directory)
        if self._looked == self._taken:
            return None
        try:
            pair = load(self._directory, now)
        except ConfigError as e:
            self._refuse(e)
            return None
        if self._serving is not None and pair.stored == self._serving.stored:
            self._taken, self._refused = self._looked, None
            return None
        return pair

    def serve(self, context: ssl.SSLContext, pair: Loaded) -> bool:
        """Make *context* serve *pair* from the last `look`; return False if that was refused before.

        Raises:
            ConfigError: it cannot; raised once for the same files and reason.
        """
        try:
            use(context, pair.stored)
        except (ssl.SSLError, OSError) as e:
            self._refuse(ConfigError([f"certificate in {self._directory}: it cannot be used: {e}"]))
            return False
        self._taken, self._refused, self._serving = self._looked, None, pair
        return True

    def _refuse(self, error: ConfigError) -> None:
        """Raise *error*, unless it was raised for these files before."""
        if self._refused != (self._looked, str(error)):
            self._refused = self._looked, str(error)
            raise error


def server_context(client_ca: bytes | None = None, flag: str = "--client-ca") -> ssl.SSLContext:
    """Return a context for TLS 1.2 and later, still without a certificate; with *client_ca*, only for its clients.

    flag: the flag that named *client_ca*.

    Raises:
        ConfigError: *client_ca* is not a PEM of certificates.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(cadata=client_ca.decode("ascii"))
        except (ssl.SSLError, ValueError) as e:
            raise ConfigError([f"{flag}: it is no PEM of certificates: {e}"]) from e
    return context


def refuse_handshakes(context: ssl.SSLContext) -> None:
    """Refuse new TLS sessions, because clients would report an expired certificate as an attack."""
    # The library's type hints accept only a plain context.
    context.sni_callback = _refuse_handshake


def allow_handshakes(context: ssl.SSLContext) -> None:
    """Undo `refuse_handshakes`."""
    context.sni_callback = None


def _refuse_handshake(session: object, name: str, context: object) -> int:
    del session, name, context
    return ssl.ALERT_DESCRIPTION_CERTIFICATE_EXPIRED


def read_client_ca(path: Path, flag: str = "--client-ca") -> bytes:
    """Read the authorities of clients, which *flag* named, at most 1 MiB.

    Raises:
        ConfigError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(2**20)
    except OSError as e:
        raise ConfigError([f"{flag} {path}: it cannot be read: {e.strerror}"]) from e


def load(directory: Path, now: datetime) -> Loaded:
    """Read the pair in *directory* and test it outside the live context.

    Raises:
        ConfigError: the pair is unusable, with the reason.
    """
    stored = read(directory)
    verdict = judge(stored, now)
    if not verdict.serves:
        raise ConfigError([f"certificate in {directory}: {verdict.text}"])
    try:
        use(server_context(), stored)
        leaf = x509.load_pem_x509_certificates(stored.cert_pem)[0]
    except (ssl.SSLError, ValueError, OSError) as e:
        raise ConfigError([f"certificate in {directory}: it cannot be used: {e}"]) from e
    return Loaded(stored=stored, expires=leaf.not_valid_after_utc)


def use(context: ssl.SSLContext, stored: StoredPem) -> None:
    """Make *context* serve the pair, from exactly the bytes that were judged.

    Raises:
        ssl.SSLError, OSError: it cannot; a context that served before may be left without a pair.
    """
    with _as_file(stored.cert_pem.rstrip() + b"\n" + stored.key_pem) as path:
        context.load_cert_chain(path)


def signature(directory: Path) -> Signature:
    """Return inode, size and modification time of each file, None for a missing one; changes with the files."""
    return tuple(_signature(directory / name) for name in (CERT_FILE, KEY_FILE, CA_FILE))


def _signature(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


_MEMORY_FLAGS: Final = getattr(os, "MFD_CLOEXEC", 0)


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """Provide *content* as an in-memory file, because the ssl module reads pairs only from paths."""
    descriptor = os.memfd_create("pair", _MEMORY_FLAGS)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
