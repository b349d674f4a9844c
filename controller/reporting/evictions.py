"""Finds the pods whose eviction would let a waiting pod in; an answer only, nothing is evicted."""

import time
from collections.abc import Sequence
from typing import Any, Final

from controller.deciding.lifecycle import Entry, Stage
from controller.deciding.preempt import LOWER, OF_QUEUES
from controller.deciding.scheduler import Scheduler
from controller.reporting.work import Work
from core.placing.preemption import Eviction

# The maximum number of named pods.
_NAMED: Final = 5


async def would_leave(scheduler: Scheduler, entry: Entry) -> dict[str, Any]:
    """Return the pods whose eviction would let *entry*, or its gang, in, for an explanation; empty if there are none.

    Every node is judged, in slices between which other tasks run.
    """
    wait = entry.wait
    if (
        entry.stage is not Stage.REFUSED
        or entry.shape is None
        or scheduler.reservations.nominations.of(entry) is not None
    ):
        return {}
    ask = entry.parked
    refusal = scheduler.cluster.gangs.refusal(ask) if ask is not None else None
    if ask is None or ask in scheduler.cluster.requeue.silent or (refusal is not None and refusal.over):
        return {}
    question = scheduler.preempting.question(entry)
    found = await Work(time.monotonic).result(question.steps)
    if found is None or not found.victims or entry.wait is not wait:
        return {}
    holdings = [scheduler.cluster.ledger.holding(uid) for uid in found.victims]
    # The caller may lack the right to read pods of other namespaces.
    own = f"{entry.pod.namespace}/"
    keys = [one.key for one in holdings if one is not None and one.key.startswith(own)]
    others = len(found.victims) - len(keys)
    settings = scheduler.cluster.settings
    nodes = sorted({one.node for one in found.placements})
    told = {"pods": keys, "pods_of_others": others, "nodes": nodes, "breaks_budgets": found.violations}
    whose = LOWER if question.takes_back.isdisjoint(found.victims) else OF_QUEUES
    state, when = "off", "preemption is off"
    if not entry.standing.preempts:
        state, when = "never", "its preemptionPolicy is Never"
    elif scheduler.preempting.is_on:
        state = "on"
        when = f"they will be evicted once it has been refused for {settings.preemption_delay_s:g} s"
    return {"preemption": {"state": state, **told}, "text": f"{_sentence(keys, others, nodes, found, whose)}; {when}."}


def _sentence(keys: Sequence[str], others: int, nodes: Sequence[str], found: Eviction, whose: str) -> str:
    many = len(keys) + others
    named = list(keys[:_NAMED])
    if len(keys) > _NAMED:
        named.append(f"{len(keys) - _NAMED} more")
    if others:
        named.append(f"{others} of other namespaces")
    listed = " and ".join((*filter(None, [", ".join(named[:-1])]), named[-1]))
    pods = f"1 pod {whose} holds" if many == 1 else f"{many} pods {whose} hold"
    text = f"{pods} its capacity on {', '.join(nodes[:_NAMED])}: {listed}"
    if found.violations:
        text += f" ({found.violations} of them against a disruption budget, which may forbid it)"
    return text
