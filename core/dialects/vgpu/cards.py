"""The cards of a node as the Volcano vGPU plugin registers them."""

from core.dialects.vgpu import keys
from core.dialects.vgpu.table import VgpuTable
from core.errors import InvalidRequestError, quoted
from core.model import Node
from core.names import VGPU_REGISTER
from core.port.cards import Offer
from core.port.refusals import Complaint, Reason
from core.selection import type_words
from core.settings import DialectName, Tables
from core.sharing import slices
from core.sharing.card import HAMI_CORE, MIG, MODES, MPS, Card, Fixed, Kind, allocatable, misnamed, offered, shared
from core.sharing.slices import Layout
from core.wire.vgpu_register import Record, decode_register

_NAME = DialectName("vgpu")


def offer(node: Node, tables: Tables) -> Offer[Card] | Complaint | None:
    """The cards that *node* registers; None without a register.

    The register counts only while the plugin's three resources are allocatable (nvidia 2.4 step 3), by the names
    of the configuration (S18); plugins of v1.9 advertise the number alone.
    """
    text = node.annotations.get(VGPU_REGISTER)
    if text is None:
        return None
    table = tables.of(VgpuTable)
    wanted = (table.named.cards, table.named.memory, table.named.cores)
    missing = next((resource for resource in wanted if not allocatable(node, resource)), "")
    # What was advertised once, kubelet keeps as 0.
    by_number = missing in wanted[1:] and node.allocatable.keys().isdisjoint(wanted[1:])
    if missing and not by_number:
        return _without(node, missing)
    try:
        records = decode_register(text)
    except InvalidRequestError as error:
        return Complaint(dialect=_NAME, field=error.field, problem=f"found {error.found}; {error.remedy}")
    if by_number and any(record.healthy is not None for record in records):
        return _without(node, missing)
    if not records:
        return Complaint(dialect=_NAME, field=f"annotation {VGPU_REGISTER}", problem="it names no card")
    ordered = keys.HANDSHAKE not in node.annotations
    cards = cards_of(records if ordered else _in_one_order(records), table, ordered=ordered)
    return offered(_NAME, cards)


def _without(node: Node, resource: str) -> Complaint:
    return Complaint(
        dialect=_NAME,
        field=f"allocatable {resource}",
        problem=f"node {node.name} registers cards but has none of this resource; "
        "see whether its device plugin runs and its list of devices is short enough for kubelet",
    )


def _in_one_order(records: tuple[Record, ...]) -> tuple[Record, ...]:
    """*records* of a plugin that names them in another order every 30 s (P18): no change where no card has changed."""
    by_uuid = sorted(records, key=lambda record: record.uuid)
    return tuple(record._replace(position=at) for at, record in enumerate(by_uuid))


def cards_of(records: tuple[Record, ...], table: VgpuTable, *, ordered: bool = True) -> tuple[Card, ...]:
    """The cards of *records*, nothing in use. The last record decides which mode the node is in (S7)."""
    node_in_mig = bool(records) and records[-1].mode == MIG
    seen: set[str] = set()
    cards: list[Card] = []
    for record in records:
        cards.append(Card(_fixed(record, table, node_in_mig, ordered, record.uuid in seen)))
        seen.add(record.uuid)
    return tuple(cards)


def layout_of(card_type: str, table: VgpuTable) -> Layout:
    """The layouts of the first geometry with a model that *card_type* contains (nvidia 3.6); empty without one."""
    for geometry in table.geometries:
        if any(model in card_type for model in geometry.models):
            return slices.in_units(geometry.layout, table.named.mib_per_unit)
    return ()


def _fixed(record: Record, table: VgpuTable, node_in_mig: bool, ordered: bool, repeated: bool) -> Fixed:
    layout = layout_of(record.type, table) if record.mode == MIG else ()
    mode = record.mode if record.mode in MODES else HAMI_CORE
    kind = Kind(
        mode=mode,
        # Cards in mode mps are limited as those in hami-core are (nvidia 2.6), so both words can ask for them.
        serves=(mode, HAMI_CORE) if mode == MPS else (mode,),
        type=record.type,
        memory=record.memory,
        factor=table.named.mib_per_unit,
        layout=layout,
        slack=max(slices.most_charged(layout) - record.memory, 0),
    )
    fault, problem = _fault(record, node_in_mig, layout, repeated)
    return Fixed(
        uuid=record.uuid,
        position=record.position,
        slots=record.slots,
        memory=record.memory,
        cores=100,
        words=type_words(record.type),
        label=record.type.removeprefix("NVIDIA-"),
        kind=shared(kind),
        fault=fault,
        problem=problem,
        ordered=ordered,
    )


def _fault(record: Record, node_in_mig: bool, layout: Layout, repeated: bool) -> tuple[Reason | None, str]:
    if problem := record.problem or misnamed(record.uuid, repeated=repeated):
        return Reason.UNUSABLE, problem
    if "NVIDIA" not in record.type:
        return Reason.UNUSABLE, f"its type {quoted(record.type)} is no NVIDIA card"
    if record.healthy is False:
        return Reason.UNHEALTHY, "the device plugin says that it is unhealthy"
    if (record.mode == MIG) != node_in_mig:
        return Reason.MODE, f"it is in mode {quoted(record.mode)}, the node's other cards are not"
    if node_in_mig and not layout:
        return (
            Reason.UNUSABLE,
            f"no known MIG geometry is for {quoted(record.type)}; add its model to knownMigGeometries",
        )
    if record.mode not in MODES:
        # Plugin and scheduler alike take every word but mig for hami-core (nvidia 1.7, 2.6).
        return None, f"mode {quoted(record.mode)} is unknown and taken for {HAMI_CORE}"
    return None, ""
