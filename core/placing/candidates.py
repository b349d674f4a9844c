"""The best node for a pod's shape without looking at all of them.

`core.placing.columns` has what is free on all nodes, a row each, once for all shapes. Each shape keeps a number for
each row: the node's score if it was judged as it is now, else a bound of it (`core.placing.columns`). When the shape is
asked about, the rows that changed since are bounded again. Then the dialect judges the best row, and lowers it if its
number was only a bound, until the best row keeps its number. This holds for every policy and weight: if nothing bounds
a score, every node that changed is judged. The answer is always that of `core.placing.decide.scan`.
"""

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from core import names
from core.constraints.constraint import ChangeLog, NodeSet, Signatures, View
from core.constraints.images import Liking
from core.ledger import Ledger
from core.model import NodeFacts, NodeName
from core.placing.columns import REFUSED, Columns, Floats, Ints, Marks, Numbers, Rows, ScoreBounds, Some, at, grown
from core.placing.decide import Found, NodePolicy, Rooms, Shape, judged, ranked
from core.placing.pack import Grounds
from core.settings import DialectName

UNLIMITED: Final = float("inf")
# How many nodes are read, and how many are judged, between two pauses of `Candidates.prepare`: a few milliseconds of
# work; of a pod of 64 containers some 20.
_READ_AT_ONCE: Final = 200
_JUDGED_AT_ONCE: Final = 16
# Of shapes, sets of constraints, and what other pods and images make of nodes, those that were not asked for longest
# are forgotten beyond these numbers, and beyond so many bytes of all that is kept by row.
_SHAPES_MAX: Final = 4096
_MASKS_MAX: Final = 512
_MARKS_MAX: Final = 256
BYTES_MAX: Final = 384 * 2**20
# What is kept for each row of a shape's numbers, of a mask, and of what others make of nodes.
_SHAPE_BYTES: Final = 8
_MASK_BYTES: Final = 1
_MARKS_BYTES: Final = 8
# What is kept of each kind of card by a shape.
_KIND_BYTES: Final = 32
# So many changes of nodes are remembered for what is kept by row.
_LOG_MAX: Final = 1 << 14


class Remembered(NamedTuple):
    """How much is kept: the bytes of all arrays by row, and the number of shapes."""

    size_bytes: int
    shapes: int


@dataclass(slots=True, eq=False)
class _Memory:
    """What is known about one shape.

    numbers: the negated score by row. cursor: how far the log of rows was read. rated: the logs of nodes that pods made
    better or worse by what it prefers, and how far each was read.
    """

    shape: Shape
    columns: Columns
    mask: Marks
    bounds: ScoreBounds
    numbers: Floats
    cursor: int = -1
    rated: list[tuple[ChangeLog, int]] = field(default_factory=list)


