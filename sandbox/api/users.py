"""Who calls: bearer tokens, groups, and the tokens of service accounts."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

ADMINS: Final = "system:masters"
NODES: Final = "system:nodes"
AUTHENTICATED: Final = "system:authenticated"
# What the API server calls itself; tokens without an audience of their own are for it.
API_AUDIENCE: Final = "https://kubernetes.default.svc"


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A caller; service accounts are called ``system:serviceaccount:<namespace>:<name>``."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""

    def info(self) -> dict[str, Any]:
        """The UserInfo of reviews."""
        info: dict[str, Any] = {"username": self.name, "groups": [*self.groups, AUTHENTICATED]}
        return {**info, "uid": self.uid} if self.uid else info


# As whom the sandbox's kubelets write.
KUBELET: Final = User(name="system:node:sandbox", groups=(NODES,))


def service_account(namespace: str, name: str, uid: str = "") -> User:
    """The user that a service account's token stands for."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    return User(name=f"system:serviceaccount:{namespace}:{name}", groups=groups, uid=uid)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A token's user, the audiences it is for, and when it ends (seconds of the epoch; None = never)."""

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
        """Make a token for *user*."""
        token = secrets.token_urlsafe(24)
        ends = None if lifetime_s is None else self.clock() + lifetime_s
        self._by_token[token] = Credential(user=user, audiences=audiences, expires_s=ends)
        return token

    def revoke(self, token: str) -> None:
        """Accept *token* no longer."""
        self._by_token.pop(token, None)

    def look_up(self, token: str, audiences: tuple[str, ...] = (API_AUDIENCE,)) -> Credential | None:
        """The credential behind *token*, if it is valid for one of *audiences* now."""
        found = self._by_token.get(token)
        if found is None or not set(audiences) & set(found.audiences):
            return None
        if found.expires_s is not None and found.expires_s <= self.clock():
            return None
        return found
