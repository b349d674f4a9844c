"""The best node for a pod's shape without looking at all of them.

`core.placing.indices` keeps the nodes that a shape's static constraints admit, once for all shapes;
`core.placing.orders` tells in which orders, and how they bound a score.

A walk judges nodes exactly, in order of their bounds, and ends when no later one can beat the best found. A node
is judged once for a shape at a version of its state (versions, not states, are remembered: an old state would be kept
alive by every shape that was judged on it). A walk that passes over many, because they refuse or are left out,
remembers how far it came; the next one judges what changed or is left out no more, and goes on from there. Where
other resources of a node count beside its cards, for a pod that prefers some nodes, and under the policy `pack`, no
order bounds the score: then a heap per shape is kept. So is one of the nodes that have images which a pod needs: of
nodes with the best score the first of these is taken. The answer is always that of `core.placing.shape.scan`.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, Final, NamedTuple

from core import names
from core.errors import NodeInvariantError
from core.images import Liking
from core.ledger import Ledger
from core.model import NodeName
from core.placing.holes import Grounds
from core.placing.indices import Index, Indices
from core.placing.orders import UNLIMITED, Bound, Levels, Stand, Step, Windows
from core.placing.score import NodePolicy, Rank
from core.placing.shape import Found, Shape, judged, ranked
from core.port.cards import Placed, Want
from core.port.dialect import AnyJudging
from core.topology.leaning import Leaning

# A walk that passes over more entries than this remembers where it ended.
_LONG_WALK: Final = 48
# How many nodes are judged between two pauses of `Candidates.prepare`: of a pod of 64 containers some 20 ms of work.
_JUDGED_AT_ONCE: Final = 16
# Of shapes, sets of constraints and verdicts those that were not asked for longest are forgotten beyond these numbers.
_SHAPES_MAX: Final = 4096
_INDICES_MAX: Final = 512
# An index of 5,000 nodes with 8 cards, all of them filled differently, takes 17 to 25 MB. With these and the verdicts
# full, all that a controller of 5,000 nodes keeps is to stay under 1 GiB (`scripts/bench refused`).
INDEX_BYTES_MAX: Final = 384 * 2**20
# One of a node takes 120 bytes, about: these 120 MB. Pods that are refused need none to be woken.
VERDICTS_MAX: Final = 1_000_000
# For so many sets of images that pods of one shape need, less one, it is known which nodes have them.
_HEAPS_MAX: Final = 8
# The tie of a rank that bounds: it comes before all of its score.
_UNJUDGED: Final = -(1 << 62)


class _Verdict(NamedTuple):
    """What a shape gets on a node at one version of its state: nothing, or a placement and how good it is."""

    version: int
    placed: Placed[Any] | None
    rank: Rank | None


class Remembered(NamedTuple):
    """How much is kept: bytes of indices, about, shapes, and verdicts on nodes, with their places among liked ones."""

    index_bytes: int
    shapes: int
    verdicts: int


@dataclass(slots=True)
class _Heap:
    """The ranks of verdicts as of *cursor* in the change log, outdated ones among them.

    leant, liked: up to where the logs of what else makes nodes better were read. counted: as how many verdicts it does.
    """

    ranks: list[Rank]
    cursor: int
    leant: int
    liked: int
    counted: int


@dataclass(slots=True)
class _Memory:
    """What is known of one shape: its index and family, what it wants of each kind, the nodes' verdicts.

    steps: how it walks the first *made* orders of its family; heads: the same as the beginning of a heap, by optimum.
    While *ends* is set, every entry up to there (by step) is refused or in *open* as of *cursor* in the change log;
    *open* has those that fit and those that were not asked.
    heaps: None -> all nodes, where no order bounds the score; else those nodes that some images make better.
    Where other pods decide how good a node is, *leaning* says how.
    used: when the shape was last asked about, as `core.placing.indices.Indices.asked` counts.
    """

    shape: Shape
    dialect: AnyJudging
    index: Index
    width: int
    family: Windows | Levels | None = None
    steps: list[Step] = field(default_factory=list)
    heads: list["_Head"] = field(default_factory=list)
    made: int = 0
    wants: dict[int, Want | None] = field(default_factory=dict)
    verdicts: dict[NodeName, _Verdict] = field(default_factory=dict)
    cursor: int = 0
    ends: dict[int, Bound] | None = None
    open: set[NodeName] = field(default_factory=set)
    passed: int = 0
    heaps: dict[Liking | None, _Heap] = field(default_factory=dict)
    leaning: Leaning | None = None
    used: int = 0

    @property
    def size(self) -> int:
        """How many verdicts it has, and places of nodes that some images make better."""
        return len(self.verdicts) + sum([heap.counted for heap in self.heaps.values()])

    def forget_heaps(self, most: int) -> int:
        """Forget the heaps that were not asked for longest, until there are *most*; how many verdicts they count."""
        forgotten = 0
        while len(self.heaps) > most:
            forgotten += self.heaps.pop(next(iter(self.heaps))).counted
        return forgotten

    def begin(self, family: Windows | Levels) -> None:
        """Know nothing of the orders of *family* yet."""
        self.family, self.steps, self.heads, self.made = family, [], [], 0
        self.forget_walk()

    def remember(
        self, reached: dict[int, Bound], left_out: Mapping[int, list[Bound]], fitting: list[NodeName], passed: int
    ) -> None:
        """Know of a walk that went on from *ends*: the last asked and those left out, by step, and who fits."""
        self.open.update(fitting)
        for number, bounds in left_out.items():
            if bounds:
                self.open.update([bound[2] for bound in bounds])
                reached[number] = max(bounds[-1], reached.get(number, bounds[-1]))
        self.ends = {**(self.ends or {}), **reached}
        self.passed += passed

    def forget_walk(self) -> None:
        """Let the next walk begin at the beginning."""
        self.ends, self.open, self.passed = None, set(), 0


# The next bound of a walk, the number of its step, and the walk; None until the walk has begun.
_Head = tuple[Bound, int, Iterator[Bound] | None]


class Candidates:
    """Answers `best` for one ledger under one policy; make a new one when device tables, settings or policy change."""

    def __init__(
        self,
        ledger: Ledger,
        policy: NodePolicy,
        *,
        long_walk: int = _LONG_WALK,
        keep_below: int = 0,
        at_once: int = _JUDGED_AT_ONCE,
        index_bytes_max: int = INDEX_BYTES_MAX,
        verdicts_max: int = VERDICTS_MAX,
    ) -> None:
        self._ledger: Final = ledger
        self._policy = policy
        self._grounds = self._new_grounds()
        self._at_once: Final = at_once
        # A walk of more than *long_walk* refusals is remembered; the memory is given up where judging what changed
        # would cost more than walking again, but not for fewer than *keep_below* changes (tests).
        self._long_walk: Final = long_walk
        self._keep_below: Final = keep_below
        self._indices: Final = Indices(ledger, policy)
        self._memories: dict[Shape, _Memory] = {}
        self._index_bytes_max: Final = index_bytes_max
        self._verdicts_max: Final = verdicts_max
        self._verdicts = 0
        self.judged = 0

    @property
    def ledger(self) -> Ledger:
        """The ledger that it answers for."""
        return self._ledger

    @property
    def remembered(self) -> Remembered:
        """What is kept of all that was asked."""
        return Remembered(self._indices.size_bytes, len(self._memories), self._verdicts)

    # ------------------------------------------------------------------ asking

    def is_prepared(self, shape: Shape) -> bool:
        """Whether `best` answers *shape* without ordering or judging much of the cluster first."""
        shape = shape.alone
        ordered = self._indices.is_prepared(shape.constraints, shape.dialect, self._asked_width(shape))
        return ordered and shape in self._memories

    def prepare(self, shape: Shape) -> Iterator[None]:
        """Order and judge the cluster for *shape* in slices of a few milliseconds; between them anything may happen."""
        shape = shape.alone
        yield from self._indices.prepare(shape.constraints, shape.dialect, self._asked_width(shape))
        if shape in self._memories:
            return
        judge_some = self._walk_on if self._is_bounded(shape) else self._judge_any
        while judge_some(shape, self.judged + self._at_once):
            yield

    def _judge_any(self, shape: Shape, judged_max: int) -> bool:
        """Judge nodes for *shape* until *judged_max* are judged; False if none is left."""
        memory = self._memory(shape)
        for name in memory.index.stands:
            if self.judged >= judged_max:
                return True
            self._rank(memory, name)
        return False

    def _walk_on(self, shape: Shape, judged_max: int) -> bool:
        """The same in the order of a walk, which may end long before; there are shapes that most nodes refuse."""
        self._best_of_walk(self._memory(shape), frozenset(), judged_max)
        return self.judged >= judged_max

    def _memory(self, shape: Shape) -> _Memory:
        """What is known of *shape*, as of now."""
        self._refresh()
        if self._verdicts > self._verdicts_max:
            self._forget_verdicts(shape)
        memory = self._memories.get(shape) or self._new_memory(shape)
        self._indices.use(memory.index)
        memory.used = self._indices.asked
        return memory

    def best(
        self, shape: Shape, passed_over: Set[NodeName] = frozenset(), liking: Liking | None = None
    ) -> Found | None:
        """The best node for *shape* now, without those in *passed_over*; None if no node fits.

        liking: what the images that are needed make of nodes that are as good.
        """
        if shape.peers is not None:
            passed_over = self._ledger.topology.passed_over(shape.peers, passed_over)
        memory = self._memory(shape.alone)
        best_of = self._best_of_walk if self._is_bounded(shape) else self._best_of_heap
        rank = best_of(memory, passed_over)
        if rank is None:
            return None
        if liking is not None:
            rank = self._best_liked(memory, passed_over, rank, liking)
        placed = memory.verdicts[rank.name].placed
        if placed is None:
            raise NodeInvariantError(rank.name, "it was ranked for a pod that it refuses")
        return Found(rank.name, placed, rank)

    def size(self, shape: Shape) -> tuple[float, ...]:
        """How much *shape* takes, to compare shapes: the part of a card times cards, where that is most; then amounts.

        0 of a card where no card could serve it.
        """
        dialect = self._ledger.catalog.judging(shape.dialect)
        wants = (dialect.want(shape.request, kind, self._policy.cards) for kind in self._indices.kinds.kinds)
        parts = [want.free / max(want.total, 1) for want in wants if want is not None]
        amounts = dict(shape.amounts)
        of_cards = max(parts, default=0.0) * dialect.width(shape.request)
        return of_cards, amounts.get(names.CPU, 0), amounts.get(names.MEMORY, 0)

    def choice(self, shape: Shape) -> int:
        """How many nodes *shape* may choose from, whatever is free on them."""
        return len(self._memory(shape.alone).index.stands)

    def _best_of_walk(self, memory: _Memory, passed_over: Set[NodeName], judged_max: float = UNLIMITED) -> Rank | None:
        """The best rank, found in the order of the bounds.

        Once *judged_max* nodes are judged it may not be that of all: the next walk goes on from there.
        """
        # An order stands in the heap by the best that it could hold, until that is better than all that was found.
        heap = self._heads(memory)
        reopened = self._reopened(memory, passed_over)
        best = self._best_among(memory, reopened or ())
        ends = (memory.ends or {}) if reopened is not None else {}
        steps, labels = memory.steps, self._indices.labels
        verdicts, states = memory.verdicts, self._ledger.states
        fitting: list[NodeName] = []
        reached: dict[int, Bound] = {}
        left_out: dict[int, list[Bound]] = {}
        passed = 0
        while heap and self.judged < judged_max:
            bound, number, walk = heap[0]
            if best is not None and bound > best:
                break
            if walk is None:
                walk = steps[number].walk(labels, passed_over, ends.get(number), left_out.setdefault(number, []))
            else:
                name = bound[2]
                reached[number] = bound
                verdict = verdicts.get(name)
                if verdict is None or verdict.version != states[name].version:
                    verdict = self._judge(memory, name)
                if verdict.rank is None:
                    passed += 1
                else:
                    fitting.append(name)
                    if best is None or verdict.rank < best:
                        best = verdict.rank
                    if best <= bound:
                        break
            following = next(walk, None)
            if following is None:
                heappop(heap)
            else:
                heapreplace(heap, (following, number, walk))
        passed += sum(map(len, left_out.values()))
        is_long = passed > self._long_walk or self.judged >= judged_max
        if reopened is not None or is_long:
            if reopened is None:
                memory.forget_walk()
            memory.remember(reached, left_out, fitting, passed)
            memory.cursor = self._ledger.cursor
        return best

    def _reopened(self, memory: _Memory, passed_over: Set[NodeName]) -> Set[NodeName] | None:
        """What a remembered walk left open and what changed since; None without one, or if to walk again is cheaper.

        If so for what changed, the memory is given up; if for what was left out and is not now, another walk, as long,
        may take its place.
        """
        if memory.ends is None:
            return None
        changed = self._ledger.changes_since(memory.cursor)
        if changed is None or 8 * len(changed) > max(memory.passed, self._keep_below):
            memory.forget_walk()
            return None
        reopened = memory.open.union(changed).difference(passed_over)
        if 8 * len(reopened) > max(memory.passed, self._keep_below):
            return None
        memory.open.update(changed)
        return reopened

    def _best_among(self, memory: _Memory, names: Iterable[NodeName]) -> Rank | None:
        """The best rank of *names*; those that refuse are open no more."""
        best: Rank | None = None
        for name in names:
            rank = self._rank(memory, name)
            if rank is None:
                memory.open.discard(name)
            elif best is None or rank < best:
                best = rank
        return best

    def _best_liked(self, memory: _Memory, passed_over: Set[NodeName], best: Rank, liking: Liking) -> Rank:
        """Of the nodes with the score of *best*, the best of all, the one that images make the best."""
        level = liking.level(best.name)
        if level < liking.top:
            liked = self._best_of_heap(memory, passed_over, liking, best.minus_score)
            if liked is not None and liked.minus_score == best.minus_score:
                return liked
        return best.at(level)

    def _best_of_heap(
        self,
        memory: _Memory,
        passed_over: Set[NodeName],
        liking: Liking | None = None,
        worst: float = UNLIMITED,
    ) -> Rank | None:
        """The best rank where no order bounds the score: every node is judged when it changed, and kept in a heap.

        With *liking* of those nodes alone, down to the score *worst*: there a node stands by the best that it could be
        until it comes first.
        """
        heap = self._heap(memory, liking)
        aside: list[Rank] = []
        best: Rank | None = None
        while heap and best is None and heap[0].minus_score <= worst:
            rank = heappop(heap)
            now = self._rank_at(memory, rank.name, liking)
            if rank.tie_ppm == _UNJUDGED:
                if now is not None:
                    heappush(heap, now)
            elif rank == now and (not aside or aside[-1] != rank):
                aside.append(rank)
                best = None if rank.name in passed_over else rank
        for rank in aside:
            heappush(heap, rank)
        return best

    def _heap(self, memory: _Memory, liking: Liking | None) -> list[Rank]:
        """The heap of all nodes, or of those that are liked, with what changed taken in."""
        if self._follow_pods(memory):
            self._verdicts -= memory.forget_heaps(0)
        known = memory.heaps.pop(liking, None)
        changed = None if known is None else self._moved(memory, known, liking)
        heap = [] if known is None or changed is None else known.ranks
        stands = memory.index.stands
        if liking is not None and len(heap) > 4 * len(stands) + 64:
            heap, changed = [], None
        for name in (stands if liking is None else liking.nodes()) if changed is None else set(changed):
            rank = self._rank(memory, name) if liking is None else self._optimum(memory, name)
            if rank is not None:
                heappush(heap, rank)
        if liking is None and len(heap) > 4 * len(stands) + 64:
            heap = list({rank for rank in heap if rank == self._rank(memory, rank.name)})
            heapify(heap)
        self._keep_heap(memory, heap, liking, 0 if known is None else known.counted)
        return heap

    def _optimum(self, memory: _Memory, name: NodeName) -> Rank | None:
        """A rank that *name* as it is now does not surpass, without judging it; None if it takes none for sure."""
        stand = memory.index.stands.get(name)
        if stand is None or not self._may_fit(memory, stand):
            return None
        return Rank(self._least(memory, stand), _UNJUDGED, name)

    def _least(self, memory: _Memory, stand: Stand) -> float:
        """The negated score that a node with *stand* does not surpass; by the figures of `core.placing.orders`."""
        width, weight = memory.width, self._policy.weight
        if not self._is_bounded(memory.shape) or (width > 1 and len(stand.several) > 1):
            return -UNLIMITED
        if not width:
            idle = (1 << stand.idle.bit_length()) - 1
            return -memory.dialect.idle_score(memory.shape.request, idle, self._policy.cards) * weight
        least = UNLIMITED
        for kind, cards in (stand.one if width == 1 else stand.several).items():
            want = self._want(memory, kind)
            fitting = [] if want is None else [free for free, _ in cards if free >= want.free][:width]
            if want is not None and len(fitting) == width:
                least = min(least, -(100.0 * (want.numerator - sum(fitting)) / want.total) * weight)
        return least

    def _follow_pods(self, memory: _Memory) -> bool:
        """Read what other pods make of nodes for who minds them; whether what was read before says nothing of it."""
        preferred = memory.shape.preferred
        if preferred is None or not preferred.minds_pods:
            return False
        leaning, before = self._ledger.topology.leaning(preferred), memory.leaning
        memory.leaning = leaning
        return leaning is not before

    def _moved(self, memory: _Memory, known: _Heap, liking: Liking | None) -> list[NodeName] | None:
        """The nodes that may have come to another place in a heap; None if all may."""
        changed = self._ledger.changes_since(known.cursor)
        leant = [] if memory.leaning is None else memory.leaning.changes_since(known.leant)
        liked = [] if liking is None else liking.changes_since(known.liked)
        return None if changed is None or leant is None or liked is None else [*changed, *leant, *liked]

    def _keep_heap(self, memory: _Memory, heap: list[Rank], liking: Liking | None, before: int) -> None:
        """Keep *heap* as of now; *before*: as how many verdicts it counted."""
        leant = 0 if memory.leaning is None else memory.leaning.cursor
        liked, counted = (0, 0) if liking is None else (liking.cursor, len(heap))
        memory.heaps[liking] = _Heap(heap, self._ledger.cursor, leant, liked, counted)
        self._verdicts += counted - before - memory.forget_heaps(_HEAPS_MAX)

    def _rank_at(self, memory: _Memory, name: NodeName, liking: Liking | None) -> Rank | None:
        """The same as `_rank`; of nodes that are not liked None, if some are."""
        if liking is None:
            return self._rank(memory, name)
        level = liking.level(name)
        rank = self._rank(memory, name) if level else None
        return None if rank is None else rank.at(level)

    def _rank(self, memory: _Memory, name: NodeName) -> Rank | None:
        """How good *name* is as it is now; None if it is not admitted, gone, or refuses."""
        stand = memory.index.stands.get(name)
        if stand is None or not self._may_fit(memory, stand):
            return None
        verdict = memory.verdicts.get(name)
        if verdict is None or verdict.version != self._ledger.states[name].version:
            verdict = self._judge(memory, name)
        rank = verdict.rank
        if rank is None or memory.leaning is None:
            return rank
        points = memory.leaning.points(self._policy.others, self._ledger.states[name].facts.labels)
        return rank._replace(minus_score=rank.minus_score - points)

    def _judge(self, memory: _Memory, name: NodeName) -> _Verdict:
        state, shape = self._ledger.states[name], memory.shape
        self.judged += 1
        placed = judged(self._ledger, self._policy, shape, state, self._grounds)
        rank = None
        if placed is not None:
            rank = ranked(self._policy, shape, state, placed, memory.index.stands[name].tie)
        verdict = _Verdict(state.version, placed, rank)
        self._verdicts += name not in memory.verdicts
        memory.verdicts[name] = verdict
        return verdict

    def _may_fit(self, memory: _Memory, stand: Stand) -> bool:
        for kind, cards in stand.several.items():
            want = self._want(memory, kind)
            if want is not None and any(free >= want.free and spare >= want.spare for free, spare in cards):
                return True
        return False

    def _want(self, memory: _Memory, kind: int) -> Want | None:
        wants = memory.wants
        if kind not in wants:
            wants[kind] = memory.dialect.want(memory.shape.request, self._indices.kinds.kinds[kind], self._policy.cards)
        return wants[kind]

    # ------------------------------------------------------------------ walking

    def _heads(self, memory: _Memory) -> list[_Head]:
        """A heap of all orders in which *memory*'s shape may find a node, none of them begun."""
        family = self._indices.family(memory.index, memory.width)
        if memory.family is not family:
            memory.begin(family)
        if memory.made < len(family.orders):
            first = len(memory.steps)
            memory.steps += self._steps(memory, family)
            memory.made = len(family.orders)
            for number, step in enumerate(memory.steps[first:], start=first):
                memory.heads.append(((step.optimum, -UNLIMITED, NodeName(""), 0, 0), number, None))
            memory.heads.sort(key=lambda head: head[:2])
        # Sorted, what is left is a heap as it stands.
        return [head for head in memory.heads if memory.steps[head[1]].order.sums]

    def _steps(self, memory: _Memory, family: Windows | Levels) -> Iterator[Step]:
        policy, dialect, request = self._policy, memory.dialect, memory.shape.request

        def wants(kind: int) -> Want | None:
            return self._want(memory, kind)

        if isinstance(family, Windows):
            return family.steps(memory.made, wants, policy.weight)
        return family.steps(
            memory.made, wants, lambda idle: -dialect.idle_score(request, idle, policy.cards) * policy.weight
        )

    def _asked_width(self, shape: Shape) -> int | None:
        """Which family *shape* is answered from, None if from its own heap."""
        return self._width(shape) if self._is_bounded(shape) else None

    def _is_bounded(self, shape: Shape) -> bool:
        """Whether what is free on cards bounds how good a node is: a taint makes it worse, what is preferred better."""
        return self._policy.is_bounded and shape.preferred is None

    def _width(self, shape: Shape) -> int:
        """How many cards *shape* asks where free amounts bound the score, else 0."""
        dialect = self._ledger.catalog.judging(shape.dialect)
        by_free = self._policy.weight and dialect.bounded(shape.request, self._policy.cards)
        return dialect.width(shape.request) if by_free else 0

    # ------------------------------------------------------------------ keeping

    def judge_anew(self, policy: NodePolicy) -> None:
        """Forget all verdicts, which *policy*, the same but for its tables, may not give."""
        self._policy = policy
        self._grounds = self._new_grounds()
        self._memories.clear()
        self._verdicts = 0

    def _new_grounds(self) -> Grounds | None:
        tables = self._policy.tables
        return None if tables is None else Grounds(self._ledger.catalog, tables)

    def _refresh(self) -> None:
        self._indices.refresh()
        while self._indices.gone:
            name = self._indices.gone.pop()
            if self._grounds is not None:
                self._grounds.drop(name)
            for memory in self._memories.values():
                self._verdicts -= memory.verdicts.pop(name, None) is not None
                memory.open.discard(name)

    def _new_memory(self, shape: Shape) -> _Memory:
        index = self._indices.get(shape.constraints, shape.dialect)
        self._indices.use(index)
        while len(self._indices) > 1 and (
            len(self._indices) > _INDICES_MAX or self._indices.size_bytes > self._index_bytes_max
        ):
            dropped = self._indices.drop_oldest()
            for other in [one for one, memory in self._memories.items() if memory.index is dropped]:
                self._forget(other)
        if len(self._memories) >= _SHAPES_MAX:
            self._forget(self._oldest())
        dialect = self._ledger.catalog.judging(shape.dialect)
        memory = self._memories[shape] = _Memory(shape, dialect, index, self._width(shape))
        return memory

    def _forget_verdicts(self, shape: Shape) -> None:
        """Forget shapes, *shape* aside, until an eighth of what may be remembered is free."""
        while self._verdicts > self._verdicts_max // 8 * 7:
            oldest = self._oldest()
            if oldest == shape:
                return
            self._forget(oldest)

    def _oldest(self) -> Shape:
        return min(self._memories, key=lambda one: self._memories[one].used)

    def _forget(self, shape: Shape) -> None:
        self._verdicts -= self._memories.pop(shape).size
