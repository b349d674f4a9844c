"""Reads requests: the action for RBAC and the target, and what of a body may be stored there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kube.calls import Access
from sandbox.api.errors import StatusError, bad_request
from sandbox.api.resources import Catalogue, ResourceType
from sandbox.api.selectors import Selection, read_fields, read_labels

Json = dict[str, Any]

# Fields that clients cannot write.
SYSTEM_FIELDS: Final = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
_OF_COLLECTION: Final = {"GET": "list", "POST": "create"}
_OF_OBJECT: Final = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_DURATION: Final = re.compile(r"(\d+(?:\.\d*)?)(ms|us|µs|ns|h|m|s)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The object of a request."""

    kind: ResourceType
    namespace: str = ""
    name: str = ""
    subresource: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One request for resources: *verb* as in RBAC; *selection*: of a list or watch, what its query selects."""

    verb: str
    target: Target
    selection: Selection = field(default_factory=Selection)

    @property
    def action(self) -> Access:
        target = self.target
        return Access(
            verb=self.verb,
            group=target.kind.group,
            resource=target.kind.plural,
            subresource=target.subresource,
            namespace=target.namespace,
            name=target.name or self.selection.exactly("metadata.name") or "",
        )


def find(method: str, path: str, query: Mapping[str, str], catalogue: Catalogue) -> Route:
    """Parse a path below /api or /apis.

    Raises:
        StatusError: 404 for a path that is not served, 405 for an unsupported method, 400 for a bad selector.
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
    if verb not in ("list", "watch"):
        return Route(verb=verb, target=target)
    # A rule's resourceNames also apply to these if the selector requires one name. Source:
    # apiserver/pkg/endpoints/request, RequestInfoFactory.NewRequestInfo.
    fields = read_fields(query.get("fieldSelector", ""), kind.resource)
    labels = read_labels(query.get("labelSelector", ""))
    return Route(verb=verb, target=target, selection=Selection(namespace=namespace, labels=labels, fields=fields))


def _split(path: str) -> tuple[str, str, list[str]]:
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        return "", parts[1], parts[2:]
    if parts[0] == "apis" and len(parts) > 3:
        return parts[1], parts[2], parts[3:]
    raise StatusError(404, "NotFound", "the server could not find the requested resource")


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


def of_kind(kind: ResourceType, body: Json) -> Json:
    """Return *body*, unless it names another kind than *kind*.

    Raises:
        StatusError: 400.
    """
    for name, expected in (("kind", kind.kind), ("apiVersion", kind.api_version)):
        if body.get(name) not in (None, "", expected):
            raise bad_request(f"the {name} in the data ({body[name]}) does not match the expected {name} ({expected})")
    return body


def metadata_of(obj: Json, target: Target) -> Json:
    """Return the metadata of *obj*, with the namespace and the name of *target*.

    Raises:
        StatusError: 400, it names others.
    """
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        metadata = obj["metadata"] = {}
    if target.kind.namespaced:
        if metadata.setdefault("namespace", target.namespace) != target.namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    else:
        metadata.pop("namespace", None)
    if target.name and metadata.setdefault("name", target.name) != target.name:
        raise bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL ({target.name})"
        )
    return metadata


def drop_unwritable(kind: ResourceType, obj: Json) -> None:
    """Remove from a new object what its client cannot write.

    Raises:
        StatusError: 500, it has a resourceVersion.
    """
    metadata = obj["metadata"]
    if metadata.get("resourceVersion"):
        raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
    for name in (*SYSTEM_FIELDS, "managedFields", "selfLink"):
        metadata.pop(name, None)
    # A kubelet registers its node together with its status.
    if kind.has_status and kind.resource != "nodes":
        obj.pop("status", None)
    if kind.resource == "namespaces":
        metadata.setdefault("labels", {})["kubernetes.io/metadata.name"] = metadata.get("name", "")
        obj |= {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}


def through_subresource(target: Target, obj: Json, old: Mapping[str, Any]) -> Json:
    """Return *obj* with the fields of *old* that a write to this subresource or main resource cannot change."""
    match target.subresource:
        case "":
            return _with(obj, old, "status") if target.kind.has_status else obj
        case "status" if target.kind.resource in ("pods", "nodes"):
            # Their metadata can also be written through status: measured.
            return _with(obj, old, "spec")
        case "status":
            kept = {"metadata": old["metadata"], "status": obj.get("status")}
            return {**old, **kept, "metadata": {**old["metadata"]}}
        case _:
            return obj


def _with(obj: Json, old: Mapping[str, Any], name: str) -> Json:
    kept = {key: value for key, value in obj.items() if key != name}
    return {**kept, name: old[name]} if name in old else kept
