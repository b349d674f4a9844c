"""What pods ask for besides cards, and what else is in a cluster: each side is played, and judged, on its own."""

from collections.abc import Collection, Sequence
from typing import Any, Final

from tests.support.twin.api import Event, Json
from tests.support.twin.clock import CLOCK
from tests.support.twin.machines import ENDED, Machine

MAPS: Final = "configmaps"


class Side:
    """One side of a world; *settings*: what it adds to the controllers'; *is_second*: whether others have it beside."""

    settings = ""
    is_second = True

    def __init__(self, world: Any) -> None:
        self._world = world
        self._draw = world.draw
        self._on_nodes: set[str] = set()
        self.is_calm = False
        world.api.listeners.append(self._heed)

    # ------------------------------------------------------------------ what there is

    def dress(self, pod: Json) -> None:
        """Let a pod that is about to be created ask for more."""

    def act(self) -> None:
        """Somebody does something."""

    def calm(self) -> None:
        """No more faults; whatever is broken is repaired."""
        self.is_calm = True

    # ------------------------------------------------------------------ what must be

    def allows(self, pod: Json, machine: Machine, beside: Sequence[Json]) -> bool:
        """Whether a waiting pod may go there now, *beside* others that are to go there too."""
        del pod, machine, beside
        return True

    def shuns(self, machine: Machine) -> set[str]:
        """The cards of a node that take nothing new."""
        del machine
        return set()

    def forgotten(self) -> list[str]:
        """What else is not as it must be once all has come to rest."""
        return []

    def changed(self, resource: str, event: Event, obj: Json) -> None:
        """See one change."""

    def placed(self, key: str, pod: Json, machine: Machine) -> None:
        """Judge where a pod was just placed."""

    def _heed(self, resource: str, event: Event, obj: Json) -> None:
        self.changed(resource, event, obj)
        uid = obj["metadata"]["uid"]
        if resource != "pods" or event.kind == "DELETED" or not obj["spec"].get("nodeName") or uid in self._on_nodes:
            return
        self._on_nodes.add(uid)
        if obj["spec"]["schedulerName"] == "cardshare":
            self.placed(event.key, obj, self._world.machines[obj["spec"]["nodeName"]])

    # ------------------------------------------------------------------ help

    def pods_on(self, name: str) -> list[tuple[str, Json]]:
        """The pods of a node that have not ended."""
        return [
            (key, pod)
            for key, pod in self._world.api.objects["pods"].items()
            if pod["spec"].get("nodeName") == name and pod["status"].get("phase") not in ENDED
        ]

    def objects(self, resource: str) -> dict[str, Json]:
        """All objects of *resource*, by key."""
        found: dict[str, Json] = self._world.api.objects[resource]
        return found

    def configure(self, key: str, text: str) -> None:
        """Write *text* as device-config.yaml of the ConfigMap *key*, NAMESPACE/NAME."""
        data = {"data": {"device-config.yaml": text}}
        if key in self.objects(MAPS):
            self._world.api.write(MAPS, key, data)
        else:
            namespace, _, name = key.partition("/")
            self._world.api.create(MAPS, {"kind": "ConfigMap", "metadata": {"name": name}, **data}, namespace)


class Lately:
    """What was so in the last 90 s: a Binding may have been decided by it."""

    def __init__(self) -> None:
        self._ended_s: dict[Any, float] = {}
        self._now: set[Any] = set()

    def set(self, now: Collection[Any]) -> None:
        """Exactly this is so from now on."""
        for one in self._now.difference(now):
            self._ended_s[one] = CLOCK.now_s
        self._now = set(now)

    def __contains__(self, one: Any) -> bool:
        return one in self._now or self._ended_s.get(one, -CLOCK.late_s) > CLOCK.now_s - CLOCK.late_s
