"""The policy `pack`: which cards of a node a pod gets, and what free room of cards and nodes is worth to later pods.

Two things are lost when a share is placed. A hole that is left on a card may be of a size that few pods ask for: how
much of it is expected never to be sold is found by dynamic programming over the sizes that pods do ask (`losses`).
And cards may be left on a node whose cpu or memory is used up: then no pod can take them (stranding). A pod goes where
the sum of both grows least. Cards are measured in steps, a hundredth each, whatever their unit; a hole is as large as
the scarcest of what is left of its card.

The tables are made of all pods that asked, those that found no room too; older ones count less.
`core.placing.learning` makes them.

Of a request for one card every card of the node that takes it is tried, and the one is taken by which least is lost,
the fullest where several are equal. All others get the cards that their dialect chooses under binpack. A dialect that
does not tell what is left of its cards (`holes`), and a pod with an order of nodes of its own, are scored as under
binpack. Pods without cards go to nodes without cards first, and then where they strand least.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from core import names
from core.catalog import Catalog
from core.model import Amounts, NodeName
from core.node_state import NodeState
from core.port.cards import Hole, Placed
from core.settings import DialectName

# A card has so many steps.
STEPS: Final = 100
# What of a node can run out before its cards do.
RESOURCES: Final = (names.CPU, names.MEMORY)
# So many pods are looked ahead. Beyond 100 the tables believe that every hole is sold one day, and packing gets worse.
_ROUNDS: Final = 60
# Hole values are learnt after so many pods, and then after every so many.
_FIRST: Final = (50, 100, 200, 400, 800)
_EVERY: Final = 1000
# A pod counts half of one that asked so many pods later.
_HALF_LIFE: Final = 20_000
# What counts less than this is forgotten; of more different requests than these, those that count least.
_FORGOTTEN: Final = 1 / 64
_KINDS_MAX: Final = 4096
# From which part of what the cluster has on all pods ask for a resource so that it would run out before the cards do,
# and how fast that counts; how much more of it a step of a card is then said to need, and what keeping it is worth.
_SCARCE_FROM: Final = 0.97
_SCARCE_OVER: Final = 0.05
_SCARCE_MORE: Final = 0.1
_SCARCE_KEPT: Final = 0.01
# HoleValues that differ by less than this part lead to the same places, nearly always.
_MOVED: Final = 0.01
# Scores that differ by less than this are equal.
_DIGITS: Final = 9

# Cards that are parted alike: whose they are, and what their dialect tells them by.
Size = tuple[DialectName, Hashable]
# What a pod asks of cards: in whose words, and what; None of one that asks for none.
Request = tuple[DialectName, Hashable] | None


def steps_free(hole: Hole) -> int:
    """How many whole steps of one card are left: of its memory, or of what else is shared of it, if that is less."""
    free = min(hole.free * STEPS // max(hole.total, 1), hole.spare_pct * STEPS // 100)
    return max(min(free, STEPS), 0)


def losses(parts: Mapping[int, float]) -> tuple[float, ...]:
    """How many steps of a card are expected never to be sold, by the steps that are free of it, 0 to `STEPS`.

    In every round a pod comes, and is taken or left to another card, whichever leads to more.

    Args:
        parts: steps asked of one card -> the part of pods with cards that ask so many; they sum up to 1.
    """
    sold = [0.0] * (STEPS + 1)
    for _ in range(_ROUNDS):
        coming = [0.0] * (STEPS + 1)
        for asked, part in parts.items():
            for free, now in enumerate(sold):
                taken = asked + sold[free - asked] if asked <= free else 0.0
                coming[free] += part * max(now, taken)
        sold = coming
    return tuple([free - expected for free, expected in enumerate(sold)])


class Table(NamedTuple):
    """What is known of cards of one size.

    loss: as `losses`. per_step: of each resource of a node that can run out, how much goes with one step of a card.
    scarce: 0 to 1, how surely such a resource runs out before the cards do.
    """

    loss: tuple[float, ...]
    per_step: tuple[tuple[str, float], ...]
    scarce: float = 0.0

    def needs(self, resource: str) -> float:
        """How much of *resource* goes with one step."""
        for name, per_step in self.per_step:
            if name == resource:
                return per_step
        return 0.0

    def is_like(self, other: "Table") -> bool:
        """Whether *other* says nearly the same, so that scores need not be computed anew."""
        near = all(abs(one - two) <= _MOVED * STEPS for one, two in zip(self.loss, other.loss, strict=True))
        mine, others = dict(self.per_step), dict(other.per_step)
        return (
            near
            and mine.keys() == others.keys()
            and all(abs(mine[name] - others[name]) <= _MOVED * mine[name] for name in mine)
            and abs(self.scarce - other.scarce) <= _MOVED
        )


# Before pods were seen no hole is lost, and ten cores go with a card.
NOTHING_KNOWN: Final = Table((0.0,) * (STEPS + 1), ((names.CPU, 10_000 / STEPS),))


class HoleValues:
    """What is known at one moment of each size of card."""

    __slots__ = ("by_size",)

    def __init__(self, by_size: Mapping[Size, Table]) -> None:
        self.by_size: Final = by_size

    def of(self, size: Size) -> Table:
        """What is known of cards of *size*."""
        return self.by_size.get(size, NOTHING_KNOWN)

    def is_like(self, other: "HoleValues") -> bool:
        """Whether *other* says nearly the same of every size."""
        mine, others = self.by_size, other.by_size
        return mine.keys() == others.keys() and all(mine[size].is_like(others[size]) for size in mine)


# Before pods were seen.
NO_HOLE_VALUES: Final = HoleValues({})


class Lost(NamedTuple):
    """What of a node's cards is expected never to be sold, in steps.

    holes: what is left on its cards and no pod asks for. free: what is left on them in all. needed: what of each
    resource goes with that. kept: what keeping it free counts where a resource is scarce.
    """

    holes: float
    free: int
    needed: tuple[tuple[str, float], ...]
    kept: float

    def stranded(self, left: Mapping[str, int]) -> float:
        """Return how much of *free* no pod can take with *left* of the node's resources; a missing one suffices."""
        carried = 1.0
        for name, amount in self.needed:
            # Of what is used beyond what there is, less than nothing is left.
            if name in left and max(left[name], 0) < amount:
                carried = min(carried, max(left[name], 0) / amount)
        return self.free * (1.0 - carried)

    def with_hole(self, table: Table, old: int, new: int) -> "Lost":
        """Return the same with a card that has *new* free steps instead of *old*."""
        fewer = old - new
        return Lost(
            self.holes - table.loss[old] + table.loss[new],
            self.free - fewer,
            tuple([(name, amount - fewer * table.needs(name)) for name, amount in self.needed]),
            self.kept - _SCARCE_KEPT * table.scarce * fewer,
        )


