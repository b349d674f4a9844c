"""What the commands show, as values: the fields of ``-o json``, which docs/operators/kubectl-cards.md lists. Pure.

Fields are added, never renamed or given another meaning without another *version*.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cli.cluster import EventObject
from core.ledger import Ledger, NodeState
from core.model import Pod
from core.port import Tally
from core.settings import DialectName
from core.waiting import code_in

VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one pod (namespace/name) holds of a card, in words."""

    pod: str
    share: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One card: *used* of *total* in *unit*, percent of its cores in use, and who holds how much.

    cores_pct: None where the protocol does not count them. note: what is special. offered: False for one that pods
    hold and the device plugin does not offer at the moment; its figures are not known then.
    """

    id: str
    protocol: str
    type: str = ""
    used: int | None = None
    total: int | None = None
    unit: str = ""
    cores_pct: int | None = None
    note: str = ""
    offered: bool = True
    held_by: tuple[Share, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node with its cards; remarks: what of its data cannot be used, and what it takes no pods of."""

    name: str
    cards: tuple[Card, ...]
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cards:
    """The answer of ``get``. missing: nodes that were asked for and do not exist."""

    version: int = VERSION
    nodes: tuple[Node, ...]
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event about a pod."""

    time: str
    reason: str
    message: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a pod holds of one card, in words."""

    card: str
    share: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """The answer of ``explain``.

    state: ``waits``, ``bound`` or ``over``. reason: of the condition PodScheduled, "" if there is none. code: of why it
    waits (docs/operators/waiting.md), "" if another scheduler says why. text: where
    the pod is or why it waits. controller: the controller's own answer, field by field, where it was asked.
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


def cards_of(ledger: Ledger, node_names: Sequence[str] = (), notes: Sequence[str] = ()) -> Cards:
    """The cards of the cluster, counted; of *node_names* alone, if there are any."""
    states = sorted(ledger.states.values(), key=lambda state: state.facts.name)
    wanted = [state for state in states if not node_names or state.facts.name in node_names]
    return Cards(
        nodes=tuple(
            Node(name=state.facts.name, cards=tuple(_cards(ledger, state)), remarks=tuple(_remarks(state)))
            for state in wanted
        ),
        missing=tuple(name for name in node_names if name not in ledger.states),
        notes=tuple(notes),
    )


def explained(
    pod: Pod, events: Sequence[EventObject], ledger: Ledger | None, controller: Mapping[str, Any] | None
) -> Explained:
    """Where *pod* is, by *ledger* if it has a node, or why it waits."""
    over = pod.finished or not pod.node_name
    return Explained(
        pod=pod.key,
        state="over" if pod.finished else "bound" if pod.node_name else "waits",
        phase=str(pod.phase),
        node=pod.node_name,
        reason=pod.scheduled_reason if not pod.node_name else "",
        code=code_in(pod.scheduled_message) if not pod.node_name else "",
        text=_where(ledger, pod) if ledger is not None and pod.node_name else _waiting(pod),
        cards=() if ledger is None or over else tuple(Held(card=card, share=what) for card, what in _held(ledger, pod)),
        events=tuple(
            Event(time=one.last_timestamp or "", reason=one.reason, message=one.message or "", count=one.count or 1)
            for one in events
        ),
        controller=controller,
    )


def _cards(ledger: Ledger, state: NodeState) -> Iterator[Card]:
    for name, dialect in ledger.catalog.dialects.items():
        holders = _holders(ledger, state, name)
        for tally in dialect.tally(state.offers.get(name, ())):
            yield _card(name, tally, holders.pop(tally.card, []))
        # The plugin does not offer these at the moment; who holds them still has them.
        for card, shares in holders.items():
            yield Card(id=card, protocol=name.value, offered=False, held_by=tuple(shares))


def _card(name: DialectName, tally: Tally, shares: Sequence[Share]) -> Card:
    return Card(
        id=tally.card,
        protocol=name.value,
        type=tally.label,
        used=tally.used,
        total=tally.total,
        unit=tally.unit,
        cores_pct=tally.cores_pct,
        note=tally.note,
        held_by=tuple(shares),
    )


def _holders(ledger: Ledger, state: NodeState, dialect: DialectName) -> dict[str, list[Share]]:
    held: dict[str, list[Share]] = {}
    cards = state.offers.get(dialect, ())
    for holding in sorted(ledger.holders(state.facts.name).values(), key=lambda holding: holding.key):
        for which, assignment, _ in holding.parts:
            if which is not dialect or assignment is None:
                continue
            for card, what in ledger.catalog.dialects[dialect].describe(assignment, cards):
                # A MIG slice is named after its card, with the slice in brackets.
                held.setdefault(card.partition("[")[0], []).append(Share(pod=holding.key, share=what))
    return held


def _remarks(state: NodeState) -> Iterator[str]:
    for complaint in state.complaints:
        yield f"{complaint.field}: {complaint.problem}"
    for name, why in state.closed.items():
        yield f"takes no new pods of {name}: {why}"


def _held(ledger: Ledger, pod: Pod) -> tuple[tuple[str, str], ...]:
    holding, node = ledger.holding(pod.uid), ledger.node_of(pod.uid)
    state = ledger.states.get(node) if node is not None else None
    offers = state.offers if state is not None else {}
    return tuple(
        share
        for name, assignment, _ in (holding.parts if holding is not None else ())
        if assignment is not None
        for share in ledger.catalog.dialects[name].describe(assignment, offers.get(name, ()))
    )


def _where(ledger: Ledger, pod: Pod) -> str:
    holding = ledger.holding(pod.uid)
    if holding is None or holding.dialect is None:
        return f"{pod.key} is bound to {pod.node_name} and holds no card ({_phase(pod)})"
    if holding.assignment is None:
        return f"{pod.key} is on {pod.node_name} ({_phase(pod)}), which takes no new shares: {holding.reason}"
    held = ", ".join(f"{card} ({what})" for card, what in _held(ledger, pod)) or "cards that cannot be told"
    if pod.node_name not in ledger.states:
        gone = "a node that does not exist; delete the pod, or bring the node back"
        return f"{pod.key} is on {pod.node_name} ({_phase(pod)}), {gone}; it held {held}"
    return f"{pod.key} is on {pod.node_name} ({_phase(pod)}) and holds {held}"


def _waiting(pod: Pod) -> str:
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
    """The phase, with what the status says of it: an eviction, a refusal by the kubelet."""
    said = ": ".join(filter(None, (pod.status_reason, pod.status_message)))
    return f"{pod.phase}, {said}" if said else str(pod.phase)
