"""One pod: what it asks, as a shape, and where it goes now; and how many pods of one shape a node takes.

Deciding only reads. The caller reserves what it accepts (`Ledger.reserve`), without a pause between the two.
"""

from collections.abc import Generator, Iterable, Sequence, Set
from typing import Final, Protocol

from core import cardless, nodefit
from core.catalog import Asked
from core.constraints.constraint import NodeSet
from core.constraints.images import Liking
from core.errors import InvalidRequestError
from core.ledger import Ledger, Placement
from core.model import NodeName, Pod, PodUid
from core.placing.pack import Wanted, is_of_one_card
from core.placing.shape import Found, NodePolicy, Shape, better, has_room, scan
from core.port.refusals import Violation
from core.waiting import Cause, Wait

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
        everything = nodefit.amounts_of(pod)
    except InvalidRequestError as e:
        return invalid((Violation(code=_UNREADABLE, field=e.field, found=e.found, remedy=e.remedy),))
    amounts, accounted = nodefit.parted(everything, ledger.words.uncounted)
    overhead = nodefit.overhead_of(pod)
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
        crowd: NodeSet | None = None,
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
    crowd: NodeSet | None = None,
    *,
    domain: Set[NodeName] | None = None,
) -> Placement | None:
    """Where *pod* goes now; None if no node fits (then ask core.explaining.explain why).

    What settings prefer goes first wherever it fits; without a preference the best score decides. Pods that came since
    *shape* was made may keep it off. *passed_over*, *crowd* and all but *domain* are left out
    (`Candidates.best`).
    """
    constraints = candidates.ledger.constraints
    if not constraints.is_current(pod, shape.asked.pods):
        shape = shape.beside(constraints.pods_of(pod))
    liking = liking_of(pod, candidates.ledger)
    for preferred in preferred_shapes(candidates.ledger, shape):
        found = candidates.best(preferred, passed_over, liking, crowd, domain)
        if found is not None:
            return _promise(pod, shape, found)
    found = candidates.best(shape, passed_over, liking, crowd, domain)
    return None if found is None else _promise(pod, shape, found)


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


def still_fits(ledger: Ledger, policy: NodePolicy, shape: Shape, placement: Placement) -> bool:
    """Whether *placement*, already reserved, would be granted by its node if it were asked again now.

    Judged right before its Binding: the node may have been cordoned, tainted or closed, or its cards may have
    changed, since it was reserved.
    """
    state = ledger.states.get(placement.node)
    if state is None or not state.cards(placement.dialect) or placement.dialect in state.closed:
        return False
    if not ledger.constraints.admits(shape.asked, state.facts):
        return False
    asked_by = placement.asked_by
    pods = ledger.constraints.pods_of(asked_by) if asked_by is not None else shape.asked.pods
    if ledger.constraints.blocks(pods, state.facts, leaving_out=placement.pod):
        return False
    again = ledger.state_without(placement.node, placement.pod)
    dialect = ledger.catalog.judging(placement.dialect)
    if not has_room(shape, again):
        return False
    if not ledger.constraints.fits(shape.asked, again.facts, again.held):
        return False
    cards = again.cards(placement.dialect)
    # Which of the preferred ways was taken is not kept: any that leads to the same cards will do.
    for wished in (shape, *preferred_shapes(ledger, shape)):
        placed = dialect.place(cards, wished.request, policy.cards)
        if placed is None:
            continue
        if placed.assignment == placement.assignment:
            return True
        wanted = Wanted(wished.dialect, wished.request, wished.amounts)
        # What was best when it was reserved need not be by what is known now.
        if policy.tables is not None and is_of_one_card(ledger.catalog, wanted, cards, placement.assignment):
            return True
    return False


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
