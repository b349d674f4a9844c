"""Small clusters in which pods mind each other: manifests drawn by chance, of few words so that they meet often."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from tests.support.judging.by_the_book import PREFERRED, REQUIRED

NAMESPACES = {"a": {"team": "x"}, "b": {"team": "y"}, "c": {}}
_APPS = ("web", "db", "job")
_KEYS = ("zone", "rack", "kubernetes.io/hostname")
STORAGE = "/apis/storage.k8s.io/v1"
CLAIMS = 6
DRIVERS = ("one.csi", "two.csi")


def node(name: str, chance: Random) -> dict[str, Any]:
    """A node, with most of the labels that pods ask about."""
    labels = {"kubernetes.io/hostname": name, "zone": chance.choice("123"), "rack": chance.choice("pq")}
    for key in ("zone", "rack"):
        if chance.random() < 0.15:
            del labels[key]
    labels["size"] = str(chance.randint(1, 4))
    taints = [{"key": "spot", "value": "yes", "effect": "NoSchedule"}] if chance.random() < 0.2 else []
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints},
        "status": {
            "allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(name: str, chance: Random) -> dict[str, Any]:
    """A pod that asks for no cards, and about half the time for something of other pods or of nodes."""
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "i"}], "schedulerName": "cardshare"}
    affinity: dict[str, Any] = {}
    for kind, often in (("podAffinity", 0.25), ("podAntiAffinity", 0.3)):
        if chance.random() < often:
            affinity[kind] = {REQUIRED: [_term(chance) for _ in range(chance.choice((1, 1, 2)))]}
    if chance.random() < 0.15:
        affinity["nodeAffinity"] = {REQUIRED: {"nodeSelectorTerms": [_node_term(chance) for _ in range(2)]}}
    if affinity:
        spec["affinity"] = affinity
    if chance.random() < 0.1:
        spec["nodeSelector"] = {"zone": chance.choice("123")}
    if chance.random() < 0.3:
        spec["tolerations"] = [{"key": "spot", "operator": "Exists"}]
    if chance.random() < 0.3:
        spread: dict[tuple[str, str], Any] = {}
        for _ in range(chance.choice((1, 1, 2))):
            one = _spread(chance)
            spread[one["topologyKey"], one["whenUnsatisfiable"]] = one
        spec["topologySpreadConstraints"] = list(spread.values())
    if chance.random() < 0.2:
        port = {"containerPort": 80, "hostPort": chance.choice((80, 81)), "protocol": chance.choice(("TCP", "UDP"))}
        if chance.random() < 0.3:
            port["hostIP"] = chance.choice(("10.0.0.1", "10.0.0.2"))
        spec["containers"][0]["ports"] = [port]
    return {"metadata": {"name": name, "namespace": chance.choice("aab"), "labels": pod_labels(chance)}, "spec": spec}


def with_claims(manifest: dict[str, Any], chance: Random) -> dict[str, Any]:
    """*manifest*, and now and then some of the claims of `storage`."""
    if chance.random() < 0.35:
        manifest["spec"]["volumes"] = [
            {"name": f"x{number}", "persistentVolumeClaim": {"claimName": f"c{number}"}}
            for number in chance.sample(range(CLAIMS), chance.choice((1, 1, 2, 3)))
        ]
    return manifest


def with_features(manifest: dict[str, Any], chance: Random) -> dict[str, Any]:
    """*manifest* of a pod, and now and then a rule that not every kubelet knows."""
    if chance.random() < 0.1:
        action = chance.choice(("Restart", "RestartAllContainers", "RestartAllContainers"))
        rule = {"action": action, "exitCodes": {"operator": "In", "values": [42]}}
        manifest["spec"]["containers"][0] |= {"restartPolicy": "Never", "restartPolicyRules": [rule]}
    return manifest


def storage(chance: Random) -> Iterator[tuple[str, dict[str, Any]]]:
    """Claims of each namespace and the volumes that they are bound to, each with the path that makes it."""
    for namespace in NAMESPACES:
        for number in range(CLAIMS):
            volume, claim = f"{namespace}-v{number}", f"c{number}"
            mode = "ReadWriteOncePod" if chance.random() < 0.15 else "ReadWriteMany"
            both = {"accessModes": [mode], "storageClassName": "none"}
            spec = {**both, "capacity": {"storage": "1Gi"}, "claimRef": {"namespace": namespace, "name": claim}}
            # Some volumes are the same to their driver.
            handle = f"h{chance.randint(0, 2)}" if chance.random() < 0.3 else f"h-{volume}"
            spec["csi"] = {"driver": chance.choice(DRIVERS), "volumeHandle": handle}
            if chance.random() < 0.2:
                near = {"key": "zone", "operator": "In", "values": chance.sample("123", 2)}
                spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [near]}]}}
            yield "/api/v1/persistentvolumes", {"metadata": {"name": volume}, "spec": spec}
            bound = {"name": claim, "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
            asked = {**both, "volumeName": volume, "resources": {"requests": {"storage": "1Gi"}}}
            yield f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", {"metadata": bound, "spec": asked}


def attached(nodes: Sequence[str], chance: Random) -> Iterator[tuple[str, dict[str, Any]]]:
    """How many volumes *nodes* attach, and which are attached whoever uses them, each with the path that makes it."""
    for name in nodes:
        drivers: list[dict[str, Any]] = [
            {"name": driver, "nodeID": name} for driver in DRIVERS if chance.random() < 0.9
        ]
        for driver in drivers:
            if chance.random() < 0.8:
                driver["allocatable"] = {"count": chance.randint(1, 5)}
        yield f"{STORAGE}/csinodes", {"metadata": {"name": name}, "spec": {"drivers": drivers}}
    for number in range(chance.randint(0, 5)):
        spec: dict[str, Any] = {"attacher": chance.choice(DRIVERS), "nodeName": chance.choice(nodes)}
        volume = f"{chance.choice('ab')}-v{chance.randrange(CLAIMS)}"
        yield (
            f"{STORAGE}/volumeattachments",
            {"metadata": {"name": f"at-{number}"}, "spec": {**spec, "source": {"persistentVolumeName": volume}}},
        )


def with_wishes(manifest: dict[str, Any], chance: Random) -> dict[str, Any]:
    """*manifest*, and about two times in three some preferences."""
    spec = manifest["spec"]
    affinity = spec.setdefault("affinity", {})
    if chance.random() < 0.3:
        wanted = [
            {"weight": chance.randint(1, 100), "preference": _node_term(chance)} for _ in range(chance.choice((1, 2)))
        ]
        affinity.setdefault("nodeAffinity", {})[PREFERRED] = [*wanted, {"weight": 50, "preference": {}}]
    for kind in ("podAffinity", "podAntiAffinity"):
        if chance.random() < 0.25:
            terms = [
                {"weight": chance.randint(1, 100), "podAffinityTerm": _term(chance)}
                for _ in range(chance.choice((1, 2)))
            ]
            affinity.setdefault(kind, {})[PREFERRED] = terms
    if chance.random() < 0.3:
        spread = {**_spread(chance), "whenUnsatisfiable": "ScheduleAnyway"}
        spread.pop("minDomains", None)
        constraints = spec.setdefault("topologySpreadConstraints", [])
        if all(one["whenUnsatisfiable"] != "ScheduleAnyway" for one in constraints):
            constraints.append(spread)
    if chance.random() < 0.3:
        spec.setdefault("tolerations", []).append({"key": "old", "operator": "Exists"})
    return manifest


def with_soft_taints(manifest: dict[str, Any], chance: Random) -> dict[str, Any]:
    """*manifest* of a node, and now and then taints that pods had better keep away from."""
    for key in ("old", "slow"):
        if chance.random() < 0.25:
            manifest["spec"]["taints"].append({"key": key, "effect": "PreferNoSchedule"})
    return manifest


def pod_labels(chance: Random) -> dict[str, str]:
    """Labels of a pod."""
    return {"app": chance.choice(_APPS), "rev": chance.choice("12")} if chance.random() < 0.9 else {}


def _selector(chance: Random) -> dict[str, Any] | None:
    draw = chance.random()
    if draw < 0.6:
        return {"matchLabels": {"app": chance.choice(_APPS)}}
    if draw < 0.75:
        operator = chance.choice(("In", "NotIn"))
        return {"matchExpressions": [{"key": "app", "operator": operator, "values": [chance.choice(_APPS), "web"]}]}
    if draw < 0.85:
        return {"matchExpressions": [{"key": "rev", "operator": chance.choice(("Exists", "DoesNotExist"))}]}
    return {} if draw < 0.95 else None


def _term(chance: Random) -> dict[str, Any]:
    term: dict[str, Any] = {"topologyKey": chance.choice(_KEYS)}
    selector = _selector(chance)
    if selector is not None:
        term["labelSelector"] = selector
    draw = chance.random()
    if draw < 0.15:
        term["namespaces"] = chance.sample("abc", 2)
    elif draw < 0.3:
        some: tuple[dict[str, Any], ...] = (
            {},
            {"matchLabels": {"team": "x"}},
            {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]},
        )
        term["namespaceSelector"] = chance.choice(some)
    if selector is not None and "rev" not in str(selector) and chance.random() < 0.2:
        term[chance.choice(("matchLabelKeys", "mismatchLabelKeys"))] = ["rev"]
    return term


def _node_term(chance: Random) -> dict[str, Any]:
    draw = chance.random()
    if draw < 0.3:
        return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [f"n{chance.randint(0, 4)}"]}]}
    if draw < 0.6:
        operator = chance.choice(("Gt", "Lt"))
        return {"matchExpressions": [{"key": "size", "operator": operator, "values": [str(chance.randint(0, 5))]}]}
    return {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": [chance.choice("123")]}]}


def _spread(chance: Random) -> dict[str, Any]:
    found: dict[str, Any] = {
        "topologyKey": chance.choice(_KEYS),
        "maxSkew": chance.choice((1, 1, 2)),
        "whenUnsatisfiable": chance.choice(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")),
    }
    selector = _selector(chance)
    if selector is not None:
        found["labelSelector"] = selector
    if found["whenUnsatisfiable"] == "DoNotSchedule" and chance.random() < 0.3:
        found["minDomains"] = chance.randint(1, 4)
    if chance.random() < 0.3:
        found["nodeAffinityPolicy"] = chance.choice(("Honor", "Ignore"))
    if chance.random() < 0.3:
        found["nodeTaintsPolicy"] = chance.choice(("Honor", "Ignore"))
    if selector is not None and "rev" not in str(selector) and chance.random() < 0.2:
        found["matchLabelKeys"] = ["rev"]
    return found
