"""MIG layouts: which groups of slices a card model allows, which slice a request gets, and what ids mean.

Source: protocol reference, nvidia 3.6, with the defects S2 to S4, S9 and S32 done as they say.
"""

from operator import eq
from typing import NamedTuple

from core.tables import MigModel, VgpuTable
from core.units import parse_int64

# A slice in use: group name and position in that group. UNKNOWN stands for an entry that names no slice.
Slice = tuple[str, int]
UNKNOWN: Slice = ("", -1)


class Profile(NamedTuple):
    """One slice type of a group: memory_mib of a slice, charge in register units, its positions."""

    memory_mib: int
    charge: int
    name: str
    first: int
    size: int


class Group(NamedTuple):
    """One layout: profiles in ascending memory, and how many positions it has."""

    name: str
    profiles: tuple[Profile, ...]
    positions: int


Layout = tuple[Group, ...]


class Chosen(NamedTuple):
    """The slice a request gets, and what it takes of the card in register units."""

    slice: Slice
    charge: int


class SliceId(NamedTuple):
    """What ``uuid[group-position]`` says."""

    uuid: str
    group: str
    position: int


def layout_of(card_type: str, table: VgpuTable) -> Layout:
    """The layouts of the first geometry with a model that *card_type* contains; empty if there is none."""
    for geometry in table.geometries:
        if any(model in card_type for model in geometry.models):
            return _layout(geometry, max(table.memory_factor, 1))
    return ()


def choose(layout: Layout, used: tuple[Slice, ...], memory_mib: int) -> Chosen | None:
    """The slice for *memory_mib* on a card where *used* are taken; None if there is none.

    A card with slices in use keeps their group; an empty card takes the first group in which the request fits.
    """
    active = used[0][0] if used else ""
    for name, profiles, _ in layout:
        if active and name != active:
            continue
        for size_mib, charge, _, first, size in profiles:
            if size_mib < memory_mib:
                continue
            for position in range(first, first + size):
                if (name, position) not in used:
                    return Chosen((name, position), charge)
    return None


def charges(layout: Layout, memory_mib: int) -> list[int]:
    """What a slice for *memory_mib* can take of a card, whatever is in use there."""
    idle = choose(layout, (), memory_mib)
    # A group of one slice has none left on a card that keeps it.
    active = [p.charge for g in layout if g.positions > 1 for p in g.profiles if p.memory_mib >= memory_mib]
    return active if idle is None else [idle.charge, *active]


def largest_free(layout: Layout, used: tuple[Slice, ...]) -> int:
    """What the largest slice takes of a card that could still be given where *used* are taken; 0 if none."""
    active = used[0][0] if used else ""
    return max(
        (
            charge
            for name, profiles, _ in layout
            if not active or name == active
            for _, charge, _, first, size in profiles
            if any((name, position) not in used for position in range(first, first + size))
        ),
        default=0,
    )


def most_charged(layout: Layout) -> int:
    """What all slices of a group take of a card at most."""
    return max((sum(one.charge * one.size for one in group.profiles) for group in layout), default=0)


def canonical(layout: Layout, used: tuple[Slice, ...]) -> tuple[Slice, ...]:
    """*used* with the first positions of every profile in place of those taken; what `choose` charges is the same."""
    groups = [group for group in layout if used and group.name == used[0][0]]
    if len(groups) != 1:
        return used
    name, profiles, _ = groups[0]
    moved: list[Slice] = []
    for _, _, _, first, size in profiles:
        taken = sum([first <= position < first + size for _, position in used])
        moved += [(name, first + at) for at in range(taken)]
    return tuple(moved)


def conflicting(used: tuple[Slice, ...]) -> bool:
    """Whether *used* cannot all exist on one card: an unknown slice, two groups, or one position twice."""
    # Sorted as they are, an unknown slice stands first, two groups at the ends, and equal slices side by side.
    if not used:
        return False
    if used[0] == UNKNOWN or used[0][0] != used[-1][0]:
        return True
    return any(map(eq, used, used[1:]))


def charge_of(layout: Layout, group: str, position: int) -> int | None:
    """What the slice at *position* of *group* takes in register units; None if there is no such slice."""
    profile = profile_at(layout, group, position)
    return profile.charge if profile is not None else None


def profile_at(layout: Layout, group: str, position: int) -> Profile | None:
    """The profile whose positions hold *position*; None if group or position do not exist."""
    for one in layout:
        if one.name == group:
            for profile in one.profiles:
                if profile.first <= position < profile.first + profile.size:
                    return profile
    return None


def largest_mib(layout: Layout) -> int:
    """The memory of the largest slice; 0 without any layout."""
    return max((profile.memory_mib for group in layout for profile in group.profiles), default=0)


def encode_slice_id(uuid: str, taken: Slice) -> str:
    """The id by which the plugin is told of a slice."""
    return f"{uuid}[{taken[0]}-{taken[1]}]"


def card_of(text: str) -> str:
    """The UUID of the card of which *text* names a slice; *text* itself where it names none."""
    return text.partition("[")[0]


def decode_slice_id(text: str) -> SliceId | None:
    """Read ``uuid[group-position]``; None where the text has no such form."""
    uuid, opening, rest = text.partition("[")
    inner, closing, _ = rest.partition("]")
    parts = inner.split("-")
    if not opening or not closing or len(parts) != 2:
        return None
    position = parse_int64(parts[1])
    return None if position is None else SliceId(uuid, parts[0], position)


def _layout(geometry: MigModel, factor: int) -> Layout:
    groups: list[Group] = []
    for group in geometry.groups:
        profiles: list[Profile] = []
        first = 0
        for profile in group.profiles:
            charge = profile.memory_mib // factor if factor > 1 else profile.memory_mib
            profiles.append(Profile(profile.memory_mib, charge, profile.name, first, profile.count))
            first += profile.count
        profiles.sort(key=lambda one: one.memory_mib)
        groups.append(Group(group.name, tuple(profiles), first))
    return tuple(groups)
