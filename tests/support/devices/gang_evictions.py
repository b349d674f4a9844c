"""Evictions and disruption budgets in the twin of gangs: what becomes of planned ones, and what must hold of them.

Only pods of a lower priority are evicted, a gang only as a whole and for nobody who could not start then, and no more
than disruption budgets allow. Nobody joins a gang that is being evicted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from controller.actions import Preempt, Unnominate
from core.model import Phase, Pod, Requirement
from core.wire.policies import DisruptionBudget
from tests.support.devices.gang_cards import Asked
from tests.support.devices.gang_domains import are_near, domains, domains_of_group, subgroup_of
from tests.support.devices.gang_state import APPS, NAMESPACES, GangState, counts

# A pod whose eviction was refused is not chosen again for so long.
_SPARED_S: Final = 30.0


class Evictions:
    """Planned evictions, and the disruption budgets.

    Attributes:
        planned: those that are still to be sent.
        budgets: how many of the pods of a namespace with a label may be evicted now, by both.
        rejected: pods whose Binding was refused since they last were on a node.
    """

    def __init__(self, state: GangState) -> None:
        """Begin without any."""
        self.planned: Final[list[Preempt]] = []
        self.budgets: Final[dict[tuple[str, str], int]] = {}
        self.rejected: Final[set[str]] = set()
        self._state: Final = state
        # Pods whose eviction was refused, and when.
        self._refused: Final[dict[str, float]] = {}

    # ------------------------------------------------------------------ what happens

    def send(self) -> None:
        """Send most of the planned evictions."""
        state, preempting = self._state, self._state.world.scheduler.preempting
        for one in self.new():
            state.counts["preemptions"] += 1
            if not preempting.needs(one):
                preempting.unneeded(one)
            elif state.chance.random() < 0.1:
                for target, _ in one.victims[:1]:
                    self._refused[target.name] = state.world.now_s
                preempting.refused(one, one.victims[0][0].uid if one.victims else None, 0.0)
            else:
                self.send_away(one)

    def new(self) -> list[Preempt]:
        """Take out what is planned."""
        state = self._state
        for action in state.world.actions(Unnominate):
            if action.pod.name in state.asked:
                state.world.shows(state.world.seen(action.pod.name), nominated_node="")
        found = [*self.planned, *state.world.actions(Preempt)]
        self.planned.clear()
        return found

    def send_away(self, action: Preempt) -> None:
        """Evict the victims, unless a disruption budget refuses one."""
        state = self._state
        self._look_at_need(action)
        for target, where in action.nominated:
            if target.name in state.asked and not state.world.seen(target.name).node_name:
                state.world.shows(state.world.seen(target.name), nominated_node=where)
        there = [
            target for target, _ in action.victims if target.name in state.asked and target.uid in state.world.pods
        ]
        guarded = [target for target in there if target.uid in action.guarded]
        # Each is tried first; then those that budgets cover go one by one.
        dry = [target for target in guarded if not self._may_be_evicted(target.name)]
        for target in dry or (*guarded, *(one for one in there if one not in guarded)):
            if state.world.seen(target.name).deleting:
                continue
            if not self._may_be_evicted(target.name):
                state.counts["evictions refused"] += 1
                self._refused[target.name] = state.world.now_s
                state.world.scheduler.preempting.refused(action, target.uid, by_budget=True)
                return
            state.counts["evicted"] += 1
            state.breaks(target.name)
            for key in self._counted_by(target.name):
                self.budgets[key] -= 1
                self._show_budget(key)
            state.world.shows(state.world.seen(target.name), deleting=True)
        state.world.scheduler.preempting.asked(action)

    def _budgets_of(self, name: str) -> list[tuple[str, str]]:
        """The disruption budgets that cover a pod."""
        key = self._state.asked[name].namespace, self._state.asked[name].app
        return [key] if key in self.budgets else []

    def _counted_by(self, name: str) -> list[tuple[str, str]]:
        """The disruption budgets that count the eviction of a pod."""
        return [] if self._state.world.seen(name).phase is Phase.PENDING else self._budgets_of(name)

    def _may_be_evicted(self, name: str) -> bool:
        return all(self.budgets[key] > 0 for key in self._counted_by(name))

    def change_budget(self) -> None:
        """A disruption budget comes, goes, or allows another number of evictions."""
        chance = self._state.chance
        key, allowed = (chance.choice(NAMESPACES), chance.choice(APPS)), chance.choice((None, 0, 1, 3))
        if allowed is not None:
            self.budgets[key] = allowed
            self._show_budget(key)
        elif key in self.budgets:
            self._state.world.scheduler.cluster.occupants.budget_gone(self._budget(key))
            del self.budgets[key]

    def specs(self) -> list[DisruptionBudget]:
        """All disruption budgets."""
        return [self._budget(key) for key in self.budgets]

    def _show_budget(self, key: tuple[str, str]) -> None:
        self._state.world.scheduler.cluster.occupants.budget_changed(self._budget(key))

    def _budget(self, key: tuple[str, str]) -> DisruptionBudget:
        namespace, app = key
        selector = (Requirement(key="app", operator="In", values=(app,)),)
        return DisruptionBudget(namespace, app, selector, self.budgets[key])

    # ------------------------------------------------------------------ what must hold

    def look(self) -> None:
        """Check that victims come after the pods that they leave for, and that a gang leaves as a whole.

        Those that were chosen before leave as well: they may not have been a gang then.
        """
        state, before = self._state, self.chosen()
        for action in (found := state.world.actions(Preempt)):
            first = [state.asked[one.name].priority for one, _ in action.nominated if one.name in state.asked]
            victims = {target.name for target, _ in action.victims if target.name in state.asked}
            for name in sorted(victims):
                asked, spec = state.asked[name], state.specs.get(state.asked[name].group)
                if first and asked.priority >= min(first) and not state.reclaims:
                    state.faults.append(f"{name} of priority {asked.priority} is evicted for one of {min(first)}")
                if spec is None or not spec.is_gang or asked.group in state.unseen:
                    continue
                stay = sorted(
                    one.name
                    for one in state.members(asked.group)
                    if one.node_name and not (one.finished or one.deleting or one.name in victims | before)
                )
                if stay:
                    state.faults.append(f"{name} is evicted, and {stay} of its gang stay")
            self._look_at_budgets(action, victims)
            self._look_at_domains(action)
        self.planned.extend(found)

    def chosen(self) -> set[str]:
        """The pods that are to be evicted."""
        needs = self._state.world.scheduler.preempting.needs
        return {target.name for one in self.planned if one.victims and needs(one) for target, _ in one.victims}

    def _look_at_need(self, action: Preempt) -> None:
        """Check that the gang that others leave for can start with the members that get their room."""
        state = self._state
        for group in sorted({state.asked[one.name].group for one, _ in action.nominated if one.name in state.asked}):
            spec = state.specs.get(group)
            if spec is None or not action.victims or group in state.unseen:
                continue
            there, going = state.members(group), self.chosen()
            held = sum(
                counts(one) and (one.finished or (bool(state.node_of(one)) and one.name not in going)) for one in there
            )
            rooms = sum(
                one.name not in state.asked or not state.node_of(state.world.seen(one.name))
                for one, _ in action.nominated
            )
            rooms += sum(one.name in self.rejected and not state.node_of(one) for one in there)
            waiting = sum(not (state.node_of(one) or one.finished or one.deleting) for one in there)
            if held + min(rooms, waiting) < spec.min_member and held + min(rooms, waiting) > 0:
                state.faults.append(
                    f"others leave for {group}, which needs {spec.min_member}: {held} held, room for {rooms}"
                )

    def _look_at_domains(self, action: Preempt) -> None:
        """Check that room is made in one domain, and for no subgroup that asks for one of its own."""
        state = self._state
        where = {one.name: node for one, node in action.nominated if one.name in state.asked}
        spec = state.specs.get(state.asked[next(iter(where))].group) if where else None
        if spec is None or spec.key.name in state.unseen or not action.victims:
            return
        home = [state.node_of(one) for one in state.members(spec.key.name) if counts(one) and state.node_of(one)]
        if not are_near({*home, *where.values()}, domains_of_group(spec, state.nodes)):
            state.faults.append(f"others leave for {sorted(where)} from {where}, beside {home} in no domain of {spec}")
        inner = {one.name: one.network_topology for one in spec.sub_groups}
        for name in where:
            which = subgroup_of(spec, state.asked[name].labels)
            if which is not None and domains(inner[which[0]], state.nodes) is not None:
                state.faults.append(f"others leave for {name} of {which}, which asks for a domain of its own")

    def _look_at_budgets(self, action: Preempt, victims: Iterable[str]) -> None:
        """Check that it is known which victims are covered by disruption budgets, and that these allow all of them."""
        victims = sorted(victims)
        covered = {f"uid-{name}" for name in victims if self._budgets_of(name)}
        if covered != {uid for uid in action.guarded if uid.removeprefix("uid-") in self._state.asked}:
            self._state.faults.append(f"of {victims}, budgets cover {sorted(covered)}, not {sorted(action.guarded)}")
        many = Counter(key for name in victims for key in self._counted_by(name))
        self._state.counts["evictions that budgets count"] += many.total()
        if any(self.budgets[key] < wanted for key, wanted in many.items()):
            self._state.faults.append(f"{victims} are evicted, of which {self.budgets} do not allow {dict(many)}")

    def is_free_to_go(self, one: Pod) -> bool:
        """Whether a pod may be evicted alone, whatever other pods are."""
        spec = self._state.specs.get(self._state.asked[one.name].group)
        return (
            not (one.finished or one.deleting or self._budgets_of(one.name) or (spec is not None and spec.is_gang))
            and self._state.world.now_s > self._refused.get(one.name, -_SPARED_S) + _SPARED_S
        )

    def below(self, where: str, asked: Asked) -> list[str]:
        """Pods on a node that may be evicted for *asked*, whatever other pods are."""
        state = self._state
        return [
            one.name
            for one in state.world.pods.values()
            if one.node_name == where
            and not state.asked[one.name].group
            and self.is_free_to_go(one)
            and state.asked[one.name].priority < asked.priority
        ]
