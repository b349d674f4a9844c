"""Enflame's GCUs: whole ones, which kubelet chooses, and instances of slices of them (hami-vendors 3.7, 3.8)."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from core.dialects.hami_vendors.pods import sizes
from core.dialects.hami_vendors.table import VendorSection
from core.dialects.hami_vendors.vendor import Capacity, Cards, Codec, HandOff, Limits, Register, Shares, Vendor
from core.errors import InvalidRequestError
from core.model import Pod
from core.names import MAX_REGISTERED_CARDS
from core.port.handoff import Stamp
from core.port.refusals import Reason, Shortfall
from core.port.spec import CardLists
from core.settings import DialectName
from core.sharing.account import Assignment, Entry, Written
from core.sharing.card import Card, Measures
from core.sharing.fit import Rules
from core.sharing.request import Ask, Request, Resources
from core.units import MAX_INT32, is_text
from core.wire.hami_register import Record, parsed

_WORD: Final = "Enflame"
_DEVICE: Final = "enflame-drs"
_PROFILE: Final = re.compile(r"0*([1-9][0-9]{0,3})g\.0*([1-9][0-9]{0,5})gb", re.ASCII)
_REMEDY: Final = "restart the device plugin so that it writes its devices and profiles"
_MAX_PROFILES: Final = 32
_MAX_CHARS: Final = 64
_SERVED: Final = "enflame.com/gcu-assigned"
_CONTAINERS: Final = "assigned-containers"
_TIME: Final = "enflame.com/gcu-assigned-time"
_INDEX: Final = "enflame.com/gcu-assigned-index"
_ID: Final = "enflame.com/gcu-assigned-id"
_MINOR: Final = "enflame.com/gcu-assigned-minor"
_SIZE: Final = "enflame.com/gcu-request-size"
# Variables by which the container runtime shows cards, and the driver an instance.
_CARDS: Final = "ENFLAME_VISIBLE_DEVICES"
_INSTANCE: Final = "TOPS_VISIBLE_DEVICES"


class _Profile(NamedTuple):
    """An instance that a card can be cut into: its name and id, GiB, and percent of the card's cores, rounded up."""

    name: str
    id: str
    gib: int
    cores: int


class _Told(NamedTuple):
    """What an assignment needs to know of a card: its minor number, and its profiles by their slices."""

    minor: str
    profiles: Mapping[int, _Profile]


