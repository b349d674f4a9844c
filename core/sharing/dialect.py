"""The part of the port that is the same for all dialects of shared cards."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from core import names
from core.port.cards import CardShare, CardWish, Hole, NodeRoom, Placed, Tally, Want, Wording
from core.port.optional import Counting, Healing, Identifying, Metering, Packing, PackingByCard, Typical, Worded
from core.port.refusals import PASSING, Fault, Reason, Shortfall
from core.port.typevars import CardT
from core.settings import Policy
from core.sharing import account, bounds, fit
from core.sharing import card as _card
from core.sharing import request as _request
from core.sharing.account import Assignment
from core.sharing.card import Card
from core.sharing.request import Request
from core.sharing.resources import Resources, has_words, names_of, worded
from core.sharing.rules import Rules
from core.tables import Tables


class Declared(Counting, Worded):
    """The roles of `core.port` that follow from the declared resources.

    Attributes:
        types_key: the annotation by which pods select types of cards, "" if there is none.
    """

    types_key: str = names.USE_GPU_TYPE

    def declared(self, tables: Tables) -> tuple[Resources, ...]:
        """Return the resources of each kind of card; () if the dialect sells nothing."""
        raise NotImplementedError

    def resources(self, tables: Tables) -> frozenset[str]:
        """See `Reads`."""
        return names_of(self.declared(tables))

    def uncounted(self, tables: Tables) -> frozenset[str]:
        """Return the parts of counted cards: no node advertises them, or kubelet charges them once per container."""
        return frozenset(self.counts(tables))

    def counts(self, tables: Tables) -> dict[str, str]:
        """See `Counting`."""
        return {name: one.cards for one in self._counted(tables) for name in one.parts}

    def memories(self, tables: Tables) -> dict[str, str]:
        """See `Counting`."""
        return {one.cards: one.memory for one in self._counted(tables)}

    def _counted(self, tables: Tables) -> list[Resources]:
        """Return the resources of cards that are counted, and of which each share has a part."""
        return [one for one in self.declared(tables) if one.cards and one.memory]

    def worded(self, wish: CardWish, tables: Tables) -> Sequence[Wording]:
        """See `Worded`."""
        key = self.types_key
        return tuple([worded(wish, one, key) for one in self.declared(tables) if has_words(wish, one, key)])


class HealingByFault(Healing[CardT]):
    """`Healing` for cards with `fixed`: a uuid, a fault that explains why they accept nothing new, and a problem."""

    def healed(self, cards: tuple[CardT, ...]) -> tuple[CardT, ...]:
        """See `Healing`."""
        return tuple([_with(card, None, "") if _fault(card) in PASSING else card for card in cards])

    def well(self, cards: tuple[CardT, ...]) -> frozenset[str]:
        """See `Healing`; cards are named by their uuids."""
        return frozenset([_uuid(card) for card in cards if _fault(card) is not Reason.UNHEALTHY])

    def kept_out(self, cards: tuple[CardT, ...], faults: Mapping[str, Fault]) -> tuple[CardT, ...]:
        """See `Healing`."""
        return tuple(
            [
                _with(card, *faults[_uuid(card)]) if _uuid(card) in faults and _fault(card) is None else card
                for card in cards
            ]
        )


def _fault(card: Any) -> Reason | None:
    fault: Reason | None = card.fixed.fault
    return fault


def _uuid(card: Any) -> str:
    uuid: str = card.fixed.uuid
    return uuid


def _with(card: Any, fault: Reason | None, problem: str) -> Any:
    return card._replace(fixed=replace(card.fixed, fault=fault, problem=problem))


class SharedCards(
    Declared,
    HealingByFault[Card],
    Identifying[Card],
    Typical[Card],
    Packing[Card, Request],
    PackingByCard[Card, Request, Assignment],
    Metering[Card, Assignment],
):
    """The roles of `core.port` that only depend on cards, requests and assignments; see there.

    Attributes:
        rules: what the dialect does differently.
    """

    rules: Rules = Rules()

    def healed(self, cards: tuple[Card, ...]) -> tuple[Card, ...]:
        """See `Healing`; the order of the cards is known too."""
        return tuple([_card.healed(one) for one in cards])

    def identities(self, cards: Sequence[Card]) -> tuple[str, ...]:
        """Return the uuids."""
        return tuple([one.fixed.uuid for one in cards])

    def at_best(self, cards: tuple[Card, ...]) -> tuple[Card, ...]:
        """See `Typical`."""
        return tuple([_card.at_best(one, at) for at, one in enumerate(cards)])

    def place(self, cards: Sequence[Card], request: Request, policy: Policy) -> Placed[Assignment] | None:
        """See `Places`."""
        return fit.place(self.rules, cards, request, policy)

    def shortfalls(self, cards: Sequence[Card], request: Request) -> tuple[Shortfall, ...]:
        """See `Places`."""
        return fit.shortfalls(self.rules, cards, request)

    def relaxed(self, cards: Sequence[Card], request: Request, reason: Reason, amount: int) -> Request | None:
        """See `Places`."""
        factors = [one.fixed.kind.factor for one in cards]
        return _request.relaxed(request, reason, amount, max(factors, default=1))

    def take(self, cards: tuple[Card, ...], assignment: Assignment) -> tuple[Card, ...]:
        """See `Accounts`."""
        return account.take(cards, assignment)

    def give_back(self, cards: tuple[Card, ...], assignment: Assignment) -> tuple[Card, ...]:
        """See `Accounts`."""
        return account.give_back(cards, assignment)

    def overcommitted(self, cards: Sequence[Card]) -> tuple[str, ...]:
        """See `Accounts`."""
        return account.overcommitted(cards, self.rules.measures)

    def room(self, cards: Sequence[Card]) -> NodeRoom:
        """See `Bounds`."""
        return bounds.room(self.rules, cards)

    def width(self, request: Request) -> int:
        """See `Bounds`."""
        return _request.width(request)

    def want(self, request: Request, kind: Hashable, policy: Policy) -> Want | None:
        """See `Bounds`."""
        del policy
        return bounds.want(self.rules, request, kind)

    def bounded(self, request: Request, policy: Policy) -> bool:
        """See `Bounds`."""
        return bounds.bounded(request, policy)

    def idle_score(self, request: Request, idle: int, policy: Policy) -> float:
        """See `Bounds`."""
        return self.rules.idle_score(request, idle, policy)

    def holes(self, cards: Sequence[Card]) -> tuple[Hole, ...]:
        """See `Packing`."""
        return bounds.holes(cards)

    def packs(self, request: Request) -> bool:
        """Return whether the pod leaves the order of nodes to the settings."""
        return not request.order.nodes

    def by_card(self, request: Request) -> bool:
        """Return whether one container asks for one card, and the pod leaves the order of cards to the settings."""
        wanted = request.order
        if self.rules.chooses:
            return False
        return len(request.asks) == 1 and request.asks[0].number == 1 and not (wanted.policies or wanted.bound)

    def left(self, cards: Sequence[Card], request: Request, slot: int) -> Hole | None:
        """See `PackingByCard`."""
        return fit.left(self.rules, cards[slot], request)

    def alone(self, cards: Sequence[Card], request: Request, slot: int) -> Placed[Assignment]:
        """See `PackingByCard`."""
        return fit.alone(self.rules, cards, request, slot)

    def tally(self, cards: Sequence[Card]) -> tuple[Tally, ...]:
        """See `Shows`."""
        return account.tally(cards, self.rules.measures)

    def describe(self, assignment: Assignment, cards: Sequence[Card]) -> tuple[CardShare, ...]:
        """See `Shows`."""
        return account.described(assignment, cards, self.rules.measures)

    def sold(self, cards: Sequence[Card], tables: Tables) -> Mapping[str, int]:
        """Return whole units of memory, cores and percent of the healthy cards."""
        healthy = [one.fixed for one in cards if one.fixed.fault is None]
        memory_mib = sum([one.memory * one.kind.factor for one in healthy])
        cores_pct = sum([one.cores for one in healthy])
        found: dict[str, int] = {}
        for one in self._counted(tables):
            found |= {one.memory: memory_mib // one.mib_per_unit, one.cores: cores_pct}
            found |= {one.percentage: 100 * len(healthy)}
        return {name: amount for name, amount in found.items() if name}

    def metered(self, assignment: Assignment, tables: Tables) -> Mapping[str, int]:
        """Return memory and cores on all cards at the pod's peak; the charges must be in MiB."""
        charges = assignment.charges
        return self.metered_as(sum([one.memory for one in charges]), sum([one.cores for one in charges]), tables)

    def metered_as(self, memory_mib: int, cores_pct: int, tables: Tables) -> Mapping[str, int]:
        """Return these totals by resource; a percentage counts as the memory that it becomes.

        A part of a unit counts as a whole unit, so that many pods together do not exceed a quota.
        """
        found: dict[str, int] = {}
        for one in self._counted(tables):
            found |= {one.memory: -(-memory_mib // one.mib_per_unit), one.cores: cores_pct, one.percentage: 0}
        return {name: amount for name, amount in found.items() if name}

    def budgeted(self, tables: Tables) -> tuple[str, ...]:
        """Return memory and cores."""
        return tuple([name for one in self._counted(tables) for name in (one.memory, one.cores) if name])
