"""All members of a unit at once, or none of them: decided inside a trial of the ledger.

A pod by itself is a unit of one. Members that are on a node already count; those that are wanted beyond the minimum are
placed as far as they fit. Where members differ, it may depend on who goes first whether all fit: some orders are tried
before a unit is refused.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from core.ledger import Ledger, Placement
from core.model import NodeName, Pod, PodUid
from core.placing.candidates import Candidates
from core.placing.decide import decide, placed_on
from core.placing.fairness import Account, Budget, Over, taken
from core.placing.score import NodePolicy
from core.placing.shape import Shape

_NOWHERE: Final = frozenset[NodeName]()


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One pod of a unit that is on no node: what it asks, and the task of its Job that it is of, or ""."""

    pod: Pod
    shape: Shape
    task: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """All of a unit that decides whether it fits: units that ask the same are refused alike.

    members: (task, shape, how many). held, task_minimums: (task, how many). limits: the accounts that limit it.
    """

    members: frozenset[tuple[str, Shape, int]]
    min_member: int
    task_minimums: frozenset[tuple[str, int]]
    held: frozenset[tuple[str, int]]
    limits: tuple[Account, ...] = ()

    @property
    def shapes(self) -> frozenset[Shape]:
        """What its members ask."""
        return frozenset(shape for _, shape, _ in self.members)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Pods that are placed together.

    members: those on no node, first come first. min_member: how many are wanted at least, with those of *held*: by
    task, how many members are on a node, or ended well. task_minimums: how many of a task are wanted at least.
    """

    members: tuple[Member, ...]
    min_member: int = 1
    task_minimums: Mapping[str, int] = field(default_factory=dict)
    held: Mapping[str, int] = field(default_factory=dict)

    def lacks(self, task: str, placed: Mapping[str, int]) -> int:
        """How many more of *task* its minimum wants, when of each task so many are *placed* besides."""
        return max(self.task_minimums.get(task, 0) - self.held.get(task, 0) - placed.get(task, 0), 0)

    def is_met(self, placed: Mapping[str, int]) -> bool:
        """Whether the minimum is there, when of each task so many are *placed* besides."""
        enough = sum(self.held.values()) + sum(placed.values()) >= self.min_member
        return enough and not any(self.lacks(task, placed) for task in self.task_minimums)

    @property
    def needed(self) -> int:
        """How many more members have to be placed, at the least."""
        by_task = sum(self.lacks(task, {}) for task in self.task_minimums)
        return max(self.min_member - sum(self.held.values()), by_task, 0)

    def wanted(self) -> list[Member]:
        """As many of its members as are wanted together at the least."""
        found: list[Member] = []
        rest: list[Member] = []
        placed = dict.fromkeys((one.task for one in self.members), 0)
        for one in self.members:
            if self.lacks(one.task, placed):
                placed[one.task] += 1
                found.append(one)
            else:
                rest.append(one)
        return found + rest[: max(self.needed - len(found), 0)]

    def together(self, limits: tuple[Account, ...] = ()) -> Together:
        """What it asks; *limits*: the accounts that limit it."""
        counts = Counter((one.task, one.shape) for one in self.members)
        return Together(
            members=frozenset((task, shape, many) for (task, shape), many in counts.items()),
            min_member=self.min_member,
            task_minimums=frozenset(self.task_minimums.items()),
            held=frozenset((task, many) for task, many in self.held.items() if many),
            limits=limits,
        )


class Part(NamedTuple):
    """The members of one task and shape: how many there are, and how many of them fit with the others."""

    task: str
    shape: Shape
    members: int
    fitting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Not enough members fit at once; of all orders tried, the one in which most did.

    held: how many are on a node already. parts: those of which not all fit. placements: where those that fit would be,
    of which none is promised; what keeps out one more is asked of a ledger in which they are. over: what the first of
    those that fit a node was too much of for its queue or namespace.
    """

    unit: Unit
    held: int
    parts: tuple[Part, ...]
    placements: tuple[Placement, ...]
    over: tuple[Over, ...] = ()

    @property
    def fitting(self) -> int:
        """How many members there would be at once, with those that are on a node already."""
        return self.held + len(self.placements)

    @property
    def missing(self) -> int:
        """How many more members would have to fit, at the least."""
        return max(self.unit.needed - len(self.placements), 1)

    @property
    def first(self) -> Part | None:
        """Which members to explain: those of a task that misses its minimum, else those of which most are left."""
        placed = self.placed()
        missing = [part for part in self.parts if self.unit.lacks(part.task, placed)]
        return max(missing or self.parts, key=lambda part: part.members - part.fitting, default=None)

    def placed(self) -> Counter[str]:
        """By task, how many of those that wait fit."""
        task_of = {one.pod.uid: one.task for one in self.unit.members}
        return Counter(task_of[one.pod] for one in self.placements)

    def is_met_with(self, shapes: Set[Shape]) -> bool:
        """Whether the minimum would be there if all members of *shapes* were placed too."""
        placed = self.placed()
        for part in self.parts:
            placed[part.task] += (part.members - part.fitting) * (part.shape in shapes)
        return self.unit.is_met(placed)


