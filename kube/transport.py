"""Bytes to and from the API server: connections, deadlines, size limits, tokens, throttling, and what failed how.

The one file that knows the aiohttp client. It knows no kinds of objects; `calls.py` and `reflector.py` do.
"""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from types import SimpleNamespace
from typing import Final, TypeVar

import aiohttp
from yarl import URL

from kube.credentials import Credentials, CredentialSource, Tls
from kube.errors import (
    ApiError,
    ApiForbiddenError,
    ApiThrottledError,
    ApiUnknownError,
    ApiUnreachableError,
    ApiUnreadableError,
    CredentialsError,
    from_answer,
)

# A page of 500 pods with managedFields is 5 MB [facts 2.2]; nothing we ask for is several times that.
MAX_BODY_BYTES: Final = 64 * 2**20
# etcd stores objects of up to 1.5 MiB, the API server sends up to 3 MiB; an event holds one.
MAX_LINE_BYTES: Final = 16 * 2**20
MAX_ERROR_BYTES: Final = 2**20
CREDENTIALS_AGE_S: Final = 60.0
# A `Retry-After` beyond this is a mistake or an attack; asking once a minute hurts nobody.
MAX_PAUSE_S: Final = 60.0
_READ_BUFFER_BYTES: Final = 2**18

_T = TypeVar("_T")


class Purpose(StrEnum):
    """Which connections a call travels on: watches must not use up those of calls, nor either those of the lease."""

    CALLS = "calls"
    WATCHES = "watches"
    LEASE = "lease"


