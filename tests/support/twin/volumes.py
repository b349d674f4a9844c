"""Volumes: claims that wait for a node, what provides them, and people who delete them or share them.

Source: Kubernetes' documentation, "Persistent Volumes"; kubernetes-csi/external-provisioner (which removes the selected
node if it gives up); kube-controller-manager's volume binder and pvc-protection.
"""

from collections.abc import Sequence
from typing import Any, Final

from tests.support.twin.api import Event, Json, Target
from tests.support.twin.judge import group_of
from tests.support.twin.machines import ENDED, Machine, Steps
from tests.support.twin.sides import Lately, Side

CLAIMS: Final = "persistentvolumeclaims"
VOLUMES: Final = "persistentvolumes"
_NODE: Final = "volume.kubernetes.io/selected-node"
_DONE: Final = "pv.kubernetes.io/bind-completed"
_CLASSES: Final = {
    "made": ("csi.example.com", "WaitForFirstConsumer"),
    "local": ("kubernetes.io/no-provisioner", "WaitForFirstConsumer"),
    "at-once": ("csi.example.com", "Immediate"),
}


def is_bound(claim: Json) -> bool:
    """Whether a claim has its volume."""
    return bool(claim["spec"].get("volumeName")) and _DONE in claim["metadata"].get("annotations", {})


def claims_of(pod: Json) -> list[str]:
    """The keys of the claims that a pod names."""
    return [
        f"{pod['metadata'].get('namespace', 'default')}/{one['persistentVolumeClaim']['claimName']}"
        for one in pod["spec"].get("volumes", ())
    ]


