"""One pod: what it asks, as a shape, and where it goes now.

Deciding only reads. The caller reserves what it accepts (`Ledger.reserve`), without a pause between the two.
"""

from collections.abc import Generator, Set
from dataclasses import dataclass
from typing import Final, Protocol

from core import cardless, nodefit
from core.catalog import Asked
from core.constraints.images import Liking
from core.constraints.topology.preferred import preferred_of
from core.errors import InvalidRequestError
from core.ledger import Ledger, Placement
from core.model import NodeName, Pod
from core.node_set import NodeSet
from core.placing.holes import Wanted, is_of_one_card
from core.placing.score import NodePolicy
from core.placing.shape import Found, Shape, better, has_room, scan
from core.port.refusals import Violation
from core.waiting import Wait

_UNREADABLE: Final = "CS100"


class Nodes(Protocol):
    """Finds the best node of a ledger: `core.placing.candidates.Candidates`.

    Callers that look at every node instead need not load that.
    """

    @property
    def ledger(self) -> Ledger:
        """Who holds what."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Invalid:
    """The pod's request is invalid, with the same sentences as at admission; it is read again when it changes."""

    violations: tuple[Violation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unjudged:
    """The pod asks for something that is not supported yet; it waits with these names as its reason."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NotSold:
    """The pod asks for cards by resources that are not configured: nodes may have them, but they are not counted."""

    names: tuple[str, ...]


def shape_of(pod: Pod, ledger: Ledger) -> Shape | Invalid | Unjudged | NotSold | Wait:
    """All of *pod* that decides where it fits, under the ledger's tables and settings."""
    asked = ledger.catalog.request_of(pod, ledger.tables, ledger.settings)
    if asked is not None and not isinstance(asked, Asked):
        return Invalid(violations=asked)
    if pod.unjudged:
        return Unjudged(names=pod.unjudged)
    try:
        everything = nodefit.amounts_of(pod)
    except InvalidRequestError as e:
        return Invalid(violations=(Violation(code=_UNREADABLE, field=e.field, found=e.found, remedy=e.remedy),))
    amounts, accounted = nodefit.parted(everything, ledger.uncounted)
    places = ledger.constraints.asked_by(pod)
    if isinstance(places, Wait):
        return places
    preferred = preferred_of(pod, ledger.settings.node_weights)
    if asked is None:
        # Where no dialect serves them, a device plugin may give out cards by them all the same.
        strange = [name for name, _ in everything if name in ledger.card_resources]
        if strange:
            return NotSold(names=tuple(strange))
        request = cardless.request_of(amounts)
        return Shape(
            dialect=None,
            request=request,
            amounts=amounts,
            asked=places,
            accounted=accounted,
            preferred=preferred,
        )
    return Shape(
        dialect=asked.dialect,
        request=asked.request,
        amounts=amounts,
        asked=places,
        accounted=accounted,
        preferred=preferred,
    )


def liking_of(pod: Pod, ledger: Ledger) -> Liking | None:
    """What the images that *pod* needs make of nodes that are as good; None where that is nothing, or has no weight."""
    return ledger.images.liking(pod) if ledger.settings.node_weights.image_locality else None


def decide(
    candidates: Nodes,
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
    return Placement(
        pod=pod.uid,
        pod_key=pod.key,
        node=found.node,
        dialect=shape.dialect,
        assignment=found.placed.assignment,
        amounts=shape.taken,
        score=found.placed.score,
        uses=shape.asked.use,
        asked_by=pod,
    )
