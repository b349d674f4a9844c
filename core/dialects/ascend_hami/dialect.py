"""The HAMi protocol for Ascend behind the port; each question is answered in a file of its own."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from core import hami_lock
from core.dialects.ascend_hami import cards as _cards
from core.dialects.ascend_hami import handoff, keys, requests, usage, warnings
from core.dialects.ascend_hami.rules import AscendRules
from core.dialects.ascend_hami.table import SECTION, AscendChip, AscendTable
from core.model import AnyPod, Node, Pod
from core.port.cards import CardWish, Held, Offer, Tally, Wording
from core.port.handoff import InFlight, Stamp
from core.port.names import Names
from core.port.refusals import Complaint, Reason, Violation
from core.port.spec import DialectSpec
from core.settings import DialectName
from core.sharing.account import Assignment
from core.sharing.card import Card
from core.sharing.dialect import SharedCards
from core.sharing.handoff import ByNodeLock, NodeLock
from core.sharing.request import Request
from core.sharing.resources import Resources, worded
from core.tables import Tables
from core.warnings import AdmissionWarning

# What people see of how a chip is shared.
_NOTES: Final = {keys.SOFT_MODE: "soft slicing", keys.TEMPLATE_MODE: ""}


class AscendHami(ByNodeLock, SharedCards):
    """`Dialect` of core.port for Ascend chips handed over by the HAMi device plugin."""

    name: DialectName = DialectName("ascend_hami")
    rules = AscendRules()

    def declared(self, tables: Tables) -> tuple[Resources, ...]:
        """Return the names of each chip type."""
        return tuple([_declared(chip) for chip in tables.of(AscendTable).chips])

    def worded(self, wish: CardWish, tables: Tables) -> Sequence[Wording]:
        """See `Usual`; the type is in the names."""
        wanted = [one.strip().lower() for one in wish.types.split(",") if one.strip()]
        return tuple(
            worded(wish._replace(types=""), _declared(chip))
            for chip in tables.of(AscendTable).chips
            if not wanted or any(one in chip.common_word.lower() for one in wanted)
        )

    def names(self, tables: Tables) -> Names:
        """See `Reads`; of each type of chip."""
        chips = tables.of(AscendTable).chips
        words = [chip.common_word for chip in chips]
        return replace(
            super().names(tables),
            assignment_keys=keys.COMMON_KEYS.union(
                *((keys.to_allocate(w), keys.allocated(w), keys.runtime_info(w)) for w in words),
            ),
            preferences=warnings.preferences(tables),
            paired=frozenset([chip.resource for chip in chips if chip.paired]),
            budgeted=tuple([chip.memory_resource for chip in chips]),
            runtime_classes=frozenset([one.runtime_class for one in chips if one.runtime_class]),
        )

    def offer(self, node: Node, tables: Tables) -> Offer[Card] | Complaint | None:
        """The chips that *node* registers; None without a register, a complaint if none can be used."""
        return _cards.offer(node, tables)

    def request(self, pod: AnyPod, tables: Tables) -> Request | tuple[Violation, ...] | None:
        """What *pod* asks; None if nothing; violations if it may not be asked so."""
        return requests.request(pod, tables)

    def held(self, pod: Pod, cards: Sequence[Card], tables: Tables) -> Held[Assignment] | None:
        """What bound *pod* holds by its annotations, whoever bound it."""
        return usage.held(pod, cards, tables)

    def identities(self, cards: Sequence[Card]) -> tuple[str, ...]:
        """None: they tell the chips of one node apart, and no more."""
        del cards
        return ()

    def relaxed(self, cards: Sequence[Card], request: Request, reason: Reason, amount: int) -> Request | None:
        """*request*, no container asking for more than *amount* of what *reason* counts."""
        return requests.relaxed(cards, request, reason, amount)

    def tally(self, cards: Sequence[Card]) -> tuple[Tally, ...]:
        """Every chip with how much of it is in use, for people."""
        return tuple([one._replace(note=_NOTES.get(one.note, one.note)) for one in super().tally(cards)])

    def sold(self, cards: Sequence[Card], tables: Tables) -> Mapping[str, int]:
        """Memory and, where they are shared in percent, cores of the healthy chips of each type."""
        found: dict[str, int] = {}
        for chip in tables.of(AscendTable).chips:
            healthy = [one.fixed for one in cards if one.fixed.fault is None and one.fixed.label == chip.common_word]
            if healthy:
                found[chip.memory_resource] = sum([one.memory for one in healthy]) // chip.memory_factor
                found[chip.core_resource] = sum([one.cores for one in healthy if one.kind.mode == keys.SOFT_MODE])
        return found

    def metered(self, assignment: Assignment, tables: Tables) -> Mapping[str, int]:
        """Memory on all chips, at the pod's peak."""
        chip = next((one for one in tables.of(AscendTable).chips if one.common_word == assignment.type), None)
        if chip is None:
            return {}
        return {chip.memory_resource: -(-sum([one.memory for one in assignment.charges]) // chip.memory_factor)}

    def annotations(self, assignment: Assignment, stamp: Stamp, tables: Tables) -> Mapping[str, str]:
        """What the Binding must carry."""
        del tables
        return handoff.annotations(assignment, stamp)

    def in_flight(self, pod: Pod, tables: Tables) -> InFlight | None:
        """*pod* as the plugin sees it; None if it never serves it."""
        return handoff.in_flight(pod, tables)

    def recognised(self, request: Request, tables: Tables) -> frozenset[str]:
        """Its preferences, of the lists those of the chip type that is asked for."""
        del tables
        return warnings.recognised(request)

    def warnings(self, pod: AnyPod, request: Request, tables: Tables) -> Iterator[AdmissionWarning]:
        """Figures and words of *pod* that have no effect, or give more than they say."""
        del request
        return warnings.of(pod, tables)

    def completed(self, pod: Pod, request: Request, tables: Tables) -> tuple[Pod, tuple[AdmissionWarning, ...]]:
        """*pod* with the runtime class of its chip type."""
        return warnings.completed(pod, request, tables)


def _declared(chip: AscendChip) -> Resources:
    return Resources(chip.resource, chip.memory_resource, chip.core_resource, mib_per_unit=chip.memory_factor)


def _guesses(pod: Pod, tables: Tables) -> bool:
    """Return whether several containers have chips: the plugin drops the lock after each (D-1)."""
    asked = requests.request(pod, tables)
    return isinstance(asked, Request) and len(asked.asks) > 1


DIALECT: Final = DialectSpec(
    port=AscendHami(),
    cards="ascend",
    key_prefixes=("huawei.com/", "hami.io/"),
    switch="AscendHAMiVNPUEnable",
    plugin_accounts=("system:serviceaccount:kube-system:hami-ascend",),
    ignored=hami_lock.IGNORED,
    node_lock=NodeLock(_guesses),
    sections=(SECTION,),
)