class Ground(NamedTuple):
    """A node's cards in one dialect: of each the free steps, and what is known of its size; and what is lost."""

    steps: tuple[int, ...]
    tables: tuple[Table, ...]
    lost: Lost


def ground(tables: HoleValues, dialect: DialectName, holes: Iterable[Hole]) -> Ground:
    """Return the cards that have these *holes*."""
    lost, kept, free = 0.0, 0.0, 0
    needed: dict[str, float] = {}
    every: list[int] = []
    known: list[Table] = []
    size: Hashable = None
    table = NOTHING_KNOWN
    for hole in holes:
        # Cards of a node are mostly of one size, which is a large value.
        if hole.size is not size:
            size = hole.size
            table = tables.of((dialect, size))
        steps = steps_free(hole)
        every.append(steps)
        known.append(table)
        lost += table.loss[steps] * hole.cards
        steps *= hole.cards
        free += steps
        kept += _SCARCE_KEPT * table.scarce * steps
        for name, per_step in table.per_step:
            needed[name] = needed.get(name, 0.0) + per_step * steps
    return Ground(tuple(every), tuple(known), Lost(lost, free, tuple(needed.items()), kept))


def score(before: Lost, left: Mapping[str, int], after: Lost, left_after: Mapping[str, int]) -> float:
    """How good it is to place a pod on a node that is *before* and *after* it, of whose resources so much is left."""
    lost = before.holes + before.stranded(left) - after.holes - after.stranded(left_after)
    return round(lost + after.kept, _DIGITS)


class CardsTaken(NamedTuple):
    """What a request takes of idle cards of one size: at most *steps* of one card, and *total* of all."""

    steps: int
    total: int


class Count:
    """Pods that ask the same of cards: how many, older ones less, and what they ask of their nodes in all."""

    __slots__ = ("amounts", "weight")

    def __init__(self) -> None:
        self.weight = 0.0
        self.amounts: dict[str, float] = {}


