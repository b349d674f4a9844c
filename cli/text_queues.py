"""Formats the queues for a terminal; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cli.text import NONE, UNKNOWN, aligned
from core.constraints.quota import shown
from core.errors import escaped
from core.view.queues import QueueAmount, Queues, QueueState

_HEADER = ("QUEUE", "STATE", "WAITING", "NEXT", "RESOURCE", "HOLDS", "GUARANTEE", "DESERVED", "CAPABILITY")
_NO_QUEUE = "there is no queue; pods without one are held to no limit of a queue"


def table(found: Queues) -> str:
    """Format one line per queue and resource."""
    rows = [row for queue in found.queues for row in _rows(queue)]
    lines = [*aligned([_HEADER, *rows])] if rows else [_NO_QUEUE]
    return "\n".join([*lines, *(escaped(f"note: {note}") for note in found.notes)])


def _rows(queue: QueueState) -> Iterator[Sequence[str]]:
    waiting = UNKNOWN if queue.waiting is None else str(queue.waiting)
    first = (queue.name, queue.state or NONE, waiting, queue.next or NONE)
    for one in queue.amounts:
        yield *first, one.resource, *_figures(one)
        first = ("", "", "", "")
    if not queue.amounts:
        yield *first, *[NONE] * 5


def _figures(one: QueueAmount) -> Iterator[str]:
    yield UNKNOWN if one.holds is None else shown(one.resource, one.holds)
    for amount in (one.guarantee, one.deserved, one.capability):
        yield NONE if amount is None else shown(one.resource, amount)
