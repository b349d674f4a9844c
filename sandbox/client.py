"""A small API client for the players, the demo and tests: JSON over HTTPS, with one token.

It retries nothing and knows no kinds: it takes paths and returns dictionaries. The product's own client is `kube`; a
player that used it would share its bugs and could not reveal them.
"""

from __future__ import annotations

import asyncio
import io
import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import msgspec
import structlog

Json = dict[str, Any]
Params = Mapping[str, str] | None
JSON: Final = "application/json"
PODS: Final = "/api/v1/pods"

# A watch line has one object of up to 1.5 MiB, and twice that with many escapes.
_LINE_BYTES: Final = 4 * 2**20
_DECODER: Final = msgspec.json.Decoder()
_AGAIN_S: Final = 0.2
_log: Final = structlog.get_logger()


class PatchKind(StrEnum):
    """The media type of a patch."""

    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    JSON = "application/json-patch+json"
    APPLY = "application/apply-patch+yaml"


class ApiStatusError(Exception):
    """The API server answered with an error.

    Attributes:
        status: the HTTP status, or the ``code`` of an ERROR event.
        reason: the machine-readable reason, such as ``Conflict``; "" if the body was not a Status.
        message: the text for people.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


# How a call fails: the server refuses, or does not answer.
WORLD_FAILED: Final = (ApiStatusError, aiohttp.ClientError, OSError)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent:
    """One line of a watch: ADDED, MODIFIED, DELETED or BOOKMARK, and the object."""

    type: str
    object: Json


class ApiCalls(ABC):
    """The calls to an API server."""

    @abstractmethod
    async def call(self, method: str, path: str, body: Any = None, params: Params = None, media: str = JSON) -> Json:
        """Return the object in the answer.

        Raises:
            ApiStatusError: the server answered with an error.
            aiohttp.ClientError: the connection failed.
        """

    async def get(self, path: str, params: Params = None) -> Json:
        """Fetch one object (or a whole list with its metadata).

        Raises:
            ApiStatusError: the server answered with an error; likewise in every other call.
        """
        return await self.call("GET", path, None, params)

    async def list(self, path: str, *, field_selector: str = "", label_selector: str = "") -> tuple[Json, ...]:
        """Fetch the objects of a collection, in the server's order."""
        params = {"fieldSelector": field_selector, "labelSelector": label_selector}
        answer = await self.call("GET", path, params={k: v for k, v in params.items() if v})
        return tuple(answer.get("items") or ())

    async def create(self, path: str, body: Mapping[str, Any], params: Params = None) -> Json:
        """Create an object in the collection *path*, or post to a subresource such as ``.../binding``."""
        return await self.call("POST", path, body, params)

    async def ensure(self, path: str, body: Mapping[str, Any]) -> None:
        """Create an object unless it exists."""
        try:
            await self.create(path, body)
        except ApiStatusError as e:
            if e.reason != "AlreadyExists":
                raise

    async def update(self, path: str, body: Mapping[str, Any], params: Params = None) -> Json:
        """Replace the object at *path*; with a ``resourceVersion`` in *body*, it may conflict."""
        return await self.call("PUT", path, body, params)

    async def patch(
        self,
        path: str,
        body: Any,
        kind: PatchKind = PatchKind.MERGE,
        params: Params = None,
    ) -> Json:
        """Change the object at *path*; `PatchKind.JSON` takes a list of operations."""
        return await self.call("PATCH", path, body, params, kind.value)

    async def delete(
        self,
        path: str,
        *,
        grace_s: int | None = None,
        uid: str = "",
        propagation: str = "",
        params: Params = None,
    ) -> Json:
        """Delete the object at *path*; with *uid*, only if it is still that object."""
        options: Json = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        if propagation:
            options["propagationPolicy"] = propagation
        if uid:
            options["preconditions"] = {"uid": uid}
        return await self.call("DELETE", path, options, params)


