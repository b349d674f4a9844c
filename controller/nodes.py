"""What the mirror shows of nodes and of the ConfigMaps that speak of them, told to the ledger."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from controller.beats import Beats
from controller.deeds import Announce, Subject
from controller.documents import Documents, Place
from controller.node_locks import NodeLocks
from controller.planner import Planner
from core.ledger import NodeState
from core.model import Node, NodeName
from core.port import Complaint, Healing
from core.settings import DialectName
from core.wire.config_maps import ConfigMap

# After so many, others may have their turn.
SLICE: Final = 32
_LOOK_S: Final = 5.0


class Nodes:
    """Keeps the ledger's nodes true to the mirror.

    Attributes:
        complaints: what is wrong with the nodes set aside, wholly or in part.
    """

    def __init__(self, planner: Planner, locks: NodeLocks, clock: Callable[[], float]) -> None:
        self.complaints: Final[dict[NodeName, tuple[Complaint, ...]]] = {}
        self._planner: Final = planner
        self._locks: Final = locks
        self._documents: Final = Documents()
        self._clock: Final = clock
        self._beats: Final = Beats(planner.catalog, planner.handoff.set_blind)
        self._looked_s = clock()
        # The most cards that a node ever had well at once, by protocol.
        self._most: Final[dict[NodeName, dict[DialectName, int]]] = {}

    def replaced(self, nodes: Sequence[Node]) -> Iterator[None]:
        """These nodes, and no others, exist. Yields where others may have their turn."""
        for at, node in enumerate(nodes):
            self.changed(node)
            if at % SLICE == 0:
                self._planner.keep_up()
                yield
        names = {node.name for node in nodes}
        for at, name in enumerate([name for name in self._planner.ledger.states if name not in names]):
            self.gone(name)
            if at % SLICE == 0:
                yield

    def changed(self, node: Node) -> None:
        """A node appeared or changed."""
        old = self._planner.ledger.node(node.name)
        if old is not None and old.resource_version == node.resource_version and old.resource_version:
            return
        documents = self._documents.of(node.name)
        node = self._beats.shown(node, self._clock())
        self._set_node(replace(node, documents=documents) if documents else node)

    def next_s(self) -> float:
        """When to look again whether something has become old, monotonic."""
        return self._looked_s + _LOOK_S

    def look(self, now_s: float) -> None:
        """Judge those nodes anew of which something has become old."""
        self._looked_s = now_s
        for node in self._beats.stale(self._planner.ledger.node, now_s):
            self._set_node(node)

    def _set_node(self, node: Node) -> None:
        before = self._planner.ledger.node(node.name)
        cards = self._usable(node.name)
        changed = self._planner.ledger.set_node(node)
        self._let_rest(node.name, cards)
        if before is None or before.annotations != node.annotations:
            self._locks.tend(node.name)
            if before is not None:
                self._locks.let_in(node.name)
        if not changed:
            return
        complaints = self._planner.ledger.states[node.name].complaints
        if complaints != self.complaints.get(node.name, ()):
            self._complain(node, complaints)

    def _usable(self, name: NodeName) -> dict[DialectName, int]:
        """How many cards of the node can be used, by protocol."""
        state = self._planner.ledger.states.get(name)
        return {} if state is None else {dialect: self._well(dialect, state) for dialect in state.offers}

    def _well(self, name: DialectName, state: NodeState) -> int:
        cards, dialect = state.offers[name], self._planner.catalog.dialects[name]
        if not isinstance(dialect, Healing):
            return len(cards)
        return sum(one == healed for one, healed in zip(cards, dialect.healed(cards), strict=True))

    def _let_rest(self, name: NodeName, before: Mapping[DialectName, int]) -> None:
        """Let the node rest for a protocol of which cards came back: its plugin has just been started again."""
        most = self._most.setdefault(name, {})
        for dialect, count in self._usable(name).items():
            if before.get(dialect, 0) < count <= most.get(dialect, 0):
                self._planner.handoff.rests.returned(name, dialect, self._clock())
            most[dialect] = max(most.get(dialect, 0), count)

    def _complain(self, node: Node, complaints: tuple[Complaint, ...]) -> None:
        known = self.complaints.pop(node.name, ())
        if complaints:
            self.complaints[node.name] = complaints
        for one in complaints:
            if one not in known:
                self._announce(node, one)

    def _announce(self, node: Node, one: Complaint) -> None:
        message = f"{one.dialect}: {one.field}: {one.problem}; nothing new is placed there until this is mended"
        about = Subject(kind="Node", name=node.name, uid=node.uid)
        self._planner.deeds.append(Announce(about=about, reason="CardsUnusable", message=message))

    def announce_anew(self) -> None:
        """Tell of all complaints, whether or not they were told."""
        for name, complaints in self.complaints.items():
            node = self._planner.ledger.node(name)
            if node is not None:
                for one in complaints:
                    self._announce(node, one)

    def documents_replaced(self, place: Place, maps: Sequence[ConfigMap]) -> Iterator[None]:
        """These ConfigMaps that speak of nodes, and no others, are at *place*."""
        return self._tell_nodes(self._documents.replace(place, maps))

    def documents_changed(self, place: Place, found: ConfigMap, *, gone: bool = False) -> Iterator[None]:
        """A ConfigMap that speaks of nodes appeared, changed, or is *gone*."""
        return self._tell_nodes(self._documents.change(place, found, gone=gone))

    def _tell_nodes(self, changed: set[NodeName]) -> Iterator[None]:
        for at, name in enumerate(changed):
            node = self._planner.ledger.node(name)
            if node is not None:
                self._set_node(replace(node, documents=self._documents.of(name)))
            if at % SLICE == 0:
                yield

    def gone(self, name: NodeName) -> None:
        """A node is deleted."""
        self._planner.ledger.remove_node(name)
        self._planner.handoff.node_gone(name)
        self._locks.gone(name)
        self._beats.forget(name)
        self._most.pop(name, None)
        self.complaints.pop(name, None)
