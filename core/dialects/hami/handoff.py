"""What HAMi's device plugin for NVIDIA cards is told.

Source: protocol reference, hami 1.5, 1.9, 2.5, 3.2. How far it is with a pod, and its lock, is `core.hami_lock`'s.
"""

from collections.abc import Mapping

from core.dialects.hami import keys
from core.dialects.hami.usage import reservations_text
from core.port.handoff import Stamp
from core.sharing.account import Assignment
from core.sharing.wire import bound, wire_text


def annotations(assignment: Assignment, stamp: Stamp) -> Mapping[str, str]:
    """What the Binding must carry; instances are named only where there are some."""
    found = bound((keys.TO_ALLOCATE, keys.ALLOCATED), wire_text(assignment, keys.NVIDIA), stamp)
    reserved = reservations_text(assignment)
    return {**found, keys.RESERVATIONS: reserved} if reserved else found
