"""The cards of a node under the share plugin, which knows them by index alone, and how they compare.

Source: protocol reference, nvidia 1.5, 2.2, 2.3, 3.11 to 3.13, with S30 and S31 done as they say: the lowest index
first unless a policy is asked for.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from core.errors import InvalidRequestError
from core.model import Node
from core.names import GPU_UNHEALTHY, MAX_POD_ANNOTATION_BYTES
from core.port.cards import Offer
from core.port.refusals import Complaint, Reason
from core.settings import DialectName, Policy
from core.sharing.account import Entry
from core.sharing.card import Card, Fixed, Kind, Measures, shared
from core.sharing.fit import BY_USE, Rules
from core.sharing.order import Ranking
from core.sharing.request import Order, Request, Resources
from core.units import MAX_INT32, parse_amount, parse_count, parse_int64

# No machine has more cards; a capacity beyond it is a mistake that would cost work.
MAX_CARDS: Final = 1024


class Mode(NamedTuple):
    """One of the plugin's two modes; named: by which its cards are requested; label, word: the mode, for people."""

    dialect: DialectName
    named: Resources
    label: str
    word: str

    @property
    def resource(self) -> str:
        """The one resource of the mode."""
        return self.named.cards or self.named.memory


_MEMORY: Final = Resources(memory="volcano.sh/gpu-memory")
_CARDS: Final = Resources(cards="volcano.sh/gpu-number")
MEMORY: Final = Mode(DialectName("gpu_memory"), _MEMORY, "shared by memory", "memory")
NUMBER: Final = Mode(DialectName("gpu_number"), _CARDS, "whole cards", "whole")


class Capacity(NamedTuple):
    """The number of a node's cards, the memory of each in the plugin's unit, and the indices of unhealthy ones.

    memory is None if the node never ran the plugin's memory mode.
    """

    cards: int
    memory: int | None
    unhealthy: frozenset[int]

    @property
    def sold_as(self) -> Mode:
        """The mode of the node: cards with memory to share are not sold whole."""
        return MEMORY if self.memory else NUMBER


def decode_unhealthy(text: str) -> frozenset[int]:
    """Read ``gpu-unhealthy-ids``; pieces are trimmed (S31), and those that are no numbers name no card."""
    found = [parse_int64(piece.strip()) for piece in set(text[:MAX_POD_ANNOTATION_BYTES].split(","))]
    return frozenset([index for index in found if index is not None])


def capacity_of(node: Node) -> Capacity | None:
    """Return what *node* says of its cards; None if it has none.

    Raises:
        InvalidRequestError: a figure is no quantity, negative, or too large.
    """
    text = node.capacity.get(NUMBER.resource)
    cards = 0 if text is None else parse_count(text, f"capacity {NUMBER.resource}", MAX_CARDS)
    if not cards:
        return None
    memory = node.capacity.get(MEMORY.resource)
    return Capacity(
        cards=cards,
        memory=None if memory is None else parse_amount(memory, f"capacity {MEMORY.resource}") // cards,
        unhealthy=decode_unhealthy(node.annotations.get(GPU_UNHEALTHY, "")),
    )


def offer(node: Node, mode: Mode) -> Offer[Card] | Complaint | None:
    """Return the cards of *node*; None if it has none, or sells them in the other mode: no card is sold twice."""
    try:
        capacity = capacity_of(node)
    except InvalidRequestError as error:
        return Complaint(dialect=mode.dialect, field=error.field, problem=f"found {error.found}; {error.remedy}")
    return None if capacity is None or capacity.sold_as is not mode else Offer(cards=cards_of(capacity, mode))


@lru_cache(maxsize=256)
def cards_of(capacity: Capacity, mode: Mode) -> tuple[Card, ...]:
    """Return the cards of a node, nothing in use; a card that is sold whole counts as 1, and holds one share.

    Cards without ids are the same on all nodes that are alike.
    """
    memory, slots = (1, 1) if mode is NUMBER else (capacity.memory or 0, MAX_INT32)
    kind = shared(Kind(mode.word, (), "", memory))
    return tuple(
        [Card(_fixed(index, mode, kind, slots, index in capacity.unhealthy)) for index in range(capacity.cards)]
    )


def _fixed(index: int, mode: Mode, kind: Kind, slots: int, unhealthy: bool) -> Fixed:
    return Fixed(
        uuid=name_of(index),
        position=index,
        slots=slots,
        memory=kind.memory,
        cores=kind.cores,
        words=(),
        label=mode.label,
        kind=kind,
        fault=Reason.UNHEALTHY if unhealthy else None,
        problem="the device plugin says that it is unhealthy" if unhealthy else "",
    )


def name_of(index: int) -> str:
    """Return the name of a card among those of its node."""
    return f"GPU {index}"


class MemoryRules(Rules):
    """The rules of cards that are shared by memory alone."""

    measures = Measures(cores=False)

    def ranking(self, wanted: Order, policy: Policy) -> Ranking | None:
        """Return the order of *policy*: the fullest, the one with the fewest pods, or the first."""
        return BY_USE.get(policy)

    def score(self, cards: Sequence[Card], entries: Sequence[Entry], request: Request, policy: Policy) -> float:
        """Return whether the pod gets an idle card."""
        return 100.0 if policy is Policy.SPREAD and not cards[entries[0].slot].used_slots else 0.0


class WholeRules(MemoryRules):
    """The rules of cards that are sold whole: idle ones are alike, and no node is better than another."""

    measures = Measures(unit="card", cores=False, whole=True)

    def ranking(self, wanted: Order, policy: Policy) -> Ranking | None:
        """Return None: the first idle cards are taken."""
        return None

    def score(self, cards: Sequence[Card], entries: Sequence[Entry], request: Request, policy: Policy) -> float:
        """Return 0."""
        return 0.0

    def idle_score(self, request: Request, idle: int, policy: Policy) -> float:
        """Return 0."""
        return 0.0
