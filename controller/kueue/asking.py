"""One round of Kueue's admission checks: whether the pods of each Workload fit now, on a fork of the ledger.

Capacity promised to one Workload is counted before the next is judged. The ledger itself does not change. Hand-off to
device plugins is left out.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Hashable, Iterable, Mapping, Sequence
from typing import Final

from controller.deciding.scheduler import Scheduler
from controller.grouping.budgets import spender_of
from controller.reporting.answers import ExplainOn
from controller.reporting.trial import TrialCluster
from controller.reporting.work import Work
from core.admission.manifests import pod_to_come
from core.admission.rulebook import Rulebook
from core.constraints.quota import over_wait, taken
from core.errors import InvalidRequestError, NodeInvariantError, quoted
from core.explaining import explain
from core.kueue import (
    CONTROLLER_NAME,
    MAIN,
    POD_SET,
    PROMISE_S,
    Additions,
    AdmissionCheck,
    Answer,
    CheckState,
    Flavor,
    PodSet,
    Workload,
    marks_of,
    pod_with,
)
from core.ledger import Placement
from core.model import NodeName, Pod, PodUid
from core.placing.decide import invalid, shape_of
from core.placing.fits import Short, WantedPods, place_all, place_some
from core.units import listed
from core.waiting import Cause, Wait
from core.wire.kueue import pod_in

# A larger Workload is not judged, because its pods would be placed one at a time.
PODS_MAX: Final = 10_000
# Kueue accepts 32,768 characters; a shorter text is readable.
_TEXT_MAX: Final = 2048
_NAMED: Final = 5
_NOTHING: Final = Answer(CheckState.READY, "requests nothing that cardshare places")
# Kueue adds a check that is new in a ClusterQueue to admitted Workloads too, and would evict them for Retry.
_ADMITTED: Final = Answer(CheckState.READY, "is admitted already; its pods are not judged again")
_PLACED: Final = Answer(CheckState.READY, "all of its pods have a place")


class KueueObjects:
    """The watched objects of Kueue: Workloads that ask or have a promise, flavors, and admission checks.

    Attributes:
        changed: set after each change.
        flavors: the additions of each flavor to pods.
        checks: cardshare's AdmissionChecks by name.
        workloads: unfinished Workloads with quota, by namespace/name.
        evicted: the keys of evicted Workloads, whose pods Kueue has stopped.
        arrived: by the same key, their pods that once had their capacity, with the pod set of each.
        ended_with: the Workload at which a round ended early; the next round begins after it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with none; *clock*: monotonic seconds, because clocks may be set while Workloads wait."""
        self._clock: Final = clock
        self.changed: Final = asyncio.Event()
        self.flavors: Final[dict[str, Additions]] = {}
        self.checks: Final[dict[str, AdmissionCheck]] = {}
        self.workloads: Final[dict[str, Workload]] = {}
        self.evicted: Final[dict[str, None]] = {}
        self.arrived: Final[dict[str, dict[PodUid, str]]] = {}
        self.ended_with: Workload | None = None
        # Waiting Workloads as judged, and when they are judged again (monotonic).
        self._resting: Final[dict[str, tuple[Workload, float]]] = {}
        # The end of each promise (Unix seconds), and when it was first seen (monotonic).
        self._promises: Final[dict[str, tuple[float, float]]] = {}
        # The last change of our checks of each Workload, and when it was first seen (monotonic).
        self._changes: Final[dict[str, tuple[Hashable, float]]] = {}

    def put_flavor(self, flavor: Flavor) -> None:
        """Record that a flavor was added or changed."""
        self.flavors[flavor.name] = flavor.additions

    def put_check(self, check: AdmissionCheck) -> None:
        """Record that a check was added or changed."""
        if check.controller == CONTROLLER_NAME:
            self.checks[check.name] = check
            self.changed.set()

    def put_workload(self, workload: Workload) -> None:
        """Record that a Workload was added or changed."""
        if workload.is_evicted:
            self.evicted[workload.key] = None
        else:
            self.evicted.pop(workload.key, None)
        if workload.has_quota and not workload.is_over and workload.checks:
            self.workloads[workload.key] = workload
            self._note_change(workload)
            self.changed.set()
        else:
            self.workloads.pop(workload.key, None)
            self.arrived.pop(workload.key, None)
            self._changes.pop(workload.key, None)

    def grows(self, workload: Workload) -> bool:
        """Return whether some pods of *workload* run for the Workload that it replaces.

        Kueue finishes that one as soon as *workload* has quota, whether its pods run or were stopped before.
        """
        return bool(workload.replaces) and workload.replaces not in self.evicted

    def asking(self, now_s: float) -> list[Workload]:
        """Return the Workloads to answer, in order; now_s: Unix seconds."""
        live = self._live(now_s)
        found = (one for one in live if one.is_asking(self.checks, self._now(one, now_s)) and not self._rests(one))
        asking = sorted(found, key=lambda one: one.order)
        last, self.ended_with = self.ended_with, None
        if last is None:
            return asking
        return [*(one for one in asking if one.order > last.order), *(one for one in asking if one.order <= last.order)]

    def _note_change(self, workload: Workload) -> float:
        """Return when the last change of our checks of *workload* was first seen, monotonic."""
        change = workload.last_change(self.checks)
        known, first_s = self._changes.get(workload.key, (None, 0.0))
        if known != change:
            first_s = self._clock()
            self._changes[workload.key] = change, first_s
        return first_s

    def may_refuse(self, workload: Workload) -> bool:
        """Return whether *workload* has waited long enough for a refusal, by this clock: Kueue's may differ."""
        waits_s = workload.waits_s(self.checks)
        return not waits_s or self._clock() >= self._note_change(workload) + waits_s

    def rest(self, workload: Workload, until_s: float) -> None:
        """Do not judge *workload* before *until_s* (monotonic) unless it changes."""
        self._resting[workload.key] = workload, until_s

    def _rests(self, workload: Workload) -> bool:
        known, until_s = self._resting.get(workload.key, (None, 0.0))
        return known is workload and self._clock() < until_s

    def promised(self, now_s: float) -> list[Workload]:
        """Return the Workloads with reserved capacity, the earliest promise first.

        To one that was admitted before the answer nothing was promised: its pods run, or have ended.
        """
        live = [one for one in self._live(now_s) if not one.says(self.checks, _ADMITTED.message)]
        found = (one for one in live if one.promised_until_s(self.checks) > self._now(one, now_s))
        return sorted(found, key=lambda one: (one.told_s(self.checks), one.order))

    def _live(self, now_s: float) -> list[Workload]:
        """Return all Workloads except those whose promise has lapsed since their admission; forget these."""
        for one in list(self.workloads.values()):
            at_s = self._now(one, now_s)
            if one.admitted_s and one.promised_until_s(self.checks) <= at_s and not one.is_asking(self.checks, at_s):
                del self.workloads[one.key]
        for kept in (self._resting, self._promises, self._changes, self.arrived):
            for key in kept.keys() - self.workloads.keys():
                del kept[key]
        return list(self.workloads.values())

    def _now(self, workload: Workload, now_s: float) -> float:
        """Return *now_s*, or later if the promise to *workload* has been known here for longer than its times show.

        That is so if this clock was set back since the answer, or if Kueue's clock, which times admissions, is ahead.
        """
        until_s = workload.promised_until_s(self.checks)
        if until_s <= now_s:
            return now_s
        known_s, first_s = self._promises.get(workload.key, (0.0, 0.0))
        if known_s != until_s:
            first_s = self._clock()
            self._promises[workload.key] = until_s, first_s
        return max(now_s, until_s - PROMISE_S + self._clock() - first_s)


