"""Formats the commands' output for a terminal; pure. Text from the cluster cannot control the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from cli.doctor_checks import Finding, Level, Report
from core.errors import escaped
from core.units import counted
from core.view.cards import Card, Cards, Node, Total
from core.view.explained import Event, Explained

# The value of a column in a row without a card.
NONE: Final = "-"
UNKNOWN: Final = "unknown"


class _Row(NamedTuple):
    """One line of the table; the columns of ``-o wide`` are in the middle."""

    node: str = ""
    status: str = ""
    card: str = ""
    type: str = ""
    used: str = ""
    cores: str = ""
    protocol: str = ""
    mode: str = ""
    health: str = ""
    held_by: str = ""


_HEADER: Final = _Row("NODE", "STATUS", "CARD", "TYPE", "USED", "CORES", "PROTOCOL", "MODE", "HEALTH", "HELD BY")
_WIDE: Final = frozenset(map(_Row._fields.index, ("protocol", "mode", "health")))


def cards_table(found: Cards, *, all_nodes: bool, wide: bool = False, headers: bool = True, namespace: str = "") -> str:
    """Format one line per card: used and total memory, percent of its cores, and what each pod holds.

    Further holders of a card have lines of their own below it. Nodes with several cards have totals, and so has the
    cluster.

    Args:
        found: the cards.
        all_nodes: whether no nodes were selected.
        wide: whether to show protocol, mode and health.
        headers: whether to show headings and totals.
        namespace: *found* has only cards of this namespace's pods; "" for all.
    """
    rows = [row for node in found.nodes for row in _rows(node, totals=headers)]
    if headers and len(found.nodes) > 1:
        rows += _totals(found.totals, "TOTAL")
    shown = [*((_HEADER,) if headers else ()), *rows] if rows else []
    lines = list(aligned([[*row] if wide else [c for i, c in enumerate(row) if i not in _WIDE] for row in shown]))
    warnings = [f"{node.name}: {warning}" for node in found.nodes for warning in (*_taints(node), *node.warnings)]
    warnings += [f"there is no node {name}; kubectl get nodes lists them" for name in found.missing]
    lines += map(escaped, warnings)
    if not lines and namespace:
        lines = [escaped(f"no pod of namespace {namespace} holds a card there")]
    lines = lines or [escaped(_no_cards(() if all_nodes else found.nodes, all_nodes=all_nodes))]
    return noted(lines, found.notes)


def explanation(found: Explained) -> str:
    """Format a pod's placement or the reason why it waits, and its events, oldest first."""
    events = ["Events:", *map(_event, found.events)] if found.events else []
    return "\n".join(map(escaped, (found.text, *events)))


def report(found: Report) -> str:
    """Format the findings of doctor, each with its remedy on the next line, then the device plugins."""
    lines = [line for one in found.findings for line in _finding(one)]
    plugins = [f"plugin  {one.account} {one.image}: {counted(len(one.nodes), 'nodes')}" for one in found.plugins]
    asking = sum(one.level is not Level.NOTE for one in found.findings)
    return "\n".join(map(escaped, (*lines, *plugins, f"{asking} to look at" if asking else "nothing to look at")))


def _finding(one: Finding) -> Iterator[str]:
    yield f"{one.code} {one.level}  {one.subject}: {one.text}"
    yield f"      {one.remedy}"


def answer(pod: str, told: Mapping[str, Any]) -> str:
    """Format the controller's text about a pod, which has several lines."""
    code = f"{told['code']} " if told.get("code") else ""
    # Of a bound pod the text says what it is; of others it may begin with what to do.
    joint = " " if told.get("state") == "bound" else f": {code}"
    return "\n".join(escaped(line) for line in f"{pod}{joint}{told.get('text', '')}".split("\n"))


def _no_cards(asked: Sequence[Node], *, all_nodes: bool) -> str:
    if all_nodes:
        return "no node offers cards; see whether the device plugins run and have registered"
    if not asked:
        return "no node has these labels; see kubectl get nodes --show-labels"
    names = ", ".join(node.name for node in asked)
    return f"no cards on {names}; see whether the device plugin runs there and has registered"


