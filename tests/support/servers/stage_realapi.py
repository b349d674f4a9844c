"""The demo's stage on a real API server, installed by the manifests: real storage, admission, CEL and RBAC.

Webhook, controller, certificate Job and players are processes; each but the players runs with the arguments, files and
service account of its manifest, so that a right that is missing shows.
"""

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from sandbox.client import ApiClient
from sandbox.cluster import API_SERVER
from sandbox.demo.play import KubectlUser
from sandbox.demo.processes import Processes, Running, free_port
from sandbox.demo.product import Product, inventoried, leading
from sandbox.demo.stage import NODES, Stage
from sandbox.nodes.plugin_port import Records
from tests.support.servers.manifests import Json, Runner, built, daily, find, kubectl, reached_at, text_of
from tests.support.servers.realapi import RealApi

# The webhook asks the controller at this address, where a cluster has a name for it.
CERTS_MORE = ("--ip=127.0.0.1", "--pair=cardshare-controller-tls=127.0.0.1")
PERSON = "dana"
_READY_WITHIN_S = 120.0
_IDLE = re.compile(r"^cardshare_serving_in_flight\{port=\"reviews\"\} 0", re.MULTILINE)


class FileRecords(Records):
    """What containers received, read from the file that the players keep."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def of(self, pod: str) -> Mapping[str, Mapping[str, str]]:
        """See `Records.of`."""
        found: Mapping[str, Mapping[str, Mapping[str, str]]] = json.loads(self._path.read_bytes())
        return found.get(pod, {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """A stage, and what it was installed from: the documents as applied, and what kubectl and the Job said.

    logs: folder of the processes' logs and of the server's.
    """

    stage: Stage
    api: RealApi
    runner: Runner
    logs: Path
    documents: tuple[Json, ...]
    applied: str
    complaints: str
    certificates: str


class OwnCertificates:
    """Certificates as cardshare makes them, by its daily Job; others are made by what has the same two methods."""

    def here(self, documents: Sequence[Json]) -> Sequence[Json]:
        """*documents* as they are applied."""
        return documents

    async def made(self, runner: Runner, documents: Sequence[Json]) -> str:
        """Wait until the certificates are there: what was said of them."""
        return await runner.finish("certs", daily(documents), CERTS_MORE)


@asynccontextmanager
async def installed_stage(
    api: RealApi,
    folder: Path,
    *,
    overlay: str = "volcano-name",
    certificates: OwnCertificates | None = None,
    nodes: Sequence[Mapping[str, Any]] = NODES,
) -> AsyncIterator[Installed]:
    """Install nodes, players and product on *api*, which should be nobody else's; logs go beside the server's.

    Args:
        api: the server.
        folder: for kubeconfigs and keys, which are not for keeping.
        overlay: of deploy/overlays; the examples speak of pods of Volcano's scheduler.
        certificates: who makes them, cardshare unless it is said.
        nodes: what nodes there are, as in a node file.
    """
    ca_pem = await asyncio.to_thread(api.ca_file.read_bytes)
    async with AsyncExitStack() as stack:
        processes = await stack.enter_async_context(Processes(api.logs, os.environ))
        admin = await stack.enter_async_context(ApiClient(server=api.url, token=api.admin_token, ca_pem=ca_pem))
        runner = Runner(api=api, admin=admin, processes=processes, folder=folder)
        records = await _play(processes, api, folder, nodes)
        reviews = free_port()
        certificates = certificates or OwnCertificates()
        documents = tuple(certificates.here(reached_at(await built(api, overlay), reviews)))
        applied, complaints = await kubectl(api, "apply", "-f", "-", text=text_of(documents))
        said = await certificates.made(runner, documents)
        product = await start_product(runner, documents, reviews)
        await make_person(admin)
        token = await api.token_for(PERSON, "default")
        client = ApiClient(server=api.url, token=token, ca_pem=ca_pem, timeout_s=30)
        person = KubectlUser(await stack.enter_async_context(client))
        shown = Stage(
            url=api.url,
            admin=admin,
            records=records,
            product=product,
            person=person,
            kubeconfig=api.write_kubeconfig(folder / "kubeconfig", token),
        )
        yield Installed(
            stage=shown,
            api=api,
            runner=runner,
            logs=api.logs,
            documents=documents,
            applied=applied,
            complaints=complaints,
            certificates=said,
        )


async def _play(processes: Processes, api: RealApi, folder: Path, nodes: Sequence[Mapping[str, Any]]) -> FileRecords:
    file, records = folder / "nodes.yaml", folder / "records.json"
    await asyncio.to_thread(file.write_text, yaml.safe_dump([dict(node) for node in nodes]), encoding="utf-8")
    words = ("players", str(api.kubeconfig), str(file), str(records))
    players = await processes.start("players", "tests.support.servers.playing", words)
    await _until_said(players, "ready")
    return FileRecords(records)


async def _until_said(running: Running, text: str) -> None:
    async with asyncio.timeout(_READY_WITHIN_S):
        while text not in (said := running.log_tail()):
            assert running.process.returncode is None, f"{running.name} ended:\n{said}"
            await asyncio.sleep(0.05)


async def start_product(runner: Runner, documents: Sequence[Json], reviews: int, more: Sequence[str] = ()) -> Product:
    """Start the processes, the webhook on port *reviews*, and wait until they are ready.

    Args:
        runner: who runs them.
        documents: the manifests.
        reviews: where the webhook's Service leads.
        more: further flags of the controller.
    """
    controller, ports = await runner.start("controller", find(documents, "Deployment", "cardshare-controller"), more)
    controller_url = f"http://127.0.0.1:{ports['plain']}"
    # Listened to where the Service leads; the controller's name leads nowhere here; and nobody routes calls who would
    # have to learn of an end first.
    previews = f"--preview-url=https://127.0.0.1:{ports['preview']}"
    proof = (f"--client-ca={runner.api.ca_file}", f"--client-name={API_SERVER}")
    flags = (f"--listen=127.0.0.1:{reviews}", previews, *proof, "--drain-s=0")
    webhook, ports = await runner.start("webhook", find(documents, "Deployment", "cardshare-webhook"), flags)
    webhook_url = f"http://127.0.0.1:{ports['plain']}"
    await runner.processes.ready(webhook, f"{webhook_url}/readyz", within_s=_READY_WITHIN_S)
    await runner.processes.ready(controller, f"{controller_url}/readyz", within_s=_READY_WITHIN_S)
    await inventoried(f"{webhook_url}/metrics")
    await leading(f"{controller_url}/metrics")
    return Product(
        webhook=webhook,
        controller=controller,
        webhook_url=webhook_url,
        controller_url=controller_url,
        settings=tuple(runner.folder / name / "settings" for name in ("controller", "webhook")),
    )


@asynccontextmanager
async def away(product: Product) -> AsyncIterator[None]:
    """The webhook stands still meanwhile, and has answered all that was sent to it afterwards.

    Calls that the API server gave up are answered late, and would be counted among those of the next test.
    """
    product.webhook.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        product.webhook.signal(signal.SIGCONT)
        async with asyncio.timeout(_READY_WITHIN_S), aiohttp.ClientSession() as session:
            while True:
                async with session.get(f"{product.webhook_url}/metrics") as response:
                    if _IDLE.search(await response.text()):
                        break
                await asyncio.sleep(0.05)


async def make_person(admin: ApiClient) -> None:
    """Make the account of somebody who may do everything, and whom admission does not trust."""
    account = {"metadata": {"name": PERSON}}
    await admin.create("/api/v1/namespaces/default/serviceaccounts", account)
    group = "rbac.authorization.k8s.io"
    binding = {
        "metadata": {"name": f"person-{PERSON}"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": PERSON}],
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
    }
    await admin.create(f"/apis/{group}/v1/clusterrolebindings", binding)
