"""Shadow mode: reports what this controller would do beside another scheduler, before a change-over.

Each round reports what would become of the waiting pods (`shadow_round`), which of them wait although they fit, and
which cards are held beyond their capacity. The onlooker compares Bindings. Nothing is written.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final, NoReturn

import structlog

from controller.inbox import Inbox
from controller.metrics import Metrics, show
from controller.reporting.onlooker import Onlooker, Outcome
from controller.reporting.shadow_round import ExplainOn, Round, judge
from controller.reporting.work import Work
from core import audit
from core.audit import Finding
from core.model import PodUid

_log: Final = structlog.get_logger()

# The pause between rounds is at least this, and this many times as long as the last round: at most a tenth of a CPU.
_ROUND_S: Final = 5.0
_REST_PER_WORK: Final = 9.0
# A pod that has had a place for this long waits needlessly: a working scheduler would have bound it.
NEEDLESS_S: Final = 30.0
FINDINGS_MAX: Final = 200
_VERSION: Final = 1


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
        """Prepare.

        Args:
            scheduler: the state of the cluster.
            inbox: the calls for the scheduler.
            explain_shape: returns why no node takes a shape.
            metrics: the process's metrics.
            is_current: whether the mirror is recent enough for decisions.
            clock: monotonic seconds.
            wall: Unix seconds.
        """
        self._scheduler: Final = scheduler
        self._inbox: Final = inbox
        self._explain: Final = explain_shape
        self._metrics: Final = metrics
        self._is_current: Final = is_current
        self._clock: Final = clock
        self._wall: Final = wall
        self._round = Round()
        self._findings: tuple[Finding, ...] = ()
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

    async def _faults(self, work: Work) -> tuple[Finding, ...]:
        """Return violations: cards beyond their capacity, sold in two ways, or held by unreadable pods."""
        ledger = self._scheduler.cluster.ledger
        found: list[Finding] = []
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
        for outcome in Outcome:
            show(metrics.shadow_bindings.labels(outcome.value), self._scheduler.outcomes_seen[outcome])
        counts = dict.fromkeys(audit.Fault, 0)
        for one in self._findings:
            counts[one.fault] += 1
        for fault, count in counts.items():
            metrics.audit_findings.labels(fault.value).set(count)

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
            "findings": [
                {"fault": one.fault.value, "node": one.node, "text": one.text} for one in self._findings[:FINDINGS_MAX]
            ],
            "findings_in_all": len(self._findings),
            "bindings": {outcome.value: seen[outcome] for outcome in Outcome},
            "differences": [one.told() for one in self._scheduler.differences],
        }
