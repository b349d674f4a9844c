"""The best node for a pod's shape without looking at all of them.

Nodes that the static constraints of a shape admit are kept in one `_Index` per set of constraints and dialect,
shared by all shapes with that set. What the ledger's change log names is put in order again when a shape next asks,
once for all shapes. `core.orders` tells which orders there are, and how they bound a score.

A walk judges nodes exactly, in order of their bounds, and ends when no later one can beat the best found. A node
is judged once for a shape at a version of its state (versions, not states, are remembered: an old state would be kept
alive by every shape that was judged on it). A walk that passes over many remembers how
far it came; the next one judges what changed since, and goes on from there. Where other resources of a node count
beside its cards, no order bounds the score: then a heap per shape is kept. The answer is always that of `scan`.
"""

from collections.abc import Hashable, Iterator, Set
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, NamedTuple

from core import nodefit
from core.errors import InvariantError
from core.ledger import Ledger, NodeState
from core.model import NodeConstraints, NodeName
from core.nodefit import Amounts, NodeFacts
from core.orders import Bound, Labels, Levels, Place, Walk, Windows
from core.port import Dialect, NodeRoom, Placed, Want
from core.score import NodePolicy, Rank, resource_score
from core.settings import DialectName, Policy

# A walk that passes over more entries than this remembers where it ended.
_LONG_WALK: Final = 48
# An ask brings this many nodes up to date for each width that has more than so many to catch up with.
_CATCH_UP: Final = 3
_CATCH_UP_FROM: Final = 32
# How many nodes are ordered between two pauses of `Candidates.prepare`.
_SLICE: Final = 200
# Shapes and sets of constraints not asked for longest are forgotten beyond these numbers.
_SHAPES_MAX: Final = 4096
_INDICES_MAX: Final = 512


class Shape:
    """All of a pod that decides where it fits; equal shapes share their verdicts. The hash is made once."""

    __slots__ = ("_hash", "amounts", "constraints", "dialect", "request")

    def __init__(
        self, *, dialect: DialectName, request: Hashable, amounts: Amounts, constraints: NodeConstraints
    ) -> None:
        self.dialect: Final = dialect
        self.request: Final = request
        self.amounts: Final = amounts
        self.constraints: Final = constraints
        self._hash = hash((dialect, request, amounts, constraints))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Shape)
            and self._hash == other._hash
            and self.dialect == other.dialect
            and self.request == other.request
            and self.amounts == other.amounts
            and self.constraints == other.constraints
        )


@dataclass(frozen=True, slots=True)
class Found:
    """The best node, what would be placed there, and how good that is."""

    node: NodeName
    placed: Placed
    rank: Rank


def judge(shape: Shape, state: NodeState, dialect: Dialect, policy: Policy) -> Placed | None:
    """What *shape* gets on a node whose static rules admit it, or None; the one exact verdict."""
    cards = state.offers.get(shape.dialect)
    if not cards or (state.closed and shape.dialect in state.closed):
        return None
    if not nodefit.has_room(shape.amounts, state.facts.allocatable, state.used):
        return None
    return dialect.place(cards, shape.request, policy)


def scan(ledger: Ledger, policy: NodePolicy, shape: Shape, passed_over: Set[NodeName] = frozenset()) -> Found | None:
    """The best node by looking at every one; what `Candidates.best` always equals. For forks and tests."""
    dialect = ledger.catalog.dialects[shape.dialect]
    best: Found | None = None
    for name, state in ledger.states.items():
        if name in passed_over or nodefit.admits(shape.constraints, state.facts) is not None:
            continue
        placed = judge(shape, state, dialect, policy.cards)
        if placed is None:
            continue
        used_ppm = dialect.room(state.offers[shape.dialect]).used_ppm
        rank = _ranked(policy, shape, state, placed, used_ppm)
        if best is None or rank < best.rank:
            best = Found(name, placed, rank)
    return best


def _ranked(policy: NodePolicy, shape: Shape, state: NodeState, placed: Placed, used_ppm: int) -> Rank:
    """Where the node stands if it takes *placed*; with weights for its other resources, they count too."""
    rank = policy.rank(placed.score, used_ppm, state.facts.name)
    if not policy.others:
        return rank
    more = resource_score(policy.others, shape.amounts, state.facts.allocatable, state.used)
    return rank._replace(minus_score=rank.minus_score - more)


