"""The current credentials, read once for all callers and again when they are old or the server rejects them."""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from kube.credentials import Credentials, CredentialSource, Tls
from kube.errors import CredentialsError

CREDENTIALS_AGE_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Credentials, and the TLS context made from them."""

    credentials: Credentials
    context: ssl.SSLContext
    read_at_s: float


class Logins:
    """Holds the current login."""

    def __init__(self, source: CredentialSource, clock: Callable[[], float]) -> None:
        self._source = source
        self._clock = clock
        self._login: Login | None = None
        # Single flight: if a hundred calls get 401 at once, the token is read once.
        self._reading = asyncio.Lock()

    async def begin(self) -> None:
        """Read the credentials for the first time.

        Raises:
            CredentialsError: there are no usable credentials.
        """
        self._login = await self._read(None, rejected=False)

    @property
    def known(self) -> Login:
        """The login from the last read, however old."""
        if self._login is None:
            raise RuntimeError("the transport is used outside its `async with`")
        return self._login

    async def current(self) -> Login:
        """Return the login; read it again if it is more than a minute old."""
        login = self.known
        if self._clock() - login.read_at_s < CREDENTIALS_AGE_S:
            return login
        return await self.renewed(login, rejected=False) or self.known

    async def renewed(self, old: Login, *, rejected: bool) -> Login | None:
        """Return a replacement for *old*, or `None` if it cannot be read now; the old login then stays."""
        async with self._reading:
            if self.known is not old:
                return self.known  # another task read it in the meantime
            try:
                self._login = await self._read(old, rejected=rejected)
            except CredentialsError:
                # Files are replaced one at a time; the next call after a minute, or the next 401, tries again.
                self._login = replace(old, read_at_s=self._clock())
                return None
            return self._login

    async def _read(self, old: Login | None, *, rejected: bool) -> Login:
        credentials = await self._source.read(rejected=rejected)
        if old is not None and old.credentials.tls == credentials.tls:
            context = old.context
        else:
            context = await asyncio.to_thread(_make_context, credentials.tls)
        return Login(credentials=credentials, context=context, read_at_s=self._clock())


def _make_context(tls: Tls) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=tls.ca_pem or None)
        if tls.cert_file:
            context.load_cert_chain(tls.cert_file, tls.key_file or None)
    except (ssl.SSLError, OSError, ValueError) as e:
        what = f"client certificate {tls.cert_file}, or the certificate authority" if tls.cert_file else "ca.crt"
        raise CredentialsError(f"{what}: cannot be used ({e}); check that it is PEM") from e
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Strict checks, the default since Python 3.13, reject authorities that clusters have used for years.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
