"""Pods without card requests, judged through the same port as others: a node is their one card.

`core.nodefit` refuses nodes; this module only scores them. Nodes without cards come first, so that cpu and memory
beside cards stay free for pods that need both; then the fullest or the emptiest by cpu, according to the policy. It is
not a dialect: no node offers it, no configuration names it, and no pod holds anything of it.
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
    """A node's free capacity: cpu in thousandths, memory in bytes. bare: it has no cards. used_ppm: mean of both."""

    cpu: int
    free_cpu: int
    free_memory: int
    used_ppm: int
    bare: bool


class Request(NamedTuple):
    """A pod's cpu, in thousandths, and memory, in bytes."""

    cpu: int
    memory: int


class _Kind(NamedTuple):
    cpu: int
    bare: bool


def card_of(allocatable: Mapping[str, int], used: Mapping[str, int], *, bare: bool) -> NodeCard:
    """Return the node as a card."""
    cpu, memory = allocatable.get(names.CPU, 0), allocatable.get(names.MEMORY, 0)
    free_cpu = max(cpu - used.get(names.CPU, 0), 0)
    free_memory = max(memory - used.get(names.MEMORY, 0), 0)
    used_ppm = (_ppm(cpu - free_cpu, cpu) + _ppm(memory - free_memory, memory)) // 2
    return NodeCard(cpu, free_cpu, free_memory, used_ppm, bare)


def _ppm(used: int, total: int) -> int:
    return used * 1_000_000 // total if total else 1_000_000


def request_of(amounts: Amounts) -> Request:
    """Return the part of *amounts* that affects the score."""
    taken = dict(amounts)
    return Request(taken.get(names.CPU, 0), taken.get(names.MEMORY, 0))


class Cardless:
    """Judges pods without cards: they get no card, only the best node."""

    def place(self, cards: Sequence[Any], request: Any, policy: Policy) -> Placed[Any] | None:
        """Place nothing on a card; only the node's score counts."""
        (card,) = cards
        if policy is Policy.BINPACK:
            want = self._want(request, _Kind(card.cpu, card.bare))
            return Placed((), 100.0 * (want.numerator - card.free_cpu) / want.total)
        return Placed((), _BARE if card.bare else 0.0)

    def room(self, cards: Sequence[Any]) -> NodeRoom:
        """Return the node as one card, which is idle if the node has no cards."""
        (card,) = cards
        kind = _Kind(card.cpu, card.bare)
        return NodeRoom(int(card.bare), card.used_ppm, (kind,), (card.free_cpu,), (card.free_memory,))

    def width(self, request: Any) -> int:
        """Return 1: a pod is on one node."""
        return 1

    def want(self, request: Any, kind: Hashable, policy: Policy) -> Want | None:
        """Return the cpu of the node in use after placement; nodes without cards score above all others."""
        return self._want(request, kind) if isinstance(kind, _Kind) else None

    def _want(self, request: Request, kind: _Kind) -> Want:
        total = max(kind.cpu, 1)
        return Want(request.cpu, request.memory, kind.cpu + request.cpu + 2 * total * kind.bare, total)

    def bounded(self, request: Any, policy: Policy) -> bool:
        """Return whether free cpu bounds the score: under binpack."""
        return policy is Policy.BINPACK

    def idle_score(self, request: Any, idle: int, policy: Policy) -> float:
        """Return the score of an idle node: one without cards is better than any other."""
        return _BARE if idle else 0.0

    def shortfalls(self, cards: Sequence[Any], request: Any) -> tuple[Shortfall, ...]:
        """Return nothing: no card can prevent the placement."""
        return ()

    def relaxed(self, cards: Sequence[Any], request: Any, reason: Reason, amount: int) -> Any | None:
        """Return None: there is no card request to reduce."""
        return None


CARDLESS: Final = Cardless()
