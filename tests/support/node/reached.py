"""Whether the API server reaches the webhook by its Service."""

from typing import Any, Final

from tests.support.node.api import RefusedError
from tests.support.node.cluster import Cluster
from tests.support.node.waiting import wait

Json = dict[str, Any]

NAMESPACE: Final = "cardshare-system"
_SLICES: Final = (
    f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
    "?labelSelector=kubernetes.io/service-name=cardshare-webhook"
)
_ASKS: Final[Json] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "asks-"},
    "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"volcano.sh/vgpu-memory": "100"}}}]},
}


def alive(cluster: Cluster, component: str) -> list[Json]:
    """The pods of a component, such as `webhook`, that are not being deleted."""
    selector = f"labelSelector=app.kubernetes.io/component={component}"
    found = cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods?{selector}")["items"]
    return [one for one in found if "deletionTimestamp" not in one["metadata"]]


def until_answered(cluster: Cluster) -> None:
    """Wait until the webhook's Service has all of its pods and no others, and one of them answers a create.

    That pods are ready is no proof: their endpoints follow a moment later, and kube-proxy follows these.
    """
    wait("the webhook's endpoints", lambda: _astray(cluster))
    wait("the webhook", lambda: _unanswered(cluster))


def _astray(cluster: Cluster) -> str:
    endpoints = [one for each in cluster.api.get(_SLICES)["items"] for one in each.get("endpoints") or ()]
    led = {address for one in endpoints if one["conditions"].get("ready", True) for address in one["addresses"]}
    there = {one["status"].get("podIP", "") for one in alive(cluster, "webhook")}
    return "" if led == there and led else f"they are {sorted(led)}, the pods are at {sorted(there)}"


def _unanswered(cluster: Cluster) -> str:
    try:
        made = cluster.api.create("/api/v1/namespaces/default/pods?dryRun=All", _ASKS)
    except (RefusedError, OSError) as e:
        return str(e)
    # Only the webhook writes the number.
    return "" if "volcano.sh/vgpu-number" in made["spec"]["containers"][0]["resources"]["limits"] else "nobody asked it"