_CONNECTIONS: Final[Mapping[Purpose, int]] = {Purpose.CALLS: 72, Purpose.WATCHES: 32, Purpose.LEASE: 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """An answer of status 200 to 299, whole. *headers* are found whatever their case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True, kw_only=True)
class Counters:
    """What happened so far, for metrics."""

    requests: int = 0
    errors: int = 0
    throttled: int = 0
    credentials_read: int = 0
    credentials_failed: int = 0


@dataclass(slots=True, kw_only=True)
class _Exchange:
    """One request, and how far it came. More than one *sending*: aiohttp repeated it on a new connection."""

    verb: str
    path: str
    purpose: Purpose
    params: Mapping[str, str] | None = None
    body: bytes | None = None
    content_type: str = ""
    max_bytes: int = MAX_BODY_BYTES
    sendings: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Login:
    """The credentials in use, and what was made of them."""

    credentials: Credentials
    context: ssl.SSLContext
    read_at_s: float


class Transport:
    """Calls to one API server. Make it inside a running loop with `async with`; share it among tasks."""

    def __init__(
        self,
        source: CredentialSource,
        *,
        user_agent: str = "cardshare",
        deadline_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.counters = Counters()
        self._source = source
        self._user_agent = user_agent
        self._deadline_s = deadline_s
        self._clock = clock
        self._sleep = sleep
        self._login: _Login | None = None
        self._slow_until_s = 0.0
        self._sessions: dict[Purpose, aiohttp.ClientSession] = {}
        # Single flight: a hundred calls answered 401 in one instant read the token once.
        self._reading = asyncio.Lock()

    async def __aenter__(self) -> "Transport":
        """Read the credentials and open the sessions; nothing is sent yet.

        Raises:
            CredentialsError: there are none to begin with.
        """
        self._login = await self._read_login(None, rejected=False)
        for purpose, connections in _CONNECTIONS.items():
            self._sessions[purpose] = self._open_session(connections)
        return self

    async def __aexit__(self, *exc: object) -> None:
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()

    @property
    def server(self) -> str:
        """The API server's URL."""
        return self._known.credentials.server

    @property
    def namespace(self) -> str:
        """The namespace that the credentials belong to, or ""."""
        return self._known.credentials.namespace

    @property
    def pause_s(self) -> float:
        """For how many seconds more the server wants to be left alone; the lease is exempt."""
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
    ) -> Response:
        """Send one request and read its whole answer.

        After a 401, or when the server's certificate is not trusted, the credentials are read again and the request
        is sent once more: neither was written.

        Args:
            verb: GET, POST, PUT, PATCH or DELETE.
            path: percent-encoded already, from the root.
            params: the query.
            body: what to send, or `None`.
            content_type: of *body*; for PATCH it names the kind of patch.
            deadline_s: for everything, pauses included; the transport's own if `None`.
            max_bytes: a longer answer is refused.
            purpose: the connections to use.
            wait_out_pause: `False` to be told of a pause at once instead of waiting in it.

        Raises:
            ApiError: see `kube.errors` for which says what about a write.
        """
        limit_s = self._deadline_s if deadline_s is None else deadline_s
        exchange = _Exchange(
            verb=verb,
            path=path,
            purpose=purpose,
            params=params,
            body=body,
            content_type=content_type,
            max_bytes=max_bytes,
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
        """A GET that goes on: entered once the server has said 200, then the lines as they come, without their breaks.

        Args:
            path: as for `request`.
            params: the query.
            silence_s: without a byte for so long, the connection is taken for dead.
            start_s: within which the answer's head must come; the transport's deadline if `None`.
            max_line_bytes: a longer line ends the stream.

        Raises:
            ApiUnknownError: the connection broke or fell silent.
            ApiUnreadableError: a line was too long, or the last one was cut off.
            ApiError: the server answered something else than 200.
        """
        limit_s = self._deadline_s if start_s is None else start_s
        exchange = _Exchange(verb="GET", path=path, purpose=Purpose.WATCHES, params=params)
        answer: aiohttp.ClientResponse | None = None
        try:
            answer = await self._within(limit_s, exchange, self._open, limit_s)
            yield _Lines(answer, exchange, silence_s, max_line_bytes)
        except ApiError as e:
            self._note(e, Purpose.WATCHES)
            raise
        finally:
            if answer is not None:
                # Not released into the pool: what is left of a watch would be read before the next answer.
                answer.close()

    # -- one request --------------------------------------------------------------------------------------------

    async def _within(
        self,
        limit_s: float,
        exchange: _Exchange,
        act: Callable[[_Login, _Exchange], Awaitable[_T]],
        patience_s: float,
    ) -> _T:
        try:
            async with asyncio.timeout(limit_s):
                await self._pass_pause(exchange, patience_s)
                return await self._logged_in(exchange, act)
        except TimeoutError as e:
            raise _lost(exchange, f"no answer within {limit_s:g} s") from e

    async def _logged_in(self, exchange: _Exchange, act: Callable[[_Login, _Exchange], Awaitable[_T]]) -> _T:
        login = await self._login_of_now()
        try:
            return await act(login, exchange)
        except (ApiForbiddenError, ApiUnreachableError) as e:
            untrusted = isinstance(e.__cause__, aiohttp.ClientConnectorCertificateError)
            if e.status != 401 and not untrusted:
                raise
            renewed = await self._renewed(login, rejected=True)
            if renewed is None:
                raise
        return await act(renewed, exchange)

    async def _ask(self, login: _Login, exchange: _Exchange) -> Response:
        answer = await self._send(login, exchange)
        accepted = 200 <= answer.status < 300
        try:
            limit_bytes = exchange.max_bytes if accepted else min(exchange.max_bytes, MAX_ERROR_BYTES)
            content, whole = await _read(answer, limit_bytes)
        except (aiohttp.ClientError, OSError) as e:
            raise _cut(exchange, answer, e) from e
        finally:
            answer.release()  # which closes the connection if something of the answer is left in it
        if not accepted:
            error = from_answer(exchange.verb, exchange.path, answer.status, answer.headers, content)
            raise _unsure_if_repeated(error, exchange)
        if not whole:
            kind = ApiUnreadableError if exchange.verb == "GET" else ApiUnknownError
            text = f"the answer is longer than {exchange.max_bytes} bytes; ask for less at a time"
            raise kind(verb=exchange.verb, path=exchange.path, status=answer.status, message=text)
        return Response(status=answer.status, headers=answer.headers, body=content)

    async def _open(self, login: _Login, exchange: _Exchange) -> aiohttp.ClientResponse:
        answer = await self._send(login, exchange)
        if answer.status == 200:
            return answer
        try:
            content, _ = await _read(answer, MAX_ERROR_BYTES)
        except (aiohttp.ClientError, OSError) as e:
            raise _cut(exchange, answer, e) from e
        finally:
            answer.close()
        raise from_answer(exchange.verb, exchange.path, answer.status, answer.headers, content)

    async def _send(self, login: _Login, exchange: _Exchange) -> aiohttp.ClientResponse:
        exchange.sendings = 0  # what went before was answered 401, or never left: not written
        credentials = login.credentials
        headers = {"Content-Type": exchange.content_type} if exchange.body is not None else {}
        if credentials.authorization:
            headers["Authorization"] = credentials.authorization
        self.counters.requests += 1
        try:
            return await self._sessions[exchange.purpose].request(
                exchange.verb,
                URL(credentials.server + exchange.path, encoded=True),
                params=exchange.params,
                data=exchange.body,
                headers=headers,
                ssl=login.context,
                server_hostname=credentials.tls.server_name or None,
                proxy=credentials.proxy_url or None,
                allow_redirects=False,
                trace_request_ctx=exchange,
            )
        except aiohttp.ClientConnectorCertificateError as e:
            raise _lost(exchange, f"the server's certificate is not trusted: {e.certificate_error}") from e
        except (aiohttp.ClientError, OSError, ValueError) as e:
            # ValueError: a server, proxy or token out of a file that cannot be put into a request at all.
            raise _lost(exchange, str(e) or type(e).__name__) from e

    def _open_session(self, connections: int) -> aiohttp.ClientSession:
        trace = aiohttp.TraceConfig()
        trace.on_request_headers_sent.append(_count_sending)
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections, keepalive_timeout=30.0),
            # Every bound is ours (`asyncio.timeout`); aiohttp's would blur what was sent and what was not.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
            headers={
                "Accept": "application/json",
                # Compressing costs the API server more CPU than the bytes cost a cluster's network.
                "Accept-Encoding": "identity",
                "User-Agent": self._user_agent,
            },
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            read_bufsize=_READ_BUFFER_BYTES,
            trace_configs=[trace],
        )

    # -- throttling ---------------------------------------------------------------------------------------------

    async def _pass_pause(self, exchange: _Exchange, patience_s: float) -> None:
        if exchange.purpose is Purpose.LEASE:
            return  # a lease not renewed would cost more than one call does
        while (left_s := self.pause_s) > 0:
            if left_s >= patience_s:
                raise ApiThrottledError(
                    verb=exchange.verb,
                    path=exchange.path,
                    message=f"held back: the API server asked to be left alone for {left_s:.1f} s more",
                    retry_after_s=left_s,
                )
            await self._sleep(left_s)

    def _note(self, error: ApiError, purpose: Purpose) -> None:
        self.counters.errors += 1
        if not isinstance(error, ApiThrottledError) or error.status == 0:
            return  # status 0: held back by ourselves, which is no news
        self.counters.throttled += 1
        if error.retry_after_s and purpose is not Purpose.LEASE:
            until_s = self._clock() + min(error.retry_after_s, MAX_PAUSE_S)
            self._slow_until_s = max(self._slow_until_s, until_s)

    # -- credentials --------------------------------------------------------------------------------------------

    @property
    def _known(self) -> _Login:
        if self._login is None:
            raise RuntimeError("the transport is used outside its `async with`")
        return self._login

    async def _login_of_now(self) -> _Login:
        login = self._known
        if self._clock() - login.read_at_s < CREDENTIALS_AGE_S:
            return login
        return await self._renewed(login, rejected=False) or self._known

    async def _renewed(self, old: _Login, *, rejected: bool) -> _Login | None:
        """What to use instead of *old*; `None`, and the old ones stay, if they cannot be read just now."""
        async with self._reading:
            if self._known is not old:
                return self._known  # somebody else read them while we waited
            try:
                self._login = await self._read_login(old, rejected=rejected)
            except CredentialsError:
                # Files are replaced one after the other; the next call after a minute, or the next 401, tries again.
                self.counters.credentials_failed += 1
                self._login = replace(old, read_at_s=self._clock())
                return None
            return self._login

    async def _read_login(self, old: _Login | None, *, rejected: bool) -> _Login:
        credentials = await self._source.read(rejected=rejected)
        self.counters.credentials_read += 1
        if old is not None and old.credentials.tls == credentials.tls:
            context = old.context
        else:
            context = await asyncio.to_thread(_make_context, credentials.tls)
        return _Login(credentials=credentials, context=context, read_at_s=self._clock())


