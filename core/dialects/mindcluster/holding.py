"""What a bound pod holds: from its annotations to shares of chips, whoever bound it.

Where the plugin has reported the real devices they count, not what was asked of it: it swaps pods of one template
(M-12). Source: protocol reference, ascend 1.7, 1.10, 3.1, 5.1.
"""

from typing import Final, NamedTuple

from core.dialects.mindcluster import keys
from core.dialects.mindcluster.chips import NO_VGROUP, UNKNOWN, WHOLE, Assignment, Share
from core.dialects.mindcluster.templates import BY_DEVICE_TYPE, TEMPLATES
from core.errors import quoted
from core.model import Container, Pod
from core.names import MAX_POD_ANNOTATION_BYTES
from core.port.cards import Held

_NO_CHIPS: Final = Assignment((), Share(WHOLE, settled=True))


class Assigned(NamedTuple):
    """``huawei.com/npu-core`` as read: chips in the written order; no chip: unreadable.

    template: "" for whole chips, `UNKNOWN` for a slice that is not named.
    """

    chips: tuple[int, ...]
    template: str
    readable: bool


def decode_assigned(text: str) -> Assigned:
    """Read ``<chip>-<template>`` or a comma list of chips; a template need not be a known one."""
    pieces = text.split(",")
    if len(text) <= MAX_POD_ANNOTATION_BYTES:
        if any("-" not in piece for piece in pieces):
            found = [keys.whole(piece) for piece in pieces]
            if None not in found:
                return Assigned(tuple(one for one in found if one is not None), WHOLE, True)
        elif len(pieces) == 1:
            fields = text.split("-")
            chip = keys.whole(fields[0]) if len(fields) == 2 else None
            if chip is not None:
                # A slice that is not named is a slice of an unknown size, not the whole chip.
                return Assigned((chip,), fields[1] or UNKNOWN, True)
    return Assigned((), WHOLE, False)


def encode_assigned(assignment: Assignment) -> str:
    """Write what a pod gets, chips ascending."""
    chips = ",".join(map(str, assignment.chips))
    return chips if assignment.share.template == WHOLE else f"{chips}-{assignment.share.template}"


def held(pod: Pod) -> Held[Assignment] | None:
    """What bound *pod* holds; None if nothing of this protocol."""
    text = pod.annotations.get(keys.ASSIGNED)
    if text is None or not any(_asks(one) for one in (*pod.containers, *pod.init_containers)):
        return None
    real = pod.annotations.get(keys.REAL, "")
    assigned = decode_assigned(text)
    reported = _reported(real, assigned) if real else None
    if reported is not None:
        return Held(assignment=reported)
    if not assigned.readable:
        return Held(
            assignment=_NO_CHIPS,
            closes=f"pod {pod.key}: annotation {keys.ASSIGNED} is {quoted(text)}, which may mean any chip; "
            "delete the pod",
        )
    chips = tuple(sorted(set(assigned.chips)))
    return Held(assignment=Assignment(chips, Share(_known(assigned.template), NO_VGROUP, bool(real))))


def _reported(text: str, assigned: Assigned) -> Assignment | None:
    """What ``AscendReal`` says; None if it cannot be read, or speaks of slices on several chips."""
    if len(text) > MAX_POD_ANNOTATION_BYTES:
        return None
    devices = [keys.decode_device(name.strip()) for name in text.split(",")]
    known = [one for one in devices if one is not None]
    if len(known) != len(devices):
        return None
    chips = tuple(sorted({one.chip for one in known}))
    if all(not one.type for one in known):
        # A plain chip name does not say how much of it a slice holds; then only the request tells.
        template = WHOLE if assigned.template == WHOLE else _known(assigned.template)
        return Assignment(chips, Share(template, NO_VGROUP, settled=True))
    if len(known) > 1:
        return None
    found = BY_DEVICE_TYPE.get(known[0].type)
    template = found.name if found is not None else _known(assigned.template)
    return Assignment(chips, Share(template, known[0].vgroup, settled=True))


def _known(template: str) -> str:
    return template if template == WHOLE or template in TEMPLATES else UNKNOWN


def _asks(container: Container) -> bool:
    return any(key.startswith(keys.VENDOR) for key in (*container.limits, *container.requests))
