"""All of a pod that decides where it fits, and the exact verdict of one node, or of every node, on it."""

from collections.abc import Hashable, Set
from typing import Any, Final, NamedTuple

from core import nodefit
from core.images import Liking
from core.ledger import Ledger
from core.model import HostPort, NodeConstraints, NodeName
from core.node_state import NodeState
from core.nodefit import Amounts
from core.placing.holes import Grounds, Wanted, packed
from core.placing.score import NodePolicy, Rank, leaning_of_node, resource_score
from core.port.cards import Placed
from core.port.dialect import AnyJudging
from core.settings import DialectName, Policy
from core.topology.peers import Peers
from core.topology.preferred import Preferred


class Shape:
    """All of a pod that decides where it fits; equal shapes share their verdicts. The hash is made once.

    dialect is None of a pod without cards. amounts: what a node must have; accounted: what it must have if it
    advertises any, for its cards count that (`core.nodefit.parted`). peers is None of one that other pods neither keep
    off nor draw anywhere, preferred of one that would not rather be somewhere.
    """

    __slots__ = (
        "_alone",
        "_hash",
        "accounted",
        "amounts",
        "constraints",
        "dialect",
        "peers",
        "ports",
        "preferred",
        "request",
    )

    def __init__(
        self,
        *,
        dialect: DialectName | None,
        request: Hashable,
        amounts: Amounts,
        constraints: NodeConstraints,
        accounted: Amounts = (),
        ports: tuple[HostPort, ...] = (),
        peers: Peers | None = None,
        preferred: Preferred | None = None,
    ) -> None:
        self.dialect: Final = dialect
        self.request: Final = request
        self.amounts: Final = amounts
        self.accounted: Final = accounted
        self.constraints: Final = constraints
        self.ports: Final = ports
        self.peers: Final = peers
        self.preferred: Final = preferred
        self._alone: Shape | None = None
        self._hash = hash((dialect, request, amounts, accounted, constraints, ports, peers, preferred))

    def asking(self, request: Hashable) -> "Shape":
        """The same, but for what is asked of cards."""
        return Shape(
            dialect=self.dialect,
            request=request,
            amounts=self.amounts,
            constraints=self.constraints,
            accounted=self.accounted,
            ports=self.ports,
            peers=self.peers,
            preferred=self.preferred,
        )

    def beside(self, peers: Peers | None) -> "Shape":
        """The same, but for what other pods decide."""
        if peers == self.peers:
            return self
        return Shape(
            dialect=self.dialect,
            request=self.request,
            amounts=self.amounts,
            constraints=self.constraints,
            accounted=self.accounted,
            ports=self.ports,
            peers=peers,
            preferred=self.preferred,
        )

    @property
    def taken(self) -> Amounts:
        """All that it takes of its node, as kubelet counts it, sorted by resource."""
        return tuple(sorted((*self.amounts, *self.accounted))) if self.accounted else self.amounts

    @property
    def alone(self) -> "Shape":
        """The same, were there no other pods to mind; what nodes themselves say of it is remembered by that."""
        if self.peers is None:
            return self
        if self._alone is None:
            self._alone = self.beside(None)
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
            and self.constraints == other.constraints
            and self.ports == other.ports
            and self.peers == other.peers
            and self.preferred == other.preferred
        )


class Found(NamedTuple):
    """The best node, what would be placed there, and how good that is."""

    node: NodeName
    placed: Placed[Any]
    rank: Rank


def has_room(shape: Shape, state: NodeState) -> bool:
    """Whether the node has what *shape* takes beside cards, and kubelet counts as much free as it takes of them."""
    allocatable, used = state.facts.allocatable, state.used
    if not nodefit.has_room(shape.amounts, allocatable, used):
        return False
    return not shape.accounted or nodefit.has_account(shape.accounted, allocatable, used)


def judge(shape: Shape, state: NodeState, dialect: AnyJudging, policy: Policy) -> Placed[Any] | None:
    """What *shape* gets on a node whose static rules, and other pods, admit it, or None; the one exact verdict."""
    cards = state.cards(shape.dialect)
    if not cards or (state.closed and shape.dialect in state.closed):
        return None
    if not has_room(shape, state):
        return None
    if shape.ports and nodefit.ports_in_use(shape.ports, state.ports):
        return None
    return dialect.place(cards, shape.request, policy)


def judged(
    ledger: Ledger, policy: NodePolicy, shape: Shape, state: NodeState, grounds: Grounds | None = None
) -> Placed[Any] | None:
    """The same with the cards, and the score, that *policy* gives it there; *grounds*: what is remembered of nodes."""
    placed = judge(shape, state, ledger.catalog.judging(shape.dialect), policy.cards)
    if placed is None or policy.tables is None:
        return placed
    grounds = grounds or Grounds(ledger.catalog, policy.tables)
    return packed(ledger.catalog, grounds, Wanted(shape.dialect, shape.request, shape.amounts), state, placed)


def takes(shape: Shape, state: NodeState, dialect: AnyJudging, policy: Policy) -> bool:
    """Whether the node of *state* takes *shape*, its static rules included, wherever other pods are."""
    cards = state.cards(shape.dialect)
    if not cards or (state.closed and shape.dialect in state.closed):
        return False
    # The quickest first: this is asked of every node that opens, for every refused shape.
    return (
        has_room(shape, state)
        and nodefit.admits(shape.constraints, state.facts) is None
        and not nodefit.ports_in_use(shape.ports, state.ports)
        and dialect.place(cards, shape.request, policy) is not None
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
    if nodefit.admits(shape.constraints, state.facts) is not None:
        return best
    if shape.peers is not None and ledger.topology.refuses(shape.peers, state.facts.name):
        return best
    dialect = ledger.catalog.judging(shape.dialect)
    placed = judged(ledger, policy, shape, state)
    if placed is None:
        return best
    tie_ppm = policy.tie_ppm(dialect.room(state.cards(shape.dialect)).used_ppm)
    rank = leant(ledger, policy, shape, state, ranked(policy, shape, state, placed, tie_ppm))
    if liking is not None:
        rank = rank.at(liking.level(state.facts.name))
    return Found(state.facts.name, placed, rank) if best is None or rank < best.rank else best


def ranked(policy: NodePolicy, shape: Shape, state: NodeState, placed: Placed[Any], tie_ppm: int) -> Rank:
    """Where the node stands if it takes *placed*, by what it is itself: its cards, resources, labels and taints."""
    rank = policy.rank(placed.score, tie_ppm, state.facts.name)
    more = 0.0
    if policy.others:
        more += resource_score(policy.others, shape.amounts, state.facts.allocatable, state.used)
    if shape.preferred is not None or state.facts.taints:
        more += leaning_of_node(policy.others, shape.preferred, shape.constraints.tolerations, state.facts)
    return rank._replace(minus_score=rank.minus_score - more) if more else rank


def leant(ledger: Ledger, policy: NodePolicy, shape: Shape, state: NodeState, rank: Rank) -> Rank:
    """*rank*, and what other pods make of the node for who prefers some beside it, or is to be spread."""
    preferred = shape.preferred
    if preferred is None or not preferred.minds_pods:
        return rank
    points = ledger.topology.leaning(preferred).points(policy.others, state.facts.labels)
    return rank._replace(minus_score=rank.minus_score - points)
