"""AWS's Neuron devices, whole or by single cores; several devices are neighbours (hami-vendors 3.10)."""

from collections.abc import Mapping, Sequence
from typing import Final

from core.dialects.hami_vendors.table import VendorSection
from core.dialects.hami_vendors.vendor import Capacity, Cards, Codec, HandOff, Limits, Vendor
from core.model import Pod
from core.port.handoff import Stamp
from core.port.refusals import Reason, Shortfall
from core.port.spec import CardLists
from core.settings import DialectName
from core.sharing.account import Assignment, Entry, Written
from core.sharing.card import Card, Kind, Measures
from core.sharing.fit import Rules
from core.sharing.request import Ask, Place, Request, Resources
from core.sharing.slices import UNKNOWN, Group, Profile, Slice
from core.wire.hami_register import Record

# Of a device for which containers ask by cores (VN-29).
_CORES: Final = 2
# How many devices a container gets where they are wired in fours, and how many start together.
_TOGETHER: Final = (4, 8, 16)
_NUMBERS: Final = f"{', '.join(map(str, _TOGETHER[:-1]))} or {_TOGETHER[-1]}"
_IN_ROWS: Final = "in rows"
_INSTANCE: Final = "node.kubernetes.io/instance-type"
_KEYS: Final = (
    *("AWS_NEURON_IDS", "NEURON_ALLOC_TIME", "NEURON_ALLOCATED", "aws.amazon.com/predicate-node"),
    "NEURON_RESOURCE_TYPE",
)
_IDS, _TIME, _ALLOCATED, _NODE, _TYPE = _KEYS


class _Neighbours(Rules):
    """One device, or idle neighbours; entries have the cores of a device as slices of it."""

    chooses = True
    measures = Measures(unit="cores", cores=False)

    def counted(self, ask: Ask) -> tuple[int, str]:
        """Return cores if it asks for them."""
        return (ask.cores, "cores") if ask.cores else super().counted(ask)

    def choose(self, cards: Sequence[Card], slots: Sequence[int], ask: Ask, request: Request) -> Sequence[int] | None:
        """Return the last device, or the first neighbours; in fours where devices are not wired in rows."""
        number = ask.number
        at = {cards[slot].fixed.position: slot for slot in slots}
        # Limits first, so that a huge number costs nothing below.
        if len(at) < number:
            return None
        if number == 1:
            return [at[max(at)]]
        idle = {position: slot for position, slot in at.items() if _is_given_whole(cards[slot], ask)}
        for first in sorted(idle):
            found = [idle[position] for position in range(first, first + number) if position in idle]
            in_rows = cards[idle[first]].fixed.group == _IN_ROWS
            if len(found) == number and (in_rows or (number in _TOGETHER and first % number == 0)):
                return found
        return None

    def unchosen(self, cards: Sequence[Card], ask: Ask) -> tuple[Reason, str]:
        """Return how devices are given."""
        number, one = ask.number, cards[0].fixed
        if ask.cores and ask.memory != one.memory:
            return Reason.RULE, f"a container gets several devices only as a whole, with {one.memory} cores each"
        if one.group == _IN_ROWS:
            return Reason.LINKS, f"no {number} idle devices are next to each other"
        if number not in _TOGETHER:
            return Reason.RULE, f"a container gets 1 device, or {_NUMBERS} that are linked"
        return Reason.LINKS, f"no {number} idle devices are linked with each other"

    def shortfall(self, card: Card, ask: Ask, request: Request, reason: Reason) -> Shortfall | None:
        """Return how many cores are free, or that the device is in use."""
        fixed = card.fixed
        if reason not in (Reason.MEMORY, Reason.LAYOUT, Reason.SLOTS):
            return None
        if not ask.cores:
            return Shortfall(fixed.uuid, Reason.BUSY)
        free = fixed.memory - card.used_memory
        if free >= ask.memory:
            return Shortfall(fixed.uuid, Reason.RULE, detail=f"{free} cores are free, but not next to each other")
        return Shortfall(fixed.uuid, Reason.CORES, ask.memory, max(free, 0), "cores")


def _is_given_whole(card: Card, ask: Ask) -> bool:
    return not card.used_slots and (ask.percent == 100 or ask.memory == card.fixed.memory)


def _wiring(record: Record) -> str:
    """Return how a device is wired with others, by the instance type of its node."""
    return _IN_ROWS if "inf" in dict(record.info).get(_INSTANCE, "") else ""


def _kind(kind: Kind) -> Kind:
    """Return *kind* with the cores of a device as slices: single ones, pairs, or all."""
    total = kind.memory
    sizes = sorted({size for size in (1, _CORES, total) if 0 < size <= total})
    return kind._replace(layout=(Group("", tuple([_profile(size, total) for size in sizes])),)) if sizes else kind


