"""Others on the nodes: CPU that pods ask for, pods of another scheduler, and pods that are resized in place.

Source: Kubernetes' documentation, "Resize CPU and Memory Resources assigned to Containers".
"""

from collections.abc import Sequence
from typing import Any, Final

from tests.support.twin.api import Event, Json
from tests.support.twin.clock import CLOCK
from tests.support.twin.machines import ENDED, Machine, Steps
from tests.support.twin.sides import Side

_ROOM: Final = 64
_PENDING: Final = "PodResizePending"


def cpus(pod: Json) -> int:
    """What a pod takes of its node: the most of what it asks for, was granted, and uses."""
    told = {one["name"]: one for one in pod["status"].get("containerStatuses", ())}
    never = any(
        one["type"] == _PENDING and one["reason"] == "Infeasible" for one in pod["status"].get("conditions", ())
    )
    total = 0
    for container in pod["spec"]["containers"]:
        asked = int(container["resources"].get("requests", {}).get("cpu", 0))
        there = told.get(container["name"], {})
        granted = [
            int(one["cpu"])
            for one in (there.get("allocatedResources"), there.get("resources", {}).get("requests"))
            if one
        ]
        total += max(granted) if granted and never else max([asked, *granted])
    return total


class Neighbours(Side):
    """CPU, and who takes it."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self._names = 0
        # By uid: what a pod on a node took, and from when on.
        self._took: dict[str, list[tuple[float, int]]] = {}
        world.spawn(self._run())

    # ------------------------------------------------------------------ users

    def dress(self, pod: Json) -> None:
        draw = self._draw
        if pod["spec"]["schedulerName"] == "cardshare" and draw.random() < 0.7:
            _ask(pod["spec"]["containers"][0], draw.choice((4, 12, 24, 40)))

    def act(self) -> None:
        draw = self._draw
        if draw.random() < 0.5:
            self._come()
        else:
            self._resize()

    def _come(self) -> None:
        """Another scheduler places a pod."""
        node, asked = self._draw.choice(sorted(self._world.machines)), self._draw.choice((2, 16, 30))
        if node not in self.objects("nodes") or sum(cpus(pod) for _, pod in self.pods_on(node)) + asked > _ROOM:
            return
        self._names += 1
        container: Json = {"name": "c", "image": "i", "resources": {"limits": {}}}
        _ask(container, asked)
        spec = {"schedulerName": "default-scheduler", "priority": 0, "nodeName": node, "containers": [container]}
        self._world.create_pod(f"d{self._names}", spec)

    def _resize(self) -> None:
        there = [
            (key, pod)
            for key, pod in sorted(self.objects("pods").items())
            if pod["status"].get("phase") == "Running"
            and "cpu" in pod["spec"]["containers"][0]["resources"]["requests"]
        ]
        if there:
            key, pod = self._draw.choice(there)
            first, *others = pod["spec"]["containers"]
            container = {**first, "resources": {**first["resources"]}}
            _ask(container, self._draw.choice((1, 8, 30, 60, 100)))
            self._world.api.write("pods", key, {"spec": {"containers": [container, *others]}})

    # ------------------------------------------------------------------ kubelet

    def _run(self) -> Steps:
        while True:
            yield 0.3 + self._draw.expovariate(1.0)
            for machine in self._world.machines.values():
                if machine.is_heard:
                    for key, pod in self.pods_on(machine.name):
                        self._grant(machine, key, pod)

    def _grant(self, machine: Machine, key: str, pod: Json) -> None:
        first = pod["spec"]["containers"][0]
        asked = first["resources"].get("requests", {}).get("cpu")
        told = (pod["status"].get("containerStatuses") or [{}])[0]
        granted = told.get("allocatedResources", {}).get("cpu")
        used = told.get("resources", {}).get("requests", {}).get("cpu")
        if pod["status"].get("phase") != "Running" or asked is None or asked == granted == used:
            return
        if granted == asked:
            used = granted
        else:
            others = sum(_granted(one) for name, one in self.pods_on(machine.name) if name != key)
            if granted is not None and others + int(asked) > _ROOM:
                self._world.counts["neighbours: resizes that wait"] += 1
                reason = "Infeasible" if int(asked) > _ROOM else "Deferred"
                self._tell(key, {"conditions": [{"type": _PENDING, "status": "True", "reason": reason}]})
                return
            used, granted = granted or asked, asked
        mine = {"name": first["name"], "allocatedResources": {"cpu": granted}, "resources": {"requests": {"cpu": used}}}
        cleared = [{"type": _PENDING, "status": "False", "reason": ""}]
        self._tell(key, {"containerStatuses": [mine], "conditions": cleared})

    def _tell(self, key: str, status: Json) -> None:
        self._world.api.write("pods", key, {"status": status})

    # ------------------------------------------------------------------ what must be

    def changed(self, resource: str, event: Event, obj: Json) -> None:
        if resource != "pods":
            return
        uid = obj["metadata"]["uid"]
        if event.kind == "DELETED" or obj["status"].get("phase") in ENDED:
            self._took.pop(uid, None)
        elif obj["spec"].get("nodeName"):
            took, amount = self._took.setdefault(uid, []), cpus(obj)
            if not took and obj["spec"]["schedulerName"] != "cardshare":
                took.append((-CLOCK.late_s, 0))
            if not took or took[-1][1] != amount:
                took.append((CLOCK.now_s, amount))

    def placed(self, key: str, pod: Json, machine: Machine) -> None:
        there = self.pods_on(machine.name)
        least = sum(self._least(one["metadata"]["uid"]) for _, one in there)
        if cpus(pod) and least > _ROOM:
            told = ", ".join(f"{name} {self._least(one['metadata']['uid'])}" for name, one in there)
            self._world.find("crowded", f"{key} was placed on {machine.name}, where {least} CPUs are taken: {told}")

    def _least(self, uid: str) -> int:
        """The least that a pod took of its node in the last 90 s."""
        took = self._took.get(uid, [])
        since_s = CLOCK.now_s - CLOCK.late_s
        return min((amount for at, (_, amount) in enumerate(took) if _end_s(took, at) >= since_s), default=0)

    def allows(self, pod: Json, machine: Machine, beside: Sequence[Json]) -> bool:
        others = [*beside, *(one for _, one in self.pods_on(machine.name))]
        return not cpus(pod) or sum(map(cpus, others)) + cpus(pod) <= _ROOM


def _end_s(took: list[tuple[float, int]], at: int) -> float:
    return took[at + 1][0] if at + 1 < len(took) else CLOCK.now_s


def _granted(pod: Json) -> int:
    told = (pod["status"].get("containerStatuses") or [{}])[0]
    granted = told.get("allocatedResources", {}).get("cpu")
    return int(granted) if granted is not None else cpus(pod)


def _ask(container: Json, amount: int) -> None:
    resources = container["resources"]
    container["resources"] = {**resources, "requests": {**resources.get("requests", {}), "cpu": str(amount)}}
