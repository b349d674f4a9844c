"""Registers that a device plugin writes in turns with other figures: the smaller ones count until one has stayed.

A restart of kubelet, or a SIGHUP, leaves HAMi's plugin with two loops, of which the old one goes on to write what it
knew. Source: protocol reference, hami 9, HN-31.

And nodes that have just joined, and will have cards, of which the plugin has registered none yet. Pods that wait
meanwhile are told so, and not that a new node would help: an autoscaler would buy a second one for whom it has bought
the first. Which nodes will have cards is told by others of the same machine type, now or before, and by the kinds of
nodes that settings describe.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from core.catalog import Catalog
from core.ledger import Ledger
from core.model import Node, NodeName
from core.placing.kinds import INSTANCE_TYPE
from core.settings import DialectName

# What comes back so soon after it was replaced is written in turns; a loop writes every 30 s.
BACK_WITHIN_S: Final = 300.0
# After so long without another change one loop alone is left.
STEADY_S: Final = 600.0

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
    """What the register of every node has said of late."""

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
    """Which nodes are awaited, and until when."""

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
