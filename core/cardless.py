"""Pods that ask for no cards, answered behind the same port as those that do: a node is their one card.

What refuses them is the node's own (`core.nodefit`); here is only which node is better. Nodes without cards come first,
so that cpu and memory beside cards are left to those who need both; then the fullest or the emptiest by cpu, as the
policy says. It is no dialect: nothing offers it, no configuration names it, and nobody holds anything of it.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from core import names
from core.nodefit import Amounts
from core.port.cards import NodeRoom, Placed, Want
from core.port.refusals import Reason, Shortfall
from core.settings import Policy

_BARE: Final = 100.0


class NodeCard(NamedTuple):
    """What a node has left: cpu in thousandths, memory in bytes. bare: it has no cards. used_ppm: of both."""

    cpu: int
    free_cpu: int
    free_memory: int
    used_ppm: int
    bare: bool


class Request(NamedTuple):
    """What a pod takes of cpu, in thousandths, and of memory, in bytes."""

    cpu: int
    memory: int


class _Kind(NamedTuple):
    cpu: int
    bare: bool


def card_of(allocatable: Mapping[str, int], used: Mapping[str, int], *, bare: bool) -> NodeCard:
    """The node as a card."""
    cpu, memory = allocatable.get(names.CPU, 0), allocatable.get(names.MEMORY, 0)
    free_cpu = max(cpu - used.get(names.CPU, 0), 0)
    free_memory = max(memory - used.get(names.MEMORY, 0), 0)
    used_ppm = (_ppm(cpu - free_cpu, cpu) + _ppm(memory - free_memory, memory)) // 2
    return NodeCard(cpu, free_cpu, free_memory, used_ppm, bare)


def _ppm(used: int, total: int) -> int:
    return used * 1_000_000 // total if total else 1_000_000


def request_of(amounts: Amounts) -> Request:
    """What of *amounts* decides which node is better."""
    taken = dict(amounts)
    return Request(taken.get(names.CPU, 0), taken.get(names.MEMORY, 0))


class Cardless:
    """What a pod without cards gets: nothing, of whichever node is best."""

    def place(self, cards: Sequence[Any], request: Any, policy: Policy) -> Placed[Any] | None:
        """Nothing is placed on a card; how good the node is, is what counts."""
        (card,) = cards
        if policy is Policy.BINPACK:
            want = self._want(request, _Kind(card.cpu, card.bare))
            return Placed((), 100.0 * (want.numerator - card.free_cpu) / want.total)
        return Placed((), _BARE if card.bare else 0.0)

    def room(self, cards: Sequence[Any]) -> NodeRoom:
        """The node as one card that is idle if no cards are on it."""
        (card,) = cards
        kind = _Kind(card.cpu, card.bare)
        return NodeRoom(int(card.bare), card.used_ppm, (kind,), (card.free_cpu,), (card.free_memory,))

    def width(self, request: Any) -> int:
        """A pod is on one node."""
        return 1

    def want(self, request: Any, kind: Hashable, policy: Policy) -> Want | None:
        """The part of the node's cpu that would be in use; where there are no cards, more than any other could have."""
        return self._want(request, kind) if isinstance(kind, _Kind) else None

    def _want(self, request: Request, kind: _Kind) -> Want:
        total = max(kind.cpu, 1)
        return Want(request.cpu, request.memory, kind.cpu + request.cpu + 2 * total * kind.bare, total)

    def bounded(self, request: Any, policy: Policy) -> bool:
        """By free cpu, where the fullest node is sought."""
        return policy is Policy.BINPACK

    def idle_score(self, request: Any, idle: int, policy: Policy) -> float:
        """A node without cards is better than any other."""
        return _BARE if idle else 0.0

    def shortfalls(self, cards: Sequence[Any], request: Any) -> tuple[Shortfall, ...]:
        """No card is in the way."""
        return ()

    def relaxed(self, cards: Sequence[Any], request: Any, reason: Reason, amount: int) -> Any | None:
        """Nothing of a card could be asked less of."""
        return None


CARDLESS: Final = Cardless()
