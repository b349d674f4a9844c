"""What the HAMi device plugin for Ascend is told, and how far it is with a pod.

Source: protocol reference, ascend 1.6, 2.1 steps 6 to 9, 2.2.
"""

import json
from collections.abc import Mapping
from typing import Any

from core import hami_lock
from core.dialects.ascend_hami import keys
from core.dialects.ascend_hami.cards import chips_of
from core.dialects.ascend_hami.usage import Assignment, Entry, wire_text
from core.model import Pod
from core.port.handoff import InFlight, Stamp
from core.tables import Tables


def annotations(assignment: Assignment, stamp: Stamp) -> Mapping[str, str]:
    """The eight annotations that the Binding must carry."""
    text, now = wire_text(assignment), str(stamp.now_s)
    return {
        keys.to_allocate(assignment.word): text,
        keys.allocated(assignment.word): text,
        keys.runtime_info(assignment.word): _runtime_info(assignment),
        hami_lock.NODE: stamp.node,
        hami_lock.TIME: now,
        hami_lock.BIND_TIME: now,
        hami_lock.BIND_PHASE: hami_lock.ALLOCATING,
        keys.PREDICATE_TIME: now,
    }


def _runtime_info(assignment: Assignment) -> str:
    """One object per device in the order of the segments; empty and zero fields are left out (ascend 1.6)."""
    found = [_object(entry, soft=assignment.soft) for entry in assignment.entries]
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False)


def _object(entry: Entry, *, soft: bool) -> dict[str, Any]:
    fields = {"memory": entry.memory_mib, "core": entry.cores} if soft else {"temp": entry.template}
    return {"UUID": entry.uuid, **{key: value for key, value in fields.items() if value}}


def in_flight(pod: Pod, tables: Tables) -> InFlight | None:
    """*pod* between its Binding and its last device; None if the plugin never looks at it."""
    if not any(keys.to_allocate(chip.common_word) in pod.annotations for chip in chips_of(tables)):
        return None
    return hami_lock.in_flight(pod)
