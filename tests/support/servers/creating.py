"""Clients that create pods with shares all the time, through the API server, and count those that were not admitted."""

import asyncio
import itertools
import re
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from sandbox.client import ApiClient, ApiStatusError
from tests.support.servers.realapi import RealApi
from tests.support.servers.rest import Rest, eventually

CLIENTS = 8


class Creating:
    """What became of the creates: numbers of pods that were admitted and completed, and the answers to all others."""

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s
        self.made: list[int] = []
        self.lost: list[object] = []
        self._numbers = itertools.count()
        self._over = asyncio.Event()

    @property
    def answered(self) -> int:
        """How many creates were answered."""
        return len(self.made) + len(self.lost)

    async def until(self, count: int) -> None:
        """Wait until *count* were answered."""
        while self.answered < count:  # noqa: ASYNC110 (nobody tells of it)
            await asyncio.sleep(0.05)

    async def create(self, session: aiohttp.ClientSession, pods: str) -> None:
        """Create one after the other until all is over."""
        while not self._over.is_set():
            number = next(self._numbers)
            async with session.post(pods, json=pod(f"p-{number}", number)) as answer:
                body = await answer.json()
            if answer.status == 201 and _is_completed(body):
                self.made.append(number)
            else:
                self.lost.append((answer.status, body.get("message", body)))
            await asyncio.sleep(self._pause_s)

    def end(self) -> None:
        """Create no more."""
        self._over.set()


async def until_completed(admin: Rest, namespace: str) -> None:
    """Wait until the API server calls the webhook: it learns of the registration by watch."""
    await eventually(
        lambda: admin.post(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod("asks")),
        lambda answer: answer.status == 201 and _is_completed(answer.body),
    )


async def until_answered(admin: ApiClient, pod: Mapping[str, Any], words: str = "") -> None:
    """Wait until a create of *pod* is refused with *words*, or is taken without any: entries are learnt of by watch."""
    async with asyncio.timeout(90):
        while True:
            try:
                await admin.create("/api/v1/namespaces/default/pods", pod, {"dryRun": "All"})
                said = ""
            except ApiStatusError as e:
                said = e.message
            if said == "" if words == "" else re.search(words, said):
                return
            await asyncio.sleep(0.2)


def _is_completed(body: Any) -> bool:
    return "volcano.sh/vgpu-number" in body["spec"]["containers"][0]["resources"]["limits"]


def pod(name: str, number: int = 0) -> dict[str, object]:
    limits = {"volcano.sh/vgpu-memory": str(1000 + number)}
    container = {"name": "main", "image": "example.test/none", "resources": {"limits": limits}}
    return {"metadata": {"name": name}, "spec": {"containers": [container]}}


@asynccontextmanager
async def creating(
    realapi: RealApi, namespace: str, *, pause_s: float = 0.1, dry_run: bool = False
) -> AsyncIterator[Creating]:
    """Create pods in *namespace* while the block runs.

    pause_s: what each client rests after an answer: as many calls as the cores take would be the test's own cost.
    dry_run: nothing is stored, for those that create for minutes: to delete tens of thousands of pods takes the server
    longer than a request may.
    """
    found = Creating(pause_s)
    context = await asyncio.to_thread(ssl.create_default_context, cafile=str(realapi.ca_file))
    # A connection for each call: who keeps one never meets what a new one would.
    connector = aiohttp.TCPConnector(ssl=context, force_close=True)
    headers = {"Authorization": f"Bearer {realapi.admin_token}"}
    pods = f"{realapi.url}/api/v1/namespaces/{namespace}/pods{'?dryRun=All' if dry_run else ''}"
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session, asyncio.TaskGroup() as tasks:
        for _ in range(CLIENTS):
            tasks.create_task(found.create(session, pods))
        try:
            yield found
        finally:
            found.end()
