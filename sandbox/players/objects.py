"""What device plugins read from objects of the API server, as JSON, and their calls that change these."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from sandbox.api.quantities import QuantityError, value_of
from sandbox.client import ApiCalls, ApiStatusError, PatchKind, node_path

# What strconv.ParseUint returns for larger numbers; plugins also use it for times that are missing or unreadable.
LATEST: Final = 2**64 - 1
# strconv's decimal form; Python's int() would also accept blanks, underscores and other scripts' digits.
_UNSIGNED: Final = re.compile(r"[0-9]+", re.ASCII)


def annotations_of(obj: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the annotations of an object, empty if it has none."""
    found: Mapping[str, str] = obj.get("metadata", {}).get("annotations") or {}
    return found


def limits_of(container: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the limits of a container, empty if it has none."""
    found: Mapping[str, Any] = container.get("resources", {}).get("limits") or {}
    return found


def is_over(pod: Mapping[str, Any]) -> bool:
    """Return whether the pod needs no device any more."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def time_of(obj: Mapping[str, Any], key: str) -> int:
    """Return the number in the annotation *key*; `LATEST` if it is not a number."""
    text = annotations_of(obj).get(key, "")
    return min(LATEST, int(digits(text))) if _UNSIGNED.fullmatch(text) else LATEST


def digits(text: str) -> str:
    """Return the digits of a number without leading zeros; beyond 25 digits, the exact number does not matter."""
    return (text.lstrip("+-").lstrip("0") or "0")[:25]


def whole(text: object) -> int:
    """Return the whole part of a quantity, 0 for other text."""
    try:
        return int(value_of(text))
    except QuantityError:
        return 0


Json = dict[str, Any]


async def annotate(api: ApiCalls, path: str, annotations: Mapping[str, str | None]) -> Json:
    """Set annotations, or remove those that are None, with the kind of patch that client-go programs use."""
    return await api.patch(path, {"metadata": {"annotations": dict(annotations)}}, PatchKind.STRATEGIC)


async def advertise(
    api: ApiCalls, node_name: str, capacity: Mapping[str, int | None], allocatable: Mapping[str, int | None]
) -> None:
    """Write the node's extended resources, as kubelet does for its plugins; None removes a key."""
    status = {
        "capacity": {key: _text(value) for key, value in capacity.items()},
        "allocatable": {key: _text(value) for key, value in allocatable.items()},
    }
    await api.patch(f"{node_path(node_name)}/status", {"status": status}, PatchKind.STRATEGIC)


async def write_config_map(
    api: ApiCalls, namespace: str, name: str, data: Mapping[str, str], labels: Mapping[str, str]
) -> None:
    """Write the texts of a ConfigMap, and create it if missing."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    try:
        await api.patch(f"{path}/{name}", {"data": dict(data)})
    except ApiStatusError as e:
        if e.status != 404:
            raise
        await api.create(path, {"metadata": {"name": name, "labels": dict(labels)}, "data": dict(data)})


async def drop_lock(api: ApiCalls, node_name: str, key: str) -> None:
    """Delete the node lock *key*, even if another holds it."""
    node = await api.get(node_path(node_name))
    if key in (node["metadata"].get("annotations") or {}):
        await annotate(api, node_path(node_name), {key: None})


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)
