"""Answers ``kubectl cards simulate``: makes a change in memory, lets the controller decide, and compares."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any, Final

from controller.actions import Inbox
from controller.deciding.lifecycle import Entry
from controller.reporting.answers import as_placed, where
from controller.reporting.events import Recorder
from controller.reporting.status import StatusWriter
from controller.reporting.work import Work
from controller.simulating.changes import MadeChange, make, policy_of
from controller.simulating.cluster import SimulatedCluster
from core.errors import InvariantError
from core.model import Pod, PodUid
from core.units import counted
from core.view.cards import Kind, cards_of, kinds_of
from core.view.simulated import (
    Because,
    Outcome,
    Simulated,
    SimulatedCard,
    SimulatedPod,
    kinds_between,
    losing,
)
from core.waiting import said_in
from core.wire.changes import Change
from kube.calls import Calls
from kube.transport import Response

_NOT_YET: Final = "is not decided yet"


async def simulate(cluster: SimulatedCluster, change: Change, notes: tuple[str, ...] = ()) -> Simulated:
    """Return what would happen; *cluster* is changed, and other tasks run between two decisions.

    Args:
        cluster: as it was read.
        change: what to change.
        notes: on what could not be read.

    Raises:
        UnusableChangeError: the change cannot be made.
    """
    work = Work(time.monotonic)
    begun = {one.pod.uid for one in cluster.scheduler.cluster.queue}
    await _settle(cluster, work)
    comparing = _Comparing(cluster, Because.POLICY if change.is_policy_alone else Because.DRAINED)
    before = await _kinds(cluster)
    if change.policy:
        for _ in cluster.configure(replace(cluster.scheduler.cluster.settings, policy=policy_of(change))):
            await work.give_way()
    made = make(cluster, change)
    more = made.notes
    if change.is_policy_alone:
        cluster.place_anew()
    await _settle(cluster, work)
    pods = [one async for one in comparing.pods(made)]
    placed = sum(uid in comparing.nodes for uid in begun)
    if placed:
        more = (*more, f"without the change, the controller would place {counted(placed, 'waiting pods')} now")
    if comparing.same:
        more = (*more, f"{counted(comparing.same, 'pods')} would be on the same nodes as now")
    if comparing.others:
        others = counted(comparing.others, "pods")
        more = (
            *more,
            f"{others} of other schedulers would be evicted; whether replacements run is not simulated",
        )
    return Simulated(
        pods=tuple(pods),
        kinds=kinds_between(before, await _kinds(cluster)),
        losing=losing(pods),
        waiting=comparing.still_waiting,
        notes=tuple(dict.fromkeys((*notes, *more))),
    )


async def _settle(cluster: SimulatedCluster, work: Work) -> None:
    for _ in cluster.settling():
        await work.give_way()


async def _kinds(cluster: SimulatedCluster) -> tuple[Kind, ...]:
    # Counting thousands of nodes would block the loop.
    return await asyncio.to_thread(lambda: kinds_of(cards_of(cluster.scheduler.cluster.ledger).nodes))


class _NoServer:
    """There is nothing to write to."""

    async def request(self, verb: str, path: str, **sending: Any) -> Response:
        del sending
        raise InvariantError(f"a simulation has called {verb} {path}")


class _Comparing:
    """The pods before a change, and what became of them.

    Attributes:
        nodes: the nodes of pods before the change, by uid.
        others: pods of other schedulers that left their nodes, and are created again.
        same: pods that another policy leaves on their nodes.
        still_waiting: pods that waited before, and still wait.
    """

    def __init__(self, cluster: SimulatedCluster, because: Because) -> None:
        """Remember the pods; *because*: why pods leave their nodes that nothing preempts."""
        self.nodes: Final = {
            uid: pod.node_name for uid, pod in cluster.pods.items() if pod.node_name and not pod.finished
        }
        self.others = 0
        self.same = 0
        self._because: Final = because
        self.still_waiting = 0
        self._cluster: Final = cluster
        self._pods: Final = dict(cluster.pods)
        self._waited: Final = [one.pod.uid for one in cluster.scheduler.cluster.queue if one.placement is None]
        metrics, inbox = cluster.metrics, Inbox(time.monotonic)
        calls = Calls(_NoServer())
        recorder = Recorder(calls, metrics, instance="")
        self._writer: Final = StatusWriter(cluster.scheduler, calls, inbox, recorder, metrics)

    async def pods(self, made: MadeChange) -> AsyncIterator[SimulatedPod]:
        """Yield what became of added pods, and of others that the change affects."""
        for pod in made.pods:
            why = made.refused.get(pod.uid)
            if why is None:
                yield await self._told(pod, Because.ADDED)
            else:
                yield SimulatedPod(pod=pod.key, because=Because.ADDED, outcome=Outcome.WAITS, text=why)
        for uid in self._gone():
            pod = self._pods[uid]
            if pod.scheduler_name not in self._cluster.scheduler.cluster.settings.scheduler_names and pod.owner:
                # Pods of their node go with it, as for cardshare's.
                self.others += uid in self._cluster.replaced
                continue
            because = Because.PREEMPTED if uid in self._cluster.preempted else self._because
            found = await self._told(pod, because)
            if because is Because.POLICY and found.node == found.before:
                self.same += 1
            else:
                yield found
        for uid in self._waited:
            found = await self._told(self._pods[uid], Because.WAITED)
            if found.outcome == Outcome.PLACED:
                yield found
            else:
                self.still_waiting += 1

    def _gone(self) -> Iterator[PodUid]:
        """Yield the pods that left their nodes, by name."""
        left = self._cluster.replaced.keys() | self._cluster.ended.keys()
        yield from sorted(left & self.nodes.keys(), key=lambda uid: self._pods[uid].key)

    async def _told(self, pod: Pod, because: Because) -> SimulatedPod:
        cluster, uid = self._cluster, pod.uid
        while uid in cluster.replaced:
            uid = cluster.replaced[uid]
        found: dict[str, Any] = {"pod": pod.key, "because": str(because), "before": self.nodes.get(pod.uid, "")}
        if pod.uid in cluster.preempted:
            found["evicted_for"] = self._key(cluster.preempted[pod.uid])
        now = cluster.pods.get(uid)
        if now is None:
            return SimulatedPod(**found, outcome=str(Outcome.ENDED))
        place = self._place(now)
        if place is not None:
            cards = tuple(SimulatedCard(**one) for one in place["cards"])
            return SimulatedPod(**found, outcome=str(Outcome.PLACED), node=place["node"], cards=cards)
        entry = cluster.scheduler.cluster.queue.get(uid)
        return SimulatedPod(**found, outcome=str(Outcome.WAITS), **await self._why(now, entry))

    def _key(self, uid: PodUid) -> str:
        found = self._cluster.pods.get(uid) or self._pods.get(uid)
        return found.key if found is not None else ""

    def _place(self, pod: Pod) -> dict[str, Any] | None:
        """Return node and cards of *pod*, bound or promised."""
        ledger, entry = self._cluster.scheduler.cluster.ledger, self._cluster.scheduler.cluster.queue.get(pod.uid)
        if entry is not None and entry.placement is not None:
            return where(ledger, entry.placement)
        if not pod.node_name:
            return None
        holding = ledger.holding(pod.uid)
        if holding is None or holding.assignment is None:
            return {"node": pod.node_name, "cards": []}
        return where(ledger, as_placed(pod, holding))

    async def _why(self, pod: Pod, entry: Entry | None) -> dict[str, Any]:
        if entry is None:
            text = f"{pod.scheduler_name or 'the default scheduler'} decides, which is not simulated"
            return {"text": text} if not pod.gated else {"text": "it has scheduling gates"}
        wait = await self._writer.wait(entry)
        if wait is None:
            return {"text": _NOT_YET}
        said = said_in(wait.message)
        return {"code": wait.cause.code, "text": wait.text, "nearest": said.nearest, "change": said.change}
