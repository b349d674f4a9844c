"""Which queue's units come first where queues want more than there is: the one with the least of its share. Pure.

The meaning is that of Volcano's plugin proportion (groups 4.3, 4.9): of every resource a queue deserves as much as its
weight says, cut to what it may hold and to what it asks, and at least its guarantee; what it does not want goes to the
others. Its share is the largest part that it holds of what it deserves of any resource. How many pods there may be is
not shared out: where that is plenty, it would hide what is not.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from core import names
from core.groups import QueueSpec

_NOTHING: Final[Mapping[str, int]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wants:
    """One queue: its weight and limits, and what its pods ask in all, those that hold it already among them."""

    queue: QueueSpec
    asked: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Part:
    """What one queue may have of one resource: between *least* and *most*, by its weight."""

    name: str
    weight: int
    least: int
    most: int

    def at(self, level: Fraction) -> Fraction:
        """What it gets where a weight of 1 gets *level*."""
        return max(Fraction(self.least), min(Fraction(self.most), level * self.weight))


@dataclass(slots=True)
class Deserved:
    """What each queue deserves of each resource that is shared out."""

    amounts: dict[str, dict[str, float]] = field(default_factory=dict)

    def share(self, queue: str, held: Mapping[str, int]) -> float:
        """The largest part that *queue*, which holds *held*, has of what it deserves; 1 of what it deserves none of."""
        deserved = self.amounts.get(queue, {})
        return max(
            (_part(held.get(resource, 0), amount) for resource, amount in deserved.items()),
            default=0.0,
        )


def _part(held: int, deserved: float) -> float:
    if not deserved:
        return 1.0 if held > 0 else 0.0
    return held / deserved


def deserved(total: Mapping[str, int], wants: Mapping[str, Wants]) -> Deserved:
    """What of *total*, all that nodes have, each queue deserves; of resources that nodes have and somebody asks."""
    found = Deserved({name: {} for name in wants})
    resources = {resource for one in wants.values() for resource, amount in one.asked.items() if amount}
    for resource in sorted((resources & total.keys()) - {names.PODS}):
        parts = [_part_of(name, one, resource, total[resource], wants) for name, one in sorted(wants.items())]
        level = _level(parts, total[resource])
        for part in parts:
            found.amounts[part.name][resource] = float(part.at(level))
    return found


def _part_of(name: str, one: Wants, resource: str, total: int, wants: Mapping[str, Wants]) -> _Part:
    queue = one.queue
    own = queue.guarantee.get(resource, 0)
    # What others are guaranteed is kept for them, whether they ask for it or not.
    kept = sum(other.queue.guarantee.get(resource, 0) for key, other in wants.items() if key != name)
    limit = min(queue.capability.get(resource, total), max(total - kept, own))
    return _Part(name, max(queue.weight, 1), own, max(min(limit, one.asked.get(resource, 0)), own))


def _level(parts: list[_Part], total: int) -> Fraction:
    """What a weight of 1 gets where all of *total* is shared out, or all have the most that they may."""
    # Between two of these nothing begins or ends to grow.
    bends = sorted({Fraction(amount, part.weight) for part in parts for amount in (part.least, part.most)})
    below = Fraction(0)
    for bend in bends:
        given = sum((part.at(bend) for part in parts), Fraction(0))
        if given >= total:
            growing = sum(part.weight for part in parts if part.at(bend) > part.at(below))
            start = sum((part.at(below) for part in parts), Fraction(0))
            return below + max(total - start, Fraction(0)) / growing if growing else below
        below = bend
    return below
