"""Disks for examples with volume claims: a storage class with volumes on single nodes, and its provisioner."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from sandbox.client import ApiClient, ApiStatusError
from sandbox.demo.examples import Example
from sandbox.players.provisioner import NAME, Provisioner

# The storageClassName of claims.
CLASS: Final = "local-disks"
CLAIM: Final = "PersistentVolumeClaim"
_CLASSES: Final = "/apis/storage.k8s.io/v1/storageclasses"


@asynccontextmanager
async def provided(client: ApiClient, examples: Sequence[Example]) -> AsyncIterator[None]:
    """Provide volumes for claims of `CLASS` inside this context; do nothing if none of *examples* has one."""
    if not any(manifest["kind"] == CLAIM for example in examples for manifest in example.manifests):
        yield
        return
    spec = {"provisioner": NAME, "volumeBindingMode": "WaitForFirstConsumer"}
    try:
        await client.create(_CLASSES, {"metadata": {"name": CLASS}, **spec})
    except ApiStatusError as e:
        if e.reason != "AlreadyExists":
            raise
    playing = asyncio.create_task(Provisioner(client).run(), name="provisioner")
    try:
        yield
    finally:
        playing.cancel()
