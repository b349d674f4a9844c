"""The TLS port's answers to authenticated callers: where a pod would go, where a pod is, or why it waits.

It also generates the text for Prometheus, in pieces.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar

import msgspec
from prometheus_client import generate_latest

from controller.metrics import Metrics
from controller.reporting.answers import UNKNOWN
from core.errors import InvalidRequestError
from kube.calls import Access, Calls
from kube.errors import ApiError
from kube.reviews import Reviews, bearer
from runtime.calls import Buckets, Call, RefusedCallError, Reply

_TOKENS_MAX: Final = 256
# Tokens that the API server has to review: so many of one address can come at once, and so many more each second.
# A token whose owner is known is reviewed once a minute.
_REVIEWS: Final = 40.0
_REVIEWS_PER_S: Final = 4.0
_ADDRESSES_MAX: Final = 4096
PREVIEW: Final = "/v1/preview"
# Followed by namespace and name of the pod; RBAC grants it by /v1/explain/* or /v1/explain/NAMESPACE/*.
EXPLAIN: Final = "/v1/explain"
AUDIT: Final = "/v1/audit"
PACKING: Final = "/v1/packing"
HELD: Final = "/v1/held"
HISTORY: Final = "/v1/history"
# Followed by namespace and name of the pod, as EXPLAIN.
HISTORY_OF_PODS: Final = "/v1/history/pods"
SHADOW: Final = "/v1/shadow"
SIMULATE: Final = "/v1/simulate"
# The API server's limit for an object.
MAX_POD_BYTES: Final = 3 * 2**20
BODY_S: Final = 2.0
_CALLER_S: Final = 2.0
# Limits of calls in progress or waiting, in total, and of one user. That of previews is the webhook, with its replicas.
_CALLS: Final = 32
_PREVIEWS_OF_USER: Final = 24
_QUESTIONS_OF_USER: Final = 8
_T = TypeVar("_T")
_Found = dict[str, Any] | None
_CHUNK_CHARACTERS: Final = 1 << 16
_STEP_S: Final = 0.005


@dataclass(frozen=True, slots=True)
class Denied:
    """A denial with an HTTP status: 401 for an unknown caller, 403 for one without the right, 429 for too many."""

    status: int
    text: str


class Callers:
    """Authorizes callers, by an audience-bound token whose account has the right in RBAC.

    It asks the API server, and remembers each answer for a short time (`kube.reviews`).
    """

    def __init__(self, calls: Calls, audience: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._reviews = Reviews(calls, audiences=(audience,), tokens_max=_TOKENS_MAX, clock=clock)
        self._audience = audience
        self._buckets = Buckets(_REVIEWS, _REVIEWS_PER_S, addresses_max=_ADDRESSES_MAX, clock=clock)

    async def judge(self, authorization: str, verb: str, path: str, address: str) -> Denied | None:
        """Return why the bearer of header *authorization* may not *verb* the non-resource *path*; None if it may.

        Few tokens of one *address* are reviewed, so that no one can flood the API server through this process.

        Raises:
            ApiError: the API server does not answer.
        """
        token = bearer(authorization)
        if token and not self._reviews.knows(token) and not self._buckets.takes(address, 1.0):
            return Denied(429, "too many unknown tokens from your address; wait some seconds")
        identity = await self._reviews.identity(token)
        if not identity.authenticated:
            return Denied(401, f"send a token for audience {self._audience}")
        if not await self._reviews.allows(token, Access(verb=verb, path=path)):
            return Denied(
                403, f"{identity.username} may not {verb} {path}; bind it to a ClusterRole that names that path"
            )
        return None

    async def user(self, authorization: str) -> str:
        """Return the name of the bearer of header *authorization*, "" if unknown.

        Raises:
            ApiError: the API server does not answer.
        """
        return (await self._reviews.identity(bearer(authorization))).username


async def exposition(metrics: Metrics, series: Iterable[str]) -> AsyncIterator[bytes]:
    """Yield the text for Prometheus, with *series* last; other tasks run between the pieces."""
    yield generate_latest(metrics.registry)
    pieces: list[str] = []
    size, started_s = 0, time.monotonic()
    for piece in series:
        pieces.append(piece)
        size += len(piece)
        if size >= _CHUNK_CHARACTERS or time.monotonic() - started_s > _STEP_S:
            yield "".join(pieces).encode()
            await asyncio.sleep(0)
            pieces.clear()
            size, started_s = 0, time.monotonic()
    yield "".join(pieces).encode()


class Turns(Generic[_T]):
    """Answers calls one at a time, so that the scheduler goes on after each; few may wait, of one user and in total."""

    def __init__(self, what: str, of_user: int) -> None:
        self._what: Final = what
        self._of_user: Final = of_user
        self._users: Final[Counter[str]] = Counter()
        self._turn: Final = asyncio.Lock()

    async def answer(self, user: str, ask: Callable[[], Awaitable[_T]]) -> _T:
        """Return what *ask* returns to *user*.

        Raises:
            RefusedCallError: too many are waiting.
        """
        if self._users[user] >= self._of_user or self._users.total() >= _CALLS:
            raise RefusedCallError(429, f"too many {self._what} at once; ask again when one is answered")
        self._users[user] += 1
        try:
            async with self._turn:
                found = await ask()
                # An answer may not have let others run.
                await asyncio.sleep(0)
                return found
        finally:
            self._users[user] -= 1
            if not self._users[user]:
                del self._users[user]


class TrustedCalls:
    """Serves /v1/preview, /v1/simulate, /v1/explain, /v1/history, /v1/packing, /v1/held, /v1/audit or /v1/shadow."""

    def __init__(
        self,
        callers: Callable[[], Callers | None],
        *,
        preview: Callable[[bytes], Awaitable[_Found]],
        explain: Callable[[str], Awaitable[_Found]],
        why: Callable[[str], Awaitable[_Found]],
        day: Callable[[], Awaitable[_Found]],
        audit: Callable[[], _Found],
        packing: Callable[[], _Found],
        held: Callable[[], _Found],
        simulate: Callable[[Call], Awaitable[Reply | None]],
        shadow: Callable[[], _Found] | None = None,
    ) -> None:
        """Prepare.

        Args:
            callers: returns the authorizer; None before there is a connection to the API server.
            preview: returns the answer to a pod's JSON; None while there is none yet.
            explain: returns the answer for a pod by namespace/name; None while there is none yet.
            why: returns what happened to a pod by namespace/name.
            day: returns what cards and queues were used for in the last day.
            audit: returns the audit's findings; None if this process does not audit (yet).
            packing: returns what policy pack has learned; None before it has.
            held: returns what force-deleted pods still hold; None while the cluster is unknown.
            simulate: returns the answer to a change; None while the cluster is unknown.
            shadow: returns what would be done; None before the first result. None itself if this is not shadow mode.
        """
        self._callers = callers
        self._preview = preview
        self._simulate = simulate
        self._of_pod = {EXPLAIN: explain, HISTORY_OF_PODS: why}
        # The webhook does not wait for people.
        self._previews: Final[Turns[_Found]] = Turns("previews", _PREVIEWS_OF_USER)
        self._questions: Final[Turns[_Found]] = Turns("questions", _QUESTIONS_OF_USER)
        self._day = day
        self._told = {PACKING: packing, HELD: held} | ({AUDIT: audit} if shadow is None else {SHADOW: shadow})

    async def answer(self, call: Call) -> Reply:
        """See `runtime.calls.Answer`."""
        if call.path == PREVIEW:
            _expect(call, "POST")
            return await self._answered(
                call, lambda user: self._previews.answer(user, lambda: self._preview(bytes(call.body)))
            )
        if call.path == SIMULATE:
            _expect(call, "POST")
            return await self._answered(call, lambda _: self._simulate(call))  # nobody else waits for that
        told = self._told.get(call.path)
        path, *pod = call.path.rsplit("/", 2)
        of_pod = self._of_pod.get(path) if all(pod) else None
        question: Callable[[], Awaitable[_Found]]
        if told is not None:
            question = partial(_at_once, told)
        elif call.path == HISTORY:
            question = self._day
        elif of_pod is not None:
            question = partial(of_pod, "/".join(pod))
        else:
            known = [PREVIEW, SIMULATE, *(f"{path}/NAMESPACE/POD" for path in self._of_pod), HISTORY, *self._told]
            raise RefusedCallError(404, f"there is nothing here; ask {', '.join(known[:-1])} or {known[-1]}")
        _expect(call, "GET")
        return await self._answered(call, lambda user: self._questions.answer(user, question))

    async def _answered(self, call: Call, ask: Callable[[str], Awaitable[_Found | Reply]]) -> Reply:
        """Return the answer of *ask*, which gets the name of the authorized caller."""
        user = await self._user(call)
        if isinstance(user, Reply):
            return user
        try:
            found = await ask(user)
        except InvalidRequestError as e:
            return _json({"text": str(e)}, status=400)
        if found is None:
            return _UNKNOWN_CLUSTER
        if isinstance(found, Reply):
            return found
        return _json(found, status=404 if found.get("state") == UNKNOWN else 200)

    async def _user(self, call: Call) -> str | Reply:
        """Return who calls, or the answer to one who may not."""
        callers = self._callers()
        if callers is None:
            return _json({"text": "not connected to the API server yet; see /readyz"}, status=503)
        try:
            async with asyncio.timeout(_CALLER_S):
                authorization = (call.header(b"authorization") or b"").decode("latin-1")
                denied = await callers.judge(authorization, call.method.lower(), call.path, call.address)
                if denied is not None:
                    return _json({"text": denied.text}, status=denied.status)
                return await callers.user(authorization)
        except (ApiError, TimeoutError):
            return _json({"text": "the caller cannot be authorized now; try again"}, status=503)


async def _at_once(told: Callable[[], _Found]) -> _Found:
    return told()


def _expect(call: Call, method: str) -> None:
    if call.method != method:
        raise RefusedCallError(405, f"use {method}", allow=method)


def _json(found: object, status: int = 200) -> Reply:
    return Reply(msgspec.json.encode(found) + b"\n", status)


_UNKNOWN_CLUSTER: Final = _json({"text": "the cluster is not known yet; see /readyz"}, status=503)
