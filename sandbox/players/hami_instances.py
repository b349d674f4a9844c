"""The MIG part of HAMi's plugin, v2.10: profiles in the register, and instances created from reservations.

Source: protocol reference, hami 1.9, 3.4 and 4.7, HN-17, HN-33. The profiles are those of the reference's worked
example HX09. The real plugin destroys instances that no living pod reserves within five seconds; here they are
destroyed before the next call is answered.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import NAMESPACE_OID, uuid5

from sandbox.players.ascend_hami_protocol import HamiRequestError, Segment
from sandbox.players.objects import annotations_of, is_over

RESERVATIONS: Final = "hami.io/vgpu-mig-allocations"
MODEL: Final = "NVIDIA A100-SXM4-40GB"
MEMORY_MIB: Final = 40960
# The maximum number of instances of a card of the model.
COUNT: Final = 7
_RUNTIME: Final = ("migUUID", "gpuInstanceID", "computeInstanceID")
# By name: MiB, cores, slices, size of one in places, and possible starts.
_PROFILES: Final = (
    ("1g.5gb", 4864, 15, 1, 1, (0, 1, 2, 3, 4, 5, 6)),
    ("2g.10gb", 9856, 29, 2, 2, (0, 2, 4)),
    ("3g.20gb", 19968, 43, 3, 4, (0, 4)),
    ("7g.40gb", 40192, 100, 7, 8, (0,)),
)

Json = Mapping[str, Any]


class Instance(NamedTuple):
    """One instance: *size* places of *card* from *start* on, with *profile*."""

    card: str
    profile: str
    start: int
    size: int

    @property
    def uuid(self) -> str:
        """The id that containers see."""
        return f"MIG-{uuid5(NAMESPACE_OID, '/'.join(map(str, self)))}"

    def overlaps(self, other: Instance) -> bool:
        """Return whether both need a common place."""
        apart = self.start + self.size <= other.start or other.start + other.size <= self.start
        return self.card == other.card and not apart


def profiles() -> list[dict[str, Any]]:
    """Return the possible instances that a card of `MODEL` registers; a place at 0 is written explicitly."""
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
    """The instances of one node's cards in the driver."""

    def __init__(self) -> None:
        self._made: set[Instance] = set()

    def sweep(self, pods: Iterable[Json]) -> None:
        """Destroy instances that none of the node's *pods* reserves; pods being deleted reserve nothing (HN-17)."""
        self._made &= {one for pod in pods if _lives(pod) for one in _reserved(pod)}

    def give(self, pod: Json, container: int, devices: Segment) -> tuple[list[Instance], str]:
        """Return the instances that *pod* has reserved for *container*, created if missing, and its new annotation.

        Raises:
            HamiRequestError: the reservations differ from the assignment, or cannot be created; then none is created.
        """
        entries = _entries(pod)
        mine = sorted(
            (one for one in entries if one["containerIndex"] == container), key=lambda one: one["deviceIndex"]
        )
        found = [_instance(one) for one in mine]
        if [one.card for one in found] != [one.id for one in devices]:
            raise HamiRequestError(f"MIG reservations of container {container} do not match its devices")
        made = set(self._made)
        for one in found:
            if not _is_place(one) or any(one.overlaps(other) for other in made - {one}):
                raise HamiRequestError(f"failed to create MIG instance {one.profile} at {one.start} of {one.card}")
            made.add(one)
        self._made = made
        for entry, one in zip(mine, found, strict=True):
            entry.update(zip(_RUNTIME, (one.uuid, one.start + 7, 0), strict=True))
        return found, json.dumps(entries, separators=(",", ":"))

    def take_back(self, found: Sequence[Instance], pods: Iterable[Json]) -> None:
        """Undo `give` after a failure. Instances that one of *pods* uses stay."""
        in_use = {_instance(one) for pod in pods for one in _entries(pod) if _RUNTIME[0] in one}
        self._made -= set(found) - in_use


def visible_ids(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """Return the ids of a pod's instances that containers see, if they exist."""
    entries = json.loads(annotations.get(RESERVATIONS, "[]"))
    return tuple(one[_RUNTIME[0]] for one in entries if _RUNTIME[0] in one)


def _lives(pod: Json) -> bool:
    return "deletionTimestamp" not in pod["metadata"] and not is_over(pod)


def _reserved(pod: Json) -> Iterable[Instance]:
    try:
        return [_instance(one) for one in _entries(pod)]
    except HamiRequestError:
        return ()


def _entries(pod: Json) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = json.loads(annotations_of(pod).get(RESERVATIONS, "[]"))
        for one in found:
            _instance(one)
            one["containerIndex"], one["deviceIndex"]
    except (ValueError, TypeError, KeyError) as e:
        raise HamiRequestError(f"failed to read annotation {RESERVATIONS}: {e}") from e
    return found


def _instance(entry: Json) -> Instance:
    place = entry["placement"]
    return Instance(entry["gpuUUID"], entry["profile"], place["start"], place["size"])


def _is_place(one: Instance) -> bool:
    return any((name, size) == (one.profile, one.size) and one.start in starts for name, *_, size, starts in _PROFILES)
