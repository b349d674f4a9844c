"""Authorizes callers of the detailed answers: by an audience-bound token whose account has the right in RBAC."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kube.calls import Access, Calls

# An account that loses its right, or a revoked token, is accepted for no longer than this.
_REMEMBERED_S: Final = 60.0
_MAX_REMEMBERED: Final = 256
_MAX_TOKEN: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class Denied:
    """A denial with an HTTP status: 401 for an unknown caller, 403 for a caller without the right."""

    status: int
    text: str


class Callers:
    """Authorizes callers through the API server, and remembers each answer for a minute."""

    def __init__(self, calls: Calls, audience: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._calls = calls
        self._audience = audience
        self._clock = clock
        self._known: dict[tuple[bytes, str, str], tuple[float, Denied | None]] = {}

    async def judge(self, authorization: str, verb: str, path: str) -> Denied | None:
        """Return why the bearer of header *authorization* may not *verb* the non-resource *path*; None if it may.

        Raises:
            ApiError: the API server does not answer.
        """
        kind, _, token = authorization.partition(" ")
        if kind.lower() != "bearer" or not token or len(token) > _MAX_TOKEN:
            return Denied(401, f"show a token that was made for audience {self._audience}")
        # Only hashes of tokens are kept.
        key = (hashlib.sha256(token.encode(errors="replace")).digest(), verb, path)
        known = self._known.get(key)
        if known is not None and known[0] > self._clock():
            return known[1]
        verdict = await self._ask(token, verb, path)
        if len(self._known) >= _MAX_REMEMBERED:
            self._known.clear()
        self._known[key] = (self._clock() + _REMEMBERED_S, verdict)
        return verdict

    async def _ask(self, token: str, verb: str, path: str) -> Denied | None:
        identity = await self._calls.token_review(token, audiences=(self._audience,))
        if not identity.authenticated:
            return Denied(401, f"show a token that was made for audience {self._audience}")
        if not await self._calls.subject_access_review(identity, Access(verb=verb, path=path)):
            return Denied(
                403, f"{identity.username} may not {verb} {path}; bind it to a ClusterRole that names that path"
            )
        return None
