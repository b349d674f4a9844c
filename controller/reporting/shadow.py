"""Shadow mode: reports what this controller would do beside another scheduler, before a change-over.

Each round reports what would become of the waiting pods, which of them wait although they fit, and
which cards are held beyond their capacity. The onlooker compares Bindings. Nothing is written.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NoReturn

from controller.actions import Inbox
from controller.deciding.cluster import ClusterState
from controller.deciding.gang import Gang
from controller.deciding.lifecycle import Entry
from controller.deciding.scheduler import Scheduler
from controller.grouping.budgets import spender_of
from controller.metrics import Metrics, show
from controller.reporting.answers import ExplainOn, as_placed, coded, where
from controller.reporting.audit import fill_findings, told
from controller.reporting.trial import TrialCluster
from controller.reporting.work import Work
from core import audit
from core.audit import AuditFinding
from core.constraints.quota import over_wait, taken
from core.errors import NodeInvariantError
from core.explaining import explain
from core.explaining.refusal import refusal_on
from core.explaining.shortage import shortage
from core.ledger import Placement
from core.model import GroupKey, NodeName, Pod, PodUid
from core.placing import gang
from core.placing.decide import Shape, decide
from core.units import time_text
from core.waiting import Wait

DIFFERENCES_MAX: Final = 200
# The limits of a round: judged pods, and shapes whose refusal is explained, which costs more than everything else. An
# explanation stays valid for this many rounds.
JUDGED_MAX: Final = 1000
EXPLAINED_MAX: Final = 10
_GOOD_FOR: Final = 12
_UNEXPLAINED: Final = "no node fits; the reason is being computed, a few kinds of pods at a time"
_NOWHERE: Final = frozenset[NodeName]()

# The pause between rounds is at least this, and this many times as long as the last round: at most a tenth of a CPU.
_ROUND_S: Final = 5.0
_REST_PER_WORK: Final = 9.0
# A pod that has had a place for this long waits needlessly: a working scheduler would have bound it.
NEEDLESS_S: Final = 30.0
FINDINGS_MAX: Final = 200
_VERSION: Final = 1


class Agreement(StrEnum):
    """How another scheduler's Binding compares with this controller's decision; also the words of the metric.

    SAME: the same node and cards. CARDS: the same node, other cards. NODE: another node. REFUSED: nowhere, or not yet.
    UNKNOWN: there is no comparison.
    """

    SAME = "same"
    CARDS = "other-cards"
    NODE = "other-node"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A pod that another scheduler placed differently: both placements, and the time (Unix seconds)."""

    pod: str
    outcome: Agreement
    at_s: float
    bound: dict[str, Any]
    instead: dict[str, Any]

    def told(self) -> dict[str, Any]:
        """Return it in the form of /v1/shadow."""
        at = time_text(self.at_s)
        return {"pod": self.pod, "at": at, "outcome": self.outcome.value, "bound": self.bound, "instead": self.instead}


