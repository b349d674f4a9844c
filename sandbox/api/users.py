"""Callers: bearer tokens, groups, and the tokens of service accounts."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

ADMINS: Final = "system:masters"
NODES: Final = "system:nodes"
AUTHENTICATED: Final = "system:authenticated"
# The API server's own audience, for tokens without another one.
API_AUDIENCE: Final = "https://kubernetes.default.svc"


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A caller; service accounts have the name ``system:serviceaccount:<namespace>:<name>``."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""

    def info(self) -> dict[str, Any]:
        """Return the UserInfo for reviews."""
        info: dict[str, Any] = {"username": self.name, "groups": [*self.groups, AUTHENTICATED]}
        return {**info, "uid": self.uid} if self.uid else info


# The user of the sandbox's kubelets.
KUBELET: Final = User(name="system:node:sandbox", groups=(NODES,))


def service_account(namespace: str, name: str, uid: str = "") -> User:
    """Return the user of a service account's token."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    return User(name=f"system:serviceaccount:{namespace}:{name}", groups=groups, uid=uid)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A token's user, its audiences, and its expiry (seconds of the epoch; None = never)."""

    user: User
    audiences: tuple[str, ...] = (API_AUDIENCE,)
    expires_s: float | None = None


@dataclass(slots=True, kw_only=True)
class Tokens:
    """The tokens that the server accepts."""

    clock: Callable[[], float] = time.time
    _by_token: dict[str, Credential] = field(default_factory=dict, repr=False)

    def issue(
        self, user: User, *, audiences: tuple[str, ...] = (API_AUDIENCE,), lifetime_s: float | None = None
    ) -> str:
        """Create a token for *user*."""
        token = secrets.token_urlsafe(24)
        ends = None if lifetime_s is None else self.clock() + lifetime_s
        self._by_token[token] = Credential(user=user, audiences=audiences, expires_s=ends)
        return token

    def revoke(self, token: str) -> None:
        """Revoke *token*."""
        self._by_token.pop(token, None)

    def look_up(self, token: str, audiences: tuple[str, ...] = (API_AUDIENCE,)) -> Credential | None:
        """Return the credential of *token*, if it is currently valid for one of *audiences*."""
        found = self._by_token.get(token)
        if found is None or not set(audiences) & set(found.audiences):
            return None
        if found.expires_s is not None and found.expires_s <= self.clock():
            return None
        return found
