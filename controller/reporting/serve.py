"""The TLS port's answers to authenticated callers: where a pod would go, where a pod is, or why it waits.

It also generates the text for Prometheus, in pieces.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, Final

import msgspec
from prometheus_client import generate_latest

from controller.metrics import Metrics
from controller.reporting.answers import UNKNOWN
from controller.reporting.callers import Callers
from core.errors import InvalidRequestError
from kube.errors import ApiError
from runtime.calls import Call, RefusedCallError, Reply

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
_CHUNK_CHARACTERS: Final = 1 << 16
_STEP_S: Final = 0.005


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


class _Turns:
    """Answers calls one at a time, so that the scheduler goes on after each; few may wait, of one user and in total."""

    def __init__(self, what: str, of_user: int) -> None:
        self._what: Final = what
        self._of_user: Final = of_user
        self._users: Final[Counter[str]] = Counter()
        self._turn: Final = asyncio.Lock()

    async def answer(self, user: str, ask: Callable[[], Awaitable[dict[str, Any] | None]]) -> dict[str, Any] | None:
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


class Trusted:
    """Serves /v1/preview, /v1/simulate, /v1/explain, /v1/history, /v1/packing, /v1/held, /v1/audit or /v1/shadow."""

    def __init__(
        self,
        callers: Callable[[], Callers | None],
        *,
        preview: Callable[[bytes], Awaitable[dict[str, Any] | None]],
        explain: Callable[[str], Awaitable[dict[str, Any] | None]],
        why: Callable[[str], Awaitable[dict[str, Any] | None]],
        day: Callable[[], Awaitable[dict[str, Any] | None]],
        audit: Callable[[], dict[str, Any] | None],
        packing: Callable[[], dict[str, Any] | None],
        held: Callable[[], dict[str, Any] | None],
        simulate: Callable[[Call], Awaitable[Reply | None]],
        shadow: Callable[[], dict[str, Any] | None] | None = None,
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
        self._previews: Final = _Turns("previews", _PREVIEWS_OF_USER)
        self._questions: Final = _Turns("questions", _QUESTIONS_OF_USER)
        self._day = day
        self._told = {PACKING: packing, HELD: held} | ({AUDIT: audit} if shadow is None else {SHADOW: shadow})

    async def answer(self, call: Call) -> Reply:
        """See `runtime.calls.App`."""
        if call.path == PREVIEW:
            _expect(call, "POST")
            return await self._answered(call, self._previews, lambda: self._preview(bytes(call.body)))
        if call.path == SIMULATE:
            _expect(call, "POST")
            return await self._simulated(call)
        told = self._told.get(call.path)
        if told is not None:
            _expect(call, "GET")
            return await self._answered(call, self._questions, lambda: _at_once(told))
        if call.path == HISTORY:
            _expect(call, "GET")
            return await self._answered(call, self._questions, self._day)
        path, *pod = call.path.rsplit("/", 2)
        of_pod = self._of_pod.get(path) if all(pod) else None
        if of_pod is None:
            known = ", ".join([PREVIEW, SIMULATE, *(f"{path}/NAMESPACE/POD" for path in self._of_pod), HISTORY])
            raise RefusedCallError(404, f"there is nothing here; ask {known}, {' or '.join(self._told)}")
        _expect(call, "GET")
        return await self._answered(call, self._questions, lambda: of_pod("/".join(pod)))

    async def _answered(self, call: Call, turns: _Turns, ask: Callable[[], Awaitable[dict[str, Any] | None]]) -> Reply:
        """Return the answer of *ask*, in its turn, for an authorized caller."""
        user = await self._user(call)
        if isinstance(user, Reply):
            return user
        try:
            found = await turns.answer(user, ask)
        except InvalidRequestError as e:
            return _json({"text": str(e)}, status=400)
        if found is None:
            return _UNKNOWN_CLUSTER
        return _json(found, status=404 if found.get("state") == UNKNOWN else 200)

    async def _simulated(self, call: Call) -> Reply:
        """Return what would happen, for an authorized caller; nobody else waits for that."""
        user = await self._user(call)
        if isinstance(user, Reply):
            return user
        try:
            return await self._simulate(call) or _UNKNOWN_CLUSTER
        except InvalidRequestError as e:
            return _json({"text": str(e)}, status=400)

    async def _user(self, call: Call) -> str | Reply:
        """Return who calls, or the answer to one who may not."""
        callers = self._callers()
        if callers is None:
            return _json({"text": "not connected to the API server yet; see /readyz"}, status=503)
        try:
            async with asyncio.timeout(_CALLER_S):
                authorization = (call.header(b"authorization") or b"").decode("latin-1")
                denied = await callers.judge(authorization, call.method.lower(), call.path)
                if denied is not None:
                    return _json({"text": denied.text}, status=denied.status)
                return await callers.user(authorization)
        except (ApiError, TimeoutError):
            return _json({"text": "the caller cannot be authorized now; try again"}, status=503)


async def _at_once(told: Callable[[], dict[str, Any] | None]) -> dict[str, Any] | None:
    return told()


def _expect(call: Call, method: str) -> None:
    if call.method != method:
        raise RefusedCallError(405, f"use {method}", allow=method)


def _json(found: object, status: int = 200) -> Reply:
    return Reply(msgspec.json.encode(found) + b"\n", status)


_UNKNOWN_CLUSTER: Final = _json({"text": "the cluster is not known yet; see /readyz"}, status=503)
