"""Whether all of many pods fit at once: they are placed in a trial, slice by slice, on a ledger that may be changed."""

from collections.abc import Generator, Sequence, Set
from itertools import repeat
from typing import Final, NamedTuple

from core.constraints.quota import Budget, Over, taken
from core.ledger import Placement
from core.model import NodeName, Pod, PodUid
from core.placing.candidates import Candidates
from core.placing.decide import Shape, decide, preferred_shapes
from core.placing.gang import Member, orders

_NOWHERE: Final = frozenset[NodeName]()


class WantedPods(NamedTuple):
    """A number of *pods* that are alike; pod: one of them, whose uid is the prefix of all uids."""

    pod: Pod
    shape: Shape
    pods: int


class Short(NamedTuple):
    """Not all pods fit; the result of the order in which most did.

    placements: of the pods that fit. first: the request of the first pod that did not. over: what its namespace or
    queue has too little of; () if no node takes it.
    """

    placements: tuple[Placement, ...]
    first: WantedPods
    over: tuple[Over, ...]


def place_all(
    candidates: Candidates,
    wants: Sequence[WantedPods],
    passed_over: Set[NodeName] = _NOWHERE,
    budget: Budget | None = None,
) -> Generator[None, None, tuple[Placement, ...] | Short]:
    """Reserve for all pods of *wants*, or say how many fit; then the ledger of *candidates* is as it was.

    Yields where other work may run, which must not change that ledger.

    Args:
        candidates: where each pod goes.
        wants: what is asked.
        passed_over: nodes that are left out.
        budget: what the namespace or queue has left; None if that is not limited. It is not changed.

    Raises:
        NodeInvariantError: a node contradicts itself; the ledger is as it was.
    """
    ledger = candidates.ledger
    for want in wants:
        for shape in (*preferred_shapes(ledger, want.shape), want.shape):
            yield from candidates.prepare(shape)
    by_uid = {want.pod.uid: want for want in wants}
    best: Short | None = None
    for order in orders(candidates, tuple(Member(pod=want.pod, shape=want.shape) for want in wants)):
        left = budget.copy() if budget is not None else None
        with ledger.trial() as trial:
            answer = yield from _place(candidates, [by_uid[one.pod.uid] for one in order], passed_over, left)
            if not isinstance(answer, Short):
                trial.keep()
                return answer
        if best is None or len(answer.placements) > len(best.placements):
            best = answer
    return best or Short((), wants[0], ())


def place_some(
    candidates: Candidates, want: WantedPods, passed_over: Set[NodeName] = _NOWHERE
) -> Generator[None, None, tuple[Placement, ...]]:
    """Reserve for as many pods of *want* as fit on other nodes than *passed_over*."""
    yield from candidates.prepare(want.shape)
    answer = yield from _place(candidates, [want], passed_over, None)
    return answer.placements if isinstance(answer, Short) else answer


def _place(
    candidates: Candidates, wants: Sequence[WantedPods], passed_over: Set[NodeName], left: Budget | None
) -> Generator[None, None, tuple[Placement, ...] | Short]:
    placements: list[Placement] = []
    for want in wants:
        for number, pod in enumerate(repeat(want.pod, want.pods)):
            one = pod._replace(uid=PodUid(f"{pod.uid}/{number}"), name=f"{pod.name}-{number}")
            placement = decide(candidates, one, want.shape, passed_over)
            over: tuple[Over, ...] = ()
            if placement is not None and left is not None:
                over = left.spend(taken(candidates.ledger, one, placement.dialect, placement.assignment))
            if placement is None or over:
                return Short(tuple(placements), want, over)
            candidates.ledger.reserve(placement)
            placements.append(placement)
            yield
    return tuple(placements)
