"""A controller serves a scheduler extender: over TLS, to clients with a certificate alone."""

import asyncio
import io
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import aiohttp
import trustme

from certs.files import ensure
from certs.pair import WantedPair
from sandbox.demo.processes import free_port
from tests.support.worlds.controller_rig import NODES, PODS, Rig, pod, share


class Client:
    """What an autoscaler asks; known: by its certificate, stranger: without one."""

    def __init__(self, url: str, known: ssl.SSLContext, stranger: ssl.SSLContext) -> None:
        self.url, self.known, self.stranger = url, known, stranger

    async def ask(self, question: Any, context: ssl.SSLContext | None = None) -> tuple[int, str]:
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{self.url}/filter", data=question, ssl=context or self.known) as answer,
        ):
            return answer.status, await answer.text()


@asynccontextmanager
async def serving(world: Rig) -> AsyncIterator[Client]:
    certs, clients, port = world.folder / "certs", world.folder / "clients.crt", free_port()
    await asyncio.to_thread(ensure, certs, WantedPair(dns_names=("localhost",), days=2, ca_days=9), datetime.now(UTC))
    known, stranger = (ssl.create_default_context(cafile=certs / "ca.crt") for _ in range(2))
    authority = trustme.CA()
    authority.cert_pem.write_to_path(clients)
    authority.issue_cert(common_name="autoscaler").configure_cert(known)
    listen = ("--extender-listen", f"127.0.0.1:{port}", "--extender-client-ca", str(clients))
    await world.controller(*listen, "--cert-dir", str(certs))
    client = Client(f"https://localhost:{port}/v1/extender", known, stranger)

    async def is_served() -> bool:
        try:
            status, text = await client.ask(json.dumps({"Pod": pod("p", share(100)), "NodeNames": []}))
            return status == 200 and not json.loads(text)["Error"]
        except aiohttp.ClientError:
            return False

    await world.until(is_served)
    yield client


async def test_who_shows_a_certificate_learns_what_fits_and_nothing_is_written(rig):
    async with rig(nodes=NODES[:1]) as world, serving(world) as client:
        names = ["t4-a", "none"]
        status, text = await client.ask(json.dumps({"Pod": pod("p", share(4000)), "NodeNames": names}))
        found = json.loads(text)
        assert (status, found["NodeNames"], [*found["FailedNodes"]]) == (200, ["t4-a"], ["none"])
        node = await world.client.get("/api/v1/nodes/t4-a")
        question = {"Pod": pod("p", share(99_999)), "Nodes": {"items": [node]}}
        found = json.loads((await client.ask(json.dumps(question)))[1])
        assert found["Nodes"]["items"] == []
        assert found["FailedNodes"]["t4-a"].startswith("too little free memory on every card")
        assert json.loads((await client.ask("{"))[1])["Error"].startswith("ExtenderArgs: ")
        assert (await client.ask(io.BytesIO(b" " * (16 * 2**20 + 1))))[0] == 413
        try:
            status, _ = await client.ask("{}", client.stranger)
        except (aiohttp.ClientError, OSError):
            status = 0
        assert status == 0
        assert not await world.client.list(PODS)
