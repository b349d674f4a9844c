"""Tells users why their pods wait: explains refused shapes, and has conditions and events written (`conditions`).

A refusal is explained once per shape, in slices, and again when it may have changed. Never in the way of a Binding.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from controller.conditions import Conditions, Saying, Why
from controller.inbox import Inbox
from controller.lifecycle import Entry, Stage
from controller.metrics import Metrics
from controller.owner import Owner
from controller.record import Recorder
from core import explain
from core.explain import Refused
from core.kinds import Helping
from core.refusal import NodeRefusal, refusal_on
from core.shape import Shape
from kube.calls import Calls

# A shape that goes on being refused is explained again after this, not before.
_AGAIN_S: Final = 5.0
_STEP_S: Final = 0.005
_STEP_NODES: Final = 16
_SUMMED_AT_ONCE: Final = 500
# What was explained before is explained again in no more than a twentieth of the time; new shapes go first.
_REST_PER_WORK: Final = 19.0
_LOOK_S: Final = 0.25
_SAID_MAX: Final = 4096
_TOLD_STAGES: Final = frozenset({Stage.REFUSED, Stage.HELD, Stage.RESTING, Stage.TURN})


@dataclass(frozen=True, slots=True)
class _Said:
    """What is told of one shape, and when it was found out."""

    saying: Saying
    made_s: float


class Teller:
    """Knows what there is to tell of each waiting pod, and has it told."""

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
        self._inbox = inbox
        self._clock = clock
        self._conditions: Final = Conditions(
            owner, calls, inbox, recorder, metrics, what=self._saying_of, clock=clock, wall=wall
        )
        self._said: dict[Shape, _Said] = {}
        self._later: dict[Shape, float] = {}
        self._rests_until_s = float("-inf")

    async def run(self) -> None:
        """Tell until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._conditions.run(), name="conditions")
            while True:
                await self._wait()
                for shape in [shape for shape, due_s in self._later.items() if due_s <= self._clock()]:
                    del self._later[shape]
                    self._owner.wakes.untold[shape] = None
                untold = self._owner.planner.untold
                for uid in untold:
                    self._conditions.put(uid)
                untold.clear()
                following = self._next_shape()
                if following is not None:
                    await self._tell_shape(following)

    async def _wait(self) -> None:
        if self._next_shape() is not None or self._owner.planner.untold:
            return
        if self._owner.wakes.untold:
            # Whoever tells of these wakes this at every turn, and most of them are to rest.
            await asyncio.sleep(max(min(self._rests_until_s - self._clock(), _LOOK_S), 0.01))
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

    def _saying_of(self, entry: Entry) -> Saying | None:
        """What there is to tell of a pod now."""
        if entry.stage not in _TOLD_STAGES:
            return None
        if entry.wait is not None:
            return Saying(entry.wait, Why(entry.wait))
        said = self._said.get(entry.parked) if entry.parked is not None else None
        return said.saying if said is not None else None

    def _next_shape(self) -> Shape | None:
        """The shape to explain now: one that never was, or, after the rest that the last one called for, any."""
        untold = self._owner.wakes.untold
        new = next((shape for shape in untold if shape not in self._said), None)
        if new is not None or self._clock() < self._rests_until_s:
            return new
        return next(iter(untold), None)

    async def _tell_shape(self, shape: Shape) -> None:
        del self._owner.wakes.untold[shape]
        if not self._owner.life.refuses(shape):
            self._said.pop(shape, None)
            return
        before, now_s = self._said.get(shape), self._clock()
        if before is not None and now_s < before.made_s + _AGAIN_S:
            self._later[shape] = min(before.made_s + _AGAIN_S, self._later.get(shape, float("inf")))
            return
        answer, worked_s = await self.explain(shape)
        silent = self._owner.wakes.silent.get(shape, ())
        wait = explain.wait(answer, silent)
        reasons = wait.cause, frozenset(key for key, _ in answer.counts), answer.signature[1:]
        self._said[shape] = _Said(Saying(wait, Why(reasons, answer.words)), now_s)
        if before is None or before.saying.text != self._said[shape].saying.text:
            for entry in self._owner.life.refused_pods(shape):
                self._conditions.put(entry.pod.uid)
        if before is not None:
            self._rests_until_s = self._clock() + worked_s * _REST_PER_WORK
        if len(self._said) > _SAID_MAX:
            self._said = {shape: one for shape, one in self._said.items() if self._owner.life.refuses(shape)}

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
