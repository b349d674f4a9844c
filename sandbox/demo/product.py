"""Installs the product beside an API server: the objects of ``deploy/base``, and webhook and controller as processes.

It works with the double and with a real API server; it needs only a kubeconfig and an administrator's client.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp
import yaml

from certs.files import CA_FILE, ensure
from certs.pair import WantedPair
from core.wire.history import HISTORY_MAP
from sandbox.client import ApiClient, ApiStatusError, collection_of
from sandbox.cluster import API_SERVER, write_private
from sandbox.demo.processes import Processes, ProcessFailedError, Running, free_port

Json = dict[str, Any]

# The account of the product's own writes, which admission trusts.
NAMESPACE: Final = "cardshare-system"
CONTROLLER_ACCOUNT: Final = "cardshare-controller"
# The namespaces of the players' configuration; no one else creates namespaces in the sandbox.
TRUSTED_NAMESPACES: Final = "kube-system,volcano-system,mindx-dl"
WEBHOOK_ACCOUNT: Final = "cardshare-webhook"
EXPLAIN_ACCOUNT: Final = "cardshare-explain"
_AUDIENCE: Final = "cardshare-controller"
_SETTINGS: Final = "cardshare-settings"
# Played kubelets remove pods without reporting their end, and no process remains.
NO_PROCESSES: Final = "removed_pod_hold_s: 0\n"

_DEPLOY: Final = Path(__file__).resolve().parents[2] / "deploy" / "base"
_SHIPPED: Final = ("namespace.yaml", "accounts.yaml", "rights.yaml", "preview.yaml", "admission.yaml")
# Its rights and settings too: the sandbox has no scheduler of Volcano, so its pods can be placed here.
_OVERLAY: Final = _DEPLOY.parent / "overlays" / "volcano-name"
_REGISTRATIONS: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")

_HOST: Final = "127.0.0.1"
# Longer than the interval in which webhooks warn of the expiry.
_DAYS: Final = 30
# A demo that stays up ends within this time.
_TOKEN_S: Final = 86_400
_WITHIN_S: Final = 60.0
_LOOK_EVERY_S: Final = 0.05
_RELOADS: Final = r'^cardshare_webhook_{name}_total\{{what="configuration"\}} (\d+)'
_KNOWN: Final = re.compile(r"^cardshare_webhook_inventory_known 1", re.MULTILINE)
_LEADS: Final = re.compile(r"^cardshare_leading 1", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """The processes, running and ready, with the URLs of their plain ports.

    asked_at: the controller's TLS address for questions why pods wait; ca_file: its authority; explain_token: the token
    for it. settings: the folders of the settings' files, which the processes reload after changes; usually one for
    both.
    """

    webhook: Running
    controller: Running
    webhook_url: str
    controller_url: str
    asked_at: str = ""
    ca_file: Path | None = None
    explain_token: Path | None = None
    settings: tuple[Path, ...] = ()


async def install(
    processes: Processes,
    folder: Path,
    *,
    admin: ApiClient,
    kubeconfigs: Mapping[str, Path],
    client_ca: Path,
    settings: Path | None = None,
) -> Product:
    """Start both processes, wait until they are ready, and register the webhook with the API server.

    It waits until the webhook knows the cluster's cards.

    Args:
        processes: owns the processes.
        folder: for the certificates; created if missing.
        admin: has all rights; installs the shipped account, rights and registration.
        kubeconfigs: a kubeconfig for each account.
        client_ca: the authority of the API server's client certificate for webhooks.
        settings: a settings file for both, or None for the shipped settings, in a folder that may be edited.

    Raises:
        ProcessFailedError: one of them does not become ready.
        ApiStatusError: the registration is refused.
    """
    if settings is None:
        settings = await asyncio.to_thread(_settings, folder / "settings")
    options = ("--settings", str(settings))
    documents = await install_rights(admin)
    namespace, _, name = HISTORY_MAP.partition("/")
    history: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace, "name": name}}
    await apply(admin, [history])
    certs, asked_at = folder / "certs", free_port()
    asking = await _asking(admin, folder, f"https://localhost:{asked_at}", certs)
    answering = ("--preview-listen", f"{_HOST}:{asked_at}", "--cert-dir", str(certs))
    proof = ("--client-ca", str(client_ca), "--client-name", API_SERVER)
    looking = ("--kubeconfig", str(kubeconfigs[WEBHOOK_ACCOUNT]), *proof, *asking, *options)
    webhook, reviews, webhook_url = await _start_webhook(processes, certs, looking)
    controller, controller_url = await _start_controller(
        processes, kubeconfigs[CONTROLLER_ACCOUNT], (*answering, *options, "--keep-history", HISTORY_MAP)
    )
    await processes.ready(webhook, f"{webhook_url}/readyz")
    await inventoried(f"{webhook_url}/metrics")
    ca_pem = await asyncio.to_thread((folder / "certs" / CA_FILE).read_bytes)
    await apply(admin, registration(documents, reviews, ca_pem))
    await processes.ready(controller, f"{controller_url}/readyz")
    await leading(f"{controller_url}/metrics")
    return Product(
        webhook=webhook,
        controller=controller,
        webhook_url=webhook_url,
        controller_url=controller_url,
        asked_at=f"https://localhost:{asked_at}",
        ca_file=certs / CA_FILE,
        explain_token=await _token(admin, EXPLAIN_ACCOUNT, folder / "explain.token"),
        settings=(settings,),
    )


def _settings(folder: Path) -> Path:
    """Return the shipped settings, adapted to played kubelets, in a folder like a mounted ConfigMap."""
    folder.mkdir(parents=True, exist_ok=True)
    for key, text in yaml.safe_load((_OVERLAY / "settings.yaml").read_text(encoding="utf-8"))["data"].items():
        (folder / key).write_text(text + NO_PROCESSES, encoding="utf-8")
    return folder


async def show_settings(admin: ApiClient, product: Product) -> None:
    """Create the ConfigMap of the settings in force, which ``kubectl cards`` reads; the processes read the files.

    Raises:
        ApiStatusError: the API server refuses it.
    """
    text = await asyncio.to_thread((product.settings[0] / "cardshare.yaml").read_text, encoding="utf-8")
    metadata = {"name": _SETTINGS, "namespace": NAMESPACE}
    await apply(
        admin, [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"cardshare.yaml": text}}]
    )


async def _asking(admin: ApiClient, folder: Path, url: str, certs: Path) -> tuple[str, ...]:
    """Return the webhook's flags for previews from the controller at *url*."""
    token = await _token(admin, WEBHOOK_ACCOUNT, folder / "preview.token")
    return ("--preview-url", url, "--preview-ca", str(certs / CA_FILE), "--preview-token", str(token))


