"""python -m certs run, as a process: what somebody breaks is right again within seconds."""

import asyncio
import base64
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from certs.authority import new_authority
from sandbox.client import PatchKind
from tests.support.worlds.controller_rig import Rig

NAMESPACE = "cards"
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/tls"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
HEALED_WITHIN_S = 10.0


@asynccontextmanager
async def keeping(world: Rig) -> AsyncIterator[asyncio.subprocess.Process]:
    """The process, beside our namespace and a webhook configuration of two entries."""
    await world.ensure("/api/v1/namespaces", NAMESPACE)
    entries = [
        {
            "name": f"{name}.cards.example.org",
            "clientConfig": {"service": {"namespace": NAMESPACE, "name": "web", "path": "/mutate"}},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "rules": [],
        }
        for name in ("pods", "bindings")
    ]
    await world.ensure(CONFIGURATIONS, "cards", webhooks=entries)
    kubeconfig: Path = await asyncio.to_thread(world.write_admins_kubeconfig)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "certs", "run", "--every", "0.5", "--kubeconfig", str(kubeconfig)),
        *("--service", "web", "--namespace", NAMESPACE, "--secret", "tls", "--webhook", "cards"),
        env={"PATH": os.environ["PATH"], "PYTHONSAFEPATH": "1"},
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def seen(world: Rig):
    """(what the Secret holds, what each entry trusts); nothing where there is none."""
    secrets = {one["metadata"]["name"]: one for one in await world.client.list(SECRET.removesuffix("/tls"))}
    found = await world.client.get(f"{CONFIGURATIONS}/cards")
    trusted = [base64.b64decode(one["clientConfig"].get("caBundle", "")) for one in found["webhooks"]]
    return secrets.get("tls", {}).get("data", {}), trusted


async def healed(world: Rig, wanted):
    """Wait until *wanted* holds of what is seen; the seconds that it took."""
    began = time.monotonic()

    async def asked():
        return wanted(*await seen(world))

    await world.until(asked, HEALED_WITHIN_S)
    return time.monotonic() - began


def is_good(data, trusted):
    return bool(data) and all(base64.b64decode(data["ca.crt"]) in one for one in trusted)


async def trust(world: Rig, *bundles: bytes):
    changes = [
        {"op": "add", "path": f"/webhooks/{at}/clientConfig/caBundle", "value": base64.b64encode(bundle).decode()}
        for at, bundle in enumerate(bundles)
    ]
    await world.client.patch(f"{CONFIGURATIONS}/cards", changes, PatchKind.JSON)


async def test_a_deleted_secret_and_a_foreign_bundle_are_right_again_within_seconds(rig):
    async with rig(nodes=()) as world, keeping(world) as process:
        await healed(world, is_good)
        before, _ = await seen(world)

        await world.client.delete(SECRET)
        await healed(world, lambda data, trusted: data == before and is_good(data, trusted))

        foreign = new_authority("somebody", 1, datetime.now(UTC)).cert_pem
        for bundles in ((b"", b""), (foreign, foreign), (base64.b64decode(before["ca.crt"]), b"")):
            await trust(world, *bundles)
            await healed(world, is_good)

        await world.client.patch(SECRET, {"data": {"tls.key": base64.b64encode(b"torn").decode()}})
        await healed(world, lambda data, trusted: data == before and is_good(data, trusted))

        await world.client.delete(SECRET)
        await trust(world, foreign, b"")
        await healed(world, lambda data, trusted: data == before and is_good(data, trusted))

        process.terminate()
        async with asyncio.timeout(10):
            _, said = await process.communicate()
        assert process.returncode == 0, said.decode()
        assert said.decode().count("put back the pair that it had") == 3
        assert "PRIVATE" not in said.decode()
