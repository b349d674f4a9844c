"""MetaX's cards: whole ones, which kubelet chooses, and shares of them, called sGPU (hami-vendors 3.5)."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import comb
from typing import Any, Final

from core.dialects.hami_vendors.table import VendorSection
from core.dialects.hami_vendors.vendor import Capacity, Cards, HandOff, Limits, Register, Shares, Vendor, Wishes
from core.errors import InvalidRequestError
from core.model import AnyPod
from core.names import MAX_REGISTERED_CARDS
from core.port.handoff import Stamp
from core.port.refusals import Reason, Shortfall, Violation
from core.port.spec import CardLists
from core.settings import DialectName
from core.sharing import order
from core.sharing.account import Assignment, Entry
from core.sharing.card import Card
from core.sharing.fit import Rules
from core.sharing.request import Ask, Request, Resources, check_words
from core.units import BYTES_PER_MIB, MAX_INT32, TRUE, parse_amount, parse_count
from core.wire.hami_register import Record, listed, parsed, record

# What HAMi writes of each whole card.
_WHOLE_MIB: Final = 65536
_WORD: Final = "Metax-SGPU"
_QOS: Final = "metax-tech.com/sgpu-qos-policy"
_CLASS: Final = "metax-tech.com/sgpu-app-class"
_LINKED: Final = "metax-tech.com/sgpu-topology-aware"
_POLICIES: Final = ("best-effort", "fixed-share", "burst-share")
_ONLINE: Final = "online"
_OFFLINE: Final = "offline"
_CLASSES: Final = (_ONLINE, _OFFLINE)
_HELD: Final = "metax-tech.com/gpu-devices-allocated"
_TIME: Final = "metax-tech.com/predicate-time"
_MIB_PER_GIB: Final = 1024
_MAX_CHARS: Final = 64
# Annotations of nodes: losses of links and scores of cards, by the number of cards that a pod gets.
_TOPOLOGY: Final = ("metax-tech.com/gpu.topology.losses", "metax-tech.com/gpu.topology.scores")
# A figure for each card that a node may have takes less; a longer text says nothing.
_MAX_TOPOLOGY: Final = 4096
_MOST: Final = 2000
# How much links, and pods with a class, count compared with free amounts.
_WEIGHT: Final = 10_000.0
# The fields of the register by the names that HAMi's have.
_FIELDS: Final = {
    "uuid": "id",
    "totalDevCount": "count",
    "totalVRam": "devmem",
    "totalCompute": "devcore",
    "numa": "numa",
    "healthy": "health",
}


def _records(node: str, text: str, field: str) -> tuple[Record, ...]:
    found = [record(_hamis(one, at)) for at, one in enumerate(listed(text, field))]
    return tuple([one._replace(problem=_renamed(one.problem)) if one.problem else one for one in found])


def _renamed(problem: str) -> str:
    """Return *problem*, which may end with the name that HAMi's registers have for a field, with MetaX's name."""
    start, found, name = problem.rpartition(" for ")
    own = next((key for key, hamis in _FIELDS.items() if hamis == name), name)
    return start + found + own


def _hamis(found: object, at: int) -> object:
    """Return an entry of the register as HAMi's plugins write it; its place is its index."""
    if not isinstance(found, dict):
        return found
    fields: dict[str, Any] = {key.lower(): value for key, value in found.items()}
    zone = fields.get("linkzone")
    info = {"policy": fields.get("qospolicy"), "zone": str(zone) if type(zone) is int else ""}
    return {name: fields.get(key.lower()) for key, name in _FIELDS.items()} | {
        "index": at,
        "type": _WORD,
        "custominfo": info,
    }


def _zone(found: Record) -> str:
    """Return the group of linked cards that a card is in, "" for none."""
    text = dict(found.info).get("zone", "")
    return text if text.isdigit() and text != "0" else ""


def _policy(found: Record) -> str:
    return dict(found.info).get("policy", "")[:_MAX_CHARS]


