"""Assignments on the wire, and how far the plugin is with them.

Source: protocol reference, ascend 1.6, 2.1 steps 6 to 9, 2.2, 4.7, 5.1, 5.2, 5.4; every segment counts (H-1).
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from core import hami_lock
from core.dialects.ascend_hami import keys
from core.dialects.ascend_hami.cards import chips_of, trim
from core.dialects.ascend_hami.requests import is_soft, marks_of
from core.dialects.ascend_hami.table import WHOLE_CHIP, AscendChip
from core.model import Pod
from core.port.cards import Held
from core.port.handoff import InFlight, Stamp
from core.settings import Tables
from core.sharing import wire
from core.sharing.card import Assignment, Card, Entry
from core.sharing.wire import Written

# No pod has more of one type: a node has 16 chips, and hardly a pod has eight containers that use all of them.
_DEVICES_MAX: Final = 128


def held(pod: Pod, cards: Sequence[Card], tables: Tables) -> Held[Assignment] | None:
    """Return what bound *pod* holds by its annotations, whoever bound it; None if they name no device."""
    if not pod.annotations:
        return None
    words = [word for key, text in pod.annotations.items() if (word := keys.word_of(key)) and wire.names_any(text)]
    if not words:
        return None
    chips = chips_of(tables)
    known = [one for one in chips if one.common_word in words]
    found = [(one.common_word, part) for one in known if (part := _of_chip(pod, cards, one)) is not None]
    # Chips that nobody configured are held all the same; HAMi writes GPUs in the same way (nvidia 8), which are not.
    others = set(words) - {one.common_word for one in known}
    if not found and not any(word.startswith(keys.ASCEND) for word in others):
        return None
    parts = [part for _, part in found]
    assignment = Assignment(
        segments=max([one.assignment.segments for one in parts], default=0),
        entries=tuple([entry for one in parts for entry in one.assignment.entries]),
        charges=tuple(sorted([charge for one in parts for charge in one.assignment.charges])),
        type=found[0][0] if found else min(others),
    )
    closes = next((one.closes for one in parts if one.closes), "") or _unnamed(pod, [word for word, _ in found], chips)
    return Held(assignment=assignment, closes=closes)


def _of_chip(pod: Pod, cards: Sequence[Card], chip: AscendChip) -> Held[Assignment] | None:
    """Return the same for one chip type."""

    def finish(at: int, device: int, one: Written, entry: Entry, card: Card | None) -> tuple[Entry, bool]:
        # An entry means the template that was written for the plugin with it.
        cut = trim(chip, entry.memory)
        profile, counted = (WHOLE_CHIP, ()) if cut is None else (cut.name, cut.counted)
        return entry._replace(profile=profile, counted=counted), True

    soft = is_soft(pod)
    return wire.held(
        pod,
        cards,
        keys.allocated(chip.common_word),
        (chip.named.cards,),
        finish=None if soft else finish,
        marks=marks_of(soft=soft),
        devices_max=_DEVICES_MAX,
    )


def _unnamed(pod: Pod, words: Collection[str], chips: Sequence[AscendChip]) -> str:
    """Return why the node is closed if *pod* requests chips of a type and its annotations name none."""
    for chip in chips:
        if chip.common_word not in words and any(
            one.amount(chip.named.cards) not in (None, "0") for one in pod.containers
        ):
            return f"pod {pod.key} asks for {chip.named.cards}, and nothing says which chips it uses; delete the pod"
    return ""


def annotations(assignment: Assignment, stamp: Stamp, tables: Tables) -> Mapping[str, str]:
    """Return the eight annotations that the Binding must carry."""
    word = assignment.type
    assigned = (keys.to_allocate(word), keys.allocated(word))
    # One object per device in the order of the segments (ascend 1.6).
    info = json.dumps([_told(one) for one in assignment.entries], separators=(",", ":"), ensure_ascii=False)
    more = {keys.runtime_info(word): info, keys.PREDICATE_TIME: str(stamp.now_s)}
    return wire.bound(assigned, wire.wire_text(assignment, word), stamp) | more


def _told(entry: Entry) -> dict[str, Any]:
    share = {"temp": entry.profile} if entry.profile else {"memory": entry.memory, "core": entry.cores}
    return {"UUID": entry.uuid, **{key: value for key, value in share.items() if value not in (0, WHOLE_CHIP)}}


def in_flight(pod: Pod, tables: Tables) -> InFlight | None:
    """Return *pod* between its Binding and its last device; None if the plugin never looks at it."""
    if any(keys.to_allocate(chip.common_word) in pod.annotations for chip in chips_of(tables)):
        return hami_lock.in_flight(pod)
    return None
