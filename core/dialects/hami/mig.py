"""MIG instances as the register lists them, and what reservations say.

Source: protocol reference, hami 1.9 and 4.7, with HN-7 done as it says.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from core.names import MAX_POD_ANNOTATION_BYTES
from core.sharing.slices import Group, Layout, Profile, Slice
from core.units import is_text
from core.wire import hami_register as register

# Profiles of one slice, and of half a card, are placed from the end.
_FROM_THE_END: Final = ("1g.", "3g.")
_MAX_SLICES: Final = 64


class Reservation(NamedTuple):
    """An instance that a scheduler reserved for one device of a container."""

    uuid: str
    profile: str
    slice: Slice


Reservations = Mapping[tuple[int, int], Reservation]


def layout_of(profiles: Iterable[register.Profile]) -> Layout:
    """Return *profiles* from the smallest, with their places in the order in which they are tried."""
    ascending = sorted(profiles, key=lambda one: (one.memory_mib, one.slices))
    return (Group("", tuple([_profile(one) for one in ascending])),) if ascending else ()


def _profile(one: register.Profile) -> Profile:
    places = sorted(one.placements, reverse=one.name.startswith(_FROM_THE_END))
    return Profile(
        one.name, one.memory_mib, one.memory_mib, tuple([Slice("", start, size) for start, size in places]), one.cores
    )


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
    return (container, device), Reservation(uuid, profile, Slice("", start, size))


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else -1