@dataclass(slots=True)
class _Index:
    """The admitted nodes of one set of constraints in one dialect, in the orders that shapes have asked for.

    families: width -> windows of so many cards; 0 -> levels. stale: width -> nodes changed since it was last asked.
    admitted: the nodes that the constraints let in, until the index is in use.
    """

    constraints: NodeConstraints
    dialect: DialectName
    rooms: dict[NodeName, NodeRoom] = field(default_factory=dict)
    families: dict[int, Windows | Levels] = field(default_factory=dict)
    stale: dict[int, dict[NodeName, None]] = field(default_factory=dict)
    admitted: set[NodeName] = field(default_factory=set)


class _Verdict(NamedTuple):
    """What a shape gets on a node at one version of its state: nothing, or a placement and how good it is."""

    version: int
    placed: Placed | None
    rank: Rank | None


@dataclass(slots=True)
class _Memory:
    """What is known of one shape: the nodes' verdicts, what it wants of each kind, how far a long walk came.

    While *ends* is set, every entry up to there is refused or in *open* as of *cursor* in the change log. Where no
    order bounds the score, *heap* holds the ranks of all verdicts as of *cursor*, outdated ones among them.
    """

    verdicts: dict[NodeName, _Verdict] = field(default_factory=dict)
    wants: dict[Hashable, Want | None] = field(default_factory=dict)
    cursor: int = 0
    ends: dict[Place, int] | None = None
    open: set[NodeName] = field(default_factory=set)
    passed: int = 0
    heap: list[Rank] | None = None

    def forget_walk(self) -> None:
        """Let the next walk begin at the beginning."""
        self.ends, self.open, self.passed = None, set(), 0


@dataclass(slots=True)
class _Question:
    """One asking: the shape, and what belongs to it."""

    shape: Shape
    dialect: Dialect
    index: _Index
    memory: _Memory
    passed_over: Set[NodeName]


