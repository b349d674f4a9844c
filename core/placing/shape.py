"""All of a pod that decides where it fits, and the exact verdict of one node, or of every node, on it."""

from collections.abc import Hashable, Set
from typing import Any, Final, NamedTuple

from core import nodefit
from core.constraints.constraint import Asked, Signatures
from core.constraints.images import Liking
from core.constraints.topology.preferred import Preferred
from core.ledger import Ledger
from core.model import NodeName
from core.node_state import NodeState
from core.nodefit import Amounts
from core.placing.holes import Grounds, Wanted, packed
from core.placing.score import NodePolicy, Rank, preferred_labels, resource_score
from core.port.cards import Placed
from core.settings import DialectName, Policy


class Shape:
    """All of a pod that decides where it fits; equal shapes share their verdicts. The hash is made once.

    dialect is None for a pod without cards. amounts: what a node must have; accounted: what it must have if it
    advertises any, because its cards count that (`core.nodefit.parted`). asked: what the pod asks by constraints.
    preferred is None for a pod that prefers no node.
    """

    __slots__ = (
        "_alone",
        "_hash",
        "accounted",
        "amounts",
        "asked",
        "dialect",
        "preferred",
        "request",
    )

    def __init__(
        self,
        *,
        dialect: DialectName | None,
        request: Hashable,
        amounts: Amounts,
        asked: Asked,
        accounted: Amounts = (),
        preferred: Preferred | None = None,
    ) -> None:
        self.dialect: Final = dialect
        self.request: Final = request
        self.amounts: Final = amounts
        self.accounted: Final = accounted
        self.asked: Final = asked
        self.preferred: Final = preferred
        self._alone: Shape | None = None
        self._hash = hash((dialect, request, amounts, accounted, asked, preferred))

    def asking(self, request: Hashable) -> "Shape":
        """The same, but for what is asked of cards."""
        return Shape(
            dialect=self.dialect,
            request=request,
            amounts=self.amounts,
            asked=self.asked,
            accounted=self.accounted,
            preferred=self.preferred,
        )

    def beside(self, pods: Signatures) -> "Shape":
        """The same, but for what it asks by constraints that read pods."""
        if pods == self.asked.pods:
            return self
        return Shape(
            dialect=self.dialect,
            request=self.request,
            amounts=self.amounts,
            asked=self.asked._replace(pods=pods),
            accounted=self.accounted,
            preferred=self.preferred,
        )

    @property
    def taken(self) -> Amounts:
        """All that it takes of its node, as kubelet counts it, sorted by resource."""
        return tuple(sorted((*self.amounts, *self.accounted))) if self.accounted else self.amounts

    @property
    def alone(self) -> "Shape":
        """The same, were there no other pods to mind; what nodes themselves say of it is remembered by that."""
        if not self.asked.pods:
            return self
        if self._alone is None:
            self._alone = self.beside(())
        return self._alone

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Shape)
            and self._hash == other._hash
            and self.dialect == other.dialect
            and self.request == other.request
            and self.amounts == other.amounts
            and self.accounted == other.accounted
            and self.asked == other.asked
            and self.preferred == other.preferred
        )


class Found(NamedTuple):
    """The best node, what would be placed there, and its rank."""

    node: NodeName
    placed: Placed[Any]
    rank: Rank


def has_room(shape: Shape, state: NodeState) -> bool:
    """Whether the node has what *shape* takes beside cards, and kubelet counts as much free as it takes of them."""
    allocatable, used = state.facts.allocatable, state.used
    if not nodefit.has_room(shape.amounts, allocatable, used):
        return False
    return not shape.accounted or nodefit.has_account(shape.accounted, allocatable, used)


def judge(ledger: Ledger, shape: Shape, state: NodeState, policy: Policy) -> Placed[Any] | None:
    """What *shape* gets on a node that its labels, taints and other pods do not bar, or None; the one exact verdict."""
    cards = state.cards(shape.dialect)
    if not cards or (state.closed and shape.dialect in state.closed):
        return None
    if not has_room(shape, state):
        return None
    if shape.asked.use and not ledger.constraints.fits(shape.asked, state.facts, state.held):
        return None
    return ledger.catalog.judging(shape.dialect).place(cards, shape.request, policy)


