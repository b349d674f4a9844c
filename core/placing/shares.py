"""Which queue's units come first where queues want more than there is: the one with the least of its share. Pure.

The meaning is that of Volcano's plugins proportion and capacity (groups 4.3, 4.9), level by level along the tree of
queues: of every resource a queue gets at most what it may hold and what its pods ask, and at least its guarantee. First
those whose `deserved` names the resource get so much, in proportion to it where there is too little; then the others
share what is left by weight; what these do not want goes to the former again. Its share is the largest part that it
holds of what it deserves of any resource. How many pods there may be is not shared out: where that is plenty, it would
hide what is not.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from core import names
from core.groups import ROOT_QUEUE, QueueSpec
from core.placing.queue_tree import QueueTree

_NOTHING: Final[Mapping[str, int]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """What one queue may have of one resource: between *least* and *most*, by *weight*; due: its `deserved`, or 0."""

    name: str
    weight: int
    least: Fraction
    most: Fraction
    due: int = 0

    def at(self, level: Fraction) -> Fraction:
        """What it gets where a weight of 1 gets *level*."""
        return max(self.least, min(self.most, level * self.weight))


@dataclass(slots=True)
class Deserved:
    """What each queue deserves of each resource that is shared out and that it may have."""

    amounts: dict[str, dict[str, float]] = field(default_factory=dict)

    def share(self, queue: str, held: Mapping[str, int]) -> float:
        """The largest part that *queue*, which holds *held*, has of what it deserves; 1 of what it deserves none of."""
        return max(
            (held.get(one, 0) / amount if amount else 1.0 for one, amount in self.amounts.get(queue, {}).items()),
            default=0.0,
        )


def deserved(total: Mapping[str, int], asked: Mapping[str, Mapping[str, int]], tree: QueueTree) -> Deserved:
    """Return what each queue deserves of *total*, which all nodes have; for resources that nodes have and pods ask.

    Args:
        total: by resource.
        asked: queue -> what its pods ask in all, those that hold it already among them; of inner queues, of pods that
            name these themselves.
        tree: the queues; one that is not in it stands below `root`, with a weight of 1.
    """
    found = Deserved()
    resources = {resource for amounts in asked.values() for resource, amount in amounts.items() if amount}
    for resource in sorted((resources & total.keys()) - {names.PODS}):
        parts = _parts(resource, asked, tree)
        above = [(ROOT_QUEUE, Fraction(total[resource]))]
        for name, amount in above:
            if name not in parts:
                continue
            for queue, got in _shared_out(parts[name], amount):
                if queue != name:
                    found.amounts.setdefault(queue, {})[resource] = float(got)
                    above.append((queue, got))
    return found


def _parts(resource: str, asked: Mapping[str, Mapping[str, int]], tree: QueueTree) -> dict[str, list[_Part]]:
    """Parent -> those that share what it gets of *resource*; where its own pods ask for that, it is one of them."""
    wants = {name: amounts.get(resource, 0) for name, amounts in asked.items()}
    known = {one for name in (*wants, *tree.guaranteed) for one in tree.path(name) or [name]} - {ROOT_QUEUE}
    found: dict[str, list[_Part]] = {}
    if wants.get(ROOT_QUEUE):
        found[ROOT_QUEUE] = [_own(ROOT_QUEUE, wants[ROOT_QUEUE])]
    below: dict[str, Fraction] = {}
    # Children before their parents, whose wants are theirs.
    for name in sorted(known, key=lambda one: (-len(tree.path(one)), one)):
        queue = tree.queues.get(name) or QueueSpec(name=name)
        least = tree.guaranteed.get(name, _NOTHING).get(resource, 0)
        want = wants.get(name, 0) + below.get(name, Fraction(0))
        limit = queue.capability.get(resource)
        most = max(want if limit is None else min(want, Fraction(limit)), Fraction(least))
        if not most:
            continue
        if name in below and wants.get(name):
            found[name].append(_own(name, wants[name]))
        parent = tree.parent(name)
        below[parent] = below.get(parent, Fraction(0)) + most
        found.setdefault(parent, []).append(
            _Part(
                name=name,
                weight=max(queue.weight, 1),
                least=Fraction(least),
                most=most,
                due=max(queue.deserved.get(resource, 0), 0),
            )
        )
    return found


def _own(name: str, want: int) -> _Part:
    """What the pods get that name inner queue *name* themselves."""
    return _Part(name=name, weight=1, least=Fraction(0), most=Fraction(want))


def _shared_out(parts: Sequence[_Part], total: Fraction) -> Iterator[tuple[str, Fraction]]:
    """What each of *parts* gets of *total*: of what is deserved, of what is left by weight, and of the rest."""
    got = [one.least for one in parts]
    said = [at for at, one in enumerate(parts) if one.due]
    others = [at for at, one in enumerate(parts) if not one.due]
    left = total - sum(got, Fraction(0))
    for members, is_due in ((said, True), (others, False), (said, False)):
        stage = [_next_stage(parts[at], got[at], is_due=is_due) for at in members]
        left += sum((one.least for one in stage), Fraction(0))
        level = _level(stage, left)
        for at, one in zip(members, stage, strict=True):
            got[at] = one.at(level)
            left -= got[at]
    return ((one.name, amount) for one, amount in zip(parts, got, strict=True))


def _next_stage(part: _Part, got: Fraction, *, is_due: bool) -> _Part:
    """*part*, which has *got* something already, up to what it deserves, or up to the most that it may have."""
    most = min(part.most, max(part.least, Fraction(part.due))) if is_due else part.most
    return _Part(name=part.name, weight=part.due or part.weight, least=got, most=most)


def _level(parts: Sequence[_Part], total: Fraction) -> Fraction:
    """What a weight of 1 gets if all of *total* is shared out, or all have the most that they may."""
    # A part grows by its weight from the level at which it has its least to that at which it has its most.
    bends = sorted(
        bend
        for part in parts
        for bend in ((part.least / part.weight, part.weight), (part.most / part.weight, -part.weight))
    )
    level, growth, given = Fraction(0), 0, sum((part.least for part in parts), Fraction(0))
    for bend, change in bends:
        if given >= total:
            break
        rise = growth * (bend - level)
        if given + rise >= total:
            return level + (total - given) / growth
        level, growth, given = bend, growth + change, given + rise
    return level
