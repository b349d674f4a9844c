"""The MIG layouts of the device configuration, and the ids by which the plugin is told of slices.

Source: protocol reference, nvidia 3.6, with the defects S2 to S4, S9 and S32 done as they say.
"""

from core.dialects.vgpu.table import MigModel, VgpuTable
from core.sharing.slices import Group, Layout, Profile, Slice
from core.units import parse_int64


def layout_of(card_type: str, table: VgpuTable) -> Layout:
    """Return the layouts of the first geometry with a model that *card_type* contains; empty if there is none."""
    for geometry in table.geometries:
        if any(model in card_type for model in geometry.models):
            return _layout(geometry, max(table.memory_factor, 1))
    return ()


def card_of(text: str) -> str:
    """Return the UUID of the card of which *text* names a slice; *text* itself if it names none."""
    return text.partition("[")[0]


def decode_slice_id(text: str) -> tuple[str, Slice] | None:
    """Read ``uuid[group-position]``; None if the text has no such form."""
    uuid, opening, rest = text.partition("[")
    inner, closing, _ = rest.partition("]")
    parts = inner.split("-")
    if not opening or not closing or len(parts) != 2:
        return None
    position = parse_int64(parts[1])
    return None if position is None else (uuid, Slice(parts[0], position))


def _layout(geometry: MigModel, factor: int) -> Layout:
    groups: list[Group] = []
    for group in geometry.groups:
        profiles: list[Profile] = []
        first = 0
        for one in group.profiles:
            places = tuple([Slice(group.name, first + at) for at in range(one.count)])
            profiles.append(Profile(one.name, one.memory_mib, one.memory_mib // factor, places))
            first += one.count
        profiles.sort(key=lambda profile: profile.memory_mib)
        groups.append(Group(group.name, tuple(profiles)))
    return tuple(groups)
