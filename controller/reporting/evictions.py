"""Who would have to leave so that a pod that waits fits: told beforehand, whether or not anybody is to be evicted."""

import asyncio
from collections.abc import Generator, Sequence
from typing import Any, Final

from controller.deciding.lifecycle import Entry, Stage
from controller.deciding.owner import Owner
from core.placing.preemption import Eviction

# So many are named.
_NAMED: Final = 5
_STEPS: Final = 8


async def would_leave(owner: Owner, entry: Entry) -> dict[str, Any]:
    """For the answer of an explanation: whose leaving would let *entry*, or its gang, in; empty if nobody's would.

    Every node is looked at, in slices between which others go on.
    """
    wait = entry.wait
    if entry.stage is not Stage.REFUSED or entry.shape is None or owner.planner.nominations.of(entry) is not None:
        return {}
    ask = entry.parked
    refusal = owner.planner.units.refusal(ask) if ask is not None else None
    if ask is None or ask in owner.planner.wakes.silent or (refusal is not None and refusal.over):
        return {}
    question = owner.preempting.question(entry)
    found = await _found(question.steps)
    if found is None or not found.victims or entry.wait is not wait:
        return {}
    holdings = [owner.ledger.holding(uid) for uid in found.victims]
    keys = [one.key for one in holdings if one is not None]
    settings = owner.planner.settings
    nodes = sorted({one.node for one in found.placements})
    told = {"pods": keys, "nodes": nodes, "breaks_budgets": found.violations}
    state, when = "off", "preemption is off"
    if not entry.pod.preempts:
        state, when = "never", "its preemptionPolicy is Never"
    elif settings.preemption:
        state = "on"
        when = f"they are asked to leave once it was refused for {settings.preemption_delay_s:g} s"
    return {"preemption": {"state": state, **told}, "text": f"{_sentence(keys, nodes, found)}; {when}."}


async def _found(steps: Generator[None, None, Eviction | None]) -> Eviction | None:
    at = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # typeshed knows no better
        at += 1
        if at % _STEPS == 0:
            await asyncio.sleep(0)


def _sentence(keys: Sequence[str], nodes: Sequence[str], found: Eviction) -> str:
    named = ", ".join(keys[:_NAMED]) + (f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else "")
    pods = "1 pod of a lower priority holds" if len(keys) == 1 else f"{len(keys)} pods of a lower priority hold"
    text = f"{pods} its room on {', '.join(nodes[:_NAMED])}: {named}"
    if found.violations:
        many = found.violations
        text += f" ({many} of them against a disruption budget, which may forbid it)"
    return text
