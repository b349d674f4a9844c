"""Conversion of objects between served versions: custom resources, and events in their two groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from sandbox.api.resources import ResourceType
from sandbox.api.store import Stored

Json = dict[str, Any]

_EVENTS: Final = "events.k8s.io/v1"
# events.k8s.io/v1 <-> core/v1. Source: k8s.io/kubernetes/pkg/apis/events/v1/conversion.go.
_EVENT_FIELDS: Final[Mapping[str, str]] = {
    "note": "message",
    "regarding": "involvedObject",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_CORE_FIELDS: Final = {core: new for new, core in _EVENT_FIELDS.items()}


def to_stored(kind: ResourceType, obj: Mapping[str, Any]) -> Json:
    """Return *obj* of *kind* in its stored form; its type comes first, so that lists can omit it."""
    if kind.api_version == _EVENTS:
        renamed = {_EVENT_FIELDS.get(key, key): value for key, value in obj.items()}
        return {**renamed, "kind": "Event", "apiVersion": "v1"}
    rest = {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}
    return {"kind": kind.kind, "apiVersion": kind.api_version, **rest}


def shown(kind: ResourceType, obj: Mapping[str, Any]) -> Json:
    """Return a stored object in the form of *kind*."""
    if obj.get("apiVersion") == kind.api_version:
        return dict(obj)
    if kind.api_version == _EVENTS:
        obj = {_CORE_FIELDS.get(key, key): value for key, value in obj.items()}
    return {**obj, "kind": kind.kind, "apiVersion": kind.api_version}


def shown_raw(kind: ResourceType, stored: Stored) -> bytes:
    """Return a stored object as JSON of *kind*; the shared text if it is the same."""
    if stored.obj.get("apiVersion") == kind.api_version:
        return stored.raw
    return msgspec.json.encode(shown(kind, stored.obj))


def list_item(kind: ResourceType, stored: Stored) -> bytes:
    """Return the same inside a list, where objects of built-in kinds omit their kind."""
    raw = shown_raw(kind, stored)
    prefix = f'{{"kind":"{kind.kind}","apiVersion":"{kind.api_version}",'.encode()
    return b"{" + raw[len(prefix) :] if not kind.custom and raw.startswith(prefix) else raw
