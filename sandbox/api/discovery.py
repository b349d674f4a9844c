"""What kubectl reads besides objects: tables, and the documents of discovery: /api, /apis, /version, parts of OpenAPI.

Schemas of version 3 are open objects, and version 2 has none: the double validates by its own rules, and clients may
send anything. So kubectl, which validates a `kind: List` before it sends the first item, finds no errors; the server
rejects invalid items.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from sandbox.api.errors import StatusError
from sandbox.api.resources import Catalogue, Column, ResourceType

Json = dict[str, Any]

_VERSION: Final[Json] = {
    "major": "1",
    "minor": "37",
    "gitVersion": "v1.37.2+sandbox",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}
_INFO: Final[Json] = {"title": "Kubernetes", "version": _VERSION["gitVersion"]}
# The resources of `kubectl get all`.
_ALL: Final = frozenset(
    {"pods", "services", "deployments", "replicasets", "statefulsets", "daemonsets", "jobs", "cronjobs"}
)
OPENAPI_V2: Final = "/openapi/v2"
# Requested with an @, which is invalid in a media type, and so answered without it.
OPENAPI_V2_WANTED: Final = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
OPENAPI_V2_SENT: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_PARAMETERS: Final = tuple(
    {"name": name, "in": "query", "schema": {"type": "string"}}
    for name in ("dryRun", "fieldManager", "fieldValidation", "pretty")
)


def answer(path: str, catalogue: Catalogue) -> Json | None:
    """Return the discovery document at *path*, or None if the path is not for discovery.

    Raises:
        StatusError: 404, a group or version that is not served.
    """
    parts = path.strip("/").split("/")
    match parts:
        case ["version"]:
            return _VERSION
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            groups = [_group(group, catalogue) for group in _groups(catalogue)]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["apis", group]:
            return _group(group, catalogue)
        case ["api", version]:
            return _resources("", version, catalogue)
        case ["apis", group, version]:
            return _resources(group, version, catalogue)
        case ["openapi", "v3"]:
            paths = {t.path.strip("/"): {"serverRelativeURL": f"/openapi/v3{t.path}"} for t in catalogue}
            return {"paths": paths}
        case ["openapi", "v2"]:
            return {"swagger": "2.0", "info": _INFO, "paths": {}}
        case ["openapi", "v3", "api", version]:
            return _openapi("", version, catalogue)
        case ["openapi", "v3", "apis", group, version]:
            return _openapi(group, version, catalogue)
        case _:
            return None


def openapi_v2_protobuf() -> bytes:
    """Return the content of the JSON OpenAPI v2 document in the encoding that kubectl requests.

    Source: openapiv2/OpenAPIv2.proto of gnostic, messages Document (swagger 1, info 2) and Info (title 1, version 2).
    """
    info = _field(1, _INFO["title"].encode()) + _field(2, _INFO["version"].encode())
    return _field(1, b"2.0") + _field(2, info)


def _field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2, len(value)]) + value


def _groups(catalogue: Catalogue) -> tuple[str, ...]:
    return tuple(dict.fromkeys(t.group for t in catalogue if t.group))


def _group(group: str, catalogue: Catalogue) -> Json:
    versions = tuple(dict.fromkeys(t.version for t in catalogue if t.group == group and group))
    if not versions:
        raise StatusError(404, "NotFound", "the server could not find the requested resource")
    named = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"kind": "APIGroup", "apiVersion": "v1", "name": group, "versions": named, "preferredVersion": named[0]}


def _types(group: str, version: str, catalogue: Catalogue) -> tuple[ResourceType, ...]:
    types = tuple(t for t in catalogue if (t.group, t.version) == (group, version))
    if not types:
        raise StatusError(404, "NotFound", "the server could not find the requested resource")
    return types


def _resources(group: str, version: str, catalogue: Catalogue) -> Json:
    resources: list[Json] = []
    for kind in _types(group, version, catalogue):
        entry: Json = {
            "name": kind.plural,
            "singularName": kind.singular,
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": list(kind.verbs),
        }
        if kind.short_names:
            entry["shortNames"] = list(kind.short_names)
        if kind.plural in _ALL and not kind.custom:
            entry["categories"] = ["all"]
        resources.append(entry)
        resources += [_subresource(kind, name) for name in kind.subresources]
    group_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources}


def _subresource(kind: ResourceType, name: str) -> Json:
    bodies: Mapping[str, tuple[str, str, str]] = {
        "binding": ("", "v1", "Binding"),
        "eviction": ("policy", "v1", "Eviction"),
        "token": ("authentication.k8s.io", "v1", "TokenRequest"),
    }
    entry: Json = {
        "name": f"{kind.plural}/{name}",
        "singularName": "",
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": ["get", "patch", "update"],
    }
    if name in bodies:
        group, version, body = bodies[name]
        entry |= {"group": group, "version": version, "kind": body, "verbs": ["create"]}
    return entry


def _openapi(group: str, version: str, catalogue: Catalogue) -> Json:
    paths: Json = {}
    schemas: Json = {}
    for kind in _types(group, version, catalogue):
        gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
        reference = f"{kind.group or 'core'}.{kind.version}.{kind.kind}"
        schemas[reference] = {
            "type": "object",
            "description": f"{kind.kind}, as the sandbox serves it: every field is accepted as it is.",
            "x-kubernetes-group-version-kind": [gvk],
            "x-kubernetes-preserve-unknown-fields": True,
        }
        collection = (
            f"{kind.path}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else (f"{kind.path}/{kind.plural}")
        )
        paths[collection] = {"post": _operation(gvk, reference, "post")}
        paths[f"{collection}/{{name}}"] = {
            "get": _operation(gvk, reference, "get"),
            "put": _operation(gvk, reference, "put"),
            "patch": _operation(gvk, reference, "patch"),
        }
    return {"openapi": "3.0.0", "info": _INFO, "paths": paths, "components": {"schemas": schemas}}


def _operation(gvk: Json, reference: str, action: str) -> Json:
    schema = {"$ref": f"#/components/schemas/{reference}"}
    answer = {"description": "OK", "content": {"application/json": {"schema": schema}}}
    return {
        "x-kubernetes-group-version-kind": gvk,
        "x-kubernetes-action": action,
        "parameters": list(_PARAMETERS),
        "responses": {"200": answer},
    }


_NAME: Final = Column(name="Name", path="metadata.name")
_AGE: Final = Column(name="Age", path="@age")
_COLUMNS: Final[Mapping[str, tuple[Column, ...]]] = {
    "pods": (
        _NAME,
        Column(name="Ready", path="@ready"),
        Column(name="Status", path="@status"),
        Column(name="Restarts", path="@restarts", type="integer"),
        _AGE,
        Column(name="IP", path="status.podIP", priority=1),
        Column(name="Node", path="spec.nodeName", priority=1),
        Column(name="Nominated Node", path="status.nominatedNodeName", priority=1),
        Column(name="Readiness Gates", path="spec.readinessGates", priority=1),
    ),
    "nodes": (
        _NAME,
        Column(name="Status", path="@node"),
        Column(name="Roles", path="@roles"),
        _AGE,
        Column(name="Version", path="@version"),
        Column(name="Internal-IP", path="@address", priority=1),
        Column(name="OS-Image", path="status.nodeInfo.osImage", priority=1),
        Column(name="Container-Runtime", path="status.nodeInfo.containerRuntimeVersion", priority=1),
    ),
    "events": (
        Column(name="Last Seen", path="@seen"),
        Column(name="Type", path="type"),
        Column(name="Reason", path="reason"),
        Column(name="Object", path="@object"),
        Column(name="Source", path="source.component", priority=1),
        Column(name="Message", path="message"),
        Column(name="Count", path="count", type="integer", priority=1),
    ),
    "namespaces": (_NAME, Column(name="Status", path="status.phase"), _AGE),
    "configmaps": (_NAME, Column(name="Data", path="@data", type="integer"), _AGE),
}
_ROLE: Final = "node-role.kubernetes.io/"


def table(
    kind: ResourceType,
    objects: Iterable[Mapping[str, Any]],
    now: datetime,
    *,
    metadata: Mapping[str, Any],
    include: str = "Metadata",
) -> Json:
    """Return a Table of *objects*; *include* selects how much of each object its row has: None, Metadata or Object."""
    columns = _columns(kind)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": dict(metadata),
        "columnDefinitions": [_definition(column) for column in columns],
        "rows": [_row(columns, obj, now, include) for obj in objects],
    }


def _definition(column: Column) -> Json:
    kind = "name" if column.path == "metadata.name" else ""
    return {"name": column.name, "type": column.type, "format": kind, "description": "", "priority": column.priority}


def _columns(kind: ResourceType) -> tuple[Column, ...]:
    if kind.columns:
        own = tuple(_AGE if c.path == "metadata.creationTimestamp" else c for c in kind.columns)
        return (_NAME, *own)
    return _COLUMNS.get(kind.resource, (_NAME, _AGE))


def _row(columns: Iterable[Column], obj: Mapping[str, Any], now: datetime, include: str) -> Json:
    row: Json = {"cells": [_cell(column, obj, now) for column in columns]}
    if include == "Object":
        row["object"] = obj
    elif include != "None":
        partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}
        row["object"] = partial
    return row


def _cell(column: Column, obj: Mapping[str, Any], now: datetime) -> Any:
    match column.path:
        case "@version":
            return ((obj.get("status") or {}).get("nodeInfo") or {}).get("kubeletVersion", "")
        case "@age":
            return _age(obj["metadata"].get("creationTimestamp"), now)
        case "@seen":
            return _age(obj.get("lastTimestamp") or obj.get("eventTime") or obj["metadata"]["creationTimestamp"], now)
        case "@object":
            about = obj.get("involvedObject") or {}
            return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"
        case "@ready":
            statuses = (obj.get("status") or {}).get("containerStatuses") or ()
            return f"{sum(1 for s in statuses if s.get('ready'))}/{len(obj['spec'].get('containers') or ())}"
        case "@restarts":
            statuses = (obj.get("status") or {}).get("containerStatuses") or ()
            return sum(int(s.get("restartCount", 0)) for s in statuses)
        case "@status":
            return _pod_status(obj)
        case "@node":
            return _node_status(obj)
        case "@roles":
            labels = obj["metadata"].get("labels") or {}
            return ",".join(sorted(key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE))) or "<none>"
        case "@address":
            addresses = (obj.get("status") or {}).get("addresses") or ()
            return next((a["address"] for a in addresses if a.get("type") == "InternalIP"), "<none>")
        case "@data":
            return len(obj.get("data") or ()) + len(obj.get("binaryData") or ())
        case path:
            return _at(obj, path, column.type)


def _at(obj: Mapping[str, Any], path: str, kind: str) -> Any:
    value: Any = obj
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    if kind == "integer":
        return value if isinstance(value, int) else 0
    return "<none>" if value in (None, "", [], {}) else str(value)


def _pod_status(pod: Mapping[str, Any]) -> str:
    status = pod.get("status") or {}
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    if status.get("reason"):
        return str(status["reason"])
    if status.get("phase") == "Succeeded":
        return "Completed"
    if status.get("phase") == "Pending" and pod["spec"].get("schedulingGates") and not pod["spec"].get("nodeName"):
        return "SchedulingGated"
    return str(status.get("phase") or "Unknown")


def _node_status(node: Mapping[str, Any]) -> str:
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = next((c.get("status") for c in conditions if c.get("type") == "Ready"), None)
    words = ["Ready" if ready == "True" else "NotReady" if ready else "Unknown"]
    return ",".join([*words, *(["SchedulingDisabled"] if (node.get("spec") or {}).get("unschedulable") else [])])


def _age(text: str | None, now: datetime) -> str:
    if not text:
        return "<unknown>"
    try:
        seconds = max(int((now - datetime.fromisoformat(text)).total_seconds()), 0)
    except (TypeError, ValueError):
        return "<invalid>"
    if seconds < 120:
        return f"{seconds}s"
    if seconds < 3 * 3600:
        return f"{seconds // 60}m"
    return f"{seconds // 3600}h" if seconds < 48 * 3600 else f"{seconds // 86400}d"