class Candidates:
    """Answers `best` for one ledger under one policy; make a new one when tables, settings or policy change."""

    def __init__(self, ledger: Ledger, policy: NodePolicy, *, long_walk: int = _LONG_WALK, keep_below: int = 0) -> None:
        self._ledger: Final = ledger
        self._policy: Final = policy
        # A walk of more than *long_walk* refusals is remembered; the memory is given up where judging what changed
        # would cost more than walking again, but not for fewer than *keep_below* changes (tests).
        self._long_walk: Final = long_walk
        self._keep_below: Final = keep_below
        self._binpack: Final = policy.cards is Policy.BINPACK
        self._cursor = ledger.cursor
        self._indices: dict[tuple[NodeConstraints, DialectName], _Index] = {}
        self._of_node: dict[NodeName, list[_Index]] = {}
        self._facts: dict[NodeName, NodeFacts] = {n: s.facts for n, s in ledger.states.items()}
        self._labels = Labels(ledger.states)
        self._memories: dict[Shape, _Memory] = {}
        self.judged = 0

    @property
    def ledger(self) -> Ledger:
        """The ledger that it answers for."""
        return self._ledger

    # ------------------------------------------------------------------ asking

    def is_prepared(self, shape: Shape) -> bool:
        """Whether `best` answers *shape* without ordering the whole cluster first."""
        index = self._indices.get((shape.constraints, shape.dialect))
        if index is None:
            return False
        width = self._width(shape)
        return bool(self._policy.others) or (width in index.families and len(index.stale[width]) < _SLICE)

    def prepare(self, shape: Shape) -> Iterator[None]:
        """Order the cluster for *shape* in slices of a few milliseconds; between them anything may happen."""
        ledger = self._ledger
        key = (shape.constraints, shape.dialect)
        if key not in self._indices:
            index = _Index(shape.constraints, shape.dialect)
            cursor = ledger.cursor
            for at, name in enumerate(list(ledger.states), start=1):
                self._take_in(index, name)
                if at % _SLICE == 0:
                    yield
            for name in set(ledger.changes_since(cursor) or ledger.states):
                self._take_in(index, name)
            self._register(key, index)
        index = self._indices[key]
        width = self._width(shape)
        if self._policy.others or width in index.families:
            return
        family = self._new_family(width)
        waiting = dict.fromkeys(index.rooms)
        index.families[width], index.stale[width] = family, waiting
        while index.stale.get(width) is waiting and len(waiting) >= _SLICE:
            for _ in range(_SLICE):
                self._put(index, family, waiting.popitem()[0])
            yield

    def best(self, shape: Shape, passed_over: Set[NodeName] = frozenset()) -> Found | None:
        """The best node for *shape* now, without those in *passed_over*; None if no node fits."""
        self._refresh()
        dialect = self._ledger.catalog.dialects[shape.dialect]
        asked = _Question(shape, dialect, self._index(shape), self._memory(shape), passed_over)
        rank = self._best_of_heap(asked) if self._policy.others else self._best_of_walk(asked)
        if rank is None:
            return None
        placed = asked.memory.verdicts[rank.name].placed
        if placed is None:
            raise InvariantError(f"{rank.name} was ranked for a pod that it refused")
        return Found(rank.name, placed, rank)

    def _best_of_walk(self, asked: _Question) -> Rank | None:
        """The best rank, found in the order of the bounds."""
        memory, passed_over = asked.memory, asked.passed_over
        best = self._best_reopened(asked) if memory.ends is not None else None
        verdicts, states = memory.verdicts, self._ledger.states
        fitting: list[NodeName] = []
        reached: dict[Place, int] = {}
        passed = 0
        heap = _heads(self._walks(asked))
        while heap:
            bound, number, walk = heap[0]
            if best is not None and bound > best:
                break
            name = bound[2]
            if name not in passed_over:
                verdict = verdicts.get(name)
                if verdict is None or verdict.version != states[name].version:
                    verdict = self._judge(asked, name)
                if verdict.rank is None:
                    passed += 1
                else:
                    fitting.append(name)
                    if best is None or verdict.rank < best:
                        best = verdict.rank
            reached[walk.place] = walk.key
            following = walk.advance()
            if following is None:
                heappop(heap)
            else:
                heapreplace(heap, (following, number, walk))
        # A walk that left nodes out cannot say of them that they refused.
        if not passed_over and (memory.ends is not None or passed > self._long_walk):
            memory.ends = {**(memory.ends or {}), **reached}
            memory.open.update(fitting)
            memory.passed += passed
            memory.cursor = self._ledger.cursor
        return best

    def _best_reopened(self, asked: _Question) -> Rank | None:
        """The best of what a remembered walk left open and of what changed since; may give the memory up."""
        memory = asked.memory
        changed = self._ledger.changes_since(memory.cursor)
        if changed is None or 8 * len(changed) > max(memory.passed, self._keep_below):
            memory.forget_walk()
            return None
        best: Rank | None = None
        for name in memory.open.union(changed):
            rank = self._rank(asked, name)
            if rank is None:
                memory.open.discard(name)
                continue
            memory.open.add(name)
            if name not in asked.passed_over and (best is None or rank < best):
                best = rank
        return best

    def _best_of_heap(self, asked: _Question) -> Rank | None:
        """The best rank where no order bounds the score: every node is judged when it changed, and kept in a heap."""
        memory = asked.memory
        changed = self._ledger.changes_since(memory.cursor) if memory.heap is not None else None
        heap = memory.heap if changed is not None and memory.heap is not None else []
        for name in asked.index.rooms if changed is None else set(changed):
            rank = self._rank(asked, name)
            if rank is not None:
                heappush(heap, rank)
        if len(heap) > 4 * len(asked.index.rooms) + 64:
            heap = list({rank for rank in heap if rank == self._rank(asked, rank.name)})
            heapify(heap)
        memory.heap, memory.cursor = heap, self._ledger.cursor
        aside: list[Rank] = []
        best: Rank | None = None
        while heap and best is None:
            rank = heappop(heap)
            if rank == self._rank(asked, rank.name) and (not aside or aside[-1] != rank):
                aside.append(rank)
                best = None if rank.name in asked.passed_over else rank
        for rank in aside:
            heappush(heap, rank)
        return best

    def _rank(self, asked: _Question, name: NodeName) -> Rank | None:
        """How good *name* is as it is now; None if it is not admitted, gone, or refuses."""
        room = asked.index.rooms.get(name)
        if room is None or not self._may_fit(asked, room):
            return None
        verdict = asked.memory.verdicts.get(name)
        if verdict is None or verdict.version != self._ledger.states[name].version:
            verdict = self._judge(asked, name)
        return verdict.rank

    def _judge(self, asked: _Question, name: NodeName) -> _Verdict:
        state, shape = self._ledger.states[name], asked.shape
        self.judged += 1
        placed = judge(shape, state, asked.dialect, self._policy.cards)
        rank = None
        if placed is not None:
            rank = _ranked(self._policy, shape, state, placed, asked.index.rooms[name].used_ppm)
        asked.memory.verdicts[name] = verdict = _Verdict(state.version, placed, rank)
        return verdict

    def _may_fit(self, asked: _Question, room: NodeRoom) -> bool:
        for one in room.rooms:
            want = self._want(asked, one.kind)
            if want is not None and one.free >= want.free and one.spare >= want.spare:
                return True
        return False

    def _want(self, asked: _Question, kind: Hashable) -> Want | None:
        wants = asked.memory.wants
        if kind not in wants:
            wants[kind] = asked.dialect.want(asked.shape.request, kind, self._policy.cards)
        return wants[kind]

    # ------------------------------------------------------------------ walking

    def _walks(self, asked: _Question) -> Iterator[Walk]:
        weight, cards = self._policy.weight, self._policy.cards
        dialect, request = asked.dialect, asked.shape.request
        family = self._family(asked.index, self._width(asked.shape))
        ends = asked.memory.ends or {}

        def wants(kind: Hashable) -> Want | None:
            return self._want(asked, kind)

        if isinstance(family, Windows):
            return family.walks(wants, ends, weight)
        return family.walks(wants, ends, lambda idle: -dialect.idle_score(request, idle, cards) * weight)

    def _width(self, shape: Shape) -> int:
        """Which family *shape* is answered from: its number of cards where free amounts bound the score, else 0."""
        dialect = self._ledger.catalog.dialects[shape.dialect]
        by_free = self._policy.weight and dialect.bounded(shape.request, self._policy.cards)
        return dialect.width(shape.request) if by_free else 0

    def _new_family(self, width: int) -> Windows | Levels:
        return Windows(width, self._labels) if width else Levels(self._labels)

    def _family(self, index: _Index, width: int) -> Windows | Levels:
        """The orders for *width* (0: levels), made when first asked for and brought up to date when asked again."""
        family = index.families.get(width)
        if family is None:
            family = index.families[width] = self._new_family(width)
            index.stale[width] = dict.fromkeys(index.rooms)
        stale = index.stale[width]
        while stale:
            self._put(index, family, stale.popitem()[0])
        # What other widths have to catch up with is done little by little, so that no single ask pays for all of it.
        for other, left in index.stale.items():
            if len(left) > _CATCH_UP_FROM:
                for _ in range(_CATCH_UP):
                    self._put(index, index.families[other], left.popitem()[0])
        return family

    def _put(self, index: _Index, family: Windows | Levels, name: NodeName) -> None:
        room = index.rooms.get(name)
        if room is None:
            family.drop(name)
        else:
            family.put(name, room, -room.used_ppm if self._binpack else room.used_ppm)

    # ------------------------------------------------------------------ keeping

    def _refresh(self) -> None:
        """Bring every index up to date with the ledger's change log."""
        ledger = self._ledger
        if self._cursor == ledger.cursor:
            return
        changed = ledger.changes_since(self._cursor)
        self._cursor = ledger.cursor
        for name in dict.fromkeys(changed) if changed is not None else {**self._facts, **ledger.states}:
            state = ledger.states.get(name)
            if state is None:
                self._forget(name)
                continue
            if not self._labels.add(name):
                self._relabel()
            if self._facts.get(name) is not state.facts:
                self._facts[name] = state.facts
                self._of_node[name] = []
                for index in self._indices.values():
                    self._admit(index, name, state)
            rooms: dict[DialectName, NodeRoom | None] = {}
            for index in self._of_node.get(name, ()):
                if index.dialect not in rooms:
                    rooms[index.dialect] = self._room(index.dialect, state)
                self._enter(index, name, rooms[index.dialect])

    def _relabel(self) -> None:
        """Number all names anew, and order everything anew when next asked; memories of long walks end."""
        self._labels = Labels(self._ledger.states)
        for index in self._indices.values():
            index.families.clear()
            index.stale.clear()
        for memory in self._memories.values():
            memory.forget_walk()

    def _forget(self, name: NodeName) -> None:
        for index in self._of_node.pop(name, ()):
            self._leave(index, name)
        self._facts.pop(name, None)
        for memory in self._memories.values():
            memory.verdicts.pop(name, None)
            memory.open.discard(name)

    def _admit(self, index: _Index, name: NodeName, state: NodeState) -> None:
        if nodefit.admits(index.constraints, state.facts) is None:
            self._of_node.setdefault(name, []).append(index)
        else:
            self._leave(index, name)

    def _index(self, shape: Shape) -> _Index:
        key = (shape.constraints, shape.dialect)
        index = self._indices.get(key)
        if index is None:
            index = _Index(shape.constraints, shape.dialect)
            for name in self._ledger.states:
                self._take_in(index, name)
            self._register(key, index)
        return index

    def _take_in(self, index: _Index, name: NodeName) -> None:
        """Let an index that is not in use yet know *name* as it is."""
        state = self._ledger.states.get(name)
        index.rooms.pop(name, None)
        index.admitted.discard(name)
        if state is not None and nodefit.admits(index.constraints, state.facts) is None:
            index.admitted.add(name)
            room = self._room(index.dialect, state)
            if room is not None:
                index.rooms[name] = room

    def _register(self, key: tuple[NodeConstraints, DialectName], index: _Index) -> None:
        """Put an index that is up to date into use, unless there is one already."""
        self._refresh()
        if key in self._indices:
            return
        if len(self._indices) >= _INDICES_MAX:
            self._drop_oldest_index()
        self._indices[key] = index
        for name in index.admitted:
            self._of_node.setdefault(name, []).append(index)
        index.admitted.clear()

    def _drop_oldest_index(self) -> None:
        dropped = self._indices.pop(next(iter(self._indices)))
        for indices in self._of_node.values():
            if dropped in indices:
                indices.remove(dropped)
        gone = [s for s in self._memories if (s.constraints, s.dialect) == (dropped.constraints, dropped.dialect)]
        for shape in gone:
            del self._memories[shape]

    def _memory(self, shape: Shape) -> _Memory:
        memory = self._memories.get(shape)
        if memory is None:
            if len(self._memories) >= _SHAPES_MAX:
                del self._memories[next(iter(self._memories))]
            memory = self._memories[shape] = _Memory()
        return memory

    def _room(self, dialect: DialectName, state: NodeState) -> NodeRoom | None:
        cards = state.offers.get(dialect)
        if not cards or dialect in state.closed:
            return None
        return self._ledger.catalog.dialects[dialect].room(cards)

    def _leave(self, index: _Index, name: NodeName) -> None:
        if index.rooms.pop(name, None) is not None:
            for stale in index.stale.values():
                stale[name] = None

    def _enter(self, index: _Index, name: NodeName, room: NodeRoom | None) -> None:
        """Take *name* as it is now; a node without room in this dialect stands nowhere."""
        if room is None:
            self._leave(index, name)
            return
        index.rooms[name] = room
        for stale in index.stale.values():
            stale[name] = None


def _heads(walks: Iterator[Walk]) -> list[tuple[Bound, int, Walk]]:
    """A heap of walks by their first bounds; the number keeps walks themselves from being compared."""
    heap = []
    for number, walk in enumerate(walks):
        first = walk.advance()
        if first is not None:
            heap.append((first, number, walk))
    heapify(heap)
    return heap
