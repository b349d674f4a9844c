"""What Kueue's admission check promises, and what a ResourceQuota allows: judged from API objects alone."""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import combinations, permutations, product
from typing import Any, Final

from tests.support.twin import clock
from tests.support.twin.api import Event, Json
from tests.support.twin.clock import CLOCK
from tests.support.twin.judge import Judge, Use, asks, given, total
from tests.support.twin.kueue import FITS, OTHER, checks_of, conditions_of, count_of, template_of
from tests.support.twin.machines import ENDED, Kind

KEY: Final = "limits.volcano.sh/vgpu-memory"
# A promise holds for 60 s (kueue.md); times are whole seconds, and clocks of one cluster differ a little.
_HOLDS_S: Final = 55.0
_TRIES_MAX: Final = 5000
_LATE_MAX: Final = 4

Cards = dict[str, Use]


class Limits:
    """The limit of ResourceQuotas on the memory of Volcano's cards in the one namespace that there is."""

    def __init__(self, world: Any) -> None:
        self._world = world
        self._on_nodes: set[str] = set()
        # (until, limit): limits that were in force until then.
        self._before: list[tuple[float, float]] = []
        self._now = float("inf")
        self._restored_s = -float("inf")

    def heed(self, resource: str, event: Event, obj: Json) -> None:
        """See one change."""
        if resource == "resourcequotas":
            self._change()
        if resource != "pods":
            return
        uid, is_new = obj["metadata"]["uid"], obj["metadata"]["uid"] not in self._on_nodes
        if event.kind == "DELETED" or not obj["spec"].get("nodeName"):
            self._on_nodes.discard(uid)
        elif is_new:
            self._on_nodes.add(uid)
            self._judge(event.key, obj)

    def resync(self) -> None:
        """Etcd was restored: what is bound was bound before."""
        self._restored_s = CLOCK.now_s
        pods = self._world.api.objects["pods"].values()
        self._on_nodes = {one["metadata"]["uid"] for one in pods if one["spec"].get("nodeName")}
        self._change()

    def _change(self) -> None:
        self._before.append((CLOCK.now_s, self._now))
        del self._before[:-64]
        quotas = self._world.api.objects["resourcequotas"].values()
        self._now = min((float(one["spec"]["hard"][KEY]) for one in quotas), default=float("inf"))

    def _judge(self, key: str, pod: Json) -> None:
        most = max([self._now, *(limit for until_s, limit in self._before if until_s > CLOCK.now_s - CLOCK.late_s)])
        if memory_mib(pod) and CLOCK.now_s > self._restored_s + CLOCK.late_s and self.held() > most:
            self._world.find("overspent", f"{key} was bound, so that {self.held()} MiB are held of {most:.0f}")

    def held(self) -> int:
        """What pods on nodes hold that have not ended."""
        return sum(
            memory_mib(pod)
            for pod in self._world.api.objects["pods"].values()
            if pod["spec"].get("nodeName") and pod["status"].get("phase") not in ENDED
        )

    def allows(self, pods: list[Json]) -> bool:
        """Whether *pods* may be placed now."""
        more = sum(map(memory_mib, pods))
        return not more or self.held() + more <= self._now


def memory_mib(pod: Json) -> int:
    """What a pod holds of the quota: each card's memory, as often as it has cards."""
    return sum(count * share.mib for count, share in filter(None, asks(pod, Kind.VGPU)))


