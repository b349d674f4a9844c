"""Labels of nodes and pods that change, and pods that choose by them."""

from collections.abc import Sequence
from typing import Any, Final

from tests.support.twin.api import Event, Json
from tests.support.twin.clock import CLOCK
from tests.support.twin.judge import group_of
from tests.support.twin.machines import Machine
from tests.support.twin.sides import Lately, Side

_ZONES: Final = ("a", "b", "")
_APPS: Final = ("x", "y")


class Labels(Side):
    """Zones of nodes, apps of pods, and who wants or shuns them."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        # (node, zone), as they are or were.
        self._zones = Lately()
        # (uid, app): since when a pod has this app; (uid, node): since when it is there.
        self._since: dict[tuple[str, str], float] = {}
        self._apps: dict[str, str] = {}
        for name in sorted(world.machines):
            self._label(name)
        self._note_zones()  # nothing was written if no node got a label

    def _label(self, name: str) -> None:
        if name in self.objects("nodes"):
            zone = self._draw.choice(_ZONES)
            self._world.api.write("nodes", name, {"metadata": {"labels": {"zone": zone or None}}})

    # ------------------------------------------------------------------ users

    def dress(self, pod: Json) -> None:
        draw, spec = self._draw, dict(pod["spec"])
        if spec["schedulerName"] != "cardshare":
            return
        dice = draw.random()
        if dice < 0.2:
            spec["nodeSelector"] = {"zone": draw.choice("ab")}
        elif dice < 0.4:
            one = {"key": "zone", "operator": "NotIn", "values": [draw.choice("ab")]}
            terms = [{"matchExpressions": [one]}]
            required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
            spec["affinity"] = {"nodeAffinity": required}
        if not group_of(pod) and draw.random() < 0.5:
            pod["metadata"]["labels"] = {**pod["metadata"]["labels"], "app": draw.choice(_APPS)}
            if draw.random() < 0.5:
                term = {
                    "labelSelector": {"matchLabels": {"app": draw.choice(_APPS)}},
                    "topologyKey": "kubernetes.io/hostname",
                }
                anti = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
                spec["affinity"] = {**spec.get("affinity", {}), "podAntiAffinity": anti}
        pod["spec"] = spec

    def act(self) -> None:
        draw, pods = self._draw, self.objects("pods")
        if draw.random() < 0.4 or not pods:
            self._label(draw.choice(sorted(self._world.machines)))
            return
        key = draw.choice(sorted(pods))
        if not group_of(pods[key]):
            self._world.api.write("pods", key, {"metadata": {"labels": {"app": draw.choice((*_APPS, None))}}})

    # ------------------------------------------------------------------ what must be

    def _note_zones(self) -> None:
        nodes = self.objects("nodes").items()
        self._zones.set({(name, one["metadata"]["labels"].get("zone", "")) for name, one in nodes})

    def changed(self, resource: str, event: Event, obj: Json) -> None:
        if resource == "nodes":
            self._note_zones()
        uid = obj["metadata"]["uid"]
        if resource == "pods" and event.kind == "DELETED":
            self._since = {one: at_s for one, at_s in self._since.items() if one[0] != uid}
        elif resource == "pods":
            if self._apps.get(uid) != _app(obj):
                self._apps[uid] = _app(obj)
                self._since[uid, "app"] = CLOCK.now_s
            if obj["spec"].get("nodeName"):
                self._since.setdefault((uid, "node"), CLOCK.now_s)

    def placed(self, key: str, pod: Json, machine: Machine) -> None:
        if not any((machine.name, zone) in self._zones for zone in _ZONES if _wants(pod, zone)):
            self._world.find("misplaced", f"{key} was placed on {machine.name}, whose zone it does not want")
        for name, other in self.pods_on(machine.name):
            if name == key or not self._is_old(other, "node") or not self._is_old(other, "app"):
                continue
            if _shuns(pod, other) or (_shuns(other, pod) and self._is_old(pod, "app")):
                self._world.find(
                    "misplaced", f"{key} was placed on {machine.name} beside {name}, and one shuns the other"
                )

    def _is_old(self, pod: Json, what: str) -> bool:
        return bool(self._since.get((pod["metadata"]["uid"], what), CLOCK.now_s) < CLOCK.now_s - CLOCK.late_s)

    def allows(self, pod: Json, machine: Machine, beside: Sequence[Json]) -> bool:
        node = self.objects("nodes").get(machine.name)
        if node is None or not _wants(pod, node["metadata"]["labels"].get("zone", "")):
            return False
        others = [*beside, *(one for _, one in self.pods_on(machine.name))]
        return not any(_shuns(pod, one) or _shuns(one, pod) for one in others)


def _app(pod: Json) -> str:
    return str(pod["metadata"].get("labels", {}).get("app") or "")


def _wants(pod: Json, zone: str) -> bool:
    spec = pod["spec"]
    if spec.get("nodeSelector", {}).get("zone", zone) != zone:
        return False
    affinity = spec.get("affinity", {}).get("nodeAffinity")
    if affinity is None:
        return True
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return zone not in terms[0]["matchExpressions"][0]["values"]


def _shuns(pod: Json, other: Json) -> bool:
    anti = pod["spec"].get("affinity", {}).get("podAntiAffinity")
    if anti is None or not _app(other):
        return False
    return any(
        term["labelSelector"]["matchLabels"]["app"] == _app(other)
        for term in anti["requiredDuringSchedulingIgnoredDuringExecution"]
    )
