"""Plays kubelets and device plugins on an existing API server: it creates nodes and runs their pods."""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from sandbox.api.users import KUBELET, NODES
from sandbox.client import ApiClient, ApiStatusError
from sandbox.nodes.devices import DeviceLists
from sandbox.nodes.kubelet import Kubelet, KubeletSettings, PlayedNode
from sandbox.nodes.nodefile import NodeSpec
from sandbox.nodes.records import Records
from sandbox.players import accounts, registry
from sandbox.players.accounts import PLUGIN_ACCOUNTS
from sandbox.players.paced import pacing

Json = dict[str, Any]

_TOKEN_S: Final = 24 * 3600


class KubeconfigError(ValueError):
    """An unusable kubeconfig; the text says what is missing."""


def client_of(kubeconfig: Path) -> ApiClient:
    """Return a client for the current context of *kubeconfig*, which must contain a token and the authority.

    Raises:
        KubeconfigError: it does not, or it is not a kubeconfig.
        OSError: it cannot be read.
    """
    try:
        config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
        context = _named(config["contexts"], config["current-context"])["context"]
        cluster = _named(config["clusters"], context["cluster"])["cluster"]
        user = _named(config["users"], context["user"])["user"]
        ca_pem = base64.b64decode(cluster["certificate-authority-data"], validate=True)
        return ApiClient(server=cluster["server"], token=user["token"], ca_pem=ca_pem)
    except (yaml.YAMLError, KeyError, TypeError, StopIteration, binascii.Error) as e:
        why = "it needs a current context with server, certificate-authority-data and a token"
        raise KubeconfigError(f"{kubeconfig}: cannot be used: {why} ({e!r} is missing or wrong)") from e


def _named(entries: Sequence[Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    return next(entry for entry in entries if entry["name"] == name)


class WrittenRecords(Records):
    """Passes what containers received to *write* before their pods are reported as running."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        super().__init__()
        self._write = write
        write(b"{}")

    def put(self, pod: str, uid: str, container: str, env: Mapping[str, str]) -> None:
        """See `Records.put`."""
        super().put(pod, uid, container, env)
        self._write(msgspec.json.encode(self.document()))


@asynccontextmanager
async def joined(
    admin: ApiClient,
    nodes: Sequence[NodeSpec],
    settings: KubeletSettings,
    players: frozenset[str] | None,
    records: Records,
) -> AsyncIterator[Kubelet]:
    """Yield the kubelets of *nodes*, registered, with running plugins under their own accounts; `Kubelet.run` plays.

    Args:
        admin: may create accounts and rights, and impersonates the kubelets.
        nodes: the nodes to play.
        settings: settings of the kubelets.
        players: kinds of device plugins to play; None = all that the nodes name.
        records: receives what containers get.

    Raises:
        ApiStatusError: the server refuses.
        sandbox.players.hardware.OptionsError: a node's plugin cannot be built.
    """
    for document in accounts.documents():
        await _ensure(admin, document)
    async with AsyncExitStack() as stack:
        clients: dict[str, ApiClient] = {}
        paced = pacing(settings)
        played = []
        for node in nodes:
            plugins, devices = [], DeviceLists()
            for spec in node.plugins:
                if players is not None and spec.kind not in players:
                    continue
                account = PLUGIN_ACCOUNTS.get(spec.kind, spec.kind)
                if account not in clients:
                    clients[account] = await stack.enter_async_context(await _client(admin, account))
                plugins.append(registry.build(spec.kind, node.name, spec.options, paced(clients[account], devices)))
            played.append(PlayedNode(spec=node, plugins=tuple(plugins), devices=devices))
        # The user of a write determines its rights, so kubelets do not write as administrators.
        kubelets = await stack.enter_async_context(admin.impersonating(KUBELET.name, NODES))
        kubelet = Kubelet(kubelets, tuple(played), records, lambda: datetime.now(UTC), settings)
        await kubelet.register()
        yield kubelet


async def _client(admin: ApiClient, account: str) -> ApiClient:
    path = f"/api/v1/namespaces/{accounts.NAMESPACE}/serviceaccounts/{account}/token"
    answer = await admin.create(path, {"spec": {"expirationSeconds": _TOKEN_S}})
    return admin.as_user(answer["status"]["token"])


async def _ensure(admin: ApiClient, document: Mapping[str, Any]) -> None:
    namespace = document["metadata"].get("namespace")
    version = document["apiVersion"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    where = f"{root}/namespaces/{namespace}" if namespace else root
    try:
        await admin.create(f"{where}/{document['kind'].lower()}s", document)
    except ApiStatusError as e:
        if e.reason != "AlreadyExists":
            raise
