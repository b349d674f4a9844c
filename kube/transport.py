"""Bytes to and from the API server: connections, deadlines, throttling, and one retry with fresh credentials.

It knows no kinds of objects; `calls.py` and `reflector.py` do. Only it, `exchange.py` and `lines.py` know the aiohttp
client.
"""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeVar

import aiohttp
from aiohttp.client_proto import ResponseHandler
from yarl import URL

from kube.causes import cause_of
from kube.credentials import CredentialSource
from kube.errors import ApiError, ApiForbiddenError, ApiThrottledError, ApiUnreachableError
from kube.exchange import MAX_BODY_BYTES, Exchange, Purpose, Response
from kube.lines import MAX_LINE_BYTES, Lines
from kube.login import Login, Logins

# A `Retry-After` beyond this is a mistake or an attack; asking once a minute hurts nobody.
MAX_PAUSE_S: Final = 60.0
_READ_BUFFER_BYTES: Final = 2**18
# What the API server says of an eviction that a PodDisruptionBudget does not allow now, with 429 and `Retry-After`.
_BUDGET: Final = "disruption budget"

_T = TypeVar("_T")

# Linux has it; elsewhere what was sent may be delivered long after its call has ended.
_USER_TIMEOUT: Final[int | None] = getattr(socket, "TCP_USER_TIMEOUT", None)
# Calls: what is lost on the way arrives within a second or never, so that a Binding, which the API server ends 5 s
# after its arrival, has ended with its own deadline (`kube.calls.BIND_DEADLINE_S`).
_DELIVERY_MS: Final[Mapping[Purpose, int]] = {Purpose.CALLS: 1000, Purpose.WATCHES: 15_000, Purpose.LEASE: 5000}
_KEEPALIVE_S: Final = 5

_CONNECTIONS: Final[Mapping[Purpose, int]] = {Purpose.CALLS: 72, Purpose.WATCHES: 32, Purpose.LEASE: 2}


# What the running task has on the way.
_exchange: Final[ContextVar[Exchange]] = ContextVar("exchange")


class _CountedRequest(aiohttp.ClientRequest):
    """Tells its exchange right before the first byte: what is not counted was certainly not sent."""

    async def send(self, conn: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        """Send over *conn*."""
        _exchange.get().begin_sending()
        return await super().send(conn)


class _Connector(aiohttp.TCPConnector):
    """Makes the connections of one purpose."""

    def __init__(self, purpose: Purpose) -> None:
        super().__init__(limit=_CONNECTIONS[purpose], keepalive_timeout=30.0)
        self._purpose = purpose

    async def _create_connection(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Any],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 (aiohttp's signature)
    ) -> ResponseHandler:
        made = await super()._create_connection(req, traces, timeout)
        _bound_delivery(made.transport, self._purpose)
        return made


def _bound_delivery(transport: asyncio.Transport | None, purpose: Purpose) -> None:
    """Have the kernel give up on what the other end does not acknowledge, also after this process has."""
    found = transport.get_extra_info("socket") if transport is not None else None
    if found is None or _USER_TIMEOUT is None:
        return
    with contextlib.suppress(OSError):  # closed meanwhile, or no TCP
        found.setsockopt(socket.IPPROTO_TCP, _USER_TIMEOUT, _DELIVERY_MS[purpose])
        if purpose is Purpose.WATCHES:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_S)
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_S)


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
        self._logins = Logins(source, clock)
        self._user_agent = user_agent
        self._deadline_s = deadline_s
        self._clock = clock
        self._sleep = sleep
        self._slow_until_s = 0.0
        self._sessions: dict[Purpose, aiohttp.ClientSession] = {}

    async def __aenter__(self) -> "Transport":
        """Read the credentials and open the sessions; nothing is sent yet.

        Raises:
            CredentialsError: there are none to begin with.
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
        """The API server's URL."""
        return self._logins.known.credentials.server

    @property
    def namespace(self) -> str:
        """The namespace that the credentials belong to, or ""."""
        return self._logins.known.credentials.namespace

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
        permit: Callable[[], bool] | None = None,
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
            permit: asked once more right before the first byte is sent; `False`: held back (`ApiThrottledError`).

        Raises:
            ApiError: see `kube.errors` for which says what about a write.
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
                # Not released into the pool: what is left of a watch would be read before the next answer.
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
            answer.release()  # which closes the connection if something of the answer is left in it

    async def _open(self, login: Login, exchange: Exchange) -> aiohttp.ClientResponse:
        answer = await self._send(login, exchange)
        if answer.status == 200:
            return answer
        try:
            raise await exchange.refusal(answer)
        finally:
            answer.close()

    async def _send(self, login: Login, exchange: Exchange) -> aiohttp.ClientResponse:
        exchange.sendings = 0  # what went before was answered 401, or never left: not written
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
            # ValueError: a server, proxy or token out of a file that cannot be put into a request at all.
            why = cause_of(e)
            if credentials.server.startswith("http:") and isinstance(e, aiohttp.ServerDisconnectedError):
                why += "; the address begins with http:, and an API server speaks https: write that into the kubeconfig"
            raise exchange.lost(why) from e

    def _open_session(self, purpose: Purpose) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=_Connector(purpose),
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
            request_class=_CountedRequest,
        )

    # -- throttling ---------------------------------------------------------------------------------------------

    async def _pass_pause(self, exchange: Exchange, patience_s: float) -> None:
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
        if not isinstance(error, ApiThrottledError) or error.status == 0:
            return  # status 0: held back by ourselves, which is no news
        if error.path.endswith("/eviction") and _BUDGET in error.message:
            return  # it is that pod's disruption budget that asks for time, not the API server
        if error.retry_after_s and purpose is not Purpose.LEASE:
            until_s = self._clock() + min(error.retry_after_s, MAX_PAUSE_S)
            self._slow_until_s = max(self._slow_until_s, until_s)
