"""The HTTP client of the API server: connections, deadlines, throttling, and one retry with fresh credentials.

How much of a request was sent determines what a failure means for a write. It knows no kinds of objects; `calls.py` and
`reflector.py` do. Only this module uses the aiohttp client.
"""

import asyncio
import contextlib
import os
import re
import socket
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeVar
from urllib.parse import urlencode
from weakref import WeakSet

import aiohttp
import msgspec
from yarl import URL

from kube.credentials import Credentials, CredentialSource, Tls, ascii_of
from kube.errors import (
    ApiError,
    ApiForbiddenError,
    ApiThrottledError,
    ApiUnknownError,
    ApiUnreachableError,
    ApiUnreadableError,
    CredentialsError,
    from_answer,
    from_failure,
    from_page,
)

# An object's representation in a library's text: useless to readers, and different in every run.
_OBJECT: Final = re.compile(r"\s*(?:ssl:)?<[^<>]* at 0x[0-9a-fA-F]+>")
_ERRNO: Final = re.compile(r"\[Errno (\d+)\]")
# A page of 500 pods with managedFields has 5 MB [facts 2.2]; no expected answer is several times that size.
MAX_BODY_BYTES: Final = 64 * 2**20
# etcd stores objects of up to 1.5 MiB and the API server sends up to 3 MiB; an event holds one object.
MAX_LINE_BYTES: Final = 16 * 2**20
MAX_ERROR_BYTES: Final = 2**20
NOT_PERMITTED: Final = "held back: this process may not write now"


class _Kind(msgspec.Struct, frozen=True):
    """What every object of the API has. Source: Kubernetes API conventions, "Types (Kinds)"."""

    kind: str = ""
    status: msgspec.Raw = msgspec.Raw()


_FAILURE: Final = b'"Failure"'
_kind_decoder: Final = msgspec.json.Decoder(_Kind)


