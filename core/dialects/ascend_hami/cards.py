"""The chips of a node in the HAMi protocol, what is in use on them, and the templates that cut them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from core.dialects.ascend_hami import keys
from core.dialects.ascend_hami.register import NO_CHARACTER, Record, decode_register
from core.errors import InvalidRequestError, quoted
from core.model import Node
from core.names import MAX_REGISTERED_CARDS
from core.port.cards import Offer
from core.port.refusals import Complaint, Reason
from core.settings import DialectName
from core.tables import AscendChip, Tables
from core.units import parse_amount, with_article

_NAME = DialectName("ascend_hami")
# What separates entries and fields of an assignment; no device can be named with these.
_SYNTAX: Final = frozenset(",:;" + NO_CHARACTER)
# A soft node shares its chips' cores by percent, whatever the chip.
_PERCENT: Final = 100


class Cut(NamedTuple):
    """What one share takes of a chip: memory in MiB, the template's name ("" without one), AI cores and AI CPUs."""

    memory_mib: int
    template: str = ""
    ai_core: int = 0
    ai_cpu: int = 0


NOTHING: Final = Cut(0)


class Kind(NamedTuple):
    """What chips have in common that answer alike: type, memory, the cut of all of it, soft slicing, rings.

    ai_core, ai_cpu: what a chip has of them by the tables, 0 where these do not say: then nobody counts them.
    """

    word: str
    memory: int
    whole: Cut
    soft: bool
    ringed: bool
    ai_core: int
    ai_cpu: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """All of a chip that does not change as it fills.

    slots: how many shares it may hold. memory in MiB. cores: what its cores are shared out of (percent on a soft
    node, else AI cores). network: its ring, None where the node has no rings. whole: the cut of one who asks for no
    memory. fault: why the chip takes nothing, None if it does; problem: the same for people. templates: the cuts that
    are less than all of it, ascending.
    """

    uuid: str
    position: int
    word: str
    slots: int
    memory: int
    cores: int
    network: int | None
    soft: bool
    ai_core: int
    ai_cpu: int
    whole: Cut
    kind: Kind
    fault: Reason | None
    problem: str
    templates: tuple[Cut, ...]


class Card(NamedTuple):
    """One chip and what is in use on it.

    cuts: shares in template mode, whole chips included; the other shares are soft. unread: entries that name this
    chip but do not say how much of it they take; while there are any it takes nothing new.
    """

    fixed: Fixed
    used_slots: int = 0
    used_memory: int = 0
    used_cores: int = 0
    used_ai_core: int = 0
    used_ai_cpu: int = 0
    cuts: int = 0
    unread: int = 0


def trim(chip: AscendChip, memory_mib: int) -> Cut | None:
    """*memory_mib* rounded up to a template, to the whole chip, or None above its capacity (ascend 4.3, H-3)."""
    for template in chip.templates:
        if memory_mib <= template.memory_mib:
            return Cut(template.memory_mib, template.name, template.ai_core, template.ai_cpu)
    if memory_mib <= chip.capacity_mib:
        return Cut(chip.allocatable_mib, "", chip.ai_core, chip.ai_cpu)
    return None


def chips_of(tables: Tables) -> tuple[AscendChip, ...]:
    """The chip types of the device configuration."""
    return tables.ascend.chips


def offer(node: Node, tables: Tables) -> Offer[Card] | Complaint | None:
    """The chips that *node* registers, of all types, each in the order of its register's index."""
    cards: list[Card] = []
    complaints: list[Complaint] = []
    for chip in chips_of(tables):
        key = keys.register(chip.common_word)
        text = node.annotations.get(key)
        if text is None:
            continue
        problem = _refused(node, chip)
        if problem:
            complaints.append(Complaint(dialect=_NAME, field=f"annotation {key}", problem=problem))
            continue
        try:
            records = decode_register(text, f"annotation {key}")
        except InvalidRequestError as e:
            complaints.append(Complaint(dialect=_NAME, field=e.field, problem=f"found {e.found}; {e.remedy}"))
            continue
        if len(cards) + len(records) > MAX_REGISTERED_CARDS:
            told = f"with this one the node's registers name more than {MAX_REGISTERED_CARDS} devices; it is left out"
            complaints.append(Complaint(dialect=_NAME, field=f"annotation {key}", problem=told))
            continue
        if not records:
            complaints.append(Complaint(dialect=_NAME, field=f"annotation {key}", problem="it names no device"))
        cards += cards_of(records, chip, soft=soft_node(node, tables))
        if chip.common_word == keys.SOLD_BY_CORE and _allocatable(node, keys.NPU_CORE):
            # Which of both serves the node is settled among dialects; that both plugins run there is said here.
            complaints.append(Complaint(dialect=_NAME, field=f"allocatable {keys.NPU_CORE}", problem=_clash(node)))
    if not cards:
        return complaints[0] if complaints else None
    cards = _told_apart(cards)
    complaints += [
        Complaint(dialect=_NAME, field=f"card {quoted(card.fixed.uuid)}", problem=card.fixed.problem)
        for card in cards
        if card.fixed.fault is Reason.UNUSABLE
    ]
    return Offer(cards=tuple(cards), complaints=tuple(complaints))


