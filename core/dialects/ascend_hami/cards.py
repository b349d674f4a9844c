"""The chips of a node in the HAMi protocol, and the templates that cut them."""

from collections import Counter
from typing import Final

from core.dialects.ascend_hami import keys
from core.dialects.ascend_hami.table import WHOLE_CHIP, AscendChip, AscendTable
from core.errors import quoted
from core.model import Node
from core.names import MAX_REGISTERED_CARDS
from core.port.cards import Offer
from core.port.refusals import Complaint, Reason
from core.settings import DialectName, Tables
from core.sharing.card import (
    Card,
    Fixed,
    Kind,
    allocatable,
    cordoned_in_vain,
    misnamed,
    offered,
    registered,
    shared,
    with_fault,
    without_cordoned,
)
from core.sharing.slices import Profile, Templates
from core.units import with_article
from core.wire.hami_register import Record, decode_whole_register

NAME: Final = DialectName("ascend_hami")
_REPEATED: Final = (
    "its id is in several registers; remove the one of the device plugin that does not run there any more"
)

_ENPU_REMEDY: Final = "set the node's mode to template or hami-core, or leave its pods to that scheduler"
_ENPU: Final = f"the node slices its chips by ENPU, and only HAMi's own scheduler serves that; {_ENPU_REMEDY}"


def trim(chip: AscendChip, memory_mib: int) -> Profile | None:
    """Return *memory_mib* rounded up to a template or the whole chip; None above its capacity (ascend 4.3, H-3)."""
    for one in chip.templates:
        if memory_mib <= one.memory_mib:
            return one
    return chip.whole if memory_mib <= chip.capacity_mib else None


def chips_of(tables: Tables) -> tuple[AscendChip, ...]:
    """Return the chip types of the device configuration."""
    return tables.of(AscendTable).chips


def offer(node: Node, tables: Tables) -> Offer[Card] | Complaint | None:
    """Return the chips that *node* registers, of all types; None without a register, a complaint if none is usable."""
    mode = tables.of(AscendTable).mode
    soft = _says(node, keys.NODE_SOFT, mode == keys.SOFT)
    cards: list[Card] = []
    complaints: list[Complaint] = []
    for chip in chips_of(tables):
        key = keys.register(chip.named.type)
        text = node.annotations.get(key)
        if text is None:
            continue
        found = _of_type(node, chip, key, text, soft)
        if isinstance(found, Complaint):
            complaints.append(found)
        elif len(cards) + len(found) > MAX_REGISTERED_CARDS:
            problem = f"the registers of the node name more than {MAX_REGISTERED_CARDS} devices; this one is left out"
            complaints.append(Complaint(dialect=NAME, field=f"annotation {key}", problem=problem))
        else:
            cards += found
            # Dialects settle which of two protocols serves the node; this only reports that both plugins run.
            if chip.named.type == keys.SOLD_BY_CORE and allocatable(node, keys.NPU_CORE):
                complaints.append(_clash(node))
    if not cards:
        return complaints[0] if complaints else None
    if not soft and _says(node, keys.NODE_ENPU, mode == keys.ENPU):
        return Complaint(dialect=NAME, field=f"annotation {keys.NODE_ENPU}", problem=_ENPU, remedy=_ENPU_REMEDY)
    # A chip in the registers of several types would be sold once for each, and what is held could not be told apart.
    count = Counter([card.fixed.uuid for card in cards])
    cards = [card if count[card.fixed.uuid] == 1 else with_fault(card, Reason.UNUSABLE, _REPEATED) for card in cards]
    return offered(NAME, without_cordoned(cards, node), (*complaints, *cordoned_in_vain(NAME, cards, node)))


def _says(node: Node, key: str, otherwise: bool) -> bool:
    """Return whether annotation *key* of *node* is true, or *otherwise* if it is absent."""
    word = node.annotations.get(key)
    return otherwise if word is None else word == keys.TRUE


def _of_type(node: Node, chip: AscendChip, key: str, text: str, soft: bool) -> list[Card] | Complaint:
    """Return the chips of one type, which *text* of annotation *key* registers."""
    if not allocatable(node, chip.named.cards):
        why = "see whether its device plugin runs"
        problem = f"node {node.name} registers devices but has no allocatable {chip.named.cards}; {why}"
        return Complaint(dialect=NAME, field=f"annotation {key}", problem=problem)
    records = registered(NAME, text, key, decode_whole_register)
    return records if isinstance(records, Complaint) else _cards_of(records, chip, soft=soft)


def _clash(node: Node) -> Complaint:
    problem = (
        f"node {node.name} offers its chips by {keys.NPU_CORE} too: two device plugins hand out the same chips and "
        "destroy each other's slices; run only one of them on the node"
    )
    return Complaint(dialect=NAME, field=f"allocatable {keys.NPU_CORE}", problem=problem)


def _cards_of(records: tuple[Record, ...], chip: AscendChip, *, soft: bool) -> list[Card]:
    """Return the unused chips of *records* by index; of records with one id the last counts (ascend 10.3)."""
    found = sorted({record.uuid: record for record in records}.values(), key=lambda one: one.position)
    # Rings mean something only where every device says which one it is in (ascend 4.6).
    ringed = chip.named.type.startswith(keys.RINGED_PREFIX) and all(one.ring is not None for one in found)
    kinds = {memory_mib: _kind(chip, memory_mib, soft, ringed) for memory_mib in {one.memory_mib for one in found}}
    # Soft shares have percent of the cores (ascend 4.4): less than 100 in the register are AI cores, more are promised
    # on purpose. Nothing else is counted of them.
    return [
        Card(
            _fixed(record, chip, kinds[record.memory_mib], max(record.cores, 100) if soft else record.cores),
            counted=() if soft else (0, 0),
        )
        for record in found
    ]


def _kind(chip: AscendChip, memory_mib: int, soft: bool, ringed: bool) -> Kind:
    counted = () if soft else (chip.ai_core, chip.ai_cpu)
    templates = Templates(
        profiles=chip.templates,
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
            type=chip.named.type,
            memory=memory_mib,
            templates=templates,
            unit="%" if soft else "AI cores",
            module=keys.MODULE if chip.paired else 1,
            ringed=ringed,
        )
    )


def _fixed(record: Record, chip: AscendChip, kind: Kind, cores: int) -> Fixed:
    fault, problem = _fault(record, chip)
    return Fixed(
        uuid=record.uuid,
        position=record.position,
        slots=record.slots,
        memory=record.memory_mib,
        cores=cores,
        words=(),
        label=chip.named.type,
        kind=kind,
        fault=fault,
        problem=problem,
        ring=(record.ring or 0) if kind.ringed else 0,
    )


def _fault(record: Record, chip: AscendChip) -> tuple[Reason | None, str]:
    if problem := misnamed(record.uuid):
        return Reason.UNUSABLE, problem
    if record.type != chip.named.type:
        return Reason.UNUSABLE, f"its type is {quoted(record.type)}, not {chip.named.type}"
    if record.memory_mib <= 0 or trim(chip, record.memory_mib) is None:
        return (
            Reason.UNUSABLE,
            f"its memory of {record.memory_mib} MiB is not that of {with_article(chip.named.type)}; "
            "see the device configuration",
        )
    if not record.healthy:
        return Reason.UNHEALTHY, "the device plugin does not say that it is healthy"
    return None, ""