class Mix:
    """The pods that asked, counted by what they ask."""

    def __init__(self) -> None:
        """Begin with none."""
        self._counts: Final[dict[Request, Count]] = {}
        self.seen = 0

    @property
    def requests(self) -> tuple[Request, ...]:
        """What the pods asked, each once, in the order in which they first did."""
        return tuple(self._counts)

    def add(self, request: Request, amounts: Amounts) -> bool:
        """A pod asks *request* of cards and *amounts* of its node; True when tables are to be made anew."""
        count = self._counts.get(request)
        if count is None:
            count = self._counts[request] = Count()
        count.weight += 1.0
        for name, amount in amounts:
            if name in RESOURCES:
                count.amounts[name] = count.amounts.get(name, 0.0) + amount
        self.seen += 1
        if len(self._counts) > _KINDS_MAX:
            self._forget_some()
        if self.seen % _EVERY == 0:
            self._age()
            return True
        return self.seen in _FIRST

    def _forget_some(self) -> None:
        rare = sorted(self._counts.items(), key=lambda one: one[1].weight)
        for request, _ in rare[: _KINDS_MAX // 4]:
            del self._counts[request]

    def _age(self) -> None:
        older = 0.5 ** (_EVERY / _HALF_LIFE)
        for request, count in list(self._counts.items()):
            count.weight *= older
            if count.weight < _FORGOTTEN:
                del self._counts[request]
                continue
            for name in count.amounts:
                count.amounts[name] *= older

    def table(self, asked: Mapping[Request, CardsTaken], have: Mapping[str, int], cards: int) -> Table:
        """What the pods so far say of cards of one size.

        Args:
            asked: what of these cards each request would take; one that cannot have them is not there.
            have: of each resource, how much the cluster has.
            cards: how many such cards.
        """
        parts: dict[int, float] = {}
        steps = 0.0
        beside, of_all = dict.fromkeys(RESOURCES, 0.0), dict.fromkeys(RESOURCES, 0.0)
        for request, count in self._counts.items():
            takes = asked.get(request)
            if takes is None and request is not None:
                continue
            for name, amount in count.amounts.items():
                of_all[name] += amount
                beside[name] += amount if takes is not None else 0.0
            if takes is not None and takes.steps:
                parts[takes.steps] = parts.get(takes.steps, 0.0) + count.weight
                steps += count.weight * takes.total
        if not steps:
            return NOTHING_KNOWN
        with_cards = sum(parts.values())
        scarce = {name: _scarcity(of_all[name] / steps, have.get(name, 0), cards) for name in RESOURCES}
        per_step = [
            (name, beside[name] / steps * (1.0 + _SCARCE_MORE * scarce[name])) for name in RESOURCES if beside[name]
        ]
        loss = losses({asking: weight / with_cards for asking, weight in sorted(parts.items())})
        return Table(loss, tuple(per_step), max(scarce.values()))


def _scarcity(asked_per_step: float, have: int, cards: int) -> float:
    """How surely a resource of nodes runs out before the cards do, 0 to 1."""
    if not have or not cards:
        return 0.0
    pressure = asked_per_step / (have / (cards * STEPS))
    return min(max((pressure - _SCARCE_FROM) / _SCARCE_OVER, 0.0), 1.0)


class PackStock:
    """The cards that a cluster has, nothing in use, and what there is beside them."""

    def __init__(self) -> None:
        """Begin with none."""
        self.have: Final = dict.fromkeys(RESOURCES, 0)
        # By size how many cards there are, and those of the node that has most of them.
        self.cards: Final[dict[Size, int]] = {}
        self.samples: Final[dict[Size, tuple[Any, ...]]] = {}
        self._most: Final[dict[Size, int]] = {}

    def add(self, dialect: DialectName, cards: tuple[Any, ...], holes: tuple[Hole, ...]) -> None:
        """Add a node's *cards*, which have these *holes* if nothing is in use."""
        counts: dict[Hashable, int] = {}
        for hole in holes:
            counts[hole.size] = counts.get(hole.size, 0) + hole.cards
        for what, count in counts.items():
            size = (dialect, what)
            self.cards[size] = self.cards.get(size, 0) + count
            if count > self._most.get(size, 0):
                self._most[size], self.samples[size] = count, cards

    def beside(self, allocatable: Mapping[str, int]) -> None:
        """A node has so much of each resource."""
        for name in RESOURCES:
            self.have[name] += allocatable.get(name, 0)


def taken(size: Hashable, before: Iterable[Hole], after: Iterable[Hole]) -> CardsTaken | None:
    """What of cards of *size* is taken between *before* and *after*; None if nothing."""
    most = total = 0
    for old, new in zip(before, after, strict=True):
        if old.size != size:
            continue
        steps = steps_free(old) * old.cards - steps_free(new) * new.cards
        most, total = max(most, min(steps, STEPS)), total + steps
    return CardsTaken(most, total) if most else None


class Wanted(NamedTuple):
    """What a pod wants: *request* of cards of *dialect*, None if it asks for none; *amounts* of its node."""

    dialect: DialectName | None
    request: Any
    amounts: Amounts


class Grounds:
    """How the nodes' cards are left under *tables*, remembered by the version of their states."""

    __slots__ = ("_catalog", "_known", "tables")

    def __init__(self, catalog: Catalog, tables: HoleValues) -> None:
        self._catalog: Final = catalog
        self.tables: Final = tables
        self._known: Final[dict[tuple[NodeName, DialectName], tuple[int, Ground]]] = {}

    def of(self, state: NodeState, dialect: DialectName) -> Ground:
        """How the cards of the node of *state* are left."""
        key = (state.facts.name, dialect)
        known = self._known.get(key)
        if known is None or known[0] != state.version:
            holes = self._catalog.dialects[dialect].holes(state.cards(dialect))
            known = self._known[key] = (state.version, ground(self.tables, dialect, holes))
        return known[1]

    def drop(self, name: NodeName) -> None:
        """Forget a node that is gone."""
        for dialect in self._catalog.dialects:
            self._known.pop((name, dialect), None)


def packed(catalog: Catalog, grounds: Grounds, wanted: Wanted, state: NodeState, placed: Placed[Any]) -> Placed[Any]:
    """What *wanted* gets of the node of *state*, and how good that is; *placed*: what it gets there under binpack."""
    left = _left(state)
    after = _less(left, wanted.amounts)
    name, request = wanted.dialect, wanted.request
    if name is None:
        return _cardless(grounds, state, placed, (left, after))
    dialect = catalog.dialects[name]
    if not dialect.packs(request):
        return placed
    cards, before = state.cards(name), grounds.of(state, name)
    rests = dialect.left(cards, request)
    if rests is not None:
        best = _best_card(rests, before, (left, after))
        one = None if best is None else dialect.alone(cards, request, best[0])
        if best is not None and one is not None:
            return Placed(one.assignment, best[1])
    holes = dialect.holes(dialect.take(cards, placed.assignment))
    lost = ground(grounds.tables, name, holes).lost
    return Placed(placed.assignment, score(before.lost, left, lost, after))


def _best_card(
    rests: Sequence[Hole | None], before: Ground, left: tuple[Mapping[str, int], Mapping[str, int]]
) -> tuple[int, float] | None:
    """The card that a request for one card is best given, and how good that is; None if none takes it.

    Of equal ones the fullest, then the first. *rests*: of each card after it. *left*: what is left of the node's
    resources before and after it.
    """
    best: tuple[float, int, int] | None = None
    tried: set[tuple[int, int, int]] = set()
    for slot, (steps, hole) in enumerate(zip(before.steps, rests, strict=True)):
        if hole is None:
            continue
        remains, table = min(steps_free(hole), steps), before.tables[slot]
        # Most cards of a node are like others.
        alike = (id(table), steps, remains)
        if alike in tried:
            continue
        tried.add(alike)
        found = score(before.lost, left[0], before.lost.with_hole(table, steps, remains), left[1])
        if best is None or (-found, steps, slot) < best:
            best = (-found, steps, slot)
    return None if best is None else (best[2], -best[0])


def _cardless(
    grounds: Grounds,
    state: NodeState,
    placed: Placed[Any],
    left: tuple[Mapping[str, int], Mapping[str, int]],
) -> Placed[Any]:
    """The same for a pod without cards: what it strands of those that could be sold.

    *left*: what is left of the node's resources before and after it.
    """
    lost: Lost | None = None
    for name, cards in state.offers.items():
        if not cards or name in state.closed:
            continue
        found = grounds.of(state, name)
        if found.steps and (lost is None or found.lost.free > lost.free):
            lost = found.lost
    if lost is None:
        return placed if not any(state.offers.values()) else Placed(placed.assignment, 0.0)
    return Placed(placed.assignment, score(lost, left[0], lost, left[1]))


def _left(state: NodeState) -> dict[str, int]:
    allocatable, used = state.facts.allocatable, state.used
    return {name: allocatable[name] - used.get(name, 0) for name in RESOURCES if name in allocatable}


def _less(left: Mapping[str, int], amounts: Amounts) -> dict[str, int]:
    after = dict(left)
    for name, amount in amounts:
        if name in after:
            after[name] -= amount
    return after
