"""Groups in the twin of gangs: how they change, and that a member gets a place only with the minimum of its gang."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Final

from core.groups import GroupKey, GroupKind, GroupSpec
from core.model import Phase
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
            key=key, uid=f"uid-{name}", resource_version=version, min_member=least, queue=queue
        )
        if chance.random() < 0.9:
            state.world.scheduler.cluster.groups.changed(state.specs[name])
        else:
            state.unseen.add(name)
        return name

    def change(self) -> None:
        """A group wants another number of members at once, or is seen at last."""
        state = self._state
        if state.specs:
            name = state.chance.choice(sorted(state.specs))
            least = state.chance.choice((1, 2, 3, 4))
            if least > state.specs[name].min_member:
                state.broken.add(name)
            state.specs[name] = replace(state.specs[name], min_member=least, resource_version=state.next_version())
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

    def look_at_new(self, places: Mapping[str, str], new: Set[str], going: Set[str]) -> None:
        """Check that pods placed since the last look have the minimums of their gangs, without the pods *going*."""
        state = self._state
        for group in sorted({state.asked[name].group for name in new} - {""}):
            there = [one for one in state.members(group) if counts(one) and one.name not in going]
            held = sum(one.phase is Phase.SUCCEEDED or one.name in places for one in there)
            if held < state.specs[group].min_member:
                which = sorted(name for name in new if state.asked[name].group == group)
                state.faults.append(f"{which} join gang {group}, which has {held} of {state.specs[group].min_member}")
