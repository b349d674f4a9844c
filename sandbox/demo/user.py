"""Makes kubectl's API calls for a user who submits pods, and records the warnings."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import msgspec

Json = dict[str, Any]

_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
# RFC 9110 warn-value: code, agent, quoted text; only 299 is ever sent.
_WARNING: Final = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(r"\\(.)")
# The only cluster-scoped kind of these.
PRIORITY_CLASS: Final = "PriorityClass"
# Path of the collection by apiVersion and kind, for the objects of examples.
_PLURALS: Final[Mapping[tuple[str, str], str]] = {
    ("v1", "Pod"): "pods",
    ("v1", "ConfigMap"): "configmaps",
    ("v1", "PersistentVolumeClaim"): "persistentvolumeclaims",
    ("apps/v1", "Deployment"): "deployments",
    ("batch/v1", "Job"): "jobs",
    ("scheduling.k8s.io/v1", PRIORITY_CLASS): "priorityclasses",
}
KINDS: Final = tuple(kind for _, kind in _PLURALS)


def can_apply(manifest: Mapping[str, Any]) -> bool:
    """Return whether `KubectlUser.apply` supports the kind of *manifest*."""
    return (str(manifest.get("apiVersion")), str(manifest["kind"])) in _PLURALS


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The API server's answer: status, its text on refusal, its warnings, and the object on success."""

    status: int
    message: str = ""
    warnings: tuple[str, ...] = ()
    object: Json = field(default_factory=dict)

    @property
    def accepted(self) -> bool:
        """Whether the write was accepted."""
        return self.status < 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One event of a pod."""

    reason: str
    message: str


class KubectlUser:
    """One user at one API server; an async context manager."""

    def __init__(self, *, server: str, token: str, ca_pem: bytes, namespace: str = "default") -> None:
        self._server = server.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json", "User-Agent": "kubectl"}
        self._tls = ssl.create_default_context(cadata=ca_pem.decode("ascii"))
        self.namespace = namespace
        self._opened: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._opened = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._tls),
            headers=self._headers,
            timeout=aiohttp.ClientTimeout(total=30),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            await self._opened.close()
            self._opened = None

    async def apply(self, manifest: Mapping[str, Any]) -> Answer:
        """``kubectl apply``: create a missing object, otherwise patch it towards the manifest."""
        path = self._collection(manifest)
        name = manifest["metadata"]["name"]
        annotations = manifest["metadata"].get("annotations") or {}
        recorded = {**annotations, _LAST_APPLIED: msgspec.json.encode(manifest, order="sorted").decode() + "\n"}
        body = {**manifest, "metadata": {**manifest["metadata"], "annotations": recorded}}
        if (await self._call("GET", f"{path}/{name}")).status == 404:
            return await self._call("POST", f"{path}?fieldManager=kubectl-client-side-apply", body)
        return await self._patch(f"{path}/{name}", body, "application/strategic-merge-patch+json")

    async def annotate(self, pod: str, annotations: Mapping[str, str | None]) -> Answer:
        """``kubectl annotate --overwrite pod``; None removes a key."""
        body = {"metadata": {"annotations": dict(annotations)}}
        return await self._patch(self.pod_path(pod), body, "application/merge-patch+json")

    async def delete(self, pod: str, *, grace_s: int = 1) -> Answer:
        """``kubectl delete pod --grace-period``."""
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": grace_s}
        return await self._call("DELETE", self.pod_path(pod), options)

    async def get(self, pod: str) -> Json | None:
        """``kubectl get pod -o json``; None if there is none."""
        answer = await self._call("GET", self.pod_path(pod))
        return answer.object if answer.accepted else None

    async def events(self, pod: str, uid: str) -> tuple[Told, ...]:
        """``kubectl events --for pod/``, without events of earlier pods with its name."""
        path = f"/api/v1/namespaces/{self.namespace}/events?fieldSelector=involvedObject.name={pod}"
        found = (await self._call("GET", path)).object.get("items", ())
        return tuple(
            Told(reason=str(one.get("reason", "")), message=str(one.get("message", "")))
            for one in found
            if one["involvedObject"].get("uid") == uid
        )

    def pod_path(self, pod: str) -> str:
        """Return the path of a pod in this user's namespace."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{pod}"

    def _collection(self, manifest: Mapping[str, Any]) -> str:
        version, kind = str(manifest["apiVersion"]), str(manifest["kind"])
        namespace = manifest["metadata"].get("namespace", self.namespace)
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        place = "" if kind == PRIORITY_CLASS else f"/namespaces/{namespace}"
        return f"{root}{place}/{_PLURALS[version, kind]}"

    async def _patch(self, path: str, body: Mapping[str, Any], content_type: str) -> Answer:
        return await self._call("PATCH", path, body, content_type)

    async def _call(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Answer:
        if self._opened is None:
            raise RuntimeError("the user is used outside its `async with`")
        data = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": content_type} if data is not None else None
        async with self._opened.request(method, self._server + path, data=data, headers=headers) as response:
            found = msgspec.json.decode(await response.read())
            warnings = tuple(
                _ESCAPED.sub(r"\1", text)
                for header in response.headers.getall("Warning", [])
                for text in _WARNING.findall(header)
            )
            message = str(found.get("message", "")) if response.status >= 400 else ""
            return Answer(status=response.status, message=message, warnings=warnings, object=found)
