"""Prepares what a client sends for storage: for the right object, without fields that clients cannot write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sandbox.api.errors import StatusError, bad_request
from sandbox.api.resources import ResourceType

Json = dict[str, Any]

# Fields that clients cannot write.
SYSTEM_FIELDS: Final = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The object of a request."""

    kind: ResourceType
    namespace: str = ""
    name: str = ""
    subresource: str = ""


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
        case "ephemeralcontainers":
            spec = {**old["spec"], "ephemeralContainers": obj["spec"].get("ephemeralContainers") or []}
            return {**old, "metadata": {**old["metadata"]}, "spec": spec}
        case "resize":
            spec = {**old["spec"], "containers": _resized(old["spec"], obj.get("spec") or {})}
            return {**old, "metadata": {**old["metadata"]}, "spec": spec}
        case _:
            return obj


def _resized(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Json]:
    wanted = {c.get("name"): c.get("resources") or {} for c in new.get("containers") or ()}
    return [{**c, "resources": wanted.get(c["name"], c.get("resources"))} for c in old["containers"]]


def _with(obj: Json, old: Mapping[str, Any], name: str) -> Json:
    kept = {key: value for key, value in obj.items() if key != name}
    return {**kept, name: old[name]} if name in old else kept
