"""Cards that fail again and again: each takes nothing new until it has stayed well for a while, longer each time.

A card that came back for the first time is used at once, after its node's rest (`node_cooldown`). One
that is unhealthy again soon after would fail what is placed there meanwhile. The other cards of its node go on serving.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from core.model import NodeName
from core.settings import DialectName

FIRST_S: Final = 10.0
LAST_S: Final = 300.0
# After so long in which it stayed well, what was before counts no more.
FORGOTTEN_S: Final = 600.0


@dataclass(slots=True)
class _Card:
    """times: how often it came back, each time soon after the one before. until_s: it takes nothing new till then."""

    times: int
    until_s: float
    over: bool


class Flaps:
    """How often which cards came back of late, by node and protocol."""

    def __init__(self) -> None:
        self._nodes: Final[dict[NodeName, dict[tuple[DialectName, str], _Card]]] = {}

    def returned(self, node: NodeName, dialect: DialectName, cards: Iterable[str], now_s: float) -> None:
        """These *cards* of a node are well again, or there again."""
        for name in cards:
            known = self._nodes.setdefault(node, {}).get((dialect, name))
            times = known.times + 1 if known is not None and now_s < known.until_s + FORGOTTEN_S else 1
            left_s = float(min(FIRST_S * 2.0 ** min(times - 2, 30), LAST_S)) if times > 1 else 0.0
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
