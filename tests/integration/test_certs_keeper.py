"""python -m certs run, as a process: what somebody breaks is right again within seconds."""

import asyncio
import base64
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp

from certs.authority import Authority, issue, new_authority
from core.names import CERTIFICATES_KEPT
from sandbox.client import PatchKind
from sandbox.demo.processes import free_port
from tests.support.worlds.controller_rig import Rig

NAMESPACE = "cards"
SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"
SECRET = f"{SECRETS}/tls"
POD = f"/api/v1/namespaces/{NAMESPACE}/pods/keeper-0"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
HEALED_WITHIN_S = 60.0
PAIR = {"tls.crt", "tls.key", "ca.crt"}
HOLDS = {"ca": {"ca.crt", "ca.key"}, "tls": PAIR, "asked": PAIR}
NAMES = tuple(HOLDS)


@dataclass(frozen=True, slots=True)
class Running:
    """The process, and where its plain port is."""

    process: asyncio.subprocess.Process
    url: str

    async def scraped(self) -> dict[str, float]:
        """Its series, by name and labels, and whether it is ready, as "ready"."""
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{self.url}/metrics") as answer:
                text = await answer.text()
            async with session.get(f"{self.url}/readyz") as answer:
                ready = answer.status == 200
        lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in lines} | {"ready": ready}


@asynccontextmanager
async def keeping(world: Rig) -> AsyncIterator[Running]:
    """The process in its pod, beside a webhook configuration of two entries."""
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
    await world.ensure(POD.rpartition("/")[0], "keeper-0", spec={"containers": [{"name": "c", "image": "i"}]})
    kubeconfig: Path = await asyncio.to_thread(world.write_admins_kubeconfig)
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "certs", "run", "--every", "0.5", "--kubeconfig", str(kubeconfig)),
        *("--service", "web", "--namespace", NAMESPACE, "--ca-secret", "ca", "--secret", "tls", "--webhook", "cards"),
        *("--pair", "asked=asked.cards.svc", "--metrics-listen", f"127.0.0.1:{port}", "--pod", f"{NAMESPACE}/keeper-0"),
        env={"PATH": os.environ["PATH"], "PYTHONSAFEPATH": "1"},
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield Running(process, f"http://127.0.0.1:{port}")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def seen(world: Rig):
    """(what the Secrets hold, by name, what each entry trusts); nothing where there is none."""
    secrets = {one["metadata"]["name"]: one.get("data", {}) for one in await world.client.list(SECRETS)}
    found = await world.client.get(f"{CONFIGURATIONS}/cards")
    trusted = [base64.b64decode(one["clientConfig"].get("caBundle", "")) for one in found["webhooks"]]
    return {name: secrets.get(name, {}) for name in NAMES}, trusted


async def healed(world: Rig, wanted):
    """Wait until *wanted* holds of what is seen; the seconds that it took."""
    began = time.monotonic()

    async def asked():
        return wanted(*await seen(world))

    await world.until(asked, HEALED_WITHIN_S)
    return time.monotonic() - began


def pem(data, name):
    return base64.b64decode(data[name])


async def put(world: Rig, name: str, parts):
    await world.client.patch(
        f"{SECRETS}/{name}", {"data": {key: base64.b64encode(value).decode() for key, value in parts.items()}}
    )


async def until(world: Rig, asked):
    """Wait until *asked* holds; what it found."""
    found: list[Any] = []

    async def told():
        found[:] = [await asked()]
        return bool(found[0])

    await world.until(told, HEALED_WITHIN_S)
    return found[0]


def is_good(data, trusted):
    return all(data.values()) and all(base64.b64decode(data["ca"]["ca.crt"]) in one for one in trusted)


async def trust(world: Rig, *bundles: bytes):
    changes = [
        {"op": "add", "path": f"/webhooks/{at}/clientConfig/caBundle", "value": base64.b64encode(bundle).decode()}
        for at, bundle in enumerate(bundles)
    ]
    await world.client.patch(f"{CONFIGURATIONS}/cards", changes, PatchKind.JSON)