class _Lines:
    """The lines of a body; linear also in a line of many chunks. A slow reader slows the server down."""

    def __init__(self, answer: aiohttp.ClientResponse, exchange: _Exchange, silence_s: float, max_bytes: int) -> None:
        self._answer = answer
        self._exchange = exchange
        self._silence_s = silence_s
        self._max_bytes = max_bytes
        self._ready: deque[bytes] = deque()
        self._parts: list[bytes] = []
        self._size = 0

    def __aiter__(self) -> "_Lines":
        return self

    async def __anext__(self) -> bytes:
        while not self._ready:
            chunk = await _next_chunk(self._answer, self._exchange, self._silence_s)
            if not chunk:
                if self._size:
                    raise self._unreadable(f"the last line was cut off after {self._size} bytes")
                raise StopAsyncIteration
            self._take(chunk)
        return self._ready.popleft()

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


async def _next_chunk(answer: aiohttp.ClientResponse, exchange: _Exchange, silence_s: float) -> bytes:
    try:
        async with asyncio.timeout(silence_s):
            return await answer.content.readany()
    except TimeoutError as e:
        raise _lost(exchange, f"silent for {silence_s:g} s") from e
    except (aiohttp.ClientError, OSError) as e:
        raise _lost(exchange, str(e) or type(e).__name__) from e


