"""Formats a plan for a terminal, and as the file that ``apply`` reads; pure."""

from __future__ import annotations

from collections.abc import Iterator

from cli.text import NONE, aligned
from core.errors import escaped
from core.units import counted
from core.view.plan import Plan

_HEADER = ("MOVE", "POD", "OWNER", "PRIORITY", "BUDGET", "FROM", "TO")


def summary(plan: Plan) -> Iterator[str]:
    """Yield what *plan* does in plain English, line by line."""
    yield f"for {plan.asked}: {plan.gain}"
    if plan.moves:
        namespaces = sorted({one.pod.partition("/")[0] for one in plan.moves})
        fewest = "no plan with fewer moves was possible" if plan.is_fewest else "fewer moves may be possible"
        yield f"pods are evicted in {', '.join(namespaces)}; their controllers replace them elsewhere; {fewest}"
    if plan.why:
        yield f"why it does not fit now: {plan.why}"
    for one in plan.staying if not plan.helps else ():
        yield f"{counted(one.pods, 'pods')} {'stays' if one.pods == 1 else 'stay'}: {one.reason}"
    for note in plan.notes:
        yield f"note: {note}"


def table(plan: Plan) -> str:
    """Format one line per move after the summary."""
    rows = [
        (
            str(at),
            one.pod,
            one.owner,
            str(one.priority),
            one.budget or NONE,
            f"{one.from_node} {one.cards}".strip(),
            f"{one.to_node} {one.to_cards}".strip(),
        )
        for at, one in enumerate(plan.moves, start=1)
    ]
    lines = [escaped(line) for line in summary(plan)]
    lines += [escaped(f"place: {one.pod or 'a new pod'} on {one.node} {one.cards}".rstrip()) for one in plan.places]
    return "\n".join([*lines, *(aligned([_HEADER, *rows]) if rows else ())])


def comments(plan: Plan) -> str:
    """Format the summary as comments at the beginning of a file."""
    lines = [escaped(line) for line in summary(plan)]
    if plan.moves:
        lines.append("Review the moves, then: kubectl cards apply FILE. Nothing is evicted before that.")
    return "\n".join(f"# {line}" for line in lines)
