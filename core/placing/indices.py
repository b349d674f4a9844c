"""The shared indices: the nodes that a set of static constraints admits, in the orders that shapes have asked for.

There is one `Index` per set of constraints and dialect, shared by all shapes with that set. What the ledger's change
log names is put in order again when a shape next asks, once for all shapes. Ordering a whole cluster takes longer
than a loop may stand still, so whoever has a loop to keep running has it done in slices, by `Indices.prepare`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from core import nodefit
from core.ledger import Ledger
from core.model import NodeConstraints, NodeName
from core.node_state import NodeState
from core.nodefit import NodeFacts
from core.placing.ordered import Labels
from core.placing.orders import Kinds, Levels, Stand, Windows
from core.placing.score import NodePolicy
from core.settings import DialectName

# An ask brings this many nodes up to date for each width that has more than so many to catch up with.
_CATCH_UP: Final = 3
_CATCH_UP_FROM: Final = 32
# What a node and an entry of an order take of memory; see `Index.size_bytes`.
_NODE_BYTES: Final = 850
_ENTRY_BYTES: Final = 510
# How many nodes are ordered between two pauses of `Indices.prepare`.
_SLICE: Final = 200
# Names of nodes that are gone keep their numbers until there are so many more of them than nodes.
_NAMES_SPARE: Final = 256


@dataclass(slots=True, eq=False)
class Index:
    """The admitted nodes of one set of constraints in one dialect.

    families: width -> windows of so many cards; 0 -> levels. stale: width -> nodes changed since it was last asked.
    admitted: the nodes that the constraints let in, until the index is in use. used: when it was last asked, as
    `Indices.asked` counts.
    """

    constraints: NodeConstraints
    dialect: DialectName | None
    stands: dict[NodeName, Stand] = field(default_factory=dict)
    families: dict[int, Windows | Levels] = field(default_factory=dict)
    stale: dict[int, dict[NodeName, None]] = field(default_factory=dict)
    admitted: set[NodeName] = field(default_factory=set)
    used: int = 0

    @property
    def size_bytes(self) -> int:
        """What it takes of memory, about: so much for each node, and for each place where a node stands in an order.

        What was measured is 730 to 850 bytes of a node of 1 to 16 cards, and 100 to 510 of a place, the more the fewer
        nodes have the same amounts free; both are taken at their highest.
        """
        entries = sum([family.entries for family in self.families.values()])
        return len(self.stands) * _NODE_BYTES + entries * _ENTRY_BYTES


class Indices:
    """All indices of one ledger, brought up to date with its change log."""

    def __init__(self, ledger: Ledger, policy: NodePolicy) -> None:
        """Begin with none; *policy* settles equal scores."""
        self._ledger: Final = ledger
        self._tie_ppm: Final = policy.tie_ppm
        self.labels = Labels(ledger.states)
        self.kinds: Final = Kinds()
        # The nodes that are gone, for a reader to take out.
        self.gone: Final[list[NodeName]] = []
        self.asked = 0
        self._cursor = ledger.cursor
        # What changed up to the cursor, and is not taken in yet.
        self._behind: dict[NodeName, None] = {}
        self._indices: dict[tuple[NodeConstraints, DialectName | None], Index] = {}
        self._of_node: dict[NodeName, list[Index]] = {}
        self._facts: dict[NodeName, NodeFacts] = {n: s.facts for n, s in ledger.states.items()}

    def __len__(self) -> int:
        return len(self._indices)

    @property
    def size_bytes(self) -> int:
        """What all of them take of memory, about."""
        return sum([index.size_bytes for index in self._indices.values()])

    def use(self, index: Index) -> None:
        """Note that *index* is asked just now: those that are not are forgotten first."""
        self.asked += 1
        index.used = self.asked

    # ------------------------------------------------------------------ asking

    def get(self, constraints: NodeConstraints, dialect: DialectName | None) -> Index:
        """The index of *constraints* in *dialect*, made when first asked for; as of the last `refresh`."""
        key = (constraints, dialect)
        index = self._indices.get(key)
        if index is None:
            index = Index(constraints, dialect)
            for name in self._ledger.states:
                self._take_in(index, name)
            self._put_into_use(index)
        return index

    def family(self, index: Index, width: int) -> Windows | Levels:
        """The orders for *width* (0: levels), made when first asked for and brought up to date when asked again."""
        family = index.families.get(width)
        if family is None:
            family = self._new_family(index, width)
        stale = index.stale[width]
        while stale:
            self._put(index, family, stale.popitem()[0])
        # What other widths have to catch up with is done little by little, so that no single ask pays for all of it.
        for other, left in index.stale.items():
            if len(left) > _CATCH_UP_FROM:
                for _ in range(_CATCH_UP):
                    self._put(index, index.families[other], left.popitem()[0])
        return family

    def is_prepared(self, constraints: NodeConstraints, dialect: DialectName | None, width: int | None) -> bool:
        """Whether asking costs only what changed lately; *width* None: no family is asked for."""
        self._note_changes()
        index = self._indices.get((constraints, dialect))
        if index is None or len(self._behind) >= _SLICE:
            return False
        return width is None or (width in index.families and len(index.stale[width]) < _SLICE)

    def prepare(self, constraints: NodeConstraints, dialect: DialectName | None, width: int | None) -> Iterator[None]:
        """Do in slices of a few milliseconds what asking would do at once; between them anything may happen."""
        self._note_changes()
        while len(self._behind) >= _SLICE:
            self._catch_up(_SLICE)
            yield
        key = (constraints, dialect)
        if key not in self._indices:
            yield from self._make(Index(constraints, dialect))
        index = self._indices[key]
        if width is None:
            return
        if width not in index.families:
            self._new_family(index, width)
        family, stale = index.families[width], index.stale[width]
        while index.stale.get(width) is stale and len(stale) >= _SLICE:
            for _ in range(_SLICE):
                self._put(index, family, stale.popitem()[0])
            yield

    def _make(self, index: Index) -> Iterator[None]:
        ledger = self._ledger
        cursor = ledger.cursor
        for at, name in enumerate(list(ledger.states), start=1):
            self._take_in(index, name)
            if at % _SLICE == 0:
                yield
        changed = ledger.changes_since(cursor)
        for name in {*index.admitted, *ledger.states} if changed is None else set(changed):
            self._take_in(index, name)
        self._put_into_use(index)

    def _new_family(self, index: Index, width: int) -> Windows | Levels:
        family = index.families[width] = Windows(width, self.labels) if width else Levels(self.labels)
        index.stale[width] = dict.fromkeys(index.stands)
        return family

    def _put(self, index: Index, family: Windows | Levels, name: NodeName) -> None:
        stand = index.stands.get(name)
        if stand is None:
            family.drop(name)
        else:
            family.put(name, stand)

    # ------------------------------------------------------------------ keeping

    def refresh(self) -> None:
        """Bring every index up to date."""
        self._note_changes()
        self._catch_up(len(self._behind))

    def drop_oldest(self) -> Index:
        """Forget the index that was not asked for longest."""
        dropped = min(self._indices.values(), key=lambda one: one.used)
        del self._indices[dropped.constraints, dropped.dialect]
        for indices in self._of_node.values():
            if dropped in indices:
                indices.remove(dropped)
        return dropped

    def _note_changes(self) -> None:
        ledger = self._ledger
        if self._cursor == ledger.cursor:
            return
        changed = ledger.changes_since(self._cursor)
        self._cursor = ledger.cursor
        self._behind.update(dict.fromkeys(changed if changed is not None else (*self._facts, *ledger.states)))

    def _catch_up(self, most: int) -> None:
        """Take in *most* of the nodes that changed."""
        for _ in range(most):
            name = self._behind.popitem()[0]
            state = self._ledger.states.get(name)
            if state is None:
                self._forget(name)
                self.gone.append(name)
                continue
            if not self.labels.add(name) or len(self.labels) > 2 * len(self._ledger.states) + _NAMES_SPARE:
                self._relabel()
            if self._facts.get(name) is not state.facts:
                self._facts[name] = state.facts
                self._of_node[name] = []
                for index in self._indices.values():
                    self._admit(index, name, state)
            stands: dict[DialectName | None, Stand | None] = {}
            for index in self._of_node.get(name, ()):
                if index.dialect not in stands:
                    stands[index.dialect] = self._stand(index.dialect, state)
                self._enter(index, name, stands[index.dialect])

    def _relabel(self) -> None:
        """Number all names anew, and order everything anew when next asked."""
        self.labels = Labels(self._ledger.states)
        for index in self._indices.values():
            index.families.clear()
            index.stale.clear()

    def _forget(self, name: NodeName) -> None:
        for index in self._of_node.pop(name, ()):
            self._leave(index, name)
        self._facts.pop(name, None)

    def _admit(self, index: Index, name: NodeName, state: NodeState) -> None:
        if nodefit.admits(index.constraints, state.facts) is None:
            self._of_node.setdefault(name, []).append(index)
        else:
            self._leave(index, name)

    def _take_in(self, index: Index, name: NodeName) -> None:
        """Let an index that is not in use yet know *name* as it is."""
        state = self._ledger.states.get(name)
        index.stands.pop(name, None)
        index.admitted.discard(name)
        if state is not None and nodefit.admits(index.constraints, state.facts) is None:
            index.admitted.add(name)
            stand = self._stand(index.dialect, state)
            if stand is not None:
                index.stands[name] = stand

    def _put_into_use(self, index: Index) -> None:
        """Let an index be kept that is up to date with the ledger, unless there is one already."""
        self.refresh()
        key = (index.constraints, index.dialect)
        if key in self._indices:
            return
        self._indices[key] = index
        self.use(index)
        for name in index.admitted:
            self._of_node.setdefault(name, []).append(index)
        index.admitted.clear()

    def _stand(self, dialect: DialectName | None, state: NodeState) -> Stand | None:
        cards = state.cards(dialect)
        if not cards or dialect in state.closed:
            return None
        room = self._ledger.catalog.judging(dialect).room(cards)
        return self.kinds.stand(room, self._tie_ppm(room.used_ppm))

    def _leave(self, index: Index, name: NodeName) -> None:
        if index.stands.pop(name, None) is not None:
            for stale in index.stale.values():
                stale[name] = None

    def _enter(self, index: Index, name: NodeName, stand: Stand | None) -> None:
        """Take *name* as it is now; a node without room in this dialect stands nowhere."""
        if stand is None:
            self._leave(index, name)
            return
        index.stands[name] = stand
        for stale in index.stale.values():
            stale[name] = None
