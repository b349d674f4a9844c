"""The MIG side of HAMi's plugin, v2.10: profiles as the register lists them, and instances made as they are reserved.

Source: protocol reference, hami 1.9, 3.4 and 4.7, HN-17, HN-33. The profiles are those of the reference's worked
example HX09. What no living pod reserves any more the real plugin destroys within five seconds; here it is gone before
the next call is answered.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import NAMESPACE_OID, uuid5

from sandbox.players.ascend_hami_protocol import RequestError, Segment, annotations_of

RESERVATIONS: Final = "hami.io/vgpu-mig-allocations"
MODEL: Final = "NVIDIA A100-SXM4-40GB"
MEMORY_MIB: Final = 40960
# The most instances that a card of the model is cut into.
COUNT: Final = 7
_OVER: Final = ("Succeeded", "Failed")
_RUNTIME: Final = ("migUUID", "gpuInstanceID", "computeInstanceID")
# By name: MiB, cores, slices, size of one in places, and where it may start.
_PROFILES: Final = (
    ("1g.5gb", 4864, 15, 1, 1, (0, 1, 2, 3, 4, 5, 6)),
    ("2g.10gb", 9856, 29, 2, 2, (0, 2, 4)),
    ("3g.20gb", 19968, 43, 3, 4, (0, 4)),
    ("7g.40gb", 40192, 100, 7, 8, (0,)),
)

Json = Mapping[str, Any]


class Instance(NamedTuple):
    """One instance: *size* places of *card* from *start* on, cut as *profile*."""

    card: str
    profile: str
    start: int
    size: int

    @property
    def uuid(self) -> str:
        """The id by which containers see it."""
        return f"MIG-{uuid5(NAMESPACE_OID, '/'.join(map(str, self)))}"

    def overlaps(self, other: Instance) -> bool:
        """Whether both need the same place."""
        apart = self.start + self.size <= other.start or other.start + other.size <= self.start
        return self.card == other.card and not apart


def profiles() -> list[dict[str, Any]]:
    """What a card of `MODEL` registers of how it may be cut; a place at 0 is written as such."""
    return [
        {
            "name": name,
            "memoryMB": memory_mib,
            "core": cores,
            "sliceCount": slices,
            "placements": [{"start": start, "size": size} for start in starts],
        }
        for name, memory_mib, cores, slices, size, starts in _PROFILES
    ]


class Instances:
    """The instances of one node's cards, as the driver has them."""

    def __init__(self) -> None:
        self._made: set[Instance] = set()

    def sweep(self, pods: Iterable[Json]) -> None:
        """Destroy what none of *pods*, those of the node, reserves; who is being deleted reserves nothing (HN-17)."""
        self._made &= {one for pod in pods if _lives(pod) for one in _reserved(pod)}

    def give(self, pod: Json, container: int, devices: Segment) -> tuple[list[Instance], str]:
        """The instances that *pod* has reserved for *container*, made where they are missing, and its new annotation.

        Raises:
            RequestError: they are not reserved as they are assigned, or cannot be made; then none is made.
        """
        entries = _entries(pod)
        mine = sorted(
            (one for one in entries if one["containerIndex"] == container), key=lambda one: one["deviceIndex"]
        )
        found = [_instance(one) for one in mine]
        if [one.card for one in found] != [one.id for one in devices]:
            raise RequestError(f"MIG reservations of container {container} do not match its devices")
        made = set(self._made)
        for one in found:
            if not _is_place(one) or any(one.overlaps(other) for other in made - {one}):
                raise RequestError(f"failed to create MIG instance {one.profile} at {one.start} of {one.card}")
            made.add(one)
        self._made = made
        for entry, one in zip(mine, found, strict=True):
            entry.update(zip(_RUNTIME, (one.uuid, one.start + 7, 0), strict=True))
        return found, json.dumps(entries, separators=(",", ":"))

    def take_back(self, found: Sequence[Instance], pods: Iterable[Json]) -> None:
        """Undo `give`: nothing came of it. What one of *pods* has in use stays."""
        in_use = {_instance(one) for pod in pods for one in _entries(pod) if _RUNTIME[0] in one}
        self._made -= set(found) - in_use


def visible_ids(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """What the containers see of a pod's instances, as far as they are made."""
    entries = json.loads(annotations.get(RESERVATIONS, "[]"))
    return tuple(one[_RUNTIME[0]] for one in entries if _RUNTIME[0] in one)


def _lives(pod: Json) -> bool:
    return "deletionTimestamp" not in pod["metadata"] and pod.get("status", {}).get("phase") not in _OVER


def _reserved(pod: Json) -> Iterable[Instance]:
    try:
        return [_instance(one) for one in _entries(pod)]
    except RequestError:
        return ()


def _entries(pod: Json) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = json.loads(annotations_of(pod).get(RESERVATIONS, "[]"))
        for one in found:
            _instance(one)
            one["containerIndex"], one["deviceIndex"]
    except (ValueError, TypeError, KeyError) as e:
        raise RequestError(f"failed to read annotation {RESERVATIONS}: {e}") from e
    return found


def _instance(entry: Json) -> Instance:
    place = entry["placement"]
    return Instance(entry["gpuUUID"], entry["profile"], place["start"], place["size"])


def _is_place(one: Instance) -> bool:
    return any((name, size) == (one.profile, one.size) and one.start in starts for name, *_, size, starts in _PROFILES)
