"""Groups in the twin of gangs: how they change, and that a member gets a place only with the minimum of its gang."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, Final

from core.groups import GroupSpec
from core.model import GroupKey, GroupKind, Phase, Pod
from tests.support.devices.gang_domains import (
    TIERS,
    any_near,
    any_subgroups,
    are_near,
    domains,
    domains_of_group,
    subgroup_of,
)
from tests.support.devices.gang_queues import QUEUES
from tests.support.devices.gang_state import NAMESPACES, GangState, counts


class Gangs:
    """The groups of the cluster."""

    def __init__(self, state: GangState) -> None:
        """Begin without any."""
        self._state: Final = state

    # ------------------------------------------------------------------ what happens

    def new(self) -> str:
        """A group is created, which the scheduler mostly sees at once."""
        state, chance = self._state, self._state.chance
        version = state.next_version()
        name = f"g{version}"
        key = GroupKey(GroupKind.VOLCANO, chance.choice(NAMESPACES), name)
        least, queue = chance.choice((1, 2, 2, 3, 4)), chance.choice(QUEUES)
        state.specs[name] = GroupSpec(
            key=key, uid=f"uid-{name}", resource_version=version, min_member=least, queue=queue, **self._any_division()
        )
        if state.reclaims or chance.random() < 0.9:
            state.world.scheduler.cluster.groups.changed(state.specs[name])
        else:
            state.unseen.add(name)
        return name

    def _any_division(self) -> dict[str, Any]:
        """How near to each other members are, and their subgroups."""
        chance, found = self._state.chance, dict[str, Any]()
        if self._state.divides and chance.random() < 0.5:
            found["network_topology"] = any_near(chance)
        if self._state.divides and chance.random() < 0.2:
            found["topology_key"] = chance.choice(TIERS)
        if self._state.divides and chance.random() < 0.5:
            found["sub_groups"] = any_subgroups(chance)
        return found

    def change(self) -> None:
        """A group wants another number of members at once, or is seen at last."""
        state = self._state
        if state.specs:
            name = state.chance.choice(sorted(state.specs))
            least = state.chance.choice((1, 2, 3, 4))
            if least > state.specs[name].min_member:
                state.broken.add(name)
            changes = self._any_division() if state.chance.random() < 0.3 else {}
            state.specs[name] = replace(
                state.specs[name], min_member=least, resource_version=state.next_version(), **changes
            )
            state.world.scheduler.cluster.groups.changed(state.specs[name])
            state.unseen.discard(name)

    # ------------------------------------------------------------------ what must hold

    def look(self) -> None:
        """Check that each gang has its minimum or nothing, unless something was taken from it."""
        state, placed = self._state, Counter[str]()
        for one in state.world.pods.values():
            if one.phase is Phase.SUCCEEDED or state.node_of(one):
                placed[state.asked[one.name].group] += 1
        for group, spec in state.specs.items():
            if placed[group] == 0 or placed[group] >= spec.min_member:
                state.broken.discard(group)
            elif group not in state.broken:
                found = f"{placed[group]} of {spec.min_member}"
                state.faults.append(f"gang {group} has {found}, and nothing was taken from it")
            state.counts["gangs placed"] += spec.min_member > 1 and placed[group] >= spec.min_member

    def look_at_new(self, places: Mapping[str, str], new: Set[str], first: Set[str], going: Set[str]) -> None:
        """Check that pods that got a place since the last look have the minimums and the domains of their gangs.

        Args:
            places: of all pods.
            new: those with another place than before.
            first: those of them that had none.
            going: members that count no more.
        """
        state = self._state
        for group in sorted({state.asked[name].group for name in new} - {""}):
            spec = state.specs[group]
            there = [
                one
                for one in state.members(group)
                if counts(one) and (one.finished or (one.name in places and one.name not in going))
            ]
            joined = sorted(name for name in new if state.asked[name].group == group)
            self._look_at_minimums(spec, there, [name for name in joined if name in first])
            where = {places[one.name] for one in there if one.name in places}
            if not are_near(where, domains_of_group(spec, state.nodes)):
                state.faults.append(f"{joined} join gang {group}, and {sorted(where)} are in no domain of {spec}")
            for policy in spec.sub_groups:
                within = domains(policy.network_topology, state.nodes)
                for which in {subgroup_of(spec, one.labels) for one in there if one.name in joined}:
                    mine = [one for one in there if which is not None and subgroup_of(spec, one.labels) == which]
                    where = {places[one.name] for one in mine if one.name in places}
                    if which is not None and which[0] == policy.name and not are_near(where, within):
                        state.faults.append(f"{joined} join {which} of {group}, and {sorted(where)} are in no domain")

    def _look_at_minimums(self, spec: GroupSpec, there: Sequence[Pod], joined: Sequence[str]) -> None:
        faults, name = self._state.faults, spec.key.name
        if not joined:
            return
        if len(there) < spec.min_member:
            faults.append(f"{joined} join gang {name}, which has {len(there)} of {spec.min_member}")
        held = Counter(subgroup_of(spec, one.labels) for one in there)
        for policy in spec.sub_groups:
            whole = sum(many >= policy.size for one, many in held.items() if one is not None and one[0] == policy.name)
            if whole < policy.least:
                faults.append(f"{joined} join gang {name}, which has {whole} of {policy.least} subgroups {policy.name}")
            for one in there:
                which = subgroup_of(spec, one.labels)
                if one.name in joined and which is not None and which[0] == policy.name and held[which] < policy.size:
                    faults.append(f"{one.name} joins {which} of {name}, which has {held[which]} of {policy.size}")
        self._state.counts["subgroups joined"] += bool(spec.sub_groups)
        self._state.counts["domains joined"] += bool(spec.topology_key or spec.network_topology)
