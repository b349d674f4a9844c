"""Which cards of a node a pod gets under the policy `pack`, and how good the node is for it.

Of a request for one card every card of the node that takes it is tried, and the one is taken by which least is lost,
the fullest where several are equal. All others get the cards that their dialect chooses under binpack. A dialect that
does not tell what is left of its cards (`holes`), and a pod with an order of nodes of its own, are
scored as under binpack. Pods without cards go to nodes without cards first, and then where they strand least.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from core.catalog import Catalog
from core.model import NodeName
from core.node_state import NodeState
from core.nodefit import Amounts
from core.placing.pack import RESOURCES, Ground, HoleValues, Lost, ground, score, steps_free
from core.port.cards import Placed
from core.port.dialect import AnyDialect
from core.settings import DialectName


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
        return _cardless(catalog, grounds, state, placed, (left, after))
    dialect = catalog.dialects[name]
    if not dialect.packs(request):
        return placed
    cards, before = state.cards(name), grounds.of(state, name)
    if dialect.by_card(request):
        best = _best_card(dialect, cards, request, before, (left, after))
        one = None if best is None else dialect.alone(cards, request, best[0])
        if best is not None and one is not None:
            return Placed(one.assignment, best[1])
    taken = dialect.take(cards, placed.assignment)
    lost = ground(grounds.tables, name, dialect.holes(taken)).lost
    return Placed(placed.assignment, score(before.lost, left, lost, after))


def is_of_one_card(catalog: Catalog, wanted: Wanted, cards: Sequence[Any], assignment: Any) -> bool:
    """Whether *assignment* is what *wanted* gets of some card of *cards*, if it is for one."""
    if wanted.dialect is None or not catalog.dialects[wanted.dialect].by_card(wanted.request):
        return False
    dialect = catalog.dialects[wanted.dialect]
    for slot in range(len(cards)):
        if dialect.left(cards, wanted.request, slot) is None:
            continue
        one = dialect.alone(cards, wanted.request, slot)
        if one is not None and one.assignment == assignment:
            return True
    return False


def _best_card(
    dialect: AnyDialect,
    cards: Sequence[Any],
    request: Any,
    before: Ground,
    left: tuple[Mapping[str, int], Mapping[str, int]],
) -> tuple[int, float] | None:
    """The card that a request for one card is best given, and how good that is; None if none takes it.

    Of equal ones the fullest, then the first. *left*: what is left of the node's resources before and after it.
    """
    best: tuple[float, int, int] | None = None
    tried: set[tuple[int, int, int]] = set()
    for slot, steps in enumerate(before.steps):
        hole = dialect.left(cards, request, slot)
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
    catalog: Catalog,
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
