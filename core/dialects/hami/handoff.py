"""What HAMi's device plugin for NVIDIA cards is told.

Source: protocol reference, hami 1.5, 1.9, 2.5, 3.2. How far it is with a pod, and its lock, is `core.hami_lock`'s.
"""

from collections.abc import Mapping

from core import hami_lock
from core.dialects.hami import keys
from core.dialects.hami.usage import reservations_text, wire_text
from core.port.handoff import Stamp
from core.sharing.account import Assignment


def annotations(assignment: Assignment, stamp: Stamp) -> Mapping[str, str]:
    """What the Binding must carry; instances are named only where there are some."""
    text, now = wire_text(assignment), str(stamp.now_s)
    reserved = reservations_text(assignment)
    found = {
        keys.TO_ALLOCATE: text,
        keys.ALLOCATED: text,
        hami_lock.NODE: stamp.node,
        hami_lock.TIME: now,
        hami_lock.BIND_TIME: now,
        hami_lock.BIND_PHASE: hami_lock.ALLOCATING,
    }
    return {**found, keys.RESERVATIONS: reserved} if reserved else found