def place(
    ledger: Ledger,
    candidates: Candidates,
    unit: Unit,
    passed_over: Callable[[Shape], Set[NodeName]] = lambda _: _NOWHERE,
    budget: Budget | None = None,
) -> tuple[Placement, ...] | Refused:
    """Reserve nodes and cards for *unit*, or say how many of its members fit; then the ledger is as it was.

    Args:
        ledger: the one that *candidates* answer for.
        candidates: where each member goes.
        unit: what is to be placed.
        passed_over: the nodes that are left out for a shape.
        budget: what its queue and namespace have left; None if that is not limited. It is not changed.

    Raises:
        NodeInvariantError: a node contradicts itself; the ledger is as it was.
    """
    best: _Attempt | None = None
    for order in _orders(candidates, unit.members):
        attempt = _Attempt(ledger, candidates, unit, passed_over, budget.copy() if budget is not None else None)
        with ledger.trial() as trial:
            if attempt.place(order):
                trial.keep()
                return tuple(attempt.placements)
        if best is None or len(attempt.placements) > len(best.placements):
            best = attempt
    placements = tuple(best.placements) if best is not None else ()
    parts = best.parts() if best is not None else ()
    over = (best.over if best is not None else ()) or _over_in_all(ledger, unit, budget)
    return Refused(unit=unit, held=sum(unit.held.values()), parts=parts, placements=placements, over=over)


def _over_in_all(ledger: Ledger, unit: Unit, budget: Budget | None) -> tuple[Over, ...]:
    """Of what too little is left for the minimum, wherever that went; () always of members that differ."""
    if budget is None or len({one.shape for one in unit.members}) != 1:
        return ()
    one = unit.members[0]
    amounts = taken(ledger, one.pod, one.shape.dialect, None)
    return budget.lacks({resource: amount * unit.needed for resource, amount in amounts.items()})


def room_on(ledger: Ledger, policy: NodePolicy, shape: Shape, name: NodeName, most: int) -> int:
    """How many pods of *shape*, up to *most*, node *name* takes now, one after the other."""
    with ledger.trial():
        for count in range(most):
            placement = placed_on(ledger, policy, _probe(count), shape, name)
            if placement is None:
                return count
            ledger.reserve(placement)
    return most


def put(ledger: Ledger, policy: NodePolicy, refused: Refused) -> None:
    """Promise in *ledger*, a fork, the places that were found, as far as their nodes still have them."""
    members = {one.pod.uid: one for one in refused.unit.members}
    for placement in refused.placements:
        member = members[placement.pod]
        again = placed_on(ledger, policy, member.pod, member.shape, placement.node)
        if again is not None:
            ledger.reserve(again)


def _probe(number: int) -> Pod:
    return Pod(uid=PodUid(f"probe-{number}"), namespace="", name="probe")


class _Attempt:
    """One order, tried: what is placed so far, and which shapes fit nowhere any more."""

    def __init__(
        self,
        ledger: Ledger,
        candidates: Candidates,
        unit: Unit,
        passed_over: Callable[[Shape], Set[NodeName]],
        budget: Budget | None,
    ) -> None:
        self.over: tuple[Over, ...] = ()
        self._budget: Final = budget
        self.placements: Final[list[Placement]] = []
        self._ledger: Final = ledger
        self._candidates: Final = candidates
        self._unit: Final = unit
        self._passed_over: Final = passed_over
        self._placed: Final = Counter[str]()
        self._fitting: Final = Counter[tuple[str, Shape]]()
        self._full: Final[set[Shape]] = set()

    def place(self, order: Sequence[Member]) -> bool:
        """Place the minimum of each task, then that of all, then who else fits; False if a minimum is not reached."""
        unit, placed = self._unit, self._placed
        later = [one for one in order if not (unit.lacks(one.task, placed) and self._put(one))]
        rest: list[Member] = []
        for one in later:
            if unit.is_met(placed):
                rest.append(one)
            else:
                self._put(one)
        if not unit.is_met(placed):
            return False
        for one in rest:
            self._put(one)
        return True

    def _put(self, member: Member) -> bool:
        """Promise *member* its best node; False if there is none, as for all of its shape from then on."""
        shape = member.shape
        if shape in self._full:
            return False
        placement = decide(self._candidates, member.pod, shape, self._passed_over(shape))
        if placement is None or self._is_over(member.pod, placement):
            self._full.add(shape)
            return False
        self._ledger.reserve(placement)
        self.placements.append(placement)
        self._placed[member.task] += 1
        self._fitting[member.task, shape] += 1
        return True

    def _is_over(self, pod: Pod, placement: Placement) -> bool:
        """Whether queue or namespace has too little left for *placement*; if not, it is spent."""
        if self._budget is None:
            return False
        over = self._budget.spend(taken(self._ledger, pod, placement.dialect, placement.assignment))
        self.over = self.over or over
        return bool(over)

    def parts(self) -> tuple[Part, ...]:
        """The members of which not all fit."""
        counts = Counter((one.task, one.shape) for one in self._unit.members)
        parts = (Part(task, shape, many, self._fitting[task, shape]) for (task, shape), many in counts.items())
        return tuple(part for part in parts if part.fitting < part.members)


def _orders(candidates: Candidates, members: tuple[Member, ...]) -> Iterator[Sequence[Member]]:
    """The orders to try: as they come, largest first, most constrained first, smallest first; none twice."""
    yield members
    shapes = dict.fromkeys(one.shape for one in members)
    if len(shapes) == 1:
        return
    size = {shape: candidates.size(shape) for shape in shapes}
    choice = {shape: candidates.choice(shape) for shape in shapes}
    tried = [_runs(members)]
    for order in (
        sorted(members, key=lambda one: size[one.shape], reverse=True),
        sorted(members, key=lambda one: (choice[one.shape], tuple(-part for part in size[one.shape]))),
        sorted(members, key=lambda one: size[one.shape]),
    ):
        runs = _runs(order)
        if runs not in tried:
            tried.append(runs)
            yield order


def _runs(members: Iterable[Member]) -> list[tuple[str, Shape]]:
    return [(one.task, one.shape) for one in members]
