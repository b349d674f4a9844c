"""Whether a node takes a pod by its volumes, by Kubernetes' documentation alone: manifests in, nothing kept.

Shares nothing with the product. Source: Kubernetes documentation, "Persistent Volumes", "Node-specific Volume Limits",
"Storage Capacity"; API reference of v1.36; kube-scheduler's plugins VolumeBinding, VolumeZone, VolumeRestrictions,
NodeVolumeLimits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.support.judging.by_the_book import Cluster

Object = Mapping[str, Any]
ZONES = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}


class StorageCluster(Cluster):
    """The same with claims by namespace/name, volumes, classes and CSINodes by name."""

    def __init__(self, namespaces: Mapping[str, Mapping[str, str]]) -> None:
        super().__init__(namespaces)
        self.claims: dict[str, Object] = {}
        self.volumes: dict[str, Object] = {}
        self.classes: dict[str, Object] = {}
        self.csi_nodes: dict[str, Object] = {}
        self.attachments: dict[str, Object] = {}
        # CSIDrivers and CSIStorageCapacity by name.
        self.drivers: dict[str, Object] = {}
        self.capacities: dict[str, Object] = {}

    def refusals(self, pod: Object, node: Object) -> list[str]:
        rules = {
            "claims": self._claims_are_bound(pod),
            "once": not self._is_used_already(pod),
            "reach": self._reaches(pod, node),
            "waiting claims": self._can_be_bound(pod, node),
            "limits": self._can_attach(pod, node),
            "disks": not self._disk_conflicts(pod, node),
        }
        return [*super().refusals(pod, node), *(name for name, holds in rules.items() if not holds)]

    def _claims_of(self, pod: Object) -> Iterator[str]:
        meta = pod["metadata"]
        for one in pod["spec"].get("volumes", ()):
            if "persistentVolumeClaim" in one:
                yield f"{meta['namespace']}/{one['persistentVolumeClaim']['claimName']}"
            elif "ephemeral" in one:
                yield f"{meta['namespace']}/{meta['name']}-{one['name']}"

    def _claims_are_bound(self, pod: Object) -> bool:
        ephemeral = {
            f"{pod['metadata']['namespace']}/{pod['metadata']['name']}-{one['name']}"
            for one in pod["spec"].get("volumes", ())
            if "ephemeral" in one
        }
        for key in self._claims_of(pod):
            claim = self.claims.get(key)
            if claim is None or "deletionTimestamp" in claim["metadata"] or claim["status"]["phase"] == "Lost":
                return False
            owners = [one["uid"] for one in claim["metadata"].get("ownerReferences", ()) if one.get("controller")]
            if key in ephemeral and pod["metadata"]["uid"] not in owners:
                return False
            if _is_bound(claim) and claim["spec"]["volumeName"] not in self.volumes:
                return False
            if not _is_bound(claim) and not self._waits_for_its_pod(claim):
                return False
        return True

    def _waits_for_its_pod(self, claim: Object) -> bool:
        found = self.classes.get(claim["spec"].get("storageClassName", ""), {})
        return found.get("volumeBindingMode") == "WaitForFirstConsumer" and not claim["spec"].get("volumeName")

    def _can_be_bound(self, pod: Object, node: Object) -> bool:
        """Whether all claims that wait for the pod find a volume here: the smallest that is free, or a new one."""
        claims = [self.claims[key] for key in self._claims_of(pod) if key in self.claims]
        waiting = [one for one in claims if not _is_bound(one) and self._waits_for_its_pod(one)]
        taken: set[str] = set()
        for claim in sorted(waiting, key=lambda one: _gib(one["spec"]["resources"]["requests"]["storage"])):
            selected = claim["metadata"].get("annotations", {}).get("volume.kubernetes.io/selected-node")
            if selected is not None and selected != node["metadata"]["name"]:
                return False
            found = None if selected is not None else self._free_volume(claim, node, taken)
            if found is not None:
                taken.add(found)
            elif not self._is_made(claim, node):
                return False
        return True

    def _free_volume(self, claim: Object, node: Object, taken: set[str]) -> str | None:
        spec = claim["spec"]
        found = [
            (_gib(one["spec"]["capacity"]["storage"]), name)
            for name, one in self.volumes.items()
            if one["status"]["phase"] == "Available"
            and "claimRef" not in one["spec"]
            and name not in taken
            and one["spec"]["storageClassName"] == spec["storageClassName"]
            and set(spec["accessModes"]) <= set(one["spec"]["accessModes"])
            and spec.get("volumeAttributesClassName") == one["spec"].get("volumeAttributesClassName")
            and _gib(one["spec"]["capacity"]["storage"]) >= _gib(spec["resources"]["requests"]["storage"])
            and all(
                one["metadata"].get("labels", {}).get(key) == value
                for key, value in spec.get("selector", {}).get("matchLabels", {}).items()
            )
            and _meets_terms(one, node)
        ]
        return min(found)[1] if found else None

    def _is_made(self, claim: Object, node: Object) -> bool:
        found, labels = self.classes[claim["spec"]["storageClassName"]], node["metadata"]["labels"]
        if found["provisioner"] == "kubernetes.io/no-provisioner":
            return False
        terms = found.get("allowedTopologies")
        if terms and not any(
            all(labels.get(e["key"]) in e["values"] for e in one["matchLabelExpressions"]) for one in terms
        ):
            return False
        driver = self.drivers.get(found["provisioner"])
        if driver is None or not driver["spec"].get("storageCapacity"):
            return True
        return any(
            one["storageClassName"] == found["metadata"]["name"]
            and "nodeTopology" in one
            and all(labels.get(k) == v for k, v in one["nodeTopology"].get("matchLabels", {}).items())
            and _gib(one.get("maximumVolumeSize", one.get("capacity", "-1Gi")))
            >= _gib(claim["spec"]["resources"]["requests"]["storage"])
            for one in self.capacities.values()
        )

    def _is_used_already(self, pod: Object) -> bool:
        used = {key for other, _ in self._everywhere() if other is not pod for key in self._claims_of(other)}
        return any(
            key in used and "ReadWriteOncePod" in self.claims[key]["spec"]["accessModes"]
            for key in self._claims_of(pod)
            if key in self.claims
        )

    def _everywhere(self) -> Iterator[tuple[Object, str]]:
        for pod in self.pods.values():
            if pod["spec"].get("nodeName") and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
                yield pod, pod["spec"]["nodeName"]

    def _reaches(self, pod: Object, node: Object) -> bool:
        labels = node["metadata"]["labels"]
        for key in self._claims_of(pod):
            volume = self.volumes.get(self.claims.get(key, {"spec": {}})["spec"].get("volumeName", ""))
            if volume is None:
                continue
            if not _meets_terms(volume, node):
                return False
            if not any(label in labels for label in ZONES):
                continue
            for label, newer in ZONES.items():
                asked = volume["metadata"].get("labels", {}).get(label)
                has = labels[label] if label in labels else labels.get(newer)
                if asked is not None and has not in asked.split("__"):
                    return False
        return True

    def _handles(self, pod: Object, driver: str) -> set[str]:
        found = set()
        for key in self._claims_of(pod):
            claim = self.claims.get(key)
            if claim is None:
                continue
            name = claim["spec"].get("volumeName")
            if name:
                csi = self.volumes.get(name, {"spec": {}})["spec"].get("csi")
                if csi and csi["driver"] == driver:
                    found.add(csi["volumeHandle"])
            elif self.classes.get(claim["spec"].get("storageClassName", ""), {}).get("provisioner") == driver:
                found.add(f"{driver}-{key}")
        return found

    def _can_attach(self, pod: Object, node: Object) -> bool:
        drivers = self.csi_nodes.get(node["metadata"]["name"], {"spec": {"drivers": []}})["spec"]["drivers"]
        for name, driver in self.drivers.items():
            must_run = driver["spec"].get("preventPodSchedulingIfMissing", False)
            if must_run and self._handles(pod, name) and name not in [one["name"] for one in drivers]:
                return False
        for driver in drivers:
            most = driver.get("allocatable", {}).get("count")
            there = set().union(
                *(self._handles(other, driver["name"]) for other, where in self.there() if where is node)
            )
            more = self._handles(pod, driver["name"]) - there
            there |= self._attached(node["metadata"]["name"], driver["name"])
            if most is not None and more and len(there) + len(more) > most:
                return False
        return True

    def _attached(self, node: str, driver: str) -> set[str]:
        """What stands in VolumeAttachments, of volumes that are CSI's and are there."""
        specs = [one["spec"] for one in self.attachments.values()]
        names = [
            one["source"]["persistentVolumeName"]
            for one in specs
            if (one["nodeName"], one["attacher"]) == (node, driver) and "persistentVolumeName" in one["source"]
        ]
        volumes = [self.volumes[name]["spec"].get("csi", {}) for name in names if name in self.volumes]
        return {one["volumeHandle"] for one in volumes if one}

    def _disk_conflicts(self, pod: Object, node: Object) -> bool:
        others = [one for other, where in self.there() if where is node for one in other["spec"].get("volumes", ())]
        return any(_conflict(mine, its) for mine in pod["spec"].get("volumes", ()) for its in others)


