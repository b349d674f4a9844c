"""The server's discovery documents: /api, /apis, /version and the parts of OpenAPI that kubectl reads.

Schemas of version 3 are open objects, and version 2 has none: the double validates by its own rules, and clients may
send anything. So kubectl, which validates a `kind: List` before it sends the first item, finds no errors; the server
rejects invalid items.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sandbox.api.errors import StatusError
from sandbox.api.resources import Catalogue, ResourceType

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
