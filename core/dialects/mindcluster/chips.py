"""The chips of a node under MindCluster, and what is in use on them.

A chip's figures follow from the shares on it alone, so that the order of takes leaves no trace.
Source: protocol reference, ascend 3.1, 3.6 to 3.8.
"""

from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from core.dialects.mindcluster.templates import NO, NOT_KNOWN, NULL, SLICE_CORES, TEMPLATES, YES
from core.port.cards import CardShare, Hole, NodeRoom, Tally
from core.port.refusals import CardFault, Reason
from core.units import counted

# A slice whose template is not known: it is there, and nobody can tell how much it takes.
UNKNOWN: Final = "?"
WHOLE: Final = ""
NO_VGROUP: Final = -1

# How `NodeRoom.spare` tells what a node's chips can still take: the largest slice by class, whole chips on top.
SPARE_BY_CORES: Final = {1: 25, 2: 50, 4: 75}
SPARE_WHOLE: Final = 75


class Kind(NamedTuple):
    """What nodes have in common that answer alike: AI cores per chip, and which templates are being handed over."""

    cores: int
    flight: int


class Fixed(NamedTuple):
    """All of a chip that does not change as it fills.

    listed: whether the node says that the chip is there; one that is not is used only where a pod proves it.
    """

    id: int
    cores: int
    cpus: int
    fault: Reason | None = None
    listed: bool = True


class Share(NamedTuple):
    """One pod's part of a chip: template ("" = the whole chip), vGroup, and whether the plugin has reported it."""

    template: str
    vgroup: int = NO_VGROUP
    settled: bool = False


class Chip(NamedTuple):
    """One chip and what is in use on it.

    shares are sorted. dvpp: what is free of it (yes: all, null: a part, no: nothing). unstable: some share is not
    reported yet. vgroups: how many different ones the slices are in. flight: templates not reported yet, as bits.
    """

    fixed: Fixed
    shares: tuple[Share, ...]
    free_cores: int
    free_cpus: int
    dvpp: str = YES
    unstable: bool = False
    vgroups: int = 0
    flight: int = 0
    unread: bool = False

    @property
    def title(self) -> str:
        """Its name for people."""
        return title(self.fixed.id)

    @property
    def there(self) -> bool:
        """Whether the chip may take anything: it is healthy, known to be there, and all on it can be read."""
        return self.fixed.fault is None and (self.fixed.listed or bool(self.shares)) and not self.unread


class Assignment(NamedTuple):
    """What one pod holds: the same share of each of these chips, ids ascending."""

    chips: tuple[int, ...]
    share: Share


def chip(fixed: Fixed, shares: tuple[Share, ...] = ()) -> Chip:
    """The chip with *shares*, sorted, on it."""
    if not shares:
        return Chip(fixed, shares, fixed.cores, fixed.cpus)
    cores, cpus, flight = fixed.cores, fixed.cpus, 0
    dvpp, vgroups, unstable, unread = YES, set[int](), False, False
    for name, vgroup, settled in shares:
        unstable = unstable or not settled
        if name == WHOLE:
            cores -= fixed.cores
            cpus -= fixed.cpus
            continue
        template = TEMPLATES.get(name, NOT_KNOWN)
        unread = unread or template is NOT_KNOWN
        if vgroup != NO_VGROUP:
            vgroups.add(vgroup)
        if not settled:
            flight |= template.bit
        cores -= template.cores
        cpus -= template.cpus
        if template.dvpp == YES:
            dvpp = NO
        elif template.dvpp == NULL and dvpp == YES:
            dvpp = NULL
    return Chip(fixed, shares, cores, cpus, dvpp, unstable, len(vgroups), flight, unread)


def title(chip_id: int) -> str:
    """The name of a chip for people."""
    return f"NPU {chip_id}"


def take(cards: tuple[Chip, ...], assignment: Assignment) -> tuple[Chip, ...]:
    """The chips after *assignment* is in use on them; a chip that the node does not have counts nowhere."""
    return _changed(cards, assignment, insort)


def give_back(cards: tuple[Chip, ...], assignment: Assignment) -> tuple[Chip, ...]:
    """The chips after *assignment* is given back; undoes `take` exactly."""
    return _changed(cards, assignment, list.remove)


def _changed(
    cards: tuple[Chip, ...], assignment: Assignment, change: Callable[[list[Share], Share], None]
) -> tuple[Chip, ...]:
    after = list(cards)
    for at, one in enumerate(cards):
        if one.fixed.id in assignment.chips:
            shares = list(one.shares)
            change(shares, assignment.share)
            after[at] = chip(one.fixed, tuple(shares))
    return tuple(after)


def at_best(cards: tuple[Chip, ...]) -> tuple[Chip, ...]:
    """The unused chips as if all of them were listed and well."""
    return tuple([chip(one.fixed._replace(fault=None, listed=True)) for one in cards])


def healed(cards: tuple[Chip, ...]) -> tuple[Chip, ...]:
    """The unused chips as if none were unhealthy."""
    return tuple([chip(one.fixed._replace(fault=None)) for one in cards])