class Volumes(Side):
    """Claims and volumes, and all who write them."""

    settings = "volume_wait_max_s: 25\n"

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self._names = 0
        # (claim, node): where a bound claim is, or was a while ago.
        self._reached = Lately()
        for name, (provisioner, mode) in _CLASSES.items():
            body = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode}
            world.api.create("storageclasses", body)
        for machine in world.machines.values():
            for _ in range(self._draw.randint(0, 2)):
                self._create_volume(machine.name, "local", self._draw.choice((10, 20)), None)
        world.spawn(self._run())

    # ------------------------------------------------------------------ users

    def dress(self, pod: Json) -> None:
        draw = self._draw
        if pod["spec"]["schedulerName"] != "cardshare" or draw.random() < 0.4:
            return
        in_group = bool(group_of(pod))
        names = []
        for _ in range(draw.choice((1, 1, 1, 2))):
            there = [key.partition("/")[2] for key in self.objects(CLAIMS)]
            if there and not in_group and draw.random() < 0.3:
                names.append(draw.choice(there))
            else:
                names.append(
                    self._claim("made" if in_group else draw.choice(("made", "made", "local", "local", "at-once")))
                )
        pod["spec"] = {
            **pod["spec"],
            "volumes": [
                {"name": f"v{at}", "persistentVolumeClaim": {"claimName": name}}
                for at, name in enumerate(dict.fromkeys(names))
            ],
        }

    def _claim(self, class_: str) -> str:
        """Create a claim, perhaps a while later; its name."""
        self._names += 1
        name = f"c{self._names}"
        self._world.at(self._draw.choice((0.0, 0.0, 0.1, 4.0)), lambda: self._create_claim(name, class_))
        return name

    def _create_claim(self, name: str, class_: str) -> None:
        if f"default/{name}" in self.objects(CLAIMS):
            return
        mode = "ReadWriteOncePod" if self._draw.random() < 0.2 else "ReadWriteOnce"
        spec = {
            "accessModes": [mode],
            "storageClassName": class_,
            "resources": {"requests": {"storage": f"{self._draw.choice((5, 10, 15))}Gi"}},
        }
        body = {"kind": "PersistentVolumeClaim", "metadata": {"name": name, "annotations": {}}, "spec": spec}
        self._world.api.create(CLAIMS, {**body, "status": {"phase": "Pending"}}, "default")

    def act(self) -> None:
        """Somebody deletes a claim, and perhaps makes it anew; or a local volume is lost."""
        draw, claims = self._draw, self.objects(CLAIMS)
        if draw.random() < 0.15:
            local = [key for key, one in self.objects(VOLUMES).items() if one["spec"]["storageClassName"] == "local"]
            if local:
                self._world.api.delete(Target(VOLUMES, "", draw.choice(sorted(local)), ""), {})
            return
        if draw.random() < 0.15:
            self._create_volume(draw.choice(sorted(self._world.machines)), "local", draw.choice((10, 20)), None)
            return
        if not claims:
            return
        key = draw.choice(sorted(claims))
        claim = claims[key]
        if self._users(key):
            self._world.api.write(CLAIMS, key, {"metadata": {"deletionTimestamp": self._world.now_text()}})
        else:
            self._delete_claim(key)
        if draw.random() < 0.6:
            name, class_ = key.partition("/")[2], claim["spec"]["storageClassName"]
            self._world.at(draw.choice((0.0, 2.0, 15.0)), lambda: self._create_claim(name, class_))

    def _users(self, key: str) -> list[str]:
        """The pods on nodes that use a claim."""
        return [
            name
            for name, pod in self.objects("pods").items()
            if pod["spec"].get("nodeName") and pod["status"].get("phase") not in ENDED and key in claims_of(pod)
        ]

    def _delete_claim(self, key: str) -> None:
        claim = self.objects(CLAIMS).get(key)
        if claim is not None:
            self._world.api.delete(Target(CLAIMS, "default", key.partition("/")[2], ""), {})

    # ------------------------------------------------------------------ who provides them

    def _create_volume(self, node: str, class_: str, gib: int, claim: Json | None) -> str:
        self._names += 1
        name = f"pv{self._names}"
        ref = _ref(claim) if claim is not None else None
        terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]
        spec = {
            "capacity": {"storage": f"{gib}Gi"},
            "accessModes": ["ReadWriteOnce", "ReadWriteOncePod"],
            "storageClassName": class_,
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            **({"claimRef": ref} if ref else {}),
        }
        body = {"kind": "PersistentVolume", "metadata": {"name": name, "annotations": {}}, "spec": spec}
        self._world.api.create(VOLUMES, {**body, "status": {"phase": "Bound" if ref else "Available"}})
        return name

    def _run(self) -> Steps:
        """Provisioners and controllers look at everything from time to time."""
        while True:
            yield 0.1 + self._draw.expovariate(2.0)
            for key, claim in sorted(self.objects(CLAIMS).items()):
                if self._draw.random() < 0.6:
                    self._go_on(key, claim)
            for name, volume in sorted(self.objects(VOLUMES).items()):
                self._recycle(name, volume)

    def _go_on(self, key: str, claim: Json) -> None:
        if claim["metadata"].get("deletionTimestamp"):
            if not self._users(key):
                self._delete_claim(key)
            return
        name = claim["spec"].get("volumeName")
        if name and is_bound(claim):
            if name not in self.objects(VOLUMES) and claim["status"]["phase"] != "Lost":
                self._world.api.write(CLAIMS, key, {"status": {"phase": "Lost"}})
            return
        mine = [
            name
            for name, one in sorted(self.objects(VOLUMES).items())
            if one["spec"].get("claimRef", {}).get("uid") == claim["metadata"]["uid"]
        ]
        if mine:
            changes = {"metadata": {"annotations": {_DONE: "yes"}}, "spec": {"volumeName": mine[0]}}
            self._world.api.write(VOLUMES, mine[0], {"status": {"phase": "Bound"}})
            self._world.api.write(CLAIMS, key, {**changes, "status": {"phase": "Bound"}})
            return
        class_, node = claim["spec"]["storageClassName"], claim["metadata"].get("annotations", {}).get(_NODE, "")
        if class_ == "at-once":
            node = self._draw.choice(sorted(self._world.machines))
        if class_ == "local" or not node:
            return
        if (self._draw.random() < 0.25 and not self.is_calm) or node not in self.objects("nodes"):
            self._world.counts["volumes: a provisioner gave up"] += 1
            self._world.api.write(CLAIMS, key, {"metadata": {"annotations": {_NODE: None}}})
        elif self._draw.random() < 0.7 or self.is_calm:
            self._world.counts["volumes: provisioned"] += 1
            self._create_volume(node, class_, 20, claim)

    def _recycle(self, name: str, volume: Json) -> None:
        """A volume whose claim is gone is deleted; a local one is made anew."""
        ref = volume["spec"].get("claimRef")
        if not ref:
            return
        claim = self.objects(CLAIMS).get(f"{ref['namespace']}/{ref['name']}")
        if claim is not None and claim["metadata"]["uid"] == ref.get("uid"):
            return
        if volume["status"]["phase"] != "Released":
            self._world.api.write(VOLUMES, name, {"status": {"phase": "Released"}})
        elif self._draw.random() < 0.5:
            self._world.api.delete(Target(VOLUMES, "", name, ""), {})
            if volume["spec"]["storageClassName"] == "local":
                self._create_volume(_node(volume), "local", 20, None)

    # ------------------------------------------------------------------ what must be

    def changed(self, resource: str, event: Event, obj: Json) -> None:
        if resource in (CLAIMS, VOLUMES):
            volumes = self.objects(VOLUMES)
            self._reached.set(
                {
                    (key, _node(volumes[one["spec"]["volumeName"]]))
                    for key, one in self.objects(CLAIMS).items()
                    if is_bound(one) and one["spec"]["volumeName"] in volumes
                }
            )

    def placed(self, key: str, pod: Json, machine: Machine) -> None:
        for claim in claims_of(pod):
            if (claim, machine.name) not in self._reached:
                self._world.find("unreachable", f"{key} is on {machine.name}, where its claim {claim} has no volume")

    def allows(self, pod: Json, machine: Machine, beside: Sequence[Json]) -> bool:
        del beside  # members of groups have claims of their own, for which volumes are made
        keys = claims_of(pod)
        return all(self._provides(key, machine) for key in keys) and self._has_local(keys, machine)

    def _provides(self, key: str, machine: Machine) -> bool:
        """Whether a claim has its volume there, or can get one that is made for it, or a local one."""
        claim = self.objects(CLAIMS).get(key)
        if claim is None or claim["metadata"].get("deletionTimestamp"):
            return False
        if claim["spec"]["accessModes"] == ["ReadWriteOncePod"] and self._users(key):
            return False
        if is_bound(claim):
            there = self.objects(VOLUMES).get(claim["spec"]["volumeName"])
            return there is not None and claim["status"]["phase"] != "Lost" and _node(there) == machine.name
        return claim["spec"]["storageClassName"] in ("made", "local")

    def _has_local(self, keys: list[str], machine: Machine) -> bool:
        """Whether each claim that waits for a local volume can get one of its own there."""
        free = sorted(
            int(one["spec"]["capacity"]["storage"][:-2])
            for one in self.objects(VOLUMES).values()
            if _node(one) == machine.name
            and one["spec"]["storageClassName"] == "local"
            and one["status"]["phase"] == "Available"
            and not one["spec"].get("claimRef")
        )
        claims = [self.objects(CLAIMS)[key]["spec"] for key in keys]
        for wants in sorted(
            int(one["resources"]["requests"]["storage"][:-2])
            for one in claims
            if one["storageClassName"] == "local" and not one.get("volumeName")
        ):
            gib = next((gib for gib in free if gib >= wants), None)
            if gib is None:
                return False
            free.remove(gib)
        return True


def _ref(claim: Json) -> Json:
    meta = claim["metadata"]
    return {
        "kind": "PersistentVolumeClaim",
        "namespace": meta["namespace"],
        "name": meta["name"],
        "uid": meta["uid"],
    }


def _node(volume: Json) -> str:
    terms = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    return str(terms[0]["matchExpressions"][0]["values"][0])
