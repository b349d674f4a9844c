"""Played device plugins on the real node, installed as their vendors install theirs: a DaemonSet with an account."""

from typing import Any, Final

from sandbox.players import registry
from tests.support.node.images import PLUGIN

Json = dict[str, Any]

_KUBELET: Final = "/var/lib/kubelet"


def shared_documents() -> tuple[Json, ...]:
    """Accounts, rights and configuration of all plugins; what kubelets may is the node authorizer's to say."""
    return tuple(one for one in registry.documents() if one["metadata"]["name"] != "sandbox-kubelets")


def daemon_set(kind: str, arguments: str) -> Json:
    """The plugin *kind*, of `sandbox.players.registry`; arguments: its options, as JSON."""
    labels = {"name": f"{kind}-device-plugin"}
    folders = {"plugins": f"{_KUBELET}/device-plugins", "resources": f"{_KUBELET}/pod-resources"}
    container = {
        "name": "plugin",
        "image": PLUGIN,
        "imagePullPolicy": "Never",
        "command": ["python", "-m", "tests.support.node.device_plugin", kind, arguments],
        "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in folders.items()],
    }
    pod = {
        "serviceAccountName": registry.PLUGIN_ACCOUNTS[kind],
        "priorityClassName": "system-node-critical",
        "terminationGracePeriodSeconds": 1,
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
        "volumes": [{"name": name, "hostPath": {"path": path}} for name, path in folders.items()],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": f"{kind}-device-plugin", "namespace": registry.NAMESPACE, "labels": labels},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
    }
