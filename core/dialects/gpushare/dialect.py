"""The share plugin's two protocols behind the port."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from core import names
from core.dialects.gpushare import cards as _cards
from core.dialects.gpushare import pods
from core.dialects.gpushare.cards import MEMORY, NUMBER, MemoryRules, Mode, WholeRules
from core.model import AnyPod, Node, Pod
from core.port.cards import CardWish, Held, Offer, Wording
from core.port.handoff import InFlight
from core.port.refusals import Complaint, Reason, Shortfall, Violation
from core.port.spec import MIG_MANAGER, DialectSpec
from core.settings import DialectName, Tables
from core.sharing.account import Assignment
from core.sharing.card import Card
from core.sharing.dialect import SharedCards
from core.sharing.request import Request
from core.warnings import AdmissionWarning, no_effect


class GpuMemory(SharedCards):
    """`Dialect` of core.port for memory of one card."""

    name: DialectName = MEMORY.dialect
    mode: Mode = MEMORY
    rules = MemoryRules()
    # An index means a card of its node.
    has_ids = False
    sells = (MEMORY.named,)
    types_key = ""
    assignment_keys = frozenset({names.GPU_INDEX, pods.PREDICATE_TIME, pods.ASSIGNED})
    preferences = names.PLACE_WISHES

    annotations = staticmethod(pods.annotations)
    next_stamp = staticmethod(pods.next_stamp)

    def offer(self, node: Node, tables: Tables) -> Offer[Card] | Complaint | None:
        return _cards.offer(node, self.mode)

    def request(self, pod: AnyPod, tables: Tables) -> Request | tuple[Violation, ...] | None:
        return pods.request(pod, self.mode)

    def warnings(self, pod: AnyPod, request: Request, tables: Tables) -> Iterator[AdmissionWarning]:
        if ids := pods.unheard_ids(pod):
            why = "these nodes know their cards by position, not by id"
            found = ", ".join(sorted(ids))
            yield no_effect(f"annotation {names.AVOIDED_CARDS}", found, why, "write positions such as '0,2'")

    def held(self, pod: Pod, cards: Sequence[Card], tables: Tables) -> Held[Assignment] | None:
        return pods.held(pod, cards, self.mode)

    def confusable(self, request: Request) -> frozenset[Hashable]:
        return pods.marks(self.mode.resource, request.asks[0].parts)

    def in_flight(self, pod: Pod, tables: Tables) -> InFlight | None:
        return pods.in_flight(pod, self.mode.resource)


class GpuNumber(GpuMemory):
    """`Dialect` of core.port for whole cards."""

    name = NUMBER.dialect
    mode = NUMBER
    sells = (NUMBER.named,)
    rules = WholeRules()

    def worded(self, wish: CardWish, tables: Tables) -> Sequence[Wording]:
        return super().worded(wish._replace(cores_pct=None), tables) if wish.is_whole else ()

    def shortfalls(self, cards: Sequence[Card], request: Request) -> tuple[Shortfall, ...]:
        # How many cards are idle, and why the others are not.
        ask = request.asks[0]
        refused = [one for one in super().shortfalls(cards, request) if one.card]
        idle = len(cards) - len(refused)
        return (Shortfall("", Reason.CARD_COUNT, ask.number, idle, ask.unit("idle cards")), *refused)

    def relaxed(self, cards: Sequence[Card], request: Request, reason: Reason, amount: int) -> Request | None:
        # Positions name as many cards as are asked for.
        fixed = reason is Reason.CARD_COUNT and request.selection.indices
        return None if fixed else super().relaxed(cards, request, reason, amount)


GPU_MEMORY: Final = DialectSpec(
    port=GpuMemory(),
    cards="nvidia",
    key_prefixes=("volcano.sh/",),
    switch="GPUSharingEnable",
    old_switch=True,
    plugin_accounts=("system:serviceaccount:kube-system:volcano-device-plugin",),
    # What tells how far the plugin is.
    marks=frozenset({pods.PREDICATE_TIME, pods.ASSIGNED, names.SEGMENT_QUEUE}),
    pausing=MIG_MANAGER,
    rotate=pods.rotate,
    # Source: nvidia 2.7.
    time_lock="gpu",
)
GPU_NUMBER: Final = replace(GPU_MEMORY, port=GpuNumber(), switch="GPUNumberEnable", time_lock="")