def _meets_terms(volume: Object, node: Object) -> bool:
    terms, labels = (
        volume["spec"].get("nodeAffinity", {}).get("required", {}).get("nodeSelectorTerms"),
        node["metadata"],
    )
    return terms is None or any(
        one["matchExpressions"] and all(labels["labels"].get(e["key"]) in e["values"] for e in one["matchExpressions"])
        for one in terms
    )


def _gib(quantity: str) -> int:
    return int(quantity.removesuffix("Gi"))


def _is_bound(claim: Object) -> bool:
    return bool(claim["spec"].get("volumeName")) and "pv.kubernetes.io/bind-completed" in claim["metadata"].get(
        "annotations", {}
    )


def _conflict(mine: Object, its: Object) -> bool:
    for kind, same in (
        ("gcePersistentDisk", lambda a, b: a["pdName"] == b["pdName"]),
        ("iscsi", lambda a, b: a["iqn"] == b["iqn"]),
        (
            "rbd",
            lambda a, b: (
                set(a["monitors"]) & set(b["monitors"]) and a["pool"] == b["pool"] and a["image"] == b["image"]
            ),
        ),
    ):
        if kind in mine and kind in its and same(mine[kind], its[kind]):
            return not (mine[kind].get("readOnly") and its[kind].get("readOnly"))
    aws = "awsElasticBlockStore"
    return aws in mine and aws in its and mine[aws]["volumeID"] == its[aws]["volumeID"]


def _image(rbd: Object) -> tuple[str, str]:
    return rbd["pool"], rbd["image"]
