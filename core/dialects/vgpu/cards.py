"""The cards of a node in the vGPU protocol, and what is in use on them."""

from functools import lru_cache
from typing import Final, NamedTuple

from core.dialects.vgpu import keys, mig
from core.errors import InvalidRequestError, quoted
from core.model import Node
from core.names import VGPU_REGISTER
from core.port.cards import Offer
from core.port.refusals import Complaint, Reason
from core.selection import Words, type_words
from core.settings import DialectName
from core.tables import Tables, VgpuTable
from core.units import is_text, parse_amount
from core.wire.vgpu_register import Record, decode_register

_NAME = DialectName("vgpu")
# What parts the containers of an assignment, and the slice from its card; no card can be named with these.
_SYNTAX: Final = frozenset(";[")


class Kind(NamedTuple):
    """What cards have in common that answer alike: mode, type, memory in register units, MiB per unit, layouts.

    slack: by how much the slices of a layout are larger together than the memory, if they are.
    """

    mode: str
    type: str
    memory: int
    factor: int
    layout: mig.Layout
    slack: int = 0

    def __hash__(self) -> int:
        """A hash without the layouts, which are large and follow from the type."""
        return hash((self.mode, self.type, self.memory, self.factor))


class Sliced(NamedTuple):
    """MIG cards of one kind that give one more share the same slice: memory used and free, slices as in `canonical`."""

    kind: Kind
    slices: tuple[mig.Slice, ...]
    used: int
    free: int


class Fixed(NamedTuple):
    """All of a card that does not change as it fills.

    slots: how many shares it may hold. memory: in register units of *factor* MiB. fault: why the card takes
    nothing, None if it does; problem: the same for people, or what else they should know. ordered: whether position
    means the same card tomorrow.
    """

    uuid: str
    position: int
    slots: int
    memory: int
    words: Words
    mode: str
    layout: mig.Layout
    kind: Kind
    fault: Reason | None
    problem: str
    ordered: bool


class Card(NamedTuple):
    """One card and what is in use on it.

    groups: pod groups of its holders, rules: exclusive rules that they match, each once per share. slices: MIG
    slices in use. All three are sorted, so that the order of takes leaves no trace. unread: entries that name this
    card but do not say how much of it they take; while there are any it takes nothing new.
    """

    fixed: Fixed
    used_slots: int = 0
    used_memory: int = 0
    used_cores: int = 0
    groups: tuple[str, ...] = ()
    rules: tuple[int, ...] = ()
    slices: tuple[mig.Slice, ...] = ()
    unread: int = 0


def offer(node: Node, tables: Tables) -> Offer[Card] | Complaint | None:
    """The cards that *node* registers; None without a register.

    The register counts only while the plugin's three resources are allocatable (nvidia 2.4 step 3), by the names
    of the configuration (S18); plugins of v1.9 advertise the number alone.
    """
    text = node.annotations.get(VGPU_REGISTER)
    if text is None:
        return None
    table = tables.vgpu
    wanted = (table.number_resource, table.memory_resource, table.cores_resource)
    missing = next((resource for resource in wanted if not _allocatable(node, resource)), "")
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
    complaints = tuple(
        Complaint(dialect=_NAME, field=f"card {quoted(card.fixed.uuid)}", problem=card.fixed.problem)
        for card in cards
        if card.fixed.fault is Reason.UNUSABLE
    )
    return Offer(cards=cards, complaints=complaints)


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
    node_in_mig = bool(records) and records[-1].mode == keys.MIG
    seen: set[str] = set()
    cards: list[Card] = []
    for record in records:
        cards.append(Card(_fixed(record, table, node_in_mig, ordered, record.uuid in seen)))
        seen.add(record.uuid)
    return tuple(cards)


def _fixed(record: Record, table: VgpuTable, node_in_mig: bool, ordered: bool, repeated: bool) -> Fixed:
    in_mig = record.mode == keys.MIG
    mode = record.mode if record.mode in keys.MODES else keys.HAMI_CORE
    layout = mig.layout_of(record.type, table) if in_mig else ()
    fault, problem = _fault(record, node_in_mig, layout, repeated)
    return Fixed(
        uuid=record.uuid,
        position=record.position,
        slots=record.slots,
        memory=record.memory,
        words=type_words(record.type),
        mode=mode,
        layout=layout,
        kind=_shared(
            Kind(
                mode,
                record.type,
                record.memory,
                max(table.memory_factor, 1),
                layout,
                max(mig.most_charged(layout) - record.memory, 0),
            )
        ),
        fault=fault,
        problem=problem,
        ordered=ordered,
    )


@lru_cache(maxsize=1 << 10)
def _shared(kind: Kind) -> Kind:
    """One value for all cards of a kind, which are compared at every change of their node."""
    return kind


def _fault(record: Record, node_in_mig: bool, layout: mig.Layout, repeated: bool) -> tuple[Reason | None, str]:
    if record.problem:
        return Reason.UNUSABLE, record.problem
    if repeated or not record.uuid:
        return Reason.UNUSABLE, "the register names it twice" if record.uuid else "it has no uuid"
    if not _SYNTAX.isdisjoint(record.uuid) or not is_text(record.uuid):
        return Reason.UNUSABLE, f"its id {quoted(record.uuid)} cannot be written into an assignment"
    if "NVIDIA" not in record.type:
        return Reason.UNUSABLE, f"its type {quoted(record.type)} is no NVIDIA card"
    if record.healthy is False:
        return Reason.UNHEALTHY, "the device plugin says that it is unhealthy"
    if (record.mode == keys.MIG) != node_in_mig:
        return Reason.MODE, f"it is in mode {quoted(record.mode)}, the node's other cards are not"
    if node_in_mig and not layout:
        return (
            Reason.UNUSABLE,
            f"no known MIG geometry is for {quoted(record.type)}; add its model to knownMigGeometries",
        )
    if record.mode not in keys.MODES:
        # Plugin and scheduler alike take every word but mig for hami-core (nvidia 1.7, 2.6).
        return None, f"mode {quoted(record.mode)} is unknown and taken for {keys.HAMI_CORE}"
    return None, ""


def ordered(card: Card) -> Card:
    """*card* of a node whose plugin names its cards in one order."""
    return card if card.fixed.ordered else card._replace(fixed=card.fixed._replace(ordered=True))


def unnamed(card: Card) -> Card:
    """*card* as cards like it on other nodes are; an id that cannot be used is kept, because it says why."""
    if card.fixed.fault is Reason.UNUSABLE:
        return card
    # Whether its position means anything is told by the age of a handshake, which only who watches for long can tell.
    return card._replace(fixed=card.fixed._replace(uuid=f"card {card.fixed.position}", ordered=True))


def _allocatable(node: Node, resource: str) -> bool:
    text = node.allocatable.get(resource, "")
    try:
        return bool(text) and parse_amount(text, resource) > 0
    except InvalidRequestError:
        return False