def _profile(size: int, total: int) -> Profile:
    places = tuple([Slice("", start, size) for start in range(0, total - size + 1, size)])
    return Profile(f"{size} of {total}", size, size, places)


def _asks(named: Resources, places: Sequence[Place]) -> list[Ask]:
    """Return what containers ask: whole devices, or cores; one pod has either (VN-30)."""
    asks: list[Ask] = []
    for one in places:
        before = len(asks)
        number = one.figures.read(named.cards, "CS101") or 0
        cores = one.figures.read(named.cores, "CS103") or 0
        when = one.initial, one.sidecar
        if number:
            asks.append(Ask(one.container, number, 0, 100, 0, *when))
        elif cores == 1:
            asks.append(Ask(one.container, 1, 1, 0, 1, *when))
        elif cores % _CORES:
            one.figures.wrong("CS103", named.cores, f"write 1, or a multiple of {_CORES} for whole devices")
        elif cores:
            asks.append(Ask(one.container, cores // _CORES, _CORES, 0, _CORES, *when))
        if len(asks) > before and bool(asks[-1].cores) is not bool(asks[0].cores):
            one.figures.wrong("CS103", named.cores, f"ask for {named.cards} or for {named.cores} in all containers")
    return asks


def _fewer(ask: Ask, amount: int) -> Ask:
    """Return *ask* for at most *amount* of what it counts: devices, or cores."""
    if not ask.cores or ask.number * ask.cores <= amount:
        return ask._replace(number=min(ask.number, amount))
    if amount < _CORES:
        return ask._replace(number=1, memory=1, cores=1)
    return ask._replace(number=amount // _CORES)


def _written(entry: Entry) -> Entry:
    """Return *entry* without memory, and with its cores as bits."""
    taken = entry.slice or UNKNOWN
    return entry._replace(memory=0, cores=((1 << taken.size) - 1) << max(taken.start, 0))


def _read(pod: Pod, named: Resources, entry: Entry, written: Written, card: Card | None) -> tuple[Entry, bool]:
    """Return *entry* with the cores that *written* has as bits, and whether those are neighbours."""
    mask = written.cores
    size, start = mask.bit_count(), (mask & -mask).bit_length() - 1
    if not mask or mask >> start != (1 << size) - 1:
        return entry._replace(memory=0, cores=0, charge=0), False
    name = f"{size} of {card.fixed.memory if card is not None else size}"
    has_devices = any(one.amount(named.cards) not in (None, "0") for one in (*pod.init_containers, *pod.containers))
    cores = 0 if has_devices else size
    return entry._replace(memory=size, cores=cores, charge=size, slice=Slice("", start, size), profile=name), True


def _told(assignment: Assignment, stamp: Stamp, named: Resources) -> Mapping[str, str]:
    ids: list[int] = []
    by_cores = any(one.cores for one in assignment.entries)
    for one in assignment.entries:
        device, total = int(one.uuid.rpartition("-")[2]), int(one.profile.rpartition(" ")[2])
        first = device * total + (one.slice or UNKNOWN).start
        ids += range(first, first + one.memory) if by_cores else [device]
    told = {
        _IDS: ",".join(map(str, ids)),
        _TIME: str(stamp.now_s * 1_000_000_000),
        _ALLOCATED: "false",
        _NODE: stamp.node,
    }
    return {**told, _TYPE: named.cores} if by_cores else told


VENDOR: Final[Vendor] = Vendor(
    name=DialectName("neuron"),
    maker="aws",
    word="AWSNeuron",
    section=VendorSection("awsneuron", names=("resourceCountName", "", "resourceCoreName")),
    limits=Limits(
        count="aws.amazon.com/neuron",
        cores="aws.amazon.com/neuroncore",
        select=CardLists("aws.amazon.com/use-neuron-uuid", "aws.amazon.com/nouse-neuron-uuid"),
        asks=_asks,
        fewer=_fewer,
    ),
    cards=Cards(
        source=Capacity("AWSNeuron", shares_cores=True, labels=(_INSTANCE,)),
        core_unit="cores",
        kind=_kind,
        group=_wiring,
        rules=_Neighbours(),
        local_ids=True,
    ),
    handoff=HandOff(
        allocated="hami.io/aws-neuron-devices-allocated",
        codec=Codec(_written, _read),
        extra_keys=_KEYS,
        told=_told,
        locks=False,
        accounts=("system:serviceaccount:kube-system:neuron-device-plugin",),
        # Its manifest lets it write annotations of its node, and nobody outside knows which.
        node_keys=("aws.amazon.com/*",),
    ),
)
