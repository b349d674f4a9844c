"""All members of a unit at once, or none of them: decided inside a trial of the ledger.

A pod by itself is a unit of one. Members that are on a node already count. Members beyond the minimum are placed as far
as they fit, and members of a subgroup only as a whole. If members differ, it may depend on their order whether all fit;
several orders are tried before a unit is refused.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from core.constraints.quota import Account, Budget, Over, taken
from core.ledger import Ledger, Placement
from core.model import NodeName, Pod
from core.placing.decide import Finder, NodePolicy, Shape, decide, placed_on
from core.placing.domains import Domain, Near, domains
from core.placing.minimums import Minimum, Path, Tally

_NOWHERE: Final = frozenset[NodeName]()


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One pod of a unit that is on no node: what it asks, and the parts of its group that it counts for.

    subgroup: that by which `Unit.inner` says where it may be, "" if nothing does.
    """

    pod: Pod
    shape: Shape
    parts: Path = ()
    subgroup: str = ""


class Inner(NamedTuple):
    """Where members of one subgroup are: in one domain. home: the nodes that some of them are on."""

    near: Near
    home: frozenset[NodeName] = _NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """All of a unit that decides whether it fits: units that ask the same are refused alike.

    members: (parts, subgroup, shape, how many). held: (parts, how many). minimums: the tree, part by part. whole:
    whether a part of it is placed whole. inner: whether it is a subgroup of a group that has its minimum. topology,
    home, subgroups: as in Unit, by name. limits: the accounts that limit it.
    """

    members: frozenset[tuple[Path, str, Shape, int]]
    minimums: frozenset[tuple[str, int, int, tuple[str, ...]]]
    held: frozenset[tuple[Path, int]]
    whole: bool = False
    inner: bool = False
    topology: Near | None = None
    home: frozenset[NodeName] = _NOWHERE
    subgroups: frozenset[tuple[str, Inner]] = frozenset()
    limits: tuple[Account, ...] = ()

    @property
    def shapes(self) -> frozenset[Shape]:
        """What its members ask."""
        return frozenset(shape for _, _, shape, _ in self.members)

    @property
    def has_domains(self) -> bool:
        """Whether some of its members are in one domain, if possible."""
        return self.topology is not None or bool(self.subgroups)

    @property
    def is_bound(self) -> bool:
        """Whether some of its members must be in one domain."""
        return _is_bound(self.topology, self.subgroups)


