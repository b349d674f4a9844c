"""The credentials in use: read once for all who need them, and anew when they are old or the server rejects them."""

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
    """Credentials, and what was made of them."""

    credentials: Credentials
    context: ssl.SSLContext
    read_at_s: float


class Logins:
    """The login of now."""

    def __init__(self, source: CredentialSource, clock: Callable[[], float]) -> None:
        self._source = source
        self._clock = clock
        self._login: Login | None = None
        # Single flight: a hundred calls answered 401 in one instant read the token once.
        self._reading = asyncio.Lock()

    async def begin(self) -> None:
        """Read the credentials for the first time.

        Raises:
            CredentialsError: there are none to begin with.
        """
        self._login = await self._read(None, rejected=False)

    @property
    def known(self) -> Login:
        """The login as it was read last, however old."""
        if self._login is None:
            raise RuntimeError("the transport is used outside its `async with`")
        return self._login

    async def current(self) -> Login:
        """The login, read again if it is more than a minute old."""
        login = self.known
        if self._clock() - login.read_at_s < CREDENTIALS_AGE_S:
            return login
        return await self.renewed(login, rejected=False) or self.known

    async def renewed(self, old: Login, *, rejected: bool) -> Login | None:
        """What to use instead of *old*; `None`, and the old one stays, if it cannot be read just now."""
        async with self._reading:
            if self.known is not old:
                return self.known  # somebody else read it while we waited
            try:
                self._login = await self._read(old, rejected=rejected)
            except CredentialsError:
                # Files are replaced one after the other; the next call after a minute, or the next 401, tries again.
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
    # Strict checks, the default from Python 3.13 on, refuse authorities that clusters have used for years.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
