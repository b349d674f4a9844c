"""Asks an API server and hands back what it answered, whatever that was; knows no kinds and no errors.

For tests that judge the server's answers themselves; the code under test has its own client in `kube`.
"""

import asyncio
import io
import json
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
from multidict import CIMultiDict

_T = TypeVar("_T")

MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Status and decoded JSON; *body* is text where the answer is no JSON. warnings: the Warning headers."""

    status: int
    body: Any
    warnings: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """The message of a meta/v1 Status, or ""."""
        return str(self.body.get("message", "")) if isinstance(self.body, dict) else ""


class Rest:
    """One user's way to one API server; made by `connect`."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def call(
        self, verb: str, path: str, body: object = None, *, content_type: str = "application/json"
    ) -> Answer:
        """Send *body* (JSON; bytes and text as they are) to *path*, which may carry a query."""
        text = body if body is None or isinstance(body, bytes | str) else json.dumps(body)
        # In one piece, the library warns of more than 1 MiB.
        data = io.BytesIO(text.encode()) if isinstance(text, str) and len(text) >= 2**20 else text
        headers = {} if body is None else {"Content-Type": content_type}
        async with self._session.request(verb, self._url + path, data=data, headers=headers) as response:
            told = await response.text()
            warnings = tuple(response.headers.getall("Warning", ()))
            try:
                return Answer(status=response.status, body=json.loads(told), warnings=warnings)
            except json.JSONDecodeError:
                return Answer(status=response.status, body=told, warnings=warnings)

    async def get(self, path: str) -> Answer:
        return await self.call("GET", path)

    async def post(self, path: str, body: object) -> Answer:
        return await self.call("POST", path, body)

    async def put(self, path: str, body: object) -> Answer:
        return await self.call("PUT", path, body)

    async def patch(self, path: str, body: object, content_type: str = MERGE_PATCH) -> Answer:
        return await self.call("PATCH", path, body, content_type=content_type)

    async def delete(self, path: str, body: object = None) -> Answer:
        return await self.call("DELETE", path, body)

    async def made(self, path: str, body: Mapping[str, Any]) -> Any:
        """Create *body* under *path* and return the object; anything but 201 fails the test."""
        answer = await self.post(path, body)
        assert answer.status == 201, answer
        return answer.body

    async def watch(self, path: str, *, limit_s: float = 60.0) -> AsyncIterator[Any]:
        """The events of a watch, decoded, until the server ends it or *limit_s* passed."""
        async for line in self.lines(path, limit_s=limit_s):
            yield json.loads(line)

    async def lines(self, path: str, *, limit_s: float = 60.0) -> AsyncIterator[bytes]:
        """The events of a watch as they were sent, until the server ends it or *limit_s* passed."""
        async with asyncio.timeout(limit_s), self._session.get(self._url + path) as response:
            assert response.status == 200, await response.text()
            async for line in response.content:
                yield line


async def eventually(ask: Callable[[], Awaitable[_T]], good: Callable[[_T], bool], *, deadline_s: float = 60.0) -> _T:
    """Ask again until the answer is good and return it; an answer that stays bad fails the test with its text.

    Twenty times a second at first, and more rarely the longer it takes: the server's work is others' time.
    """
    begun_s = time.monotonic()
    answer = await ask()
    while not good(answer):
        waited_s = time.monotonic() - begun_s
        assert waited_s < deadline_s, f"not within {deadline_s} s; at last {answer}"
        await asyncio.sleep(min(max(0.05, waited_s / 20), 0.5))
        answer = await ask()
    return answer


@asynccontextmanager
async def connect(url: str, ca_file: Path, token: str, headers: Sequence[tuple[str, str]] = ()) -> AsyncIterator[Rest]:
    """Connect to *url* as the user of *token*; *headers* are sent with every call."""
    context = await asyncio.to_thread(ssl.create_default_context, cafile=str(ca_file))
    connector = aiohttp.TCPConnector(ssl=context, limit=256)
    session = aiohttp.ClientSession(
        connector=connector,
        headers=CIMultiDict([("Authorization", f"Bearer {token}"), *headers]),
        timeout=aiohttp.ClientTimeout(total=60),
        read_bufsize=2**22,
    )
    async with session:
        yield Rest(session, url)
