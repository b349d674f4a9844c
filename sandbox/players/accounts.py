"""The objects in the manifests of real device plugins: accounts, rights, and the vGPU plugin's configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from sandbox.players.vgpu import CONFIG_KEY, CONFIG_MAP

Json = dict[str, Any]

NAMESPACE: Final = "kube-system"
# Admission trusts these names.
PLUGIN_ACCOUNTS: Final = {
    "vgpu": "volcano-device-plugin",
    "gpushare": "volcano-device-plugin",
    "nvidia": "nvidia-device-plugin",
    "ascend-hami": "hami-ascend",
    "hami": "hami-device-plugin",
    "amd": "amd-gpu-device-plugin",
    "hygon": "dcu-device-plugin",
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
    accounts = sorted(set(PLUGIN_ACCOUNTS.values()))
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
