"""Formats the findings of shadow mode for a terminal; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from core.errors import escaped


def told(found: Mapping[str, Any]) -> str:
    """Format the page /v1/shadow; text from the cluster is escaped, so that it cannot control the terminal."""
    lines = [*_head(found), *_pods(found), *_findings(found), *_bindings(found)]
    return "\n".join(map(escaped, lines))


def _head(found: Mapping[str, Any]) -> Iterator[str]:
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
