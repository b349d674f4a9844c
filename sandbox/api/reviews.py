"""Answers the review resources of authentication.k8s.io and authorization.k8s.io."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kube.calls import Access
from sandbox.api.errors import bad_request
from sandbox.api.rbac import Authorizer
from sandbox.api.users import API_AUDIENCE, AUTHENTICATED, Tokens, User

Json = dict[str, Any]


def answer(plural: str, body: Json, user: User, tokens: Tokens, authorizer: Authorizer) -> Json:
    """Return the review *body* with its status.

    Raises:
        StatusError: 400, the review has no question.
    """
    spec = body.get("spec") or {}
    match plural:
        case "tokenreviews":
            status = _token(spec, tokens)
        case "selfsubjectreviews":
            status = {"userInfo": user.info()}
        case "selfsubjectaccessreviews":
            status = _access(spec, user, authorizer)
        case _:
            groups = tuple(group for group in spec.get("groups") or () if group != AUTHENTICATED)
            status = _access(spec, User(name=str(spec.get("user") or ""), groups=groups), authorizer)
    return {**body, "metadata": body.get("metadata") or {}, "status": status}


def _token(spec: Mapping[str, Any], tokens: Tokens) -> Json:
    audiences = tuple(spec.get("audiences") or (API_AUDIENCE,))
    found = tokens.look_up(str(spec.get("token") or ""), audiences)
    if found is None:
        return {"user": {}, "error": "invalid bearer token"}
    matched = [audience for audience in audiences if audience in found.audiences]
    return {"authenticated": True, "user": found.user.info(), "audiences": matched}


def _access(spec: Mapping[str, Any], user: User, authorizer: Authorizer) -> Json:
    asked, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if asked:
        action = Access(
            verb=asked.get("verb", ""),
            group=asked.get("group", ""),
            resource=asked.get("resource", ""),
            subresource=asked.get("subresource", ""),
            namespace=asked.get("namespace", ""),
            name=asked.get("name", ""),
        )
    elif path:
        action = Access(verb=path.get("verb", ""), path=path.get("path", ""))
    else:
        raise bad_request("spec: exactly one of nonResourceAttributes or resourceAttributes must be specified")
    return {"allowed": authorizer.allows(user, action)}
