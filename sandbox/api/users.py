"""Callers: their tokens and groups, their rights by the store's Role and ClusterRole objects, and what they ask for."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kube.calls import Access
from sandbox.api.store import Store

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
        token = secrets.token_urlsafe(24)
        ends = None if lifetime_s is None else self.clock() + lifetime_s
        self._by_token[token] = Credential(user=user, audiences=audiences, expires_s=ends)
        return token

    def revoke(self, token: str) -> None:
        self._by_token.pop(token, None)

    def look_up(self, token: str, audiences: tuple[str, ...] = (API_AUDIENCE,)) -> Credential | None:
        """Return the credential of *token*, if it is currently valid for one of *audiences*."""
        found = self._by_token.get(token)
        if found is None or not set(audiences) & set(found.audiences):
            return None
        if found.expires_s is not None and found.expires_s <= self.clock():
            return None
        return found


_GROUP: Final = "rbac.authorization.k8s.io"
_KINDS: Final = tuple(f"{p}.{_GROUP}" for p in ("roles", "rolebindings", "clusterroles", "clusterrolebindings"))
# Every user may review their own access (ClusterRole system:basic-user).
_BASIC: Final = frozenset({"selfsubjectaccessreviews", "selfsubjectreviews"})


class Recorder:
    """Counts requests: (user, verb, group, resource, subresource)."""

    def __init__(self) -> None:
        self.seen: Counter[tuple[str, str, str, str, str]] = Counter()

    def note(self, user: User, action: Access) -> None:
        """Count one request."""
        self.seen[user.name, action.verb, action.group, action.resource, action.subresource] += 1

    def used_by(self, user_name: str) -> frozenset[tuple[str, str, str, str]]:
        """Return the requests of one user, without counts."""
        return frozenset(key[1:] for key in self.seen if key[0] == user_name)


class Authorizer:
    """Evaluates the RBAC objects of a store.

    Administrators may do everything, and so may nodes, because the double has no node authorizer.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rules: dict[tuple[User, str], list[Mapping[str, Any]]] = {}
        self._good_for: tuple[int, ...] = ()

    def allows(self, user: User, action: Access) -> bool:
        if {ADMINS, NODES} & set(user.groups) or (action.resource in _BASIC and action.verb == "create"):
            return True
        return any(_allows(rule, action) for rule in self._rules_of(user, action.namespace))

    def _rules_of(self, user: User, namespace: str) -> list[Mapping[str, Any]]:
        now = tuple(self._store.changed(kind) for kind in _KINDS)
        if now != self._good_for:
            self._rules.clear()
            self._good_for = now
        found = self._rules.get((user, namespace))
        if found is None:
            found = self._rules[user, namespace] = list(self._collect(user, namespace))
        return found

    def _collect(self, user: User, namespace: str) -> Iterator[Mapping[str, Any]]:
        for stored in self._store.select(_KINDS[3]):
            if _is_subject(user, stored.obj, ""):
                yield from self._role(stored.obj["roleRef"], "")
        if not namespace:
            return
        for stored in self._store.select(_KINDS[1]):
            if stored.obj["metadata"]["namespace"] == namespace and _is_subject(user, stored.obj, namespace):
                yield from self._role(stored.obj["roleRef"], namespace)

    def _role(self, ref: Mapping[str, Any], namespace: str) -> Iterator[Mapping[str, Any]]:
        if ref["kind"] == "ClusterRole":
            role = self._store.get(_KINDS[2], "", ref["name"])
        else:
            role = self._store.get(_KINDS[0], namespace, ref["name"])
        if role is not None:
            yield from role.obj.get("rules") or ()


def _is_subject(user: User, binding: Mapping[str, Any], namespace: str) -> bool:
    for subject in binding.get("subjects") or ():
        match subject.get("kind"):
            case "User":
                name = subject["name"]
            case "ServiceAccount":
                name = f"system:serviceaccount:{subject.get('namespace') or namespace}:{subject['name']}"
            case _:
                if subject.get("name") in (*user.groups, AUTHENTICATED):
                    return True
                continue
        if name == user.name:
            return True
    return False


def _allows(rule: Mapping[str, Any], action: Access) -> bool:
    if not {"*", action.verb} & set(rule.get("verbs") or ()):
        return False
    if action.path:
        paths = rule.get("nonResourceURLs") or ()
        return any(path == action.path or (path.endswith("*") and action.path.startswith(path[:-1])) for path in paths)
    if not {"*", action.group} & set(rule.get("apiGroups") or ()):
        return False
    full = f"{action.resource}/{action.subresource}" if action.subresource else action.resource
    if not {"*", full, f"*/{action.subresource}"} & set(rule.get("resources") or ()):
        return False
    names = rule.get("resourceNames") or ()
    return not names or action.name in names