_ONE: Final = Minimum(members=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Pods that are placed together.

    members: those on no node, first come first. minimum: how many are wanted at least, of all and of each part, with
    those of *held*: by parts, how many members are on a node, or ended well. topology: how near to each other its nodes
    are; None for no such wish. home: the nodes that members are on. inner: likewise of its subgroups, by name.
    """

    members: tuple[Member, ...]
    minimum: Minimum = _ONE
    held: Mapping[Path, int] = field(default_factory=dict)
    topology: Near | None = None
    home: frozenset[NodeName] = _NOWHERE
    inner: Mapping[str, Inner] = field(default_factory=dict)

    @property
    def is_bound(self) -> bool:
        """Whether some of its members must be in one domain."""
        return _is_bound(self.topology, self.inner.items())

    def tally(self, placed: Mapping[Path, int] | None = None) -> Tally:
        """Which minimums are met, when so many are *placed* besides."""
        found = Tally(self.minimum, self.held)
        for path, many in (placed or {}).items():
            found.add(path, many)
        return found

    @property
    def is_met(self) -> bool:
        """Whether the minimum is there already."""
        return self.tally().is_met

    @property
    def needed(self) -> int:
        """How many more members have to be placed, at the least."""
        return self.tally().needed()

    @property
    def is_complete(self) -> bool:
        """Whether its minimum would be there if all that can be placed were."""
        if sum(self.held.values()) + len(self.members) < self.minimum.members:
            return False
        tally = self.tally()
        return fill(tally, self.members, lambda block: _add(tally, block))

    def wanted(self) -> list[Member]:
        """As many of its members as are wanted together at the least; all where they are too few."""
        tally, found = self.tally(), list[Member]()

        def take(block: Block) -> bool:
            if tally.is_met or not _add(tally, block):
                return False
            found.extend(block)
            return True

        return found if fill(tally, self.members, take) else list(self.members)

    def together(self, limits: tuple[Account, ...] = ()) -> Together:
        """What it asks; *limits*: the accounts that limit it."""
        counts = Counter((one.parts, one.subgroup, one.shape) for one in self.members)
        tree = list(self.minimum.each())
        return Together(
            members=frozenset((*what, many) for what, many in counts.items()),
            minimums=frozenset(
                (one.name or one.field, one.members, one.least, tuple(p.name for p in one.parts)) for one in tree
            ),
            held=frozenset((parts, many) for parts, many in self.held.items() if many),
            whole=any(one.whole for one in tree),
            inner=bool(self.minimum.name),
            topology=self.topology,
            home=self.home,
            subgroups=frozenset(self.inner.items()),
            limits=limits,
        )


def _is_bound(topology: Near | None, subgroups: Iterable[tuple[str, Inner]]) -> bool:
    return (topology is not None and topology.hard) or any(inner.near.hard for _, inner in subgroups)


# Members that are placed at once or not at all.
Block = Sequence[Member]


def fill(tally: Tally, order: Sequence[Member], put: Callable[[Block], bool], *, full: bool = False) -> bool:
    """Place the minimum of each part, then that of all, then all others that fit; False if a minimum is not reached.

    *put* places a block, counts it in *tally* and says whether it could. full: all of a subgroup that has a domain of
    its own are one block, not only as many as it needs.
    """
    later = [block for block in _blocks(tally, order, full=full) if not (tally.helps(block[0].parts) and put(block))]
    rest: list[Block] = []
    for block in later:
        if tally.is_met:
            rest.append(block)
        else:
            put(block)
    if not tally.is_met:
        return False
    for block in rest:
        put(block)
    return True


def _blocks(tally: Tally, order: Sequence[Member], *, full: bool) -> Iterable[Block]:
    """*order* in blocks: as many as a subgroup lacks that is placed whole, all others by themselves. full: see fill."""
    found: list[list[Member]] = []
    began: dict[str, list[Member]] = {}
    for one in order:
        name, lacks = tally.whole(one.parts)
        if full and one.subgroup:
            name, lacks = one.subgroup, len(order)
        block = began.get(name)
        if block is not None and len(block) < lacks:
            block.append(one)
            continue
        found.append([one])
        if block is None and lacks:
            began[name] = found[-1]
    return found


def _add(tally: Tally, block: Block) -> bool:
    """Count *block* unless it would be less than a whole."""
    if not _takes(tally, block):
        return False
    for one in block:
        tally.add(one.parts)
    return True


def _takes(tally: Tally, block: Block) -> bool:
    return tally.whole(block[0].parts)[1] <= len(block)


class UnitPart(NamedTuple):
    """The members of the same parts and shape: how many there are, and how many of them fit with the others."""

    parts: Path
    shape: Shape
    members: int
    fitting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Not enough members fit at once; the result of the order in which most did.

    held: how many are on a node already. parts: the parts whose members do not all fit. placements: the places of the
    members that fit, which are not reserved; to explain why one more does not fit, reserve them in a fork. over: what
    the queue or namespace had too little of, for the first member that fits a node. domain: the one that takes most
    members; None if they need not be in one, or if there is none.
    """

    unit: Unit
    held: int
    parts: tuple[UnitPart, ...]
    placements: tuple[Placement, ...]
    over: tuple[Over, ...] = ()
    domain: Domain | None = None

    @property
    def fitting(self) -> int:
        """How many members there would be at once, with those that are on a node already."""
        return self.held + len(self.placements)

    @property
    def missing(self) -> int:
        """How many more members would have to fit, at the least."""
        return max(self.tally().needed(), 1)

    @property
    def first(self) -> UnitPart | None:
        """The members to explain: those of a part that misses its minimum, else the part with most left."""
        tally = self.tally()
        missing = [part for part in self.parts if tally.helps(part.parts)]
        return max(missing or self.parts, key=lambda part: part.members - part.fitting, default=None)

    def tally(self) -> Tally:
        """Which minimums those that fit would meet."""
        return self.unit.tally(self._placed())

    def _placed(self) -> Counter[Path]:
        parts_of = {one.pod.uid: one.parts for one in self.unit.members}
        return Counter(parts_of[one.pod] for one in self.placements)

    def is_met_with(self, shapes: Set[Shape]) -> bool:
        """Whether the minimum would be there if all members of *shapes* were placed too."""
        placed = self._placed()
        for part in self.parts:
            placed[part.parts] += (part.members - part.fitting) * (part.shape in shapes)
        return self.unit.tally(placed).is_met


def place(
    ledger: Ledger,
    candidates: Finder,
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
    asked, inside = unit.topology, _Inside(ledger)
    if asked is None:
        return _place(ledger, candidates, unit, passed_over, budget, inside=inside)
    # Of many trials the most time would go into finding that the shapes of members are equal.
    shapes: dict[Shape, Shape] = {}
    members = tuple(replace(one, shape=shapes.setdefault(one.shape, one.shape)) for one in unit.members)
    unit = replace(unit, members=members)
    best: Refused | Domain | None = None
    most, needed, shape = -1, unit.needed, _shape_of_all(candidates, unit)
    for domain in domains(ledger, asked, unit.home):
        # The first is tried at once: mostly it takes the unit.
        if best is not None and shape is not None:
            fitting = candidates.rooms.on(shape, domain.nodes - passed_over(shape), len(members))
            if fitting < needed:
                best, most = (domain, fitting) if fitting > most else (best, most)
                continue
        answer = _place(ledger, candidates, unit, passed_over, budget, inside=inside, domain=domain.nodes)
        if not isinstance(answer, Refused):
            return answer
        if len(answer.placements) > most:
            best, most = replace(answer, domain=domain), len(answer.placements)
    if not asked.hard:
        return _place(ledger, candidates, unit, passed_over, budget, inside=inside)
    if isinstance(best, Refused):
        return best
    nodes = best.nodes if best is not None else _NOWHERE
    answer = _place(ledger, candidates, unit, passed_over, budget, inside=inside, domain=nodes)
    return replace(answer, domain=best) if isinstance(answer, Refused) else answer


def _shape_of_all(candidates: Finder, unit: Unit) -> Shape | None:
    """The shape of its members if they are alike, and fit in a domain if its nodes take enough of them one by one."""
    shapes = {one.shape for one in unit.members}
    if unit.inner or len(shapes) != 1:
        return None
    (shape,) = shapes
    return shape if candidates.rooms.counts(shape, (one.pod for one in unit.members)) else None


def _place(
    ledger: Ledger,
    candidates: Finder,
    unit: Unit,
    passed_over: Callable[[Shape], Set[NodeName]],
    budget: Budget | None,
    *,
    inside: "_Inside",
    domain: frozenset[NodeName] | None = None,
) -> tuple[Placement, ...] | Refused:
    best: _Attempt | None = None
    for order, full in _orders(candidates, unit):
        left = budget.copy() if budget is not None else None
        attempt = _Attempt(ledger, candidates, unit, passed_over, left, inside=inside, domain=domain)
        with ledger.trial() as trial:
            if attempt.place(order, full=full):
                trial.keep()
                return tuple(attempt.placements)
            attempt.begin_next()
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


def put(ledger: Ledger, policy: NodePolicy, refused: Refused) -> None:
    """Promise in *ledger*, a fork, the places that were found, as far as their nodes still have them."""
    members = {one.pod.uid: one for one in refused.unit.members}
    for placement in refused.placements:
        member = members[placement.pod]
        again = placed_on(ledger, policy, member.pod, member.shape, placement.node)
        if again is not None:
            ledger.reserve(again)


class _Inside:
    """The domains that subgroups may be in, found once for all attempts: there are as many as domains of the group."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger: Final = ledger
        self._all: Final[dict[Near, list[Domain]]] = {}
        # Where in that list the domains of a node are.
        self._of: Final[dict[Near, dict[NodeName, list[int]]]] = {}

    def within(self, asked: Near, nodes: frozenset[NodeName] | None) -> list[Domain]:
        """What each domain has of *nodes*, or of all: those that have any."""
        if asked not in self._all:
            self._all[asked] = list(domains(self._ledger, asked))
        found = self._all[asked]
        if nodes is None:
            return found
        if asked not in self._of:
            self._of[asked] = of = dict[NodeName, list[int]]()
            for at, domain in enumerate(found):
                for name in domain.nodes:
                    of.setdefault(name, []).append(at)
        of = self._of[asked]
        return [
            found[at]._replace(nodes=found[at].nodes & nodes)
            for at in sorted({at for name in nodes for at in of.get(name, ())})
        ]


class _Attempt:
    """One order, tried: what is placed so far, and which shapes fit nowhere any more."""

    def __init__(
        self,
        ledger: Ledger,
        candidates: Finder,
        unit: Unit,
        passed_over: Callable[[Shape], Set[NodeName]],
        budget: Budget | None,
        *,
        inside: _Inside,
        domain: frozenset[NodeName] | None,
    ) -> None:
        self.over: tuple[Over, ...] = ()
        self._budget = budget
        self.placements: Final[list[Placement]] = []
        self._ledger: Final = ledger
        self._candidates: Final = candidates
        self._unit: Final = unit
        self._passed_over: Final = passed_over
        self._inside: Final = inside
        self._domain: Final = domain
        self._tally: Final = unit.tally()
        self._fitting: Final = Counter[tuple[Path, Shape]]()
        # The domain that a subgroup is tried in, None without one; and which shapes fit no more, there or at all.
        self._where: Domain | None = None
        self._full: Final[dict[Domain | None, set[Shape]]] = {None: set()}
        # What subgroups asked that did not fit; room only shrinks, so no other that asks the same does.
        self._failed: Final[set[tuple[Domain | None, tuple[Shape, ...]]]] = set()
        self._domains: Final[dict[Near, list[Domain]]] = {}
        self._homes: Final[dict[str, Set[NodeName]]] = {name: inner.home for name, inner in unit.inner.items()}
        self._next: Block = ()

    def place(self, order: Sequence[Member], *, full: bool) -> bool:
        """As `fill` does."""
        return fill(self._tally, order, self._put, full=full)

    def begin_next(self) -> None:
        """Promise what fits of the first block that was needed and did not fit as a whole."""
        if self._next and (name := self._next[0].subgroup) and self._unit.inner[name].near.hard:
            return  # what fits of it need not be in one domain
        for member in self._next:
            if self._promise(member):
                self._fitting[member.parts, member.shape] += 1

    def _put(self, block: Block) -> bool:
        """Promise *block* its best nodes, all of it or nothing."""
        if not _takes(self._tally, block):
            return False
        if not self._promise_near(block):
            if not self._next:
                self._next = block
            return False
        for one in block:
            self._tally.add(one.parts)
            self._fitting[one.parts, one.shape] += 1
        return True

    def _promise_near(self, block: Block) -> bool:
        """Promise *block* in the narrowest domain of its subgroup that takes it; anywhere if it asks for none."""
        name = block[0].subgroup
        if not name:
            return self._promise_in(None, block)
        asked = self._unit.inner[name].near
        if asked not in self._domains:
            self._domains[asked] = self._inside.within(asked, self._domain)
        home = self._homes[name] & self._ledger.states.keys()
        for domain in self._domains[asked]:
            if home <= domain.nodes and self._promise_in(domain, block):
                break
        else:
            if asked.hard or not self._promise_in(None, block):
                return False
        self._homes[name] = home | {placement.node for placement in self.placements[-len(block) :]}
        return True

    def _promise_in(self, where: Domain | None, block: Block) -> bool:
        if where not in self._full:
            self._full[where] = set()
        self._where = where
        done = self._promise(block[0]) if len(block) == 1 else self._promise_whole(block)
        self._where = None
        return done

    def _promise_whole(self, block: Block) -> bool:
        asked = self._where, tuple(one.shape for one in block)
        if asked in self._failed:
            return False
        before, full = len(self.placements), self._full[self._where].copy()
        budget = self._budget.copy() if self._budget is not None else None
        with self._ledger.trial() as trial:
            if all(self._promise(one) for one in block):
                trial.keep()
                return True
        self._failed.add(asked)
        if len(self.placements) > before:  # what the others of it took is free again
            del self.placements[before:]
            self._full[self._where], self._budget = full, budget
        return False

    def _promise(self, member: Member) -> bool:
        """Promise *member* its best node; False if there is none, as for all of its shape from then on."""
        shape, where = member.shape, self._where
        if shape in self._full[where]:
            return False
        nodes = self._domain if where is None else where.nodes
        placement = decide(self._candidates, member.pod, shape, self._passed_over(shape), domain=nodes)
        if placement is None or self._is_over(member.pod, placement):
            self._full[where].add(shape)
            return False
        self._ledger.reserve(placement)
        self.placements.append(placement)
        return True

    def _is_over(self, pod: Pod, placement: Placement) -> bool:
        """Whether queue or namespace has too little left for *placement*; if not, it is spent."""
        if self._budget is None:
            return False
        over = self._budget.spend(taken(self._ledger, pod, placement.dialect, placement.assignment))
        self.over = self.over or over
        return bool(over)

    def parts(self) -> tuple[UnitPart, ...]:
        """Return the parts whose members do not all fit."""
        counts = Counter((one.parts, one.shape) for one in self._unit.members)
        parts = (UnitPart(path, shape, many, self._fitting[path, shape]) for (path, shape), many in counts.items())
        return tuple(part for part in parts if part.fitting < part.members)


def _orders(candidates: Finder, unit: Unit) -> Iterator[tuple[Sequence[Member], bool]]:
    """Those of `orders`; then the subgroups that lack least first, with which most of them start.

    Where subgroups have domains of their own, also those that lack most first, and the largest first, full (`fill`): of
    a subgroup that needs one member, that one could take a domain that has no room for the others.
    """
    for order in orders(candidates, unit.members):
        yield order, False
    tally = unit.tally()
    lacks = {one.parts: tally.whole(one.parts)[1] for one in unit.members}
    for most_first in (False, True) if unit.inner else (False,):
        order = sorted(unit.members, key=lambda one: lacks[one.parts], reverse=most_first)
        if _runs(order) != _runs(unit.members):
            yield order, False
    if unit.inner:
        sizes = Counter(one.subgroup for one in unit.members)
        if any(one.subgroup and sizes[one.subgroup] > lacks[one.parts] for one in unit.members):
            yield sorted(unit.members, key=lambda one: sizes[one.subgroup], reverse=True), True


def orders(candidates: Finder, members: tuple[Member, ...]) -> Iterator[Sequence[Member]]:
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


def _runs(members: Iterable[Member]) -> list[tuple[Path, str, Shape]]:
    return [(one.parts, one.subgroup, one.shape) for one in members]