class ApiClient(ApiCalls):
    """Calls to one API server as one user; an async context manager."""

    def __init__(self, *, server: str, token: str, ca_pem: bytes, timeout_s: float = 10.0) -> None:
        self._server = server.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        self._renamed: Mapping[str, str] = {}
        self._ca_pem = ca_pem
        self._tls = ssl.create_default_context(cadata=ca_pem.decode("ascii"))
        self._timeout_s = timeout_s
        self._opened: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._opened = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._tls, limit=0),
            headers=self._headers,
            timeout=aiohttp.ClientTimeout(total=self._timeout_s),
            read_bufsize=_LINE_BYTES,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            await self._opened.close()
            self._opened = None

    @property
    def server(self) -> str:
        """The address of the API server, without a trailing slash."""
        return self._server

    def as_user(self, token: str) -> Self:
        """Return another, unopened client of the same server, with *token*."""
        return type(self)(server=self._server, token=token, ca_pem=self._ca_pem, timeout_s=self._timeout_s)

    def impersonating(self, name: str, group: str) -> Self:
        """Return another, unopened client of the same server that impersonates *name*, as administrators may."""
        found = type(self)(server=self._server, token="", ca_pem=self._ca_pem, timeout_s=self._timeout_s)
        found._headers = {**self._headers, "Impersonate-User": name, "Impersonate-Group": group}
        return found

    def named(self, name: str) -> Self:
        """Return this open client as another user *name* of the same group, if it impersonates one."""
        found = copy(self)
        found._renamed = {"Impersonate-User": name} if "Impersonate-User" in self._headers else {}
        return found

    async def watch(self, path: str, *, resource_version: str = "", params: Params = None) -> AsyncIterator[WatchEvent]:
        """Follow a collection until the server ends the stream.

        Raises:
            ApiStatusError: an immediate refusal, or an ERROR event; 410 means that a new list is needed.
        """
        query = {"watch": "true", "allowWatchBookmarks": "true", **(params or {})}
        if resource_version:
            query["resourceVersion"] = resource_version
        no_end = aiohttp.ClientTimeout(total=None, sock_connect=self._timeout_s)
        async with self._session.get(self._server + path, params=query, timeout=no_end) as response:
            if response.status != 200:
                raise _refusal(response.status, await response.read())
            async for line in response.content:
                event = _DECODER.decode(line)
                if event["type"] == "ERROR":
                    raise _from_status(event["object"])
                yield WatchEvent(type=event["type"], object=event["object"])

    async def follow(self, path: str, params: Params = None) -> AsyncIterator[WatchEvent]:
        """Yield the objects of a collection and then every change, without end.

        After a failure it lists again: what is missing then is DELETED.
        """
        known: dict[str, Json] = {}
        while True:
            try:
                listed = await self.get(path, params)
                there = {one["metadata"]["uid"]: one for one in listed["items"]}
                for uid in [uid for uid in known if uid not in there]:
                    yield WatchEvent(type="DELETED", object=known.pop(uid))
                for uid, one in there.items():
                    yield WatchEvent(type="MODIFIED" if uid in known else "ADDED", object=one)
                known = there
                version = listed["metadata"]["resourceVersion"]
                async for event in self.watch(path, resource_version=version, params=params):
                    if event.type == "BOOKMARK":
                        continue
                    if event.type == "DELETED":
                        known.pop(event.object["metadata"]["uid"], None)
                    else:
                        known[event.object["metadata"]["uid"]] = event.object
                    yield event
            except WORLD_FAILED as e:
                _log.warning("watch lost", path=path, error=str(e))
            await asyncio.sleep(_AGAIN_S)

    @property
    def _session(self) -> aiohttp.ClientSession:
        if self._opened is None:
            raise RuntimeError("the client is used outside its `async with`")
        return self._opened

    async def call(self, method: str, path: str, body: Any = None, params: Params = None, media: str = JSON) -> Json:
        status, _, raw = await self.exchange(method, path, body, params, media)
        if status >= 400:
            raise _refusal(status, raw)
        answer: Json = _DECODER.decode(raw)
        return answer

    async def exchange(
        self, method: str, path: str, body: Any = None, params: Params = None, media: str = JSON
    ) -> tuple[int, Sequence[str], bytes]:
        """Send one request; return status, warnings (as headers) and body of any answer."""
        data = None if body is None else sendable(msgspec.json.encode(body))
        headers = {"Content-Type": media, **self._renamed} if data is not None else self._renamed
        async with self._session.request(
            method, self._server + path, data=data, params=params, headers=headers
        ) as response:
            return response.status, response.headers.getall("Warning", []), await response.read()


def node_path(node_name: str) -> str:
    return f"/api/v1/nodes/{node_name}"


def pod_path(pod: Mapping[str, Any]) -> str:
    metadata = pod["metadata"]
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"


def within(collection: str, namespace: str) -> str:
    """Return the path of the objects of *collection*, a path of all namespaces, in one."""
    api, _, plural = collection.rpartition("/")
    return f"{api}/namespaces/{namespace}/{plural}"


def collection_of(document: Mapping[str, Any]) -> str:
    """Return the path at which *document* is created, from its apiVersion, kind and namespace."""
    api, kind = document["apiVersion"], document["kind"].lower()
    namespace = document["metadata"].get("namespace")
    place = f"/namespaces/{namespace}" if namespace else ""
    plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}es" if kind.endswith("s") else f"{kind}s"
    return f"/{'apis' if '/' in api else 'api'}/{api}{place}/{plural}"


def sendable(raw: bytes) -> bytes | io.BytesIO:
    """Return a body for aiohttp, which warns of more than 1 MiB in one piece."""
    return raw if len(raw) < 2**20 else io.BytesIO(raw)


def _refusal(status: int, raw: bytes) -> ApiStatusError:
    try:
        body = _DECODER.decode(raw)
    except msgspec.DecodeError:
        return ApiStatusError(status, "", raw[:200].decode("utf-8", "replace"))
    if not isinstance(body, dict):
        return ApiStatusError(status, "", raw[:200].decode("utf-8", "replace"))
    return _from_status({"code": status, **body})


def _from_status(body: Mapping[str, Any]) -> ApiStatusError:
    return ApiStatusError(int(body.get("code", 500)), str(body.get("reason", "")), str(body.get("message", "")))