def noted(lines: Iterable[str], notes: Iterable[str]) -> str:
    """Return *lines*, which are escaped, followed by *notes*."""
    return "\n".join([*lines, *(escaped(f"note: {note}") for note in notes)])


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield equally long rows as lines, with each column as wide as its widest cell."""
    shown = [[escaped(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _rows(node: Node, *, totals: bool) -> Iterator[_Row]:
    for card in node.cards:
        first, *others = [f"{one.pod} ({one.share})" for one in card.held_by] or [""]
        yield _row(node, card)._replace(held_by=first)
        for held in others:
            yield _Row(held_by=held)
    if totals and len(node.cards) > 1:
        yield from _totals(node.totals, node.name)


def _row(node: Node, card: Card) -> _Row:
    common = _Row(node.name, _status(node), card.id, protocol=card.protocol, mode=card.mode or NONE)
    if not card.offered:
        kind = f"not offered ({card.protocol})"
        return common._replace(type=kind, used=NONE, cores=NONE, health=NONE)
    return common._replace(
        type=f"{card.type} ({card.note})" if card.note else card.type,
        used=_used(card),
        cores=NONE if card.cores_pct is None else f"{card.cores_pct}%",
        health="healthy" if card.healthy else "unhealthy",
    )


def _status(node: Node) -> str:
    return ("Ready" if node.ready else "NotReady") + ("" if node.schedulable else ",SchedulingDisabled")


def _taints(node: Node) -> Iterator[str]:
    if node.taints:
        yield f"takes only pods that tolerate {', '.join(node.taints)}"


def _totals(totals: Sequence[Total], name: str) -> Iterator[_Row]:
    for one in totals:
        told = [one.protocol, f"{one.idle} idle", *([f"{one.unhealthy} unhealthy"] if one.unhealthy else ())]
        cores = NONE if one.cores_pct is None else f"{one.cores_pct}/{one.cards * 100}%"
        used = _amount(one)
        yield _Row(name, "", counted(one.cards, "cards"), ", ".join(told), used, cores, one.protocol)


def _used(card: Card) -> str:
    is_over = card.used is not None and card.total is not None and card.used > card.total
    return _amount(card) + (" OVER" if is_over else "")


def _amount(one: Card | Total) -> str:
    used, total = (UNKNOWN if amount is None else str(amount) for amount in (one.used, one.total))
    return f"{used}/{total} {'cards' if one.unit == 'card' and total != '1' else one.unit}"


def _event(event: Event) -> str:
    times = f" (x{event.count})" if event.count > 1 else ""
    return f"  {event.time or '-':<20}  {event.reason}: {event.message}{times}"


def shadow_report(found: Mapping[str, Any]) -> str:
    """Format the page /v1/shadow of a controller in shadow mode."""
    lines = [*_shadow_head(found), *_pods(found), *_findings(found), *_bindings(found)]
    return "\n".join(map(escaped, lines))


def _shadow_head(found: Mapping[str, Any]) -> Iterator[str]:
    names = ", ".join(found["schedulers"])
    yield f"pods of {names}: {found['bound']} hold cards on {found['nodes']} nodes; looked {found['age_s']:g} s ago"


def _pods(found: Mapping[str, Any]) -> Iterator[str]:
    pods = found["pods"]
    fitting = sum(one["fits"] for one in pods)
    yield (
        f"Waiting: {len(pods)}. Would be placed here: {fitting}, of these without need: {found['without_need']}. "
        f"Would wait here too: {len(pods) - fitting}."
    )
    if found["not_judged"]:
        yield f"  {found['not_judged']} more wait and were not judged"
    for one in pods:
        code = f"{one['code']} " if one.get("code") else ""
        note = " (waits without need)" if one["without_need"] else ""
        yield f"  {one['pod']}: {code}{one['text']}{note}"


def _findings(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"Wrong on nodes: {found['findings_in_all']}"
    for one in found["findings"]:
        where = f"{one['node']}: " if one["node"] else ""
        yield f"  {one['fault']}: {where}{one['text']}"


def _bindings(found: Mapping[str, Any]) -> Iterator[str]:
    seen = found["bindings"]
    yield f"Bindings seen: {', '.join(f'{count} {outcome}' for outcome, count in seen.items())}"
    for one in found["differences"]:
        instead = one["instead"]
        here = f"here {_place(instead)}" if "node" in instead else f"here not: {instead['text']}"
        yield f"  {one['at']} {one['pod']}: {one['outcome']}: bound to {_place(one['bound'])}; {here}"


def _place(told: Mapping[str, Any]) -> str:
    cards = ", ".join(f"{one['card']} ({one['share']})" for one in told["cards"])
    return f"{told['node']}: {cards}" if cards else str(told["node"])
