"""The chips of a node in the HAMi protocol, and the templates that cut them."""

from collections import Counter
from typing import Final

from core.dialects.ascend_hami import keys
from core.dialects.ascend_hami.register import NO_CHARACTER, Record, decode_register
from core.dialects.ascend_hami.table import AscendChip, AscendTable, AscendTemplate
from core.errors import InvalidRequestError, quoted
from core.model import Node
from core.names import MAX_REGISTERED_CARDS
from core.port.cards import Offer
from core.port.refusals import Complaint, Reason
from core.settings import DialectName
from core.sharing.card import Card, Fixed, Kind, shared, with_fault
from core.sharing.offers import allocatable, offered
from core.sharing.slices import Profile, Templates
from core.tables import Tables
from core.units import with_article

_NAME = DialectName("ascend_hami")
# What separates entries and fields of an assignment; no device can be named with these.
_SYNTAX: Final = frozenset(",:;" + NO_CHARACTER)
_REPEATED: Final = (
    "its id is in several registers; remove the one of the device plugin that does not run there any more"
)


# The name of the template of all of a chip, which the plugin does not cut.
WHOLE_CHIP: Final = "the whole chip"


def trim(chip: AscendChip, memory_mib: int) -> Profile | None:
    """*memory_mib* rounded up to a template, to the whole chip, or None above its capacity (ascend 4.3, H-3)."""
    for one in chip.templates:
        if memory_mib <= one.memory_mib:
            return _template(one)
    return _whole(chip) if memory_mib <= chip.capacity_mib else None


def _template(one: AscendTemplate) -> Profile:
    return Profile(one.name, one.memory_mib, one.memory_mib, counted=(one.ai_core, one.ai_cpu))


def _whole(chip: AscendChip) -> Profile:
    return Profile(WHOLE_CHIP, chip.allocatable_mib, chip.allocatable_mib, counted=(chip.ai_core, chip.ai_cpu))


def chips_of(tables: Tables) -> tuple[AscendChip, ...]:
    """The chip types of the device configuration."""
    return tables.of(AscendTable).chips


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
        if chip.common_word == keys.SOLD_BY_CORE and allocatable(node, keys.NPU_CORE):
            # Which of both serves the node is settled among dialects; that both plugins run there is said here.
            complaints.append(Complaint(dialect=_NAME, field=f"allocatable {keys.NPU_CORE}", problem=_clash(node)))
    if not cards:
        return complaints[0] if complaints else None
    # A chip in the registers of several types would be sold once for each, and what is held could not be told apart.
    count = Counter([card.fixed.uuid for card in cards])
    cards = [card if count[card.fixed.uuid] == 1 else with_fault(card, Reason.UNUSABLE, _REPEATED) for card in cards]
    return offered(_NAME, cards, complaints)


def soft_node(node: Node, tables: Tables) -> bool:
    """Whether *node* slices its chips softly: its own word, or else the configuration's (ascend 4.1)."""
    word = node.annotations.get(keys.NODE_SOFT)
    return tables.of(AscendTable).soft_by_default if word is None else word == keys.TRUE


def cards_of(records: tuple[Record, ...], chip: AscendChip, *, soft: bool) -> tuple[Card, ...]:
    """The chips of *records*, nothing in use; of records with one id the last counts (ascend 10.3)."""
    found = sorted({record.uuid: record for record in records}.values(), key=lambda one: one.position)
    # Rings mean something only where every device says which one it is in (ascend 4.6).
    ringed = chip.common_word.startswith(keys.RINGED_PREFIX) and all(one.network is not None for one in found)
    kinds = {memory_mib: _kind(chip, memory_mib, soft, ringed) for memory_mib in {one.memory_mib for one in found}}
    return tuple([_card(record, chip, kinds[record.memory_mib]) for record in found])


def _kind(chip: AscendChip, memory_mib: int, soft: bool, ringed: bool) -> Kind:
    # On a soft node memory and cores are shared out, and AI cores and AI CPUs are not.
    counted = () if soft else (chip.ai_core, chip.ai_cpu)
    templates = Templates(
        profiles=tuple([_template(one) for one in chip.templates]),
        whole=trim(chip, memory_mib) or Profile(WHOLE_CHIP, memory_mib, memory_mib),
        counted=counted,
        units=("AI cores", "AI CPUs") if counted else (),
        # AI CPUs are scarcer, where anybody says how many there are.
        scarce=max([at for at, total in enumerate(counted) if total], default=-1),
    )
    mode = keys.SOFT_MODE if soft else keys.TEMPLATE_MODE
    return shared(
        Kind(
            mode=mode,
            serves=(mode,),
            type=chip.common_word,
            memory=memory_mib,
            templates=templates,
            unit="%" if soft else "AI cores",
            module=keys.MODULE if chip.paired else 1,
            ringed=ringed,
        )
    )


def _card(record: Record, chip: AscendChip, kind: Kind) -> Card:
    soft = kind.mode == keys.SOFT_MODE
    fault, problem = _fault(record, chip)
    fixed = Fixed(
        uuid=record.uuid,
        position=record.position,
        slots=record.slots,
        memory=record.memory_mib,
        # Soft shares have percent of the cores, whatever the register says (ascend 4.4).
        cores=100 if soft else record.cores,
        words=(),
        label=chip.common_word,
        kind=kind,
        fault=fault,
        problem=problem,
        ring=(record.network or 0) if kind.ringed else 0,
    )
    return Card(fixed, counted=() if soft else (0, 0))


def _fault(record: Record, chip: AscendChip) -> tuple[Reason | None, str]:
    if not record.uuid or not _SYNTAX.isdisjoint(record.uuid):
        return Reason.UNUSABLE, f"its id {quoted(record.uuid)} cannot be written into an assignment"
    if record.type != chip.common_word:
        return Reason.UNUSABLE, f"its type is {quoted(record.type)}, not {chip.common_word}"
    if record.memory_mib <= 0 or trim(chip, record.memory_mib) is None:
        return (
            Reason.UNUSABLE,
            f"its memory of {record.memory_mib} MiB is not that of {with_article(chip.common_word)}; "
            "see the device configuration",
        )
    if not record.healthy:
        return Reason.UNHEALTHY, "the device plugin does not say that it is healthy"
    return None, ""


def _refused(node: Node, chip: AscendChip) -> str:
    """Why the register of *chip* counts for nothing on *node*, "" if it does."""
    if not allocatable(node, chip.resource):
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
