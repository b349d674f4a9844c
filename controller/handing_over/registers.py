"""Registers that a device plugin writes in turns with other figures: the smaller ones count until one has stayed.

A restart of kubelet, or a SIGHUP, leaves HAMi's plugin with two loops, of which the old one goes on to write what it
knew. Source: protocol reference, hami 9, HN-31.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from core.catalog import Catalog
from core.model import Node, NodeName
from core.port.optional import Registering
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
        self._dialects: Final = {name: one for name, one in catalog.dialects.items() if isinstance(one, Registering)}
        self._tell: Final = tell
        self._nodes: Final[dict[NodeName, dict[DialectName, _Register]]] = {}

    def shown(self, node: Node, now_s: float) -> Node:
        """*node* as it counts: with the smaller figures where its register says others in turns."""
        found = node
        for name, dialect in self._dialects.items():
            text = dialect.register(node)
            known = self._nodes.get(node.name, {}).get(name)
            if known is not None:
                known.shown = node
            if known is None or known.text != text:
                figures = dialect.figures(text)
                if not figures:
                    continue  # it cannot be read, or is not there for a while: the next one is compared
                if known is None:
                    self._nodes.setdefault(node.name, {})[name] = _Register(text, figures, node)
                    continue
                known.text = text
                if figures != known.figures and known.changed(figures, now_s):
                    self._tell(node, name)
            if now_s < known.until_s:
                found = dialect.held_to(found, known.least())
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
