"""The part of the port that is the same for all dialects of shared cards; `core.port.dialect` describes the methods."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from math import inf
from typing import Final

from core import hami_lock
from core.model import Node, NodeName, Pod
from core.names import USE_GPU_TYPE
from core.port.cards import Bound, CardShare, CardWish, Hole, NodeRoom, Placed, Tally, Want, Wording
from core.port.dialect import Dialect, Names
from core.port.handoff import LockQuestion, LockStep, LockWait
from core.port.refusals import CardFault, Reason, Shortfall
from core.settings import Policy, Tables
from core.sharing import account, fit, refused
from core.sharing import card as _card
from core.sharing.account import Assignment
from core.sharing.card import Card
from core.sharing.fit import Rules
from core.sharing.request import Request, Resources, worded


class SharedCards(Dialect[Card, Request, Assignment]):
    """What follows from the declared names, and from cards, requests and assignments.

    Attributes:
        rules: what the dialect does differently.
        has_ids: the uuids of cards are unique in the cluster.
        sells: the resources of each kind of card, unless a configuration names them.
        types_key: the annotation by which pods select types of cards, "" if there is none.
        assignment_keys, preferences: as in `Names`.
    """

    rules: Rules = Rules()
    has_ids: bool = True
    sells: tuple[Resources, ...] = ()
    types_key: str = USE_GPU_TYPE
    assignment_keys: frozenset[str] = frozenset()
    preferences: frozenset[str] = frozenset()

    holes = staticmethod(_card.holes)
    take = staticmethod(account.take)
    give_back = staticmethod(account.give_back)

    def labels(self, node: NodeName) -> Mapping[str, str]:
        return {}

    def declared(self, tables: Tables) -> tuple[Resources, ...]:
        """Return the resources of each kind of card, as the configuration names them; () if it sells nothing."""
        return self.sells

    def names(self, tables: Tables) -> Names:
        # No node advertises a part of a counted card, or kubelet charges it once per container.
        counted = self._counted(tables)
        counts = {name: one.cards for one in counted for name in one.parts}
        return Names(
            resources=frozenset([name for one in self.declared(tables) for name in one.all]),
            uncounted=frozenset(counts),
            assignment_keys=self.assignment_keys,
            preferences=self.preferences,
            counts=counts,
            memories={one.cards: one.memory for one in counted},
            units={one.memory: one.mib_per_unit for one in self.declared(tables) if one.memory},
            budgeted=tuple([name for one in counted for name in (one.memory, one.cores) if name]),
        )

    def _counted(self, tables: Tables) -> list[Resources]:
        """Return the resources of cards that are counted, and of which each share has a part."""
        return [one for one in self.declared(tables) if one.cards and one.memory]

    def worded(self, wish: CardWish, tables: Tables) -> Sequence[Wording]:
        found = [worded(wish, one, self.types_key) for one in self.declared(tables)]
        return tuple([one for one in found if one is not None])

    def healed(self, cards: tuple[Card, ...]) -> tuple[Card, ...]:
        return tuple([_card.healed(one) for one in cards])

    def well(self, cards: tuple[Card, ...]) -> frozenset[str]:
        return frozenset([one.fixed.uuid for one in cards if one.fixed.fault is not Reason.UNHEALTHY])

    def kept_out(self, cards: tuple[Card, ...], faults: Mapping[str, CardFault]) -> tuple[Card, ...]:
        return tuple([_card.kept_out(one, faults.get(one.fixed.uuid)) for one in cards])

    def identities(self, cards: Sequence[Card]) -> tuple[str, ...]:
        return tuple([one.fixed.uuid for one in cards]) if self.has_ids else ()

    def at_best(self, cards: tuple[Card, ...]) -> tuple[Card, ...]:
        return tuple([_card.at_best(one, at) for at, one in enumerate(cards)])

    def place(self, cards: Sequence[Card], request: Request, policy: Policy) -> Placed[Assignment] | None:
        return fit.place(self.rules, cards, request, policy)

    def shortfalls(self, cards: Sequence[Card], request: Request) -> tuple[Shortfall, ...]:
        return refused.shortfalls(self.rules, cards, request)

    def relaxed(self, cards: Sequence[Card], request: Request, reason: Reason, amount: int) -> Request | None:
        factors = [one.fixed.kind.factor for one in cards]
        return refused.relaxed(request, reason, amount, max(factors, default=1))

    def stands(self, cards: Sequence[Card], request: Request, assignment: Assignment) -> bool:
        return fit.stands(self.rules, cards, request, assignment)

    def overcommitted(self, cards: Sequence[Card]) -> tuple[str, ...]:
        return account.overcommitted(cards, self.rules.measures)

    def room(self, cards: Sequence[Card]) -> NodeRoom:
        return _card.room(cards, several=self.rules.several, serves_full=self.rules.serves_full)

    def want(self, request: Request, kind: Hashable, policy: Policy) -> Want | None:
        return fit.want(self.rules, request, kind)

    def bound(self, request: Request, policy: Policy) -> Bound:
        rules, width = self.rules, max([ask.number for ask in request.asks])
        if rules.prefers(request):
            return Bound(width, False, lambda idle: inf)
        return Bound(width, fit.bounded(request, policy), lambda idle: rules.idle_score(request, idle, policy))

    def packs(self, request: Request) -> bool:
        return not request.order.nodes

    def left(self, cards: Sequence[Card], request: Request) -> Sequence[Hole | None] | None:
        wanted = request.order
        if self.rules.chooses or wanted.policies or wanted.bound or len(request.asks) > 1 or request.asks[0].number > 1:
            return None
        return [fit.left(self.rules, card, request) for card in cards]

    def alone(self, cards: Sequence[Card], request: Request, slot: int) -> Placed[Assignment]:
        return fit.alone(self.rules, cards, request, slot)

    def tally(self, cards: Sequence[Card]) -> tuple[Tally, ...]:
        return tuple([account.tallied(one, self.rules.measures) for one in cards])

    def describe(self, assignment: Assignment, cards: Sequence[Card]) -> tuple[CardShare, ...]:
        return account.described(assignment, cards, self.rules.measures)

    def sold(self, cards: Sequence[Card], tables: Tables) -> Mapping[str, int]:
        found: dict[str, int] = {}
        healthy = [one.fixed for one in cards if one.fixed.fault is None]
        for one in self._counted(tables):
            own = [fixed for fixed in healthy if one.type in ("", fixed.kind.type)]
            if own:
                found[one.memory] = sum([fixed.memory * fixed.kind.factor for fixed in own]) // one.mib_per_unit
                found[one.cores] = sum([fixed.cores for fixed in own if fixed.kind.sells_cores])
                found[one.percentage] = 100 * len(own)
        return {name: amount for name, amount in found.items() if name}

    def metered(self, assignment: Assignment, tables: Tables) -> Mapping[str, int]:
        # At the pod's peak; the charges must be in MiB. A percentage counts as the memory that it becomes, and a part
        # of a unit as a whole one, so that many pods together do not exceed a quota.
        charges = assignment.charges
        memory_mib, cores_pct = sum([one.memory for one in charges]), sum([one.cores for one in charges])
        found: dict[str, int] = {}
        for one in self._counted(tables):
            if one.type in ("", assignment.type):
                found |= {one.memory: -(-memory_mib // one.mib_per_unit), one.cores: cores_pct, one.percentage: 0}
        found.pop("", None)
        return found


class NodeLock:
    """HAMi's lock of a node: the plugin serves the pod in the lock, whatever its request and age.

    guesses: returns whether the plugin releases the lock before it has served all of a pod.
    """

    def __init__(self, guesses: Callable[[Pod, Tables], bool] = lambda pod, tables: False) -> None:
        self._guesses: Final = guesses

    @property
    def lock_key(self) -> str:
        """See `core.port.handoff.NodeLock`."""
        return hami_lock.LOCK

    def lock_owner(self, node: Node) -> str:
        """See `core.port.handoff.NodeLock`."""
        return hami_lock.owner(node)

    def lock(self, node: Node, asked: LockQuestion) -> LockStep | LockWait | None:
        """See `core.port.handoff.NodeLock`."""
        wanted = asked.wanted
        beside = [*asked.pods, *asked.served]
        if wanted is not None and self._guesses(wanted, asked.tables) and hami_lock.misleads(node, beside, wanted):
            return hami_lock.MISLED
        return hami_lock.step(node, asked)


class ByNodeLock:
    """What a dialect answers whose plugin finds its pod by that lock."""

    def confusable(self, request: object) -> frozenset[Hashable]:
        """Return any pod of the node, because the plugin serves the pod in the lock."""
        return hami_lock.ANY_POD
