"""Where one pod is, or why it waits: the answer of ``kubectl cards explain``, field by field. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.ledger import Ledger
from core.model import Pod
from core.port.cards import CardShare
from core.view.cards import VERSION
from core.waiting import code_in


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event about a pod."""

    time: str
    reason: str
    message: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a pod holds of one card: in words, and *amount* in the card's unit, None if unknown.

    cores_pct: percent of the card's cores, None if the protocol does not count them.
    """

    card: str
    share: str
    amount: int | None = None
    cores_pct: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """The answer of ``explain``.

    state: ``waits``, ``bound`` or ``over``. reason: of the condition PodScheduled, "" if there is none. code: the cause
    of the wait (docs/operators/waiting.md), "" if another scheduler reports it. text: where the pod is or why it waits.
    controller: the controller's own answer, field by field, if it was asked.
    """

    version: int = VERSION
    pod: str
    state: str
    phase: str
    node: str = ""
    reason: str = ""
    code: str = ""
    text: str
    cards: tuple[Held, ...] = ()
    events: tuple[Event, ...] = ()
    controller: Mapping[str, Any] | None = field(default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedPods:
    """The answer of ``explain`` about a workload, or about pods of one name in all namespaces."""

    version: int = VERSION
    pods: tuple[Explained, ...]


def explained(
    pod: Pod,
    events: Sequence[Event] = (),
    ledger: Ledger | None = None,
    controller: Mapping[str, Any] | None = None,
    *,
    node_is_read: bool = True,
) -> Explained:
    """Return where *pod* is according to *ledger* if it has a node, otherwise why it waits.

    node_is_read: its node is in *ledger* unless it does not exist.
    """
    over = pod.finished or not pod.node_name
    return Explained(
        pod=pod.key,
        state="over" if pod.finished else "bound" if pod.node_name else "waits",
        phase=str(pod.phase),
        node=pod.node_name,
        reason=pod.scheduled_reason if not pod.node_name else "",
        code=code_in(pod.scheduled_message) if not pod.node_name else "",
        text=why_it_waits(pod)
        if ledger is None or not pod.node_name
        else _where(ledger, pod, node_is_read=node_is_read),
        cards=()
        if ledger is None or over
        else tuple(
            Held(card=one.card, share=one.text, amount=one.amount, cores_pct=one.cores_pct)
            for one in _held(ledger, pod)
        ),
        events=tuple(events),
        controller=controller,
    )


def _held(ledger: Ledger, pod: Pod) -> tuple[CardShare, ...]:
    holding, node = ledger.holding(pod.uid), ledger.node_of(pod.uid)
    state = ledger.states.get(node) if node is not None else None
    offers = state.offers if state is not None else {}
    return tuple(
        share
        for name, assignment, _ in (holding.parts if holding is not None else ())
        if assignment is not None
        for share in ledger.catalog.dialects[name].describe(assignment, offers.get(name, ()))
    )


def _where(ledger: Ledger, pod: Pod, *, node_is_read: bool) -> str:
    holding = ledger.holding(pod.uid)
    if holding is None or holding.dialect is None:
        return f"{pod.key} is bound to {pod.node_name} and holds no card ({_phase(pod)})"
    if holding.assignment is None:
        return f"{pod.key} is on {pod.node_name} ({_phase(pod)}), which takes no new shares: {holding.reason}"
    held = ", ".join(f"{one.card} ({one.text})" for one in _held(ledger, pod)) or "cards that cannot be told"
    if pod.node_name not in ledger.states and node_is_read:
        gone = "a node that does not exist; delete the pod, or restore the node"
        return f"{pod.key} is on {pod.node_name} ({_phase(pod)}), {gone}; it held {held}"
    return f"{pod.key} is on {pod.node_name} ({_phase(pod)}) and holds {held}"


def why_it_waits(pod: Pod) -> str:
    """Return why *pod*, which has no node, waits: its condition, or what is known without one."""
    if pod.finished:
        return f"{pod.key} has ended without a node ({_phase(pod)})"
    if pod.scheduled_message:
        return f"{pod.key} waits ({pod.scheduled_reason}): {pod.scheduled_message}"
    if pod.gated:
        return f"{pod.key} waits: it has scheduling gates; whoever set them removes them"
    return (
        f"{pod.key} waits for the scheduler '{pod.scheduler_name}', which has not looked at it yet; "
        "see whether that scheduler runs"
    )


def _phase(pod: Pod) -> str:
    """Return the phase with the reason in the status: an eviction, or a rejection by the kubelet."""
    said = ": ".join(filter(None, (pod.status_reason, pod.status_message)))
    return f"{pod.phase}, {said}" if said else str(pod.phase)
