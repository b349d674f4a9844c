"""Tells users why their pods wait: the pod's condition PodScheduled, and an event with the same text.

A refusal is explained once per shape, in slices, and told again when its reasons or the smallest change that would
help differ, some seconds later when a node complains in other words, and at most once a minute when only numbers
moved. Never in the way of a Binding.
"""

import asyncio
import re
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, NamedTuple

import structlog

from controller.deeds import Announce, about_pod
from controller.inbox import Inbox
from controller.lifecycle import Entry, Stage, Told
from controller.metrics import Metrics
from controller.owner import Owner
from controller.record import Recorder
from core import explain
from core.errors import escaped
from core.explain import Refused
from core.kinds import Helping
from core.model import PodUid
from core.refusal import NodeRefusal, refusal_on
from core.shape import Shape
from core.waiting import Cause, Wait, code_in
from kube.calls import STRATEGIC_PATCH, Calls, pod_path
from kube.errors import ApiConflictError, ApiError, ApiNotFoundError, UndecodableError
from kube.objects import read_version

_log = structlog.get_logger()

# Only numbers moved, or only the words of a node's complaint differ: the text is written again after this, not before.
_NUMBERS_S: Final = 60.0
_WORDS_S: Final = 10.0
# A shape that goes on being refused is explained again after this, not before.
_AGAIN_S: Final = 5.0
_CONFLICT_S: Final = 1.0
_STEP_S: Final = 0.005
_STEP_NODES: Final = 16
_SUMMED_AT_ONCE: Final = 500
# Explaining takes no more than a fifth of the time.
_REST_PER_WORK: Final = 4.0
_WRITES_AT_ONCE: Final = 4
# What kubectl shows in one go; the whole is at /v1/explain.
_TEXT_MAX: Final = 1024
_TOLD_STAGES: Final = frozenset({Stage.REFUSED, Stage.HELD, Stage.RESTING, Stage.TURN})
_DIGITS: Final = re.compile(r"[0-9]+")


class Why(NamedTuple):
    """What of a text is not numbers: its cause and reasons, and the words of the nearest node's complaint."""

    reasons: Hashable
    words: str = ""


@dataclass(frozen=True, slots=True)
class Said:
    """What is told of one shape: the answer, why it waits, what of it is not numbers, and when it was made."""

    answer: Refused
    wait: Wait
    why: Why
    made_s: float

    @property
    def text(self) -> str:
        """What conditions and events say."""
        return _cut(self.wait.message)


