"""That nobody waits in the twin of gangs who fits: by counting what is free on nodes and in queues."""

from __future__ import annotations

from collections import Counter
from typing import Final

from core.model import Phase, PodUid
from tests.support.devices.gang_cards import Asked, times
from tests.support.devices.gang_evictions import Evictions
from tests.support.devices.gang_queues import Queues
from tests.support.devices.gang_state import GangState


class Waiting:
    """Who waits."""

    def __init__(self, state: GangState, queues: Queues, evictions: Evictions, *, preempts: bool) -> None:
        """Begin; *preempts*: others are evicted for those who wait."""
        self._state: Final = state
        self._queues: Final = queues
        self._evictions: Final = evictions
        self._preempts: Final = preempts

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
        held = Counter[str]()
        for one in state.world.pods.values():
            asked = state.asked[one.name]
            if one.phase is Phase.SUCCEEDED or state.node_of(one):
                held[asked.group] += 1
            elif not one.finished:
                waiting.setdefault(asked.group or one.name, []).append(asked)
        for name, some in waiting.items():
            state.counts["waiting"] += 1
            spec = state.specs.get(name)
            if name in state.unseen or (spec is not None and len({one.shape for one in some}) > 1):
                continue
            asked, needed = some[0], 1 if spec is None else max(spec.min_member - held[name], 1)
            room = sum(times(cards, cpu, asked) for node, (cards, cpu) in free.items() if state.takes(node, asked))
            if spec is not None and not self._queues.takes(spec.queue, asked, needed):
                state.counts["waiting for a queue"] += 1
                continue
            if not self._queues.quotas_take(asked, needed):
                state.counts["waiting for a quota"] += 1
                continue
            if not self._queues.is_left_by_others("" if spec is None else spec.queue, asked, needed):
                state.counts["waiting for what is guaranteed to others"] += 1
                continue
            if min(room, len(some)) >= needed:
                state.faults.append(f"{name} waits for {needed} of {asked}, and {room} fit")
            # Other choices of nodes for a whole group are not compared.
            if self._preempts and not kept and needed == len({one.priority for one in some}) == 1:
                state.counts["waiting for a preemption"] += 1
                for where in [where for where in free if state.takes(where, asked)]:
                    below = self._evictions.below(where, asked)
                    if state.fits_without(where, asked, below):
                        state.faults.append(f"{name} waits for {asked}, and fits on {where} without {below}")
