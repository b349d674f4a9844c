"""Each node's verdict on pods with volumes is that of Kubernetes' documentation, as storage and pods come and go."""

from __future__ import annotations

from typing import Any

import pytest

from core.model import PodUid
from core.wire.nodes import node_from_object
from core.wire.storage import (
    attachment_from_object,
    capacity_from_object,
    claim_from_object,
    class_from_object,
    csi_node_from_object,
    driver_from_object,
    volume_from_object,
)
from tests.support.judging.twice import Twice
from tests.support.judging.volumes_by_the_book import ZONES, StorageCluster

DRIVERS = ("one.csi", "two.csi")
ZONE = "topology.kubernetes.io/zone"


class World(Twice):
    """Nodes, storage of five classes, and pods that have claims and disks."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, StorageCluster({"a": {}}), self.pod)
        self.volumes = self.ledger.volumes
        self.storage = self.volumes.storage
        self.storage.unread.clear()
        later = {"volumeBindingMode": "WaitForFirstConsumer"}
        topology = {"matchLabelExpressions": [{"key": ZONE, "values": ["1"]}]}
        for name, fields in (
            ("class-0", {"provisioner": "one.csi"}),
            ("class-1", {"provisioner": "two.csi"}),
            ("later-0", {"provisioner": "kubernetes.io/no-provisioner", **later}),
            ("later-1", {"provisioner": "one.csi", **later}),
            ("later-2", {"provisioner": "two.csi", "allowedTopologies": [topology], **later}),
        ):
            manifest: dict[str, Any] = {"metadata": {"name": name}, **fields}
            self.book.classes[name] = manifest
            self.storage.set_class(class_from_object(manifest))
        for number in range(6):
            self.set_volume(f"v{number}")
            self.set_claim(f"c{number}")
        for number in range(6, 9):
            self.set_free_volume(f"v{number}")
            self.set_waiting_claim(f"c{number}")
        for name in ("here", "there"):
            self.set_capacity(name)
        for number in range(3):
            self.set_node(f"n{number}")
            self.set_limits(f"n{number}")
        self.waiting = [self.pod(f"w{number}") for number in range(4)]

    # ------------------------------------------------------------------ what is drawn

    def set_node(self, name):
        labels = {"kubernetes.io/hostname": name}
        for key in ZONES:
            if self.chance.random() < 0.3:
                labels[key] = self.chance.choice("12")
        manifest = {
            "metadata": {"name": name, "labels": labels},
            "spec": {},
            "status": {
                "allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        self.book.nodes[name] = manifest
        self.ledger.set_node(node_from_object(manifest))

    def set_limits(self, name):
        drivers = [
            {"name": driver, "nodeID": name, "allocatable": {"count": self.chance.randint(0, 3)}}
            if self.chance.random() < 0.7
            else {"name": driver, "nodeID": name}
            for driver in DRIVERS
            if self.chance.random() < 0.9
        ]
        manifest = {"metadata": {"name": name}, "spec": {"drivers": drivers}}
        self.book.csi_nodes[name] = manifest
        self.volumes.set_limits(csi_node_from_object(manifest))

    def set_attachment(self, name):
        """A volume that is attached to a node, with or without a pod there."""
        chance = self.chance
        volume: dict[str, Any] = {"persistentVolumeName": f"v{chance.randint(0, 8)}"}
        manifest = {
            "metadata": {"name": name},
            "spec": {
                "attacher": chance.choice(DRIVERS),
                "nodeName": f"n{chance.randint(0, 2)}",
                "source": volume if chance.random() < 0.9 else {"inlineVolumeSpec": {}},
            },
        }
        self.book.attachments[name] = manifest
        self.volumes.set_attachment(attachment_from_object(manifest))

    def set_volume(self, name):
        chance = self.chance
        meta: dict[str, Any] = {"name": name}
        spec: dict[str, Any] = {"storageClassName": "class-0", "capacity": {"storage": "1Gi"}}
        spec["claimRef"] = {"namespace": "a", "name": f"c{name[-1]}"}
        if chance.random() < 0.4:
            values = {"kubernetes.io/hostname": ("n0", "n1"), ZONE: ("1", "2")}
            terms = [
                {"matchExpressions": [{"key": key, "operator": "In", "values": [chance.choice(values[key])]}]}
                for key in chance.sample(sorted(values), chance.choice((1, 1, 2)))
            ]
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
        if chance.random() < 0.3:
            meta["labels"] = {chance.choice(tuple(ZONES)): chance.choice(("1", "2", "1__2"))}
        if chance.random() < 0.7:
            # Some volumes are one to their driver.
            handle = f"h-{name}" if chance.random() < 0.7 else f"h-{chance.choice('pq')}"
            spec["csi"] = {"driver": chance.choice(DRIVERS), "volumeHandle": handle}
        manifest = {"metadata": meta, "spec": spec, "status": {"phase": "Bound"}}
        self.book.volumes[name] = manifest
        self.storage.set_volume(volume_from_object(manifest))
        self.volumes.touch_volume(name)

    def set_claim(self, name):
        chance = self.chance
        meta: dict[str, Any] = {"name": name, "namespace": "a", "uid": f"uid-{name}"}
        spec: dict[str, Any] = {"accessModes": ["ReadWriteOncePod" if chance.random() < 0.2 else "ReadWriteMany"]}
        spec["storageClassName"] = chance.choice(("class-0", "class-1", "none"))
        if chance.random() < 0.85:
            # One claim's, as volumes are.
            spec["volumeName"] = f"v{name[-1]}"
            meta["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"} if chance.random() < 0.95 else {}
        if chance.random() < 0.05:
            meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        if chance.random() < 0.5:
            meta["ownerReferences"] = [{"kind": "Pod", "uid": "e", "controller": True}]
        manifest = {"metadata": meta, "spec": spec, "status": {"phase": chance.choice(("Bound",) * 9 + ("Lost",))}}
        self.book.claims[f"a/{name}"] = manifest
        if self.storage.set_claim(claim_from_object(manifest)):
            self.volumes.touch_claim(f"a/{name}")

    def set_free_volume(self, name):
        chance = self.chance
        spec: dict[str, Any] = {
            "storageClassName": chance.choice(("later-0", "later-1")),
            "accessModes": ["ReadWriteOnce"],
        }
        spec["capacity"] = {"storage": f"{chance.randint(1, 3)}Gi"}
        if chance.random() < 0.1:
            spec["volumeAttributesClassName"] = "fast"
        if chance.random() < 0.7:
            near = {"key": "kubernetes.io/hostname", "operator": "In", "values": [chance.choice(("n0", "n1"))]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [near]}]}}
        labels = {"tier": chance.choice("ab")}
        phase = "Available" if chance.random() < 0.8 else "Released"
        manifest = {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"phase": phase}}
        self.book.volumes[name] = manifest
        self.storage.set_volume(volume_from_object(manifest))

    def set_waiting_claim(self, name):
        chance = self.chance
        meta: dict[str, Any] = {"name": name, "namespace": "a", "uid": f"uid-{name}"}
        if chance.random() < 0.2:
            meta["annotations"] = {"volume.kubernetes.io/selected-node": chance.choice(("n0", "n1"))}
        spec: dict[str, Any] = {"accessModes": ["ReadWriteOnce"]}
        spec["storageClassName"] = chance.choice(("later-0", "later-0", "later-1", "later-2"))
        spec["resources"] = {"requests": {"storage": f"{chance.randint(1, 3)}Gi"}}
        if chance.random() < 0.1:
            spec["volumeAttributesClassName"] = "fast"
        if chance.random() < 0.2:
            spec["selector"] = {"matchLabels": {"tier": "a"}}
        manifest = {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}}
        self.book.claims[f"a/{name}"] = manifest
        if self.storage.set_claim(claim_from_object(manifest)):
            self.volumes.touch_claim(f"a/{name}")

    def set_capacity(self, name):
        chance = self.chance
        for one in DRIVERS:
            spec = {"storageCapacity": one == "one.csi" and chance.random() < 0.5}
            driver = {
                "metadata": {"name": one},
                "spec": {**spec, "preventPodSchedulingIfMissing": chance.random() < 0.4},
            }
            self.book.drivers[one] = driver
            self.volumes.set_driver(driver_from_object(driver))
        manifest: dict[str, Any] = {
            "metadata": {"name": name, "namespace": "a"},
            "storageClassName": chance.choice(("later-1", "later-2")),
            "capacity": f"{chance.randint(1, 3)}Gi",
        }
        before = self.book.capacities.get(name)
        if before is not None:
            self.storage.remove_capacity(capacity_from_object(before))
        if chance.random() < 0.8:
            manifest["nodeTopology"] = {"matchLabels": {ZONE: chance.choice("12")} if chance.random() < 0.7 else {}}
        if chance.random() < 0.3:
            manifest["maximumVolumeSize"] = "2Gi"
        self.book.capacities[name] = manifest
        self.storage.set_capacity(capacity_from_object(manifest))

    def pod(self, name):
        chance = self.chance
        volumes = [
            {"name": f"x{number}", "persistentVolumeClaim": {"claimName": f"c{number}"}}
            for number in chance.sample(range(10), chance.choice((0, 1, 1, 2, 3)))
        ]
        if chance.random() < 0.4:
            read = {"readOnly": True} if chance.random() < 0.5 else {}
            volumes.append(chance.choice((
                {"gcePersistentDisk": {"pdName": "d", **read}},
                {"awsElasticBlockStore": {"volumeID": "d", **read}},
                {"iscsi": {"iqn": "d", **read}},
                {"rbd": {"monitors": chance.sample("mno", 2), "pool": chance.choice("pq"), "image": "d", **read}},
            )) | {"name": "disk"})  # fmt: skip
        spec = {"containers": [{"name": "c"}], "schedulerName": "cardshare", "volumes": volumes}
        return {"metadata": {"name": name, "namespace": "a", "uid": name}, "spec": spec}

    # ------------------------------------------------------------------ what happens

    def step(self):
        chance, book = self.chance, self.book
        draw = chance.random()
        if draw < 0.3 or not book.pods:
            self.made += 1
            manifest = self.pod(f"p{self.made}")
            manifest["spec"]["nodeName"] = chance.choice([*book.nodes, "gone"])
            self.show(manifest)
        elif draw < 0.5:
            name = chance.choice(sorted(book.pods))
            del book.pods[name]
            self.ledger.release(PodUid(name))
        elif draw < 0.6:
            self.set_node(f"n{chance.randint(0, 3)}")
        elif draw < 0.65:
            self.set_limits(f"n{chance.randint(0, 3)}")
        elif draw < 0.69:
            self.set_attachment(f"a{chance.randint(0, 5)}")
        elif draw < 0.7 and book.attachments:
            manifest = book.attachments.pop(chance.choice(sorted(book.attachments)))
            self.volumes.remove_attachment(attachment_from_object(manifest))
        elif draw < 0.8:
            self.set_volume(f"v{chance.randint(0, 5)}")
        elif draw < 0.85:
            name = f"v{chance.randint(0, 5)}"
            self.volumes.touch_volume(name)
            self.book.volumes.pop(name, None)
            self.storage.remove_volume(name)
        elif draw < 0.89:
            self.set_claim(f"c{chance.randint(0, 5)}")
        elif draw < 0.92:
            self.set_waiting_claim(f"c{chance.randint(6, 8)}")
        elif draw < 0.95:
            self.set_free_volume(f"v{chance.randint(6, 8)}")
        elif draw < 0.97:
            self.set_capacity(chance.choice(("here", "there")))
        else:
            key = f"a/c{chance.randint(0, 5)}"
            self.book.claims.pop(key, None)
            self.storage.remove_claim(key)
            self.volumes.touch_claim(key)


@pytest.mark.parametrize("seed", range(80))
def test_every_verdict_on_volumes_is_that_of_the_documentation(seed):
    world = World(seed)
    world.live(world.step)
