"""One Lease in memory, with the API server's rules about versions, for tests in virtual time."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from kube.errors import ApiConflictError, ApiError, ApiNotFoundError, ApiUnknownError
from kube.lease import Instant
from kube.transport import Response

ANSWER_S = 0.01


class FakeLeases:
    """The Lease itself.

    writes: (seconds, who) of every write that was stored.
    """

    def __init__(self) -> None:
        self.spec: dict[str, Any] | None = None
        self.version = 0
        self.writes: list[tuple[float, str]] = []

    def edit(self, **spec: Any) -> None:
        """Somebody edits it by hand."""
        assert self.spec is not None
        self.spec |= spec
        self.version += 1

    def apply(self, spec: dict[str, Any]) -> None:
        """Somebody makes it, or replaces it."""
        self.spec = spec
        self.version += 1

    def delete(self) -> None:
        """Somebody deletes it."""
        self.spec = None
        self.version += 1


class Way:
    """One candidate's way to it.

    before, after: asked with the verb before a call is done and after it: an error to raise, or None. page: what a
    proxy answers in the API server's place, if not b"".
    """

    def __init__(self, leases: FakeLeases) -> None:
        self.before: Callable[[str], ApiError | None] = lambda verb: None
        self.after: Callable[[str], ApiError | None] = lambda verb: None
        self.answers = asyncio.Event()
        self.answers.set()
        self.page = b""
        self._leases = leases

    def swallow(self) -> None:
        """Let nothing through from now on."""
        self.answers.clear()

    async def request(self, verb, path, *, body=None, content_type="", deadline_s=None, purpose=None, **_):
        try:
            async with asyncio.timeout(deadline_s):
                await asyncio.sleep(ANSWER_S)
                await self.answers.wait()
        except TimeoutError as e:
            raise ApiUnknownError(verb=verb, path=path, message="no answer") from e
        self._raise(self.before(verb))
        if self.page:
            return Response(status=200, headers={}, body=self.page)
        answer = self._answer(verb, path, json.loads(body or b"{}"))
        self._raise(self.after(verb))
        return Response(status=200, headers={}, body=json.dumps(answer).encode())

    @staticmethod
    def _raise(error: ApiError | None) -> None:
        if error is not None:
            raise error

    def _answer(self, verb: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        leases = self._leases
        if verb == "POST":
            if leases.spec is not None:
                raise ApiConflictError(verb=verb, path=path, status=409, reason="AlreadyExists")
            leases.spec = {}
        elif leases.spec is None:
            raise ApiNotFoundError(verb=verb, path=path, status=404)
        if verb == "PATCH" and body["metadata"]["resourceVersion"] != str(leases.version):
            raise ApiConflictError(verb=verb, path=path, status=409, reason="Conflict")
        if verb != "GET":
            leases.spec |= body["spec"]
            leases.version += 1
            now_s = asyncio.get_running_loop().time()
            leases.writes.append((now_s, body["spec"]["holderIdentity"]))
        return {"kind": "Lease", "metadata": {"resourceVersion": str(leases.version)}, "spec": leases.spec}


class Clocks:
    """Virtual clocks that a test may move beside the loop's; *asleep_s*: for how long all was stopped."""

    def __init__(self) -> None:
        self.asleep_s = 0.0
        self.wall_offset_s = 1_700_000_000.0

    def __call__(self) -> Instant:
        now_s = asyncio.get_running_loop().time() + self.asleep_s
        return Instant(now_s, now_s + self.wall_offset_s)