class Teller:
    """Keeps the conditions of waiting pods true."""

    def __init__(
        self,
        owner: Owner,
        calls: Calls,
        inbox: Inbox,
        recorder: Recorder,
        metrics: Metrics,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.wake: Final = asyncio.Event()
        self._owner = owner
        self._calls = calls
        self._inbox = inbox
        self._recorder = recorder
        self._metrics = metrics
        self._clock = clock
        self._wall = wall
        self._said: dict[Shape, Said] = {}
        self._later: dict[Shape, float] = {}

    async def run(self) -> None:
        """Tell until cancelled."""
        while True:
            await self._wait()
            for shape in [shape for shape, due_s in self._later.items() if due_s <= self._clock()]:
                del self._later[shape]
                self._owner.refusals.untold[shape] = None
            await self._tell_pods()
            if self._owner.refusals.untold:
                await self._tell_shape()

    async def _wait(self) -> None:
        if self._owner.refusals.untold or self._owner.planner.untold:
            return
        self.wake.clear()
        due_s = min(self._later.values(), default=None)
        delay_s = None if due_s is None else max(due_s - self._clock(), 0.01)
        try:
            async with asyncio.timeout(delay_s):
                await self.wake.wait()
        except TimeoutError:
            pass

    # ------------------------------------------------------------------ what is told

    async def _tell_pods(self) -> None:
        """Pods that are held for a reason of their own."""
        held = self._owner.planner.untold
        entries: list[tuple[Entry, Wait, Why]] = []
        while held:
            uid = next(iter(held))
            del held[uid]
            entry = self._owner.life.get(uid)
            if entry is not None and entry.wait is not None and entry.stage in _TOLD_STAGES:
                entries.append((entry, entry.wait, Why(entry.wait)))
        await self._write_all(entries)

    async def _tell_shape(self) -> None:
        shape = next(iter(self._owner.refusals.untold))
        del self._owner.refusals.untold[shape]
        if not self._owner.life.refuses(shape):
            self._said.pop(shape, None)
            return
        said = await self._saying(shape)
        entries = [
            (entry, said.wait, said.why)
            for entry in self._owner.life.refused_pods(shape)
            if self._is_news(entry, said, shape)
        ]
        await self._write_all(entries)

    async def _saying(self, shape: Shape) -> Said:
        known = self._said.get(shape)
        now_s = self._clock()
        if known is not None and now_s - known.made_s < _AGAIN_S:
            self._look_again(shape, known.made_s + _AGAIN_S)
            return known
        answer, worked_s = await self.explain(shape)
        silent = self._owner.refusals.silent.get(shape, ())
        wait = explain.wait(answer, silent)
        reasons = wait.cause, frozenset(key for key, _ in answer.counts), answer.signature[1:]
        said = Said(answer, wait, Why(reasons, answer.words), now_s)
        self._said[shape] = said
        if known is not None:
            await asyncio.sleep(worked_s * _REST_PER_WORK)
        if len(self._said) > 4096:
            self._said = {shape: one for shape, one in self._said.items() if self._owner.life.refuses(shape)}
        return said

    async def explain(self, shape: Shape) -> tuple[Refused, float]:
        """Why no node fits *shape*, judged node by node as all were at one instant; and the seconds of work it was.

        Nodes that go meanwhile are left out.
        """
        await self._inbox.settled()
        ledger, policy = self._owner.ledger, self._owner.planner.policy.cards
        states = tuple(ledger.states.values())
        helping = Helping(self._owner.planner.kinds, shape, policy)
        refusals: list[NodeRefusal] = []
        nodes = 0
        worked_s, started_s = 0.0, self._clock()
        for at, state in enumerate(states):
            is_there = state.facts.name in ledger.states
            nodes += is_there
            helping.look(state.facts.name)
            refusal = refusal_on(ledger, shape, state, policy) if is_there else None
            if refusal is not None:
                refusals.append(refusal)
            if at % _STEP_NODES == 0 and (step_s := self._clock() - started_s) > _STEP_S:
                worked_s += step_s
                await asyncio.sleep(0)
                started_s = self._clock()
        new = helping.told()
        worked_s += self._clock() - started_s
        if len(refusals) <= _SUMMED_AT_ONCE:
            return explain.summed(refusals, nodes, new), worked_s
        # Adding up thousands of them holds the loop for too long, and touches nothing that can change.
        return await asyncio.to_thread(explain.summed, refusals, nodes, new), worked_s

    def _is_news(self, entry: Entry, said: Said, shape: Shape) -> bool:
        if entry.told is None:
            return True
        if entry.told.text == said.text:
            return False
        due_s = entry.told.at_s + _pause_s(entry.told, said)
        if self._clock() < due_s:
            self._look_again(shape, due_s)
            return False
        return True

    def _look_again(self, shape: Shape, due_s: float) -> None:
        self._later[shape] = min(due_s, self._later.get(shape, due_s))

    # ------------------------------------------------------------------ writing

    async def _write_all(self, entries: list[tuple[Entry, Wait, Why]]) -> None:
        for at in range(0, len(entries), _WRITES_AT_ONCE):
            async with asyncio.TaskGroup() as tasks:
                for entry, wait, why in entries[at : at + _WRITES_AT_ONCE]:
                    text = _cut(wait.message)
                    if entry.stage in _TOLD_STAGES and (entry.told is None or entry.told.text != text):
                        tasks.create_task(self._write(entry, wait.cause, text, why), name=f"tell {entry.pod.key}")

    async def _write(self, entry: Entry, cause: Cause, text: str, why: Why) -> None:
        pod, base, shape = entry.pod, entry.version, entry.parked
        path = pod_path(pod.namespace, pod.name) + "/status"
        try:
            answer = await self._calls.patch(path, self._condition(entry, cause, text), content_type=STRATEGIC_PATCH)
            version = read_version(answer)
        except ApiNotFoundError:
            return
        except (ApiError, UndecodableError) as e:
            self._metrics.api_errors.labels("write condition").inc()
            if not isinstance(e, ApiConflictError):
                _log.warning("a pod's condition cannot be written", pod=pod.key, error=str(e))
            self._again(pod.uid, shape)
            return
        self._inbox.put(partial(self._owner.told, pod.uid, text, why, base, version))
        self._recorder.note(Announce(about=about_pod(pod), reason="FailedScheduling", message=text))

    def _again(self, uid: PodUid, shape: Shape | None) -> None:
        due_s = self._clock() + _CONFLICT_S
        if shape is not None:
            self._look_again(shape, due_s)
        elif (entry := self._owner.life.get(uid)) is not None and entry.wait is not None:
            asyncio.get_running_loop().call_later(_CONFLICT_S, self._hold_again, uid)

    def _hold_again(self, uid: PodUid) -> None:
        self._owner.planner.untold[uid] = None
        self.wake.set()

    def _condition(self, entry: Entry, cause: Cause, text: str) -> dict[str, Any]:
        condition: dict[str, Any] = {"type": "PodScheduled", "status": "False", "reason": cause.reason, "message": text}
        if entry.told is None:
            now = datetime.fromtimestamp(self._wall(), UTC)
            condition["lastTransitionTime"] = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            # The version makes sure that no change of the user's is passed over: ours counts as seen.
            "metadata": {"uid": entry.pod.uid, "resourceVersion": entry.version},
            "status": {"conditions": [condition]},
        }


def _pause_s(told: Told, said: Said) -> float:
    """For how long what was *told* stands although *said* is true now: the less differs, the longer."""
    if told.why is None:  # found, not written by this process: compared as text
        same = code_in(told.text) == said.wait.cause.code and _DIGITS.sub("#", told.text) == _DIGITS.sub("#", said.text)
        return _NUMBERS_S if same else 0.0
    if told.why == said.why:
        return _NUMBERS_S
    return _WORDS_S if isinstance(told.why, Why) and told.why.reasons == said.why.reasons else 0.0


def _cut(text: str) -> str:
    """*text*, of which device plugins wrote a part, as a terminal may show it."""
    text = escaped(text)
    return text if len(text) <= _TEXT_MAX else text[: _TEXT_MAX - 1] + "…"
