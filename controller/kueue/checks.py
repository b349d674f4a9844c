"""Kueue's admission checks: follows Workloads, answers them in rounds, and marks the checks as active.

An answer is one conditional merge patch of the judged version; a Workload that changed in the meantime is judged again.
A positive answer counts from before its write, because the outcome of a write may be unknown.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from math import inf
from typing import Any, Final, Generic, NoReturn, TypeVar
from urllib.parse import quote

import structlog

from controller.actions import Inbox
from controller.deciding.scheduler import Scheduler
from controller.kueue.asking import AdmissionRound, KueueObjects
from controller.metrics import Metrics
from controller.reporting.answers import ExplainOn
from controller.reporting.work import Work
from core.admission.rulebook import rulebook
from core.errors import InvalidRequestError
from core.explaining.explain import Explanation
from core.kueue import CONTROLLER_NAME, AdmissionCheck, Answer, CheckState, Workload, answered, believed
from core.ledger import Ledger
from core.model import NodeName
from core.placing.decide import Shape
from core.units import time_text
from core.wire.kueue import decode_admission_check, decode_flavor, decode_workload, salvage_workload
from kube.calls import Calls
from kube.errors import ApiConflictError, ApiError, ApiNotFoundError, ApiRefusedError
from kube.reflector import EventKind, Pace, Reflector, Source

_log: Final = structlog.get_logger()

_T = TypeVar("_T")

# API versions, newest first.
_APIS: Final = ("/apis/kueue.x-k8s.io/v1beta2", "/apis/kueue.x-k8s.io/v1beta1")
_PACE: Final = Pace(last_list_wait_s=10.0)
# Minimum pause between rounds, maximum work of a round, and pause per work, which limits rounds to a tenth of the time.
_PAUSE_S: Final = 0.1
_ROUND_S: Final = 1.0
_REST_PER_WORK: Final = 9.0
# A waiting Workload is judged again after this.
_AGAIN_S: Final = 5.0
# Explaining a refusal costs more than everything else, so it is done once for all Workloads with the same request.
_GOOD_FOR_S: Final = 30.0
_REASONS_MAX: Final = 256
# The interval of checks without news: for lapsed promises, and for writes to repeat.
_LOOK_S: Final = 2.0


class KnownSink(Generic[_T]):
    """A sink of `kube.reflector` for the objects of one kind."""

    def __init__(self, put: Callable[[_T], None], name: Callable[[_T], str], *known: MutableMapping[str, Any]) -> None:
        """Prepare; known: what is stored of the objects, by *name*."""
        self._put: Final = put
        self._name: Final = name
        self._known: Final = known

    async def on_replace(self, objects: Sequence[_T], resource_version: str) -> None:
        """Replace all known objects."""
        del resource_version
        for stored in self._known:
            stored.clear()
        for one in objects:
            self._put(one)

    async def on_event(self, kind: EventKind, value: _T) -> None:
        """Record that one object was added, changed or deleted."""
        if kind is EventKind.DELETED:
            for stored in self._known:
                stored.pop(self._name(value), None)
        else:
            self._put(value)


def _reflector(source: Source, kind: str, decode: Callable[[bytes], _T], sink: KnownSink[_T]) -> Reflector[_T]:
    """Return a reflector of Kueue's objects of *kind*, which may not be installed, at any served version."""
    newest, *older = (f"{api}/{kind}" for api in _APIS)
    return Reflector(source, newest, decode=decode, sink=sink, pace=_PACE, absent_is_empty=True, older=older)


def _read_workload(text: bytes) -> Workload:
    """Return the readable part of the Workload in *text*, so that it does not block the answers to others.

    Raises:
        InvalidRequestError: even its name is unreadable.
    """
    try:
        return decode_workload(text)
    except InvalidRequestError as e:
        found = salvage_workload(text)
        _log.warning("a Workload of Kueue cannot be read and gets no answer", workload=found.key, reason=str(e))
        return found


def _quoted(name: str) -> str:
    return quote(name, safe="")


