"""What the mirror shows of nodes and of the ConfigMaps that speak of them, told to the ledger."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from controller.actions import Announce, Subject
from controller.beats import Beats
from controller.deciding.newcomers import Newcomers
from controller.deciding.node_locks import NodeLocks
from controller.deciding.planner import Planner
from controller.documents import Documents
from controller.handing_over.flaps import Flaps
from controller.handing_over.registers import STEADY_S, Registers
from core.model import Node, NodeName
from core.port.refusals import Complaint
from core.port.spec import Place
from core.settings import DialectName
from core.wire.config_maps import ConfigMap

# After so many, others may have their turn.
SLICE: Final = 32
_LOOK_S: Final = 5.0


class Nodes:
    """Keeps the ledger's nodes true to the mirror.

    Attributes:
        complaints: what is wrong with the nodes set aside, wholly or in part.
        flaps: the cards that become unhealthy again and again.
    """

    def __init__(
        self, planner: Planner, locks: NodeLocks, clock: Callable[[], float], wall: Callable[[], float]
    ) -> None:
        self.complaints: Final[dict[NodeName, tuple[Complaint, ...]]] = {}
        self.flaps: Final = Flaps()
        self._planner: Final = planner
        self._locks: Final = locks
        self._documents: Final = Documents(planner.ledger.catalog)
        self._clock: Final = clock
        self._beats: Final = Beats(planner.ledger.catalog, planner.handoff.set_blind)
        self._newcomers: Final = Newcomers(planner.ledger, wall)
        self._registers: Final = Registers(planner.ledger.catalog, self._tell_alternating)
        planner.handoff.plugins.returned = self._judge_anew
        self._looked_s = clock()
        # The cards of a node that ever were well, by protocol.
        self._known: Final[dict[NodeName, dict[DialectName, frozenset[str]]]] = {}

    def replaced(self, nodes: Sequence[Node]) -> Iterator[None]:
        """These nodes, and no others, exist. Yields where others may have their turn."""
        for at, node in enumerate(nodes):
            self.changed(node)
            if at % SLICE == 0:
                self._planner.search.keep_up()
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
        self._set_node(self._as_it_counts(node))

    def _as_it_counts(self, node: Node) -> Node:
        """*node* with what is known of it beside what it says."""
        now_s = self._clock()
        documents = self._documents.of(node.name)
        node = self._newcomers.shown(self._beats.shown(self._registers.shown(node, now_s), now_s), now_s)
        unserved = self._planner.handoff.plugins.unserved(node.name)
        if documents or unserved:
            node = replace(node, documents=documents or node.documents, unserved=unserved)
        return node

    def _judge_anew(self, name: NodeName) -> None:
        """Its device plugin has left it, or is back."""
        node = self._planner.ledger.node(name)
        if node is not None:
            self._set_node(replace(node, unserved=self._planner.handoff.plugins.unserved(name)))

    def next_s(self) -> float:
        """When to look again whether something has become old, monotonic."""
        return self._looked_s + _LOOK_S

    def look(self, now_s: float) -> None:
        """Judge those nodes anew of which something has become old, or a card has stayed well for long enough."""
        self._looked_s = now_s
        for name in self.flaps.end(now_s):
            self._planner.ledger.keep_out(name, self.flaps.unsteady(name))
        for node in self._registers.steady(now_s):
            self._set_node(self._as_it_counts(node))
        for node in (*self._beats.stale(self._planner.ledger.node, now_s), *self._newcomers.settled(now_s)):
            self._set_node(node)
        for name in self._planner.handoff.plugins.look(now_s):
            self._judge_anew(name)

    def _set_node(self, node: Node) -> None:
        before = self._planner.ledger.node(node.name)
        offers = self._planner.ledger.offered(node.name) if before is not None else {}
        changed = self._planner.ledger.set_node(node)
        if changed:
            self._newcomers.counted(node.name)
            self._came_back(node.name, offers)
        with_cards = [which for which, cards in self._planner.ledger.offered(node.name).items() if cards]
        self._planner.handoff.plugins.needed(node.name, with_cards, self._clock())
        if before is None or before.annotations != node.annotations:
            self._locks.tend(node.name)
            if before is not None:
                self._locks.let_in(node.name)
        if not changed:
            return
        complaints = self._planner.ledger.states[node.name].complaints
        if complaints != self.complaints.get(node.name, ()):
            self._complain(node, complaints)

    def _well(self, offers: Mapping[DialectName, tuple[Any, ...]]) -> dict[DialectName, frozenset[str]]:
        """The cards that are there and well, by protocol."""
        found = {}
        for which, cards in offers.items():
            healing = self._planner.ledger.catalog.healing.get(which)
            alike = frozenset(str(at) for at in range(len(cards)))
            found[which] = healing.well(cards) if healing is not None else alike
        return found

    def _came_back(self, name: NodeName, offers: Mapping[DialectName, tuple[Any, ...]]) -> None:
        """Let the node rest for a protocol of which cards came back, having offered *offers*: its plugin has restarted.

        If some of its cards come and go while others stay, and have names, those are kept out.
        """
        before = self._well(offers)
        known, now_s = self._known.setdefault(name, {}), self._clock()
        unsteady = self.flaps.unsteady(name)
        for which, cards in self._well(self._planner.ledger.offered(name)).items():
            back = (cards & known.get(which, frozenset())) - before.get(which, frozenset())
            known[which] = known.get(which, frozenset()) | cards
            if back:
                single = bool(offers.get(which)) and which in self._planner.ledger.catalog.healing
                self._planner.handoff.rests.returned(name, which, now_s, longer=not single)
                if single:
                    self.flaps.returned(name, which, back, now_s)
        kept_out = self.flaps.unsteady(name)
        if kept_out != unsteady:
            self._planner.ledger.keep_out(name, kept_out)

    def _complain(self, node: Node, complaints: tuple[Complaint, ...]) -> None:
        known = self.complaints.pop(node.name, ())
        if complaints:
            self.complaints[node.name] = complaints
        for one in complaints:
            if one not in known:
                self._announce(node, one)

    def _announce(self, node: Node, one: Complaint) -> None:
        message = f"{one.dialect}: {one.field}: {one.problem}; nothing new is placed there until this is repaired"
        about = Subject(kind="Node", name=node.name, uid=node.uid)
        self._planner.actions.append(Announce(about=about, reason="CardsUnusable", message=message))

    def _tell_alternating(self, node: Node, dialect: DialectName) -> None:
        message = (
            f"{dialect}: restart the device plugin's pod on this node: the plugin alternates between two registers, "
            f"and the smaller figures of each card count until one register has stayed for {STEADY_S / 60:.0f} minutes"
        )
        about = Subject(kind="Node", name=node.name, uid=node.uid)
        self._planner.actions.append(Announce(about=about, reason="RegisterAlternates", message=message))

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
        self._newcomers.leaves(name)
        self._planner.search.kinds.leaves(name)
        if self._planner.ledger.remove_node(name):
            self._planner.wakes.tell_anew()
        self._planner.handoff.node_gone(name)
        self._locks.gone(name)
        self._beats.forget(name)
        self._registers.forget(name)
        self._known.pop(name, None)
        self.flaps.forget(name)
        self.complaints.pop(name, None)