class Purpose(StrEnum):
    """The connection pool of a call. Watches, calls and the lease must not use up each other's connections."""

    CALLS = "calls"
    WATCHES = "watches"
    LEASE = "lease"


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A complete answer with status 200 to 299; *headers* have case-insensitive keys."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def check_kind(self, verb: str, path: str) -> None:
        """Check that this is an object with a kind, as all of the API server's are, and no Status of a failure.

        Raises:
            ApiUnknownError: it is a proxy's page, so a write may not have happened, and a read shows nothing.
            ApiRefusedError: the API server refused.
        """
        try:
            found = _kind_decoder.decode(self.body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            found = _Kind()
        if not found.kind:
            raise from_page(verb, path, self.status, self.headers, self.body)
        if bytes(found.status) == _FAILURE:
            raise from_failure(verb, path, self.body)


@dataclass(slots=True, kw_only=True)
class Exchange:
    """One request and its progress. If *sendings* is above 1, aiohttp repeated it on a new connection.

    permit: called right before the first byte is sent; if it returns False, nothing is sent.
    """

    verb: str
    path: str
    purpose: Purpose
    params: Mapping[str, str] | None = None
    body: bytes | None = None
    content_type: str = ""
    max_bytes: int = MAX_BODY_BYTES
    permit: Callable[[], bool] | None = None
    sendings: int = 0

    @property
    def target(self) -> str:
        """Return path and query as in the request line."""
        return f"{self.path}?{urlencode(self.params)}" if self.params else self.path

    def begin_sending(self) -> None:
        """Record that the first byte is about to be sent.

        Raises:
            ApiThrottledError: sending is no longer permitted, so nothing is sent.
        """
        if self.permit is not None and not self.permit():
            raise ApiThrottledError(verb=self.verb, path=self.path, message=NOT_PERMITTED, retry_after_s=1.0)
        self.sendings += 1

    async def read(self, answer: aiohttp.ClientResponse) -> Response:
        """Read the whole of *answer*, which the caller closes.

        Raises:
            ApiError: the status is not a success, or the body is too long or cut off.
        """
        if not 200 <= answer.status < 300:
            raise await self.refusal(answer)
        try:
            content, whole = await _read(answer, self.max_bytes)
        except (aiohttp.ClientError, OSError) as e:
            raise self._unreadable(answer, f"the answer was cut off: {cause_of(e)}") from e
        if not whole:
            raise self._unreadable(answer, f"the answer is longer than {self.max_bytes} bytes; ask for less at a time")
        return Response(status=answer.status, headers=answer.headers, body=content)

    async def refusal(self, answer: aiohttp.ClientResponse) -> ApiError:
        """Return the error for *answer*, whose status is not a success."""
        try:
            content, _ = await _read(answer, min(self.max_bytes, MAX_ERROR_BYTES))
        except (aiohttp.ClientError, OSError) as e:
            if not 300 <= answer.status < 500:
                return self._unreadable(answer, f"the answer was cut off: {cause_of(e)}")
            content = b""  # the reason is lost, but the status shows that nothing was written
        error = from_answer(self.verb, self.path, answer.status, answer.headers, content)
        if self.sendings < 2 or self.verb == "GET":
            return error
        # aiohttp sent it twice, and the second may be refused because the first succeeded.
        return ApiUnknownError(
            verb=error.verb,
            path=error.path,
            status=error.status,
            reason=error.reason,
            message=f"sent twice over a lost connection, the second time refused: {error.message}",
            retry_after_s=error.retry_after_s,
        )

    def lost(self, text: str) -> ApiError:
        """Return the error for a request without an answer."""
        kind = ApiUnknownError if self.sendings else ApiUnreachableError
        return kind(verb=self.verb, path=self.path, message=text)

    def _unreadable(self, answer: aiohttp.ClientResponse, text: str) -> ApiError:
        kind = ApiUnreadableError if self.verb == "GET" else ApiUnknownError
        return kind(verb=self.verb, path=self.path, status=answer.status, message=text)


async def _read(answer: aiohttp.ClientResponse, max_bytes: int) -> tuple[bytes, bool]:
    """Return the body, and whether it is complete."""
    parts: list[bytes] = []
    size = 0
    async for chunk in answer.content.iter_any():
        parts.append(chunk)
        size += len(chunk)
        if size > max_bytes:
            return b"".join(parts)[:max_bytes], False
    return b"".join(parts), True


class Lines:
    """The lines of a body, in linear time even for a line of many chunks. A slow reader slows the server down."""

    def __init__(self, answer: aiohttp.ClientResponse, exchange: Exchange, silence_s: float, max_bytes: int) -> None:
        self._answer = answer
        self._exchange = exchange
        self._silence_s = silence_s
        self._max_bytes = max_bytes
        self._ready: deque[bytes] = deque()
        self._parts: list[bytes] = []
        self._size = 0

    def __aiter__(self) -> "Lines":
        return self

    async def __anext__(self) -> bytes:
        while not self._ready:
            chunk = await self._chunk()
            if not chunk:
                if self._size:
                    raise self._unreadable(f"the last line was cut off after {self._size} bytes")
                raise StopAsyncIteration
            self._take(chunk)
        return self._ready.popleft()

    async def _chunk(self) -> bytes:
        try:
            async with asyncio.timeout(self._silence_s):
                return await self._answer.content.readany()
        except TimeoutError as e:
            raise self._exchange.lost(f"silent for {self._silence_s:g} s") from e
        except (aiohttp.ClientError, OSError) as e:
            raise self._exchange.lost(cause_of(e)) from e

    def _take(self, chunk: bytes) -> None:
        first, *others = chunk.split(b"\n")
        self._parts.append(first)
        self._size += len(first)
        if self._size > self._max_bytes:
            raise self._unreadable(f"a line is longer than {self._max_bytes} bytes")
        if not others:
            return
        lines = (b"".join(self._parts), *others[:-1])
        self._ready.extend(line for line in lines if line.strip())
        self._parts = [others[-1]]
        self._size = len(others[-1])

    def _unreadable(self, text: str) -> ApiUnreadableError:
        return ApiUnreadableError(
            verb=self._exchange.verb, path=self._exchange.path, status=self._answer.status, message=text
        )


def cause_of(error: Exception) -> str:
    """Return what failed, in plain words, with host and port if the error has them.

    The library's own messages name objects and their addresses.
    """
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return (
                f"{_place(error.host, error.port)}: its certificate is not trusted: {_plain(error.certificate_error)}"
            )
        case aiohttp.ClientConnectorDNSError():
            return f"{_place(error.host, error.port)}: there is no such host"
        case aiohttp.ClientConnectorSSLError():
            return f"{_place(error.host, error.port)}: no TLS session: {_plain(error.os_error)}"
        case aiohttp.ClientProxyConnectionError():
            return f"proxy {_place(error.host, error.port)}: {_plain(error.os_error)}"
        case aiohttp.ClientConnectorError():
            return f"{_place(error.host, error.port)}: {_plain(error.os_error)}"
        case aiohttp.ClientHttpProxyError():
            return f"the proxy answers {error.status} {error.message}".rstrip()
        case aiohttp.InvalidURL():
            return f"'{error.url}' is no URL that can be called"
        case _:
            return _plain(error)


def _place(host: str, port: int | None) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _plain(error: BaseException) -> str:
    """Return the operating system's message, or the error's own without internals."""
    text = str(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message.rstrip(".")
    if isinstance(error, ssl.SSLError):
        return (error.reason or "it failed").lower().replace("_", " ")
    # If several addresses were tried, the first error represents them.
    found = _ERRNO.search(text)
    number = getattr(error, "errno", None) or (int(found[1]) if found else None)
    if isinstance(number, int) and number > 0:
        return os.strerror(number).lower()
    return _OBJECT.sub("", text).strip() or type(error).__name__


CREDENTIALS_AGE_S: Final = 60.0
_READ_BUFFER_BYTES: Final = 2**18
# The statuses by which a server asks for time, in `Retry-After`.
_BUSY: Final = (429, 503)

_T = TypeVar("_T")

# Linux only. Elsewhere, sent data may be delivered long after the call has ended.
_USER_TIMEOUT: Final[int | None] = getattr(socket, "TCP_USER_TIMEOUT", None)
# Calls: lost data arrives within a second or never. The API server ends a Binding 5 s after its arrival, so the Binding
# has ended with its own deadline (`kube.calls.BIND_DEADLINE_S`).
_DELIVERY_MS: Final[Mapping[Purpose, int]] = {Purpose.CALLS: 1000, Purpose.WATCHES: 15_000, Purpose.LEASE: 5000}
_KEEPALIVE_S: Final = 5

# Watches: the controller follows 30 kinds.
_CONNECTIONS: Final[Mapping[Purpose, int]] = {Purpose.CALLS: 88, Purpose.WATCHES: 32, Purpose.LEASE: 2}

# The exchange of the running task.
_exchange: Final[ContextVar[Exchange]] = ContextVar("exchange")

# The connections on which delivery is bounded; to set the limit for each call would cost 25 us.
_bounded: Final[WeakSet[asyncio.BaseProtocol]] = WeakSet()


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Credentials, and the TLS context made from them."""

    credentials: Credentials
    context: ssl.SSLContext
    read_at_s: float


class Logins:
    """Holds the current login, read once for all callers and again when it is old or the server rejects it."""

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
        context = ssl.create_default_context(cadata=ascii_of(tls.ca_pem) or None)
        if tls.cert_file:
            context.load_cert_chain(tls.cert_file, tls.key_file or None)
    except (ssl.SSLError, OSError, ValueError) as e:
        authority = "the certificate authority (in a pod: ca.crt)"
        what = f"client certificate {tls.cert_file}, or {authority}" if tls.cert_file else authority
        raise CredentialsError(f"{what}: cannot be used ({e}); check that it is PEM") from e
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Strict checks, the default since Python 3.13, reject authorities that clusters have used for years.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class _CountedRequest(aiohttp.ClientRequest):
    """Notifies its exchange right before the first byte; a request that is not counted was certainly not sent."""

    async def send(self, conn: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        """Send over *conn*."""
        exchange = _exchange.get()
        if conn.protocol is not None and conn.protocol not in _bounded:
            _bounded.add(conn.protocol)
            _bound_delivery(conn.transport, exchange.purpose)
        exchange.begin_sending()
        return await super().send(conn)


def _bound_delivery(transport: asyncio.Transport | None, purpose: Purpose) -> None:
    """Let the kernel give up on data that the peer does not acknowledge, even after this process has given up.

    Not before the connection is there: the limit would also apply to connecting, which may take longer.
    """
    found = transport.get_extra_info("socket") if transport is not None else None
    if found is None or _USER_TIMEOUT is None:
        return
    with contextlib.suppress(OSError):  # closed in the meantime, or not TCP
        found.setsockopt(socket.IPPROTO_TCP, _USER_TIMEOUT, _DELIVERY_MS[purpose])
        if purpose is Purpose.WATCHES:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_S)
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_S)


class Transport:
    """Calls to one API server. Create it inside a running loop with `async with`, and share it among tasks."""

    def __init__(
        self,
        source: CredentialSource,
        *,
        user_agent: str = "cardshare",
        deadline_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._logins = Logins(source, clock)
        self._user_agent = user_agent
        self._deadline_s = deadline_s
        self._clock = clock
        self._slow_until_s = 0.0
        self._sessions: dict[Purpose, aiohttp.ClientSession] = {}

    async def __aenter__(self) -> "Transport":
        """Read the credentials and open the sessions; nothing is sent yet.

        Raises:
            CredentialsError: there are no usable credentials.
        """
        await self._logins.begin()
        for purpose in Purpose:
            self._sessions[purpose] = self._open_session(purpose)
        return self

    async def __aexit__(self, *exc: object) -> None:
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return self._logins.known.credentials.server

    @property
    def namespace(self) -> str:
        """The namespace of the credentials, or ""."""
        return self._logins.known.credentials.namespace

    @property
    def pause_s(self) -> float:
        """How many more seconds the server asks clients to wait; the lease is exempt."""
        return max(0.0, self._slow_until_s - self._clock())

    async def request(
        self,
        verb: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        deadline_s: float | None = None,
        max_bytes: int = MAX_BODY_BYTES,
        purpose: Purpose = Purpose.CALLS,
        wait_out_pause: bool = True,
        permit: Callable[[], bool] | None = None,
    ) -> Response:
        """Send one request and read its whole answer.

        After a 401, or if the server's certificate is not trusted, the credentials are read again and the request is
        sent once more, because neither attempt was written.

        Args:
            verb: GET, POST, PUT, PATCH or DELETE.
            path: from the root, already percent-encoded.
            params: the query.
            body: the content to send, or `None`.
            content_type: type of *body*; for PATCH it names the kind of patch.
            deadline_s: limit for the whole call including pauses; `None` = the transport's own.
            max_bytes: a longer answer is refused.
            purpose: selects the connections.
            wait_out_pause: `False` raises at once during a pause instead of waiting.
            permit: called right before the first byte is sent; if it returns `False`, nothing is sent
                (`ApiThrottledError`).

        Raises:
            ApiError: `kube.errors` describes what each subclass means for a write.
        """
        limit_s = self._deadline_s if deadline_s is None else deadline_s
        exchange = Exchange(
            verb=verb,
            path=path,
            purpose=purpose,
            params=params,
            body=body,
            content_type=content_type,
            max_bytes=max_bytes,
            permit=permit,
        )
        try:
            return await self._within(limit_s, exchange, self._ask, limit_s if wait_out_pause else 0.0)
        except ApiError as e:
            self._note(e, purpose)
            raise

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        params: Mapping[str, str],
        *,
        silence_s: float,
        start_s: float | None = None,
        max_line_bytes: int = MAX_LINE_BYTES,
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a streaming GET: enter after status 200, then yield lines as they arrive, without line breaks.

        Args:
            path: as for `request`.
            params: the query.
            silence_s: the connection counts as dead after this long without a byte.
            start_s: limit for the head of the answer; `None` = the transport's deadline.
            max_line_bytes: a longer line ends the stream.

        Raises:
            ApiUnknownError: the connection broke or fell silent.
            ApiUnreadableError: a line was too long, or the last one was cut off.
            ApiError: the status was not 200.
        """
        limit_s = self._deadline_s if start_s is None else start_s
        exchange = Exchange(verb="GET", path=path, purpose=Purpose.WATCHES, params=params)
        answer: aiohttp.ClientResponse | None = None
        try:
            answer = await self._within(limit_s, exchange, self._open, limit_s)
            yield Lines(answer, exchange, silence_s, max_line_bytes)
        except ApiError as e:
            self._note(e, Purpose.WATCHES)
            raise
        finally:
            if answer is not None:
                # Not returned to the pool: the rest of the watch would be read before the next answer.
                answer.close()

    # -- one request --------------------------------------------------------------------------------------------

    async def _within(
        self,
        limit_s: float,
        exchange: Exchange,
        act: Callable[[Login, Exchange], Awaitable[_T]],
        patience_s: float,
    ) -> _T:
        try:
            async with asyncio.timeout(limit_s):
                await self._pass_pause(exchange, patience_s)
                return await self._logged_in(exchange, act)
        except TimeoutError as e:
            raise exchange.lost(f"no answer within {limit_s:g} s") from e

    async def _logged_in(self, exchange: Exchange, act: Callable[[Login, Exchange], Awaitable[_T]]) -> _T:
        login = await self._logins.current()
        try:
            return await act(login, exchange)
        except (ApiForbiddenError, ApiUnreachableError) as e:
            untrusted = isinstance(e.__cause__, aiohttp.ClientConnectorCertificateError)
            if e.status != 401 and not untrusted:
                raise
            renewed = await self._logins.renewed(login, rejected=True)
            if renewed is None:
                raise
        return await act(renewed, exchange)

    async def _ask(self, login: Login, exchange: Exchange) -> Response:
        answer = await self._send(login, exchange)
        try:
            return await exchange.read(answer)
        finally:
            answer.release()  # this closes the connection if part of the answer is unread

    async def _open(self, login: Login, exchange: Exchange) -> aiohttp.ClientResponse:
        answer = await self._send(login, exchange)
        if answer.status == 200:
            return answer
        try:
            raise await exchange.refusal(answer)
        finally:
            answer.close()

    async def _send(self, login: Login, exchange: Exchange) -> aiohttp.ClientResponse:
        exchange.sendings = 0  # the earlier attempt was answered 401 or never sent, so nothing was written
        _exchange.set(exchange)
        credentials = login.credentials
        headers = {"Content-Type": exchange.content_type} if exchange.body is not None else {}
        if credentials.authorization:
            headers["Authorization"] = credentials.authorization
        try:
            return await self._sessions[exchange.purpose].request(
                exchange.verb,
                URL(credentials.server + exchange.target, encoded=True),
                data=exchange.body,
                headers=headers,
                ssl=login.context,
                server_hostname=credentials.tls.server_name or None,
                proxy=credentials.proxy_url or None,
                allow_redirects=False,
            )
        except (aiohttp.ClientError, OSError, ValueError) as e:
            # ValueError: a server, proxy or token from a file that cannot be part of a request.
            why = cause_of(e)
            if credentials.server.startswith("http:") and isinstance(e, aiohttp.ServerDisconnectedError):
                why += "; the address begins with http:, and an API server speaks https: write that into the kubeconfig"
            raise exchange.lost(why) from e

    def _open_session(self, purpose: Purpose) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=_CONNECTIONS[purpose], keepalive_timeout=30.0),
            # Every limit is set here with `asyncio.timeout`; aiohttp's limits would hide what was sent and what was
            # not.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
            headers={
                "Accept": "application/json",
                # Compression costs the API server more CPU than the traffic costs the network.
                "Accept-Encoding": "identity",
                "User-Agent": self._user_agent,
            },
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            read_bufsize=_READ_BUFFER_BYTES,
            request_class=_CountedRequest,
        )

    # -- throttling ---------------------------------------------------------------------------------------------

    async def _pass_pause(self, exchange: Exchange, patience_s: float) -> None:
        if exchange.purpose is Purpose.LEASE:
            return  # a lease that is not renewed costs more than one call
        while (left_s := self.pause_s) > 0:
            if left_s >= patience_s:
                raise ApiThrottledError(
                    verb=exchange.verb,
                    path=exchange.path,
                    message=f"held back: the API server asked to be left alone for {left_s:.1f} s more",
                    retry_after_s=left_s,
                )
            await asyncio.sleep(left_s)

    def _note(self, error: ApiError, purpose: Purpose) -> None:
        if error.status not in _BUSY:
            return  # 0: this process held the call back
        if error.is_of_budget or error.is_of_kind:
            return  # other calls are served
        if error.retry_after_s and purpose is not Purpose.LEASE:
            self._slow_until_s = max(self._slow_until_s, self._clock() + error.retry_after_s)
