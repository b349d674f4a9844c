"""Where the API server double finds a webhook. What a real server does too is one of `tests.support.promises`."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest_asyncio

from sandbox.api.webhooks import ADDRESS_ANNOTATION
from tests.support.promises.promises import World, pod, world_of
from tests.support.promises.promises_hook import answer_of, registered, serving
from tests.support.promises.promises_servers import double


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with double(tmp_path) as server, world_of(server) as found:
        yield found


async def test_a_service_is_called_at_the_address_that_its_annotation_says(world: World):
    service_path = f"{world.core}/services/hook"

    async def asked() -> Any:
        return await world.rest.post(f"{world.pods}?dryRun=All", pod("p", labels={"service": "1"}))

    async with serving(world, {"any": answer_of}, f"hook.{world.namespace}.svc") as hook:
        entry = hook.entry("h", "any", world, objectSelector={"matchLabels": {"service": "1"}})
        service = {"namespace": world.namespace, "name": "hook", "path": "/any"}
        entry["clientConfig"] = {"service": service, "caBundle": entry["clientConfig"]["caBundle"]}
        async with registered(world, hook, [entry]):
            await world.rest.made(
                f"{world.core}/services", {"metadata": {"name": "hook"}, "spec": {"ports": [{"port": 443}]}}
            )
            assert "no endpoints available" in (await asked()).message
            address = {ADDRESS_ANNOTATION: f"127.0.0.1:{hook.port}"}
            await world.rest.patch(service_path, {"metadata": {"annotations": address}})
            assert (await asked()).status == 201
            ports = [{"port": 443, "targetPort": hook.port}]
            spec = {"type": "ExternalName", "externalName": "127.0.0.1", "ports": ports}
            await world.rest.patch(service_path, {"metadata": {"annotations": None}, "spec": spec})
            assert (await asked()).status == 201
        assert len(hook.reviews) == 2
