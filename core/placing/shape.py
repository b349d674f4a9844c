"""All of a pod that decides where it fits, the exact verdict of one node, or of every node, on it, and their order.

Scores are upstream's raw device scores times the configured weight, unrounded: upstream rounds before it weighs, which
makes nodes equal that are not. What the pod prefers of nodes, and of pods there, is added. Equal scores are settled by
the images that the pod needs and a node has (`core.constraints.images`), then by the node's used share (the fullest
node first under binpack, else the emptiest), then by name.
"""

from collections.abc import Hashable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from core import names, nodefit
from core.constraints.constraint import FULL, AskedConstraints, Signatures
from core.constraints.images import Liking
from core.ledger import Ledger
from core.model import NodeName
from core.node_state import NodeState
from core.nodefit import Amounts
from core.placing.pack import NO_HOLE_VALUES, Grounds, HoleValues, Wanted, packed
from core.port.cards import Placed
from core.settings import DialectName, NodeWeights, Policy, Settings


class Shape:
    """All of a pod that decides where it fits; equal shapes share their verdicts. The hash is made once.

    dialect is None for a pod without cards. amounts: what a node must have; accounted: what it must have if it
    advertises any, because its cards count that (`core.nodefit.parted`); taken: all that it takes of its node, as
    kubelet counts it, sorted by resource. asked: what the pod asks by constraints. overhead: the part of *amounts* that
    its RuntimeClass adds, which no figure of its containers lowers.
    """

    __slots__ = ("_alone", "_hash", "accounted", "amounts", "asked", "dialect", "overhead", "request", "taken")

    def __init__(
        self,
        *,
        dialect: DialectName | None,
        request: Hashable,
        amounts: Amounts,
        asked: AskedConstraints,
        accounted: Amounts = (),
        overhead: Amounts = (),
    ) -> None:
        self.dialect: Final = dialect
        self.request: Final = request
        self.amounts: Final = amounts
        self.accounted: Final = accounted
        self.taken: Final = tuple(sorted((*amounts, *accounted))) if accounted else amounts
        self.asked: Final = asked
        self.overhead: Final = overhead
        self._alone: Shape | None = None
        self._hash = hash((dialect, request, amounts, accounted, asked, overhead))

    def asking(self, request: Hashable) -> "Shape":
        """The same, but for what is asked of cards."""
        return Shape(
            dialect=self.dialect,
            request=request,
            amounts=self.amounts,
            asked=self.asked,
            accounted=self.accounted,
            overhead=self.overhead,
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
            overhead=self.overhead,
        )

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
            and self.overhead == other.overhead
        )


# ---------------------------------------------------------------------- which of two nodes is better


# More than ties of one level can differ by: these are a million at most, of either sign.
_LEVEL: Final = 4_000_000


class Rank(NamedTuple):
    """How good a node is; the smallest is the best: score negated, then ties."""

    minus_score: float
    tie_ppm: int
    name: NodeName

    def at(self, level: int) -> "Rank":
        """The same of a node of *level* among those of the same score: it comes before all that are of a lower one."""
        return self._replace(tie_ppm=self.tie_ppm - level * _LEVEL) if level else self


@dataclass(frozen=True, slots=True)
class NodePolicy:
    """How nodes compare: the card policy, the weight of device scores (0: ties alone decide), other weights.

    tables: by what is lost on a node and a card, not by device scores; then the first of equal nodes by name is taken.
    """

    cards: Policy
    weight: int
    others: NodeWeights = field(default_factory=NodeWeights)
    tables: HoleValues | None = None

    def rank(self, score: float, tie_ppm: int, name: NodeName) -> Rank:
        """Where a node stands whose placement scored *score*."""
        return Rank(-score * self.weight, tie_ppm, name)

    def tie_ppm(self, used_ppm: int) -> int:
        """What settles equal scores, of a node whose cards are used to *used_ppm* millionths.

        One whose cards hold more than they have is as full as a full one.
        """
        if self.tables is not None:
            return 0
        full = min(used_ppm, 1_000_000)
        return -full if self.cards is Policy.BINPACK else full


def node_policy(settings: Settings) -> NodePolicy:
    """The policy that *settings* ask for; a weight below 0 counts as 0."""
    is_pack = settings.policy is Policy.PACK
    cards = Policy.BINPACK if is_pack else settings.policy
    tables = NO_HOLE_VALUES if is_pack else None
    return NodePolicy(cards, max(settings.schedule_weight, 0), settings.node_weights, tables)


def most_of_others(weights: NodeWeights, most_preferred: float) -> float:
    """By how much a node may at most be better than its cards make it: by its resources, and by what the pod prefers.

    Rounded up; taints add nothing.
    """
    of_resources = (weights.binpack, weights.least_requested, weights.most_requested, weights.balanced)
    return (sum([abs(one) for one in of_resources]) * FULL + most_preferred) * (1 + 1e-9)


def resource_score(
    weights: NodeWeights,
    wanted: tuple[tuple[str, int], ...],
    allocatable: Mapping[str, int],
    used: Mapping[str, int],
) -> float:
    """What a node's own resources add to its score, if *wanted* were placed there too.

    binpack: 100 x the weighted mean, over the resources asked for, of the share in use afterwards. least_requested
    and most_requested: the mean free or used share of cpu and memory, 0 to 100; balanced: 100 less 100 x half the
    difference of the two shares. Source: Volcano, plugins/binpack and plugins/nodeorder.
    """
    after = {name: used.get(name, 0) + amount for name, amount in wanted}
    score = 0.0
    if weights.binpack:
        counted = [(name, weight) for name, weight in weights.resources if weight > 0 and name in after]
        total = sum(weight for _, weight in counted)
        if total:
            shares = sum(weight * _share(after[name], allocatable.get(name, 0)) for name, weight in counted)
            score += weights.binpack * 100.0 * shares / total
    if weights.least_requested or weights.most_requested or weights.balanced:
        cpu, memory = (
            _share(after.get(name, used.get(name, 0)), allocatable.get(name, 0)) for name in (names.CPU, names.MEMORY)
        )
        mean = (cpu + memory) / 2
        score += weights.least_requested * 100.0 * (1 - mean) + weights.most_requested * 100.0 * mean
        score += weights.balanced * 100.0 * (1 - abs(cpu - memory) / 2)
    return score


def _share(used: int, total: int) -> float:
    return min(used / total, 1.0) if total > 0 else 0.0


# ---------------------------------------------------------------------- the verdict of a node


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
    rank = ranked(ledger, policy, shape, state, placed, tie_ppm=tie_ppm)
    if liking is not None:
        rank = rank.at(liking.level(state.facts.name))
    return Found(state.facts.name, placed, rank) if best is None or rank < best.rank else best


def ranked(
    ledger: Ledger, policy: NodePolicy, shape: Shape, state: NodeState, placed: Placed[Any], *, tie_ppm: int
) -> Rank:
    """Return the rank of a node that takes *placed*, by cards, resources and taints, and what the pod prefers."""
    rank = policy.rank(placed.score, tie_ppm, state.facts.name)
    more = 0.0
    if policy.others:
        more += resource_score(policy.others, shape.amounts, state.facts.allocatable, state.used)
    constraints, asked = ledger.constraints, shape.asked
    more += constraints.score(asked, state.facts, policy.others)
    if asked.preferred:
        more += constraints.rate(asked.preferred, state.facts, policy.others)
    return rank._replace(minus_score=rank.minus_score - more) if more else rank
