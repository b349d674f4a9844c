"""The API server's calls for tests of the controller: remembers what was sent, answers as told."""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from kube.calls import Calls
from kube.errors import ApiConflictError, ApiError, ApiNotFoundError


class FakeCalls(Calls):
    """Answers every write with a new version; *failures* are raised first, one per call, by name of the call;
    with *fails_for*, of a path that has it only."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, Any]] = []
        self.failures: dict[str, list[ApiError]] = {}
        self.pods: dict[str, bytes] = {}
        self.raw: dict[str, bytes] = {}
        self._as_stored: dict[str, Callable[[str, str], bytes]] = {}
        self.version = 1000
        # Which version of its pod each change of annotations named.
        self.cleared_versions: list[str] = []
        self.delay_s = 0.0
        self.fails_for = ""

    def fails(self, call: str, *errors: ApiError) -> None:
        self.failures.setdefault(call, []).extend(errors)

    def answers_patch(self, name: str, as_stored: Callable[[str, str], bytes]) -> None:
        """Answer patches of pod *name* with the whole pod, which has a new version then."""
        self._as_stored[name] = as_stored

    def of(self, call: str) -> list[tuple[str, Any]]:
        return [(path, body) for name, path, body in self.sent if name == call]

    async def _note(self, call: str, path: str, body: Any) -> str:
        self.sent.append((call, path, body))
        await asyncio.sleep(self.delay_s)
        if self.failures.get(call) and self.fails_for in path:
            raise self.failures[call].pop(0)
        self.version += 1
        return str(self.version)

    async def bind(self, namespace: str, name: str, **what: Any) -> None:
        await self._note("bind", f"{namespace}/{name}", what)

    async def get_pod(self, namespace: str, name: str) -> bytes:
        await self._note("get_pod", f"{namespace}/{name}", None)
        if f"{namespace}/{name}" not in self.pods:
            raise not_found()
        return self.pods[f"{namespace}/{name}"]

    async def get_raw(self, path: str, params: Mapping[str, str] | None = None) -> bytes:
        await self._note("get_raw", path, None)
        if path not in self.raw:
            raise not_found()
        return self.raw[path]

    async def patch(self, path: str, changes: Any, *, content_type: str = "", dry_run: bool = False) -> bytes:
        version = await self._note("patch", path, changes)
        name = path.removesuffix("/status").rpartition("/")[2]
        if name in self._as_stored:
            answer = self.pods[f"default/{name}"] = self._as_stored[name](name, version)
            return answer
        return json.dumps({"metadata": {"resourceVersion": version}}).encode()

    async def patch_pod_annotations(
        self,
        namespace: str,
        name: str,
        annotations: Mapping[str, str | None],
        *,
        uid: str = "",
        resource_version: str = "",
    ) -> str:
        self.cleared_versions.append(resource_version)
        return await self._note("annotate", f"{namespace}/{name}", dict(annotations))

    async def create_event(self, namespace: str, event: Any) -> str:
        return await self._note("create_event", namespace, event)

    async def patch_event(self, namespace: str, name: str, changes: Any) -> str:
        return await self._note("patch_event", f"{namespace}/{name}", changes)


def not_found() -> ApiNotFoundError:
    return ApiNotFoundError(verb="GET", path="/", status=404, reason="NotFound", message="not found")


def conflict(message: str = "the object has been modified", reason: str = "Conflict") -> ApiConflictError:
    return ApiConflictError(verb="POST", path="/", status=409, reason=reason, message=message)
