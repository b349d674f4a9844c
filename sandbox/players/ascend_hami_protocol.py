"""How the HAMi device plugin finds and reads its pod, including its bugs, as pure functions.

Its oddities are intentional: a scheduler that relies on a more lenient reader would fail in production. Source:
Project-HAMi/ascend-device-plugin v1.4.0, according to the protocol reference (ascend 1.9, 1.10, 2.2, D-1 to D-3).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sandbox.players.objects import annotations_of

LOCK: Final = "hami.io/mutex.lock"
NODE: Final = "hami.io/vgpu-node"
BIND_TIME: Final = "hami.io/bind-time"
BIND_PHASE: Final = "hami.io/bind-phase"
MODE: Final = "huawei.com/vnpu-mode"
SOFT_MODE: Final = "hami-core"
NODE_SOFT: Final = "hami-vnpu-core"
_PHASES: Final = ("allocating", "success")


class HamiRequestError(Exception):
    """The plugin's own refusal, with the original text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HamiDevice:
    """One device of a segment, as text: the plugin reads only the id."""

    id: str
    fields: tuple[str, ...]


Segment = tuple[HamiDevice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeInfo:
    """The properties of a device in one object of ``huawei.com/<common word>``."""

    template: str = ""
    memory_mib: int = 0
    cores: int = 0


def to_allocate(word: str) -> str:
    """Return the annotation from which devices are removed."""
    return f"hami.io/{word}-devices-to-allocate"


def runtime_info(word: str) -> str:
    """Return the annotation with templates, or memory and cores."""
    return f"huawei.com/{word}"


def locked_pod(value: str) -> tuple[str, str] | None:
    """Return (namespace, name) of the pod in a lock; None for the old form, which names no pod.

    Raises:
        HamiRequestError: neither one field nor three: every call fails until the lock is removed.
    """
    fields = value.split(",")
    if len(fields) == 1:
        return None
    if len(fields) != 3:
        raise HamiRequestError(f"invalid node lock format: {value}")
    return fields[1], fields[2]


def releases(value: str, pod: Mapping[str, Any]) -> bool:
    """Return whether serving *pod* releases a lock: the old form always, the new one only for its own pod."""
    metadata = pod["metadata"]
    return "," not in value or value.endswith(f",{metadata['namespace']},{metadata['name']}")


def guess(pods: Sequence[Mapping[str, Any]], node_name: str) -> Mapping[str, Any] | None:
    """Return the pod that the plugin takes without a lock: the first annotated pending one of *pods* in API order.

    It also takes a pod that was already served (D-2).
    """
    return next((pod for pod in pods if _is_candidate(pod, node_name)), None)


def decode(value: str) -> tuple[Segment, ...]:
    """Decode ``devices-to-allocate``; the end after the last ``;`` counts as one more empty segment.

    Raises:
        HamiRequestError: an entry with a comma has fewer than four fields.
    """
    return tuple(_segment(piece) for piece in value.split(";"))


def encode(segments: Sequence[Segment]) -> str:
    """Encode segments as the plugin does: one ``;`` after each, so that every rewrite adds one."""
    return "".join("".join(f"{','.join(d.fields)}:" for d in segment) + ";" for segment in segments)


def next_request(segments: Sequence[Segment], container_names: Sequence[str]) -> tuple[int, str, Segment]:
    """Return (position, container's name, devices) to serve next; *container_names* start with init containers.

    Raises:
        HamiRequestError: nothing is left.
    """
    for position, segment in enumerate(segments):
        if segment:
            return position, container_names[position] if position < len(container_names) else "", segment
    raise HamiRequestError("no pending device allocation found")


def erase(segments: Sequence[Segment], position: int) -> str:
    """Return the value after the segment at *position* was served."""
    return encode([() if at == position else segment for at, segment in enumerate(segments)])


def decode_runtime_info(value: str) -> Mapping[str, RuntimeInfo]:
    """Decode the slice of each device, by id; the last object of an id wins (D-8).

    Raises:
        HamiRequestError: it is not a JSON list of objects.
    """
    try:
        found = json.loads(value)
    except ValueError as e:
        raise HamiRequestError(f"annotation value is not valid JSON: {e}") from e
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise HamiRequestError("annotation value is not a list of devices")
    return {
        str(one.get("UUID", "")): RuntimeInfo(
            template=one.get("temp", ""), memory_mib=one.get("memory", 0), cores=one.get("core", 0)
        )
        for one in found
    }


def container_names(pod: Mapping[str, Any]) -> list[str]:
    """Return the names of a pod's containers, init containers first."""
    spec = pod["spec"]
    return [one["name"] for one in (*spec.get("initContainers", ()), *spec["containers"])]


def _is_candidate(pod: Mapping[str, Any], node_name: str) -> bool:
    annotations = annotations_of(pod)
    return (
        pod.get("status", {}).get("phase", "Pending") == "Pending"
        and BIND_TIME in annotations
        and annotations.get(BIND_PHASE) in _PHASES
        and annotations.get(NODE) == node_name
    )


def is_allocating(pod: Mapping[str, Any], node_name: str) -> bool:
    """Return whether a plugin that reads no lock takes *pod*, whatever its phase."""
    annotations = annotations_of(pod)
    return BIND_TIME in annotations and annotations.get(BIND_PHASE) == _PHASES[0] and annotations.get(NODE) == node_name


def _segment(text: str) -> Segment:
    return tuple(_device(piece) for piece in text.split(":") if "," in piece)


def _device(text: str) -> HamiDevice:
    fields = tuple(text.split(","))
    if len(fields) < 4:
        raise HamiRequestError(
            "pod annotation format error; information missing, please do not use nodeName field in task"
        )
    return HamiDevice(id=fields[0], fields=fields[:4])
