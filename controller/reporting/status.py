"""Reports to users why their pods wait: explains refused shapes, and passes conditions and events to `conditions`.

A refusal is explained once for all equal requests, in slices, and again when it may have changed. Reports never delay a
Binding.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Final, NamedTuple

from controller.actions import Inbox
from controller.deciding.lifecycle import Ask, Capped, Entry, Stage
from controller.deciding.scheduler import Scheduler
from controller.metrics import Metrics
from controller.reporting.conditions import Conditions, Saying, WaitReasons, numberless
from controller.reporting.events import Recorder
from controller.reporting.work import Work
from core.explaining import explain
from core.explaining.explain import Explanation
from core.explaining.refusal import NodeRefusal, refusal_on
from core.explaining.shortage import Missing, New, shortage
from core.ledger import Ledger
from core.model import NodeName, group_of
from core.placing import gang
from core.placing.decide import Shape
from core.placing.gang import Together
from core.placing.kinds import Helping
from core.settings import Policy
from core.units import listed
from core.waiting import Cause, Wait
from kube.calls import Calls

# Minimum interval between explanations of a shape that is still refused.
_AGAIN_S: Final = 5.0
_SUMMED_AT_ONCE: Final = 500
# Cap on the number of pods that a new node takes; each costs a judgement.
_ROOM_MAX: Final = 128
# Repeated explanations take at most a twentieth of the time; new shapes come first.
_REST_PER_WORK: Final = 19.0
_LOOK_S: Final = 0.25
_SAID_MAX: Final = 4096
# The maximum number of named nodes among those that are kept free.
_NAMED: Final = 5
_SENTENCE_MAX: Final = 1000
_TOLD_STAGES: Final = frozenset({Stage.REFUSED, Stage.HELD, Stage.RESTING, Stage.PREPARING, Stage.TURN})


@dataclass(frozen=True, slots=True)
class _Explained:
    """The explanation of one shape, and its time."""

    saying: Saying
    made_s: float


class StatusWriter:
    """Knows what to report about each waiting pod, and passes it on."""

    def __init__(
        self,
        scheduler: Scheduler,
        calls: Calls,
        inbox: Inbox,
        recorder: Recorder,
        metrics: Metrics,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.wake: Final = asyncio.Event()
        self._scheduler = scheduler
        self._inbox = inbox
        self._clock = clock
        self._conditions: Final = Conditions(
            scheduler, calls, inbox, recorder, metrics, what=self._saying_of, clock=clock, wall=wall
        )
        self._said: dict[Ask, _Explained] = {}
        self._later: dict[Ask, float] = {}
        self._rests_until_s = float("-inf")

    async def run(self) -> None:
        """Report until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._conditions.run(), name="conditions")
            while True:
                await self._wait()
                for ask in [ask for ask, due_s in self._later.items() if due_s <= self._clock()]:
                    del self._later[ask]
                    self._scheduler.cluster.requeue.unreported[ask] = None
                unreported = self._scheduler.cluster.unreported
                for uid in unreported:
                    self._conditions.put(uid)
                    self._tell_group(self._scheduler.cluster.queue.get(uid))
                unreported.clear()
                following = self._next_ask()
                if following is not None:
                    await self._tell_all_of(following)

    async def _wait(self) -> None:
        if self._next_ask() is not None or self._scheduler.cluster.unreported:
            return
        if self._scheduler.cluster.requeue.unreported:
            # The scheduler sets this event at every turn, but most explanations must rest.
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

    # ------------------------------------------------------------------ what is reported

    def _tell_group(self, entry: Entry | None) -> None:
        """Report on the group of a refused pod why it waits, if the pod is placed by itself."""
        if entry is None or entry.stage is not Stage.REFUSED or isinstance(entry.parked, Together):
            return
        key, groups = group_of(entry.pod), self._scheduler.cluster.groups
        if key is not None and (saying := self._saying_of(entry)) is not None:
            text = saying.wait.text
            self._inbox.put(lambda: groups.refused_alone(key, text))

    def _saying_of(self, entry: Entry) -> Saying | None:
        """Return what to report about a pod now."""
        if entry.stage not in _TOLD_STAGES:
            return None
        waits_for_nodes = isinstance(entry.parked, Together) and self._has_asked_nodes(entry.parked)
        if entry.wait is not None and (entry.wait.cause is Cause.WAITING_FOR_EVICTED or not waits_for_nodes):
            # The remainder of a quota changes with every pod that starts or ends.
            numbers = isinstance(entry.parked, Capped)
            saying = Saying(entry.wait, WaitReasons(numberless(entry.wait.message) if numbers else entry.wait))
            return self._with_denied(entry, saying)
        said = self._said.get(entry.parked) if entry.parked is not None else None
        return None if said is None else self._with_denied(entry, said.saying)

    def _with_denied(self, entry: Entry, saying: Saying) -> Saying:
        """Return *saying*, with the reason why no pod was evicted for *entry*, if any."""
        denied = self._scheduler.preempting.denied(entry)
        if not denied:
            return saying
        why, wait = saying.why._replace(reasons=(saying.why.reasons, denied)), saying.wait
        return Saying(_with(wait if wait.text.endswith(".") else Wait(wait.cause, f"{wait.text}."), denied), why)

    async def wait(self, entry: Entry) -> Wait | None:
        """Return what the condition of a waiting pod would say now; None if nothing yet."""
        saying = self._saying_of(entry)
        if saying is None and entry.parked is not None:
            saying, _ = await self._saying(entry.parked)
            if saying is not None:
                self._said[entry.parked] = _Explained(saying, self._clock())
        return saying.wait if saying is not None else None

    def _has_asked_nodes(self, asks: Together) -> bool:
        """Return whether nodes lack capacity for a unit; the reason is reported once they were judged."""
        refusal = self._scheduler.cluster.gangs.refusal(asks)
        return refusal is not None and not refusal.over

    def _next_ask(self) -> Ask | None:
        """Return the next request to explain: a new one, or after the pause for the last one, any."""
        unreported = self._scheduler.cluster.requeue.unreported
        new = next((ask for ask in unreported if ask not in self._said), None)
        if new is not None or self._clock() < self._rests_until_s:
            return new
        return next(iter(unreported), None)

    async def _tell_all_of(self, ask: Ask) -> None:
        del self._scheduler.cluster.requeue.unreported[ask]
        if not self._scheduler.cluster.queue.refuses(ask):
            self._said.pop(ask, None)
            return
        before, now_s = self._said.get(ask), self._clock()
        if before is not None and now_s < before.made_s + _AGAIN_S:
            self._later[ask] = min(before.made_s + _AGAIN_S, self._later.get(ask, float("inf")))
            return
        saying, worked_s = await self._saying(ask)
        if saying is None:
            return
        self._said[ask] = _Explained(saying, now_s)
        if before is None or before.saying.text != saying.text:
            if isinstance(ask, Together):
                text = saying.wait.text
                self._inbox.put(lambda: self._scheduler.cluster.gangs.explained(ask, text))
            for entry in self._scheduler.cluster.queue.refused_pods(ask):
                self._conditions.put(entry.pod.uid)
                self._tell_group(entry)
        if before is not None:
            self._rests_until_s = self._clock() + worked_s * _REST_PER_WORK
        if len(self._said) > _SAID_MAX:
            self._said = {ask: one for ask, one in self._said.items() if self._scheduler.cluster.queue.refuses(ask)}

    async def _saying(self, ask: Ask) -> tuple[Saying | None, float]:
        """Return what to report for *ask*, None if it is reported already; and the seconds of work."""
        wait: Wait | None
        answer: Explanation | None
        if isinstance(ask, Together):
            wait, answer, worked_s = await self.explain_unit(ask)
        elif isinstance(ask, Shape):
            answer, worked_s = await self.explain(ask)
            wait = explain.wait(answer, self._scheduler.cluster.requeue.silent.get(ask, ()))
        else:
            return None, 0.0
        if wait is None:
            return None, worked_s
        kept = self._scheduler.reservations.keeping_free.kept
        is_kept = kept is not None and kept.ask == ask
        if answer is None:
            why = WaitReasons(numberless(wait.message))
        else:
            reasons = wait.cause, frozenset(key for key, _ in answer.counts), answer.signature[1:]
            why = WaitReasons((reasons, is_kept), answer.words)
        return Saying(self._with_kept(wait, kept.nodes) if kept is not None and is_kept else wait, why), worked_s

    def _with_kept(self, wait: Wait, kept: frozenset[NodeName]) -> Wait:
        """Return *wait*, with the nodes that are *kept* free for the first waiting pod."""
        for_s = self._scheduler.cluster.settings.keep_free_for_s
        nodes = listed(sorted(kept), _NAMED)
        return _with(wait, f"Kept free for the first pod that waits for this, for at most {for_s:g} s: {nodes}.")

    async def explain_unit(self, asks: Together) -> tuple[Wait | None, Explanation | None, float]:
        """Return why too few members of a unit fit, and why no node takes one more beside those that fit.

        Both are None if the unit is not refused or its queue is full. Only the second is None if no node was judged,
        because no domain could contain its members, or only parts of it must be in one domain.
        """
        await self._inbox.settled()
        refusal = self._scheduler.cluster.gangs.refusal(asks)
        if refusal is None or refusal.answer is None or refusal.over or refusal.answer.first is None:
            return None, None, 0.0
        answer, first, work = refusal.answer, refusal.answer.first, Work(self._clock)
        if asks.is_bound and answer.domain is None:
            return shortage(answer), None, 0.0
        ledger, policy = self._scheduler.cluster.ledger.fork(), self._scheduler.cluster.search.policy
        gang.put(ledger, policy, answer)
        news: dict[Shape, New] = {}
        # The domain of a new node is unknown.
        for shape in dict.fromkeys(part.shape for part in answer.parts) if answer.domain is None else ():
            helping = Helping(self._scheduler.cluster.search.kinds, shape, policy.cards)
            for name in ledger.states:
                helping.look(name)
                await work.give_way()
            news[shape] = New(helping.told(), helping.room(_ROOM_MAX))
        worked_s = work.worked_s
        nodes = answer.domain.nodes if answer.domain is not None else None
        one, asked_s = await self.explain(
            first.shape, ledger, self._scheduler.reservations.barred_to_first(asks), nodes
        )
        return shortage(answer, Missing(one=one, news=news), refusal.silent), one, worked_s + asked_s

    async def explain(
        self,
        shape: Shape,
        fork: Ledger | None = None,
        barred: frozenset[NodeName] | None = None,
        domain: frozenset[NodeName] | None = None,
    ) -> tuple[Explanation, float]:
        """Return why no node fits *shape*, with all nodes as they were at one instant; and the seconds of work.

        Nodes that are removed in the meantime are left out. *fork*: the ledger to judge instead of the cluster's own.
        *barred*: nodes that are kept free for others; None: those for the first pod refused with *shape*.
        *domain*: the nodes to judge; None: all.
        """
        await self._inbox.settled()
        if barred is None:
            barred = self._scheduler.reservations.barred_to_first(shape)
        ledger, policy = fork or self._scheduler.cluster.ledger, self._scheduler.cluster.search.policy.cards
        states = tuple(state for name, state in ledger.states.items() if domain is None or name in domain)
        helping = Helping(self._scheduler.cluster.search.kinds, shape, policy)
        held = self._held(ledger, shape)
        refusals: list[NodeRefusal] = []
        nodes = 0
        work = Work(self._clock)
        for state in states:
            is_there = state.facts.name in ledger.states
            nodes += is_there
            helping.look(state.facts.name)
            refusal = refusal_on(ledger, shape, state, policy) if is_there else None
            if refusal is None and is_there and state.facts.name in barred:
                refusal = _kept_free(state.facts.name)
            if refusal is not None and held is not None:
                refusal = held.refusal(refusal, shape, policy)
            if refusal is not None:
                refusals.append(refusal)
            await work.give_way()
        new = helping.told() if domain is None else ""
        worked_s = work.worked_s
        if len(refusals) <= _SUMMED_AT_ONCE:
            return explain.summed(refusals, nodes, new), worked_s
        # Summing thousands of refusals would block the loop, and the data cannot change.
        return await asyncio.to_thread(explain.summed, refusals, nodes, new), worked_s

    def _held(self, ledger: Ledger, shape: Shape) -> "_Held | None":
        """Return the cards that force-deleted pods still hold; None if there are none, which is usual."""
        held = self._scheduler.vanished.held(self._clock())
        if not held:
            return None
        free = ledger.fork()
        for one in held:
            free.release(one.uid)
        # The name of a pod is shown only to pods of its own namespace.
        asking = {entry.pod.namespace for entry in self._scheduler.cluster.queue.refused_pods(shape)}
        nodes: dict[NodeName, tuple[str, float]] = {}
        for one in held:
            told = f"pod {one.pod}" if asking == {one.pod.partition("/")[0]} else "a pod"
            others, left_s = nodes.get(one.node, ("", 0.0))
            nodes[one.node] = f"{others} and {told}" if others else told, max(left_s, one.left_s)
        return _Held(free, nodes)


