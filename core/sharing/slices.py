"""Which slices a card can be cut into, and which slice a share gets.

A layout of MIG is a list of groups, of which a card has one at a time. Volcano's plugin has several groups of numbered
positions; HAMi's has one group of places that may overlap. Templates have no places: the share alone decides. Source:
protocol reference, nvidia 3.6; hami 1.9, 4.7; ascend 4.3.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple


class Slice(NamedTuple):
    """A slice in use: its group, and the part of the card that it takes there."""

    group: str
    start: int
    size: int = 1


# The slice of an entry that names none of the layouts of its card; it sorts first.
UNKNOWN: Final = Slice("", -1, 0)


class Profile(NamedTuple):
    """One kind of slice: memory_mib of a slice, charge: what the card loses, in register units.

    places: where it can be, in the order in which they are tried. cores: percent of the card's cores that come with the
    slice. If None, the assignment has the memory and cores that the pod asks for, otherwise those of the slice.
    counted: what else the card loses, see `Templates`.
    """

    name: str
    memory_mib: int
    charge: int
    places: tuple[Slice, ...] = ()
    cores: int | None = None
    counted: tuple[int, ...] = ()


class Group(NamedTuple):
    """Slices that can be on a card together; profiles in ascending memory."""

    name: str
    profiles: tuple[Profile, ...]


Layout = tuple[Group, ...]


def numbered(name: str, sizes: Sequence[tuple[str, int, int]]) -> Group:
    """Return group *name* with numbered places, in the order of *sizes*: the name of a slice, its MiB, and how many."""
    found: list[Profile] = []
    first = 0
    for profile, memory_mib, count in sizes:
        places = tuple([Slice(name, at) for at in range(first, first + count)])
        found.append(Profile(profile, memory_mib, memory_mib, places))
        first += count
    return Group(name, tuple(sorted(found, key=_memory_of)))


def in_units(layout: Layout, factor: int) -> Layout:
    """Return *layout*, which has charges in MiB, with charges in units of *factor* MiB."""
    if factor == 1:
        return layout
    return tuple(
        [
            one._replace(profiles=tuple([cut._replace(charge=cut.memory_mib // factor) for cut in one.profiles]))
            for one in layout
        ]
    )


class Templates(NamedTuple):
    """Slices that depend on the share alone, whatever else is in use on a card.

    profiles: for a part of a card, in ascending memory; whole: for all of it. counted: how much the card has of
    everything that profiles count beside memory, 0 of what nobody counts; units: names for these. scarce: which of
    these bounds what fits beside memory, -1 if the cores do.
    """

    profiles: tuple[Profile, ...]
    whole: Profile
    counted: tuple[int, ...] = ()
    units: tuple[str, ...] = ()
    scarce: int = -1


# The slice of a request for all of a card; which one that is depends on the card.
WHOLE: Final = Profile("", 0, 0)


class Chosen(NamedTuple):
    """The slice that a share gets."""

    profile: Profile
    slice: Slice


def choose(layout: Layout, used: tuple[Slice, ...], memory_mib: int) -> Chosen | None:
    """Return the slice for *memory_mib* on a card with *used*; None if there is none.

    A card with slices keeps their group; an empty card takes the first group in which the request fits.
    """
    for group in layout:
        if used and group.name != used[0].group:
            continue
        for profile in group.profiles:
            if profile.memory_mib >= memory_mib:
                for place in profile.places:
                    if is_free(place, used):
                        return Chosen(profile, place)
    return None


def is_free(place: Slice, used: tuple[Slice, ...]) -> bool:
    """Return whether *place* overlaps none of *used*, which are of its group."""
    return not any(place.start < one.start + one.size and one.start < place.start + place.size for one in used)


def conflicting(used: tuple[Slice, ...]) -> bool:
    """Return whether *used*, sorted, cannot be on one card together: an unknown slice, two groups, an overlap."""
    if not used:
        return False
    if used[0].start < 0 or used[0].group != used[-1].group:
        return True
    return any(one.start + one.size > other.start for one, other in pairwise(used))


def charges(layout: Layout, memory_mib: int) -> list[int]:
    """Return what a slice for *memory_mib* can take of a card, whatever is in use there."""
    idle = choose(layout, (), memory_mib)
    # A group with one place has none left on a card that keeps it.
    active = [
        profile.charge
        for group in layout
        if sum([len(profile.places) for profile in group.profiles]) > 1
        for profile in group.profiles
        if profile.memory_mib >= memory_mib
    ]
    return active if idle is None else [idle.profile.charge, *active]


def largest_free(layout: Layout, used: tuple[Slice, ...]) -> Profile | None:
    """Return the largest profile that still has a place beside *used*; None if there is none."""
    free = [
        profile
        for group in layout
        if not used or group.name == used[0].group
        for profile in group.profiles
        if any(is_free(place, used) for place in profile.places)
    ]
    return max(free, key=_memory_of, default=None)


def _memory_of(profile: Profile) -> int:
    return profile.memory_mib


def largest_free_mib(layout: Layout, used: tuple[Slice, ...]) -> int:
    """Return the memory of the largest slice that still has a place beside *used*; 0 if there is none."""
    found = largest_free(layout, used)
    return found.memory_mib if found is not None else 0


def largest_mib(layout: Layout) -> int:
    """Return the memory of the largest slice; 0 without a layout."""
    return max([profile.memory_mib for group in layout for profile in group.profiles], default=0)


def most_charged(layout: Layout) -> int:
    """Return what all places of a group take of a card at most, if none of them overlap."""
    return max(
        [sum([one.charge * len(one.places) for one in group.profiles]) for group in layout],
        default=0,
    )


def most(layout: Layout, used: tuple[Slice, ...]) -> int:
    """Return how many more slices fit beside *used* at most."""
    if conflicting(used):
        return 0
    return max([_most(group, used) for group in layout if not used or group.name == used[0].group], default=0)


def _most(group: Group, used: tuple[Slice, ...]) -> int:
    places = {place for profile in group.profiles for place in profile.places}
    found = end = 0
    # The place that ends first leaves the most space after it.
    for place in sorted(places, key=lambda place: (place.start + place.size, -place.start)):
        if place.start >= end and is_free(place, used):
            found, end = found + 1, place.start + place.size
    return found


def canonical(layout: Layout, used: tuple[Slice, ...]) -> tuple[Slice, ...]:
    """Return *used* with the first places of every profile instead of those taken; `choose` charges the same."""
    groups = [group for group in layout if used and group.name == used[0].group]
    if len(groups) != 1:
        return used
    moved: list[Slice] = []
    for profile in groups[0].profiles:
        moved += profile.places[: sum([place in used for place in profile.places])]
    return tuple(moved)


def profile_at(layout: Layout, place: Slice) -> Profile | None:
    """Return the profile with *place*; None if no group has it."""
    for group in layout:
        if group.name == place.group:
            for profile in group.profiles:
                if place in profile.places:
                    return profile
    return None


def have_cores(layout: Layout) -> bool:
    """Return whether slices come with memory and cores of their own, which are rounded: their places alone count."""
    return any(profile.cores is not None for group in layout for profile in group.profiles)


def shown(one: Slice) -> str:
    """Return a slice in use, for people."""
    if one == UNKNOWN:
        return "unknown"
    return f"{one.group}-{one.start}" if one.group else f"{one.start}+{one.size}"
