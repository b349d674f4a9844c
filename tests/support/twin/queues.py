"""Volcano's queues with limits that operators set, change and take away; pods that were evicted come again."""

from collections.abc import Sequence
from typing import Any, Final

from tests.support.twin.api import Event, Json, Target
from tests.support.twin.clock import CLOCK
from tests.support.twin.judge import GROUP, asks, told
from tests.support.twin.machines import ENDED, Kind, Machine
from tests.support.twin.sides import Side
from tests.support.twin.world import GROUPS

_PARENTS: Final[dict[str, str]] = {"default": "root", "team": "root", "sub": "team", "other": "root"}
_PREEMPTION: Final = "preemption: true\npreemption_delay_s: 2\npreemption_wait_s: 30\n"
_RECLAIM: Final = "reclaim: true\n"
_SETTINGS: Final = (_PREEMPTION, _PREEMPTION, _PREEMPTION + _RECLAIM, "preemption_delay_s: 2\n" + _RECLAIM)
_FOREVER_S: Final = 1e6
_PODS_MAX: Final = 40
_NO_LIMIT: Final = float("inf")
# In the last of the calm nearly nobody is evicted.
_EVICTIONS_MAX: Final = 8


class Queues(Side):
    """Queues, one of them below another, and groups of one pod each in them."""

    is_second = False

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.settings = self._draw.choice(_SETTINGS)
        # The queue of each group; and until when a queue may get more pods because groups were moved.
        self._of: dict[str, str] = {}
        self._excused_until_s = 0.0
        self._restores = 0
        # By queue, (until, limits) that were in force until then.
        self._before: list[tuple[float, str, Json]] = []
        self._evicted: list[float] = []
        self._limits_now: dict[str, Json] = {}
        self._told = world.api.on_evicted
        world.api.on_evicted = self._on_evicted
        lifetime_s = world.lifetime_s
        world.lifetime_s = lambda key: _FOREVER_S if self._draw.random() < 0.6 else lifetime_s(key)
        for name in _PARENTS:
            self._set(name)

    def _capability(self) -> Json | None:
        if self._draw.random() < 0.25:
            return None
        return {kind.resource: str(self._draw.choice((0, 1, 2, 3, 4, 8))) for kind in Kind}

    def _set(self, name: str) -> None:
        limits = self._capability()
        if name in self.objects("queues"):
            self._world.api.write("queues", name, {"spec": {"capability": limits}})
            return
        spec: Json = {"weight": self._draw.choice((1, 3)), "parent": _PARENTS[name], "reclaimable": True}
        if limits is not None:
            spec["capability"] = limits
        self._world.api.create("queues", {"metadata": {"name": name}, "spec": spec, "status": {"state": "Open"}})

    # ------------------------------------------------------------------ users

    def dress(self, pod: Json) -> None:
        notes = pod["metadata"]["annotations"]
        if pod["spec"].get("schedulerName") != "cardshare":
            return
        if self._draw.random() < 0.6:
            pod["spec"] = {**pod["spec"], "priority": self._draw.choice((0, 50, 100, 1000))}
        if GROUP not in notes and self._draw.random() < 0.75:
            world = self._world
            group = world.add_group(1, self._draw.choice(tuple(_PARENTS)))
            world.members[group] += 1
            pod["metadata"]["annotations"] = {**notes, GROUP: group}

    def act(self) -> None:
        draw, world = self._draw, self._world
        dice = draw.random()
        if dice < 0.6:
            self._set(draw.choice(tuple(_PARENTS)))
        elif dice < 0.8 and self.objects(GROUPS):
            key = draw.choice(list(self.objects(GROUPS)))
            world.api.write(GROUPS, key, {"spec": {"queue": draw.choice(tuple(_PARENTS))}})
        elif dice < 0.9:
            name = draw.choice(("team", "sub", "other"))
            if name in self.objects("queues"):
                world.api.delete(Target("queues", "", name, ""), {})
                world.at(draw.choice((0.0, 3.0, 20.0)), lambda: self._set(name))

    def calm(self) -> None:
        super().calm()
        for name in _PARENTS:
            if name not in self.objects("queues"):
                self._set(name)

    def _on_evicted(self, key: str, pod: Json) -> None:
        """Whoever made the pod makes another one."""
        if _RECLAIM not in self.settings:
            self._told(key, pod)  # judges by priority alone
        self._evicted.append(CLOCK.now_s)
        self._world.counts["queues: evicted"] += 1
        group = pod["metadata"]["annotations"].get(GROUP, "")
        spec = {name: value for name, value in pod["spec"].items() if name != "nodeName"}
        labels = dict(pod["metadata"]["labels"])

        def again() -> None:
            if len(self.objects("pods")) < _PODS_MAX and f"default/{group}" in self.objects(GROUPS):
                self._world.add_like(spec, labels, group)

        if group:
            self._world.at(self._draw.choice((0.1, 1.0, 5.0)), again)

    # ------------------------------------------------------------------ what must be

    def changed(self, resource: str, event: Event, obj: Json) -> None:
        if resource == GROUPS:
            group, now = obj["metadata"]["name"], obj["spec"]["queue"] if event.kind != "DELETED" else ""
            if self._of.get(group, now) != now:
                self._excused_until_s = CLOCK.now_s + CLOCK.late_s
            self._of[group] = now
        if resource == "queues":
            name = obj["metadata"]["name"]
            self._before.append((CLOCK.now_s, name, self._limits_now.get(name, {})))
            del self._before[:-400]
            there = event.kind != "DELETED"
            self._limits_now[name] = dict(obj["spec"].get("capability") or {}) if there else {}

    def _queue(self, pod: Json) -> str:
        """Return the queue of a pod; "" if it has none."""
        group = pod["metadata"]["annotations"].get(GROUP, "")
        found = self.objects(GROUPS).get(f"default/{group}")
        return str(found["spec"].get("queue", "default")) if found is not None else ""

    @staticmethod
    def _line(queue: str) -> list[str]:
        """Return a queue and those above it."""
        line = []
        while queue in _PARENTS:
            line.append(queue)
            queue = _PARENTS[queue]
        return line

    @staticmethod
    def _number(pod: Json, kind: Kind) -> int:
        return sum(one[0] for one in asks(pod, kind) if one is not None)

    def _held(self, queue: str, kind: Kind, but: frozenset[str] = frozenset()) -> int:
        return sum(
            self._number(pod, kind)
            for pod in self.objects("pods").values()
            if pod["spec"].get("nodeName")
            and pod["status"].get("phase") not in ENDED
            and pod["metadata"]["uid"] not in but
            and queue in self._line(self._queue(pod))
        )

    def _has_room(self, pod: Json, kind: Kind, times: int = 1, but: frozenset[str] = frozenset()) -> bool:
        number = self._number(pod, kind) * times
        if not number:
            return True
        for name in self._line(self._queue(pod)):
            spec = self.objects("queues").get(name, {"spec": {}})["spec"]
            limit = float((spec.get("capability") or {}).get(kind.resource, _NO_LIMIT))
            if self._held(name, kind, but) + number > limit:
                return False
        return True

    def allows(self, pod: Json, machine: Machine, beside: Sequence[Json]) -> bool:
        del beside  # of a gang, others may go elsewhere
        group = pod["metadata"]["annotations"].get(GROUP, "")
        if not group:
            return True
        return self._has_room(pod, machine.kind, self._world.judge.needed(group))

    def placed(self, key: str, pod: Json, machine: Machine) -> None:
        """No queue is filled beyond what it was allowed in the last while."""
        if self._world.counts["fault: etcd restored"] > self._restores:
            self._restores = self._world.counts["fault: etcd restored"]
            self._excused_until_s = CLOCK.now_s + CLOCK.late_s
        self._world.counts["queues: placed"] += 1
        for name in self._line(self._queue(pod)):
            kind = machine.kind
            mosts = [self._limits_now.get(name, {})]
            mosts += [one for until_s, of, one in self._before if of == name and until_s > CLOCK.now_s - CLOCK.late_s]
            most = max(float(one.get(kind.resource, _NO_LIMIT)) for one in mosts)
            if (held := self._held(name, kind)) > most and CLOCK.now_s > self._excused_until_s:
                self._world.find("overspent", f"{key} was bound, so that {name} holds {held} of {most:.0f}")

    def forgotten(self) -> list[str]:
        """Pods of no gang that would have a place if others of their queue left, who may."""
        found = []
        for key, pod in sorted(self.objects("pods").items()):
            is_waiting = not (pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"))
            queue = self._queue(pod)
            if not is_waiting or pod["spec"].get("schedulingGates") or not self._is_single(pod) or not queue:
                continue
            mates = frozenset(one["metadata"]["uid"] for one in self.objects("pods").values() if self._leaves(one, pod))
            for name, machine in sorted(self._world.machines.items()):
                is_free = self._number(pod, machine.kind) and self._has_room(pod, machine.kind, 1, mates)
                if "preemption: true" in self.settings and is_free and self._fits(pod, machine, mates):
                    found.append(f"{key} waits, and would fit on {name} if pods of its queue {queue} left: {told(pod)}")
                    break
        return found

    def _fits(self, pod: Json, machine: Machine, mates: frozenset[str]) -> bool:
        """Whether *pod* would fit without *mates*; what the queues hold is looked at before."""
        world, sides = self._world, self._world.sides
        world.sides = [side for side in sides if side is not self]
        try:
            return bool(world.judge.fits_without(pod, machine, mates))
        finally:
            world.sides = sides

    def _is_single(self, pod: Json) -> bool:
        return bool(self._world.groups.get(pod["metadata"]["annotations"].get(GROUP, "")) == 1)

    def _leaves(self, one: Json, pod: Json) -> bool:
        """Whether *one* may be evicted for *pod*: it is of no team, so that no disruption budget matters."""
        return bool(
            one["spec"].get("nodeName")
            and one["spec"].get("priority", 0) < pod["spec"].get("priority", 0)
            and "team" not in one["metadata"]["labels"]
            and self._queue(one) == self._queue(pod)
            and self._is_single(one)
        )

    def endless(self, since_s: float) -> None:
        """Find evictions that do not end."""
        many = sum(at_s > since_s for at_s in self._evicted)
        if many > _EVICTIONS_MAX:
            self._world.find("endless", f"{many} pods were evicted in calm")