class AdmissionRound:
    """Answers Workloads in one round."""

    def __init__(
        self, scheduler: Scheduler, known: KueueObjects, explain_shape: ExplainOn, book: Rulebook, work: Work
    ) -> None:
        """Begin a round with the current ledger; *book*: the rules that complete pods."""
        self._scheduler: Final = scheduler
        self._known: Final = known
        self._explain: Final = explain_shape
        self._book: Final = book
        self._work: Final = work
        self._trial: Final = TrialCluster(scheduler.cluster)
        self._ledger: Final = self._trial.ledger
        # How many pods of each growing Workload have a place, by its key and pod set.
        self._placed: Mapping[tuple[str, str], int] = {}

    async def answers(
        self, asking: Iterable[Workload], now_s: float
    ) -> AsyncGenerator[tuple[Workload, Answer | None], None]:
        """Yield whether each of *asking* fits beside all promised capacity; None: its earlier answer stays.

        now_s: Unix seconds.
        """
        asking = list(asking)
        await self._count_promised(now_s)
        growing = [one for one in asking if self._known.grows(one)]
        if growing:
            stays = [(key, pod) for key, pod in await self._pods_of(growing) if not pod.deleting]
            self._placed = Counter((key, pod.labels.get(POD_SET, MAIN)) for key, pod in stays)
        for workload in asking:
            yield workload, await self._answer(workload)

    # ------------------------------------------------------------------ promised

    async def _count_promised(self, now_s: float) -> None:
        """Reserve the capacity of expected pods of admitted Workloads."""
        promised = self._known.promised(now_s)
        there = await self._there(promised) if promised else {}
        for workload in promised:
            wants = self._wants(workload)
            if isinstance(wants, Wait):
                continue  # its pods are placed without a promise
            left = {name: want.pods - there[workload.key, name] for name, want in wants.items()}
            await self._keep([want._replace(pods=left[name]) for name, want in wants.items() if left[name] > 0])

    async def _keep(self, wants: Sequence[WantedPods]) -> None:
        """Reserve capacity for all *wants* in an order that fits, as the answer did, else for as many as fit."""
        barred = self._barred(wants)
        try:
            found = await self._work.result(place_all(self._trial.candidates, wants, barred)) if wants else ()
        except NodeInvariantError as e:
            self._trial.set_aside(e)
            found = None
        if found is not None and not isinstance(found, Short):
            self._spend(found)
            return
        for want in wants:
            try:
                self._spend(await self._work.result(place_some(self._trial.candidates, want, barred)))
            except NodeInvariantError as e:
                self._trial.set_aside(e)

    async def _there(self, promised: Sequence[Workload]) -> Mapping[tuple[str, str], int]:
        """Return how many pods already have, or had, their capacity, by Workload and pod set."""
        arrived = self._known.arrived
        for key, pod in await self._pods_of(promised):
            arrived.setdefault(key, {})[pod.uid] = pod.labels.get(POD_SET, MAIN)
        return Counter((one.key, name) for one in promised for name in arrived.get(one.key, {}).values())

    async def _pods_of(self, workloads: Sequence[Workload]) -> list[tuple[str, Pod]]:
        """Return the pods with capacity of each of *workloads*, with its key."""
        keys = {mark: one.key for one in workloads for mark in one.marks}
        reserved = [one.pod for one in self._scheduler.cluster.queue if one.placement is not None]
        found: list[tuple[str, Pod]] = []
        cluster = self._scheduler.cluster
        for pod in (*reserved, *cluster.carded.values(), *cluster.of_kueue.values()):
            key = next((keys[mark] for mark in marks_of(pod) if mark in keys), None)
            # A pod that was placed after the fork has no capacity in the fork yet.
            if key is not None and self._ledger.node_of(pod.uid) is not None:
                found.append((key, pod))
            await self._work.give_way()
        return found

    # ------------------------------------------------------------------ one Workload

    async def _answer(self, workload: Workload) -> Answer | None:
        if workload.admitted_s:
            return _ADMITTED
        wants = self._wants(workload)
        if isinstance(wants, Wait):
            return self._no(workload, wants)
        if not wants:
            return _NOTHING
        left = {name: want.pods - self._placed.get((workload.key, name), 0) for name, want in wants.items()}
        asked = [want._replace(pods=left[name]) for name, want in wants.items() if left[name] > 0]
        if not asked:
            return _PLACED
        barred = self._barred(asked)
        try:
            found = await self._work.result(
                place_all(self._trial.candidates, asked, barred, self._trial.budget(spender_of(asked[0].pod)))
            )
        except NodeInvariantError as e:
            self._trial.set_aside(e)
            return self._no(workload, Wait(Cause.NOT_JUDGED, f"cannot be told: {e}"))
        if not isinstance(found, Short):
            self._spend(found)
            return _fits(found)
        if self._waits_on(workload):
            return None  # the reason is not computed again
        return self._no(workload, await self._short(asked, found, barred))

    def _no(self, workload: Workload, why: Wait) -> Answer | None:
        if self._waits_on(workload):
            return None
        message = _cut(why.message)
        if self._known.grows(workload):
            # For Retry, Kueue would stop the pods that run, too.
            return None if workload.says(self._known.checks, message) else Answer(CheckState.PENDING, message)
        state = CheckState.RETRY if self._known.may_refuse(workload) else CheckState.PENDING
        return Answer(state, message)

    def _waits_on(self, workload: Workload) -> bool:
        """Return whether its reason is already reported and it must wait before the next refusal."""
        return workload.is_told(self._known.checks) and not self._known.may_refuse(workload)

    async def _short(self, asked: Sequence[WantedPods], short: Short, barred: frozenset[NodeName]) -> Wait:
        """Return why not all of *asked* fits, and what blocks the first pod that does not."""
        if short.over:
            why = over_wait(short.over, together=sum(want.pods for want in asked) > 1)
        else:
            beside = self._ledger.fork()
            for placement in short.placements:
                beside.reserve(placement)
            refused, _ = await self._explain(short.first.shape, beside, barred)
            why = explain.wait(refused)
        count = sum(want.pods for want in asked)
        if count == 1:
            return why
        return Wait(why.cause, f"{len(short.placements)} of {count} pods fit at once now. The next: {why.text}")

    # ------------------------------------------------------------------ what it asks

    def _wants(self, workload: Workload) -> Mapping[str, WantedPods] | Wait:
        """Return what its pods request here, by pod set; or why that is impossible."""
        wants: dict[str, WantedPods] = {}
        for pod_set in workload.pod_sets:
            pod = self._pod(workload, pod_set)
            if isinstance(pod, Wait):
                return pod
            if pod.scheduler_name not in self._ledger.settings.scheduler_names or not pod_set.pods:
                continue
            shape = shape_of(pod, self._ledger)
            if isinstance(shape, Wait):
                return _of(pod_set, shape)
            wants[pod_set.name] = WantedPods(pod, shape, pod_set.pods)
        count = sum(want.pods for want in wants.values())
        if count > PODS_MAX:
            text = f"write at most {PODS_MAX} pods in one workload; {count} are too many to be judged at once"
            return Wait(Cause.NOT_JUDGED, text)
        return wants

    def _pod(self, workload: Workload, pod_set: PodSet) -> Pod | Wait:
        """Return a pod of *pod_set* as it will be created; or why it will be rejected."""
        try:
            pod, reviewed, priority_class = pod_in(pod_set.template, workload.namespace)
        except InvalidRequestError as e:
            return _of(pod_set, Wait(Cause.INVALID, str(e)))
        of_class = self._scheduler.cluster.groups.classes.get(priority_class)
        if of_class is not None:
            pod = pod._replace(priority=of_class.value, preempts=pod.preempts and of_class.preempts)
        missing = [one for one in pod_set.flavors if one not in self._known.flavors]
        if missing:
            return _of(
                pod_set, Wait(Cause.NOT_JUDGED, f"ResourceFlavor {quoted(missing[0])} of its quota does not exist")
            )
        for more in workload.additions(pod_set, self._known.flavors):
            pod = pod_with(pod, more)
        reviewed = reviewed._replace(labels=pod.labels, annotations=pod.annotations)
        made = pod_to_come(pod, reviewed, self._book)
        if not isinstance(made, Pod):
            return _of(pod_set, invalid(made))
        return made._replace(uid=PodUid(f"{workload.key}/{pod_set.name}"), name=f"{workload.name}-{pod_set.name}")

    # ------------------------------------------------------------------ what is spent in this round

    def _spend(self, placements: Iterable[Placement]) -> None:
        for one in placements:
            if one.asked_by is not None:
                amounts = taken(self._ledger, one.asked_by, one.dialect, one.assignment)
                self._trial.spend(spender_of(one.asked_by), amounts)

    def _barred(self, wants: Iterable[WantedPods]) -> frozenset[NodeName]:
        """Return the nodes that would take no pod of *wants* if it were created now."""
        return self._scheduler.reservations.barred_to_new(max((want.pod.priority for want in wants), default=0))


def _fits(placements: Sequence[Placement]) -> Answer:
    nodes = listed(list(dict.fromkeys(one.node for one in placements)), _NAMED)
    count = len(placements)
    pods = f"{count} pods fit" if count > 1 else "its pod fits"
    text = f"{pods} now, for example on {nodes}; reserved for {PROMISE_S:g} s"
    return Answer(CheckState.READY, _cut(text))


def _of(pod_set: PodSet, wait: Wait) -> Wait:
    """Add the pod set to *wait*."""
    return wait if pod_set.name == MAIN else Wait(wait.cause, f"pod set {quoted(pod_set.name)}: {wait.text}")


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else f"{text[: _TEXT_MAX - 1]}…"