def well(cards: tuple[Chip, ...]) -> frozenset[str]:
    """The numbers of those that are not said to be unhealthy."""
    return frozenset([str(one.fixed.id) for one in cards if one.fixed.fault is not Reason.UNHEALTHY])


def kept_out(cards: tuple[Chip, ...], faults: Mapping[str, CardFault]) -> tuple[Chip, ...]:
    """The unused chips with nothing new for those that are named in *faults*."""
    after = list(cards)
    for at, one in enumerate(cards):
        found = faults.get(str(one.fixed.id))
        if found is not None and one.fixed.fault is None:
            after[at] = chip(one.fixed._replace(fault=found.reason))
    return tuple(after)


def in_flight(cards: Sequence[Chip]) -> int:
    """The templates that are being handed over on the node, as bits."""
    flight = 0
    for one in cards:
        flight |= one.flight
    return flight


def room(cards: Sequence[Chip]) -> NodeRoom:
    """One room for the whole node: its idle AI cores, and as spare the largest part that some chip could take."""
    idle_chips = free = used = total = flight = per_chip = largest = 0
    for one in cards:
        fixed, free_cores = one.fixed, one.free_cores
        per_chip = fixed.cores
        total += fixed.cores
        used += fixed.cores - free_cores
        flight |= one.flight
        if free_cores <= 0 or not one.there:
            continue
        free += free_cores
        if not one.shares:
            idle_chips += 1
        elif largest < SLICE_CORES[-1] and not one.unstable:
            largest = max(largest, largest_slice(one))
    spare = SPARE_WHOLE + idle_chips if idle_chips else SPARE_BY_CORES.get(largest, 0)
    used_ppm = max(used, 0) * 1_000_000 // total if total else 0
    return (
        NodeRoom(idle_chips, used_ppm, (Kind(per_chip, flight),), (free,), (spare,)) if spare else NodeRoom(0, used_ppm)
    )


def largest_slice(one: Chip) -> int:
    """The AI cores of the largest slice that could join this chip, DVPP aside; 0 if none."""
    for cores in reversed(SLICE_CORES):
        if fits(one, cores, 3 if cores == 4 else 1, NO):
            return cores
    return 0


def fits(one: Chip, cores: int, cpus: int, dvpp: str) -> bool:
    """Whether a slice of so much may join the chip, as far as the chip's own rules go (ascend 3.5 to 3.7)."""
    if one.free_cores < cores or one.free_cpus < cpus:
        return False
    if one.vgroups >= 3 and (cores >= 4 or (one.vgroups >= 4 and cores >= 2)):
        return False
    return dvpp == NO or one.dvpp == YES or (dvpp == NULL and one.dvpp == NULL)


def holes(cards: Sequence[Chip]) -> tuple[Hole, ...]:
    """The AI cores and AI CPUs that are left of each chip; none of one that takes nothing new."""
    return tuple(
        Hole(
            one.fixed.cores,
            one.free_cores if one.there else 0,
            one.fixed.cores,
            one.free_cpus * 100 // max(one.fixed.cpus, 1),
        )
        for one in cards
    )


def overcommitted(cards: Sequence[Chip]) -> tuple[str, ...]:
    """The chips that hold more AI cores or AI CPUs than they have."""
    return tuple(
        f"{one.title} holds {one.fixed.cores - one.free_cores} of {one.fixed.cores} AI cores and "
        f"{one.fixed.cpus - one.free_cpus} of {one.fixed.cpus} AI CPUs"
        for one in cards
        if one.free_cores < 0 or one.free_cpus < 0
    )


def tally(cards: Sequence[Chip]) -> tuple[Tally, ...]:
    """Every chip with how much of it is in use, for people."""
    return tuple(
        Tally(
            one.title,
            "Ascend310P",
            one.fixed.cores - one.free_cores,
            one.fixed.cores,
            "AI cores",
            (one.fixed.cores - one.free_cores) * 100 // one.fixed.cores,
            _note(one),
            healthy=one.fixed.fault is None,
        )
        for one in cards
        if one.fixed.listed or one.shares or one.fixed.fault
    )


def _note(one: Chip) -> str:
    if one.fixed.fault is not None:
        return str(one.fixed.fault)
    if one.unread:
        return "holds a slice of an unknown template"
    return "waits for the device plugin's report" if one.unstable else ""


def describe(assignment: Assignment, cards: Sequence[Chip]) -> tuple[CardShare, ...]:
    """What *assignment* holds of each of its chips, for people."""
    name = assignment.share.template
    template = TEMPLATES.get(name)
    if template is not None:
        what = f"{name}: {counted(template.cores, 'AI cores')}, {counted(template.cpus, 'AI CPUs')}"
    else:
        what = "the whole chip" if name == WHOLE else "a slice of an unknown template"
    whole = {one.fixed.id: one.fixed.cores for one in cards} if name == WHOLE else {}
    return tuple(
        [CardShare(title(at), what, whole.get(at) if template is None else template.cores) for at in assignment.chips]
    )