class Candidates:
    """Answers `best` for one ledger under one policy; make a new one when device tables, settings or policy change.

    Attributes:
        ledger: the nodes that are searched.
        judged: how many nodes were judged so far.
        rooms: how many pods of a shape each node takes.
    """

    def __init__(
        self,
        ledger: Ledger,
        policy: NodePolicy,
        *,
        at_once: int = _JUDGED_AT_ONCE,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        self.ledger: Final = ledger
        self._policy = policy
        self._at_once: Final = at_once
        self._bytes_max: Final = bytes_max
        self.judged = 0
        self._begin()

    def _begin(self) -> None:
        """Forget all nodes."""
        states = self.ledger.states
        self._cursor = self.ledger.cursor
        self._grounds = self._new_grounds()
        self.rooms = Rooms(self.ledger, self._policy)
        self._rows = Rows(states)
        self._facts: dict[NodeName, NodeFacts] = {name: state.facts for name, state in states.items()}
        # The nodes that changed; and the nodes whose labels, taints, conditions or resources did.
        self._changed = ChangeLog(_LOG_MAX)
        self._changed_facts = ChangeLog(_LOG_MAX)
        self._columns: dict[DialectName | None, Columns] = {}
        self._masks: dict[Signatures, Marks] = {}
        # The last of each is the one that was asked about last.
        self._memories: dict[Shape, _Memory] = {}
        self._marks: dict[View | NodeSet | Liking, Marks] = {}

    @property
    def remembered(self) -> Remembered:
        """How much is kept for all shapes."""
        shapes = len(self._memories)
        a_row = _SHAPE_BYTES * shapes + _MASK_BYTES * len(self._masks) + _MARKS_BYTES * len(self._marks)
        columns = sum([one.size_bytes for one in self._columns.values()])
        kinds = max([len(one.kinds) for one in self._columns.values()], default=0)
        return Remembered(columns + a_row * self._rows.capacity + _KIND_BYTES * kinds * shapes, shapes)

    # ------------------------------------------------------------------ asking

    def is_prepared(self, shape: Shape) -> bool:
        """Whether `best` answers *shape* without reading or judging much of the cluster first."""
        self._note_changes()
        memory = self._memories.get(shape.alone)
        if memory is None or max(len(memory.columns.behind), len(memory.mask.behind)) >= _READ_AT_ONCE:
            return False
        if not memory.bounds.leaves_open:
            return True
        numbers = self._memory(memory.shape).numbers
        return int(np.count_nonzero(numbers == -REFUSED)) < _READ_AT_ONCE

    def prepare(self, shape: Shape) -> Iterator[None]:
        """Read and judge the cluster for *shape* in slices of a few milliseconds; between them anything may happen."""
        shape = shape.alone
        # Twice as often as it takes, or where much changes between the slices this would never end.
        nodes = len(self.ledger.states)
        for _ in range(2 * (nodes // _READ_AT_ONCE + nodes // self._at_once) + 2):
            self._note_changes()
            columns, mask = self._columns_of(shape), self._mask_of(shape)
            if max(len(columns.behind), len(mask.behind)) < _READ_AT_ONCE:
                judged_max = self.judged + self._at_once
                memory = self._memory(shape)
                found = self._search(memory, memory.numbers, judged_max=judged_max)
                if found is not None or self.judged < judged_max:
                    return
            else:
                columns.catch_up(_READ_AT_ONCE)
                mask.catch_up(_READ_AT_ONCE)
            yield

    def best(
        self,
        shape: Shape,
        passed_over: Set[NodeName] = frozenset(),
        liking: Liking | None = None,
        left_out: NodeSet | None = None,
        domain: Set[NodeName] | None = None,
    ) -> Found | None:
        """The best node for *shape* now; None if no node fits.

        Args:
            shape: what is asked.
            passed_over: nodes that are left out.
            liking: what the images that are needed make of nodes that are as good.
            left_out: more nodes that are left out, however many; the same object each time.
            domain: the only nodes that are considered; None: all.
        """
        memory = self._memory(shape.alone)
        views = self.ledger.constraints.views(shape.asked) if shape.asked.pods else ()
        return self._search(memory, self._sought(memory, passed_over, views, left_out, domain), liking)

    def size(self, shape: Shape) -> tuple[float, ...]:
        """Return how much *shape* takes, to compare shapes: the largest part of a card times cards; then amounts.

        The part is 0 if no card could serve it.
        """
        dialect = self.ledger.catalog.judging(shape.dialect)
        columns = self._memory(shape.alone).columns
        wants = (dialect.want(shape.request, kind, self._policy.cards) for kind in columns.kinds)
        parts = [want.free / max(want.total, 1) for want in wants if want is not None]
        amounts = dict(shape.amounts)
        of_cards = max(parts, default=0.0) * dialect.bound(shape.request, self._policy.cards).width
        return of_cards, amounts.get(names.CPU, 0), amounts.get(names.MEMORY, 0)

    def choice(self, shape: Shape) -> int:
        """Return how many nodes *shape* may choose from, whatever is free on them."""
        memory = self._memory(shape.alone)
        return memory.columns.there(memory.mask.said)

    # ------------------------------------------------------------------ searching

    def _sought(
        self,
        memory: _Memory,
        passed_over: Set[NodeName],
        views: Sequence[View],
        left_out: NodeSet | None,
        domain: Set[NodeName] | None,
    ) -> Floats:
        """Return the numbers of the nodes that may be taken; the memory's own array if no node is left out."""
        of, sought = self._rows.of, memory.numbers
        if domain is not None:
            rows = [of[name] for name in domain if name in of]
            sought = np.full_like(sought, REFUSED)
            sought[rows] = memory.numbers[rows]
        for view in views:
            if view.blocked:
                sought = np.where(self._marks_of(view, view.blocked.__contains__, np.bool_), REFUSED, sought)
        if left_out is not None and len(left_out):
            sought = np.where(self._marks_of(left_out, left_out.__contains__, np.bool_), REFUSED, sought)
        if rows_out := [of[name] for name in passed_over if name in of]:
            sought = sought.copy()
            sought[rows_out] = REFUSED
        return sought

    def _search(
        self, memory: _Memory, sought: Floats, liking: Liking | None = None, *, judged_max: float = UNLIMITED
    ) -> Found | None:
        """The best node of *sought*, in which verdicts are noted, as they are in *memory*.

        None if there is none, or once *judged_max* nodes are judged: the next search goes on.
        """
        numbers, row_names = memory.numbers, self._rows.names
        levels = None if liking is None else self._marks_of(liking, liking.level, np.int64)
        while self.judged < judged_max:
            first = self._first(memory, sought, levels)
            best = float(sought[first])
            if best == REFUSED:
                return None
            if best == -REFUSED:
                self._judge_unbounded(memory, sought, judged_max)
                continue
            name = row_names[first]
            found = self._found(memory, name)
            now = REFUSED if found is None else found.rank.minus_score
            if found is not None and now == best:
                return found if liking is None else found._replace(rank=found.rank.at(liking.level(name)))
            numbers[first] = sought[first] = now
        return None

    def _first(self, memory: _Memory, sought: Floats, levels: Ints | None) -> int:
        """The row that comes first: by its number, by the images that its node has, by its seat."""
        first = int(sought.argmin())
        equal = (sought == sought[first]).nonzero()[0]
        if len(equal) == 1:
            return first
        if levels is not None:
            liked = levels.take(equal)
            equal = equal[liked == liked.max()]
        return int(equal[memory.columns.seats.take(equal).argmin()])

    def _judge_unbounded(self, memory: _Memory, sought: Floats, judged_max: float) -> None:
        """Judge the nodes without a bound, until *judged_max* are judged."""
        for row in (sought == -REFUSED).nonzero()[0].tolist():
            if self.judged >= judged_max:
                return
            found = self._found(memory, self._rows.names[row])
            memory.numbers[row] = sought[row] = REFUSED if found is None else found.rank.minus_score

    def _found(self, memory: _Memory, name: NodeName) -> Found | None:
        """The exact verdict on the node *name* as it is."""
        state, shape, policy = self.ledger.states[name], memory.shape, self._policy
        self.judged += 1
        placed = judged(self.ledger, policy, shape, state, self._grounds)
        if placed is None:
            return None
        tie_ppm = memory.columns.tie(self._rows.of[name])
        return Found(name, placed, ranked(self.ledger, policy, shape, state, placed, tie_ppm=tie_ppm))

    # ------------------------------------------------------------------ keeping

    def judge_anew(self, policy: NodePolicy) -> None:
        """Forget all verdicts, which *policy*, the same but for its tables, may not give."""
        self._policy = policy
        self._grounds = self._new_grounds()
        self.rooms = Rooms(self.ledger, policy)
        while self._memories:
            self._forget_oldest()

    def _new_grounds(self) -> Grounds | None:
        tables = self._policy.tables
        return None if tables is None else Grounds(self.ledger.catalog, tables)

    def _note_changes(self) -> None:
        """Note which nodes changed; what is kept of them reads them when it is asked."""
        ledger, rows = self.ledger, self._rows
        if self._cursor == ledger.cursor:
            return
        changed = ledger.changes_since(self._cursor)
        self._cursor = ledger.cursor
        if changed is None or rows.is_crowded(len(ledger.states)):
            self._begin()
            return
        for name in changed:
            state = ledger.states.get(name)
            row = rows.of.get(name)
            if row is None:
                row = rows.add(name)
            rows.log.add(row)
            if state is None:
                self._facts.pop(name, None)
                if self._grounds is not None:
                    self._grounds.drop(name)
            elif self._facts.get(name) is state.facts:
                continue
            else:
                self._facts[name] = state.facts
            self._changed_facts.add(name)
        self._changed.extend(changed)
        if rows.settle():
            for columns in self._columns.values():
                columns.seat_anew()

    def _columns_of(self, shape: Shape) -> Columns:
        columns = self._columns.get(shape.dialect)
        if columns is None:
            judging = self.ledger.catalog.judging(shape.dialect)
            states, tie_ppm = self.ledger.states, self._policy.tie_ppm
            columns = Columns(self._rows, self._changed, states, shape.dialect, judging, tie_ppm=tie_ppm)
            self._columns[shape.dialect] = columns
        return columns

    def _mask_of(self, shape: Shape) -> Marks:
        """Which nodes the static constraints of *shape* refuse."""
        asked, states, constraints = shape.asked, self.ledger.states, self.ledger.constraints
        mask = self._masks.get(asked.node)
        if mask is None:

            def refuses(name: NodeName) -> bool:
                state = states.get(name)
                return state is None or not constraints.admits(asked, state.facts)

            if len(self._masks) >= _MASKS_MAX:
                self._masks = {one: kept for one, kept in self._masks.items() if kept.users}
            mask = self._masks[asked.node] = Marks(self._rows, self._changed_facts, refuses, np.bool_)
        return mask

    def _memory(self, shape: Shape) -> _Memory:
        """What is known of *shape*, as of now."""
        self._note_changes()
        known = self._memories.pop(shape, None)
        memory = self._memories[shape] = known or self._new_memory(shape)
        takes_more = known is None or len(known.numbers) < self._rows.capacity
        if memory.cursor != self._rows.log.cursor or memory.rated:
            self._refresh(memory)
        if takes_more:
            self._keep_to_limits()
        return memory

    def _new_memory(self, shape: Shape) -> _Memory:
        columns, mask = self._columns_of(shape), self._mask_of(shape)
        mask.users += 1
        columns.catch_up()
        ledger, policy, preferred = self.ledger, self._policy, shape.asked.preferred
        most = ledger.constraints.most(preferred, policy.others)
        bounds = ScoreBounds(shape, columns, ledger.catalog.judging(shape.dialect), policy, most)
        rated = [(log, -1) for log in ledger.constraints.rated(preferred)]
        return _Memory(shape, columns, mask, bounds, np.full(self._rows.capacity, REFUSED), rated=rated)

    def _keep_to_limits(self) -> None:
        """Forget those that were not asked about for longest, as far as more is kept than may be."""
        while len(self._memories) > 1 and (
            len(self._memories) > _SHAPES_MAX
            or len(self._masks) > _MASKS_MAX
            or self.remembered.size_bytes > self._bytes_max
        ):
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        """Forget the shape that was not asked about for longest, and its mask if no other has it."""
        memory = self._memories.pop(next(iter(self._memories)))
        memory.mask.users -= 1
        if not memory.mask.users:
            del self._masks[memory.shape.asked.node]

    def _refresh(self, memory: _Memory) -> None:
        """Compute the bounds of the rows that changed since *memory* was read."""
        memory.columns.catch_up()
        memory.mask.catch_up()
        log, capacity = self._rows.log, self._rows.capacity
        memory.numbers = grown(memory.numbers, capacity, REFUSED)
        changed = log.since(memory.cursor)
        memory.cursor = log.cursor
        if memory.rated:
            changed = self._rerated(memory, changed)
        if changed is not None and 2 * len(changed) > len(self._rows):
            changed = np.unique(changed)  # some changed often; of few it takes less to bound them twice
        rows: Some = slice(0, len(self._rows)) if changed is None else changed
        numbers = memory.bounds.of(rows)
        np.putmask(numbers, at(memory.mask.said, rows), REFUSED)
        memory.numbers[rows] = numbers

    def _rerated(self, memory: _Memory, rows: Numbers | None) -> Numbers | None:
        """Return *rows* and the rows that other pods have made better or worse since; None: all."""
        logs = self.ledger.constraints.rated(memory.shape.asked.preferred)
        known, memory.rated = dict(memory.rated), [(log, log.cursor) for log in logs]
        of, found = self._rows.of, list[int]()
        for log in logs:
            changed = log.since(known[log]) if log in known else None
            if changed is None or rows is None:
                return None
            found += [of[name] for name in changed if name in of]
        return rows if rows is None else np.array([*rows, *found], np.intp)

    def _marks_of(
        self, source: View | NodeSet | Liking, say: Callable[[NodeName], int], dtype: Any
    ) -> npt.NDArray[Any]:
        """What *source* says of all nodes now, by row."""
        marks = self._marks.pop(source, None)
        if marks is None:
            if len(self._marks) >= _MARKS_MAX:
                del self._marks[next(iter(self._marks))]
            marks = Marks(self._rows, source.log, say, dtype, is_blank=isinstance(source, NodeSet))
        self._marks[source] = marks
        marks.catch_up()
        return marks.said
