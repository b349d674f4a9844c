"""What the TLS port answers about pods and cards, as values and as text.

Where a pod is, why it waits, whose eviction would let it in, and where it would go if it were created now; what
force-deleted pods still hold; and the learned tables of policy `pack`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final

from controller.actions import Inbox
from controller.deciding.bind import turn_wait
from controller.deciding.lifecycle import Entry, Stage
from controller.deciding.pending import RETRIED, of_name
from controller.deciding.scheduler import Scheduler
from controller.deciding.victims import forbidden
from controller.metrics import Metrics
from controller.reporting.work import Work
from core.constraints.quota import over_wait
from core.errors import quoted
from core.explaining import explain
from core.explaining.explain import Explanation
from core.ledger import Ledger, Placement
from core.model import NodeName, Pod
from core.node_state import Holding
from core.placing.choice import compared, packed
from core.placing.decide import Shape, look_around, shape_of
from core.placing.gang import Together
from core.placing.learning import Learning
from core.placing.pack import STEPS
from core.placing.queues import PRIORITY_FIELD
from core.waiting import Cause, Wait
from core.wire.previews import asked_pod

# Returns why no node takes a shape; and the seconds of work.
Explain = Callable[[Shape], Awaitable[tuple[Explanation, float]]]
# Of a ledger, except some of its nodes.
ExplainOn = Callable[[Shape, Ledger, frozenset[NodeName]], Awaitable[tuple[Explanation, float]]]
ExplainUnit = Callable[[Together], Awaitable[tuple[Wait | None, Explanation | None, float]]]

UNKNOWN: Final = "unknown"
# The maximum number of pods named for eviction.
_NAMED: Final = 5
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
# The metric samples a table at these free fractions of a card.
_TOLD_PCT: Final = (25, 50, 75, 100)
# Less than the webhook's timeout. A thousand nodes take 10 to 30 ms of it.
LIMIT_S: Final = 0.4
LATE: Final = "late"


async def would_leave(scheduler: Scheduler, entry: Entry) -> dict[str, Any]:
    """Return the pods whose eviction would let *entry*, or its gang, in, for an explanation; empty if there are none.

    Nothing is evicted. Every node is judged, in slices between which other tasks run.
    """
    wait, preempting = entry.wait, scheduler.preempting
    if entry.parked is None or entry.shape is None or not preempting.may_help(entry.parked):
        return {}
    if scheduler.reservations.nominations.of(entry) is not None:
        return {}
    question = preempting.victim_search.question(entry)
    found = await Work(time.monotonic).result(question.steps)
    if found is None or not found.victims or entry.wait is not wait:
        return {}
    holdings = [scheduler.cluster.ledger.holding(uid) for uid in found.victims]
    # The caller may lack the right to read pods of other namespaces.
    own = f"{entry.pod.namespace}/"
    keys = [one.key for one in holdings if one is not None and one.key.startswith(own)]
    others = len(found.victims) - len(keys)
    settings = scheduler.cluster.settings
    ledger = scheduler.cluster.ledger
    nodes = sorted({node for uid in found.victims if (node := ledger.node_of(uid)) is not None})
    told = {"pods": keys, "pods_of_others": others, "nodes": nodes, "breaks_budgets": found.violations}
    state, when = "off", "preemption is off"
    if not entry.standing.preempts:
        state, when = "never", "its preemptionPolicy is Never"
    elif preempting.is_on:
        state = "on"
        when = (
            forbidden(found.broken, entry.pod.namespace)
            if found.broken
            else f"they will be evicted once it has been refused for {settings.preemption_delay_s:g} s"
        )
    return {
        "preemption": {"state": state, **told},
        "text": f"{_sentence(keys, others, nodes, question.whose(found))}; {when}.",
    }


def _sentence(keys: Sequence[str], others: int, nodes: Sequence[str], whose: str) -> str:
    many = len(keys) + others
    named = list(keys[:_NAMED])
    if len(keys) > _NAMED:
        named.append(f"{len(keys) - _NAMED} more")
    if others:
        named.append(f"{others} of other namespaces")
    listed = " and ".join((*filter(None, [", ".join(named[:-1])]), named[-1]))
    pods = f"1 pod {whose} holds" if many == 1 else f"{many} pods {whose} hold"
    return f"{pods} its capacity on {', '.join(nodes[:_NAMED])}: {listed}"


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
    cluster = scheduler.cluster
    await inbox.settled()
    waiting = of_name((one.pod for one in cluster.queue), key)
    entry = cluster.queue.get(waiting.uid) if waiting is not None else None
    if entry is not None:
        return await _pending(scheduler, explain_shape, explain_unit, entry, idle)
    pod = of_name(cluster.carded.values(), key)
    if pod is not None:
        return await _bound(scheduler, pod)
    stranger = of_name(scheduler.pending.strangers(), key)
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
    cluster = scheduler.cluster
    found: dict[str, Any] = {"pod": entry.pod.key, "uid": entry.pod.uid, "state": entry.stage.value}
    if entry.placement is not None:
        found |= where(cluster.ledger, entry.placement)
    if entry.stage is Stage.TURN and entry.placement is not None:
        keys = cluster.collision_key(entry.shape) if entry.shape is not None else None
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
        silent = cluster.requeue.silent.get(entry.shape, ())
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
        found["text"] += "".join([f"\n{more}" for more in (text, scheduler.preempting.denied(entry)) if more])
    if entry.standing.raised_by:
        found["priority"] = entry.standing.priority
        whose = entry.standing.raised_by
        if whose != PRIORITY_FIELD:
            whose = f"the PriorityClass {quoted(whose)} of its group"
        found["text"] += f"\nIts priority is {entry.standing.priority}, from {whose}."
    avoided = sorted(cluster.handoff.cooldown.avoided(entry.pod))
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


def _closers(scheduler: Scheduler, refused: Explanation, shape: Shape) -> str:
    """Return which pods close the nearest nodes; only their own namespaces and operators may see this."""
    states = scheduler.cluster.ledger.states
    closed = [(one.node, states[one.node].closed) for one in refused.nearest if one.node in states]
    told = [f"\n{node}: {why[shape.dialect]}" for node, why in closed if shape.dialect in why]
    return "".join(told)


def refused_answer(refused: Explanation) -> dict[str, Any]:
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
    cluster = scheduler.cluster
    found: dict[str, Any] = {"pod": pod.key, "uid": pod.uid, "state": "bound"}
    holding = cluster.ledger.holding(pod.uid)
    if holding is None or holding.dialect is None:
        return found | {"node": pod.node_name, "text": f"is bound to {pod.node_name} and holds no cards"}
    if holding.assignment is None:
        text = f"is bound to {pod.node_name}: {holding.closed_text(pod.node_name)}"
        return found | {"node": pod.node_name, "dialect": holding.dialect, "text": text}
    placement = as_placed(pod, holding)
    found |= where(cluster.ledger, placement)
    if placement.node not in cluster.ledger.states:
        gone = f"is bound to node {placement.node}, which does not exist; delete the pod, or restore the node"
        return found | {"text": gone}
    found["text"] = f"is bound to {cluster.ledger.described(placement)}"
    shape = shape_of(pod, cluster.ledger)
    questions = [("choice", "The mode was chosen", compared)]
    if cluster.search.learns:
        text = "By policy pack this place is expected to leave the least capacity unused"
        questions.append(("packing", text, packed))
    for field, text, question in questions:
        if isinstance(shape, Shape):
            # Every node is judged once per mode, on a copy in a thread, so that the loop is not blocked.
            fork, policy = cluster.ledger.fork(), cluster.search.policy
            told = await asyncio.to_thread(question, fork, policy, shape, placement)
            if told:
                found[field] = told
                found["text"] += f"\n{text}: {told}"
    if closed := holding.closed_text(pod.node_name):
        found["text"] += f"\n{closed[0].upper()}{closed[1:]}"
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


def held(scheduler: Scheduler, now_s: float) -> dict[str, Any]:
    """Return what force-deleted pods still hold, which no object of the API server shows; *now_s*: monotonic.

    held: for each such pod its namespace/name, node, whether the node is ready, left_s (seconds; they restart while the
    node is not ready), and cards: protocol, card, share in words, amount in the card's unit, cores_pct.
    """
    ledger = scheduler.cluster.ledger
    found = []
    for one in scheduler.vanished.held(now_s):
        holding, state = ledger.holding(one.uid), ledger.states.get(one.node)
        if holding is None or state is None:
            continue
        cards = [
            {
                "protocol": name,
                "card": share.whole,
                "share": share.text,
                "amount": share.amount,
                "cores_pct": share.cores_pct,
            }
            for name, assignment, _ in holding.parts
            if assignment is not None
            for share in ledger.catalog.dialects[name].describe(assignment, state.offers.get(name, ()))
        ]
        ready = state.facts.ready
        found.append(
            {"pod": one.pod, "node": one.node, "node_ready": ready, "left_s": round(one.left_s, 1), "cards": cards}
        )
    return {"held": found}


def show_packing(metrics: Metrics, learning: Learning) -> None:
    """Set the metrics to the tables in force."""
    metrics.packing_pods.set(learning.made_of)
    metrics.packing_loss.clear()
    for one in learning.known:
        for free_pct in _TOLD_PCT:
            metrics.packing_loss.labels(one.dialect, one.card, free_pct).set(one.table.loss[free_pct] / STEPS)


def learned(learning: Learning) -> dict[str, Any]:
    """Return the complete tables of policy `pack`.

    loss: hundredths of a card that will probably never be sold, by the number of free hundredths, 0 to 100. per_step:
    amount of each node resource that is used with one hundredth. scarce: 0 to 1, how likely such a resource runs out
    first.
    """
    return {
        "pods": learning.made_of,
        "requests": len(learning.mix.requests),
        "cards": [
            {
                "dialect": one.dialect,
                "card": one.card,
                "cards": one.cards,
                "loss": [round(loss, 3) for loss in one.table.loss],
                "per_step": dict(one.table.per_step),
                "scarce": one.table.scarce,
            }
            for one in learning.known
        ],
    }


async def preview(
    scheduler: Scheduler,
    inbox: Inbox,
    explain_shape: Explain,
    text: bytes,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """Return where the pod in *text*, JSON, would go now, or why nowhere; *clock*: monotonic seconds.

    It reserves and remembers nothing. Every node is judged, in slices between which the scheduler runs, within a time
    limit. Callers can send pods of any shape, so results are not cached as they are for shapes in the cluster.

    Raises:
        InvalidRequestError: *text* is not a pod.
    """
    cluster = scheduler.cluster
    pod = asked_pod(text)
    try:
        async with asyncio.timeout(LIMIT_S):
            await inbox.settled()
            if pod.scheduler_name not in cluster.ledger.settings.scheduler_names:
                return {"state": "not ours", "text": "it names another scheduler"}
            shape = shape_of(pod, cluster.ledger)
            if isinstance(shape, Wait):
                return {"state": "waits", **coded(shape)}
            tables = cluster.ledger.tables
            kept = scheduler.reservations.barred_to_new(cluster.groups.standing(pod).priority)
            placement = await Work(clock).result(look_around(cluster.ledger, cluster.search.policy, pod, shape, kept))
            await inbox.settled()
            if cluster.ledger.tables is not tables:
                return {"state": LATE, "text": "the configuration changed meanwhile; ask again"}
            over = cluster.over(pod, placement) if placement is not None else ()
            if over:
                return {"state": "waits", **coded(over_wait(over))}
            return await _told(scheduler, explain_shape, shape, placement)
    except TimeoutError:
        return {"state": LATE, "text": f"not every node could be checked within {LIMIT_S} s; create the pod to see"}


async def _told(
    scheduler: Scheduler, explain_shape: Explain, shape: Shape, placement: Placement | None
) -> dict[str, Any]:
    cluster = scheduler.cluster
    if placement is not None and placement.node in cluster.ledger.states:
        found: dict[str, Any] = {"state": "fits", "text": cluster.ledger.described(placement)}
        return found | where(cluster.ledger, placement)
    refused, _ = await explain_shape(shape)
    wait = coded(explain.wait(refused))
    return {"state": "refused", **refused_answer(refused), **wait, "text": explain.sentence(refused)}
