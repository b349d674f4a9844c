"""The playable device plugins by name: their accounts, and nodes that are equipped with them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from core.catalog import standard_catalog
from sandbox.client import JSON, ApiCalls, Json, Params
from sandbox.nodes.kubelet import KubeletSettings, PlayedNode
from sandbox.nodes.nodefile import NodeSpec
from sandbox.nodes.plugin_port import DeviceLists
from sandbox.players import vendors
from sandbox.players.ascend_hami import AscendHamiPlugin
from sandbox.players.enflame import EnflamePlugin
from sandbox.players.gpushare import SharePlugin
from sandbox.players.hami import HamiPlugin
from sandbox.players.mindcluster import MindClusterPlugin
from sandbox.players.nvidia import NvidiaPlugin
from sandbox.players.player import OptionsError, Player
from sandbox.players.vgpu import CONFIG_KEY, CONFIG_MAP, VgpuPlugin

_KINDS: Final[Mapping[str, type[Player[Any]]]] = {
    "vgpu": VgpuPlugin,
    "gpushare": SharePlugin,
    "ascend-hami": AscendHamiPlugin,
    "mindcluster": MindClusterPlugin,
    "enflame-drs": EnflamePlugin,
    "hami": HamiPlugin,
    "nvidia": NvidiaPlugin,
    **dict.fromkeys(vendors.VENDORS, vendors.VendorPlugin),
    **dict.fromkeys(vendors.UNLOCKED, vendors.UnlockedPlugin),
    **dict.fromkeys(vendors.WHOLE, vendors.WholePlugin),
}


def build(kind: str, node_name: str, options: Mapping[str, Any], client: ApiCalls) -> Player[Any]:
    """Build the plugin *kind* of node *node_name*.

    Args:
        kind: of the plugin.
        node_name: its node.
        options: its cards and configuration as plain data, see ``read`` of the plugin.
        client: an API client with the plugin's own account.

    Raises:
        OptionsError: the kind is unknown, or a key or value is invalid.
    """
    player = _KINDS.get(kind)
    if player is None:
        raise OptionsError(f"unknown device plugin {kind!r}; write one of {', '.join(sorted(_KINDS))}")
    return player.from_options(kind, node_name, options, client)


NAMESPACE: Final = "kube-system"
# Admission trusts these names; other plugins have the name of their kind, and operators add it.
PLUGIN_ACCOUNTS: Final[Mapping[str, str]] = {
    **{
        spec.name.replace("_", "-"): account.rpartition(":")[2]
        for spec in standard_catalog().specs
        for account in spec.plugin_accounts
    },
    "vgpu": "volcano-device-plugin",
    "gpushare": "volcano-device-plugin",
    "nvidia": "nvidia-device-plugin",
    "ascend-hami": "hami-ascend",
    "hami": "hami-device-plugin",
    "mindcluster": "ascend-device-plugin-sa-910",
}
DEVICE_CONFIG: Final = Path(__file__).parent / "vgpu-device-config.yaml"
_ROLE: Final = "sandbox-device-plugins"
_KUBELETS: Final = "sandbox-kubelets"
_GROUP: Final = "rbac.authorization.k8s.io"
_RULES: Final[list[Json]] = [
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "update", "patch"]},
    {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["get", "update", "patch"]},
    {"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": ["get", "list", "watch", "update", "patch"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "create", "update", "patch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
]


def documents() -> tuple[Json, ...]:
    """Return the objects that the plugins need, in an order in which they can be created."""
    accounts = sorted({PLUGIN_ACCOUNTS.get(kind, kind) for kind in _KINDS})
    subjects = [{"kind": "ServiceAccount", "namespace": NAMESPACE, "name": account} for account in accounts]
    role = {"apiVersion": f"{_GROUP}/v1", "kind": "ClusterRole", "metadata": {"name": _ROLE}, "rules": _RULES}
    binding = {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": _ROLE},
        "subjects": subjects,
        "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": _ROLE},
    }
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONFIG_MAP, "namespace": NAMESPACE},
        "data": {CONFIG_KEY: DEVICE_CONFIG.read_text(encoding="utf-8")},
    }
    # The rights of kubelets, if there is no node authorizer.
    kubelets = {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": _KUBELETS},
        "subjects": [{"kind": "Group", "apiGroup": _GROUP, "name": "system:nodes"}],
        "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": "system:node"},
    }
    return (*(_account(account) for account in accounts), role, binding, kubelets, config_map)


def _account(name: str) -> Json:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": NAMESPACE}}


# The burst of client-go's default rate limiter, which allows 5 calls a second (nvidia 5.2).
_BURST: Final = 10


class PacedApi(ApiCalls):
    """The calls of *api* for the plugins of one node, with the delays and the limit of *settings*."""

    def __init__(self, api: ApiCalls, devices: DeviceLists, settings: KubeletSettings) -> None:
        self._api = api
        self._devices = devices
        self._settings = settings
        self._next_s = float("-inf")

    async def call(self, method: str, path: str, body: Any = None, params: Params = None, media: str = JSON) -> Json:
        """See `ApiCalls`; kubelet immediately learns a node's devices from a change of its status."""
        if method == "PATCH" and path.startswith("/api/v1/nodes/") and path.endswith("/status"):
            self._devices.take(body["status"])
            if self._settings.node_status_delay_s:
                return {}  # kubelet writes the node's status itself, and later
            self._devices.told()
        await self._turn()
        return await self._api.call(method, path, body, params, media)

    async def _turn(self) -> None:
        """Wait for permission for one call, from a token bucket of `_BURST` calls."""
        if not self._settings.plugin_calls_per_s:
            return
        now_s, every_s = asyncio.get_running_loop().time(), 1.0 / self._settings.plugin_calls_per_s
        self._next_s = max(self._next_s, now_s - _BURST * every_s) + every_s
        if self._next_s > now_s:
            await asyncio.sleep(self._next_s - now_s)


async def equipped(
    nodes: Iterable[NodeSpec],
    settings: KubeletSettings,
    client_of: Callable[[str], Awaitable[ApiCalls]],
) -> tuple[PlayedNode, ...]:
    """Return *nodes* with their plugins.

    Args:
        nodes: what to play.
        settings: settings of the kubelets.
        client_of: returns a client with the account of that name.

    Raises:
        sandbox.players.player.PluginOptionsError: a node's plugin cannot be built.
    """
    clients: dict[str, ApiCalls] = {}
    played = []
    for node in nodes:
        plugins, devices = [], DeviceLists()
        for spec in node.plugins:
            account = PLUGIN_ACCOUNTS.get(spec.kind, spec.kind)
            if account not in clients:
                clients[account] = await client_of(account)
            paced = PacedApi(clients[account], devices, settings)
            plugins.append(build(spec.kind, node.name, spec.options, paced))
        played.append(PlayedNode(spec=node, plugins=tuple(plugins), devices=devices))
    return tuple(played)
