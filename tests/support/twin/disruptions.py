"""PodDisruptionBudgets, PriorityClasses, and pods that leave for others of a higher priority."""

from typing import Any, Final

from tests.support.twin.api import Event, Json, RefusedError, Target
from tests.support.twin.clock import CLOCK
from tests.support.twin.judge import group_of
from tests.support.twin.machines import ENDED, Machine, Steps
from tests.support.twin.sides import Side
from tests.support.twin.world import GROUPS

BUDGETS: Final = "poddisruptionbudgets"
CLASSES: Final = "priorityclasses"
_TEAMS: Final = ("red", "blue")
# Groups name these; nobody edits a class, whose fields are immutable: it is deleted, and made anew.
_CLASSES: Final = ("urgent", "calm")
_VALUES: Final = (-10, 50, 100, 1000)
_ON: Final = 0.7
_NEVER: Final = "Never"


class Disruptions(Side):
    """Budgets, who keeps them, and preemption."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self._is_on = self._draw.random() < _ON
        self.settings = f"preemption: {str(self._is_on).lower()}\npreemption_delay_s: 2\npreemption_wait_s: 30\n"
        # (priority, until when a pod of it waited that may have others evicted).
        self._waited: dict[int, float] = {}
        # By the name of a class, (until, class) that was there until then; None: there was none.
        self._before: list[tuple[float, str, Json | None]] = []
        world.api.may_evict = self._may_evict
        world.api.on_evicted = self._evicted
        for team in _TEAMS:
            self._set(team)
        world.spawn(self._run())

    def _set(self, team: str) -> None:
        """Somebody says how many of a team must be there."""
        least = self._draw.choice((0, 0, 1, 3, 100))
        spec = {"minAvailable": least, "selector": {"matchLabels": {"team": team}}}
        if f"default/{team}" in self.objects(BUDGETS):
            self._world.api.write(BUDGETS, f"default/{team}", {"spec": spec})
        else:
            body = {"metadata": {"name": team}, "spec": spec, "status": {"disruptionsAllowed": 0}}
            self._world.api.create(BUDGETS, body, "default")

    # ------------------------------------------------------------------ users

    def dress(self, pod: Json) -> None:
        if self._draw.random() < 0.6:
            labels = {**pod["metadata"]["labels"], "team": self._draw.choice(_TEAMS)}
            pod["metadata"]["labels"] = labels
        if self._draw.random() < 0.3:
            pod["spec"] = {**pod["spec"], "priority": self._draw.choice((50, 1000))}
        if self._draw.random() < 0.3:
            pod["spec"] = {**pod["spec"], "preemptionPolicy": _NEVER}

    def act(self) -> None:
        if self._draw.random() < 0.5:
            self._draw.choice((self._renew_class, self._name_class))()
            return
        team = self._draw.choice(_TEAMS)
        if self._draw.random() < 0.3 and f"default/{team}" in self.objects(BUDGETS):
            self._world.api.delete(Target(BUDGETS, "default", team, ""), {})
        else:
            self._set(team)

    def _renew_class(self) -> None:
        """A PriorityClass is deleted, and made anew after a while: with another value, or for pods that wait."""
        draw, name = self._draw, self._draw.choice(_CLASSES)
        self._before.append((CLOCK.now_s, name, self.objects(CLASSES).get(name)))
        if name in self.objects(CLASSES):
            self._world.api.delete(Target(CLASSES, "", name, ""), {})
        policy = draw.choice(("PreemptLowerPriority", _NEVER, _NEVER))
        body = {"metadata": {"name": name}, "value": draw.choice(_VALUES), "preemptionPolicy": policy}
        self._world.at(draw.choice((0.0, 3.0, 20.0)), lambda: self._make_class(name, body))

    def _make_class(self, name: str, body: Json) -> None:
        if name not in self.objects(CLASSES):
            self._before.append((CLOCK.now_s, name, None))
            self._world.api.create(CLASSES, body)
            self._note()

    def _name_class(self) -> None:
        """Somebody lets a group have another class."""
        groups = self.objects(GROUPS)
        if groups:
            key = self._draw.choice(sorted(groups))
            self._world.api.write(GROUPS, key, {"spec": {"priorityClassName": self._draw.choice((*_CLASSES, None))}})

    def _standings(self, pod: Json) -> set[tuple[int, bool]]:
        """(priority, whether others are evicted for it) of a pod, with every class that it may have had of late."""
        mine = int(pod["spec"].get("priority", 0))
        preempts = pod["spec"].get("preemptionPolicy") != _NEVER
        found = {(mine, preempts)}
        if not group_of(pod):
            return found
        there = [*self.objects(CLASSES).values()]
        there += [one for until_s, _, one in self._before if one and until_s > CLOCK.now_s - CLOCK.late_s]
        # Its group may have had any class, or none, a moment ago.
        found |= {
            (one["value"], preempts and one["preemptionPolicy"] != _NEVER) for one in there if one["value"] > mine
        }
        return found

    # ------------------------------------------------------------------ who keeps them

    def _allowed(self, budget: Json) -> int:
        team = budget["spec"]["selector"]["matchLabels"]["team"]
        there = [
            pod
            for pod in self.objects("pods").values()
            if pod["metadata"]["labels"].get("team") == team
            and pod["spec"].get("nodeName")
            and pod["status"].get("phase") == "Running"
            and not pod["metadata"].get("deletionTimestamp")
        ]
        return max(len(there) - int(budget["spec"]["minAvailable"]), 0)

    def _run(self) -> Steps:
        while True:
            yield 0.2 + self._draw.expovariate(1.0)
            for key, budget in list(self.objects(BUDGETS).items()):
                self._world.api.write(BUDGETS, key, {"status": {"disruptionsAllowed": self._allowed(budget)}})

    def _may_evict(self, pod: Json) -> None:
        """The API server refuses what a budget does not allow."""
        for budget in self.objects(BUDGETS).values():
            if budget["spec"]["selector"]["matchLabels"]["team"] != pod["metadata"]["labels"].get("team"):
                continue
            if pod["status"].get("phase") == "Running" and not self._allowed(budget):
                self._world.counts["disruptions: refused by a budget"] += 1
                raise RefusedError(
                    429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget."
                )

    def _evicted(self, key: str, pod: Json) -> None:
        self._world.counts["disruptions: evicted"] += 1
        self._note()
        mine = min(priority for priority, _ in self._standings(pod))
        if not self._is_on:
            self._world.find("unjust", f"{key} was evicted, and preemption is off")
        elif not any(priority > mine and at_s > CLOCK.now_s - CLOCK.late_s for priority, at_s in self._waited.items()):
            self._world.find("unjust", f"{key} of priority {mine} was evicted, and nobody of a higher one waits")

    def _note(self) -> None:
        for pod in self.objects("pods").values():
            if not pod["spec"].get("nodeName") and pod["status"].get("phase") not in ENDED:
                self._wait(pod)

    def _wait(self, pod: Json) -> None:
        for priority, preempts in self._standings(pod):
            if preempts:
                self._waited[priority] = CLOCK.now_s

    def changed(self, resource: str, event: Event, obj: Json) -> None:
        if resource == "pods" and not obj["spec"].get("nodeName"):
            self._wait(obj)

    # ------------------------------------------------------------------ what must be

    def forgotten(self) -> list[str]:
        """Pods that would have a place if others left, who may."""
        found: list[str] = []
        for key, pod in sorted(self.objects("pods").items()) if self._is_on else ():
            waits = not (pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"))
            if not waits or group_of(pod) or pod["spec"].get("schedulingGates"):
                continue
            if pod["spec"].get("preemptionPolicy") == _NEVER:
                continue
            for name, machine in sorted(self._world.machines.items()):
                if self._world.judge.fits_without(pod, machine, self._victims(pod, machine)):
                    found.append(f"{key} waits, and would fit on {name} if pods of lower priority left")
                    break
        return found

    def _victims(self, pod: Json, machine: Machine) -> set[str]:
        """The pods of a node that may be evicted for another: none of a team, so that no budget matters."""
        return {
            one["metadata"]["uid"]
            for _, one in self.pods_on(machine.name)
            if one["spec"].get("priority", 0) < pod["spec"].get("priority", 0)
            and "team" not in one["metadata"]["labels"]
            and not group_of(one)
        }
