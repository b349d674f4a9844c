"""Queues of Volcano: how important a pod is in its queue, what each queue deserves, and what it may take back. Pure.

Source: Volcano, plugins proportion and capacity and action reclaim (groups 4.3, 4.9); its documents
hierarchical-queue-on-capacity-plugin.md and capacity-scheduling.md.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from core import names
from core.groups import ROOT_QUEUE, GroupSpec, QueueSpec
from core.ledger import Placement
from core.model import ALONE, Pod, PodUid, Standing
from core.wire.policies import PriorityClass

# What raised a pod whose group says its priority itself: no class can have such a name.
PRIORITY_FIELD: Final = "spec.priority of its PodGroup"
_NOTHING: Final[Mapping[str, int]] = {}
# Shares are fractions of whole amounts: what differs by less is the same.
_SAME: Final = 1e-6

# By queue and resource, what pods that leave hold.
Spent = Counter[tuple[str, str]]


def standing_of(
    pod: Pod, group: GroupSpec | None, classes: Mapping[str, PriorityClass], *, progress: int = ALONE
) -> Standing:
    """How important *pod* is: the larger of its own priority and the priority of its *group*'s class counts."""
    if group is None:
        return Standing(pod.priority, pod.preempts, progress=progress)
    preempts = pod.preempts and group.preempts
    found = classes.get(group.priority_class) if group.priority_class else None
    priority = group.priority if group.priority is not None else found.value if found is not None else pod.priority
    if priority <= pod.priority:
        return Standing(pod.priority, preempts, progress=progress)
    if found is not None:
        preempts = preempts and found.preempts
    return Standing(priority, preempts, group.priority_class or PRIORITY_FIELD, progress)


class QueueTree:
    """The queues by their parents, and what is guaranteed to each with those below it.

    All queues stand below `root`: one without a parent, or whose parent does not exist, stands there, and so do those
    whose parents lead back to themselves.

    Attributes:
        queues: by name, `root` not among them.
        guaranteed: queue -> resource -> the larger of its own guarantee and the sum of its children's; queues without
            any guarantee are left out.
        sums: parent -> resource -> what is guaranteed to its children in all.
    """

    def __init__(self, queues: Iterable[QueueSpec] = ()) -> None:
        """Take up *queues*, in any order."""
        self.queues: Final = {one.name: one for one in queues if one.name != ROOT_QUEUE}
        self._parents: Final = {name: self._parent(name) for name in self.queues}
        self._children: Final[dict[str, list[str]]] = {}
        for name, parent in sorted(self._parents.items()):
            self._children.setdefault(parent, []).append(name)
        self.guaranteed: Final[dict[str, Mapping[str, int]]] = {}
        self.sums: Final[dict[str, dict[str, int]]] = {}
        for name in reversed(self._downwards()):
            self._guarantee(name)

    def _parent(self, name: str) -> str:
        parent = above = self.queues[name].parent
        seen: set[str] = set()
        while above in self.queues and above not in seen:
            if above == name:
                return ROOT_QUEUE
            seen.add(above)
            above = self.queues[above].parent
        return parent if parent in self.queues else ROOT_QUEUE

    def _downwards(self) -> list[str]:
        found = list(self._children.get(ROOT_QUEUE, ()))
        for name in found:
            found += self._children.get(name, ())
        return found

    def _guarantee(self, name: str) -> None:
        own, below = self.queues[name].guarantee, self.sums.get(name, {})
        amounts = {one: max(own.get(one, 0), below.get(one, 0)) for one in sorted(own.keys() | below.keys())}
        amounts = {one: amount for one, amount in amounts.items() if amount}
        if amounts:
            self.guaranteed[name] = amounts
            sums = self.sums.setdefault(self._parents[name], {})
            for one, amount in amounts.items():
                sums[one] = sums.get(one, 0) + amount

    def parent(self, name: str) -> str:
        """The queue above *name*; `root` of one that is not known."""
        return self._parents.get(name, ROOT_QUEUE)

    def children(self, name: str) -> list[str]:
        """The queues right below *name*, in order."""
        return self._children.get(name, [])

    def path(self, name: str) -> list[str]:
        """*name* and the queues above it, the uppermost first, without `root`; nothing of a queue that is not known."""
        found: list[str] = []
        while name in self.queues:
            found.append(name)
            name = self._parents[name]
        return found[::-1]


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

    Level by level along the tree, a queue gets at most what it may hold and what its pods ask, and at least its
    guarantee. First those whose `deserved` names the resource get so much, in proportion to it where there is too
    little; then the others share what is left by weight; what these do not want goes to the former again. How many pods
    there may be is not shared out: where that is plenty, it would hide what is not.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What a unit's queue may still hold, and the pods of that queue that leave a part of it to the unit.

    mates: the queue's pods of a lower priority on nodes that may be evicted. amounts: what a pod holds. left: of each
    resource that placements take, how much the limits of the queue and of those above it leave once pods have left;
    below 0: so much too little.
    """

    mates: frozenset[PodUid]
    amounts: Callable[[PodUid], Mapping[str, int]]
    left: Callable[[Iterable[Placement], Iterable[PodUid]], Mapping[str, int]]

    def freed(self, pods: Iterable[PodUid]) -> Counter[str]:
        """Return the most that the queue gets back if *pods* leave, as far as they are its own."""
        found = Counter[str]()
        for uid in pods:
            if uid in self.mates:
                found.update(self.amounts(uid))
        return found

    def suffices(self, placements: Iterable[Placement], victims: Collection[PodUid]) -> bool:
        """Return whether *placements* are within the limits once *victims* have left."""
        return all(left >= 0 for left in self.left(placements, victims).values())

    def may_suffice(self, placements: Iterable[Placement], victims: Collection[PodUid]) -> bool:
        """Return whether the same may be so if more pods of the queue leave."""
        short = {one: left for one, left in self.left(placements, victims).items() if left < 0}
        for uid in self.mates.difference(victims) if short else ():
            amounts = self.amounts(uid)
            short = {one: now for one, left in short.items() if (now := left + amounts.get(one, 0)) < 0}
            if not short:
                break
        return not short


@dataclass(frozen=True, slots=True, kw_only=True)
class Reclaim:
    """What one queue may take back: from queues that hold more than they deserve, as long as it holds less.

    With what it takes back it holds no more than it deserves, and it takes from queues only while they hold more than
    they deserve: so what was taken is never taken back. In the tree both are asked of the queues below the first parent
    that they share.

    paths: of pods that may leave for it, the queues that are asked, from the first that the two do not share down.
    queues: of these pods, the priorities of their queue and of those above it, the uppermost first; the smallest leave
    first. amounts: what a pod holds. resources: those that the unit asks. over: by queue, how much more than it
    deserves it holds; spare: than is guaranteed to it. room: of the unit's own queues, how much less.
    """

    paths: Mapping[PodUid, tuple[str, ...]]
    queues: Mapping[PodUid, tuple[int, ...]]
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
