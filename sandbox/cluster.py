"""The embedded cluster: API server, kubelets and device plugins in one process; the others are clients of the first."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from certs.authority import Authority, Leaf, issue, new_authority
from certs.pair import StoredPem
from certs.serving import use
from sandbox.api.registry import WriteCall
from sandbox.api.requests import Target
from sandbox.api.server import ApiServer
from sandbox.api.users import ADMINS, KUBELET, User, service_account
from sandbox.client import ApiClient
from sandbox.nodes.kubelet import Kubelet, KubeletSettings
from sandbox.nodes.nodefile import NodeSpec
from sandbox.nodes.plugin_port import Records
from sandbox.players import registry
from sandbox.players.registry import equipped

Json = dict[str, Any]

ADMIN: Final = User(name="sandbox-admin", groups=(ADMINS,))
_NAMESPACES: Final = ("default", "kube-system", "kube-public", "kube-node-lease")
# The API server's name in the certificate that it presents to webhooks.
API_SERVER: Final = "kube-apiserver"
_CERTIFICATE_DAYS: Final = 30
_HOST: Final = "127.0.0.1"


def _wall_clock() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """Settings of the embedded cluster.

    Attributes:
        enforces_rbac: whether the RBAC objects are enforced; requests are recorded in any case.
        bookmark_s: interval between bookmarks of a watch.
        events_kept: number of changes per resource that a watch can catch up on.
        kubelet: settings of the kubelets; None = there are no kubelets, and nodes are not created.
    """

    enforces_rbac: bool = False
    bookmark_s: float = 60.0
    events_kept: int = 20_000
    kubelet: KubeletSettings | None = field(default_factory=KubeletSettings)


class Cluster:
    """A running cluster; created by `running_cluster`.

    Attributes:
        api: the API server with its store, tokens and recorder.
        clock: the time of the whole cluster.
        url: its address.
        ca_pem: the authority of its certificate.
        records: what each container received.
        kubelet: the kubelets' player, if there is one.
        admin: a client with all rights.
    """

    def __init__(self, api: ApiServer, url: str, ca_pem: bytes, clock: Callable[[], datetime]) -> None:
        self.api = api
        self.clock = clock
        self.url = url
        self.ca_pem = ca_pem
        self.records = Records()
        self.kubelet: Kubelet | None = None
        self.admin = self.client(ADMIN)

    def client(self, user: User, *, timeout_s: float = 10.0) -> ApiClient:
        """Return a client for *user* with its own token; open it with ``async with``."""
        return ApiClient(server=self.url, token=self.api.tokens.issue(user), ca_pem=self.ca_pem, timeout_s=timeout_s)

    def kubeconfig(self, user: User = ADMIN) -> str:
        token = self.api.tokens.issue(user)
        return kubeconfig_text(server=self.url, ca_pem=self.ca_pem, token=token, user=user.name)


def kubeconfig_text(*, server: str, ca_pem: bytes, token: str, user: str) -> str:
    """Return a kubeconfig for *server* with *token*; *user* is only a name in it."""
    ca = base64.b64encode(ca_pem).decode()
    context = {"cluster": "sandbox", "user": user, "namespace": "default"}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "sandbox", "cluster": {"server": server, "certificate-authority-data": ca}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "sandbox", "context": context}],
        "current-context": "sandbox",
    }
    return yaml.safe_dump(document, sort_keys=False)


@asynccontextmanager
async def running_cluster(
    nodes: Sequence[NodeSpec] = (),
    settings: ClusterSettings | None = None,
    clock: Callable[[], datetime] = _wall_clock,
) -> AsyncIterator[Cluster]:
    """Start a cluster with *nodes*, registered and with running plugins, and stop it at the end.

    Raises:
        sandbox.players.player.OptionsError: a node's plugin cannot be built.
        OSError: the port is in use.
    """
    settings = settings or ClusterSettings()
    async with AsyncExitStack() as stack:
        cluster = await _start_api(settings, clock)
        stack.push_async_callback(cluster.api.stop)
        await _seed(cluster.api)
        await stack.enter_async_context(cluster.admin)
        if settings.kubelet is None:
            yield cluster
            return
        kubelet = await _kubelet(cluster, nodes, settings, clock, stack)
        await kubelet.register()
        cluster.kubelet = kubelet
        # A fixture may leave this context from another task than it entered, which a TaskGroup does not allow.
        playing = asyncio.create_task(kubelet.run(), name="kubelet")
        try:
            yield cluster
        finally:
            playing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await playing


async def _start_api(settings: ClusterSettings, clock: Callable[[], datetime]) -> Cluster:
    api = ApiServer(
        clock=clock,
        enforces_rbac=settings.enforces_rbac,
        bookmark_s=settings.bookmark_s,
        events_kept=settings.events_kept,
    )
    authority, context = await asyncio.to_thread(_serving_certificate, clock())
    client = issue(authority, (API_SERVER,), (), _CERTIFICATE_DAYS, clock(), for_client=True)
    shown = StoredPem(cert_pem=client.cert_pem, key_pem=client.key_pem)
    api.caller.show_client = partial(use, stored=shown)
    port = await api.start(_HOST, context)
    return Cluster(api, f"https://{_HOST}:{port}", authority.cert_pem, clock)


def _serving_certificate(now: datetime) -> tuple[Authority, ssl.SSLContext]:
    authority = new_authority("sandbox", _CERTIFICATE_DAYS, now)
    leaf = issue(authority, ("localhost", "kubernetes.default.svc"), (_HOST,), _CERTIFICATE_DAYS, now)
    return authority, _context(leaf)


def _context(leaf: Leaf) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    use(context, StoredPem(cert_pem=leaf.cert_pem, key_pem=leaf.key_pem))
    return context


async def _seed(api: ApiServer) -> None:
    """Create the objects of a new cluster: its namespaces, and the rights of the plugins' accounts."""
    for name in _NAMESPACES:
        await _create(api, "", "namespaces", {"metadata": {"name": name}})
        await _create(api, "", "serviceaccounts", {"metadata": {"name": "default"}}, name)
    for document in registry.documents():
        group, _, _ = document["apiVersion"].rpartition("/")
        namespace = document["metadata"].get("namespace", "")
        await _create(api, group, f"{document['kind'].lower()}s", document, namespace)


async def _create(api: ApiServer, group: str, plural: str, obj: Json, namespace: str = "") -> None:
    kind = api.catalogue.find(group, "v1", plural)
    if kind is None:
        raise LookupError(f"{plural} are not served")
    await api.registry.create(Target(kind=kind, namespace=namespace), obj, WriteCall(user=ADMIN))


async def _kubelet(
    cluster: Cluster,
    nodes: Sequence[NodeSpec],
    settings: ClusterSettings,
    clock: Callable[[], datetime],
    stack: AsyncExitStack,
) -> Kubelet:
    async def client_of(account: str) -> ApiClient:
        return await stack.enter_async_context(cluster.client(service_account("kube-system", account)))

    played = await equipped(nodes, settings.kubelet or KubeletSettings(), client_of)
    client = await stack.enter_async_context(cluster.client(KUBELET))
    return Kubelet(client, played, cluster.records, clock, settings.kubelet)


def write_private(path: Path, text: bytes) -> None:
    """Write *text* atomically and only readable for the owner, because it may hold a token."""
    beside = path.with_name(path.name + ".new")
    beside.unlink(missing_ok=True)
    beside.touch(mode=0o600)
    beside.write_bytes(text)
    beside.replace(path)
