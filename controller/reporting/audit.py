"""Continuously compares the ledger with the API server's objects, node by node, and reports and repairs differences.

A node's pods are fetched and compared with the ledger. A pod that the mirror has in another version is changing and is
skipped. A difference in two looks is drift: it is counted, reported in an event, and repaired by counting the pod or
the node again. Violations in a correct ledger (a card over its total, cards sold in two ways) are also reported, but
only the operator can repair them.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple, TypeVar

import structlog

from controller.actions import Inbox
from controller.deciding.scheduler import Scheduler
from controller.metrics import Metrics
from core import audit
from core.audit import AuditFinding, Fault
from core.model import NodeName, Pod, PodUid
from kube.errors import ApiError, UndecodableError

_log: Final = structlog.get_logger()
_T = TypeVar("_T")

# Longer than the delay of a watch, so a difference that remains is real.
AGAIN_S: Final = 5.0
# Longer than the pods of a removed node stay. Source: kube-controller-manager, pod garbage collector: at most 60 s.
COLLECTED_S: Final = 120.0
# Limits the rate of requests, whatever the number of nodes.
_LEAST_PAUSE_S: Final = 0.05
_IDLE_S: Final = 1.0
_REPAIRED: Final = "the audit found a difference from the API server and corrected it: see /v1/audit"
REASONS: Final[Mapping[Fault, str]] = {
    Fault.OVERCOMMITTED: "CardsOvercommitted",
    Fault.FOREIGN_OVERCOMMIT: "CardsOvercommitted",
    Fault.SOLD_TWICE: "CardsSoldTwice",
    Fault.DUPLICATE_CARD: "CardRegisteredTwice",
    Fault.DRIFT: "LedgerRepaired",
}


class Seen(NamedTuple):
    """The result of one look at a node: drift, and by uid the pods that the mirror lacks or has in an older version."""

    missed: Mapping[PodUid, Pod]
    vanished: tuple[PodUid, ...]
    drift: tuple[str, ...]

    @property
    def is_sound(self) -> bool:
        """Whether nothing is suspicious."""
        return not (self.missed or self.vanished or self.drift)

    def also_in(self, other: "Seen") -> "Seen":
        """Return what both looks found."""
        return Seen(
            missed={
                uid: pod
                for uid, pod in self.missed.items()
                if (before := other.missed.get(uid)) is not None and before.resource_version == pod.resource_version
            },
            vanished=tuple(uid for uid in self.vanished if uid in other.vanished),
            drift=tuple(text for text in self.drift if text in other.drift),
        )


class Audit:
    """Visits all nodes repeatedly; one round takes at least `settings.audit_round_s`.

    Attributes:
        findings: findings of the last look at each node, by node; those that concern several nodes, by "".
        rounds: number of completed rounds.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        inbox: Inbox,
        fetch: Callable[[NodeName], Awaitable[Sequence[Pod]]],
        metrics: Metrics,
        *,
        list_again: Callable[[], None] = lambda: None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Prepare.

        *fetch* returns the pods of a node, read from the API server now. *list_again* lists all pods again, because a
        pod that left its node may now wait without one.
        """
        self.findings: Final[dict[str, tuple[AuditFinding, ...]]] = {}
        self.rounds = 0
        self._scheduler = scheduler
        self._inbox = inbox
        self._fetch = fetch
        self._metrics = metrics
        self._list_again = list_again
        self._sleep = sleep
        self._announced: set[AuditFinding] = set()
        # Faults between nodes that may pass, and since when they are watched, monotonic.
        self._suspected: tuple[AuditFinding, ...] = ()
        self._suspected_s = 0.0

    async def run(self) -> None:
        """Visit all nodes repeatedly until cancelled; a round of 0 s disables this."""
        while True:
            names = list(self._scheduler.cluster.ledger.states)
            round_s = self._scheduler.cluster.settings.audit_round_s
            if not names or not round_s:
                await self._sleep(_IDLE_S)
                continue
            pause_s = max(round_s / len(names), _LEAST_PAUSE_S)
            for name in names:
                await self._sleep(pause_s)
                await self.look_at(name)
                await self._confirm()
            await self._finish_round()

    async def look_at(self, name: NodeName) -> None:
        """Compare one node, twice if something seems wrong; repair what is still wrong."""
        try:
            seen = await self._look(name)
            if not seen.is_sound:
                await self._sleep(AGAIN_S)
                seen = (await self._look(name)).also_in(seen)
        except (ApiError, UndecodableError) as e:
            self._metrics.api_errors.labels("audit node").inc()
            _log.warning("a node cannot be audited", node=name, error=str(e))
            return
        await self._ask(partial(self._take, name, seen))

    async def _look(self, name: NodeName) -> Seen:
        pods = await self._fetch(name)
        return await self._ask(partial(self._compare, name, pods))

    async def _ask(self, question: Callable[[], _T]) -> _T:
        """Return the result of *question* in the scheduler's turn."""
        answers: list[_T] = []
        await self._inbox.put_and_wait(lambda: answers.append(question()))
        return answers[0]

    # ------------------------------------------------------------------ in the scheduler's turn

    def _compare(self, name: NodeName, pods: Sequence[Pod]) -> Seen:
        scheduler, ledger = self._scheduler, self._scheduler.cluster.ledger
        node = ledger.node(name)
        if node is None:
            return Seen({}, (), ())
        there = {pod.uid: pod for pod in pods if not pod.finished}
        promised = (uid for uid in ledger.holders(name) if scheduler.cluster.queue.get(uid) is not None)
        reserved = {*promised, *ledger.nominated, *scheduler.vanished.until_s}
        vanished = tuple(uid for uid in ledger.holders(name) if uid not in there and uid not in reserved)
        missed = {uid: pod for uid, pod in there.items() if scheduler.has_missed(pod)}
        same = [pod for pod in there.values() if scheduler.has_seen(pod)]
        fresh = audit.rebuilt(
            ledger.catalog, ledger.tables, ledger.settings, [node], [ledger.counted(pod.uid) or pod for pod in same]
        )
        settled = {pod.uid for pod in same}
        unsettled = {uid for uid in (*there, *ledger.holders(name)) if uid not in settled}
        return Seen(missed, vanished, audit.differences(ledger, fresh, name, reserved=reserved, unsettled=unsettled))

    def _take(self, name: NodeName, seen: Seen) -> None:
        """Repair what *seen* shows, and record other faults of the node."""
        scheduler, found = self._scheduler, []
        for uid, pod in seen.missed.items():
            scheduler.pod_changed(pod)
            found.append(f"pod {pod.key} changed, and the change was missed ({uid})")
        for uid in seen.vanished:
            scheduler.pod_gone(uid)
            found.append(f"pod {uid} was deleted, and the deletion was missed")
        if seen.vanished:
            self._list_again()
        if seen.drift:
            scheduler.cluster.ledger.recount(name)
            found += seen.drift
        findings = [AuditFinding(fault=Fault.DRIFT, node=name, text=text, event=_REPAIRED) for text in found]
        if name in scheduler.cluster.ledger.states:
            findings += audit.faults_on(scheduler.cluster.ledger, name, self._foreign_on(name))
        self._metrics.audit_repairs.inc(len(found))
        self._note(name, findings)

    def _foreign_on(self, name: NodeName) -> set[PodUid]:
        """Return the pods with cards on a node that another scheduler places."""
        cluster = self._scheduler.cluster
        known = (cluster.carded.get(uid) for uid in cluster.ledger.holders(name))
        ours = cluster.settings.scheduler_names
        return {pod.uid for pod in known if pod is not None and pod.scheduler_name not in ours}

    async def _finish_round(self) -> None:
        await self._look_between()
        gone = [name for name in self.findings if name and name not in self._scheduler.cluster.ledger.states]
        for name in gone:
            del self.findings[name]
        self._announced.intersection_update(one for some in self.findings.values() for one in some)
        self.rounds += 1
        self._metrics.audit_rounds.inc()

    async def _look_between(self) -> None:
        """Drop faults between nodes that are repaired, and suspect new ones; `_confirm` notes those that last."""
        found = await self._ask(self._between)
        self._note("", [one for one in self.findings.get("", ()) if one in found])
        if self._suspected:
            self._suspected = tuple(one for one in self._suspected if one in found)
        else:
            self._suspected, self._suspected_s = found, self._scheduler.cluster.clock()

    async def _confirm(self) -> None:
        """Note the suspected faults that lasted longer than nodes take to be removed or renamed."""
        if self._suspected and self._scheduler.cluster.clock() >= self._suspected_s + COLLECTED_S:
            found, self._suspected = self._suspected, ()
            now = await self._ask(self._between)
            self._note("", [one for one in found if one in now])

    def _between(self) -> tuple[AuditFinding, ...]:
        return audit.faults_between(self._scheduler.cluster.ledger)

    def _note(self, where: str, findings: Iterable[AuditFinding]) -> None:
        found = tuple(findings)
        if found:
            self.findings[where] = found
        else:
            self.findings.pop(where, None)
        announced: set[tuple[NodeName, str]] = set()
        for one in found:
            if one in self._announced and one.fault is not Fault.DRIFT:
                continue
            self._announced.add(one)
            _log.warning("audit", fault=one.fault.value, node=one.node, reason=one.text)
            reason, cluster = REASONS.get(one.fault), self._scheduler.cluster
            if reason is not None and one.node in cluster.ledger.states and (one.node, one.event) not in announced:
                announced.add((one.node, one.event))
                cluster.announce_node(one.node, reason, one.event)
        self._inbox.filled.set()

    # ------------------------------------------------------------------ what others see

    def fill(self) -> None:
        """Set the gauges of findings."""
        fill_findings(self._metrics, chain.from_iterable(self.findings.values()))

    def report(self) -> dict[str, Any]:
        """Return all findings, for /v1/audit."""
        found = sorted((one for some in self.findings.values() for one in some), key=lambda one: (one.node, one.text))
        return {
            "rounds": self.rounds,
            "findings": [told(one) for one in found],
        }


def fill_findings(metrics: Metrics, findings: Iterable[AuditFinding]) -> None:
    """Set the gauges to the number of *findings* of each fault."""
    counts = Counter(one.fault for one in findings)
    for fault in Fault:
        metrics.audit_findings.labels(fault.value).set(counts[fault])


def told(one: AuditFinding) -> dict[str, str]:
    """Return a finding in the form of /v1/audit and /v1/shadow."""
    return {"fault": one.fault.value, "node": one.node, "text": one.text}
