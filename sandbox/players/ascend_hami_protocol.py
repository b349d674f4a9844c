"""The HAMi device plugin's way of finding and reading its pod, its mistakes included, as pure functions.

What is odd here is odd on purpose: a scheduler that relies on a kinder reading would fail in the field. Source:
Project-HAMi/ascend-device-plugin v1.4.0, as the protocol reference tells it (ascend 1.9, 1.10, 2.2, D-1 to D-3).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

LOCK: Final = "hami.io/mutex.lock"
NODE: Final = "hami.io/vgpu-node"
BIND_TIME: Final = "hami.io/bind-time"
BIND_PHASE: Final = "hami.io/bind-phase"
MODE: Final = "huawei.com/vnpu-mode"
SOFT_MODE: Final = "hami-core"
NODE_SOFT: Final = "hami-vnpu-core"
_PHASES: Final = ("allocating", "success")


class RequestError(Exception):
    """The plugin's own refusal, word for word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """One device of a segment, as text: the plugin looks at the id alone."""

    id: str
    fields: tuple[str, ...]


Segment = tuple[Assigned, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeInfo:
    """What one object of ``huawei.com/<common word>`` says of its device."""

    template: str = ""
    memory_mib: int = 0
    cores: int = 0


def to_allocate(word: str) -> str:
    """The annotation that devices are popped from."""
    return f"hami.io/{word}-devices-to-allocate"


def runtime_info(word: str) -> str:
    """The annotation with templates, or memory and cores."""
    return f"huawei.com/{word}"


def locked_pod(value: str) -> tuple[str, str] | None:
    """(namespace, name) that a lock names; None if it is the old form, which names nobody.

    Raises:
        RequestError: neither one field nor three: every call fails until the lock is gone.
    """
    fields = value.split(",")
    if len(fields) == 1:
        return None
    if len(fields) != 3:
        raise RequestError(f"invalid node lock format: {value}")
    return fields[1], fields[2]


def releases(value: str, pod: Mapping[str, Any]) -> bool:
    """Whether a lock goes when *pod* was served: the old form always, the new one only for its own pod."""
    metadata = pod["metadata"]
    return "," not in value or value.endswith(f",{metadata['namespace']},{metadata['name']}")


def guess(pods: Sequence[Mapping[str, Any]], node_name: str) -> Mapping[str, Any] | None:
    """The pod that the plugin takes without a lock: the first of *pods* in API order that is pending and annotated.

    One that was served already is taken as well (D-2).
    """
    return next((pod for pod in pods if _is_candidate(pod, node_name)), None)


def decode(value: str) -> tuple[Segment, ...]:
    """Read ``devices-to-allocate``; the end after the last ``;`` counts as one more empty segment.

    Raises:
        RequestError: an entry with a comma has fewer than four fields.
    """
    return tuple(_segment(piece) for piece in value.split(";"))


def encode(segments: Sequence[Segment]) -> str:
    """Write segments as the plugin does: one ``;`` behind each, so that every rewriting adds one."""
    return "".join("".join(f"{','.join(d.fields)}:" for d in segment) + ";" for segment in segments)


def next_request(segments: Sequence[Segment], container_names: Sequence[str]) -> tuple[int, str, Segment]:
    """(position, container's name, devices) that the plugin serves next; *container_names* begin with init containers.

    Raises:
        RequestError: nothing is left.
    """
    for position, segment in enumerate(segments):
        if segment:
            return position, container_names[position] if position < len(container_names) else "", segment
    raise RequestError("no pending device allocation found")


def erase(segments: Sequence[Segment], position: int) -> str:
    """The value after the segment at *position* was served."""
    return encode([() if at == position else segment for at, segment in enumerate(segments)])


def decode_runtime_info(value: str) -> Mapping[str, RuntimeInfo]:
    """What each device is cut to, by id; the last object of an id wins (D-8).

    Raises:
        RequestError: no JSON list of objects.
    """
    try:
        found = json.loads(value)
    except ValueError as e:
        raise RequestError(f"annotation value is not valid JSON: {e}") from e
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise RequestError("annotation value is not a list of devices")
    return {
        str(one.get("UUID", "")): RuntimeInfo(
            template=one.get("temp", ""), memory_mib=one.get("memory", 0), cores=one.get("core", 0)
        )
        for one in found
    }


def annotations_of(obj: Mapping[str, Any]) -> Mapping[str, str]:
    """The annotations of an object as JSON, empty if it has none."""
    found: Mapping[str, str] = obj.get("metadata", {}).get("annotations") or {}
    return found


def container_names(pod: Mapping[str, Any]) -> list[str]:
    """The names of a pod's containers, init containers first."""
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


def _segment(text: str) -> Segment:
    return tuple(_device(piece) for piece in text.split(":") if "," in piece)


def _device(text: str) -> Assigned:
    fields = tuple(text.split(","))
    if len(fields) < 4:
        raise RequestError("pod annotation format error; information missing, please do not use nodeName field in task")
    return Assigned(id=fields[0], fields=fields[:4])
