"""What the HAMi device plugin for Ascend is told, and how far it is with a pod.

Source: protocol reference, ascend 1.6, 2.1 steps 6 to 9, 2.2.
"""

import json
from collections.abc import Mapping
from typing import Any

from core import hami_lock
from core.dialects.ascend_hami import keys
from core.dialects.ascend_hami.cards import WHOLE_CHIP, chips_of
from core.model import Pod
from core.port.handoff import InFlight, Stamp
from core.sharing.account import Assignment, Entry
from core.sharing.wire import bound, wire_text
from core.tables import Tables


def annotations(assignment: Assignment, stamp: Stamp) -> Mapping[str, str]:
    """The eight annotations that the Binding must carry."""
    word = assignment.type
    assigned = (keys.to_allocate(word), keys.allocated(word))
    return bound(assigned, wire_text(assignment, word), stamp) | {
        keys.runtime_info(word): _runtime_info(assignment),
        keys.PREDICATE_TIME: str(stamp.now_s),
    }


def _runtime_info(assignment: Assignment) -> str:
    """One object per device in the order of the segments; empty and zero fields are left out (ascend 1.6)."""
    found = [_object(entry) for entry in assignment.entries]
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False)


def _object(entry: Entry) -> dict[str, Any]:
    fields: dict[str, Any] = {"temp": entry.profile}
    if not entry.profile:
        fields = {"memory": entry.memory, "core": entry.cores}
    return {"UUID": entry.uuid, **{key: value for key, value in fields.items() if value not in (0, WHOLE_CHIP)}}


def in_flight(pod: Pod, tables: Tables) -> InFlight | None:
    """*pod* between its Binding and its last device; None if the plugin never looks at it."""
    if not any(keys.to_allocate(chip.common_word) in pod.annotations for chip in chips_of(tables)):
        return None
    return hami_lock.in_flight(pod)
