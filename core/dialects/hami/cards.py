"""The cards of a node as HAMi's plugin registers them."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from core.dialects.hami import another, keys
from core.dialects.hami.table import HamiTable
from core.errors import quoted
from core.model import Node
from core.port.cards import Offer
from core.port.refusals import CardFault, Complaint, Reason
from core.selection import type_words
from core.settings import Tables
from core.sharing.card import (
    HAMI_CORE,
    MIG,
    MODES,
    Card,
    Fixed,
    Kind,
    allocatable,
    cordoned_in_vain,
    kept_out,
    misnamed,
    offered,
    registered,
    shared,
    without_cordoned,
)
from core.sharing.fit import Rules
from core.sharing.slices import Group, Layout, Profile, Slice
from core.wire import hami_register as register
from core.wire.hami_register import Record, decode_links, decode_register

_LOST: Final = (
    f"it is not there, while HAMi's plugin ({another.LABEL}) has shares to sell: it does not write it again by "
    "itself; restart HAMi's device plugin on this node, or remove the label if NVIDIA's plugin serves it"
)
# Why a card that the register calls healthy may be the unhealthy one of its node (hami 3.6).
_LATE: Final = (
    "kubelet says that a card of this node is unhealthy, and the register does not say yet which; if that lasts longer "
    "than a minute, restart HAMi's device plugin there"
)
_REMOTE_REMEDY: Final = "leave its cards to HAMi's own scheduler"
# A register says it before every type, and text registers before that again.
_PREFIX: Final = "NVIDIA-"
# Profiles of one slice, and of half a card, are placed from the end (HN-7).
_FROM_THE_END: Final = ("1g.", "3g.")


class HamiRules(Rules):
    """HAMi's rules: one container can get several MIG instances of one card."""

    several = True


def offer(node: Node, tables: Tables) -> Offer[Card] | Complaint | None:
    """The cards that *node* registers; None where nothing is HAMi's, no card where NVIDIA serves it (hami 7.2).

    A complaint where neither can be told to.
    """
    text = node.annotations.get(keys.REGISTER)
    resource = tables.of(HamiTable).named.cards
    if tables.is_claimed(resource):
        return None
    field = f"annotation {keys.REGISTER}"
    if text is None:
        lost = _has_lost(node, tables.of(HamiTable))
        return Complaint(dialect=keys.NAME, field=field, problem=_LOST) if lost else None
    records = registered(keys.NAME, text, keys.REGISTER, decode_register)
    if isinstance(records, Complaint):
        return records
    if any(one.mode == keys.REMOTE for one in records):
        problem = f"node {node.name} serves its cards to other nodes over the network; {_REMOTE_REMEDY}"
        return Complaint(dialect=keys.NAME, field=field, problem=problem, remedy=_REMOTE_REMEDY)
    shares = allocatable(node, resource)
    if not shares:
        problem = f"node {node.name} registers cards but has no allocatable {resource}; {_remedy(node, records)}"
        return Complaint(dialect=keys.NAME, field=f"allocatable {resource}", problem=problem)
    if problem := another.answers(node, records, resource, shares):
        complaint = Complaint(dialect=keys.NAME, field=field, problem=problem, remedy=another.remedy(node))
        return Offer(cards=(), complaints=(complaint,))
    cards = without_cordoned(cards_of(records, node.annotations.get(keys.LINKS, "")), node)
    if _is_late(records, shares):
        cards = tuple([kept_out(card, CardFault(Reason.UNHEALTHY, _LATE)) for card in cards])
    return offered(keys.NAME, cards, cordoned_in_vain(keys.NAME, cards, node))


def _is_late(records: tuple[Record, ...], shares: int) -> bool:
    """Whether *shares*, which kubelet has, are fewer than those of healthy cards: the register follows within 30 s.

    In mode MIG the register does not tell how many these are.
    """
    return shares < sum(one.slots for one in records if one.healthy) and not any(one.mode == MIG for one in records)


def well(cards: Iterable[Card]) -> frozenset[str]:
    """The cards that no register calls unhealthy, so that those beside an unhealthy one do not count as such."""
    found = [card.fixed for card in cards]
    return frozenset([one.uuid for one in found if one.fault is not Reason.UNHEALTHY or one.problem == _LATE])


