"""Which nodes and cards can be used, judged by registers, heartbeats, age, and repeated faults."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from controller.handing_over.closed_nodes import FORGOTTEN_S, LAST_S
from core.catalog import Catalog
from core.ledger import Ledger
from core.model import Node, NodeName
from core.placing.kinds import INSTANCE_TYPE
from core.settings import DialectName

# What comes back so soon after it was replaced is written in turns; a loop writes every 30 s.
BACK_WITHIN_S: Final = 300.0
# After so long without another change one loop alone is left.
STEADY_S: Final = 600.0

# Four heartbeat intervals of the plugin, so that one or two may be lost.
STALE_S: Final = 120.0

# How long a card that has become unhealthy twice gets no new pods; twice as long each time.
FIRST_OF_CARD_S: Final = 10.0

Figures = Mapping[str, tuple[int, ...]]


@dataclass(slots=True)
class _Register:
    """The register of one node: its text, what that says, what it said before and until when.

    shown: the node as it was last shown. until_s: the smaller figures count till then.
    """

    text: str
    figures: Figures
    shown: Node
    before: list[tuple[Figures, float]] = field(default_factory=list)
    until_s: float = 0.0

    def changed(self, figures: Figures, now_s: float) -> bool:
        """It says *figures* now; True if it has begun to say them in turns with others."""
        was = now_s < self.until_s
        recent = [(one, at_s) for one, at_s in self.before if now_s < at_s + BACK_WITHIN_S]
        is_back = any(one == figures for one, _ in recent)
        self.before = [(one, at_s) for one, at_s in recent if one != figures] + [(self.figures, now_s)]
        self.figures = figures
        if is_back or was:
            self.until_s = now_s + STEADY_S
        return is_back and not was

    def least(self) -> Figures:
        """Of every card that all of them name, the smallest figures."""
        all_of_them = [self.figures, *(one for one, _ in self.before)]
        return {
            card: tuple(map(min, zip(*(one[card] for one in all_of_them), strict=True)))
            for card in self.figures
            if all(card in one for one in all_of_them)
        }


class Registers:
    """What the register of every node has said of late.

    Registers that a device plugin writes in turns with other figures: the smaller ones count until one has stayed.

    A restart of kubelet, or a SIGHUP, leaves HAMi's plugin with two loops, of which the old one goes on to write what
    it knew. Source: protocol reference, hami 9, HN-31.
    """

    def __init__(self, catalog: Catalog, tell: Callable[[Node, DialectName], None]) -> None:
        """Begin with nothing; *tell* of a node whose register is written in turns, and in which protocol."""
        self._registers: Final = {one.name: one.register for one in catalog.specs if one.register is not None}
        self._tell: Final = tell
        self._nodes: Final[dict[NodeName, dict[DialectName, _Register]]] = {}

    def shown(self, node: Node, now_s: float) -> Node:
        """*node* as it counts: with the smaller figures where its register says others in turns."""
        found = node
        for name, register in self._registers.items():
            text = node.annotations.get(register.key, "")
            known = self._nodes.get(node.name, {}).get(name)
            if known is not None:
                known.shown = node
            if known is None or known.text != text:
                figures = register.figures(text)
                if not figures:
                    continue  # it cannot be read, or is not there for a while: the next one is compared
                if known is None:
                    self._nodes.setdefault(node.name, {})[name] = _Register(text, figures, node)
                    continue
                known.text = text
                if figures != known.figures and known.changed(figures, now_s):
                    self._tell(node, name)
            if now_s < known.until_s:
                held_to = register.held_to(found.annotations[register.key], known.least())
                found = replace(found, annotations={**found.annotations, register.key: held_to})
        return found

    def steady(self, now_s: float) -> Sequence[Node]:
        """The nodes whose registers have not changed for so long that what they say counts again."""
        ended = [one for of in self._nodes.values() for one in of.values() if 0.0 < one.until_s <= now_s]
        for one in ended:
            one.until_s = 0.0
            one.before.clear()
        return [one.shown for one in ended]

    def forget(self, name: NodeName) -> None:
        """The node is gone."""
        self._nodes.pop(name, None)


class JoiningNodes:
    """Which nodes are awaited, and until when.

    Nodes that have just joined, and will have cards, of which the plugin has registered none yet. Pods that wait
    meanwhile are told so, and not that a new node would help: an autoscaler would buy a second one for whom it has
    bought the first. Which nodes will have cards is told by others of the same machine type, now or before, and by the
    kinds of nodes that settings describe.
    """

    def __init__(self, ledger: Ledger, wall: Callable[[], float]) -> None:
        """Begin with none; *wall*: Unix seconds."""
        self._ledger: Final = ledger
        self._wall: Final = wall
        # Until when each node that is there is awaited, monotonic; 0 of those that are not.
        self._until_s: Final[dict[NodeName, float]] = {}
        # The machine types of nodes that have cards, or had some.
        self._with_cards: Final[set[str]] = set()

    def shown(self, node: Node, now_s: float) -> Node:
        """*node*, and whether its cards are awaited."""
        until_s = self._until_s.get(node.name)
        if until_s is None:
            until_s = self._until_s[node.name] = self._first_seen(node, now_s)
        return replace(node, joining=True) if now_s < until_s else node

    def _first_seen(self, node: Node, now_s: float) -> float:
        new_s = self._ledger.settings.new_node_s
        # Where the API server's clock is ahead, it is new for no longer.
        left_s = min(node.created_s + new_s - self._wall(), new_s)
        return now_s + left_s if left_s > 0 and self._will_have_cards(node) else 0.0

    def _will_have_cards(self, node: Node) -> bool:
        if any(
            kind.labels and node.labels.items() >= dict(kind.labels).items()
            for kind in self._ledger.settings.node_kinds
        ):
            return True
        return node.labels.get(INSTANCE_TYPE, "") in self._with_cards

    def settled(self, now_s: float) -> list[Node]:
        """The nodes that came to be awaited no more since this was last asked, as they now count."""
        over = [name for name, until_s in self._until_s.items() if 0.0 < until_s <= now_s]
        self._until_s.update(dict.fromkeys(over, 0.0))
        nodes = [self._ledger.node(name) for name in over]
        return [replace(node, joining=False) for node in nodes if node is not None and node.joining]

    def counted(self, name: NodeName) -> None:
        """The ledger took in what the node is now: if it has cards, others of its machine type will have some."""
        state = self._ledger.states.get(name)
        if state is not None and any(state.offers.values()):
            machine = state.facts.labels.get(INSTANCE_TYPE, "")
            if machine:
                self._with_cards.add(machine)

    def leaves(self, name: NodeName) -> None:
        """The node is about to be forgotten."""
        self._until_s.pop(name, None)
        self.counted(name)


class _Beat(NamedTuple):
    value: str
    since_s: float


class Heartbeats:
    """The last heartbeat of every node.

    Heartbeats that some device plugin versions write to their nodes, and whether they are still being written.

    The vGPU plugin up to v1.12.0 rewrites a handshake every 30 s; main writes none and leaves an old one in place. So
    its presence shows nothing, but its age does: the local time since its last observed change, never the writer's
    clock. Right after a start no age is known, so every heartbeat counts as current.
    Source: protocol reference, nvidia 7.2, 7.3; facts 3.3, case 41.

    Attributes:
        blind: called for every node shown: name, dialect, and whether its plugin cannot distinguish pods.
    """

    def __init__(self, catalog: Catalog, blind: Callable[[NodeName, DialectName, bool], None]) -> None:
        self._keys: Final = {one.name: one.heartbeat.key for one in catalog.specs if one.heartbeat is not None}
        self._blind: Final = blind
        self._last: Final[dict[NodeName, dict[DialectName, _Beat]]] = {}

    def shown(self, node: Node, now_s: float) -> Node:
        """Return *node* without stale heartbeats."""
        for name, key in self._keys.items():
            value = node.annotations.get(key, "")
            known = self._last.get(node.name, {})
            if not value:
                known.pop(name, None)
            elif name not in known or known[name].value != value:
                known = self._last.setdefault(node.name, {})
                known[name] = _Beat(value, now_s)
            elif now_s >= known[name].since_s + STALE_S:
                node = replace(node, annotations={one: text for one, text in node.annotations.items() if one != key})
            self._blind(node.name, name, key in node.annotations)
        return node

    def forget(self, name: NodeName) -> None:
        """Forget a removed node."""
        self._last.pop(name, None)

    def stale(self, nodes: Callable[[NodeName], Node | None], now_s: float) -> list[Node]:
        """Return the nodes whose heartbeat became stale since they were last shown, in their current form."""
        found: list[Node] = []
        for name, beats in self._last.items():
            if any(now_s >= beat.since_s + STALE_S for beat in beats.values()):
                node = nodes(name)
                if node is not None and any(node.annotations.get(self._keys[one]) for one in beats):
                    found.append(self.shown(node, now_s))
        return found


@dataclass(slots=True)
class _Card:
    """times: how often it returned within a short time. until_s: it gets no new pods before."""

    times: int
    until_s: float
    over: bool


class Flaps:
    """Cards that repeatedly become unhealthy, by node and dialect.

    Such a card gets no new pods until it has been healthy for a while, which is longer each time. A card that returns
    for the first time is used after its node's rest (`NodeCooldown`). The other cards of the node stay in use.
    """

    def __init__(self) -> None:
        self._nodes: Final[dict[NodeName, dict[tuple[DialectName, str], _Card]]] = {}

    def returned(self, node: NodeName, dialect: DialectName, cards: Iterable[str], now_s: float) -> None:
        """These *cards* of a node are well again, or there again."""
        for name in cards:
            known = self._nodes.setdefault(node, {}).get((dialect, name))
            times = known.times + 1 if known is not None and now_s < known.until_s + FORGOTTEN_S else 1
            left_s = float(min(FIRST_OF_CARD_S * 2.0 ** min(times - 2, 30), LAST_S)) if times > 1 else 0.0
            self._nodes[node][dialect, name] = _Card(times, now_s + left_s, over=times == 1)

    def unsteady(self, node: NodeName) -> Mapping[DialectName, frozenset[str]]:
        """The cards of a node that take nothing new, by protocol."""
        found: dict[DialectName, set[str]] = {}
        for (dialect, name), card in self._nodes.get(node, {}).items():
            if not card.over:
                found.setdefault(dialect, set()).add(name)
        return {dialect: frozenset(names) for dialect, names in found.items()}

    def counts(self, dialects: Iterable[DialectName]) -> Mapping[DialectName, int]:
        """How many cards take nothing new, by protocol, of which *dialects* are all."""
        found = dict.fromkeys(dialects, 0)
        for cards in self._nodes.values():
            for (dialect, _), card in cards.items():
                found[dialect] += not card.over
        return found

    def forget(self, node: NodeName) -> None:
        """The node is gone."""
        self._nodes.pop(node, None)

    def end(self, now_s: float) -> list[NodeName]:
        """The nodes of which a card may be used again since this was last asked; what is long past is forgotten."""
        ended: dict[NodeName, None] = {}
        for node, cards in list(self._nodes.items()):
            for key, card in list(cards.items()):
                if now_s >= card.until_s + FORGOTTEN_S:
                    del cards[key]
                if now_s >= card.until_s and not card.over:
                    card.over = True
                    ended[node] = None
            if not cards:
                del self._nodes[node]
        return list(ended)