def _memory_mib(text: str, field: str, maximum: int) -> int:
    """Read GiB without a suffix, or whole MiB with one (VN-21)."""
    if text.isascii() and text.isdigit():
        return parse_count(text, field, maximum // _MIB_PER_GIB) * _MIB_PER_GIB
    amount = parse_amount(text, field) if text.endswith(("Mi", "Gi")) else 0
    if not amount or amount % BYTES_PER_MIB or amount // BYTES_PER_MIB > maximum:
        raise InvalidRequestError(field, text, "write GiB such as '4', or MiB such as '4096Mi'")
    return amount // BYTES_PER_MIB


def _marks(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """Return class and policy of a pod as one mark; what is neither counts as none."""
    kind, policy = annotations.get(_CLASS, ""), annotations.get(_QOS, "")
    return (f"{kind if kind in _CLASSES else ''}/{policy if policy in _POLICIES else ''}",)


def _adapted(pod: AnyPod, request: Request, violations: list[Violation]) -> Request:
    """Return *request* with the mark of *pod*; online pods count no cores."""
    for key, known in ((_CLASS, _CLASSES), (_QOS, _POLICIES)):
        if key in pod.annotations:
            check_words(key, (pod.annotations[key],), known, violations)
    asks = request.asks
    if pod.annotations.get(_CLASS) == _ONLINE:
        asks = tuple([ask._replace(cores=0) for ask in asks])
    if pod.annotations.get(_LINKED) in TRUE:
        request = request._replace(order=request.order._replace(linked=True))
    return request._replace(asks=asks, marks=_marks(pod.annotations))


def _noted(annotations: Mapping[str, str]) -> Mapping[str, str]:
    if _QOS in annotations or annotations.get(_CLASS) == _ONLINE:
        return {}
    return {_QOS: _POLICIES[0]}


def _unservable(pod: AnyPod, number: int) -> str:
    return f"write 1; pods with annotation {_CLASS} get one card" if _CLASS in pod.annotations and number > 1 else ""


def _told(assignment: Assignment, stamp: Stamp, named: Resources) -> Mapping[str, str]:
    segments: list[list[dict[str, Any]]] = [[] for _ in range(assignment.segments)]
    for one in assignment.entries:
        fields = {"uuid": one.uuid, "compute": one.cores, "vRam": one.memory}
        segments[one.container].append({key: value for key, value in fields.items() if value})
    return {_HELD: json.dumps(segments, separators=(",", ":")), _TIME: str(stamp.now_s * 1_000_000_000)}


def _topology(found: Record) -> str:
    """Return the ratings of a node as text for `_figures`; "" if it has none."""
    info = dict(found.info)
    losses, scores = [text if len(text := info.get(key, "")) <= _MAX_TOPOLOGY else "" for key in _TOPOLOGY]
    return _written(losses, scores)


# All cards of a node have the same texts.
@lru_cache(maxsize=1 << 8)
def _written(losses: str, scores: str) -> str:
    told = [_named(losses), _named(scores)]
    return json.dumps(told) if any(told) else ""


def _named(text: str) -> dict[str, int]:
    """Return the figures in *text* by number of cards; unreadable ones are left out."""
    try:
        found = parsed(text, "") if text else {}
    except InvalidRequestError:
        return {}
    some = list(found.items())[:MAX_REGISTERED_CARDS] if isinstance(found, dict) else []
    return {key: one for key, one in some if key.isdigit() and type(one) is int and 0 <= one <= MAX_INT32}


@lru_cache(maxsize=1 << 10)
def _figures(told: str) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Return losses and scores of a node by the number of cards that a pod gets."""
    losses, scores = json.loads(told) if told else ({}, {})
    return losses, scores


class _Whole(Shares):
    """Prefers nodes as HAMi does: with the lowest loss under `binpack`, with the highest score under `spread`."""

    def prefers(self, request: Request) -> bool:
        """See `Rules`."""
        return True

    def preference(self, cards: Sequence[Card], entries: Sequence[Entry], request: Request, word: str) -> float:
        """See `Rules`; nodes without ratings come last."""
        losses, scores = _figures(cards[0].fixed.group)
        number = str(len(entries))
        if word == order.BINPACK and losses:
            return float(max(_MOST - losses.get(number, 0), 0))
        return float(scores.get(number, 0)) if word == order.SPREAD else 0.0


class _Sgpu(Rules):
    """Pods of one class, and of one policy, share a card; whole cards are linked."""

    chooses = True
    serves_full = True

    def beside_full(self, request: Request) -> bool:
        """Return whether it is of an online pod: those offline are suspended beside it."""
        return _class_of(request.marks[0]) == _ONLINE

    def refuse(self, card: Card, ask: Ask, request: Request) -> Reason | None:
        """Return whether pods of another class or policy are there."""
        return Reason.RULE if _conflict(card, ask, request) else None

    def shortfall(self, card: Card, ask: Ask, request: Request, reason: Reason) -> Shortfall | None:
        """Return which ones, for people."""
        told = _conflict(card, ask, request) if reason is Reason.RULE and card.fixed.fault is None else ""
        return Shortfall(card.fixed.uuid, reason, detail=told) if told else None

    def own_marks(self, request: Request) -> tuple[str, ...]:
        """Return that of an online pod, whose containers are spread as pods are."""
        return request.marks if _class_of(request.marks[0]) == _ONLINE else ()

    def prefers(self, request: Request) -> bool:
        """Return whether the pod is online, or gets whole cards and wants linked ones."""
        return _class_of(request.marks[0]) == _ONLINE or _is_linked(request)

    def preference(self, cards: Sequence[Card], entries: Sequence[Entry], request: Request, word: str) -> float:
        """Return less for pods with a class on the cards of an online pod, more for whole groups of linked cards."""
        if word not in order.NODE_WORDS:
            return 0.0
        if _is_linked(request):
            return _WEIGHT * _links(cards, [one.slot for one in entries])
        return -_WEIGHT * sum([_crowding(cards[one.slot]) for one in entries])

    def choose(self, cards: Sequence[Card], slots: Sequence[int], ask: Ask, request: Request) -> Sequence[int] | None:
        """Return the cards with the fewest online pods for an online one, linked cards for whole ones (VN-22)."""
        number, own = ask.number, _class_of(request.marks[0])
        if own == _ONLINE:
            slots = sorted(slots, key=lambda slot: _crowd(cards[slot]))
        elif not own and ask.cores == 100 and len(slots) > number:
            slots = _linked(cards, slots, number)
        return slots[:number] if len(slots) >= number else None


def _class_of(mark: str) -> str:
    return mark.partition("/")[0]


def _conflict(card: Card, ask: Ask, request: Request) -> str:
    """Return why the pods on *card* and that of *request* exclude each other, for people; "" if they do not."""
    if not card.marks:
        return ""
    own, _, policy = request.marks[0].partition("/")
    pods = [mark.partition("/") for mark in card.marks]
    if any(bool(other) is not bool(own) for other, _, _ in pods):
        return "pods with an application class and pods without one do not share a card"
    if own == _OFFLINE and any(other == _ONLINE for other, _, _ in pods):
        return "an online pod is there"
    if own == _ONLINE or ask.cores == 100:
        return ""
    # What pods say counts before what the register says, which follows them (VN-20).
    others = {other for kind, _, other in pods if kind != _ONLINE} | {card.fixed.policy}
    others -= {"", policy}
    return f"it serves pods with policy {min(others)}" if others else ""


def _crowd(card: Card) -> tuple[bool, int, int]:
    classes = [_class_of(mark) for mark in card.marks]
    online, offline = classes.count(_ONLINE), classes.count(_OFFLINE)
    return not online and offline > 0, online, offline


def _is_linked(request: Request) -> bool:
    """Return whether nodes are preferred by the links of their cards."""
    return request.order.linked and not _class_of(request.marks[0]) and any(ask.cores == 100 for ask in request.asks)


def _crowding(card: Card) -> float:
    """Return by how much pods with a class on *card* make it worse for an online pod."""
    _, online, offline = _crowd(card)
    return 20.0 * online + 2.0 * offline if online else 100.0 * offline


def _links(cards: Sequence[Card], chosen: Sequence[int]) -> float:
    """Return how many linked pairs a pod gets, less the linked pairs that it separates."""
    idle = [slot for slot, card in enumerate(cards) if not card.used_slots]
    left = [slot for slot in idle if slot not in chosen]
    return 10.0 * _pairs(cards, chosen) - (_pairs(cards, idle) - _pairs(cards, chosen) - _pairs(cards, left))


def _pairs(cards: Sequence[Card], slots: Sequence[int]) -> float:
    zones = Counter([cards[slot].fixed.group for slot in slots if cards[slot].fixed.group])
    return 10.0 * sum([comb(count, 2) for count in zones.values()])


def _linked(cards: Sequence[Card], slots: Sequence[int], number: int) -> list[int]:
    """Return *slots* by groups of linked cards, the smallest that suffices first, and cards without links last."""
    zones: dict[str, list[int]] = {}
    for slot in slots:
        zones.setdefault(cards[slot].fixed.group, []).append(slot)
    rest = zones.pop("", [])
    groups = sorted(zones, key=lambda zone: (len(zones[zone]) < number, len(zones[zone]), int(zone)))
    return [slot for zone in groups for slot in zones[zone]] + rest


WHOLE: Final = Vendor(
    name=DialectName("metax_gpu"),
    maker="metax",
    word="Metax-GPU",
    section=VendorSection("metax"),
    limits=Limits(count="metax-tech.com/gpu"),
    cards=Cards(
        source=Capacity("metax", notes=_TOPOLOGY),
        group=_topology,
        whole=(_WHOLE_MIB, 100),
        rules=_Whole(),
    ),
    handoff=HandOff(
        allocated="hami.io/metax-gpu-devices-allocated",
        to_allocate="hami.io/metax-gpu-devices-to-allocate",
        locks=False,
        kubelet_chooses=True,
    ),
)
SGPU: Final = Vendor(
    name=DialectName("metax_sgpu"),
    maker="metax",
    word=_WORD,
    section=VendorSection(
        "metax",
        names=("resourceVCountName", "resourceVMemoryName", "resourceVCoreName"),
        switch=("sgpuTopologyAware", _LINKED),
    ),
    limits=Limits(
        count="metax-tech.com/sgpu",
        memory="metax-tech.com/vmemory",
        cores="metax-tech.com/vcore",
        mib_per_unit=_MIB_PER_GIB,
        memory_mib=_memory_mib,
        select=CardLists("metax-tech.com/use-gpuuuid", "metax-tech.com/nouse-gpuuuid"),
    ),
    wishes=Wishes(
        keys=(_QOS, _CLASS, _LINKED),
        adapt=_adapted,
        marks=_marks,
        notes=_noted,
        unservable=_unservable,
    ),
    cards=Cards(
        source=Register("metax-tech.com/node-gpu-devices", read=_records),
        group=_zone,
        policy=_policy,
        rules=_Sgpu(),
    ),
    handoff=HandOff(
        allocated="hami.io/metax-sgpu-devices-allocated",
        to_allocate="hami.io/metax-sgpu-devices-to-allocate",
        extra_keys=(_HELD, _TIME),
        told=_told,
    ),
)
VENDORS: Final[tuple[Vendor, ...]] = (WHOLE, SGPU)
