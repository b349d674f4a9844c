"""Volcano's kinds: installs their CustomResourceDefinitions."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any, Final

import yaml

from sandbox.client import ApiClient, ApiStatusError
from sandbox.players.volcano import GROUPS, JOBS, QUEUES

_FILE: Final = Path(__file__).parent / "volcano-crds.yaml"
_PATH: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_LOOK_EVERY_S: Final = 0.05
_SERVED_WITHIN_S: Final = 20.0


def definitions() -> tuple[dict[str, Any], ...]:
    """Return the CustomResourceDefinitions of PodGroup, Queue and Job."""
    return tuple(yaml.safe_load_all(_FILE.read_text(encoding="utf-8")))


async def install(client: ApiClient) -> None:
    """Install missing definitions, and wait until they are served.

    Raises:
        ApiStatusError: the server refuses.
        TimeoutError: it does not serve them.
    """
    for definition in await asyncio.to_thread(definitions):
        try:
            await client.create(_PATH, definition)
        except ApiStatusError as e:
            if e.reason != "AlreadyExists":
                raise
    async with asyncio.timeout(_SERVED_WITHIN_S):
        for path in (JOBS, GROUPS, QUEUES):
            while not await _is_served(client, path):  # noqa: ASYNC110 (there is no event to wait for)
                await asyncio.sleep(_LOOK_EVERY_S)


async def _is_served(client: ApiClient, path: str) -> bool:
    with contextlib.suppress(ApiStatusError):
        await client.get(path)
        return True
    return False
