"""How the Volcano vGPU device plugin reads assignments, including its bugs, as pure functions.

Its oddities are intentional: a scheduler that relies on a more lenient reader would fail in production. Source:
volcano-vgpu-device-plugin 4fb76ba, pkg/util/util.go, according to the protocol reference (nvidia 2.4, 6.5, 10.3).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from sandbox.players.objects import LATEST, annotations_of, digits, time_of

NODE: Final = "volcano.sh/vgpu-node"
TIME: Final = "volcano.sh/vgpu-time"
IDS: Final = "volcano.sh/vgpu-ids-new"
TO_ALLOCATE: Final = "volcano.sh/devices-to-allocate"
BIND_PHASE: Final = "volcano.sh/bind-phase"
REGISTER: Final = "volcano.sh/node-vgpu-register"
HANDSHAKE: Final = "volcano.sh/node-vgpu-handshake"
LOCK: Final = "hamivgpu"

DONE_TIME: Final = LATEST
_MAX_INT32: Final = 2**31 - 1
_MIN_INT32: Final = -(2**31)
_TYPE: Final = "NVIDIA"
# strconv's decimal forms; Python's int() would also accept blanks, underscores and other scripts' digits.
_SIGNED: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)


class Version(StrEnum):
    """The releases of the plugin that differ in their writes and in the pods that they serve (nvidia 7.2)."""

    READS_BACK = "2026-09"
    MAIN = "main"
    V1_12_0 = "v1.12.0"
    V1_11_0 = "v1.11.0"

    @property
    def beats(self) -> bool:
        """Whether it writes register and handshake every 30 s, with cards in any order; others write only changes."""
        return self in (Version.V1_12_0, Version.V1_11_0)

    @property
    def reads_back(self) -> bool:
        """Whether it reads back what it has written on a pod, and takes pending pods only (P21)."""
        return self is Version.READS_BACK


class PluginPanicError(Exception):
    """The plugin's process dies here; the text is Go's runtime error."""


class VgpuRequestError(Exception):
    """The plugin's own refusal, with the original text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VgpuDevice:
    """One device of a segment: mem in register units, cores in percent; both may be any int32."""

    id: str
    type: str
    mem: int
    cores: int


Segment = tuple[VgpuDevice, ...]


def decode(value: str) -> tuple[Segment, ...]:
    """Decode ``devices-to-allocate``; an empty value has no segments.

    Raises:
        PluginPanicError: an entry with a comma has fewer than four fields.
    """
    if not value:
        return ()
    return tuple(_segment(piece) for piece in value.split(";"))


def encode(segments: Sequence[Segment]) -> str:
    """Encode segments as the plugin does: every entry followed by a colon, positions kept."""
    return ";".join("".join(f"{d.id},{d.type},{d.mem},{d.cores}:" for d in segment) for segment in segments)


def device_count(segments: Sequence[Segment]) -> int:
    """Return the number of devices in all segments, which is compared with kubelet's request for one container."""
    return sum(len(segment) for segment in segments)


def next_request(segments: Sequence[Segment], container_names: Sequence[str]) -> tuple[str, Segment]:
    """Return the container that the plugin assumes it serves, and its devices.

    Raises:
        VgpuRequestError: no segment has a device of exactly the type ``NVIDIA``.
        PluginPanicError: that segment's position exceeds the containers of the pod.
    """
    for position, segment in enumerate(segments):
        devices = tuple(device for device in segment if device.type == _TYPE)
        if not devices:
            continue
        if position >= len(container_names):
            raise PluginPanicError(f"runtime error: index out of range [{position}] with length {len(container_names)}")
        return container_names[position], devices
    raise VgpuRequestError("device request not found")


def erase(segments: Sequence[Segment]) -> str:
    """Return the value after the next segment was served: that segment without its NVIDIA devices."""
    left = list(segments)
    for position, segment in enumerate(left):
        kept = tuple(device for device in segment if device.type != _TYPE)
        if len(kept) != len(segment):
            left[position] = kept
            break
    return encode(left)


def oldest(pods: Sequence[Mapping[str, Any]], node_name: str, asked: int) -> Mapping[str, Any] | None:
    """Return the pod that the plugin assumes is being admitted: *asked* devices left on this node, smallest time.

    ``spec.nodeName``, ``bind-phase`` and deletion are ignored, and the phase by versions that do not read back. Among
    equal times, the last candidate of the list wins if it has the smallest time, otherwise the first with that time.

    Args:
        pods: all pods of the cluster as JSON, in the API server's order.
        node_name: the plugin's own node.
        asked: the number of device ids in kubelet's call.

    Raises:
        PluginPanicError: a pod of the node has a value that crashes the plugin.
    """
    candidates = [pod for pod in pods if _is_candidate(annotations_of(pod), node_name, asked)]
    if not candidates:
        return None
    times = [time_of(pod, TIME) for pod in candidates]
    smallest = min(times)
    return candidates[-1] if times[-1] == smallest else candidates[times.index(smallest)]


def oldest_by_time(pods: Sequence[Mapping[str, Any]], node_name: str) -> Mapping[str, Any] | None:
    """Return the pod that a plugin up to v1.11.0 takes: the smallest time of its node, with any number of devices left.

    If none has a time of its own, it takes the first pod of the cluster, on any node (P20).
    """
    candidates = [pod for pod in pods if annotations_of(pod).get(NODE) == node_name]
    timed = [pod for pod in candidates if time_of(pod, TIME) < DONE_TIME]
    if not timed:
        return pods[0] if pods else None
    return min(timed, key=lambda pod: time_of(pod, TIME))


def handshake(now: datetime) -> str:
    """Return what plugins up to v1.12.0 write every 30 s (nvidia 7.3)."""
    return f"Reported {now:%Y-%m-%d %H:%M:%S.%f}000 +0000 UTC m=+30.0"


def _is_candidate(annotations: Mapping[str, str], node_name: str, asked: int) -> bool:
    if annotations.get(NODE) != node_name:
        return False
    return device_count(decode(annotations.get(TO_ALLOCATE, ""))) == asked


def _segment(text: str) -> Segment:
    return tuple(_device(piece) for piece in text.split(":") if "," in piece)


def _device(text: str) -> VgpuDevice:
    fields = text.split(",")
    if len(fields) < 4:
        raise PluginPanicError(f"runtime error: index out of range [{len(fields)}] with length {len(fields)}")
    return VgpuDevice(id=fields[0], type=fields[1], mem=_int32(fields[2]), cores=_int32(fields[3]))


def _int32(text: str) -> int:
    """Return ``strconv.ParseInt(text, 10, 32)`` ignoring errors: 0 for no number, the limit beyond the range."""
    if not _SIGNED.fullmatch(text):
        return 0
    size = min(int(digits(text)), 2**32)
    return max(_MIN_INT32, -size) if text.startswith("-") else min(_MAX_INT32, size)
