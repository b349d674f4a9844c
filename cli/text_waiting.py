"""Formats the waiting pods for a terminal; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cli.options import By
from cli.text import NONE, UNKNOWN, aligned
from core.errors import escaped
from core.view.waiting import Waiting, WaitingPod, WaitingQueue, WaitingReason

_PODS = ("POD", "CODE", "REASON", "SINCE", "QUEUE", "PLACE", "NEAREST", "WHAT HELPS")
_REASONS = ("CODE", "REASON", "PODS", "OLDEST", "FIRST", "WHAT HELPS")
_QUEUES = ("QUEUE", "PODS", "OLDEST", "NEXT", "REASONS")


def table(found: Waiting, by: By, namespace: str) -> str:
    """Format *found* by pod, reason or queue, with headings; *namespace*: the listed namespace, "" for all."""
    if not found.pods:
        where = f"in namespace {namespace}" if namespace else "in any namespace"
        lines = [escaped(f"no pod waits {where}")]
    else:
        lines = list(aligned([*_rows(found, by)]))
    return "\n".join([*lines, *(escaped(f"note: {note}") for note in found.notes)])


def _rows(found: Waiting, by: By) -> Iterator[Sequence[str]]:
    match by:
        case By.POD:
            yield _PODS
            yield from map(_pod, found.pods)
        case By.REASON:
            yield _REASONS
            yield from map(_reason, found.reasons)
        case By.QUEUE:
            yield _QUEUES
            yield from map(_queue, found.queues)


def _pod(one: WaitingPod) -> Sequence[str]:
    return (
        one.pod,
        one.code or NONE,
        one.reason or NONE,
        one.since or UNKNOWN,
        one.queue or NONE,
        NONE if one.place is None else f"{one.place}/{one.line}",
        one.nearest or NONE,
        one.change or NONE,
    )


def _reason(one: WaitingReason) -> Sequence[str]:
    more = one.pods - len(one.first)
    first = ", ".join(one.first) + (f" and {more} more" if more else "")
    return one.code or NONE, one.reason or NONE, str(one.pods), one.oldest or UNKNOWN, first, one.change or NONE


def _queue(one: WaitingQueue) -> Sequence[str]:
    reasons = ", ".join(f"{count} {reason or 'not decided yet'}" for reason, count in one.reasons.items())
    return one.queue or NONE, str(one.pods), one.oldest or UNKNOWN, one.next or NONE, reasons
