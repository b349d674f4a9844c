"""One pod: what it asks, as a shape, what a node says to that, and where it goes now.

Deciding only reads. The caller reserves what it accepts (`Ledger.reserve`), without a pause between the two.

Scores are upstream's raw device scores times the configured weight, unrounded: upstream rounds before it weighs, which
makes nodes equal that are not. What the pod prefers of nodes, and of pods there, is added. Equal scores are settled by
the images that the pod needs and a node has (`core.constraints.images`), then by the node's used share (the fullest
node first under binpack, else the emptiest), then by name.
"""

from collections.abc import Generator, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from core import cardless, model, names
from core.catalog import Asked
from core.constraints.constraint import FULL, AskedConstraints, NodeSet, Signatures
from core.constraints.images import Liking
from core.errors import InvalidRequestError
from core.ledger import Ledger, Placement
from core.model import Amounts, NodeName, Pod, PodUid
from core.node_state import NodeState
from core.placing.pack import NO_HOLE_VALUES, Grounds, HoleValues, Wanted, packed
from core.port.cards import Placed
from core.port.refusals import Violation
from core.settings import DialectName, NodeWeights, Policy, Settings
from core.waiting import Cause, Wait


class Shape:
    """All of a pod that decides where it fits; equal shapes share their verdicts. The hash is made once.

    dialect is None for a pod without cards. amounts: what a node must have; accounted: what it must have if it
    advertises any, because its cards count that (`core.model.parted`); taken: all that it takes of its node, as
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
        return self._with(request, self.asked)

    def beside(self, pods: Signatures) -> "Shape":
        """The same, but for what it asks by constraints that read pods."""
        return self if pods == self.asked.pods else self._with(self.request, self.asked._replace(pods=pods))

    def _with(self, request: Hashable, asked: AskedConstraints) -> "Shape":
        return Shape(
            dialect=self.dialect,
            request=request,
            amounts=self.amounts,
            asked=asked,
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
    if not model.has_room(shape.amounts, allocatable, used):
        return False
    return not shape.accounted or model.has_account(shape.accounted, allocatable, used)


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
    """The same; under policy `pack`, the cards and the score by its tables. *grounds*: what is remembered of nodes."""
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
    if state.facts.taints:
        more += constraints.score(asked, state.facts, policy.others)
    if asked.preferred:
        more += constraints.rate(asked.preferred, state.facts, policy.others)
    return rank._replace(minus_score=rank.minus_score - more) if more else rank


_UNREADABLE: Final = "CS100"
# The admission rule that a dialect must be enabled (docs/operators/admission-rules.md).
_SWITCHED_OFF: Final = "CS202"
# Least recently used shapes are forgotten beyond this number; each has an entry for every node that was counted.
_SHAPES_MAX: Final = 16


def shape_of(pod: Pod, ledger: Ledger) -> Shape | Wait:
    """Return all of *pod* that decides where it fits, under the ledger's tables and settings.

    A `Wait` says why no node can take it until the pod or these change.
    """
    asked = ledger.catalog.request_of(pod, ledger.tables, ledger.settings)
    if asked is not None and not isinstance(asked, Asked):
        return invalid(asked)
    if pod.unjudged:
        named = ", ".join(pod.unjudged)
        text = f"waits because cardshare does not support this: {named}; remove it, or use another scheduler"
        return Wait(Cause.NOT_JUDGED, text)
    try:
        everything = model.amounts_of(pod)
    except InvalidRequestError as e:
        return invalid((Violation(code=_UNREADABLE, field=e.field, found=e.found, remedy=e.remedy),))
    amounts, accounted = model.parted(everything, ledger.words.uncounted)
    overhead = model.overhead_of(pod)
    by_constraints = ledger.constraints.asked_by(pod, ledger.settings.node_weights)
    if isinstance(by_constraints, Wait):
        return by_constraints
    if foreign := [name for name, _ in everything if name in ledger.tables.foreign]:
        text = (
            f"asks for {', '.join(foreign)}, whose cards HAMi's scheduler assigns and cardshare cannot; leave the pod "
            "to HAMi's scheduler, or use resources that cardshare knows"
        )
        return Wait(Cause.NOT_SOLD, text)
    if asked is None:
        # Where no dialect serves them, a device plugin may give out cards by them all the same.
        strange = [name for name, _ in everything if name in ledger.words.known]
        lost = [name for name in strange if name in ledger.words.lost]
        if lost:
            text = (
                f"asks for {', '.join(lost)}, and the section of {ledger.words.lost[lost[0]]} in device-config.yaml "
                "cannot be used; correct that section (kubectl cards doctor shows what is wrong)"
            )
            return Wait(Cause.NOT_SOLD, text)
        if strange:
            text = (
                f"asks for {', '.join(strange)}, which this cluster's configuration does not offer; use the resource "
                "names that it offers"
            )
            return Wait(Cause.NOT_SOLD, text)
        request = cardless.request_of(amounts)
        dialect = None
    else:
        dialect, request = asked.dialect, asked.request
    return Shape(
        dialect=dialect,
        request=request,
        amounts=amounts,
        asked=by_constraints,
        accounted=accounted,
        overhead=overhead,
    )


def invalid(violations: Sequence[Violation]) -> Wait:
    """Return that a pod waits because its request is invalid, with the same sentences as at admission."""
    off = any(one.code == _SWITCHED_OFF for one in violations)
    return Wait(Cause.SWITCHED_OFF if off else Cause.INVALID, "; ".join(map(str, violations)))


def liking_of(pod: Pod, ledger: Ledger) -> Liking | None:
    """What the images that *pod* needs make of nodes that are as good; None where that is nothing, or has no weight."""
    images = ledger.images
    if not ledger.settings.node_weights.image_locality or images.holders.keys().isdisjoint(pod.images):
        return None
    return images.liking(pod)


class Rooms:
    """How many pods of one shape a node takes, remembered until the node changes; make a new one for another policy.

    This holds for pods that mind no other pods, and that no setting prefers to serve in one of several ways: then no
    other node matters.
    """

    def __init__(self, ledger: Ledger, policy: NodePolicy) -> None:
        self._ledger: Final = ledger
        self._policy: Final = policy
        # shape -> node -> (version of its state, up to how many were counted, how many it takes)
        self._known: Final[dict[Shape, dict[NodeName, tuple[int, int, int]]]] = {}

    def counts(self, shape: Shape, pods: Iterable[Pod]) -> bool:
        """Return whether the counts of *shape* say how many of *pods* fit on several nodes together."""
        if shape.asked.pods or preferred_shapes(self._ledger, shape):
            return False
        return all(self._ledger.constraints.is_current(pod, ()) for pod in pods)

    def on(self, shape: Shape, nodes: Set[NodeName], most: int) -> int:
        """Return how many pods of *shape*, up to *most* on each node, fit on *nodes* now."""
        known = self._known.pop(shape, {})
        while len(self._known) >= _SHAPES_MAX:
            del self._known[next(iter(self._known))]
        self._known[shape] = known
        states, found = self._ledger.states, 0
        for name in nodes:
            state = states.get(name)
            if state is None:
                continue
            one = known.get(name)
            if one is None or one[0] != state.version or one[1] < most:
                many = room_on(self._ledger, self._policy, shape, name, most)
                one = known[name] = state.version, most, many
            found += min(one[2], most)
        return found


class Finder(Protocol):
    """Finds the best node of a ledger: `core.placing.candidates.Candidates`.

    Callers that look at every node instead need not load that.
    """

    @property
    def ledger(self) -> Ledger:
        """Who holds what."""
        ...

    @property
    def rooms(self) -> Rooms:
        """How many pods of a shape each node takes."""
        ...

    def best(
        self,
        shape: Shape,
        passed_over: Set[NodeName] = frozenset(),
        liking: Liking | None = None,
        left_out: NodeSet | None = None,
        domain: Set[NodeName] | None = None,
    ) -> Found | None:
        """See `Candidates.best`."""
        ...

    def size(self, shape: Shape) -> tuple[float, ...]:
        """See `Candidates.size`."""
        ...

    def choice(self, shape: Shape) -> int:
        """See `Candidates.choice`."""
        ...


def decide(
    candidates: Finder,
    pod: Pod,
    shape: Shape,
    passed_over: Set[NodeName] = frozenset(),
    left_out: NodeSet | None = None,
    *,
    domain: Set[NodeName] | None = None,
) -> Placement | None:
    """Where *pod* goes now; None if no node fits (then ask core.explaining.explain why).

    What settings prefer goes first wherever it fits; without a preference the best score decides. Pods that came since
    *shape* was made may keep it off. *passed_over*, *left_out*, *domain*: see `Candidates.best`.
    """
    shape = shape_now(candidates.ledger, pod, shape)
    liking = liking_of(pod, candidates.ledger)
    for preferred in preferred_shapes(candidates.ledger, shape):
        found = candidates.best(preferred, passed_over, liking, left_out, domain)
        if found is not None:
            return _promise(pod, shape, found)
    found = candidates.best(shape, passed_over, liking, left_out, domain)
    return None if found is None else _promise(pod, shape, found)


def shape_now(ledger: Ledger, pod: Pod, shape: Shape) -> Shape:
    """Return *shape* with what *pod* and the pods that came since it was made ask of each other."""
    constraints = ledger.constraints
    return shape if constraints.is_current(pod, shape.asked.pods) else shape.beside(constraints.pods_of(pod))


def try_decide(ledger: Ledger, policy: NodePolicy, pod: Pod, shape: Shape) -> Placement | None:
    """Return the same answer by looking at every node; for a fork, which has no columns."""
    shape = shape.beside(ledger.constraints.pods_of(pod))
    for wished in (*preferred_shapes(ledger, shape), shape):
        found = scan(ledger, policy, wished, liking=liking_of(pod, ledger))
        if found is not None:
            return _promise(pod, shape, found)
    return None


def look_around(
    ledger: Ledger, policy: NodePolicy, pod: Pod, shape: Shape, passed_over: Set[NodeName] = frozenset()
) -> Generator[None, None, Placement | None]:
    """Return the same answer, and yield after each node; other work may run meanwhile.

    For questions from outside: nothing is kept.
    """
    preferences = (*preferred_shapes(ledger, shape), shape)
    liking = liking_of(pod, ledger)
    best: list[Found | None] = [None] * len(preferences)
    for state in tuple(ledger.states.values()):
        for number, wished in enumerate(preferences if state.facts.name not in passed_over else ()):
            best[number] = better(ledger, policy, wished, state, best[number], liking=liking)
        yield
    found = next((one for one in best if one is not None), None)
    return None if found is None else _promise(pod, shape, found)


def shapes_by_way(ledger: Ledger, shape: Shape) -> dict[str, Shape]:
    """Return *shape* restricted to each way in which it could be served, by the way's name; empty without a choice."""
    if shape.dialect is None:
        return {}
    ways = ledger.catalog.dialects[shape.dialect].ways(shape.request)
    return {way: shape.asking(request) for way, request in ways}


