"""The part of the port that is the same for all dialects of shared cards."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Protocol

from core.names import USE_GPU_TYPE
from core.port.cards import Bound, CardShare, CardWish, Hole, NodeRoom, Placed, Tally, Want, Wording
from core.port.dialect import Dialect
from core.port.names import Names
from core.port.refusals import Fault, Reason, Shortfall
from core.port.typevars import AssignmentT, CardT, RequestT
from core.settings import Policy
from core.sharing import account, bounds, fit
from core.sharing import card as _card
from core.sharing import request as _request
from core.sharing.account import Assignment
from core.sharing.card import Card
from core.sharing.request import Request
from core.sharing.resources import Resources, has_words, worded
from core.sharing.rules import Rules
from core.tables import Tables


class Declared(Dialect[CardT, RequestT, AssignmentT], Protocol):
    """What follows of `core.port` from the declared resources.

    Attributes:
        types_key: the annotation by which pods select types of cards, "" if there is none.
    """

    types_key: str = USE_GPU_TYPE

    def declared(self, tables: Tables) -> tuple[Resources, ...]:
        """Return the resources of each kind of card; () if the dialect sells nothing."""
        ...

    def names(self, tables: Tables) -> Names:
        """See `Reads`; no node advertises a part of a counted card, or kubelet charges it once per container."""
        counted = self._counted(tables)
        counts = {name: one.cards for one in counted for name in one.parts}
        return Names(
            resources=frozenset([name for one in self.declared(tables) for name in (one.cards, *one.parts) if name]),
            uncounted=frozenset(counts),
            counts=counts,
            memories={one.cards: one.memory for one in counted},
            budgeted=tuple([name for one in counted for name in (one.memory, one.cores) if name]),
        )

    def _counted(self, tables: Tables) -> list[Resources]:
        """Return the resources of cards that are counted, and of which each share has a part."""
        return [one for one in self.declared(tables) if one.cards and one.memory]

    def worded(self, wish: CardWish, tables: Tables) -> Sequence[Wording]:
        """See `Usual`."""
        key = self.types_key
        return tuple([worded(wish, one, key) for one in self.declared(tables) if has_words(wish, one, key)])


class SharedCards(Declared[Card, Request, Assignment]):
    """The roles of `core.port` that only depend on cards, requests and assignments; see there.

    Attributes:
        rules: what the dialect does differently.
    """

    rules: Rules = Rules()

    def healed(self, cards: tuple[Card, ...]) -> tuple[Card, ...]:
        """See `Usual`; the order of the cards is known too."""
        return tuple([_card.healed(one) for one in cards])

    def well(self, cards: tuple[Card, ...]) -> frozenset[str]:
        """See `Usual`; cards are named by their uuids."""
        return frozenset([one.fixed.uuid for one in cards if one.fixed.fault is not Reason.UNHEALTHY])

    def kept_out(self, cards: tuple[Card, ...], faults: Mapping[str, Fault]) -> tuple[Card, ...]:
        """See `Usual`."""
        return tuple(
            [
                _card.with_fault(one, *faults[one.fixed.uuid])
                if one.fixed.uuid in faults and one.fixed.fault is None
                else one
                for one in cards
            ]
        )

    def identities(self, cards: Sequence[Card]) -> tuple[str, ...]:
        """Return the uuids."""
        return tuple([one.fixed.uuid for one in cards])

    def at_best(self, cards: tuple[Card, ...]) -> tuple[Card, ...]:
        """See `Usual`."""
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

    def want(self, request: Request, kind: Hashable, policy: Policy) -> Want | None:
        """See `Bounds`."""
        del policy
        return bounds.want(self.rules, request, kind)

    def bound(self, request: Request, policy: Policy) -> Bound:
        """See `Bounds`."""
        rules = self.rules
        return Bound(
            _request.width(request),
            bounds.bounded(request, policy),
            lambda idle: rules.idle_score(request, idle, policy),
        )

    def holes(self, cards: Sequence[Card]) -> tuple[Hole, ...]:
        """See `Usual`."""
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
        """See `Usual`."""
        return fit.left(self.rules, cards[slot], request)

    def alone(self, cards: Sequence[Card], request: Request, slot: int) -> Placed[Assignment]:
        """See `Usual`."""
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
