"""An API server for one test: objects in a dictionary by path, merged patches, versions."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from sandbox.client import JSON, ApiCalls, ApiStatusError, Json, Params, PatchKind


class MemoryApi(ApiCalls):
    """Holds objects by path; counts writes per path; *refuse* holds paths whose writes are refused once."""

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.refuse: list[str] = []
        self.on_patch: Any = None

    async def call(self, method: str, path: str, body: Any = None, params: Params = None, media: str = JSON) -> Json:
        raise NotImplementedError  # each verb that players use is answered below

    def add_node(self, name: str, annotations: Mapping[str, str] | None = None) -> str:
        path = f"/api/v1/nodes/{name}"
        self._store(path, {"metadata": {"name": name, "annotations": dict(annotations or {})}, "status": {}})
        return path

    def add_pod(
        self,
        name: str,
        *,
        annotations: Mapping[str, str],
        limits: tuple[Mapping[str, str], ...] = ({},),
        node: str = "node-a",
        status: Mapping[str, Any] | None = None,
        **metadata: str,
    ) -> str:
        path = f"/api/v1/namespaces/default/pods/{name}"
        meta = {"name": name, "namespace": "default", "annotations": dict(annotations), **metadata}
        containers = [{"name": f"c{i}", "resources": {"limits": dict(limit)}} for i, limit in enumerate(limits)]
        spec = {"nodeName": node, "containers": containers}
        self._store(path, {"metadata": meta, "spec": spec, "status": {"phase": "Pending", **(status or {})}})
        return path

    def annotations(self, path: str) -> dict[str, str]:
        found: dict[str, str] = self.objects[path]["metadata"]["annotations"]
        return found

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> Json:
        return deepcopy(self.objects[path])

    async def list(self, path: str, *, field_selector: str = "", label_selector: str = "") -> tuple[Json, ...]:
        terms = [term.split("=") for term in field_selector.split(",") if term]
        pods = [obj for path, obj in sorted(self.objects.items()) if "/pods/" in path]
        return tuple(deepcopy(pod) for pod in pods if all(self._field(pod, key) == value for key, value in terms))

    async def create(self, path: str, body: Mapping[str, Any], params: Mapping[str, str] | None = None) -> Json:
        return self._store(f"{path}/{body['metadata']['name']}", deepcopy(dict(body)))

    async def update(self, path: str, body: Mapping[str, Any], params: Mapping[str, str] | None = None) -> Json:
        self._check(path)
        if body["metadata"]["resourceVersion"] != self.objects[path]["metadata"]["resourceVersion"]:
            raise ApiStatusError(409, "Conflict", "the object has been modified")
        return self._store(path, deepcopy(dict(body)))

    async def patch(
        self, path: str, body: Any, kind: PatchKind = PatchKind.MERGE, params: Mapping[str, str] | None = None
    ) -> Json:
        self._check(path)
        path = path.removesuffix("/status")
        if path not in self.objects:
            raise ApiStatusError(404, "NotFound", f"{path} is not there")
        version = body.get("metadata", {}).get("resourceVersion") if isinstance(body, dict) else None
        if version not in (None, self.objects[path]["metadata"]["resourceVersion"]):
            raise ApiStatusError(409, "Conflict", "the object has been modified")
        merged = _merged(self.objects[path], body)
        if self.on_patch is not None:
            self.on_patch(path, merged)
        return self._store(path, merged)

    def _check(self, path: str) -> None:
        if path in self.refuse:
            self.refuse.remove(path)
            raise ApiStatusError(500, "InternalError", "etcd is away")

    def _store(self, path: str, obj: Json) -> Json:
        version = int(self.objects.get(path, {"metadata": {"resourceVersion": "0"}})["metadata"]["resourceVersion"])
        obj["metadata"]["resourceVersion"] = str(version + 1)
        self.objects[path] = obj
        return deepcopy(obj)

    @staticmethod
    def _field(obj: Any, path: str) -> Any:
        for part in path.split("."):
            obj = obj.get(part, {})
        return obj


def _merged(old: Any, new: Any) -> Any:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return deepcopy(new)
    result = {key: value for key, value in old.items() if not (key in new and new[key] is None)}
    return result | {key: _merged(result.get(key, {}), value) for key, value in new.items() if value is not None}
