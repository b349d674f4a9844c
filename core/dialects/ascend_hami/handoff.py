"""What the HAMi device plugin for Ascend is told, and how far it is with a pod.

Source: protocol reference, ascend 1.6, 2.1 steps 6 to 9, 2.2.
"""

import json
from collections.abc import Hashable, Mapping
from typing import Any, Final

from core.dialects.ascend_hami import keys
from core.dialects.ascend_hami.cards import chips_of
from core.dialects.ascend_hami.devices import devices_left
from core.dialects.ascend_hami.usage import Assignment, Entry, wire_text
from core.model import Pod
from core.port import InFlight, Progress, Stamp
from core.settings import Tables

# The plugin serves whichever pod the node's one lock names, so that no two pods may be in flight, of no chip types.
ANY_POD: Final[frozenset[Hashable]] = frozenset({"hami ascend"})
_NONE: Final[frozenset[Hashable]] = frozenset()


def annotations(assignment: Assignment, stamp: Stamp) -> Mapping[str, str]:
    """The eight annotations that the Binding must carry."""
    text, now = wire_text(assignment), str(stamp.now_s)
    return {
        keys.to_allocate(assignment.word): text,
        keys.allocated(assignment.word): text,
        keys.runtime_info(assignment.word): _runtime_info(assignment),
        keys.NODE: stamp.node,
        keys.TIME: now,
        keys.BIND_TIME: now,
        keys.BIND_PHASE: keys.ALLOCATING,
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
    """*pod* between its Binding and its last device; None if the plugin never looks at it.

    bind-phase says ``success`` after the first container already (D-1), so the devices left count, not the phase. A
    pod marked failed may be one that was taken for another (D-2), and for one that is being deleted kubelet may be
    asking just now: both are waited for until they have ended.
    """
    if not pod.node_name or keys.BIND_PHASE not in pod.annotations:
        return None
    texts = [
        text
        for chip in chips_of(tables)
        if (text := pod.annotations.get(keys.to_allocate(chip.common_word))) is not None
    ]
    if not texts:
        return None
    if pod.finished:
        return InFlight(pod=pod.uid, progress=Progress.FAILED, confusable=_NONE)
    phase = pod.annotations[keys.BIND_PHASE]
    if pod.started or not (phase == keys.ALLOCATING or any(map(devices_left, texts))):
        progress = Progress.FAILED if phase == keys.FAILED else Progress.DONE
        return InFlight(pod=pod.uid, progress=progress, confusable=_NONE)
    return InFlight(pod=pod.uid, progress=Progress.WAITING, confusable=ANY_POD)
