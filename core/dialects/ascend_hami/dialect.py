"""The HAMi protocol for Ascend behind the port; each question is answered in a file of its own."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Final

from core import hami_lock
from core.dialects.ascend_hami import cards as _cards
from core.dialects.ascend_hami import fit, handoff, keys, requests, usage, warnings
from core.dialects.ascend_hami.cards import Card
from core.dialects.ascend_hami.requests import Request
from core.dialects.ascend_hami.usage import Assignment
from core.model import AnyPod, Node, Pod
from core.port.cards import CardShare, CardWish, Held, Hole, NodeRoom, Offer, Placed, Tally, Want, Wording
from core.port.handoff import InFlight, Stamp
from core.port.optional import (
    Furnishing,
    Metering,
    Packing,
    PackingByCard,
    Reading,
    Typical,
)
from core.port.refusals import Complaint, Reason, Shortfall, Violation
from core.port.spec import DialectSpec
from core.settings import DialectName, Policy
from core.sharing.dialect import Declared, HealingByFault
from core.sharing.handoff import ByNodeLock
from core.sharing.resources import Resources, worded
from core.tables import AscendChip, Tables
from core.warnings import AdmissionWarning


class AscendHami(
    ByNodeLock,
    Declared,
    Furnishing[Request],
    Reading[Request],
    HealingByFault[Card],
    Typical[Card],
    Metering[Card, Assignment],
    Packing[Card, Request],
    PackingByCard[Card, Request, Assignment],
):
    """`Dialect` and `Locking` of core.port for Ascend chips handed over by the HAMi device plugin."""

    name: DialectName = DialectName("ascend_hami")

    def declared(self, tables: Tables) -> tuple[Resources, ...]:
        """Return the names of each chip type."""
        return tuple([_declared(chip) for chip in tables.ascend.chips])

    def worded(self, wish: CardWish, tables: Tables) -> Sequence[Wording]:
        """See `Worded`; the type is in the names."""
        wanted = [one.strip().lower() for one in wish.types.split(",") if one.strip()]
        return tuple(
            worded(wish._replace(types=""), _declared(chip))
            for chip in tables.ascend.chips
            if not wanted or any(one in chip.common_word.lower() for one in wanted)
        )

    def paired(self, tables: Tables) -> frozenset[str]:
        """The chips of types that come in modules of two."""
        return frozenset(chip.resource for chip in tables.ascend.chips if chip.paired)

    def assignment_keys(self, tables: Tables) -> frozenset[str]:
        """Pod annotations that only schedulers and the plugin write."""
        words = [chip.common_word for chip in tables.ascend.chips]
        return keys.COMMON_KEYS.union(
            *((keys.to_allocate(w), keys.allocated(w), keys.runtime_info(w)) for w in words),
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

    def at_best(self, cards: tuple[Card, ...]) -> tuple[Card, ...]:
        """*cards* if all were well, named by their places."""
        return tuple(_cards.unnamed(card, at) for at, card in enumerate(self.healed(cards)))

    def place(self, cards: Sequence[Card], request: Request, policy: Policy) -> Placed[Assignment] | None:
        """The chips that *request* gets under *policy*, or None."""
        return fit.place(cards, request, policy)

    def shortfalls(self, cards: Sequence[Card], request: Request) -> tuple[Shortfall, ...]:
        """Why `place` answers None, chip by chip with numbers."""
        return fit.shortfalls(cards, request)

    def relaxed(self, cards: Sequence[Card], request: Request, reason: Reason, amount: int) -> Request | None:
        """*request*, no container asking for more than *amount* of what *reason* counts."""
        return fit.relaxed(cards, request, reason, amount)

    def take(self, cards: tuple[Card, ...], assignment: Assignment) -> tuple[Card, ...]:
        """The cards after *assignment* is in use on them."""
        return usage.take(cards, assignment)

    def give_back(self, cards: tuple[Card, ...], assignment: Assignment) -> tuple[Card, ...]:
        """The cards after *assignment* is given back."""
        return usage.give_back(cards, assignment)

    def room(self, cards: Sequence[Card]) -> NodeRoom:
        """What bounds need to know of a node's chips."""
        return usage.room(cards)

    def width(self, request: Request) -> int:
        """How many different chips of one node *request* needs at once."""
        return fit.width(request)

    def want(self, request: Request, kind: Hashable, policy: Policy) -> Want | None:
        """What *request* asks of chips of *kind*; None if such a chip can never serve it."""
        del policy
        return fit.want(request, kind)

    def bounded(self, request: Request, policy: Policy) -> bool:
        """Whether `want` bounds the score by free amounts."""
        return fit.bounded(request, policy)

    def idle_score(self, request: Request, idle: int, policy: Policy) -> float:
        """With `bounded` False: the highest score that a node with *idle* idle chips can reach."""
        return fit.idle_score(request, idle, policy)

    def holes(self, cards: Sequence[Card]) -> tuple[Hole, ...]:
        """What is left of each chip to be sold."""
        return usage.holes(cards)

    def by_card(self, request: Request) -> bool:
        """Where one container asks for one chip."""
        return len(request.asks) == 1 and request.asks[0].number == 1

    def left(self, cards: Sequence[Card], request: Request, slot: int) -> Hole | None:
        """What would be left of the chip at *slot*."""
        return fit.left(cards[slot], request)

    def alone(self, cards: Sequence[Card], request: Request, slot: int) -> Placed[Assignment]:
        """What *request* gets of the chip at *slot*."""
        return fit.alone(cards, request, slot)

    def overcommitted(self, cards: Sequence[Card]) -> tuple[str, ...]:
        """The chips that hold more than they have, each as a sentence with numbers."""
        return usage.overcommitted(cards)

    def tally(self, cards: Sequence[Card]) -> tuple[Tally, ...]:
        """Every chip with how much of it is in use, for people."""
        return usage.tally(cards)

    def sold(self, cards: Sequence[Card], tables: Tables) -> Mapping[str, int]:
        """Memory and, where they are shared in percent, cores of the healthy chips of each type."""
        found: dict[str, int] = {}
        for chip in tables.ascend.chips:
            healthy = [one.fixed for one in cards if one.fixed.fault is None and one.fixed.word == chip.common_word]
            if healthy:
                found[chip.memory_resource] = sum([one.memory for one in healthy]) // chip.memory_factor
                found[chip.core_resource] = sum([one.cores for one in healthy if one.soft])
        return found

    def metered(self, assignment: Assignment, tables: Tables) -> Mapping[str, int]:
        """Memory on all chips, at the pod's peak."""
        chip = next((one for one in tables.ascend.chips if one.common_word == assignment.word), None)
        if chip is None:
            return {}
        return {chip.memory_resource: -(-sum([one.memory for one in assignment.charges]) // chip.memory_factor)}

    def budgeted(self, tables: Tables) -> tuple[str, ...]:
        """The memory of each type of chip."""
        return tuple(chip.memory_resource for chip in tables.ascend.chips)

    def annotations(self, assignment: Assignment, stamp: Stamp, tables: Tables) -> Mapping[str, str]:
        """What the Binding must carry."""
        del tables
        return handoff.annotations(assignment, stamp)

    def guesses(self, pod: Pod, tables: Tables) -> bool:
        """Where several containers have chips: it drops the lock after each (D-1)."""
        asked = self.request(pod, tables)
        return isinstance(asked, Request) and len(asked.asks) > 1

    def in_flight(self, pod: Pod, tables: Tables) -> InFlight | None:
        """*pod* as the plugin sees it; None if it never serves it."""
        return handoff.in_flight(pod, tables)

    def describe(self, assignment: Assignment, cards: Sequence[Card]) -> tuple[CardShare, ...]:
        """What each entry holds of its chip, for people."""
        del cards
        return usage.described(assignment)

    def preferences(self, tables: Tables) -> frozenset[str]:
        """Which chips, and how they are cut."""
        return warnings.preferences(tables)

    def recognised(self, request: Request, tables: Tables) -> frozenset[str]:
        """Its preferences, of the lists those of the chip type that is asked for."""
        del tables
        return warnings.recognised(request)

    def warnings(self, pod: AnyPod, request: Request, tables: Tables) -> Iterator[AdmissionWarning]:
        """Figures and words of *pod* that have no effect, or give more than they say."""
        del request
        return warnings.of(pod, tables)

    def labels(self) -> frozenset[str]:
        """None."""
        return frozenset()

    def completed(self, pod: Pod, request: Request, tables: Tables) -> tuple[Pod, tuple[AdmissionWarning, ...]]:
        """*pod* with the runtime class of its chip type."""
        return warnings.completed(pod, request, tables)

    def runtime_classes(self, tables: Tables) -> frozenset[str]:
        """Those of its chip types."""
        return frozenset([one.runtime_class for one in tables.ascend.chips if one.runtime_class])


def _declared(chip: AscendChip) -> Resources:
    return Resources(chip.resource, chip.memory_resource, chip.core_resource, mib_per_unit=chip.memory_factor)


DIALECT: Final = DialectSpec(
    port=AscendHami(),
    cards="ascend",
    key_prefixes=("huawei.com/", "hami.io/"),
    switch="AscendHAMiVNPUEnable",
    plugin_accounts=("system:serviceaccount:kube-system:hami-ascend",),
    ignored=hami_lock.IGNORED,
)