def judged(
    ledger: Ledger, policy: NodePolicy, shape: Shape, state: NodeState, grounds: Grounds | None = None
) -> Placed[Any] | None:
    """The same with the cards, and the score, that *policy* gives it there; *grounds*: what is remembered of nodes."""
    placed = judge(ledger, shape, state, policy.cards)
    if placed is None or policy.tables is None:
        return placed
    grounds = grounds or Grounds(ledger.catalog, policy.tables)
    return packed(ledger.catalog, grounds, Wanted(shape.dialect, shape.request, shape.amounts), state, placed)


def takes(ledger: Ledger, shape: Shape, state: NodeState, policy: Policy) -> bool:
    """Whether the node of *state* takes *shape*, its static constraints included, wherever other pods are."""
    cards = state.cards(shape.dialect)
    if not cards or (state.closed and shape.dialect in state.closed):
        return False
    # The quickest first: this is asked of every node that opens, for every refused shape.
    return (
        has_room(shape, state)
        and ledger.constraints.admits(shape.asked, state.facts)
        and ledger.constraints.fits(shape.asked, state.facts, state.held)
        and ledger.catalog.judging(shape.dialect).place(cards, shape.request, policy) is not None
    )


def scan(
    ledger: Ledger,
    policy: NodePolicy,
    shape: Shape,
    passed_over: Set[NodeName] = frozenset(),
    *,
    liking: Liking | None = None,
) -> Found | None:
    """The best node by looking at every one; what `Candidates.best` always equals. For forks and tests."""
    best: Found | None = None
    for name, state in ledger.states.items():
        if name not in passed_over:
            best = better(ledger, policy, shape, state, best, liking=liking)
    return best


def better(
    ledger: Ledger,
    policy: NodePolicy,
    shape: Shape,
    state: NodeState,
    best: Found | None,
    *,
    liking: Liking | None = None,
) -> Found | None:
    """The node of *state*, if it takes *shape* and is better than *best*; else *best*.

    liking: what the images that are needed make of nodes that are as good.
    """
    if not ledger.constraints.admits(shape.asked, state.facts):
        return best
    if ledger.constraints.blocks(shape.asked.pods, state.facts):
        return best
    dialect = ledger.catalog.judging(shape.dialect)
    placed = judged(ledger, policy, shape, state)
    if placed is None:
        return best
    tie_ppm = policy.tie_ppm(dialect.room(state.cards(shape.dialect)).used_ppm)
    rank = leant(ledger, policy, shape, state, ranked(ledger, policy, shape, state, placed, tie_ppm=tie_ppm))
    if liking is not None:
        rank = rank.at(liking.level(state.facts.name))
    return Found(state.facts.name, placed, rank) if best is None or rank < best.rank else best


def ranked(
    ledger: Ledger, policy: NodePolicy, shape: Shape, state: NodeState, placed: Placed[Any], *, tie_ppm: int
) -> Rank:
    """Return the rank of a node that takes *placed*, by its own cards, resources, labels and taints."""
    rank = policy.rank(placed.score, tie_ppm, state.facts.name)
    more = 0.0
    if policy.others:
        more += resource_score(policy.others, shape.amounts, state.facts.allocatable, state.used)
    leaning = ledger.constraints.score(shape.asked, state.facts, policy.others)
    if shape.preferred is not None:
        leaning += preferred_labels(policy.others, shape.preferred, state.facts)
    more += leaning
    return rank._replace(minus_score=rank.minus_score - more) if more else rank


def leant(ledger: Ledger, policy: NodePolicy, shape: Shape, state: NodeState, rank: Rank) -> Rank:
    """Return *rank* with what the pod prefers about other pods: those near it, and even spreading."""
    preferred = shape.preferred
    if preferred is None or not preferred.minds_pods:
        return rank
    points = ledger.topology.leaning(preferred).points(policy.others, state.facts.labels)
    return rank._replace(minus_score=rank.minus_score - points)
