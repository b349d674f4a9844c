"""The best node for a shape by looking at every node once: each node's verdict is kept while its state is the same.

For a search that asks thousands of times on one ledger, in processes that do not load `core.placing.candidates`.
"""

from collections.abc import Iterator, Mapping, Set
from typing import Final

from core.ledger import Ledger, Placement
from core.model import NodeName, Pod
from core.placing.decide import NodePolicy, Rank, Shape, better, liking_of, placed_on, preferred_shapes, shape_now
from core.port.cards import CardShare


class MovePlaces:
    """Where shapes fit on a ledger that trials change.

    Attributes:
        ledger: who holds what.
        looked_at: how many nodes were judged so far.
    """

    def __init__(self, ledger: Ledger, policy: NodePolicy) -> None:
        """Remember nothing yet."""
        self.ledger: Final = ledger
        self.looked_at = 0
        self._policy: Final = policy
        self._known: Final[dict[Shape, _Known]] = {}
        self._empty: Final[dict[tuple[Shape, NodeName], tuple[CardShare, ...] | None]] = {}

    def on(self, pod: Pod, shape: Shape, name: NodeName) -> Placement | None:
        """Return what *pod* gets on node *name* now; None if the node does not take it."""
        self.looked_at += 1
        return placed_on(self.ledger, self._policy, pod, shape_now(self.ledger, pod, shape), name)

    def best(self, pod: Pod, shape: Shape, passed_over: Set[NodeName]) -> Placement | None:
        """Return where *pod* goes now, as the controller decides; None if no node takes it."""
        shape = shape_now(self.ledger, pod, shape)
        for wished in (*preferred_shapes(self.ledger, shape), shape):
            found = min(self._ranked(pod, wished, passed_over), default=None)
            if found is not None:
                return placed_on(self.ledger, self._policy, pod, shape, found.name)
        return None

    def is_anywhere(self, pod: Pod, shape: Shape, passed_over: Set[NodeName]) -> bool:
        """Return whether a node takes *pod* now."""
        return any(True for _ in self._ranked(pod, shape_now(self.ledger, pod, shape), passed_over))

    def shares_of_empty(self, shape: Shape, name: NodeName) -> tuple[CardShare, ...] | None:
        """Return what *shape* would get on node *name* if no pod held anything there; None if nothing."""
        key = (shape.alone, name)
        if key not in self._empty:
            self._empty[key] = self._shares(shape.alone, name)
        return self._empty[key]

    def _shares(self, shape: Shape, name: NodeName) -> tuple[CardShare, ...] | None:
        ledger = self.ledger
        state = ledger.states[name]
        if state.closed and shape.dialect in state.closed:
            return None
        empty = state._replace(offers=ledger.offered(name), used={}, closed={}, held={})
        found = better(ledger, self._policy, shape, empty, None)
        if found is None:
            return None
        if shape.dialect is None:
            return ()
        return ledger.catalog.dialects[shape.dialect].describe(found.placed.assignment, empty.cards(shape.dialect))

    def _ranked(self, pod: Pod, shape: Shape, passed_over: Set[NodeName]) -> Iterator[Rank]:
        ledger = self.ledger
        liking = liking_of(pod, ledger)
        if not shape.asked.pods and not shape.asked.preferred and liking is None:
            ranks: Mapping[NodeName, Rank] = self._kept(shape)
            yield from (rank for name, rank in ranks.items() if name not in passed_over)
            return
        # What depends on other nodes' pods, or on the pod's images, is judged each time.
        for name, state in ledger.states.items():
            if name not in passed_over:
                self.looked_at += 1
                found = better(ledger, self._policy, shape, state, None, liking=liking)
                if found is not None:
                    yield found.rank

    def _kept(self, shape: Shape) -> Mapping[NodeName, Rank]:
        """Return the nodes that take *shape* now; only changed nodes are judged again."""
        ledger = self.ledger
        known = self._known.get(shape)
        if known is None:
            known = self._known[shape] = _Known()
        changed = ledger.changes_since(known.cursor) if known.cursor >= 0 else None
        for name in ledger.states if changed is None else set(changed):
            state = ledger.states.get(name)
            if state is None or known.versions.get(name) == state.version:
                continue
            self.looked_at += 1
            known.versions[name] = state.version
            found = better(ledger, self._policy, shape, state, None)
            if found is None:
                known.ranks.pop(name, None)
            else:
                known.ranks[name] = found.rank
        known.cursor = ledger.cursor
        return known.ranks


class _Known:
    """What is known of one shape: the nodes that take it, by the versions of their states."""

    def __init__(self) -> None:
        self.cursor = -1
        self.versions: Final[dict[NodeName, int]] = {}
        self.ranks: Final[dict[NodeName, Rank]] = {}
