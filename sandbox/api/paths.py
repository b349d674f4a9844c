"""Interprets a request's URL and method: the action for RBAC, and the target."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kube.calls import Access
from sandbox.api.errors import StatusError, bad_request
from sandbox.api.incoming import Target
from sandbox.api.resources import Catalogue
from sandbox.api.selectors import Selection, read_fields, read_labels

_OF_COLLECTION: Final = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
_OF_OBJECT: Final = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_DURATION: Final = re.compile(r"(\d+(?:\.\d*)?)(ms|us|µs|ns|h|m|s)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One request for resources: *verb* as in RBAC; *selected* is the name that a field selector requires."""

    verb: str
    target: Target
    selected: str = ""

    @property
    def action(self) -> Access:
        """The action to authorize."""
        target = self.target
        return Access(
            verb=self.verb,
            group=target.kind.group,
            resource=target.kind.plural,
            subresource=target.subresource,
            namespace=target.namespace,
            name=target.name or self.selected,
        )


def find(method: str, path: str, query: Mapping[str, str], catalogue: Catalogue) -> Route:
    """Parse a path below /api or /apis.

    Raises:
        StatusError: 404 for a path that is not served, 405 for an unsupported method, 400 for a bad field selector.
    """
    group, version, rest = _split(path)
    namespace = ""
    if len(rest) >= 3 and rest[0] == "namespaces" and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    kind = catalogue.find(group, version, rest[0]) if 1 <= len(rest) <= 3 else None
    if kind is None and not any((t.group, t.version) == (group, version) for t in catalogue):
        raise StatusError(404, "", "404 page not found\n")
    if kind is None or (namespace and not kind.namespaced):
        raise StatusError(404, "NotFound", "the server could not find the requested resource")
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if subresource and subresource not in kind.subresources:
        raise StatusError(404, "NotFound", "the server could not find the requested resource")
    verb = (_OF_OBJECT if name else _OF_COLLECTION).get(method)
    needs_namespace = kind.namespaced and not namespace and (name or method == "POST")
    if verb is None or (method == "POST" and name and not subresource) or (kind.virtual and method != "POST"):
        raise StatusError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
    if needs_namespace:
        raise StatusError(405, "MethodNotAllowed", f"{kind.plural} are namespaced: the path names no namespace")
    if verb == "list" and is_true(query.get("watch")):
        verb = "watch"
    target = Target(kind=kind, namespace=namespace, name=name, subresource=subresource)
    if verb not in ("list", "watch", "deletecollection"):
        return Route(verb=verb, target=target)
    # A rule's resourceNames also apply to these if the selector requires one name. Source:
    # apiserver/pkg/endpoints/request, RequestInfoFactory.NewRequestInfo.
    fields = read_fields(query.get("fieldSelector", ""), kind.resource)
    return Route(verb=verb, target=target, selected=Selection(fields=fields).exactly("metadata.name") or "")


def _split(path: str) -> tuple[str, str, list[str]]:
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        return "", parts[1], parts[2:]
    if parts[0] == "apis" and len(parts) > 3:
        return parts[1], parts[2], parts[3:]
    raise StatusError(404, "NotFound", "the server could not find the requested resource")


def selection(route: Route, query: Mapping[str, str]) -> Selection:
    """Return the query's selection in the target's collection.

    Raises:
        StatusError: 400, a selector is unreadable.
    """
    return Selection(
        namespace=route.target.namespace,
        labels=read_labels(query.get("labelSelector", "")),
        fields=read_fields(query.get("fieldSelector", ""), route.target.kind.resource),
    )


def is_true(text: str | None) -> bool:
    """Read a boolean of a query."""
    return text in ("true", "1", "True")


def whole_number(query: Mapping[str, str], name: str) -> int:
    """Read a number of a query, 0 if absent.

    Raises:
        StatusError: 400.
    """
    text = query.get(name) or "0"
    if not text.isascii() or not text.isdigit():
        raise bad_request(f'{name}: invalid value "{text}": write a whole number')
    return int(text)


def duration_s(text: str) -> float:
    """Read a duration in Go's notation (``5s``, ``1m30s``) in seconds.

    Raises:
        StatusError: 400.
    """
    pieces = _DURATION.findall(text)
    if not pieces or "".join(number + unit for number, unit in pieces) != text:
        raise bad_request(f'invalid duration "{text}"')
    return sum(float(number) * _SECONDS[unit] for number, unit in pieces)
