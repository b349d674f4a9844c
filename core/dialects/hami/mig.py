"""MIG instances as the register lists them: which one a share gets, and what reservations say.

Source: protocol reference, hami 1.9 and 4.7, with HN-7 done as it says.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from core.dialects.hami.register import Profile
from core.names import MAX_POD_ANNOTATION_BYTES
from core.units import is_text

# A place on a card, as (start, size) in slices.
Slice = tuple[int, int]
Profiles = tuple[Profile, ...]

# Profiles of one slice, and of half a card, are placed from the end.
_FROM_THE_END: Final = ("1g.", "3g.")
_MAX_SLICES: Final = 64


class Chosen(NamedTuple):
    """The instance that a share gets."""

    profile: Profile
    slice: Slice


class Reservation(NamedTuple):
    """An instance that a scheduler reserved for one device of a container."""

    uuid: str
    profile: str
    slice: Slice


Reservations = Mapping[tuple[int, int], Reservation]


def in_order(profiles: Iterable[Profile]) -> Profiles:
    """*profiles* from the smallest, with their places in the order in which they are tried."""
    ascending = sorted(profiles, key=lambda one: (one.memory_mib, one.slices))
    return tuple(
        one._replace(placements=tuple(sorted(one.placements, reverse=one.name.startswith(_FROM_THE_END))))
        for one in ascending
    )


def choose(profiles: Profiles, used: tuple[Slice, ...], memory_mib: int) -> Chosen | None:
    """The smallest instance of *memory_mib* or more that has a place beside those *used*; None if there is none."""
    for profile in profiles:
        if profile.memory_mib >= memory_mib:
            for place in profile.placements:
                if not overlaps(place, used):
                    return Chosen(profile, place)
    return None


def overlaps(place: Slice, used: Iterable[Slice]) -> bool:
    """Whether *place* has a slice in common with any of *used*."""
    start, size = place
    return any(start < other + length and other < start + size for other, length in used)


def conflicting(used: tuple[Slice, ...]) -> bool:
    """Whether any two of *used*, which are sorted, have a slice in common."""
    end = 0
    for start, size in used:
        if start < end:
            return True
        end = start + size
    return False


def largest_mib(profiles: Profiles) -> int:
    """The memory of the largest instance; 0 without any."""
    return max((one.memory_mib for one in profiles), default=0)


def largest_free_mib(profiles: Profiles, used: tuple[Slice, ...]) -> int:
    """The memory of the largest instance that has a place beside those *used*; 0 if none has."""
    return max(
        (one.memory_mib for one in profiles if any(not overlaps(place, used) for place in one.placements)), default=0
    )


def most(profiles: Profiles, used: tuple[Slice, ...]) -> int:
    """How many instances have a place beside each other and those *used*, at most."""
    if conflicting(used):
        return 0
    places = {place for one in profiles for place in one.placements}
    found = end = 0
    # Who ends first leaves most to those that come behind.
    for start, size in sorted(places, key=lambda place: (place[0] + place[1], -place[0])):
        if start >= end and not overlaps((start, size), used):
            found, end = found + 1, start + size
    return found


def decode_reservations(text: str) -> Reservations | None:
    """Read the reservations of a pod by container and device; None where anything of them cannot be read."""
    if len(text) > MAX_POD_ANNOTATION_BYTES:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if found is None:
        return {}
    if not isinstance(found, list):
        return None
    read: dict[tuple[int, int], Reservation] = {}
    for one in found:
        entry = _entry(one)
        if entry is None or entry[0] in read:
            return None
        read[entry[0]] = entry[1]
    return read


_RUNTIME: Final = ("migUUID", "gpuInstanceID", "computeInstanceID")


def _entry(one: Any) -> tuple[tuple[int, int], Reservation] | None:
    place = one.get("placement") if isinstance(one, dict) else None
    if not isinstance(place, dict):
        return None
    figures = (one.get("containerIndex"), one.get("deviceIndex"), place.get("start"), place.get("size"))
    container, device, start, size = map(_whole, figures)
    uuid, profile = one.get("gpuUUID"), one.get("profile")
    if not (isinstance(uuid, str) and isinstance(profile, str) and uuid and profile and is_text(uuid + profile)):
        return None
    if min(container, device, start) < 0 or not size > 0 or start + size > _MAX_SLICES:
        return None
    if len({key in one for key in _RUNTIME}) != 1:
        return None
    return (container, device), Reservation(uuid, profile, (start, size))


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else -1
