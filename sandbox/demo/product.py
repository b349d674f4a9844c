"""Installs the product beside an API server: what ``deploy/base`` ships, and webhook and controller as processes.

It works against the double and against a real API server alike; it knows only a kubeconfig and an administrator's
client.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml

from certs.files import CA_FILE, ensure
from certs.pair import Wanted
from sandbox.client import ApiClient, ApiStatusError
from sandbox.cluster import API_SERVER
from sandbox.demo.processes import Processes, Running, free_port

Json = dict[str, Any]

# The account that the product's own writes come from, and that admission trusts.
NAMESPACE: Final = "cardshare-system"
CONTROLLER_ACCOUNT: Final = "cardshare-controller"
# Where the players' configuration stands; in the sandbox nobody else makes namespaces.
TRUSTED_NAMESPACES: Final = "kube-system,volcano-system,mindx-dl"
WEBHOOK_ACCOUNT: Final = "cardshare-webhook"
# The sandbox has no scheduler of Volcano's, so that its pods can be placed here too.
SCHEDULER_NAMES: Final = ("cardshare", "volcano")

_DEPLOY: Final = Path(__file__).resolve().parents[2] / "deploy" / "base"
_SHIPPED: Final = ("namespace.yaml", "accounts.yaml", "rights.yaml", "preview.yaml", "admission.yaml")
# What it takes to stand in for Volcano's scheduler.
_MORE_RIGHTS: Final = _DEPLOY.parent / "overlays" / "volcano-name" / "rights.yaml"
_REGISTRATIONS: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")

_HOST: Final = "127.0.0.1"
_DAYS: Final = 7
_INVENTORY_S: Final = 10.0
_LOOK_EVERY_S: Final = 0.05
_KNOWN: Final = re.compile(r"^cardshare_webhook_inventory_known 1", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """The processes, running and ready. The URLs are those of their plain ports."""

    webhook: Running
    controller: Running
    webhook_url: str
    controller_url: str


async def install(
    processes: Processes,
    folder: Path,
    *,
    admin: ApiClient,
    kubeconfigs: Mapping[str, Path],
    client_ca: Path,
    settings: Path | None = None,
) -> Product:
    """Start both processes, wait until they are ready, and have the API server call the webhook.

    The webhook is waited for until it knows which cards there are.

    Args:
        processes: who owns them.
        folder: for the certificates; made if it is not there.
        admin: may do everything; it installs the account, the rights and the registration that are shipped.
        kubeconfigs: the ways to the API server, by the account that each leads as.
        client_ca: the authority that vouches for the API server where it calls webhooks.
        settings: a settings file for both, or None for the defaults.

    Raises:
        ProcessFailedError: one of them does not get ready.
        ApiStatusError: the registration is refused.
    """
    options = ("--settings", str(settings)) if settings is not None else ()
    documents = await install_rights(admin)
    proof = ("--client-ca", str(client_ca), "--client-name", API_SERVER)
    looking = ("--kubeconfig", str(kubeconfigs[WEBHOOK_ACCOUNT]), *proof, *options)
    webhook, reviews, webhook_url = await _start_webhook(processes, folder / "certs", looking)
    controller, controller_url = await _start_controller(processes, kubeconfigs[CONTROLLER_ACCOUNT], options)
    await processes.ready(webhook, f"{webhook_url}/readyz")
    await inventoried(f"{webhook_url}/metrics")
    ca_pem = await asyncio.to_thread((folder / "certs" / CA_FILE).read_bytes)
    await apply(admin, registration(documents, reviews, ca_pem))
    await processes.ready(controller, f"{controller_url}/readyz")
    return Product(webhook=webhook, controller=controller, webhook_url=webhook_url, controller_url=controller_url)


async def install_rights(admin: ApiClient) -> tuple[Json, ...]:
    """Install the shipped namespace, accounts and rights; return all that is shipped, the registrations too.

    Raises:
        ApiStatusError: the API server refuses.
    """
    documents = await asyncio.to_thread(shipped)
    await apply(admin, (document for document in documents if document["kind"] not in _REGISTRATIONS))
    return documents


def registration(documents: Iterable[Json], url: str, ca_pem: bytes) -> tuple[Json, ...]:
    """The shipped webhook registrations among *documents*, with *url* in place of the Service that is not here."""
    return tuple(
        {**document, "webhooks": [_called_at(webhook, url, ca_pem) for webhook in document["webhooks"]]}
        for document in documents
        if document["kind"] in _REGISTRATIONS
    )


def _called_at(webhook: Json, url: str, ca_pem: bytes) -> Json:
    path = webhook["clientConfig"]["service"]["path"]
    bundle = base64.b64encode(ca_pem).decode("ascii")
    return {**webhook, "clientConfig": {"url": f"{url}{path}", "caBundle": bundle}}


def shipped() -> tuple[Json, ...]:
    """What ``deploy/base`` installs, less what runs as pods there: namespace, accounts, rights, registrations.

    And the rights of the overlay ``volcano-name``.

    Raises:
        OSError: the folder is not beside the packages; this runs from a checkout.
    """
    return tuple(
        document
        for path in (*(_DEPLOY / name for name in _SHIPPED), _MORE_RIGHTS)
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
        if document is not None
    )


async def _start_webhook(processes: Processes, certs: Path, options: tuple[str, ...]) -> tuple[Running, str, str]:
    wanted = Wanted(dns_names=("localhost",), ip_addresses=(_HOST,), days=_DAYS, ca_days=_DAYS)
    await asyncio.to_thread(ensure, certs, wanted, datetime.now(UTC))
    reviews, plain = f"{_HOST}:{free_port()}", f"{_HOST}:{free_port()}"
    # The API server double goes first in the end: there is nobody left to drain for.
    listen = ("--listen", reviews, "--cert-dir", str(certs), "--metrics-listen", plain, "--drain-s", "0")
    believed = ("--trust-namespaces", TRUSTED_NAMESPACES)
    running = await processes.start("webhook", "webhook", (*listen, *believed, *options))
    return running, f"https://{reviews}", f"http://{plain}"


async def inventoried(metrics_url: str) -> None:
    """Wait until the webhook knows the cluster's cards; it goes on without, and tells less."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_INVENTORY_S), aiohttp.ClientSession() as session:
            while True:
                async with session.get(metrics_url) as response:
                    if _KNOWN.search(await response.text()):
                        return
                await asyncio.sleep(_LOOK_EVERY_S)


async def _start_controller(processes: Processes, kubeconfig: Path, options: tuple[str, ...]) -> tuple[Running, str]:
    listen = f"{_HOST}:{free_port()}"
    names = tuple(word for name in SCHEDULER_NAMES for word in ("--scheduler-name", name))
    # No controller ran before this one, so that there is none whose writes have to be waited for.
    delay = ("--start-delay", "0")
    trusted = ("--trust-namespaces", TRUSTED_NAMESPACES)
    arguments = ("--listen", listen, "--kubeconfig", str(kubeconfig), *delay, *trusted, *names, *options)
    return await processes.start("controller", "controller", arguments), f"http://{listen}"


async def apply(admin: ApiClient, documents: Iterable[Json]) -> None:
    """Create what is not there yet, and put what is there in the wanted state.

    Raises:
        ApiStatusError: the API server refuses one of them.
    """
    for document in documents:
        metadata = document["metadata"]
        api = document["apiVersion"]
        place = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
        path = f"/{'apis' if '/' in api else 'api'}/{api}{place}/{document['kind'].lower()}s"
        try:
            await admin.create(path, document)
        except ApiStatusError as e:
            if e.reason != "AlreadyExists":
                raise
            await admin.patch(f"{path}/{metadata['name']}", document)