def _remedy(node: Node, records: tuple[Record, ...]) -> str:
    """What to do about a plugin that seems not to offer what the configuration names."""
    slots = sum(record.slots for record in records)
    for name in sorted(node.allocatable):
        if name.startswith("nvidia.com/") and allocatable(node, name) == slots:
            return (
                f"it offers {slots} {name}, as many as its cards have slots: if HAMi sells by that name, set "
                "hami_config_namespace and hami_config_name to HAMi's ConfigMap"
            )
    return "see whether its plugin runs"


def _has_lost(node: Node, table: HamiTable) -> bool:
    """Whether HAMi's plugin sells shares here of cards that it has not registered, or not again (HN-20).

    Its register comes before what it has is allocatable. Where GPU feature discovery counts as many GPUs as are
    allocatable, NVIDIA's plugin sells them.
    """
    shares = allocatable(node, table.named.cards)
    return table.installed and another.is_labelled(node) and shares > 0 and not another.counted(node, shares)


def cards_of(records: tuple[Record, ...], links: str = "") -> tuple[Card, ...]:
    """The cards of *records*, nothing in use; *links*: the text of their scores."""
    count = Counter(record.uuid for record in records)
    scores = decode_links(links)
    return tuple(Card(_fixed(record, count[record.uuid] > 1, scores.get(record.uuid, {}))) for record in records)


def _fixed(record: Record, repeated: bool, links: Mapping[str, int]) -> Fixed:
    mode = record.mode or HAMI_CORE
    kind = Kind(
        mode=mode,
        # A register that names no mode is older than the choice of one.
        serves=(mode,) if record.mode else (),
        type=record.type,
        memory=record.memory_mib,
        cores=record.cores,
        layout=_layout_of(record.profiles) if mode == MIG else (),
    )
    fault, problem = _fault(record, repeated)
    return Fixed(
        uuid=record.uuid,
        position=record.position,
        slots=record.slots,
        memory=record.memory_mib,
        cores=record.cores,
        words=type_words(record.type),
        label=_label(record.type),
        kind=shared(kind),
        fault=fault,
        problem=problem,
        numa=record.numa,
        links=tuple(sorted(links.items())),
    )


def _layout_of(profiles: Iterable[register.Profile]) -> Layout:
    """Return *profiles* from the smallest, with their places in the order in which they are tried (hami 4.7)."""
    found: list[Profile] = []
    for one in sorted(profiles, key=lambda one: (one.memory_mib, one.slices)):
        places = sorted(one.placements, reverse=one.name.startswith(_FROM_THE_END))
        slices = tuple([Slice("", start, size) for start, size in places])
        found.append(Profile(one.name, one.memory_mib, one.memory_mib, slices, one.cores))
    return (Group("", tuple(found)),) if found else ()


def _fault(record: Record, repeated: bool) -> tuple[Reason | None, str]:
    if record.problem:
        return Reason.UNUSABLE, record.problem
    if problem := misnamed(record.uuid, repeated=repeated):
        return Reason.UNUSABLE, problem
    if keys.NVIDIA not in record.type.upper():
        return Reason.UNUSABLE, f"its type {quoted(record.type)} is no NVIDIA card"
    if record.memory_mib <= 0 or record.cores <= 0:
        # The plugin hands out 0 MiB as no limit at all (hami 1.8).
        return Reason.UNUSABLE, f"its register has {record.memory_mib} MiB and {record.cores} % cores"
    if record.mode == MIG and not record.profiles:
        return (
            Reason.UNUSABLE,
            "MIG of this version of HAMi's plugin is not supported; v2.10 or later registers profiles",
        )
    if not record.healthy:
        return Reason.UNHEALTHY, "the device plugin does not say that it is healthy"
    if record.mode and record.mode not in MODES:
        # Every word but mig changes nothing in the plugin (hami 1.7).
        return None, f"mode {quoted(record.mode)} is unknown and shared as {HAMI_CORE} is"
    return None, ""


def _label(text: str) -> str:
    while text.startswith(_PREFIX):
        text = text.removeprefix(_PREFIX)
    return text.removeprefix(f"{keys.NVIDIA} ")