def _told_apart(cards: Sequence[Card]) -> list[Card]:
    """*cards*, where those take nothing whose id stands in the registers of several types.

    They are one chip, which would be sold once for each register, and what is held could not be told apart.
    """
    count = Counter(card.fixed.uuid for card in cards)
    return [card if count[card.fixed.uuid] == 1 else _set_aside(card) for card in cards]


def _set_aside(card: Card) -> Card:
    problem = "its id is in several registers; remove the one of the device plugin that does not run there any more"
    return card._replace(fixed=replace(card.fixed, fault=Reason.UNUSABLE, problem=problem))


def soft_node(node: Node, tables: Tables) -> bool:
    """Whether *node* slices its chips softly: its own word, or else the configuration's (ascend 4.1)."""
    word = node.annotations.get(keys.NODE_SOFT)
    return tables.ascend.soft_by_default if word is None else word == keys.TRUE


def cards_of(records: tuple[Record, ...], chip: AscendChip, *, soft: bool) -> tuple[Card, ...]:
    """The chips of *records*, nothing in use; of records with one id the last counts (ascend 10.3)."""
    by_id = {record.uuid: record for record in records}
    # Rings mean something only where every device says which one it is in (ascend 4.6).
    ringed = chip.common_word.startswith(keys.RINGED_PREFIX) and all(one.network is not None for one in by_id.values())
    kinds: dict[int, Kind] = {}
    templates = tuple(Cut(one.memory_mib, one.name, one.ai_core, one.ai_cpu) for one in chip.templates)
    cards: list[Card] = []
    for record in sorted(by_id.values(), key=lambda one: one.position):
        whole = trim(chip, record.memory_mib)
        kind = kinds.setdefault(
            record.memory_mib,
            Kind(chip.common_word, record.memory_mib, whole or NOTHING, soft, ringed, chip.ai_core, chip.ai_cpu),
        )
        fault, problem = _fault(record, chip, whole)
        cards.append(
            Card(
                Fixed(
                    uuid=record.uuid,
                    position=record.position,
                    word=chip.common_word,
                    slots=record.slots,
                    memory=record.memory_mib,
                    cores=record.cores,
                    network=record.network if ringed else None,
                    soft=soft,
                    ai_core=chip.ai_core,
                    ai_cpu=chip.ai_cpu,
                    whole=whole or NOTHING,
                    kind=kind,
                    fault=fault,
                    problem=problem,
                    templates=templates,
                )
            )
        )
    return tuple(cards)


def cores_total(fixed: Fixed, *, soft: bool) -> int:
    """What cores are shared out of: percent for soft shares, else what the register says (ascend 4.4)."""
    return _PERCENT if soft else fixed.cores


def _fault(record: Record, chip: AscendChip, whole: Cut | None) -> tuple[Reason | None, str]:
    if not record.uuid or not _SYNTAX.isdisjoint(record.uuid):
        return Reason.UNUSABLE, f"its id {quoted(record.uuid)} cannot be written into an assignment"
    if record.type != chip.common_word:
        return Reason.UNUSABLE, f"its type is {quoted(record.type)}, not {chip.common_word}"
    if record.memory_mib <= 0 or whole is None:
        return (
            Reason.UNUSABLE,
            f"its memory of {record.memory_mib} MiB is not that of {with_article(chip.common_word)}; "
            "see the device configuration",
        )
    if not record.healthy:
        return Reason.UNHEALTHY, "the device plugin does not say that it is healthy"
    return None, ""


def unnamed(card: Card, at: int) -> Card:
    """*card*, the one at *at*, as chips like it on other nodes are; an id that cannot be used is kept."""
    if card.fixed.fault is Reason.UNUSABLE:
        return card
    return card._replace(fixed=replace(card.fixed, uuid=f"chip {at}"))


def _refused(node: Node, chip: AscendChip) -> str:
    """Why the register of *chip* counts for nothing on *node*, "" if it does."""
    if not _allocatable(node, chip.resource):
        return (
            f"node {node.name} registers devices but has no allocatable {chip.resource}; "
            "see whether its device plugin runs"
        )
    return ""


def _clash(node: Node) -> str:
    return (
        f"node {node.name} offers its chips by {keys.SOLD_BY_CORE} too: two device plugins hand out the same chips and "
        "destroy each other's slices; run only one of them on the node"
    )


def _allocatable(node: Node, resource: str) -> bool:
    text = node.allocatable.get(resource, "")
    try:
        return bool(text) and parse_amount(text, resource) > 0
    except InvalidRequestError:
        return False