def preferred_shapes(ledger: Ledger, shape: Shape) -> tuple[Shape, ...]:
    """*shape* held to each way that settings prefer, in their order; none without a preference or a choice."""
    preference = ledger.settings.mode_preference
    if not preference:
        return ()
    ways = shapes_by_way(ledger, shape)
    return tuple(ways[way] for way in preference if way in ways)


def still_fits(ledger: Ledger, shape: Shape, placement: Placement) -> bool:
    """Whether *placement*, which is reserved, may be bound with what is known of its node now.

    Judged right before its Binding: since it was reserved, the node may have been cordoned, tainted or closed, or its
    cards may have changed. Promises that were made beside it since are no obstacle, or a gang would lose a member to
    who came later: what depends on who was first, as pod affinity, topology spread and some rules of device plugins
    do, is not judged again.
    """
    state = ledger.states.get(placement.node)
    if state is None or not state.cards(placement.dialect) or placement.dialect in state.closed:
        return False
    if not ledger.constraints.admits(shape.asked, state.facts):
        return False
    asked_by = placement.asked_by
    if asked_by is not None:
        apart = asked_by._replace(peers=model.PeerTerms(anti_affinity=asked_by.peers.anti_affinity))
        if ledger.constraints.blocks(ledger.constraints.pods_of(apart), state.facts, leaving_out=placement.pod):
            return False
    again = ledger.state_without(placement.node, placement.pod)
    if not has_room(shape, again) or not ledger.constraints.fits(shape.asked, again.facts, again.held):
        return False
    dialect, cards = ledger.catalog.judging(placement.dialect), state.cards(placement.dialect)
    # Which of the preferred ways was taken is not kept.
    ways = (shape, *preferred_shapes(ledger, shape))
    return any(dialect.stands(cards, one.request, placement.assignment) for one in ways)


def placed_on(ledger: Ledger, policy: NodePolicy, pod: Pod, shape: Shape, name: NodeName) -> Placement | None:
    """What *pod* gets on node *name* now; None if that does not take it."""
    state = ledger.states.get(name)
    if state is None:
        return None
    for wished in (*preferred_shapes(ledger, shape), shape):
        found = better(ledger, policy, wished, state, None)
        if found is not None:
            return _promise(pod, shape, found)
    return None


def _promise(pod: Pod, shape: Shape, found: Found) -> Placement:
    assignment, score = found.placed
    # By position: with the names of its fields, a record takes four times as long.
    return Placement(pod.uid, pod.key, found.node, shape.dialect, assignment, shape.taken, score, shape.asked.use, pod)


def room_on(ledger: Ledger, policy: NodePolicy, shape: Shape, name: NodeName, most: int) -> int:
    """Return how many pods of *shape*, up to *most*, node *name* takes now, one after the other."""
    with ledger.trial():
        for count in range(most):
            placement = placed_on(ledger, policy, _probe(count), shape, name)
            if placement is None:
                return count
            ledger.reserve(placement)
    return most


def _probe(number: int) -> Pod:
    return Pod(uid=PodUid(f"probe-{number}"), namespace="", name="probe")