async def test_a_deleted_secret_and_a_foreign_bundle_are_right_again_within_seconds(rig):
    async with rig(nodes=()) as world, keeping(world) as running:
        await healed(world, is_good)
        before, _ = await seen(world)
        assert {name: set(data) for name, data in before.items()} == HOLDS

        def as_before(data, trusted):
            return data == before and is_good(data, trusted)

        for name in NAMES:
            await world.client.delete(f"{SECRETS}/{name}")
            await healed(world, as_before)

        foreign = new_authority("somebody", 1, datetime.now(UTC)).cert_pem
        for bundles in ((b"", b""), (foreign, foreign), (base64.b64decode(before["ca"]["ca.crt"]), b"")):
            await trust(world, *bundles)
            await healed(world, is_good)

        for path, key in ((SECRET, "tls.key"), (f"{SECRETS}/ca", "ca.key"), (f"{SECRETS}/asked", "ca.crt")):
            await world.client.patch(path, {"data": {key: base64.b64encode(b"torn").decode()}})
            await healed(world, as_before)

        for name in NAMES:
            await world.client.delete(f"{SECRETS}/{name}")
        await trust(world, foreign, b"")
        await healed(world, as_before)

        running.process.terminate()
        async with asyncio.timeout(60):
            _, said = await running.process.communicate()
        assert running.process.returncode == 0, said.decode()
        assert said.decode().count("put back what it had") >= 8
        assert "PRIVATE" not in said.decode()


async def test_a_pair_and_then_the_authority_are_renewed_when_two_thirds_of_their_life_are_over(rig):
    async with rig(nodes=()) as world, keeping(world):
        await healed(world, is_good)
        before, _ = await seen(world)
        now = datetime.now(UTC)
        authority = Authority(cert_pem=pem(before["ca"], "ca.crt"), key_pem=pem(before["ca"], "ca.key"))
        old = issue(authority, ("web.cards.svc",), (), 3, now - timedelta(days=2, hours=1))
        await put(world, "tls", {"tls.crt": old.cert_pem, "tls.key": old.key_pem})
        # Not what it remembers, though that is good: what somebody put there is judged, and this one is due.
        await healed(world, lambda data, _: pem(data["tls"], "tls.crt") != old.cert_pem)
        after, _ = await seen(world)
        assert (after["ca"], after["asked"]) == (before["ca"], before["asked"])

        due = new_authority("cardshare webhook CA", 3, now - timedelta(days=2, hours=1))
        await put(world, "ca", {"ca.crt": due.cert_pem, "ca.key": due.key_pem})
        await healed(world, lambda data, trusted: is_good(data, trusted) and pem(data["ca"], "ca.key") != due.key_pem)


async def test_it_shows_what_it_keeps_and_what_is_not_well(rig):
    async with rig(nodes=()) as world, keeping(world) as running:
        await healed(world, is_good)

        async def told(status, reason):
            found = {one["type"]: one for one in (await world.client.get(POD))["status"].get("conditions", ())}
            one = found.get(CERTIFICATES_KEPT, {})
            return (one.get("status"), one.get("reason")) == (status, reason) and one

        async def shown(name, value):
            return (await running.scraped()).get(name) == value

        kept = await until(world, lambda: told("True", "Kept"))
        assert kept["message"].count(" until ") == 3
        found = await running.scraped()
        assert found["ready"]
        assert 1824 < found['cardshare_certs_days_left{secret="ca"}'] < 1825
        assert 89 < found['cardshare_certs_days_left{secret="tls"}'] < 90
        assert 89 < found['cardshare_certs_days_left{secret="asked"}'] < 90
        assert found['cardshare_certs_bundle_right{configuration="cards"}'] == 1
        assert found['cardshare_certs_writes_total{secret="ca",what="made"}'] == 1
        assert (found["cardshare_certs_failing"], found["cardshare_certs_failures_total"]) == (0, 0)

        await world.client.delete(SECRET)
        await until(world, lambda: shown('cardshare_certs_writes_total{secret="tls",what="put_back"}', 1))
        await trust(world, b"", b"")
        name = "mutatingwebhookconfigurations/cards"
        await until(world, lambda: shown(f'cardshare_certs_bundle_writes_total{{configuration="{name}"}}', 2))

        await world.client.delete(f"{CONFIGURATIONS}/cards")
        lost = await until(world, lambda: told("False", "Untrusted"))
        assert "there is none of that name" in lost["message"]
        await until(world, lambda: shown('cardshare_certs_bundle_right{configuration="cards"}', 0))
        assert not (await running.scraped())["ready"]