class AdmissionChecks:
    """Answers while this process leads.

    Attributes:
        reflectors: the reflectors by name.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        inbox: Inbox,
        source: Source,
        calls: Calls,
        metrics: Metrics,
        *,
        explain_shape: ExplainOn,
        may_answer: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Prepare; *may_answer*: whether the state is recent enough for answers."""
        self._scheduler: Final = scheduler
        self._inbox: Final = inbox
        self._calls: Final = calls
        self._explain: Final = explain_shape
        self._metrics: Final = metrics
        self._may_answer: Final = may_answer
        self._clock: Final = clock
        self._wall: Final = wall
        self._failing: Final[set[str]] = set()
        self._reasons: Final[dict[Shape, tuple[float, Explanation]]] = {}
        self.known: Final = KueueObjects(clock)
        known = self.known
        self.reflectors: Final[Mapping[str, Reflector[Any]]] = {
            "kueue-flavors": _reflector(
                source,
                "resourceflavors",
                decode_flavor,
                KnownSink(known.put_flavor, lambda one: one.name, known.flavors),
            ),
            "kueue-checks": _reflector(
                source,
                "admissionchecks",
                decode_admission_check,
                KnownSink(known.put_check, lambda one: one.name, known.checks),
            ),
            "kueue-workloads": _reflector(
                source,
                "workloads",
                _read_workload,
                KnownSink(known.put_workload, lambda one: one.key, known.workloads, known.evicted),
            ),
        }

    async def run(self) -> NoReturn:
        """Follow and answer until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for name, reflector in self.reflectors.items():
                tasks.create_task(reflector.run(), name=f"reflect {name}")
            await self._listed()
            while True:
                await self._wait()
                await self.keep_active()
                worked_s = await self.look() if self._may_answer() else 0.0
                await asyncio.sleep(max(_PAUSE_S, _REST_PER_WORK * worked_s))
        raise AssertionError  # the tasks never end

    async def _listed(self) -> None:
        """Wait until everything is listed; log once what prevents it."""
        for name, reflector in self.reflectors.items():
            while not reflector.synced.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):
                        await reflector.synced.wait()
                if reflector.state and name not in self._failing:
                    self._failing.add(name)
                    _log.warning(
                        "Kueue's objects cannot be read; no admission check is answered",
                        what=name,
                        reason=reflector.state,
                        remedy="give the controller the rights of deploy/components/kueue",
                    )

    async def _wait(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_S):
                await self.known.changed.wait()
        self.known.changed.clear()  # changes during the last round are handled in this one

    # ------------------------------------------------------------------ Workloads

    async def look(self) -> float:
        """Run one round; return its seconds of work, without the waiting for writes."""
        await self._inbox.settled()
        asking = self.known.asking(self._wall())
        if not asking:
            return 0.0
        ledger, work, waited_s = self._scheduler.cluster.ledger, Work(self._clock), 0.0
        tables = ledger.tables
        book = rulebook(ledger.settings, tables, ledger.catalog)
        round_ = AdmissionRound(self._scheduler, self.known, self._explained, book, work)
        async with contextlib.aclosing(round_.answers(asking, self._wall())) as answers:
            async for workload, answer in answers:
                if ledger.tables is not tables or not self._may_answer():
                    break
                began_s = self._clock()
                if answer is None:
                    self.known.rest(workload, self._clock() + _AGAIN_S)
                elif self.known.workloads.get(workload.key) is workload:  # else it has changed in the meantime
                    await self._tell(workload, answer)
                waited_s += self._clock() - began_s
                if work.worked_s - waited_s > _ROUND_S:
                    self.known.ended_with = workload
                    break
        return work.worked_s - waited_s

    async def _explained(self, shape: Shape, ledger: Ledger, barred: frozenset[NodeName]) -> tuple[Explanation, float]:
        """Return why no node takes *shape*, cached for a while; and the seconds of work."""
        made_s, refused = self._reasons.get(shape, (-inf, None))
        if refused is not None and self._clock() < made_s + _GOOD_FOR_S:
            return refused, 0.0
        answer = await self._explain(shape, ledger, barred)
        if len(self._reasons) >= _REASONS_MAX:
            self._reasons.clear()
        self._reasons[shape] = self._clock(), answer[0]
        return answer

    async def _tell(self, workload: Workload, answer: Answer) -> None:
        names, now_s = self.known.checks, self._wall()
        entries = answered(workload, names, answer, time_text(now_s))
        about = {"uid": workload.uid, "resourceVersion": workload.resource_version}
        hoped = self.known.workloads[workload.key] = believed(workload, names, answer, now_s)
        try:
            text = await self._calls.patch(
                f"{self._api('kueue-workloads')}/namespaces/{_quoted(workload.namespace)}/workloads/"
                f"{_quoted(workload.name)}/status",
                {"metadata": about, "status": {"admissionChecks": entries}},
            )
            if self.known.workloads.get(workload.key) is hoped:  # else the watch was faster
                self.known.put_workload(decode_workload(text))
        except (ApiError, InvalidRequestError) as e:
            # A positive answer that may have been written keeps its capacity. Any other answer is given again: if it
            # was written after all, the API server refuses the repetition.
            may_count = answer.state is CheckState.READY and not isinstance(e, ApiRefusedError)
            if not may_count and self.known.workloads.get(workload.key) is hoped:
                self.known.workloads[workload.key] = workload
            self._failed("answer workload", workload.key, e)
            return
        self._failing.discard("answer workload")
        self._metrics.kueue_answers.labels(answer.state.value).inc()

    # ------------------------------------------------------------------ AdmissionChecks

    async def keep_active(self) -> None:
        """Set the Active condition of every check of cardshare."""
        for check in [one for one in self.known.checks.values() if not one.is_active]:
            await self._activate(check)

    async def _activate(self, check: AdmissionCheck) -> None:
        said = {
            "type": "Active",
            "status": "True",
            "reason": "Active",
            "message": "cardshare answers whether the pods of workloads fit now",
            "lastTransitionTime": time_text(self._wall()),
            "observedGeneration": check.generation,
        }
        others = [one for one in check.conditions if one.get("type") != "Active"]
        path = f"{self._api('kueue-checks')}/admissionchecks/{_quoted(check.name)}/status"
        try:
            text = await self._calls.patch(path, {"status": {"conditions": [*others, said]}})
            self.known.put_check(decode_admission_check(text))
        except (ApiError, InvalidRequestError) as e:
            self._failed("activate admission check", check.name, e)
            return
        self._failing.discard("activate admission check")
        _log.info("admission check is answered", check=check.name, controller=CONTROLLER_NAME)

    def _api(self, name: str) -> str:
        """Return the API path of the objects *name*, without their kind."""
        return self.reflectors[name].path.rpartition("/")[0]

    def _failed(self, doing: str, what: str, error: Exception) -> None:
        """Count a failure, and log it once until a success."""
        self._metrics.api_errors.labels(doing).inc()
        if not isinstance(error, ApiConflictError | ApiNotFoundError) and doing not in self._failing:
            self._failing.add(doing)
            _log.warning("Kueue's objects cannot be written", doing=doing, what=what, error=str(error))
