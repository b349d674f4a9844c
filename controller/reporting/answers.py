"""The answer of /v1/explain, as a value and as text: where a pod is, or why it waits."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final

from controller.deciding.lifecycle import Entry, Stage
from controller.deciding.pending import RETRIED
from controller.deciding.permit import turn_wait
from controller.deciding.scheduler import Scheduler
from controller.inbox import Inbox
from controller.reporting.evictions import would_leave
from core.errors import quoted
from core.explaining import explain
from core.explaining.explain import Refused
from core.holding import Holding
from core.ledger import Ledger, Placement
from core.model import NodeName, Pod
from core.placing.choice import compared, packed
from core.placing.decide import shape_of
from core.placing.gang import Together
from core.placing.shape import Shape
from core.placing.standing import PRIORITY_FIELD
from core.waiting import Cause, Wait

Explain = Callable[[Shape], Awaitable[tuple[Refused, float]]]
ExplainUnit = Callable[[Together], Awaitable[tuple[Wait | None, Refused | None, float]]]

UNKNOWN: Final = "unknown"
_WAITS: Final = {
    Stage.READY: Wait(Cause.WAITING_FOR_DECISION, "is about to be decided"),
    Stage.RESTING: RETRIED,
    Stage.SETTLING: Wait(
        Cause.SCHEDULER_ERROR, "is being read again, because the outcome of its Binding is not known yet"
    ),
}
_STAGES: Final = {
    Stage.LOCKING: "has its place; its node is being locked for it",
    Stage.BINDING: "is being bound",
    Stage.BOUND: "is bound",
}


async def answer(
    scheduler: Scheduler,
    inbox: Inbox,
    explain_shape: Explain,
    key: str,
    *,
    explain_unit: ExplainUnit | None = None,
    idle: Wait | None = None,
    given_up: Collection[str] = (),
) -> dict[str, Any]:
    """Return what is known of pod *key* (namespace/name); UNKNOWN also if it neither holds nor requests cards.

    Args:
        scheduler: the state of the cluster.
        inbox: the calls for the scheduler.
        explain_shape: returns why no node takes a shape.
        key: the pod.
        explain_unit: returns why no node takes one more member of a unit; None if nodes must not be judged.
        idle: why this process currently decides nothing; None if it does.
        given_up: scheduler names whose pods this process leaves to other schedulers.
    """
    await inbox.settled()
    # Building a key for each of 100,000 pods would take 30 ms.
    namespace, _, name = key.partition("/")
    entry = next(
        (one for one in scheduler.cluster.queue if one.pod.name == name and one.pod.namespace == namespace), None
    )
    if entry is not None:
        return await _pending(scheduler, explain_shape, explain_unit, entry, idle)
    pod = next(
        (one for one in scheduler.cluster.carded.values() if one.name == name and one.namespace == namespace), None
    )
    if pod is not None:
        return await _bound(scheduler, pod)
    stranger = scheduler.pending.stranger(namespace, name)
    if stranger is not None and stranger.scheduler_name in given_up:
        whose = quoted(stranger.scheduler_name)
        text = (
            f"waits for the scheduler {whose}, whose pods another scheduler also places, so this process ignores them"
        )
        wait = Wait(Cause.NAME_GIVEN_UP, text)
        return {"pod": key, "uid": stranger.uid, "state": "not ours", **coded(wait)}
    text = f"pod {quoted(key, 320)} is unknown here, or neither requests nor holds cards"
    return {"pod": key, "state": UNKNOWN, "text": text}


async def _pending(
    scheduler: Scheduler, explain_shape: Explain, explain_unit: ExplainUnit | None, entry: Entry, idle: Wait | None
) -> dict[str, Any]:
    found: dict[str, Any] = {"pod": entry.pod.key, "uid": entry.pod.uid, "state": entry.stage.value}
    if entry.placement is not None:
        found |= where(scheduler.cluster.ledger, entry.placement)
    if entry.stage is Stage.TURN and entry.placement is not None:
        keys = scheduler.cluster.collision_key(entry.shape) if entry.shape is not None else None
        node = entry.placement.node
        wait = scheduler.gate.wait(entry.pod, node, keys, in_full=True) if keys is not None else turn_wait(node)
        found |= coded(wait)
    elif entry.wait is not None and entry.wait.cause is Cause.WAITING_FOR_EVICTED:
        found |= coded(entry.wait)
    elif isinstance(entry.parked, Together) and explain_unit is not None:
        found |= await _together(explain_unit, entry.parked, entry.wait)
    elif entry.wait is not None:
        found |= coded(entry.wait)
    elif entry.stage is Stage.REFUSED and entry.shape is not None:
        refused, _ = await explain_shape(entry.shape)
        silent = scheduler.cluster.requeue.silent.get(entry.shape, ())
        found |= coded(explain.wait(refused, silent)) | refused_answer(refused)
        found["text"] += _closers(scheduler, refused, entry.shape)
        if silent:
            found["silent_plugins"] = list(silent)
            found["text"] += f"\nThese nodes would fit, but their device plugin does not answer: {', '.join(silent)}."
    elif entry.stage is Stage.READY and idle is not None:
        found |= coded(idle)
        if entry.pod.scheduled_message:
            found["text"] += f"\nIts condition says: {entry.pod.scheduled_message}"
    elif entry.stage in _WAITS:
        found |= coded(_WAITS[entry.stage])
    else:
        found["text"] = _STAGES.get(entry.stage, "waits")
    if entry.stage is Stage.REFUSED:
        leaving = await would_leave(scheduler, entry)
        text = leaving.pop("text", "")
        found |= leaving
        found["text"] += f"\n{text}" if text else ""
    if entry.standing.raised_by:
        found["priority"] = entry.standing.priority
        whose = entry.standing.raised_by
        if whose != PRIORITY_FIELD:
            whose = f"the PriorityClass {quoted(whose)} of its group"
        found["text"] += f"\nIts priority is {entry.standing.priority}, from {whose}."
    avoided = sorted(scheduler.cluster.handoff.cooldown.avoided(entry.pod))
    if avoided:
        found["avoided_nodes"] = avoided
        found["text"] += (
            f"\nIt goes elsewhere if it can, because these nodes rejected its owner's last pods: {', '.join(avoided)}."
        )
    return found


async def _together(explain_unit: ExplainUnit, asks: Together, known: Wait | None) -> dict[str, Any]:
    """Return why a pod of a refused unit waits: in short, and in full for one more member."""
    wait, missing, _ = await explain_unit(asks)
    if wait is None or missing is None:
        known = wait or known
        return coded(known) if known is not None else {"text": "waits"}
    full = refused_answer(missing)
    return full | coded(wait) | {"text": f"{wait.text}\nFor one more member: {full['text']}"}


def coded(wait: Wait) -> dict[str, Any]:
    """Return the code, the condition's reason and the text of *wait*."""
    return {"code": wait.cause.code, "reason": wait.cause.reason, "text": wait.text}


