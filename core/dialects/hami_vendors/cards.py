"""The cards of a node, as its register or its capacity has them.

Source: protocol reference, hami-vendors 2.4 and 3, with VN-7, VN-32 and VN-39 done as they say.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from core.dialects.hami_vendors.vendor import Capacity, Register, Vendor
from core.errors import InvalidRequestError, quoted
from core.model import Node
from core.names import MAX_REGISTERED_CARDS
from core.port.cards import Offer
from core.port.refusals import Complaint, Reason
from core.selection import decode_indices, type_words
from core.sharing.card import (
    CORDON,
    Card,
    Fixed,
    Kind,
    allocatable,
    misnamed,
    offered,
    registered,
    shared,
    without_cordoned,
)
from core.sharing.request import Resources
from core.units import parse_amount
from core.wire.hami_register import Record, decode_register, is_json

# What separates entries and fields of an assignment; nothing in it can have these in its name.
_SYNTAX: Final = frozenset(",:;[")
# No card has more cores that are given one by one.
_MAX_CORES: Final = 64


def offer(vendor: Vendor, named: Resources, node: Node) -> Offer[Card] | Complaint | None:
    """Return the cards of *vendor* on *node*; None if it has none, a complaint if they cannot be read or sold."""
    found = read(vendor, named, node)
    source = vendor.cards.source
    gate = named.cores if isinstance(source, Capacity) and source.has_cores else named.cards
    if not isinstance(found, Offer):
        return found
    field, left = f"allocatable {gate}", allocatable(node, gate)
    if not left:
        problem = f"node {node.name} has cards of {vendor.word} but no allocatable {gate}; see whether its plugin runs"
        return Complaint(dialect=vendor.name, field=field, problem=problem)
    if isinstance(source, Capacity) and not vendor.handoff.kubelet_chooses and left < _capacity(node, gate):
        problem = (
            f"look in the log of the device plugin for an unhealthy card; node {node.name} has {_capacity(node, gate)} "
            f"{gate} but only {left} are allocatable, and pods can still get that card"
        )
        complaint = Complaint(dialect=vendor.name, field=field, problem=problem)
        return replace(found, complaints=(*found.complaints, complaint))
    return found


def read(vendor: Vendor, named: Resources, node: Node) -> Offer[Card] | Complaint | None:
    """Return the same, whether or not the plugin of *node* runs."""
    source = vendor.cards.source
    if isinstance(source, Register):
        text = node.annotations.get(source.key)
        if text is None:
            return None
        records = registered(vendor.name, text, source.key, partial(_decoded, source, node.name))
        if isinstance(records, Complaint):
            return records
    else:
        records = _of_capacity(vendor, source, named, node)
        if not records:
            return None
    cards = cards_of(vendor, records)
    left = without_cordoned(cards, node)
    if left == cards or not vendor.handoff.kubelet_chooses:
        return offered(vendor.name, left)
    remedy = "cordon the node instead"
    problem = f"kubelet chooses the cards of {vendor.word}, also those that are to be cordoned; {remedy}"
    told = Complaint(dialect=vendor.name, field=f"annotation {CORDON}", problem=problem, remedy=remedy, closes=False)
    return offered(vendor.name, cards, (told,))


def _decoded(source: Register, node: str, text: str, field: str) -> tuple[Record, ...]:
    """Read the register *text* of *node* in the form of *source*.

    Raises:
        InvalidRequestError: it is no register of this form.
    """
    if source.read is not None:
        return source.read(node, text, field)
    if is_json(text) is not source.has_json:
        form = "a list in JSON" if source.has_json else "text"
        raise InvalidRequestError(field, text, f"restart the device plugin so that it writes {form}")
    return decode_register(text, field)


def _of_capacity(vendor: Vendor, source: Capacity, named: Resources, node: Node) -> tuple[Record, ...]:
    number, memory_mib, slots = _capacity(node, named.cards), 0, source.slots
    if source.shares_cores:
        each = _capacity(node, named.cores) // max(number, 1)
        slots = memory_mib = each if each <= _MAX_CORES else 0
    kept = ((node.labels, source.labels), (node.annotations, source.notes))
    info = [(key, found.get(key, "")) for found, keys in kept for key in keys]
    if source.has_cores:
        cores = _capacity(node, named.cores)
        number = cores // source.cores
        units = _capacity(node, named.memory)
        memory_mib = units * named.mib_per_unit * source.cores // max(cores, 1)
    number = min(number, MAX_REGISTERED_CARDS)
    indices, problem = _indices(node, source, number)
    return tuple(
        [
            Record(
                uuid=f"{node.name}-{source.word}-{index}",
                position=index,
                slots=slots,
                memory_mib=memory_mib,
                cores=source.cores,
                type=vendor.word,
                numa=int(source.in_halves and at >= number // 2),
                healthy=True,
                problem=problem,
                info=tuple(info),
            )
            for at, index in enumerate(indices)
        ]
    )


def _indices(node: Node, source: Capacity, number: int) -> tuple[Sequence[int], str]:
    """Return the indices of *number* cards of *node*, and why they cannot be told, for people; "" if they can."""
    text = node.labels.get(source.indices, "") if source.indices else ""
    if not text:
        return range(number), ""
    try:
        found = decode_indices(text.replace("-", ","), source.indices)
    except InvalidRequestError:
        found = frozenset()
    if len(found) != number:
        told = f"label {source.indices} of its node is {quoted(text)}, and the capacity has {number} cards"
        return range(number), f"{told}; restart the device plugin"
    return sorted(found), ""


def cards_of(vendor: Vendor, records: Sequence[Record]) -> tuple[Card, ...]:
    """Return the unused cards of *records*."""
    count = Counter(record.uuid for record in records)
    return tuple([Card(_fixed(vendor, record, repeated=count[record.uuid] > 1)) for record in records])


def _fixed(vendor: Vendor, record: Record, *, repeated: bool) -> Fixed:
    # Shares and slices are counted as such: what they have of memory and cores is nobody's concern.
    is_counted = vendor.cards.whole is not None or vendor.cards.slices
    memory, cores = (
        (record.slots, 100) if is_counted else (record.memory_mib, vendor.cards.source.cores or record.cores)
    )
    kind = Kind(
        mode="",
        serves=(),
        type=record.type,
        memory=memory,
        cores=cores,
        unit=vendor.cards.core_unit or "%",
        by_share=vendor.cards.by_share,
    )
    kind = vendor.cards.kind(kind) if vendor.cards.kind is not None else kind
    fault, problem = _fault(vendor, record, memory, cores, repeated=repeated)
    return Fixed(
        uuid=record.uuid,
        position=record.position,
        slots=record.slots,
        memory=memory,
        cores=cores,
        words=type_words(record.type),
        label=record.type,
        kind=shared(kind),
        fault=fault,
        problem=problem,
        numa=record.numa,
        group=vendor.cards.group(record) if vendor.cards.group is not None else "",
        policy=vendor.cards.policy(record) if vendor.cards.policy is not None else "",
        told=record.type
        if vendor.handoff.writes_type
        else vendor.handoff.codec.told(record)
        if vendor.handoff.codec is not None
        else "",
    )


def _fault(vendor: Vendor, record: Record, memory: int, cores: int, *, repeated: bool) -> tuple[Reason | None, str]:
    if problem := record.problem or misnamed(record.uuid, repeated=repeated):
        return Reason.UNUSABLE, problem
    if vendor.handoff.writes_type and not _SYNTAX.isdisjoint(record.type):
        return Reason.UNUSABLE, f"its type {quoted(record.type)} cannot be written into an assignment"
    source = vendor.cards.source
    if isinstance(source, Register) and not source.any_type and vendor.word.upper() not in record.type.upper():
        return Reason.UNUSABLE, f"its type {quoted(record.type)} does not contain {vendor.word}"
    if isinstance(source, Capacity) and source.shares_cores and memory <= 0:
        return Reason.UNUSABLE, f"its node has no cores for it, or more than {_MAX_CORES}"
    if memory <= 0 or cores <= 0:
        return Reason.UNUSABLE, f"it has {memory} {_unit(vendor)} and {cores} cores"
    if not record.healthy:
        return Reason.UNHEALTHY, "the device plugin does not say that it is healthy"
    return None, ""


def _unit(vendor: Vendor) -> str:
    return "slices" if vendor.cards.slices else "shares" if vendor.cards.whole is not None else "MiB"


def _capacity(node: Node, resource: str) -> int:
    try:
        return parse_amount(node.capacity.get(resource, "0"), resource)
    except InvalidRequestError:
        return 0
