"""The annotations that HAMi's device plugins share."""

from collections.abc import Sequence

from core import hami_lock
from core.port.handoff import Stamp
from core.sharing.account import Assignment
from core.wire.entries import Written, encode_segments


def wire_text(assignment: Assignment, card_type: str) -> str:
    """Return what HAMi's plugins read of *assignment*: one segment for each container, empty ones included.

    Source: protocol reference, hami 2.5, ascend 4.7.
    """
    segments: list[list[Written]] = [[] for _ in range(assignment.segments)]
    for one in assignment.entries:
        segments[one.container].append(Written(one.uuid, card_type, one.memory, one.cores))
    return encode_segments(segments)


def bound(assigned: Sequence[str], text: str, stamp: Stamp) -> dict[str, str]:
    """Return what a Binding carries for HAMi's plugins: *text* by each key of *assigned*, and whom the lock is for."""
    now = str(stamp.now_s)
    return dict.fromkeys(assigned, text) | {
        hami_lock.NODE: stamp.node,
        hami_lock.TIME: now,
        hami_lock.BIND_TIME: now,
        hami_lock.BIND_PHASE: hami_lock.ALLOCATING,
    }
