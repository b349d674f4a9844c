"""Callers of the page in the cluster: the API server says who they are and what they may see."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final

import structlog
from aiohttp import web

from cli.web.feed import Sees
from cli.web.server import RefusedError
from kube.calls import Access
from kube.errors import ApiError
from kube.reviews import NO_S, YES_S, Reviews, bearer
from runtime.calls import Buckets

_log: Final = structlog.get_logger()

_NAMESPACE: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_ACCOUNT: Final = "system:serviceaccount:"
_OWN_SITES: Final = frozenset({"same-origin", "none"})
_HOME: Final = "default"
_QUEUES: Final = Access(verb="list", group="scheduling.volcano.sh", resource="queues")
_NODES: Final = Access(verb="list", resource="nodes")
# A call costs 1, and one with a token that the API server has to review costs 10. A proxy has one address for everybody
# behind it: 400 of them can come at once, and 40 each second.
_BUCKET: Final = 400.0
_PER_S: Final = 40.0
_REVIEW_COST: Final = 10.0
_ADDRESSES_MAX: Final = 4096
_STREAMS_MAX: Final = 256
_STREAMS_OF_OWNER: Final = 32
# The rights that an open stream needs are looked up this often; as they are remembered, the API server is asked once a
# minute. Other rights are remembered for a shorter time, so these are looked up once a minute.
_AGAIN_S: Final = NO_S


class Reviewed:
    """`cli.web.server.Callers` with a token. A call may name the namespace to show if its caller may see no more.

    Attributes:
        streams: open streams, by owner.
        limited: number of calls over the limit of their address.
    """

    def __init__(
        self,
        reviews: Reviews,
        *,
        clock: Callable[[], float] = time.monotonic,
        again_s: float = _AGAIN_S,
    ) -> None:
        """Prepare; *again_s*: how often the rights of an open stream are looked up."""
        self._reviews: Final = reviews
        self._clock: Final = clock
        self._buckets: Final = Buckets(_BUCKET, _PER_S, addresses_max=_ADDRESSES_MAX, clock=clock)
        self._again_s: Final = again_s
        self.streams: Final[Counter[str]] = Counter()
        self.limited = 0

    async def admit(self, request: web.Request) -> None:
        """See `Callers`: within the limits of its address, and with a token that has an owner."""
        if not request.path.startswith("/v1/"):
            return
        if request.headers.get("Sec-Fetch-Site", "same-origin") not in _OWN_SITES:
            # A proxy may add the token of whoever has the other site open.
            raise RefusedError(403, "only this page may ask")
        token = _token(request)
        if not self._buckets.takes(request.remote or "", 1.0 if self._reviews.knows(token) else _REVIEW_COST):
            self.limited += 1
            raise RefusedError(429, "too many calls from your address; wait some seconds")
        if not (await self._reviews.identity(token)).authenticated:
            raise RefusedError(401, "log in with a token that the API server accepts", is_login=True)

    async def sees(self, request: web.Request) -> Sees:
        is_everywhere = await self.may(request, _pods(""))
        nodes = await self.may(request, _NODES)
        queues = await self.may(request, _QUEUES)
        username = (await self._reviews.identity(_token(request))).username
        namespace = request.query.get("namespace", "") or _namespace_of(username)
        quotas = bool(_NAMESPACE.fullmatch(namespace or _HOME)) and await self.may(request, _quotas(namespace or _HOME))
        if is_everywhere:
            return Sees(nodes=nodes, namespace="", home=namespace or _HOME, queues=queues, quotas=quotas)
        if not _NAMESPACE.fullmatch(namespace):
            raise RefusedError(403, "name a namespace in which you may list pods", is_login=True)
        if not await self.may(request, _pods(namespace)):
            text = (
                f"{username} may not list pods in namespace {namespace}; name another namespace, or ask for that right"
            )
            raise RefusedError(403, text, is_login=True)
        return Sees(nodes=nodes, namespace=namespace, home=namespace, queues=queues, quotas=quotas)

    async def may(self, request: web.Request, access: Access) -> bool:
        return await self._reviews.allows(_token(request), access)

    @asynccontextmanager
    async def streaming(self, request: web.Request) -> AsyncIterator[None]:
        owner = _owner_of((await self._reviews.identity(_token(request))).username)
        if self.streams[owner] >= _STREAMS_OF_OWNER or self.streams.total() >= _STREAMS_MAX:
            raise RefusedError(429, "too many pages are open; close some")
        self.streams[owner] += 1
        try:
            yield
        finally:
            self.streams[owner] -= 1
            if not self.streams[owner]:
                del self.streams[owner]

    async def while_seen(self, request: web.Request, sees: Sees, sending: Coroutine[Any, Any, None]) -> None:
        """See `Callers`: a stream also ends if the API server can no longer be asked."""
        async with asyncio.TaskGroup() as tasks:
            sent = tasks.create_task(sending, name="stream")
            changed = tasks.create_task(self._until_changed(request, sees), name="rights of a stream")
            await asyncio.wait((sent, changed), return_when=asyncio.FIRST_COMPLETED)
            sent.cancel()
            changed.cancel()

    def trouble(self, error: Exception) -> str:
        """See `Callers`: the error itself may name what the caller may not see."""
        _log.warning("a call was not answered", error=str(error))
        return "the cluster cannot be read now; try again"

    async def _may_still(self, request: web.Request, sees: Sees) -> bool:
        needed = [_pods(sees.namespace), *([_NODES] if sees.nodes else ()), *([_QUEUES] if sees.queues else ())]
        needed += [_quotas(sees.home)] if sees.quotas else ()
        return all([await self.may(request, one) for one in needed])

    async def _until_changed(self, request: web.Request, sees: Sees) -> None:
        full_s = self._clock() + YES_S
        while True:
            try:
                if self._clock() >= full_s:
                    full_s = self._clock() + YES_S
                    if await self.sees(request) != sees:
                        return
                elif not await self._may_still(request, sees):
                    return
            except (RefusedError, ApiError):
                return
            await asyncio.sleep(self._again_s)


def _token(request: web.Request) -> str:
    return bearer(request.headers.get("Authorization", ""))


def _pods(namespace: str) -> Access:
    return Access(verb="list", resource="pods", namespace=namespace)


def _quotas(namespace: str) -> Access:
    return Access(verb="list", resource="resourcequotas", namespace=namespace)


def _namespace_of(username: str) -> str:
    """Return the namespace of a service account, "" for other users."""
    namespace, _, name = username.removeprefix(_ACCOUNT).partition(":")
    return namespace if name and username.startswith(_ACCOUNT) else ""


def _owner_of(username: str) -> str:
    """Return for whom is counted: a user, or the accounts of one namespace, whose tenant can make any number."""
    return username.rpartition(":")[0] if username.startswith(_ACCOUNT) else username