def _closers(scheduler: Scheduler, refused: Refused, shape: Shape) -> str:
    """Return which pods close the nearest nodes; only their own namespaces and operators may see this."""
    states = scheduler.cluster.ledger.states
    closed = [(one.node, states[one.node].closed) for one in refused.nearest if one.node in states]
    told = [f"\n{node}: {why[shape.dialect]}" for node, why in closed if shape.dialect in why]
    return "".join(told)


def refused_answer(refused: Refused) -> dict[str, Any]:
    """Return why no node fits, in full."""
    return {
        "text": explain.report(refused),
        "sentence": explain.sentence(refused),
        "nodes": refused.nodes,
        "reasons": [{"reason": reason, "nodes": count} for reason, count in refused.counts],
        "nearest": [
            {
                "node": one.node,
                "reason": one.key,
                "detail": one.detail,
                "cards": [
                    {
                        "card": short.card,
                        "reason": short.reason.value,
                        "wanted": short.wanted,
                        "free": short.free,
                        "unit": short.unit,
                        "detail": short.detail,
                    }
                    for short in one.shortfalls
                ],
            }
            for one in refused.nearest
        ],
        "remedy": refused.remedy,
        "new_node": refused.new,
    }


async def _bound(scheduler: Scheduler, pod: Pod) -> dict[str, Any]:
    found: dict[str, Any] = {"pod": pod.key, "uid": pod.uid, "state": "bound"}
    holding = scheduler.cluster.ledger.holding(pod.uid)
    if holding is None or holding.dialect is None:
        return found | {"node": pod.node_name, "text": f"is bound to {pod.node_name} and holds no cards"}
    if holding.assignment is None:
        text = f"is bound to {pod.node_name}, which accepts no new shares while this pod is there: {holding.reason}"
        return found | {"node": pod.node_name, "dialect": holding.dialect, "text": text}
    placement = as_placed(pod, holding)
    found |= where(scheduler.cluster.ledger, placement)
    if placement.node not in scheduler.cluster.ledger.states:
        gone = f"is bound to node {placement.node}, which does not exist; delete the pod, or restore the node"
        return found | {"text": gone}
    found["text"] = f"is bound to {explain.placed(scheduler.cluster.ledger, placement)}"
    shape = shape_of(pod, scheduler.cluster.ledger)
    chosen = ""
    if isinstance(shape, Shape):
        # Every node is judged once per mode, on a copy in a thread, so that the loop is not blocked.
        chosen = await asyncio.to_thread(
            compared, scheduler.cluster.ledger.fork(), scheduler.cluster.search.policy, shape, placement
        )
    if chosen:
        found["choice"] = chosen
        found["text"] += f"\nThe mode was chosen: {chosen}"
    packing = ""
    if isinstance(shape, Shape) and scheduler.cluster.search.learns:
        packing = await asyncio.to_thread(
            packed, scheduler.cluster.ledger.fork(), scheduler.cluster.search.policy, shape, placement
        )
    if packing:
        found["packing"] = packing
        found["text"] += f"\nBy policy pack this place is expected to leave the least capacity unused: {packing}"
    if holding.reason:
        found["text"] += f"\nThe node accepts no new shares while this pod is there: {holding.reason}"
    return found


def as_placed(pod: Pod, holding: Holding) -> Placement:
    """Return what bound *pod* holds, in the form of a new placement."""
    return Placement(
        pod=pod.uid,
        pod_key=pod.key,
        node=NodeName(pod.node_name),
        dialect=holding.dialect,
        assignment=holding.assignment,
        amounts=holding.amounts,
    )


def where(ledger: Ledger, placement: Placement) -> dict[str, Any]:
    """Return the node and the cards of *placement*."""
    if placement.dialect is None:
        return {"node": placement.node, "cards": []}
    state = ledger.states.get(placement.node)
    cards = state.cards(placement.dialect) if state is not None else ()
    described = ledger.catalog.dialects[placement.dialect].describe(placement.assignment, cards)
    return {
        "node": placement.node,
        "dialect": placement.dialect,
        "cards": [{"card": one.card, "share": one.text} for one in described],
    }
