"""Whom a queue may take back room from: from queues that hold more than they deserve, as long as it holds less. Pure.

Source: Volcano, actions/reclaim and plugins/capacity (groups 4.9); docs/design/capacity-scheduling.md. With what it
takes back a queue holds no more than it deserves, and it takes from queues only while they hold more than they deserve:
so what was taken is never taken back. In the tree both are asked of the queues below the first parent that they share.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from core.model import PodUid

# Shares are fractions of whole amounts: what differs by less is the same.
_SAME: Final = 1e-6

Spent = Counter[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reclaim:
    """What one queue may take back.

    paths: of pods that may leave for it, the queues that are asked, from the first that the two do not share down.
    amounts: what a pod holds. resources: those that the unit asks. over: by queue, how much more than it deserves it
    holds; spare: than is guaranteed to it. room: of the unit's own queues, how much less.
    """

    paths: Mapping[PodUid, tuple[str, ...]]
    amounts: Callable[[PodUid], Mapping[str, int]]
    resources: frozenset[str]
    over: Mapping[str, Mapping[str, float]]
    spare: Mapping[str, Mapping[str, int]]
    room: Mapping[str, Mapping[str, float]]

    def is_due(self, asked: Mapping[str, int]) -> bool:
        """Whether the unit's queues hold no more than they deserve with *asked*."""
        return all(asked.get(one, 0) <= left + _SAME for room in self.room.values() for one, left in room.items())

    def lets_go(self, pods: Collection[PodUid], spent: Spent) -> bool:
        """Whether *pods* may leave at once, after so much was *spent* of their queues; then theirs is spent too."""
        losses = Spent()
        for uid in pods:
            path = self.paths.get(uid)
            if path is None:
                return False
            for name in path:
                losses.update({(name, one): amount for one, amount in self.amounts(uid).items()})
        if not all(self._lets_go(name, losses, spent) for name in {name for name, _ in losses}):
            return False
        spent.update(losses)
        return True

    def _lets_go(self, name: str, losses: Spent, spent: Spent) -> bool:
        over, spare = self.over.get(name, {}), self.spare.get(name, {})
        holds_more = any(losses[name, one] and over.get(one, 0.0) - spent[name, one] > _SAME for one in self.resources)
        return holds_more and all(losses[name, one] + spent[name, one] <= left for one, left in spare.items())
