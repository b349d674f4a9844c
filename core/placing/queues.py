"""Queues of Volcano: how important a pod is in its queue, what each queue deserves, and what it may take back. Pure.

Source: Volcano, plugins proportion and capacity and action reclaim (groups 4.3, 4.9); its documents
hierarchical-queue-on-capacity-plugin.md and capacity-scheduling.md.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd
from typing import Final, NamedTuple

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


class _Part(NamedTuple):
    """What one queue may have of one resource: between *least* and *most*, by *weight*.

    due: its `deserved`, which then is its weight too; 0 if it has none.
    """

    name: str
    weight: int
    least: int
    most: int
    due: int = 0


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
    queues = _upwards({*asked, *tree.guaranteed}, tree)
    resources = {resource for amounts in asked.values() for resource, amount in amounts.items() if amount}
    for resource in sorted((resources & total.keys()) - {names.PODS}):
        parts = _parts(resource, asked, tree, queues)
        above = [(ROOT_QUEUE, total[resource], 1)]
        for name, amount, scale in above:
            if name not in parts:
                continue
            for queue, (numerator, denominator) in _shared_out(parts[name], amount, scale).items():
                if queue != name:
                    found.amounts.setdefault(queue, {})[resource] = numerator / denominator
                    above.append((queue, numerator, denominator))
    return found


def _upwards(lines: Iterable[str], tree: QueueTree) -> list[QueueSpec]:
    """Return the queues *lines* and those above them, each after those below it."""
    depths = {one: at for name in lines for at, one in enumerate(tree.path(name) or [name]) if name != ROOT_QUEUE}
    return [tree.queues.get(one) or QueueSpec(name=one) for one in sorted(depths, key=lambda one: (-depths[one], one))]


def _parts(
    resource: str, asked: Mapping[str, Mapping[str, int]], tree: QueueTree, queues: Iterable[QueueSpec]
) -> dict[str, list[_Part]]:
    """Parent -> those that share what it gets of *resource*; where its own pods ask for that, it is one of them."""
    found: dict[str, list[_Part]] = {}
    below: dict[str, int] = {}
    for queue in queues:
        name = queue.name
        least, own = tree.guaranteed.get(name, _NOTHING).get(resource, 0), asked.get(name, _NOTHING).get(resource, 0)
        want = own + below.get(name, 0)
        most = max(min(want, queue.capability.get(resource, want)), least)
        if not most:
            continue
        if name in below and own:
            found[name].append(_Part(name, 1, 0, own))
        parent, due = tree.parent(name), max(queue.deserved.get(resource, 0), 0)
        below[parent] = below.get(parent, 0) + most
        found.setdefault(parent, []).append(_Part(name, due or max(queue.weight, 1), least, most, due))
    own = asked.get(ROOT_QUEUE, _NOTHING).get(resource, 0)
    if own:
        found.setdefault(ROOT_QUEUE, []).append(_Part(ROOT_QUEUE, 1, 0, own))
    return found


def _shared_out(parts: Sequence[_Part], total: int, scale: int) -> dict[str, tuple[int, int]]:
    """What each of *parts* gets of *total* / *scale*: of what is deserved, of what is left by weight, and of the rest.

    Returns:
        By name, numerator and denominator in lowest terms: a share that is whole has to be found whole.
    """
    shares = {one.name: (one.least, 1) for one in parts}
    given = sum([one.least for one in parts])
    said, others = [one for one in parts if one.due], [one for one in parts if not one.due]
    for members, is_due in ((said, True), (others, False), (said, False)):
        stage = [_next_stage(one, shares[one.name][0], is_due=is_due) for one in members]
        least = sum([one.least for one in stage])
        level = _level(stage, total - scale * (given - least), scale)
        if level is not None:
            shares.update({one.name: _at(one, level[0], level[1]) for one in stage})
            break  # nothing is left
        shares.update({one.name: (one.most, 1) for one in stage})
        given += sum([one.most for one in stage]) - least
    return shares


def _next_stage(part: _Part, got: int, *, is_due: bool) -> _Part:
    """*part*, which has *got* something already, up to what it deserves, or up to the most that it may have."""
    most = min(part.most, max(part.least, part.due)) if is_due else part.most
    return _Part(part.name, part.weight, got, most)


def _at(part: _Part, level: int, scale: int) -> tuple[int, int]:
    """What *part* gets where a weight of 1 gets *level* / *scale*."""
    wanted = level * part.weight
    if wanted <= part.least * scale:
        return part.least, 1
    if wanted >= part.most * scale:
        return part.most, 1
    common = gcd(wanted, scale)
    return wanted // common, scale // common


def _level(parts: Sequence[_Part], left: int, scale: int) -> tuple[int, int] | None:
    """What a weight of 1 gets if *parts* share out all of *left* / *scale*; None if all have the most that they may."""
    if scale * sum([one.most for one in parts]) <= left:
        return None
    given, growth = sum([one.least for one in parts]), 0
    if given * scale >= left:
        return 0, 1
    # A part grows by its weight from the level at which it has its least to that at which it has its most. Different
    # levels are a *finest*-th apart at least.
    finest = max([one.weight for one in parts]) ** 2
    bends = sorted(
        [(one.least * finest // one.weight, one.least, one.weight, one.weight) for one in parts]
        + [(one.most * finest // one.weight, one.most, one.weight, -one.weight) for one in parts]
    )
    for _, amount, weight, change in bends:
        if (given * weight + growth * amount) * scale >= left * weight:
            break
        growth += change
        given += amount if change < 0 else -amount  # given: what does not grow
    return left - given * scale, growth * scale


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

    def losses(self, pods: Collection[PodUid]) -> Spent:
        """Return what queues lose if *pods* leave."""
        found = Spent()
        for uid in pods:
            for name in self.paths.get(uid, ()):
                found.update({(name, one): amount for one, amount in self.amounts(uid).items()})
        return found

    def lets_go(self, losses: Spent, spent: Spent) -> bool:
        """Whether pods with these *losses*, of queues that are asked, may leave at once after so much was *spent*."""
        return bool(losses) and all(self._lets_go(one, losses, spent) for one in {name for name, _ in losses})

    def _lets_go(self, name: str, losses: Spent, spent: Spent) -> bool:
        over, spare = self.over.get(name, {}), self.spare.get(name, {})
        holds_more = any(losses[name, one] and over.get(one, 0.0) - spent[name, one] > _SAME for one in self.resources)
        return holds_more and all(losses[name, one] + spent[name, one] <= left for one, left in spare.items())