@lru_cache(maxsize=1 << 10)
def _known(told: str) -> _Told:
    """Return what `_told` wrote."""
    minor, named = json.loads(told)
    found: dict[int, tuple[int, str]] = {}
    for name in named:
        slices, gib = _size(name)
        found[slices] = min(found.get(slices, (gib, name)), (gib, name))
    most = max(found)
    return _Told(
        minor, {at: _Profile(name, named[name], gib, -(-100 * at // most)) for at, (gib, name) in found.items()}
    )


def _size(name: str) -> tuple[int, int]:
    """Return slices and GiB of the profile *name*, such as ``1g.6gb``; (0, 0) if it is none."""
    match = _PROFILE.fullmatch(name.strip().lower())
    return (int(match[1]), int(match[2])) if match is not None else (0, 0)


def _records(node: str, text: str, field: str) -> tuple[Record, ...]:
    """Read the register; a device that cannot be read is closed by itself (HN-16).

    Raises:
        InvalidRequestError: it is no register, or has no profile.
    """
    found = parsed(text, field)
    devices, named = (found.get("devices"), found.get("profiles")) if isinstance(found, dict) else (None, None)
    profiles = {
        name: one
        for name, one in (list(named.items())[:_MAX_PROFILES] if isinstance(named, dict) else ())
        if _is_short(one) and len(name) <= _MAX_CHARS and _size(name) != (0, 0)
    }
    if not profiles or not isinstance(devices, list) or len(devices) > MAX_REGISTERED_CARDS:
        raise InvalidRequestError(field, text, _REMEDY)
    info = json.dumps(profiles, sort_keys=True)
    records = [_record(node, at, one, info) for at, one in enumerate(devices)]
    return tuple(sorted(records, key=lambda one: (one.position, one.uuid)))


def _record(node: str, at: int, found: object, profiles: str) -> Record:
    fields: Mapping[str, Any] = found if isinstance(found, dict) else {}
    index, minor = fields.get("index") or "", fields.get("minor") or ""
    slices = _whole(fields.get("capacity"))
    if not (isinstance(index, str) and _is_short(minor) and slices):
        return Record(f"{node}-{_DEVICE}-{at}", at, type=_WORD, problem="its index, minor or capacity cannot be read")
    position = _whole(index)
    at = at if position is None else position
    info = (("minor", minor.strip()), ("profiles", profiles))
    return Record(f"{node}-{_DEVICE}-{at}", at, slots=slices, type=_WORD, healthy=True, info=info)


def _is_short(found: object) -> bool:
    return isinstance(found, str) and len(found) <= _MAX_CHARS and is_text(found)


def _whole(found: object) -> int | None:
    """Return a number, which may be written as text; None if it is none."""
    text = found.strip() if isinstance(found, str) else str(found) if type(found) is int else ""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= MAX_INT32 else None


def _told(found: Record) -> str:
    info = dict(found.info)
    return json.dumps([info["minor"], json.loads(info["profiles"])]) if info else ""


def _written(entry: Entry) -> Entry:
    profile = _known(entry.told).profiles[entry.memory]
    return entry._replace(memory=profile.gib * 1024, cores=profile.cores, told="")


def _read(pod: Pod, named: Resources, entry: Entry, written: Written, card: Card | None) -> tuple[Entry, bool]:
    """Complete *entry* with the slices that its memory stands for (VN-25)."""
    if card is None or not card.fixed.told:
        # Only the container still says how many they are.
        asking = (*pod.init_containers, *pod.containers)[entry.container : entry.container + 1]
        slices = max(sizes(named, asking), default=0)
        return entry._replace(memory=slices, cores=0, charge=slices), bool(slices)
    profiles = _known(card.fixed.told).profiles
    found = [at for at, one in profiles.items() if one.gib * 1024 == written.memory]
    if not found:
        return entry._replace(memory=0, cores=0, charge=0), False
    slices = next((at for at in found if profiles[at].cores == written.cores), max(found))
    return entry._replace(memory=slices, cores=0, charge=slices, told=card.fixed.told), True


def _annotations(assignment: Assignment, stamp: Stamp, named: Resources) -> Mapping[str, str]:
    """Return what the plugin reads: for the pod the card, for each container the instance."""
    first = assignment.entries[0]
    index, minor = first.uuid.rpartition("-")[2], _known(first.told).minor
    found = {
        _SERVED: "false",
        _CONTAINERS: json.dumps(dict(sorted(_instances(assignment, stamp))), separators=(",", ":")),
        _TIME: str(stamp.now_s * 1_000_000_000),
        _INDEX: index,
        _ID: index,
        _SIZE: str(first.memory),
    }
    return {**found, _MINOR: minor} if minor else found


def _instances(assignment: Assignment, stamp: Stamp) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for one in assignment.entries:
        if one.container < len(stamp.containers):
            profile = _known(one.told).profiles[one.memory]
            about = {"allocated": False, "request": one.memory, "profileID": profile.id, "profileName": profile.name}
            yield stamp.containers[one.container], about


class _Instances(Rules):
    """Instances of one card, which only profiles of the card can be."""

    on_one_card = True
    measures = Measures(unit="slices", cores=False)

    def refuse(self, card: Card, ask: Ask, request: Request) -> Reason | None:
        """Return whether the card has no such profile."""
        return None if ask.memory in _known(card.fixed.told).profiles else Reason.TEMPLATE

    def shortfall(self, card: Card, ask: Ask, request: Request, reason: Reason) -> Shortfall | None:
        """Return which profiles it has."""
        if reason is not Reason.TEMPLATE:
            return None
        sizes = " or ".join(map(str, sorted(_known(card.fixed.told).profiles)))
        return Shortfall(card.fixed.uuid, reason, detail=f"instances of it have {sizes} slices, not {ask.memory}")


WHOLE: Final = Vendor(
    name=DialectName("enflame_gcu"),
    maker="enflame",
    word="GCU",
    section=VendorSection("enflame", names=("resourceNameGCU", "", "")),
    limits=Limits(count="enflame.com/gcu"),
    cards=Cards(
        source=Capacity("GCU"),
        whole=(100, 100),
        rules=Shares(),
    ),
    handoff=HandOff(
        allocated="hami.io/enflame-gcu-devices-allocated",
        to_allocate="hami.io/enflame-gcu-devices-to-allocate",
        locks=False,
        kubelet_chooses=True,
        variables=frozenset({_CARDS}),
    ),
)
DRS: Final = Vendor(
    name=DialectName("enflame_drs"),
    maker="enflame",
    word=_WORD,
    section=VendorSection(
        "enflame",
        names=("resourceNameDRSGCU", "resourceNameGCUMemory", "resourceNameGCUCore"),
        # Of the shares that HAMi had up to v2.9.
        others=("resourceNameVGCU", "resourceNameVGCUPercentage"),
    ),
    limits=Limits(
        count="enflame.com/drs-gcu",
        memory="enflame.com/gcu-memory",
        cores="enflame.com/gcu-core",
        select=CardLists("enflame.com/use-gpuuuid", "enflame.com/nouse-gpuuuid"),
    ),
    cards=Cards(
        source=Register("enflame.com/gcu-drs-capacity", read=_records),
        slices=True,
        rules=_Instances(),
    ),
    handoff=HandOff(
        allocated="hami.io/enflame-vgpu-devices-allocated",
        codec=Codec(_written, _read, _told),
        extra_keys=(_SERVED, _CONTAINERS, _TIME, _INDEX, _ID, _MINOR, _SIZE),
        told=_annotations,
        locks=False,
        served_keys=(_SERVED,),
        variables=frozenset({_CARDS, _INSTANCE}),
        accounts=("system:serviceaccount:kube-system:gcushare-device-plugin",),
        node_keys=("enflame.com/gcu-count", "enflame.com/gcu-shared-capacity"),
    ),
)
VENDORS: Final[tuple[Vendor, ...]] = (WHOLE, DRS)
