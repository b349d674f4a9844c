"""The share plugin's two protocols behind the port; each question is answered in a file of its own."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from core import names
from core.dialects.gpushare import cards as _cards
from core.dialects.gpushare import handoff, requests, usage
from core.dialects.gpushare.cards import MEMORY, NUMBER, Mode
from core.dialects.gpushare.rules import MemoryRules, WholeRules
from core.model import AnyPod, Node, Pod
from core.port.cards import CardWish, Held, Offer, Wording
from core.port.handoff import InFlight, Stamp
from core.port.names import Names
from core.port.refusals import Complaint, Reason, Shortfall, Violation
from core.port.spec import DialectSpec
from core.settings import DialectName
from core.sharing.account import Assignment
from core.sharing.card import Card
from core.sharing.dialect import SharedCards
from core.sharing.request import Request
from core.sharing.resources import Resources
from core.tables import Tables
from core.warnings import AdmissionWarning, no_effect


class GpuMemory(SharedCards):
    """`Dialect` of core.port for memory of one card."""

    name: DialectName = MEMORY.dialect
    mode: Mode = MEMORY
    rules = MemoryRules()

    def declared(self, tables: Tables) -> tuple[Resources, ...]:
        """Return the memory, which is the plugin's to count."""
        del tables
        return (Resources(memory=self.mode.resource),)

    def worded(self, wish: CardWish, tables: Tables) -> Sequence[Wording]:
        """See `Usual`: memory of one card, of any type."""
        del tables
        if wish.memory_mib is None or wish.cards != 1 or wish.cores_pct is not None or wish.types:
            return ()
        return (Wording({self.mode.resource: str(wish.memory_mib)}),)

    def identities(self, cards: Sequence[Card]) -> tuple[str, ...]:
        """Return nothing: an index means a card of its node."""
        del cards
        return ()

    def names(self, tables: Tables) -> Names:
        """See `Reads`; cards are chosen by position."""
        keys = frozenset({names.GPU_INDEX, handoff.PREDICATE_TIME, handoff.ASSIGNED})
        return replace(super().names(tables), assignment_keys=keys, preferences=names.PLACE_WISHES)

    def offer(self, node: Node, tables: Tables) -> Offer[Card] | Complaint | None:
        """The cards of *node*; None if it has none, or sells them in the other mode."""
        del tables
        return _cards.offer(node, self.mode)

    def request(self, pod: AnyPod, tables: Tables) -> Request | tuple[Violation, ...] | None:
        """What *pod* asks; None if nothing; violations if it may not be asked so."""
        del tables
        return requests.request(pod, self.mode)

    def warnings(self, pod: AnyPod, request: Request, tables: Tables) -> Iterator[AdmissionWarning]:
        """CS116: cards to avoid by id."""
        del request, tables
        if ids := requests.unheard_ids(pod):
            why = "these nodes know their cards by position, not by id"
            found = ", ".join(sorted(ids))
            yield no_effect(f"annotation {names.AVOIDED_CARDS}", found, why, "write positions such as '0,2'")

    def held(self, pod: Pod, cards: Sequence[Card], tables: Tables) -> Held[Assignment] | None:
        """What bound *pod* holds by its annotations, whoever bound it."""
        del tables
        return usage.held(pod, cards, self.mode)

    def annotations(self, assignment: Assignment, stamp: Stamp, tables: Tables) -> Mapping[str, str]:
        """What the Binding must carry."""
        del tables
        return handoff.annotations(assignment, stamp)

    def next_stamp(self, pods: Sequence[Pod], now_s: int) -> int:
        """The time that is above that of every pod of the node that is still to be served."""
        return handoff.next_stamp(pods, now_s)

    def confusable(self, request: Request) -> frozenset[Hashable]:
        """What the plugin could mistake a pod with *request* by: the exact amount of a container."""
        return handoff.confusable(request, self.mode.resource)

    def in_flight(self, pod: Pod, tables: Tables) -> InFlight | None:
        """*pod* as the plugin sees it; None if it never serves it."""
        del tables
        return handoff.in_flight(pod, self.mode.resource)


class GpuNumber(GpuMemory):
    """`Dialect` of core.port for whole cards."""

    name = NUMBER.dialect
    mode = NUMBER
    rules = WholeRules()

    def declared(self, tables: Tables) -> tuple[Resources, ...]:
        """Return the number of cards."""
        del tables
        return (Resources(cards=self.mode.resource),)

    def worded(self, wish: CardWish, tables: Tables) -> Sequence[Wording]:
        """See `Usual`: whole cards, of any type."""
        del tables
        return (Wording({self.mode.resource: str(wish.cards)}),) if wish.is_whole and not wish.types else ()

    def shortfalls(self, cards: Sequence[Card], request: Request) -> tuple[Shortfall, ...]:
        """Return how many cards are idle, and why the others are not."""
        ask = request.asks[0]
        refused = [one for one in super().shortfalls(cards, request) if one.card]
        idle = len(cards) - len(refused)
        return (Shortfall("", Reason.CARD_COUNT, ask.number, idle, ask.unit("idle cards")), *refused)

    def relaxed(self, cards: Sequence[Card], request: Request, reason: Reason, amount: int) -> Request | None:
        """See `Places`; positions name as many cards as are asked for."""
        fixed = reason is Reason.CARD_COUNT and request.selection.indices
        return None if fixed else super().relaxed(cards, request, reason, amount)


# What tells how far the plugin is.
_MARKS: Final = frozenset({handoff.PREDICATE_TIME, handoff.ASSIGNED, names.SEGMENT_QUEUE})
_ACCOUNTS: Final = ("system:serviceaccount:kube-system:volcano-device-plugin",)
GPU_MEMORY: Final = DialectSpec(
    port=GpuMemory(),
    cards="nvidia",
    key_prefixes=("volcano.sh/",),
    switch="GPUSharingEnable",
    old_switch=True,
    plugin_accounts=_ACCOUNTS,
    marks=_MARKS,
    rotate=handoff.rotate,
    # Source: nvidia 2.7.
    time_lock="gpu",
)
GPU_NUMBER: Final = DialectSpec(
    port=GpuNumber(),
    cards="nvidia",
    key_prefixes=("volcano.sh/",),
    switch="GPUNumberEnable",
    old_switch=True,
    plugin_accounts=_ACCOUNTS,
    marks=_MARKS,
    rotate=handoff.rotate,
)
