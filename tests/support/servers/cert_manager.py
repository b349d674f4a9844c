"""cert-manager on a real API server: its own controllers and injector in one process, `tests/tools/cert-manager`."""

import asyncio
import base64
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.servers import go_tools
from tests.support.servers.manifests import NAMESPACE, Json, Runner, kubectl
from tests.support.servers.realapi import RealApi
from tests.support.servers.rest import MERGE_PATCH, Rest, connect, eventually
from tests.support.servers.stage_realapi import OwnCertificates

ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
PAIRS: Final = ("cardshare-webhook-tls", "cardshare-controller-tls")
_WITHIN_S: Final = 120.0


def program_or_skip() -> Path:
    """Where cert-manager is, with a folder `crds` beside it."""
    program = go_tools.find(go_tools.CERT_MANAGER, os.environ)
    if program is None:
        pytest.skip("cert-manager is not here; build it: tests.support.servers.go_tools")
    return program


async def define(api: RealApi, program: Path) -> None:
    """Serve its kinds."""
    await kubectl(api, "apply", "--server-side", "-f", str(program.with_name("crds")))
    await kubectl(api, "wait", "--for=condition=Established", "--timeout=120s", "crd", "--all")


@asynccontextmanager
async def cert_manager(api: RealApi) -> AsyncIterator[None]:
    """Serve its kinds, and run it; remove its objects at the end, because nobody else does."""
    program = program_or_skip()
    await define(api, program)
    child = await asyncio.to_thread(api.children.start, "cert-manager", [program, api.kubeconfig])
    try:
        yield
        assert child.exit_code is None, child.log_tail()
    finally:
        await asyncio.to_thread(api.children.stop, child)
        await kubectl(api, "delete", "issuers,certificates,certificaterequests", "-A", "--all")


class OfCertManager(OwnCertificates):
    """Certificates as cert-manager makes them."""

    def here(self, documents: Sequence[Json]) -> Sequence[Json]:
        """See `OwnCertificates.here`; here the webhook asks the controller at an address."""
        return tuple(map(_also_for_this_machine, documents))

    async def made(self, runner: Runner, documents: Sequence[Json]) -> str:
        """See `OwnCertificates.made`."""
        api = runner.api
        words = ("--for=condition=Ready", "--timeout=120s", "certificate", "--all")
        said, _ = await kubectl(api, "-n", NAMESPACE, "wait", *words)
        async with connect(api.url, api.ca_file, api.admin_token) as admin:
            held = Held(admin)
            await held.until_trusted((await held.secret(PAIRS[0]))["ca.crt"])
        return said


def _also_for_this_machine(document: Json) -> Json:
    if (document["kind"], document["metadata"]["name"]) != ("Certificate", PAIRS[1]):
        return document
    return {**document, "spec": {**document["spec"], "ipAddresses": ["127.0.0.1"]}}


class Held:
    """What the cluster holds of certificates."""

    def __init__(self, admin: Rest) -> None:
        self.admin = admin

    async def secret(self, name: str) -> dict[str, bytes]:
        """What a Secret of cardshare holds; {} where it is missing."""
        answer = await self.admin.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/{name}")
        data = answer.body.get("data", {}) if answer.status == 200 else {}
        return {key: base64.b64decode(text) for key, text in data.items()}

    async def bundles(self) -> list[str]:
        """The caBundle of each entry of both webhook configurations; "" where there is none."""
        found: list[Any] = []
        for kind in ("mutating", "validating"):
            answer = await self.admin.get(f"{ADMISSION}/{kind}webhookconfigurations/cardshare")
            found += [entry["clientConfig"].get("caBundle", "") for entry in answer.body["webhooks"]]
        return found

    async def until_trusted(self, ca_pem: bytes) -> None:
        """Wait until every entry trusts *ca_pem*, be it alone or beside others."""
        await eventually(
            self.bundles,
            lambda found: all(ca_pem in base64.b64decode(bundle) for bundle in found),
            deadline_s=_WITHIN_S,
        )

    async def renew(self, name: str) -> dict[str, bytes]:
        """Have cert-manager issue a Certificate again, as `cmctl renew` does: what its Secret holds then."""
        path = f"/apis/cert-manager.io/v1/namespaces/{NAMESPACE}/certificates/{name}"
        certificate = (await self.admin.get(path)).body
        secret, status = certificate["spec"]["secretName"], certificate["status"]
        before = await self.secret(secret)
        issuing = {
            "type": "Issuing",
            "status": "True",
            "reason": "ManuallyTriggered",
            "message": "renewed by hand",
            "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        kept = [one for one in status["conditions"] if one["type"] != "Issuing"]
        answer = await self.admin.patch(f"{path}/status", {"status": {"conditions": [*kept, issuing]}}, MERGE_PATCH)
        assert answer.status == 200, answer
        return await self.until_another(secret, before)

    async def until_another(self, name: str, before: dict[str, bytes]) -> dict[str, bytes]:
        """Wait until the Secret holds another certificate than *before*: what it holds."""
        return await eventually(
            lambda: self.secret(name),
            lambda found: found.get("tls.crt", before["tls.crt"]) != before["tls.crt"],
            deadline_s=_WITHIN_S,
        )
