"""cardshare, installed on the real node as the documentation says, and removed so."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from tests.support.node.cluster import Cluster
from tests.support.node.images import CARDSHARE
from tests.support.node.reached import NAMESPACE, alive, until_answered
from tests.support.node.waiting import wait

Json = dict[str, Any]

_COMPONENTS: Final = ("webhook", "controller")
_IMAGE: Final = CARDSHARE.rpartition(":")[0]
# An overlay of the operator's own: nothing in the checkout is edited.
_OVERLAY: Final = f"""\
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../../checkout/deploy/overlays/default]
images: [{{name: cardshare, newName: {_IMAGE}}}]
"""
# Kinds of which anything may be left by an installation.
_KINDS: Final = (
    "namespaces,clusterroles,clusterrolebindings,mutatingwebhookconfigurations,validatingwebhookconfigurations,"
    "validatingadmissionpolicies,validatingadmissionpolicybindings,priorityclasses,customresourcedefinitions"
)


@contextmanager
def by_overlay(cluster: Cluster) -> Iterator[None]:
    """cardshare as `kubectl apply -k` installs it, ready; `kubectl delete -k` removes it, and nothing is left."""
    folder = cluster.there.share / "overlay"
    folder.mkdir(exist_ok=True)
    (folder / "kustomization.yaml").write_text(_OVERLAY, encoding="utf-8")
    with _nothing_left(cluster):
        cluster.kubectl("apply", "-k", "/share/overlay")
        until_ready(cluster)
        until_answered(cluster)
        yield
        webhooks = "mutatingwebhookconfiguration,validatingwebhookconfiguration"
        cluster.kubectl("delete", webhooks, "cardshare")
        cluster.kubectl("delete", "--ignore-not-found", "-k", "/share/overlay")


@contextmanager
def by_chart(cluster: Cluster) -> Iterator[None]:
    """cardshare as `helm install` installs it, ready; `helm uninstall` removes it, and nothing is left."""
    helm = ("helm", "--kubeconfig=/share/admin.kubeconfig", "--namespace", NAMESPACE)
    with _nothing_left(cluster):
        cluster.kubectl("create", "namespace", NAMESPACE)
        cluster.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
        image = ("--set", f"image.repository={_IMAGE}")
        cluster.there.run(*helm, "install", "cardshare", "/checkout/deploy/chart", *image)
        until_ready(cluster)
        until_answered(cluster)
        yield
        cluster.there.run(*helm, "uninstall", "cardshare", "--wait")
        cluster.kubectl("delete", "namespace", NAMESPACE)


@contextmanager
def _nothing_left(cluster: Cluster) -> Iterator[None]:
    before = objects(cluster)
    yield
    wait("removal", lambda: ", ".join(sorted(objects(cluster) - before)))


def objects(cluster: Cluster) -> set[str]:
    """Everything of the cluster that an installation could leave, outside its namespace."""
    return set(cluster.kubectl("get", _KINDS, "-o", "name").split())


def until_ready(cluster: Cluster) -> None:
    """Wait until every pod of both Deployments is ready."""
    for component in _COMPONENTS:
        wait(component, partial(_unready, cluster, component))


def pods(cluster: Cluster, component: str) -> tuple[str, ...]:
    """The names of the pods of a component, such as `webhook`, that are not being deleted."""
    return tuple(one["metadata"]["name"] for one in alive(cluster, component))


def restarts(cluster: Cluster) -> dict[str, int]:
    """How often the first container of each pod of the product and of device plugins was started again.

    Pods that are being deleted, which are never started again, are left out.
    """
    found = {}
    for namespace in (NAMESPACE, "kube-system"):
        for one in cluster.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]:
            is_leaving = "deletionTimestamp" in one["metadata"]
            if one["status"].get("containerStatuses") and one["status"]["phase"] == "Running" and not is_leaving:
                found[one["metadata"]["name"]] = one["status"]["containerStatuses"][0]["restartCount"]
    return found


def unstarted(cluster: Cluster, before: dict[str, int]) -> str:
    """Those of the pods in *before* that were not started since."""
    now = restarts(cluster)
    return ", ".join(name for name, count in before.items() if now.get(name, 0) <= count)


def leader(cluster: Cluster) -> str:
    """The pod of the controller that decides."""
    lease = cluster.api.get(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/cardshare-controller")
    holder = lease["spec"].get("holderIdentity") or ""
    return next((name for name in pods(cluster, "controller") if name in holder), "")


def _unready(cluster: Cluster, component: str) -> str:
    # By the pods: the status of a Deployment follows a little later, and counts those that were just deleted.
    deployment = cluster.api.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/cardshare-{component}")
    wanted, there = deployment["spec"]["replicas"], alive(cluster, component)
    ready = [one for one in there if _condition(one, "Ready") == "True"]
    return "" if len(there) == len(ready) == wanted else f"of {len(there)} pods {len(ready)} are ready, {wanted} wanted"


def _condition(pod: Json, kind: str) -> str:
    return next((one["status"] for one in pod["status"].get("conditions", ()) if one["type"] == kind), "")
