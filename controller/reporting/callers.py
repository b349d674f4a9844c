"""Authorizes callers of the detailed answers: by an audience-bound token whose account has the right in RBAC."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kube.calls import Access, Calls
from kube.reviews import Reviews, bearer

_TOKENS_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class Denied:
    """A denial with an HTTP status: 401 for an unknown caller, 403 for a caller without the right."""

    status: int
    text: str


class Callers:
    """Authorizes callers through the API server, and remembers each answer for a short time (`kube.reviews`)."""

    def __init__(self, calls: Calls, audience: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._reviews = Reviews(calls, audiences=(audience,), tokens_max=_TOKENS_MAX, clock=clock)
        self._audience = audience

    async def judge(self, authorization: str, verb: str, path: str) -> Denied | None:
        """Return why the bearer of header *authorization* may not *verb* the non-resource *path*; None if it may.

        Raises:
            ApiError: the API server does not answer.
        """
        token = bearer(authorization)
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
