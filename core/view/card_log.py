"""What changed of each card while somebody watched it: its health, its use and its holders. Pure, and bounded.

Fields may be added; renaming a field or changing its meaning requires another *version*.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from core.units import time_text
from core.view.cards import VERSION, Card, Node, card_for

CHANGES_MAX: Final = 32
TOTAL_MAX: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CardChange:
    """The state of a card from *at* on, until the next change; None if the node does not have the card any more."""

    at: str
    card: Card | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CardHistory:
    """The states of one card, the last one last; earlier ones than the first are unknown."""

    version: int = VERSION
    node: str
    card: str
    changes: tuple[CardChange, ...]


class _Key(NamedTuple):
    node: str
    protocol: str
    card: str


class CardLog:
    """The last changes of the cards that changed last."""

    def __init__(self, since_s: float, *, changes_max: int = CHANGES_MAX, total_max: int = TOTAL_MAX) -> None:
        """Begin; *changes_max*: of one card, *total_max*: of all; *since_s*: when the watch began, Unix seconds."""
        self._changes_max: Final = changes_max
        self._total_max: Final = total_max
        # The card that changed last is the last.
        self._changes: Final[OrderedDict[_Key, list[tuple[float, Card | None]]]] = OrderedDict()
        self._total = 0
        # Cards without a change here have been as they are since then.
        self._since_s = since_s

    def note(self, at_s: float, before: Node | None, after: Node | None) -> None:
        """A node changed at *at_s*; None: it was not there, or is gone."""
        old, new = _cards(before), _cards(after)
        for key in old.keys() | new.keys():
            was, now = old.get(key), new.get(key)
            if was == now:
                continue
            changes = self._changes.get(key)
            if changes is None:
                changes = self._changes[key] = [(self._since_s, was)] if was is not None else []
                self._total += len(changes)
            changes.append((at_s, now))
            self._total += 1
            if len(changes) > self._changes_max:
                del changes[0]
                self._total -= 1
            self._changes.move_to_end(key)
        while self._total > self._total_max:
            _, dropped = self._changes.popitem(last=False)
            self._total -= len(dropped)
            self._since_s = max(self._since_s, dropped[-1][0])

    def of(self, node: str, card: Card, namespace: str = "") -> CardHistory:
        """Return the changes of *card* as it is now on *node*; with a *namespace*, only its pods as holders."""
        changes = self._changes.get(_Key(node, card.protocol, card.id), [(self._since_s, card)])
        return CardHistory(
            node=node,
            card=card.id,
            changes=tuple(CardChange(at=time_text(at_s), card=_shown(one, namespace)) for at_s, one in changes),
        )


def _cards(node: Node | None) -> Mapping[_Key, Card]:
    return {_Key(node.name, card.protocol, card.id): card for card in node.cards} if node is not None else {}


def _shown(card: Card | None, namespace: str) -> Card | None:
    return card_for(card, namespace) if card is not None and namespace else card
