"""Pods without card requests, judged through the same port as others: a node is their one card.

`core.model.has_room` refuses nodes; this module only scores them. Nodes without cards come first. Then come nodes on
which the free cards keep enough cpu and memory for pods that need both; of these, the fullest or the emptiest by the
policy. Nodes that would keep too little come last, those that lack least first. It is not a dialect: no node offers it,
no configuration names it, and no pod holds anything of it.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from core import names
from core.model import Amounts
from core.port.cards import Bound, NodeRoom, Placed, Want
from core.port.dialect import AnyDialect
from core.port.refusals import Reason, Shortfall
from core.settings import DialectName, Policy

_BARE: Final = 100.0
# A free card keeps this part of its share of the node's cpu and memory, in parts per million. On the public trace of
# docs/maintainers/benchmarks.md, pods with cards request 63 % of that cpu in the mean.
_KEPT_PPM: Final = 666_667
_ALL_PPM: Final = 1_000_000


class NodeCard(NamedTuple):
    """A node's capacity and what is free of it: cpu in thousandths, memory in bytes.

    offers: its cards, by dialect, in those that accept pods. bare: it has no cards.
    """

    cpu: int
    memory: int
    free_cpu: int
    free_memory: int
    offers: Mapping[DialectName, tuple[Any, ...]]
    bare: bool


class CardlessRequest(NamedTuple):
    """A pod's cpu, in thousandths, and memory, in bytes."""

    cpu: int
    memory: int


class _Kind(NamedTuple):
    cpu: int
    bare: bool


def card_of(
    allocatable: Mapping[str, int],
    used: Mapping[str, int],
    offers: Mapping[DialectName, tuple[Any, ...]],
    closed: Mapping[DialectName | None, str],
) -> NodeCard:
    """Return the node as a card."""
    cpu, memory = allocatable.get(names.CPU, 0), allocatable.get(names.MEMORY, 0)
    free_cpu = max(cpu - used.get(names.CPU, 0), 0)
    free_memory = max(memory - used.get(names.MEMORY, 0), 0)
    accepting = {name: cards for name, cards in offers.items() if cards and name not in closed}
    return NodeCard(cpu, memory, free_cpu, free_memory, accepting, not any(offers.values()))


def request_of(amounts: Amounts) -> CardlessRequest:
    """Return the part of *amounts* that affects the score."""
    taken = dict(amounts)
    return CardlessRequest(taken.get(names.CPU, 0), taken.get(names.MEMORY, 0))


class Cardless:
    """Judges pods without cards: they get no card, only the best node."""

    def __init__(self, dialects: Mapping[DialectName, AnyDialect]) -> None:
        """Judge nodes whose cards are those of *dialects*."""
        self._dialects: Final = dialects

    def place(self, cards: Sequence[Any], request: Any, policy: Policy) -> Placed[Any] | None:
        """Place nothing on a card; only the node's score counts."""
        (card,) = cards
        if card.bare:
            return Placed((), _BARE)
        free_ppm = self._free_ppm(card)
        of_cpu = _score(_kept(card.cpu, free_ppm) + card.cpu - card.free_cpu, card.cpu - request.cpu, card.cpu)
        used_memory = card.memory - card.free_memory
        of_memory = _score(_kept(card.memory, free_ppm) + used_memory, card.memory - request.memory, card.memory)
        return Placed((), min(of_cpu, of_memory, 0.0))

    def stands(self, cards: Sequence[Any], request: Any, assignment: Any) -> bool:
        """Return True: no card can fail."""
        return True

    def room(self, cards: Sequence[Any]) -> NodeRoom:
        """Return the node as one card, which is idle if the node has no cards; *free*: its cpu in use, or kept."""
        (card,) = cards
        used_ppm = (_ppm(card.cpu - card.free_cpu, card.cpu) + _ppm(card.memory - card.free_memory, card.memory)) // 2
        taken = _kept(card.cpu, self._free_ppm(card)) + card.cpu - card.free_cpu
        return NodeRoom(int(card.bare), used_ppm, (_Kind(card.cpu, card.bare),), (taken,), (card.free_cpu,))

    def _free_ppm(self, card: NodeCard) -> int:
        """Return the part of the node's cards that pods can take."""
        most = 0
        for name, cards in card.offers.items():
            room = self._dialects[name].room(cards)
            # A card can have memory left and yet accept no more pods.
            most = max(most, min(_ALL_PPM - room.used_ppm, _ppm(len(room.free), len(cards))))
        return most

    def want(self, request: Any, kind: Hashable, policy: Policy) -> Want | None:
        """Return the cpu that the node lacks after placement; memory is not bounded."""
        if not isinstance(kind, _Kind):
            return None
        total = max(kind.cpu, 1)
        return Want(0, request.cpu, kind.cpu - request.cpu + 3 * total * kind.bare, total)

    def bound(self, request: Any, policy: Policy) -> Bound:
        """Return the bounds: `Want` bounds the score of the one node, and one that lacks nothing has the best."""
        return Bound(1, True, lambda idle: _BARE if idle else 0.0)

    def shortfalls(self, cards: Sequence[Any], request: Any) -> tuple[Shortfall, ...]:
        """Return nothing: no card can prevent the placement."""
        return ()

    def relaxed(self, cards: Sequence[Any], request: Any, reason: Reason, amount: int) -> Any | None:
        """Return None: there is no card request to reduce."""
        return None


def _ppm(used: int, total: int) -> int:
    return used * _ALL_PPM // total if total else _ALL_PPM


def _kept(total: int, free_ppm: int) -> int:
    """Return what cards of which *free_ppm* are free keep of *total*."""
    return total * free_ppm // _ALL_PPM * _KEPT_PPM // _ALL_PPM


def _score(taken: int, numerator: int, total: int) -> float:
    """Return the score by one resource, as `core.port.cards.Want` defines it."""
    return 100.0 * (numerator - taken) / max(total, 1)
