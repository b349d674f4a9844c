"""How the MindCluster device plugin finds its pod and divides its chips, as pure functions and values.

Source: Ascend mind-cluster v7.2.RC1, component/ascend-device-plugin, according to the protocol reference (ascend 1.7,
1.9, 1.10, 2.3 steps 8 to 11, 3.2, 7.4).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sandbox.players.objects import annotations_of, is_over, limits_of, time_of, whole

CORES: Final = "huawei.com/npu-core"
ASSIGNED: Final = "huawei.com/npu-core"
PREDICATE_TIME: Final = "predicate-time"
REAL: Final = "huawei.com/AscendReal"
KUBELET_DEVICES: Final = "huawei.com/kltDev"
# Only this exact text marks a pod as served; another text that is not a number counts as equally large.
SERVED: Final = "18446744073709551615"

CPUS_PER_CHIP: Final = 7
_GROUPS: Final = 4
_WHOLE: Final = re.compile(r"[0-9]{1,9}", re.ASCII)
_SLICE: Final = re.compile(r"(?P<chip>[0-9]{1,9})-(?P<template>vir(?P<cores>[0-9]{2})[a-z0-9_]*)", re.ASCII)

# Template -> AI cores, AI CPUs, DVPP, its name in device names.
TEMPLATES: Final[Mapping[str, tuple[int, int, str, str]]] = {
    "vir01": (1, 1, "null", "1c"),
    "vir02": (2, 2, "null", "2c"),
    "vir02_1c": (2, 1, "null", "2c.1cpu"),
    "vir04": (4, 4, "null", "4c"),
    "vir04_3c": (4, 3, "null", "4c.3cpu"),
    "vir04_3c_ndvpp": (4, 3, "no", "4c.3cpu.ndvpp"),
    "vir04_4c_dvpp": (4, 4, "yes", "4c.4cpu.dvpp"),
}
_BY_WORD: Final[Mapping[str, str]] = {row[3]: name for name, row in TEMPLATES.items()}
_REAL: Final = re.compile(
    r"Ascend310P-(?:(?P<word>[0-9a-z.]+)-(?P<id>[0-9]{1,9})-)?(?P<chip>[0-9]{1,9})(?:_(?P<group>[0-9]))?", re.ASCII
)


class SegmentError(Exception):
    """The driver cannot divide the chip this way, or the chip does not exist; the text is the plugin's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedChips:
    """The content of a pod's annotation: chips, and the template of a slice of the only one; "" = whole chips."""

    chips: tuple[int, ...]
    template: str

    def cores(self, cores_per_chip: int) -> int:
        """Return the AI cores that the plugin compares with kubelet's request: for a slice, the figure in its name."""
        if not self.template:
            return len(self.chips) * cores_per_chip
        match = re.match(r"vir([0-9]{2})", self.template)
        return int(match[1]) if match else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The device of one container: a vNPU of a chip, or a whole chip (template "", id = the chip's)."""

    id: int
    chip: int
    template: str = ""
    group: int = 0

    @property
    def name(self) -> str:
        """The name in ``huawei.com/AscendReal``."""
        if not self.template:
            return f"Ascend310P-{self.chip}"
        return f"Ascend310P-{TEMPLATES[self.template][3]}-{self.id}-{self.chip}_{self.group}"


def decode(text: str) -> AssignedChips | None:
    """Decode ``huawei.com/npu-core``; return None if the plugin cannot."""
    found = _SLICE.fullmatch(text)
    if found is not None:
        return AssignedChips(chips=(int(found["chip"]),), template=found["template"])
    pieces = text.split(",")
    if all(_WHOLE.fullmatch(piece) for piece in pieces):
        return AssignedChips(chips=tuple(map(int, pieces)), template="")
    return None


def candidate(
    pods: Sequence[Mapping[str, Any]], node_name: str, asked: int, cores_per_chip: int
) -> Mapping[str, Any] | None:
    """Return the pod that the plugin assumes is being admitted: the smallest time among those whose cores match.

    Equal times keep the order of *pods*.

    Args:
        pods: pods as JSON.
        node_name: the plugin's own node.
        asked: the number of ``npu-core-*`` ids in kubelet's call.
        cores_per_chip: AI cores of one chip.
    """
    fitting = [pod for pod in pods if _fits(pod, node_name, asked, cores_per_chip)]
    return min(fitting, key=lambda pod: time_of(pod, PREDICATE_TIME), default=None)


def cut(
    devices: Sequence[Device], assigned: AssignedChips, chips: Sequence[int], cores: int, free_id: int
) -> list[Device]:
    """Return the devices that the driver creates for *assigned*, beside existing *devices*.

    Args:
        devices: every vNPU and every whole chip in use on the node.
        assigned: the request.
        chips: ids of the healthy chips.
        cores: AI cores of one chip.
        free_id: the id of the next vNPU.

    Raises:
        SegmentError: there is no such chip, or not enough capacity on it.
    """
    if any(chip not in chips for chip in assigned.chips):
        raise SegmentError("NoNPUResource")
    if not assigned.template:
        if any(one.chip in assigned.chips for one in devices):
            raise SegmentError("NoNPUResource")
        return [Device(id=chip, chip=chip) for chip in assigned.chips]
    (chip,) = assigned.chips
    on_chip = [one for one in devices if one.chip == chip]
    if assigned.template not in TEMPLATES or any(not one.template for one in on_chip):
        raise SegmentError("NPUSegmentFailed")
    parts = [TEMPLATES[one.template] for one in on_chip] + [TEMPLATES[assigned.template]]
    if sum(part[0] for part in parts) > cores or sum(part[1] for part in parts) > CPUS_PER_CHIP:
        raise SegmentError("NPUSegmentFailed")
    classes = [part[2] for part in parts]
    shared = classes.count("null")
    if classes.count("yes") > (0 if shared else 1):
        raise SegmentError("NPUSegmentFailed")
    members = [sum(one.group == group for one in on_chip) for group in range(_GROUPS)]
    return [Device(id=free_id, chip=chip, template=assigned.template, group=members.index(min(members)))]


def environment(devices: Sequence[Device]) -> dict[str, str]:
    """Return what the container sees (ascend 1.9)."""
    count = str(len(devices))
    return {
        "ASCEND_VISIBLE_DEVICES": ",".join(str(one.id) for one in devices),
        "ASCEND_RUNTIME_OPTIONS": "VIRTUAL" if any(one.template for one in devices) else "",
        "LOCAL_RANK": ",".join(map(str, range(len(devices)))),
        **dict.fromkeys(
            (
                "MS_LOCAL_WORKER",
                "MS_WORKER_NUM",
                "WORLD_SIZE",
                "LOCAL_WORLD_SIZE",
                "CM_WORKER_SIZE",
                "CM_LOCAL_WORKER",
            ),
            count,
        ),
    }


def real_names(devices: Sequence[Device]) -> str:
    """Return the value of ``huawei.com/AscendReal``."""
    return ",".join(sorted(one.name for one in devices))


def decode_real(text: str) -> tuple[Device, ...]:
    """Decode ``huawei.com/AscendReal``; skip unreadable parts."""
    found = (_REAL.fullmatch(piece) for piece in text.split(","))
    return tuple(
        Device(
            id=int(one["id"] or one["chip"]),
            chip=int(one["chip"]),
            template=_BY_WORD.get(one["word"] or "", ""),
            group=int(one["group"] or 0),
        )
        for one in found
        if one is not None
    )


def _fits(pod: Mapping[str, Any], node_name: str, asked: int, cores_per_chip: int) -> bool:
    annotations = annotations_of(pod)
    if pod["spec"].get("nodeName") != node_name or is_over(pod) or pod["metadata"].get("deletionTimestamp"):
        return False
    if ASSIGNED not in annotations or annotations.get(PREDICATE_TIME) == SERVED or not _cores(pod):
        return False
    assigned = decode(annotations[ASSIGNED])
    return assigned is not None and assigned.cores(cores_per_chip) == asked


def _cores(pod: Mapping[str, Any]) -> int:
    return sum(whole(limits_of(container).get(CORES, "0")) for container in pod["spec"]["containers"])