class _Held(NamedTuple):
    """free: the ledger without force-deleted pods. nodes: where these hold cards, their names, and for how long."""

    free: Ledger
    nodes: Mapping[NodeName, tuple[str, float]]

    def refusal(self, known: NodeRefusal, shape: Shape, policy: Policy) -> NodeRefusal:
        """Return *known*, or that the pod waits for these cards."""
        state = self.free.states.get(known.node) if known.node in self.nodes else None
        if state is None:
            return known
        pods, left_s = self.nodes[known.node]
        later = refusal_on(self.free, shape, state, policy)
        seconds, removed = ceil(left_s), f"which {'were' if ' and ' in pods else 'was'} removed by force"
        if later is None:
            wait = f"{known.node} frees the cards of {pods}, {removed}: {seconds} s at most"
            return NodeRefusal(
                node=known.node, key="with cards held for removed pods", barred=True, wait=wait, held=True
            )
        if state.facts.ready or not later.barred or later.hopeless or later.shortfalls:
            return known
        return replace(later, wait=f"{later.wait} and, {seconds} s after that, frees the cards of {pods}, {removed}")


def _with(wait: Wait, sentence: str) -> Wait:
    """Return *wait* with another *sentence*, for which its text is cut if necessary."""
    most = _SENTENCE_MAX - len(sentence) - 1
    text = wait.text if len(wait.text) <= most else f"{wait.text[: most - 1]}…"
    return Wait(wait.cause, f"{text} {sentence}")


def _kept_free(name: NodeName) -> NodeRefusal:
    """Return the refusal of a node that would take the pod but is kept free for one that waits longer."""
    wait = f"{name} is no longer kept free"
    return NodeRefusal(node=name, key="kept free for others that wait longer", barred=True, wait=wait)
