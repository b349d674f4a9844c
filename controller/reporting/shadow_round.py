"""One round of shadow mode: what would become of the waiting pods if this controller decided, on a fork of the ledger.

Pods that others bound are counted as bound. Waiting pods are placed one at a time, in the order of queues, priority and
age, so that all results hold together. Nothing is kept. Hand-off to device plugins is left out, because it delays a
Binding but does not change a placement.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from controller.deciding.gang import Gang
from controller.deciding.scheduler import Scheduler
from controller.grouping.budgets import Spender, spender_of
from controller.reporting.answers import coded, where
from controller.reporting.work import Work
from core.constraints.quota import Account, Budget, over_wait, taken
from core.errors import NodeInvariantError
from core.explaining import explain
from core.explaining.explain import Refused
from core.explaining.shortage import shortage
from core.groups import GroupKey
from core.ledger import Ledger, Placement
from core.model import NodeName, Pod
from core.placing import gang
from core.placing.candidates import Candidates
from core.placing.decide import decide
from core.placing.shape import Shape
from core.waiting import Wait

# The limits of a round: judged pods, and shapes whose refusal is explained, which costs more than everything else. An
# explanation stays valid for this many rounds.
JUDGED_MAX: Final = 1000
EXPLAINED_MAX: Final = 10
_GOOD_FOR: Final = 12
_UNEXPLAINED: Final = "no node fits; the reason is being computed, a few kinds of pods at a time"
_NOWHERE: Final = frozenset[NodeName]()

# Returns why no node of a ledger, except some, takes a shape; and the seconds of work.
ExplainOn = Callable[[Shape, Ledger, frozenset[NodeName]], Awaitable[tuple[Refused, float]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The result for one pod: it fits, with node and cards in *answer*, or waits, with code and reason."""

    pod: Pod
    fits: bool
    answer: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """All judged pods in order, and the number of pods beyond the limit.

    number: of the round. reasons: why no node takes a shape, and the round of that explanation.
    """

    number: int = 0
    judged: tuple[Judged, ...] = ()
    left_out: int = 0
    reasons: Mapping[Shape, tuple[int, Mapping[str, Any]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """The next pod or gang to judge, as it was when the round began."""

    pod: Pod
    shape: Shape | None
    wait: Wait | None
    gang: Gang | None = None


async def judge(
    scheduler: Scheduler, explain_shape: ExplainOn, work: Work, before: Round, most: int = JUDGED_MAX
) -> Round:
    """Judge the first *most* waiting pods, after the round *before*; other tasks run between two pods."""
    turns, left_out = _turns(scheduler, most)
    if not turns:
        return Round(number=before.number + 1, left_out=left_out)
    trial = _Trial(scheduler, explain_shape, work, before)
    judged: list[Judged] = []
    for turn in turns:
        judged += await trial.judged(turn)
        await work.give_way()
    return Round(number=trial.number, judged=tuple(judged), left_out=left_out, reasons=trial.reasons)


def _turns(scheduler: Scheduler, most: int) -> tuple[list[_Turn], int]:
    """Return the order of pods, with gangs at the place of their first member; and how many pods are left out."""
    ranks = {line: scheduler.cluster.lines.rank(line) for line in {one.line for one in scheduler.cluster.queue}}
    entries = sorted(scheduler.cluster.queue, key=lambda one: (ranks[one.line], one.order))
    turns: list[_Turn] = []
    begun: set[GroupKey] = set()
    for entry in entries[:most]:
        found = scheduler.cluster.gangs.gang(entry) if entry.shape is not None else None
        if found is None:
            turns.append(_Turn(pod=entry.pod, shape=entry.shape, wait=entry.wait))
        elif found.key not in begun:
            begun.add(found.key)
            turns.append(_Turn(pod=entry.pod, shape=entry.shape, wait=None, gang=found))
    return turns, max(len(entries) - most, 0)


class _Trial:
    """A fork of the ledger in which pods are placed as if they were bound.

    Attributes:
        number: of the round.
        reasons: why no node takes a shape, for shapes refused in this round, and the round of that explanation.
    """

    def __init__(self, scheduler: Scheduler, explain_shape: ExplainOn, work: Work, before: Round) -> None:
        self.number: Final = before.number + 1
        self.reasons: Final[dict[Shape, tuple[int, Mapping[str, Any]]]] = {}
        self._before: Final = before.reasons
        self._scheduler: Final = scheduler
        self._explain: Final = explain_shape
        self._work: Final = work
        self._ledger: Final[Ledger] = scheduler.cluster.ledger.fork()
        self._candidates: Final = Candidates(self._ledger, scheduler.cluster.search.policy)
        # Use of queues and namespaces in this round, in addition to bound pods.
        self._spent: Final[dict[tuple[Account, str], int]] = {}
        # Shapes that no node takes any more, because free capacity only shrinks during a round.
        self._refused: Final[dict[Shape, Mapping[str, Any]]] = {}
        self._explained = 0

    async def judged(self, turn: _Turn) -> list[Judged]:
        """Return the results for *turn*."""
        if turn.gang is not None:
            return await self._gang(turn.gang)
        if turn.shape is None:
            return [_waits(turn.pod, turn.wait)]
        return [await self._pod(turn.pod, turn.shape)]

    async def _pod(self, pod: Pod, shape: Shape) -> Judged:
        known = self._refused.get(shape)
        if known is not None:
            return Judged(pod=pod, fits=False, answer=known)
        await self._prepare(shape)
        try:
            placement = decide(self._candidates, pod, shape)
        except NodeInvariantError as e:
            return self._contradicted(pod, e)
        if placement is None:
            answer = await self._why(shape)
            if not shape.asked.pods:
                self._refused[shape] = answer
            return Judged(pod=pod, fits=False, answer=answer)
        budget = self._budget(spender_of(pod))
        amounts = taken(self._ledger, pod, placement.dialect, placement.assignment)
        over = budget.lacks(amounts) if budget is not None else ()
        if over:
            return _waits(pod, over_wait(over))
        self._ledger.reserve(placement)
        self._spend(budget, amounts)
        return self._fits(pod, placement)

    async def _gang(self, found: Gang) -> list[Judged]:
        """Judge all members of a gang; enough of them are placed, or none."""
        pods = [one.pod for one in found.unit.members]
        if not found.is_complete:
            return [_waits(pod, found.incomplete_wait()) for pod in pods]
        for shape in dict.fromkeys(one.shape for one in found.unit.members):
            await self._prepare(shape)
        budget = self._budget(found.key)
        try:
            with self._ledger.trial() as trial:
                answer = gang.place(self._ledger, self._candidates, found.unit, lambda _: _NOWHERE, budget)
                if not isinstance(answer, gang.Refused):
                    trial.keep()
        except NodeInvariantError as e:
            return [self._contradicted(pod, e) for pod in pods]
        if isinstance(answer, gang.Refused):
            wait = over_wait(answer.over) if answer.over else shortage(answer)
            return [_waits(pod, wait) for pod in pods]
        placed = {one.pod: one for one in answer}
        judged: list[Judged] = []
        for one in found.unit.members:
            placement = placed.get(one.pod.uid)
            if placement is None:
                judged.append(Judged(pod=one.pod, fits=False, answer=await self._why(one.shape)))
            else:
                self._spend(budget, taken(self._ledger, one.pod, placement.dialect, placement.assignment))
                judged.append(self._fits(one.pod, placement))
        return judged

    async def _prepare(self, shape: Shape) -> None:
        for _ in self._candidates.prepare(shape):
            await self._work.give_way()

    def _contradicted(self, pod: Pod, error: NodeInvariantError) -> Judged:
        """Set aside a node whose state is contradictory; the round continues with the others."""
        name = NodeName(error.node)
        if name in self._ledger.states and name not in self._ledger.aside:
            self._ledger.set_aside(name, error.problem)
        return Judged(pod=pod, fits=False, answer={"code": "", "text": f"cannot be told: {error}"})

    def _fits(self, pod: Pod, placement: Placement) -> Judged:
        text = f"would go to {explain.placed(self._ledger, placement)}"
        return Judged(pod=pod, fits=True, answer={**where(self._ledger, placement), "text": text})

    async def _why(self, shape: Shape) -> Mapping[str, Any]:
        """Return why no node takes *shape* beside the pods that come first."""
        known = self._before.get(shape)
        is_good = known is not None and known[0] + _GOOD_FOR > self.number
        if not is_good and self._explained < EXPLAINED_MAX:
            self._explained += 1
            refused, _ = await self._explain(shape, self._ledger, _NOWHERE)
            known = self.number, coded(explain.wait(refused))
        if known is None:
            return {"code": "", "text": _UNEXPLAINED}
        self.reasons[shape] = known
        return known[1]

    def _budget(self, spender: Spender) -> Budget | None:
        found = self._scheduler.cluster.budgets.budget(spender)
        if found is None:
            return None
        left = {at: (left - self._spent.get(at, 0), limit) for at, (left, limit) in found.left.items()}
        return Budget(left)

    def _spend(self, budget: Budget | None, amounts: Mapping[str, int]) -> None:
        for at in budget.left if budget is not None else ():
            self._spent[at] = self._spent.get(at, 0) + amounts.get(at[1], 0)


def _waits(pod: Pod, wait: Wait | None) -> Judged:
    answer = coded(wait) if wait is not None else {"code": "", "text": "is being read"}
    return Judged(pod=pod, fits=False, answer=answer)