class Admissions:
    """Answers to Workloads. Two never get the same room; and none waits for an answer that it could have."""

    def __init__(self, world: Any, judge: Judge, limits: Limits) -> None:
        self._world = world
        self._judge = judge
        self._limits = limits
        self._restored_s = -float("inf")
        # By uid, the last judged answer, and since when a pod is on a node; keys of pods that may have had a place.
        self._answers: dict[str, tuple[str, str]] = {}
        self._bound_s: dict[str, float] = {}
        self._arrived: set[str] = set()

    def heed(self, resource: str, event: Event, obj: Json) -> None:
        """See one change."""
        if resource == "pods" and obj["spec"].get("nodeName"):
            self._bound_s.setdefault(obj["metadata"]["uid"], CLOCK.now_s)
        if resource == "pods" and (obj["spec"].get("nodeName") or event.kind == "DELETED"):
            # One that is gone may have had its place, though no object ever said so.
            self._arrived.add(event.key)
        if resource != "workloads" or event.kind == "DELETED":
            return
        uid, ours = obj["metadata"]["uid"], checks_of(obj).get(FITS)
        answer = (ours["state"], ours["lastTransitionTime"]) if ours is not None else ("", "")
        if self._answers.get(uid) != answer:
            self._answers[uid] = answer
            if answer[0] == "Ready" and self._is_judged:
                self._promised(event.key, obj)

    def resync(self) -> None:
        """Etcd was restored: promises may be older than what they are judged by."""
        self._restored_s = CLOCK.now_s

    @property
    def _is_judged(self) -> bool:
        is_one_clock: bool = self._world.skews == (0.0,)
        return is_one_clock and CLOCK.now_s > self._restored_s + CLOCK.late_s

    def meddled(self, before: Json, after: Json) -> None:
        """A controller changed a Workload: what is not its own stays as it was."""
        kept = [{**one, "status": {**one.get("status", {}), "admissionChecks": None}} for one in (before, after)]
        for one in kept:
            one["metadata"] = {**one["metadata"], "resourceVersion": ""}
        others = [{name: one for name, one in checks_of(whole).items() if name != FITS} for whole in (before, after)]
        if kept[0] != kept[1] or others[0] != others[1]:
            self._world.find("meddled", f"a controller changed more of {after['metadata']['name']} than its answer")

    # ------------------------------------------------------------------ promises

    def _promised(self, key: str, workload: Json) -> None:
        """Look whether there is room for who was just answered Ready beside all who were before."""
        decided_s = _seconds(checks_of(workload)[FITS]["lastTransitionTime"]) - clock.wall_s() + CLOCK.now_s - 1.0
        mine = self._expected(workload)
        others = [pod for one in self._alive(but=key) for pod in self._expected(one)]
        # No room is kept from pods, and which of those that came about then it has heard of, only the controller knows.
        late = [uid for uid, at_s in self._bound_s.items() if at_s >= decided_s]
        if len(late) > _LATE_MAX:
            return
        self._world.counts["operations: promises judged"] += 1
        views = [set(some) for many in range(len(late) + 1) for some in combinations(late, many)]
        if all(self._is_too_much(mine, others, unheard) for unheard in views):
            text = f"{key} was answered Ready, and its {len(mine)} pods do not fit beside {len(others)} of others"
            self._world.find("overpromised", text)

    def _is_too_much(self, mine: list[Json], others: list[Json], unheard: set[str]) -> bool:
        """Whether *mine* do not fit without the pods *unheard*: at all, or beside *others*, who do fit."""
        now = {}
        for name, machine in self._world.machines.items():
            found = self._judge.in_use(machine, but=unheard)
            now[name] = {card: found.get(card, (Use(), []))[0] for card in machine.cards}
        if arranged(self._world, mine, now) is False:
            return True
        beside = arranged(self._world, others + mine, now) if others else None
        return beside is False and arranged(self._world, others, now) is True

    def _alive(self, *, but: str) -> Iterator[Json]:
        """Workloads with a promise that holds."""
        for key, workload in sorted(self._world.kueue.workloads.items()):
            there, ours = conditions_of(workload), checks_of(workload).get(FITS)
            if key == but or "QuotaReserved" not in there or there & {"Finished", "Evicted"} or ours is None:
                continue
            admitted = [
                _seconds(one["lastTransitionTime"])
                for one in workload["status"]["conditions"]
                if one["type"] == "Admitted" and one["status"] == "True"
            ]
            since_s = max([_seconds(ours["lastTransitionTime"]), *admitted])
            if ours["state"] == "Ready" and clock.wall_s() < since_s + _HOLDS_S:
                yield workload

    def _expected(self, workload: Json) -> list[Json]:
        """Its pods that never were on a node and may still come, as they will be."""
        names = workload["metadata"]["annotations"]["pods"].split()
        arrived = sum(f"default/{name}" in self._arrived for name in names)
        return [template_of(workload)] * max(count_of(workload) - arrived, 0)

    # ------------------------------------------------------------------ once nothing happens any more

    def forgotten(self) -> list[str]:
        """Workloads with quota that wait although all their pods fit beside those that were promised something."""
        found = []
        for key, workload in sorted(self._world.kueue.workloads.items()):
            there, checks = conditions_of(workload), checks_of(workload)
            if "QuotaReserved" not in there or there & {"Admitted", "Finished", "Evicted"}:
                continue
            if OTHER in checks and checks[OTHER]["state"] != "Ready":
                continue
            state, message = checks[FITS]["state"], checks[FITS]["message"]
            if state == "Ready":
                continue  # Kueue's turn
            if state == "Pending" and not message:
                found.append(f"{key} has quota, and no answer")
            pods = self._expected(workload)
            beside = [pod for one in self._alive(but=key) for pod in self._expected(one)]
            if self._limits.allows(beside + pods) and self._judge.places(beside + pods) is not None:
                found.append(f"{key} has quota and fits, and the answer is {state}: {message}")
        return found


def arranged(world: Any, pods: list[Json], now: dict[str, Cards]) -> bool | None:
    """Whether *pods* fit beside what is in use, in some order and on some cards; None: too many ways to try."""
    tries = [_TRIES_MAX]

    def place(at: int) -> bool:
        if at == len(pods):
            return True
        for name, machine in world.machines.items():
            wanted = [(count, given(machine, share)) for count, share in filter(None, asks(pods[at], machine.kind))]
            if not wanted or sum(one.slots for one in now[name].values()) + sum(count for count, _ in wanted) > (
                len(machine.cards) * machine.slots
            ):
                continue
            before, seen = now[name], set()
            for way in product(*(permutations(sorted(before), count) for count, _ in wanted)):
                after = Judge.holds(machine, before, wanted, way)
                if after is None:
                    continue
                alike = tuple(sorted((used, total(machine, card)) for card, used in after.items()))
                if alike in seen:
                    continue
                seen.add(alike)
                tries[0] -= 1
                if tries[0] < 0:
                    return False
                now[name] = after
                if place(at + 1):
                    now[name] = before
                    return True
                now[name] = before
        return False

    found = place(0)
    return None if tries[0] < 0 and not found else found


def _seconds(text: str) -> float:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
