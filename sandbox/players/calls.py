"""The API calls of device plugins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from sandbox.client import ApiStatusError, PatchKind

Json = dict[str, Any]

PODS: Final = "/api/v1/pods"


class Api(Protocol):
    """The API client that players need; `sandbox.client.ApiClient` is one."""

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> Json:
        """Fetch one object."""
        ...

    async def list(self, path: str, *, field_selector: str = "", label_selector: str = "") -> tuple[Json, ...]:
        """Fetch the objects of a collection, in the server's order."""
        ...

    async def create(self, path: str, body: Mapping[str, Any], params: Mapping[str, str] | None = None) -> Json:
        """Create an object in the collection at *path*."""
        ...

    async def update(self, path: str, body: Mapping[str, Any], params: Mapping[str, str] | None = None) -> Json:
        """Replace an object."""
        ...

    async def patch(
        self, path: str, body: Any, kind: PatchKind = PatchKind.MERGE, params: Mapping[str, str] | None = None
    ) -> Json:
        """Change an object."""
        ...


def node_path(node_name: str) -> str:
    """Return the path of a node."""
    return f"/api/v1/nodes/{node_name}"


def pod_path(pod: Mapping[str, Any]) -> str:
    """Return the path of a pod."""
    metadata = pod["metadata"]
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"


async def annotate(api: Api, path: str, annotations: Mapping[str, str | None]) -> Json:
    """Set annotations, or remove those that are None, with the kind of patch that client-go programs use."""
    return await api.patch(path, {"metadata": {"annotations": dict(annotations)}}, PatchKind.STRATEGIC)


async def advertise(
    api: Api, node_name: str, capacity: Mapping[str, int | None], allocatable: Mapping[str, int | None]
) -> None:
    """Write the node's extended resources, as kubelet does for its plugins; None removes a key."""
    status = {
        "capacity": {key: _text(value) for key, value in capacity.items()},
        "allocatable": {key: _text(value) for key, value in allocatable.items()},
    }
    await api.patch(f"{node_path(node_name)}/status", {"status": status}, PatchKind.STRATEGIC)


async def write_config_map(
    api: Api, namespace: str, name: str, data: Mapping[str, str], labels: Mapping[str, str]
) -> None:
    """Write the texts of a ConfigMap, and create it if missing."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    try:
        await api.patch(f"{path}/{name}", {"data": dict(data)})
    except ApiStatusError as e:
        if e.status != 404:
            raise
        await api.create(path, {"metadata": {"name": name, "labels": dict(labels)}, "data": dict(data)})


async def drop_lock(api: Api, node_name: str, key: str) -> None:
    """Delete the node lock *key*, even if another holds it."""
    node = await api.get(node_path(node_name))
    if key in (node["metadata"].get("annotations") or {}):
        await annotate(api, node_path(node_name), {key: None})


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)