async def _token(admin: ApiClient, account: str, file: Path) -> Path:
    """Return *file* with a token of *account* that the controller accepts."""
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
    answer = await admin.create(path, {"spec": {"audiences": [_AUDIENCE], "expirationSeconds": _TOKEN_S}})
    await asyncio.to_thread(write_private, file, answer["status"]["token"].encode("ascii"))
    return file


async def install_rights(admin: ApiClient) -> tuple[Json, ...]:
    """Install the shipped namespace, accounts and rights; return all shipped objects including registrations.

    Raises:
        ApiStatusError: the API server refuses.
    """
    documents = await asyncio.to_thread(shipped)
    await apply(admin, (document for document in documents if document["kind"] not in _REGISTRATIONS))
    return documents


def registration(documents: Iterable[Json], url: str, ca_pem: bytes) -> tuple[Json, ...]:
    """Return the webhook registrations in *documents*, with *url* instead of the missing Service."""
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
    """Return the objects of ``deploy/base`` without its pods: namespace, accounts, rights, registrations.

    Includes the rights of the overlay ``volcano-name``.

    Raises:
        OSError: the folder is not beside the packages; this runs from a checkout.
    """
    return tuple(
        document
        for path in (*(_DEPLOY / name for name in _SHIPPED), _OVERLAY / "rights.yaml")
        for document in yaml.load_all(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
        if document is not None
    )


def policies() -> tuple[Json, ...]:
    """Return the policies of ``deploy/base``.

    Raises:
        OSError: the folder is not beside the packages; this runs from a checkout.
    """
    return tuple(yaml.load_all((_DEPLOY / "policy.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader))


async def _start_webhook(processes: Processes, certs: Path, options: tuple[str, ...]) -> tuple[Running, str, str]:
    wanted = WantedPair(dns_names=("localhost",), ip_addresses=(_HOST,), days=_DAYS, ca_days=_DAYS)
    await asyncio.to_thread(ensure, certs, wanted, datetime.now(UTC))
    reviews, plain = f"{_HOST}:{free_port()}", f"{_HOST}:{free_port()}"
    # The API server double stops first, so no calls remain to drain.
    listen = ("--listen", reviews, "--cert-dir", str(certs), "--metrics-listen", plain, "--drain-s", "0")
    believed = ("--trust-namespaces", TRUSTED_NAMESPACES)
    running = await processes.start("webhook", "webhook", (*listen, *believed, *options))
    return running, f"https://{reviews}", f"http://{plain}"


async def inventoried(metrics_url: str) -> None:
    """Wait until the webhook knows the cluster's cards; until then it omits warnings.

    Raises:
        ProcessFailedError: it does not learn them.
    """
    await _shows(metrics_url, _KNOWN, "the webhook does not know the cluster's cards")


async def leading(metrics_url: str) -> None:
    """Wait until the controller decides; a standby is ready too.

    Raises:
        ProcessFailedError: it does not lead.
    """
    await _shows(metrics_url, _LEADS, "the controller does not lead")


async def _shows(metrics_url: str, wanted: re.Pattern[str], otherwise: str) -> None:
    try:
        async with asyncio.timeout(_WITHIN_S), aiohttp.ClientSession() as session:
            while True:
                async with session.get(metrics_url) as response:
                    if wanted.search(await response.text()):
                        return
                await asyncio.sleep(_LOOK_EVERY_S)
    except TimeoutError as e:
        raise ProcessFailedError(f"{otherwise} after {_WITHIN_S:.0f} s: {metrics_url}") from e


class Reloads(NamedTuple):
    """How often the webhook has taken changed settings, and refused them."""

    taken: int
    refused: int


async def reloads(metrics_url: str) -> Reloads:
    """Return how often the webhook has read its settings again, from its metrics."""
    async with aiohttp.ClientSession() as session, session.get(metrics_url) as response:
        text = await response.text()
    names = ("reloads", "reload_failures")
    found = [re.search(_RELOADS.format(name=name), text, re.MULTILINE) for name in names]
    return Reloads(*(int(one[1]) if one else 0 for one in found))


async def _start_controller(processes: Processes, kubeconfig: Path, options: tuple[str, ...]) -> tuple[Running, str]:
    listen = f"{_HOST}:{free_port()}"
    trusted = ("--trust-namespaces", TRUSTED_NAMESPACES)
    arguments = ("--listen", listen, "--kubeconfig", str(kubeconfig), *trusted, *options)
    return await processes.start("controller", "controller", arguments), f"http://{listen}"


async def apply(admin: ApiClient, documents: Iterable[Json]) -> None:
    """Create missing objects, and update existing ones.

    Raises:
        ApiStatusError: the API server refuses one of them.
    """
    for document in documents:
        path = collection_of(document)
        try:
            await admin.create(path, document)
        except ApiStatusError as e:
            if e.reason != "AlreadyExists":
                raise
            await admin.patch(f"{path}/{document['metadata']['name']}", document)


async def remove(admin: ApiClient, documents: Iterable[Json]) -> None:
    """Delete the objects of `apply`.

    Raises:
        ApiStatusError: one of them is missing, or the API server refuses.
    """
    for document in documents:
        await admin.delete(f"{collection_of(document)}/{document['metadata']['name']}")
