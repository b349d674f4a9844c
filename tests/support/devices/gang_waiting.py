"""That nobody waits in the twin of gangs who fits: by counting what is free on nodes and in queues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Final, NamedTuple

from core.groups import GroupSpec
from core.model import Node, Phase, Pod, PodUid
from tests.support.devices.gang_cards import Asked, Free, times
from tests.support.devices.gang_domains import Subgroup, domains, domains_of_group, least_of, subgroup_of
from tests.support.devices.gang_evictions import Evictions
from tests.support.devices.gang_queues import Queues
from tests.support.devices.gang_reclaim import Reclaims
from tests.support.devices.gang_state import GangState


class _Block(NamedTuple):
    """Pods of which so many are placed together, all in one of some sets of nodes; apart: a domain of its own."""

    needed: int
    some: Sequence[Asked]
    within: Sequence[Set[str]]
    apart: bool = False


class Waiting:
    """Who waits."""

    def __init__(self, state: GangState, queues: Queues, evictions: Evictions, taking: Reclaims) -> None:
        """Begin."""
        self._state: Final = state
        self._queues: Final = queues
        self._evictions: Final = evictions
        self._taking: Final = taking

    def look(self) -> None:
        """Nobody waits who fits: members of one shape, by counting what is free on nodes and in queues.

        Nodes that are kept free for somebody are nobody else's.
        """
        state = self._state
        kept = state.world.scheduler.reservations.barred_to(None)
        # Which card a pod has that is promised one is not known before its Binding.
        promised = {state.node_of(one) for one in state.world.pods.values() if not one.node_name}
        holders: dict[str, list[PodUid]] = {name: [] for name in state.nodes if name not in kept | promised}
        for one in state.world.pods.values():
            if (where := state.node_of(one)) in holders:
                holders[where].append(one.uid)
        free = {name: state.free(name, uids) for name, uids in holders.items()}
        waiting: dict[str, list[Asked]] = {}
        held: dict[str, list[Pod]] = {}
        for one in state.world.pods.values():
            asked = state.asked[one.name]
            if one.phase is Phase.SUCCEEDED or state.node_of(one):
                held.setdefault(asked.group, []).append(one)
            elif not one.finished:
                waiting.setdefault(asked.group or one.name, []).append(asked)
        for name, some in waiting.items():
            state.counts["waiting"] += 1
            spec = state.specs.get(name)
            if name in state.unseen or (spec is not None and len({one.shape for one in some}) > 1):
                continue
            blocks = [_Block(1, some, [set(free)])] if spec is None else self._blocks(spec, some, held.get(name, []))
            for block in blocks:
                self._look_at(name, spec, block, free, is_kept=bool(kept))

    def _blocks(self, spec: GroupSpec, some: Sequence[Asked], held: Sequence[Pod]) -> Iterator[_Block]:
        """What of a group is placed together: its minimum, or once that is there, each subgroup."""
        state, nodes = self._state, self._state.nodes
        there: dict[Subgroup | None, list[Asked]] = {}
        for one in some:
            there.setdefault(subgroup_of(spec, one.labels), []).append(one)
        before = Counter(subgroup_of(spec, one.labels) for one in held)
        where = {one.name: one.node_name or state.node_of(one) for one in held}
        outer = _around(domains_of_group(spec, nodes), where.values(), nodes)
        inner = {one.name: (one.size, one.network_topology) for one in spec.sub_groups}
        if least_of(spec, before, {}) != 0:
            needed = least_of(spec, before, {which: len(them) for which, them in there.items()})
            if needed is None or any(domains(asked, nodes) is not None for _, asked in inner.values()):
                return  # which domains its subgroups could be in is not compared
            yield _Block(needed, some, outer)
            return
        for which, them in there.items():
            size, asked = (1, None) if which is None else inner[which[0]]
            mine = [where[one.name] for one in held if which is not None and subgroup_of(spec, one.labels) == which]
            within = _around(domains(asked, nodes), mine, nodes)
            both = [one & other for one in outer for other in within]
            yield _Block(max(size - before[which], 1), them, both, domains(asked, nodes) is not None)

    def _look_at(
        self,
        name: str,
        spec: GroupSpec | None,
        block: _Block,
        free: Mapping[str, tuple[Sequence[Free], int]],
        *,
        is_kept: bool,
    ) -> None:
        state, asked, needed = self._state, block.some[0], block.needed
        rooms = {node: times(cards, cpu, asked) for node, (cards, cpu) in free.items() if state.takes(node, asked)}
        room = max((sum(rooms.get(node, 0) for node in one) for one in block.within), default=0)
        if spec is not None and not self._queues.takes(spec.queue, asked, needed):
            state.counts["waiting for a queue"] += 1
            return
        if not self._queues.quotas_take(asked, needed):
            state.counts["waiting for a quota"] += 1
            return
        if not self._queues.is_left_by_others("" if spec is None else spec.queue, asked, needed):
            state.counts["waiting for what is guaranteed to others"] += 1
            return
        state.counts["waiting in a domain"] += spec is not None and len(block.within) > 1
        state.counts["waiting in subgroups"] += spec is not None and bool(spec.sub_groups)
        if min(room, len(block.some)) >= needed:
            state.faults.append(f"{name} waits for {needed} of {asked}, and {room} fit")
        # Other choices of nodes for a whole group are not compared, and nobody leaves for subgroups in domains.
        if is_kept or block.apart or not (needed == len({one.priority for one in block.some}) == 1):
            return
        open_nodes = [where for where in rooms if any(where in one for one in block.within)]
        if state.preempts:
            state.counts["waiting for a preemption"] += 1
            for where in open_nodes:
                below = self._evictions.below(where, asked)
                if state.fits_without(where, asked, below):
                    state.faults.append(f"{name} waits for {asked}, and fits on {where} without {below}")
        if state.reclaims and spec is not None:
            state.counts["waiting to take back"] += 1
            for one in state.world.pods.values():
                if one.node_name not in open_nodes or not self._evictions.is_free_to_go(one):
                    continue
                if state.fits_without(one.node_name, asked, [one.name]) and self._taking.may_take(asked, one.name):
                    state.faults.append(f"{name} waits for {asked}, and may take back from {one.name}")


def _around(within: list[set[str]] | None, where: Iterable[str], nodes: Mapping[str, Node]) -> list[set[str]]:
    """Those of the domains that have all nodes *where*, as far as these are still there; all nodes without domains."""
    home = {one for one in where if one in nodes}
    return [set(nodes)] if within is None else [one for one in within if home <= one]
