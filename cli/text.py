"""Turns what was fetched into plain text; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cli.cluster import EventObject
from core.errors import escaped
from core.ledger import Ledger, NodeState
from core.model import Pod
from core.port import Tally
from core.settings import DialectName

_HEADER = ("NODE", "CARD", "TYPE", "USED", "CORES", "HELD BY")


def cards_table(ledger: Ledger, node_names: Sequence[str] = ()) -> str:
    """One line for each card: what is used of its total, percent of its cores, and who holds how much.

    Args:
        ledger: the cluster, counted.
        node_names: only these nodes; none = all that offer cards.
    """
    states = sorted(ledger.states.values(), key=lambda state: state.facts.name)
    wanted = [state for state in states if not node_names or state.facts.name in node_names]
    rows = [row for state in wanted for row in _rows(ledger, state)]
    missing = [f"node {escaped(name)}: there is none of that name" for name in node_names if name not in ledger.states]
    remarks = [*_remarks(wanted), *missing]
    if not rows:
        return "\n".join(remarks or [_no_cards(wanted if node_names else ())])
    return "\n".join([*_aligned((_HEADER, *rows)), *remarks])


def _no_cards(asked: Sequence[NodeState]) -> str:
    if not asked:
        return "no node offers cards; see whether the device plugins run and have registered"
    names = ", ".join(escaped(state.facts.name) for state in asked)
    return f"no cards on {names}; see whether the device plugin runs there and has registered"


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    shown = [tuple(escaped(cell) for cell in row) for row in rows]
    widths = [max(len(row[i]) for row in shown) for i in range(len(_HEADER))]
    for row in shown:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def where(ledger: Ledger, pod: Pod) -> str:
    """Where a bound pod is, card by card."""
    return escaped(_where(ledger, pod))


def _where(ledger: Ledger, pod: Pod) -> str:
    holding = ledger.holding(pod.uid)
    if holding is None or holding.dialect is None:
        return f"{pod.key} is bound to {pod.node_name} and holds no card ({_phase(pod)})"
    if holding.assignment is None:
        return f"{pod.key} is on {pod.node_name} ({_phase(pod)}), which takes no new shares: {holding.closes}"
    node = ledger.node_of(pod.uid)
    state = ledger.states.get(node) if node is not None else None
    cards = state.offers.get(holding.dialect, ()) if state is not None else ()
    entries = ledger.catalog.dialects[holding.dialect].describe(holding.assignment, cards)
    held = ", ".join(f"{card} ({what})" for card, what in entries) or "cards that cannot be told"
    return f"{pod.key} is on {pod.node_name} ({_phase(pod)}) and holds {held}"


def waiting(pod: Pod) -> str:
    """Why an unbound pod waits, or how it ended, as its own status says."""
    return escaped(_waiting(pod))


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


def events_table(events: Sequence[EventObject]) -> str:
    """The events about a pod, oldest first, one line each."""
    if not events:
        return ""
    return "\n".join(
        [
            "Events:",
            *(escaped(f"  {event.last_timestamp or '-':<20}  {event.reason}: {_told(event)}") for event in events),
        ]
    )


def _told(event: EventObject) -> str:
    times = f" (x{event.count})" if (event.count or 1) > 1 else ""
    return f"{event.message or ''}{times}"


def _rows(ledger: Ledger, state: NodeState) -> Iterator[tuple[str, ...]]:
    for name, dialect in ledger.catalog.dialects.items():
        holders = _holders(ledger, state, name)
        for tally in dialect.tally(state.offers.get(name, ())):
            held = ", ".join(holders.pop(tally.card, ()))
            label = f"{tally.label} ({tally.note})" if tally.note else tally.label
            cores = "-" if tally.cores_pct is None else f"{tally.cores_pct}%"
            yield state.facts.name, tally.card, label, _used(tally), cores, held
        # The plugin does not offer these at the moment; who holds them still has them.
        for card, held_by in holders.items():
            yield state.facts.name, card, f"not offered ({name})", "-", "-", ", ".join(held_by)


def _used(tally: Tally) -> str:
    over = " OVER" if tally.used > tally.total else ""
    return f"{tally.used}/{tally.total} {tally.unit}{over}"


def _holders(ledger: Ledger, state: NodeState, dialect: DialectName) -> dict[str, list[str]]:
    held: dict[str, list[str]] = {}
    for holding in sorted(state.holders.values(), key=lambda holding: holding.key):
        if holding.dialect is not dialect or holding.assignment is None:
            continue
        cards = state.offers.get(dialect, ())
        for card, what in ledger.catalog.dialects[dialect].describe(holding.assignment, cards):
            # A MIG slice is named after its card, with the slice in brackets.
            held.setdefault(card.partition("[")[0], []).append(f"{holding.key} ({what})")
    return held


def _remarks(states: Sequence[NodeState]) -> Iterator[str]:
    for state in states:
        for complaint in state.complaints:
            yield escaped(f"{state.facts.name}: {complaint.field}: {complaint.problem}")
        for name, why in state.closed.items():
            yield escaped(f"{state.facts.name}: takes no new pods of {name}: {why}")
