"""Tables for kubectl: the columns of each kind, and their cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from sandbox.api.resources import Column, ResourceType

Json = dict[str, Any]

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
    "leases.coordination.k8s.io": (_NAME, Column(name="Holder", path="spec.holderIdentity"), _AGE),
    "configmaps": (_NAME, Column(name="Data", path="@data", type="integer"), _AGE),
    "secrets": (_NAME, Column(name="Type", path="type"), Column(name="Data", path="@data", type="integer"), _AGE),
    "services": (
        _NAME,
        Column(name="Type", path="spec.type"),
        Column(name="Cluster-IP", path="spec.clusterIP"),
        Column(name="External-IP", path="spec.externalName"),
        _AGE,
    ),
    "jobs.batch": (
        _NAME,
        Column(name="Completions", path="spec.completions"),
        Column(name="Succeeded", path="status.succeeded"),
        _AGE,
    ),
}
_ROLE: Final = "node-role.kubernetes.io/"


def definitions(kind: ResourceType) -> list[Json]:
    """Return the column definitions of *kind*."""
    return [
        {
            "name": column.name,
            "type": column.type,
            "format": "name" if column.path == "metadata.name" else "",
            "description": "",
            "priority": column.priority,
        }
        for column in _columns(kind)
    ]


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
        "columnDefinitions": definitions(kind),
        "rows": [_row(columns, obj, now, include) for obj in objects],
    }


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