class Onlooker(Scheduler):
    """A scheduler that decides nothing, and records the decisions of others.

    A scheduler for shadow mode: for each Binding of another scheduler, it records what this controller would have done.

    It decides when it sees the Binding, for the cluster as it was just before, with all pods where others bound them.
    Then the pod is counted as bound, like any other.

    Attributes:
        outcomes_seen: number of other schedulers' Bindings, by outcome.
        differences: the latest Bindings that were not the same, oldest first.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """See `Scheduler`."""
        super().__init__(*args, **kwargs)
        self.outcomes_seen: Final[Counter[Agreement]] = Counter()
        self.differences: Final[deque[Difference]] = deque(maxlen=DIFFERENCES_MAX)

    def pod_changed(self, pod: Pod) -> None:
        """Record that a pod was added or changed; see `Scheduler.pod_changed`."""
        entry = self.cluster.queue.get(pod.uid)
        if entry is None or not pod.node_name:
            super().pod_changed(pod)
            return
        instead = self._decided(entry, NodeName(pod.node_name))
        super().pod_changed(pod)
        if self.cluster.queue.get(pod.uid) is None:
            self._compare(pod, instead)

    def _decided(self, entry: Entry, node: NodeName) -> dict[str, Any] | None:
        """Return where the pod of *entry* would go now, or if nowhere, why not to *node*; None if unknown."""
        if entry.shape is None:
            return coded(entry.wait) if entry.wait is not None else None
        try:
            placement = decide(self.cluster.search.candidates, entry.pod, entry.shape)
        except NodeInvariantError:
            return None
        return where(self.cluster.ledger, placement) if placement is not None else self._refused(entry.shape, node)

    def _refused(self, shape: Shape, name: NodeName) -> dict[str, Any]:
        state = self.cluster.ledger.states.get(name)
        if state is None:
            return {"text": f"no node fits, and node {name} does not exist"}
        refusal = refusal_on(self.cluster.ledger, shape, state, self.cluster.search.policy.cards)
        why = (
            ": ".join(filter(None, (refusal.key, refusal.detail)))
            if refusal is not None
            else "constraints of other pods exclude it"
        )
        return {"text": f"no node fits; {name}: {why}"}

    def _compare(self, pod: Pod, instead: dict[str, Any] | None) -> None:
        bound = self._bound(pod)
        outcome = _outcome(bound, instead)
        self.outcomes_seen[outcome] += 1
        if outcome is Agreement.SAME:
            return
        instead = instead or {"text": "the decision at that time is unknown"}
        self.differences.append(
            Difference(pod=pod.key, outcome=outcome, at_s=self.cluster.wall(), bound=bound, instead=instead)
        )

    def _bound(self, pod: Pod) -> dict[str, Any]:
        """Return where *pod* is, as counted."""
        holding = self.cluster.ledger.holding(pod.uid)
        if holding is None or holding.dialect is None or holding.assignment is None:
            told = {"node": pod.node_name, "cards": []}
            return told | ({"text": holding.reason} if holding is not None and holding.reason else {})
        return where(self.cluster.ledger, as_placed(pod, holding))


def _outcome(bound: dict[str, Any], instead: dict[str, Any] | None) -> Agreement:
    if instead is None:
        return Agreement.UNKNOWN
    if "node" not in instead:
        return Agreement.REFUSED
    if bound["node"] != instead["node"]:
        return Agreement.NODE
    return Agreement.SAME if _cards(bound) == _cards(instead) else Agreement.CARDS


def _cards(told: dict[str, Any]) -> list[str]:
    return sorted(one["card"] for one in told["cards"])


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedPod:
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
    judged: tuple[JudgedPod, ...] = ()
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
    """Judge the first *most* waiting pods, after the round *before*; other tasks run between two pods.

    One round of shadow mode: what would become of the waiting pods if this controller decided, on a fork of the ledger.

    Pods that others bound are counted as bound. Waiting pods are placed one at a time, in the order of queues, priority
    and age, so that all results hold together. Nothing is kept. Hand-off to device plugins is left out, because it
    delays a Binding but does not change a placement.
    """
    turns, left_out = _turns(scheduler, most)
    if not turns:
        return Round(number=before.number + 1, left_out=left_out)
    trial = _Trial(scheduler.cluster, explain_shape, work, before)
    judged: list[JudgedPod] = []
    for turn in turns:
        judged += await trial.judged(turn)
        await work.give_way()
    return Round(number=trial.number, judged=tuple(judged), left_out=left_out, reasons=trial.reasons)


def _turns(scheduler: Scheduler, most: int) -> tuple[list[_Turn], int]:
    """Return the order of pods, with gangs at the place of their first member; and how many pods are left out."""
    ranks = {line: scheduler.cluster.queue_order.rank(line) for line in {one.line for one in scheduler.cluster.queue}}
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


class _Trial(TrialCluster):
    """Pods are placed as if they were bound.

    Attributes:
        number: of the round.
        reasons: why no node takes a shape, for shapes refused in this round, and the round of that explanation.
    """

    def __init__(self, cluster: ClusterState, explain_shape: ExplainOn, work: Work, before: Round) -> None:
        super().__init__(cluster)
        self.number: Final = before.number + 1
        self.reasons: Final[dict[Shape, tuple[int, Mapping[str, Any]]]] = {}
        self._before: Final = before.reasons
        self._explain: Final = explain_shape
        self._work: Final = work
        # Shapes that no node takes any more, because free capacity only shrinks during a round.
        self._refused: Final[dict[Shape, Mapping[str, Any]]] = {}
        self._explained = 0

    async def judged(self, turn: _Turn) -> list[JudgedPod]:
        """Return the results for *turn*."""
        if turn.gang is not None:
            return await self._gang(turn.gang)
        if turn.shape is None:
            return [_waits(turn.pod, turn.wait)]
        return [await self._pod(turn.pod, turn.shape)]

    async def _pod(self, pod: Pod, shape: Shape) -> JudgedPod:
        known = self._refused.get(shape)
        if known is not None:
            return JudgedPod(pod=pod, fits=False, answer=known)
        await self._prepare(shape)
        try:
            placement = decide(self.candidates, pod, shape)
        except NodeInvariantError as e:
            return self._contradicted(pod, e)
        if placement is None:
            answer = await self._why(shape)
            if not shape.asked.pods:
                self._refused[shape] = answer
            return JudgedPod(pod=pod, fits=False, answer=answer)
        spender = spender_of(pod)
        budget = self.budget(spender)
        amounts = taken(self.ledger, pod, placement.dialect, placement.assignment)
        over = budget.lacks(amounts) if budget is not None else ()
        if over:
            return _waits(pod, over_wait(over))
        self.ledger.reserve(placement)
        self.spend(spender, amounts)
        return self._fits(pod, placement)

    async def _gang(self, found: Gang) -> list[JudgedPod]:
        """Judge all members of a gang; enough of them are placed, or none."""
        pods = [one.pod for one in found.unit.members]
        if not found.is_complete:
            return [_waits(pod, found.incomplete_wait()) for pod in pods]
        for shape in dict.fromkeys(one.shape for one in found.unit.members):
            await self._prepare(shape)
        budget = self.budget(found.key)
        try:
            with self.ledger.trial() as trial:
                answer = gang.place(self.ledger, self.candidates, found.unit, lambda _: _NOWHERE, budget)
                if not isinstance(answer, gang.Refused):
                    trial.keep()
        except NodeInvariantError as e:
            return [self._contradicted(pod, e) for pod in pods]
        if isinstance(answer, gang.Refused):
            several = found.unit.needed > 1
            wait = over_wait(answer.over, together=several) if answer.over else shortage(answer)
            return [_waits(pod, wait) for pod in pods]
        placed = {one.pod: one for one in answer}
        judged: list[JudgedPod] = []
        for one in found.unit.members:
            placement = placed.get(one.pod.uid)
            if placement is None:
                judged.append(JudgedPod(pod=one.pod, fits=False, answer=await self._why(one.shape)))
            else:
                self.spend(found.key, taken(self.ledger, one.pod, placement.dialect, placement.assignment))
                judged.append(self._fits(one.pod, placement))
        return judged

    async def _prepare(self, shape: Shape) -> None:
        for _ in self.candidates.prepare(shape):
            await self._work.give_way()

    def _contradicted(self, pod: Pod, error: NodeInvariantError) -> JudgedPod:
        self.set_aside(error)
        return JudgedPod(pod=pod, fits=False, answer={"code": "", "text": f"cannot be told: {error}"})

    def _fits(self, pod: Pod, placement: Placement) -> JudgedPod:
        text = f"would go to {self.ledger.described(placement)}"
        return JudgedPod(pod=pod, fits=True, answer={**where(self.ledger, placement), "text": text})

    async def _why(self, shape: Shape) -> Mapping[str, Any]:
        """Return why no node takes *shape* beside the pods that come first."""
        known = self._before.get(shape)
        is_good = known is not None and known[0] + _GOOD_FOR > self.number
        if not is_good and self._explained < EXPLAINED_MAX:
            self._explained += 1
            refused, _ = await self._explain(shape, self.ledger, _NOWHERE)
            known = self.number, coded(explain.wait(refused))
        if known is None:
            return {"code": "", "text": _UNEXPLAINED}
        self.reasons[shape] = known
        return known[1]


def _waits(pod: Pod, wait: Wait | None) -> JudgedPod:
    answer = coded(wait) if wait is not None else {"code": "", "text": "is being read"}
    return JudgedPod(pod=pod, fits=False, answer=answer)


class Shadow:
    """Runs rounds until cancelled, and reports the last round's results."""

    def __init__(
        self,
        scheduler: Onlooker,
        inbox: Inbox,
        explain_shape: ExplainOn,
        metrics: Metrics,
        *,
        is_current: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Prepare; *is_current*: whether the mirror is recent enough for decisions."""
        self._scheduler: Final = scheduler
        self._inbox: Final = inbox
        self._explain: Final = explain_shape
        self._metrics: Final = metrics
        self._is_current: Final = is_current
        self._clock: Final = clock
        self._wall: Final = wall
        self._round = Round()
        self._findings: tuple[AuditFinding, ...] = ()
        self._ended_s = 0.0
        # Since when a waiting pod has had a place in every round (monotonic).
        self._fits_since_s: dict[PodUid, float] = {}

    async def run(self) -> NoReturn:
        """Run rounds until cancelled, but not while the mirror is behind."""
        while True:
            worked_s = await self.look() if self._is_current() else 0.0
            await asyncio.sleep(max(_ROUND_S, _REST_PER_WORK * worked_s))

    async def look(self) -> float:
        """Run one round; return its seconds of work."""
        await self._inbox.settled()
        work, now_s = Work(self._clock), self._clock()
        found = await judge(self._scheduler, self._explain, work, self._round)
        fitting = [one.pod.uid for one in found.judged if one.fits]
        self._fits_since_s = {uid: self._fits_since_s.get(uid, now_s) for uid in fitting}
        findings = await self._faults(work)
        self._round, self._findings, self._ended_s = found, findings, self._clock()
        return work.worked_s

    async def _faults(self, work: Work) -> tuple[AuditFinding, ...]:
        """Return violations: cards beyond their capacity, sold in two ways, or held by unreadable pods."""
        ledger = self._scheduler.cluster.ledger
        found: list[AuditFinding] = []
        for name in tuple(ledger.states):
            await work.give_way()
            await self._inbox.settled()
            if name in ledger.states:
                found += audit.faults_on(ledger, name, self._scheduler.cluster.carded.keys())
        return (*found, *audit.faults_between(ledger))

    # ------------------------------------------------------------------ what others see

    def fill(self) -> None:
        """Update the gauges."""
        metrics, judged = self._metrics, self._round.judged
        fitting = sum(one.fits for one in judged)
        metrics.shadow_pods.labels("fits").set(fitting)
        metrics.shadow_pods.labels("waits").set(len(judged) - fitting)
        metrics.shadow_pods.labels("not-judged").set(self._round.left_out)
        metrics.shadow_needless.set(len(self._needless()))
        show(metrics.shadow_rounds, self._round.number)
        for outcome in Agreement:
            show(metrics.shadow_bindings.labels(outcome.value), self._scheduler.outcomes_seen[outcome])
        fill_findings(metrics, self._findings)

    def _needless(self) -> dict[PodUid, float]:
        """Return how many seconds pods have waited needlessly, if long enough."""
        now_s = self._clock()
        since = {
            uid: now_s - at_s
            for uid, at_s in self._fits_since_s.items()
            if self._scheduler.cluster.queue.get(uid) is not None
        }
        return {uid: for_s for uid, for_s in since.items() if for_s >= NEEDLESS_S}

    def report(self) -> dict[str, Any] | None:
        """Return all results, for /v1/shadow; None before the first round is over."""
        if not self._round.number:
            return None
        needless, seen = self._needless(), self._scheduler.outcomes_seen
        pods = [
            {
                "pod": one.pod.key,
                "uid": one.pod.uid,
                "scheduler": one.pod.scheduler_name,
                "waits_s": round(max(self._wall() - one.pod.created_s, 0.0)) if one.pod.created_s else None,
                "fits": one.fits,
                "without_need": one.pod.uid in needless,
                **one.answer,
            }
            for one in self._round.judged
            if self._scheduler.cluster.queue.get(one.pod.uid) is not None
        ]
        return {
            "version": _VERSION,
            "schedulers": list(self._scheduler.cluster.settings.scheduler_names),
            "rounds": self._round.number,
            "age_s": round(self._clock() - self._ended_s, 1),
            "nodes": len(self._scheduler.cluster.ledger.states),
            "bound": len(self._scheduler.cluster.carded),
            "pods": pods,
            "not_judged": self._round.left_out,
            "without_need": len(needless),
            "findings": [told(one) for one in self._findings[:FINDINGS_MAX]],
            "findings_in_all": len(self._findings),
            "bindings": {outcome.value: seen[outcome] for outcome in Agreement},
            "differences": [one.told() for one in self._scheduler.differences],
        }
