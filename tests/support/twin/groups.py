"""PodGroups of Volcano and of Kubernetes that are edited in place and made anew, and pods that change their group.

Source: groups 1.3, 1.4, 4.5, 4.8 and 7; Kubernetes' documentation, "Gang scheduling".
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from tests.support.twin.api import Event, Json, Target
from tests.support.twin.clock import CLOCK
from tests.support.twin.judge import GROUP, NATIVE, TASK, group_of, told
from tests.support.twin.machines import ENDED, Machine
from tests.support.twin.sides import Side
from tests.support.twin.world import GROUPS, NATIVES, spec_of

_GOVERNED: Final = "scheduler_names: [cardshare, volcano]\n"
_PODS_MAX: Final = 36
_SOON: Final = (0.0, 0.05, 0.5, 5.0, 20.0)
_TASKS: Final = ("a", "b")
_HOST: Final = "kubernetes.io/hostname"


class Groups(Side):
    """Groups, who edits them, and who is in them."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.settings = self._draw.choice(("", _GOVERNED, _GOVERNED))
        self._names = 0
        # By group, (until, wanted): what it wanted until then; None: it was not there.
        self._before: dict[str, list[tuple[float, int | None]]] = {}
        self._wanted: dict[str, int | None] = {}
        # (group, uid): until when a pod was a member that may count; absent: it is one.
        self._left_s: dict[tuple[str, str], float] = {}
        self._in: dict[str, str] = {}
        # Groups of which something was changed, or that lost a member: they may have fewer on nodes than they want.
        self._stirred: set[str] = set()
        self._restores = 0
        self._excused_until_s = 0.0

    # ------------------------------------------------------------------ users

    def act(self) -> None:
        draw, names = self._draw, sorted(name for name, wanted in self._wanted.items() if wanted is not None)
        if not names or draw.random() < 0.3:
            self._found()
            return
        group = draw.choice(names)
        draw.choice((self._rewant, self._rewant, self._retask, self._remake, self._join, self._move, self._narrow))(
            group
        )

    def _found(self) -> None:
        """Somebody makes a group, perhaps after its pods, and perhaps too few of these."""
        draw, world = self._draw, self._world
        if len(self.objects("pods")) >= _PODS_MAX:
            return
        wanted, late_s = draw.choice((1, 2, 2, 3, 4)), draw.choice((0.0, 0.0, 0.3, 10.0))
        spec = spec_of(*self._asked(), priority=draw.choice((0, 0, 100)))
        if draw.random() < 0.35:
            self._names += 1
            group = f"{NATIVE}n{self._names}"
            world.groups[group] = wanted
            world.at(late_s, lambda: self._make(group, wanted))
        else:
            group = world.add_group(wanted)
            if draw.random() < 0.4:
                self._retask(group)
        for _ in range(max(wanted + draw.choice((-1, 0, 0, 0, 1, 2)), 1)):
            world.at(draw.choice((0.0, 0.0, 0.2, 3.0)), lambda: self._add(group, spec))

    def _asked(self) -> Any:
        machine = self._draw.choice(list(self._world.machines.values()))
        mib = max(machine.cards.values(), default=8000)
        if machine.kind.value == "ascend":
            return machine.kind, [(1, self._draw.choice((3072, 6144, 12288, 21527)), 0)]
        return machine.kind, [(1, int(mib * self._draw.choice((0.2, 0.4, 0.6, 1.0))), self._draw.choice((0, 0, 30)))]

    def _add(self, group: str, spec: Json) -> None:
        """Create a member, of a task if the group is Volcano's."""
        world, draw = self._world, self._draw
        world.members[group] += 1
        self._names += 1
        notes: dict[str, str] = {}
        if group.startswith(NATIVE):
            spec = {**spec, "schedulingGroup": {"podGroupName": group.removeprefix(NATIVE)}}
        else:
            notes = {GROUP: group, TASK: draw.choice(_TASKS)}
        if draw.random() < 0.2:
            spec = {**spec, "schedulingGates": [{"name": "later"}]}
        world.create_pod(f"m{self._names}", spec, annotations=notes)

    def _make(self, group: str, wanted: int) -> None:
        """Create a group, unless it is there."""
        name = group.removeprefix(NATIVE)
        kind = NATIVES if group.startswith(NATIVE) else GROUPS
        if f"default/{name}" in self.objects(kind):
            return
        spec: Json = {"minMember": wanted, "queue": "default"}
        if kind == NATIVES:
            spec = {"schedulingPolicy": {"gang": {"minCount": wanted}}}
        self._least(group, wanted)
        self._world.api.create(kind, {"metadata": {"name": name}, "spec": spec, "status": {}}, "default")

    def _least(self, group: str, wanted: int) -> None:
        self._world.groups[group] = min(self._world.groups.get(group, wanted), wanted)

    def _write(self, group: str, spec: Json) -> None:
        kind, key = (NATIVES if group.startswith(NATIVE) else GROUPS), f"default/{group.removeprefix(NATIVE)}"
        if key in self.objects(kind):
            self._world.api.write(kind, key, {"spec": spec})

    def _rewant(self, group: str) -> None:
        """Somebody raises or lowers how many members there must be."""
        wanted = max((self._world.wanted(group) or 1) + self._draw.choice((-2, -1, 1, 2)), 1)
        self._least(group, wanted)
        if group.startswith(NATIVE):
            self._write(group, {"schedulingPolicy": {"gang": {"minCount": wanted}}})
        else:
            self._write(group, {"minMember": wanted})

    def _retask(self, group: str) -> None:
        """Somebody says how many of each task there must be, or no more."""
        if not group.startswith(NATIVE):
            tasks = {task: self._draw.choice((0, 1, 1, 2)) for task in _TASKS}
            self._write(group, {"minTaskMember": None if self._draw.random() < 0.3 else tasks})

    def _remake(self, group: str) -> None:
        """A group is deleted, and made anew with another uid, in the same moment or later."""
        wanted = max((self._world.wanted(group) or 1) + self._draw.choice((-1, 0, 0, 1)), 1)
        kind = NATIVES if group.startswith(NATIVE) else GROUPS
        self._world.api.delete(Target(kind, "default", group.removeprefix(NATIVE), ""), {})
        self._world.at(self._draw.choice(_SOON), lambda: self._make(group, wanted))

    def _join(self, group: str) -> None:
        """A group gets one member more, as the others are."""
        mates = [pod for pod in self.objects("pods").values() if group_of(pod) == group]
        if mates and len(self.objects("pods")) < _PODS_MAX:
            off = ("nodeName", "schedulingGates", "nodeSelector")
            self._add(group, {key: value for key, value in mates[0]["spec"].items() if key not in off})

    def _move(self, group: str) -> None:
        """A waiting pod gets another task, leaves its group, or comes to one late (groups 3)."""
        draw = self._draw
        waiting = [
            key
            for key, pod in self.objects("pods").items()
            if not pod["spec"].get("nodeName")
            and not group_of(pod).startswith(NATIVE)
            and pod["metadata"]["name"].startswith("m")
        ]
        if not waiting or group.startswith(NATIVE):
            return
        key = draw.choice(waiting)
        notes: dict[str, str | None] = {TASK: draw.choice(_TASKS)}
        if draw.random() < 0.5:
            notes[GROUP] = None if draw.random() < 0.5 else group
            self._world.members[group] += notes[GROUP] is not None
        self._world.api.write("pods", key, {"metadata": {"annotations": notes}})

    def _narrow(self, group: str) -> None:
        """Somebody, as Kueue with a topology, says where a gated pod is to go, and lets it go (groups 8)."""
        for key, pod in list(self.objects("pods").items()):
            if group_of(pod) == group and pod["spec"].get("schedulingGates") and self._draw.random() < 0.7:
                spec: Json = {"schedulingGates": None}
                if self._draw.random() < 0.5:
                    spec["nodeSelector"] = {_HOST: self._draw.choice(sorted(self._world.machines))}
                self._world.api.write("pods", key, {"spec": spec})

    # ------------------------------------------------------------------ what must be

    def changed(self, resource: str, event: Event, obj: Json) -> None:
        if resource in (GROUPS, NATIVES):
            name = obj["metadata"]["name"]
            self._note(name if resource == GROUPS else NATIVE + name)
        elif resource == "pods":
            uid, group = obj["metadata"]["uid"], group_of(obj)
            is_out = event.kind == "DELETED" or obj["metadata"].get("deletionTimestamp")
            now = "" if is_out or obj["status"].get("phase") == "Failed" else group
            before = self._in.get(uid, "")
            if before and before != now:
                self._left_s[before, uid] = CLOCK.now_s
                self._stirred.add(before)
            if now:
                self._in[uid] = now
                self._left_s.pop((now, uid), None)
            else:
                self._in.pop(uid, None)
                if event.kind == "DELETED":
                    self._stirred.add(group)

    def _note(self, group: str) -> None:
        now, before = self._world.wanted(group), self._wanted.get(group)
        if group in self._wanted and now != before:
            self._before.setdefault(group, []).append((CLOCK.now_s, before))
            self._stirred.add(group)
        self._wanted[group] = now

    def placed(self, key: str, pod: Json, machine: Machine) -> None:
        """No member is placed of a group that was not there, or had too few members, for a while."""
        if self._world.counts["fault: etcd restored"] > self._restores:
            self._restores = self._world.counts["fault: etcd restored"]
            self._excused_until_s = CLOCK.now_s + CLOCK.late_s
            self._resync()
        self._judge_place(key, pod, machine)
        if not (group := group_of(pod)) or CLOCK.now_s < self._excused_until_s:
            return
        self._world.counts["groups: members placed"] += 1
        since_s = CLOCK.now_s - CLOCK.late_s
        lately = [self._wanted.get(group), *(one for at_s, one in self._before.get(group, ()) if at_s > since_s)]
        there = [one for one in lately if one is not None]
        many = sum(one == group for one in self._in.values())
        many += sum(one == group and at_s > since_s for (one, _), at_s in self._left_s.items())
        if not there:
            self._world.find("lonely", f"{key} was placed, and its group {group} is not there")
        elif many < min(there):
            self._world.find("lonely", f"{key} was placed, and {group} wants {min(there)} members and has {many}")

    def _resync(self) -> None:
        """Etcd was restored: groups are what they were."""
        self._stirred |= self._wanted.keys()
        for group in self._wanted:
            self._note(group)

    def _judge_place(self, key: str, pod: Json, machine: Machine) -> None:
        host = pod["spec"].get("nodeSelector", {}).get(_HOST, machine.name)
        if host != machine.name:
            self._world.find("misplaced", f"{key} was placed on {machine.name}, and wants {host}")

    def allows(self, pod: Json, machine: Machine, beside: Sequence[Json]) -> bool:
        if pod["spec"].get("nodeSelector", {}).get(_HOST, machine.name) != machine.name:
            return False
        group = group_of(pod)
        if not group or group.startswith(NATIVE) or not self.settings:
            return True
        found = self.objects(GROUPS).get(f"default/{group}", {"spec": {}})
        queue = self.objects("queues").get(found["spec"].get("queue", ""))
        return queue is not None and queue.get("status", {}).get("state", "Open") == "Open"

    def forgotten(self) -> list[str]:
        """Groups whose status is not what their pods are."""
        if self._world.counts["fault: etcd restored"] > self._restores:
            self._restores = self._world.counts["fault: etcd restored"]
            self._resync()
        found = []
        for resource, before in ((GROUPS, ""), (NATIVES, NATIVE)):
            for key, obj in sorted(self.objects(resource).items()):
                group = before + key.partition("/")[2]
                pods = [pod for pod in self.objects("pods").values() if group_of(pod) == group]
                wrong = self._untrue(obj, pods) if before == "" else self._untrue_native(obj, pods)
                if wrong:
                    found.append(f"{group} says {obj.get('status')}: {wrong}")
        return found

    def _untrue(self, obj: Json, pods: list[Json]) -> str:
        if not self.settings:
            return ""  # another one writes it
        status, wanted = obj.get("status", {}), obj["spec"]["minMember"]
        phases = Counter(_phase(pod) for pod in pods if not pod["metadata"].get("deletionTimestamp"))
        for field, phase in (("running", "Running"), ("succeeded", "Succeeded"), ("failed", "Failed")):
            if status.get(field, 0) != phases[phase]:
                return f"{phases[phase]} of its pods are {phase}"
        ended = phases["Succeeded"] + phases["Failed"]
        counted = phases["Running"] + phases["Bound"] + ended
        conditions = {one["type"]: one["status"] for one in status.get("conditions", ())}
        if phases["Pending"]:
            # Whether it is Unknown, and says so, depends on who is refused.
            is_told = counted or conditions.get("Unschedulable") == "True"
            return "" if is_told else "its pods wait"
        if counted and counted >= wanted:
            phase = "Completed" if counted == ended else "Running"
            if status.get("phase") != phase:
                return f"it is {phase}"
            if conditions.get("Scheduled") != "True" or conditions.get("Unschedulable") == "True":
                return "its pods are placed"
        return "" if status.get("phase", "Pending") != "Pending" or self._is_closed(obj) else "it is not admitted"

    def _is_closed(self, obj: Json) -> bool:
        return obj["spec"].get("queue") not in self.objects("queues")

    @staticmethod
    def _untrue_native(obj: Json, pods: list[Json]) -> str:
        wanted = obj["spec"]["schedulingPolicy"]["gang"]["minCount"]
        conditions = {one["type"]: one["status"] for one in obj.get("status", {}).get("conditions", ())}
        phases = Counter(_phase(pod) for pod in pods if not pod["metadata"].get("deletionTimestamp"))
        counted = phases["Running"] + phases["Bound"] + phases["Succeeded"] + phases["Failed"]
        said = conditions.get("PodGroupInitiallyScheduled")
        if counted >= wanted and said != "True":
            return f"{counted} of its pods are placed"
        return "its pods wait" if not counted and phases["Pending"] and said is None else ""

    def halves(self) -> list[str]:
        """Groups of which a part is on nodes though nothing was changed; to be asked where nothing fails."""
        found = []
        for group, wanted in sorted(self._wanted.items()):
            if group not in self._stirred and wanted is not None:
                held = self._world.judge.held(group)
                if 0 < held < wanted:
                    found.append(f"{group} has {held} members on nodes, and wants {wanted}")
        return found


def _phase(pod: Json) -> str:
    """Return the phase of a pod, and Bound or Gated if it is Pending and that."""
    phase = str(pod["status"].get("phase"))
    if phase in ENDED or phase == "Running":
        return phase
    if pod["spec"].get("nodeName"):
        return "Bound"
    return "Gated" if pod["spec"].get("schedulingGates") or not told(pod) else "Pending"