async def _read(answer: aiohttp.ClientResponse, max_bytes: int) -> tuple[bytes, bool]:
    """The body, and whether that is all of it."""
    parts: list[bytes] = []
    size = 0
    async for chunk in answer.content.iter_any():
        parts.append(chunk)
        size += len(chunk)
        if size > max_bytes:
            return b"".join(parts)[:max_bytes], False
    return b"".join(parts), True


async def _count_sending(_: aiohttp.ClientSession, context: SimpleNamespace, __: object) -> None:
    # Told right before the first byte: what is not counted was certainly not sent.
    context.trace_request_ctx.sendings += 1


def _lost(exchange: _Exchange, text: str) -> ApiError:
    kind = ApiUnknownError if exchange.sendings else ApiUnreachableError
    return kind(verb=exchange.verb, path=exchange.path, message=text)


def _cut(exchange: _Exchange, answer: aiohttp.ClientResponse, error: Exception) -> ApiError:
    if 300 <= answer.status < 500:
        # Why was lost, but the head has told that nothing was written.
        refused = from_answer(exchange.verb, exchange.path, answer.status, answer.headers, b"")
        return _unsure_if_repeated(refused, exchange)
    kind = ApiUnreadableError if exchange.verb == "GET" else ApiUnknownError
    text = f"the answer was cut off: {error}"
    return kind(verb=exchange.verb, path=exchange.path, status=answer.status, message=text)


def _unsure_if_repeated(error: ApiError, exchange: _Exchange) -> ApiError:
    """*error*, unless aiohttp sent the request twice: then the first may be what the second was refused for."""
    if exchange.sendings < 2 or exchange.verb == "GET":
        return error
    return ApiUnknownError(
        verb=error.verb,
        path=error.path,
        status=error.status,
        reason=error.reason,
        message=f"sent twice over a lost connection, the second time refused: {error.message}",
        retry_after_s=error.retry_after_s,
    )


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
