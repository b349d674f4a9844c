"""Who owns a token and what its owner may do, as the API server says; answers are remembered for a short time."""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from kube.calls import Access, Calls, Identity

# An account that loses its right, or a revoked token, is accepted for no longer than this.
YES_S: Final = 60.0
# A right that was just granted counts after this.
NO_S: Final = 5.0
TOKENS_MAX: Final = 1024
# A token that is longer is not sent to the API server.
TOKEN_CHARACTERS_MAX: Final = 16 * 1024
_ANSWERS_OF_TOKEN: Final = 256
_AT_A_TIME: Final = 8
_UNKNOWN: Final = Identity(authenticated=False)


@dataclass(slots=True)
class _Known:
    """The owner of a token, and whether it has each right: until when, and the answer."""

    until_s: float
    identity: Identity
    answers: dict[Access, tuple[float, bool]] = field(default_factory=dict)


class Reviews:
    """Asks TokenReview and SubjectAccessReview; only hashes of tokens are kept.

    Unknown tokens have a memory of their own, so that no number of them drives out a known one.
    """

    def __init__(
        self,
        calls: Calls,
        *,
        audiences: Sequence[str] = (),
        tokens_max: int = TOKENS_MAX,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; tokens must be valid for one of *audiences*, or for the API server's if there are none."""
        self._calls: Final = calls
        self._audiences: Final = tuple(audiences)
        self._tokens_max: Final = tokens_max
        self._clock: Final = clock
        self._known: Final[OrderedDict[bytes, _Known]] = OrderedDict()
        self._unknown: Final[OrderedDict[bytes, float]] = OrderedDict()
        self._turns: Final = asyncio.Semaphore(_AT_A_TIME)

    def knows(self, token: str) -> bool:
        """Return whether the owner of *token* is known without asking the API server."""
        return self._remembered(_hashed(token)) is not None

    async def identity(self, token: str) -> Identity:
        """Return the owner of *token*; it is not authenticated if there is none.

        Raises:
            ApiError: the API server does not answer.
        """
        key = _hashed(token)
        known = self._remembered(key)
        if known is not None:
            return known.identity
        if not token or len(token) > TOKEN_CHARACTERS_MAX or self._unknown.get(key, 0.0) > self._clock():
            return _UNKNOWN
        async with self._turns:
            known = self._remembered(key)  # another call may have asked meanwhile
            if known is None:
                return self._remember(key, await self._calls.token_review(token, audiences=self._audiences))
            return known.identity

    async def allows(self, token: str, access: Access) -> bool:
        """Return whether the owner of *token* has the right to *access*; False if it has no owner.

        Raises:
            ApiError: the API server does not answer.
        """
        identity = await self.identity(token)
        if not identity.authenticated:
            return False
        known = self._known.get(_hashed(token))
        answers = known.answers if known is not None else {}  # other tokens may have driven it out
        found = answers.get(access)
        if found is not None and found[0] > self._clock():
            return found[1]
        async with self._turns:
            is_allowed = await self._calls.subject_access_review(identity, access)
        if len(answers) >= _ANSWERS_OF_TOKEN:
            answers.clear()
        answers[access] = self._clock() + (YES_S if is_allowed else NO_S), is_allowed
        return is_allowed

    def _remembered(self, key: bytes) -> _Known | None:
        known = self._known.get(key)
        if known is None or known.until_s <= self._clock():
            return None
        self._known.move_to_end(key)
        return known

    def _remember(self, key: bytes, identity: Identity) -> Identity:
        if identity.authenticated:
            self._known[key] = _Known(self._clock() + YES_S, identity)
            self._known.move_to_end(key)
        else:
            self._known.pop(key, None)
            self._unknown[key] = self._clock() + NO_S
            self._unknown.move_to_end(key)
        for kept in (self._known, self._unknown):
            while len(kept) > self._tokens_max:
                kept.popitem(last=False)
        return identity


def bearer(authorization: str) -> str:
    """Return the token in header *authorization*; "" if it has none, or one that no API server issues."""
    kind, _, token = authorization.partition(" ")
    return token.strip() if kind.lower() == "bearer" and token.isascii() else ""


def _hashed(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()
