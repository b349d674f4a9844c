"""The cards of a node, as its register or its capacity has them.

Source: protocol reference, hami-vendors 2.4 and 3, with VN-7, VN-32 and VN-39 done as they say.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from core.dialects.hami_vendors.vendor import Capacity, Register, Vendor
from core.errors import InvalidRequestError, quoted
from core.model import Node
from core.names import MAX_REGISTERED_CARDS
from core.port.cards import Offer
from core.port.refusals import Complaint, Reason
from core.selection import type_words
from core.sharing.card import Card, Fixed, Kind, shared
from core.sharing.offers import allocatable, offered
from core.sharing.resources import Resources
from core.units import is_text, parse_amount
from core.wire.hami_register import Record, decode_register, is_json

# What separates entries and fields of an assignment; nothing in it can have these in its name.
_SYNTAX: Final = frozenset(",:;[")


def offer(vendor: Vendor, named: Resources, node: Node) -> Offer[Card] | Complaint | None:
    """Return the cards of *vendor* on *node*; None if it has none, a complaint if they cannot be read or sold."""
    found = read(vendor, named, node)
    source = vendor.source
    gate = named.cores if isinstance(source, Capacity) and source.has_cores else named.cards
    if isinstance(found, Offer) and not allocatable(node, gate):
        problem = f"node {node.name} has cards of {vendor.word} but no allocatable {gate}; see whether its plugin runs"
        return Complaint(dialect=vendor.name, field=f"allocatable {gate}", problem=problem)
    return found


def read(vendor: Vendor, named: Resources, node: Node) -> Offer[Card] | Complaint | None:
    """Return the same, whether or not the plugin of *node* runs."""
    source = vendor.source
    if isinstance(source, Register):
        text = node.annotations.get(source.key)
        if text is None:
            return None
        field = f"annotation {source.key}"
        try:
            records = _decoded(source, text, field)
        except InvalidRequestError as error:
            return Complaint(dialect=vendor.name, field=error.field, problem=f"found {error.found}; {error.remedy}")
        if not records:
            return Complaint(dialect=vendor.name, field=field, problem="it names no card")
    else:
        records = _of_capacity(vendor, source, named, node)
        if not records:
            return None
    return offered(vendor.name, cards_of(vendor, records))


def _decoded(source: Register, text: str, field: str) -> tuple[Record, ...]:
    """Read the register *text* in the form of *source*.

    Raises:
        InvalidRequestError: it is no register of this form.
    """
    if is_json(text) is not source.has_json:
        form = "a list in JSON" if source.has_json else "text"
        raise InvalidRequestError(field, text, f"restart the device plugin so that it writes {form}")
    return decode_register(text, field)


def _of_capacity(vendor: Vendor, source: Capacity, named: Resources, node: Node) -> tuple[Record, ...]:
    number, memory_mib = _capacity(node, named.cards), 0
    if source.has_cores:
        cores = _capacity(node, named.cores)
        number = cores // source.cores
        units = _capacity(node, named.memory)
        memory_mib = units * named.mib_per_unit * source.cores // max(cores, 1)
    return tuple(
        [
            Record(
                uuid=f"{node.name}-{source.word}-{at}",
                position=at,
                slots=source.slots,
                memory_mib=memory_mib,
                cores=source.cores,
                type=vendor.word,
                healthy=True,
            )
            for at in range(min(number, MAX_REGISTERED_CARDS))
        ]
    )


def cards_of(vendor: Vendor, records: Sequence[Record]) -> tuple[Card, ...]:
    """Return the unused cards of *records*."""
    count = Counter(record.uuid for record in records)
    return tuple([Card(_fixed(vendor, record, repeated=count[record.uuid] > 1)) for record in records])


def _fixed(vendor: Vendor, record: Record, *, repeated: bool) -> Fixed:
    is_whole = vendor.whole is not None
    # Whole shares are counted as such: what they have of memory and cores is nobody's concern.
    memory, cores = (record.slots, 100) if is_whole else (record.memory_mib, vendor.source.cores or record.cores)
    kind = Kind(
        mode="",
        serves=(),
        type=record.type,
        memory=memory,
        cores=cores,
        unit=vendor.core_unit or "%",
        by_share=vendor.by_share,
        is_named=vendor.writes_type,
    )
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
        group=vendor.group(record) if vendor.group is not None else "",
    )


def _fault(vendor: Vendor, record: Record, memory: int, cores: int, *, repeated: bool) -> tuple[Reason | None, str]:
    if record.problem:
        return Reason.UNUSABLE, record.problem
    if repeated or not record.uuid:
        return Reason.UNUSABLE, "the register names it twice" if record.uuid else "it has no uuid"
    if not _SYNTAX.isdisjoint(record.uuid) or not is_text(record.uuid):
        return Reason.UNUSABLE, f"its id {quoted(record.uuid)} cannot be written into an assignment"
    if vendor.writes_type and not _SYNTAX.isdisjoint(record.type):
        return Reason.UNUSABLE, f"its type {quoted(record.type)} cannot be written into an assignment"
    source = vendor.source
    if isinstance(source, Register) and not source.any_type and vendor.word.upper() not in record.type.upper():
        return Reason.UNUSABLE, f"its type {quoted(record.type)} does not contain {vendor.word}"
    if memory <= 0 or cores <= 0:
        return Reason.UNUSABLE, f"it has {memory} {'shares' if vendor.whole is not None else 'MiB'} and {cores} cores"
    if not record.healthy:
        return Reason.UNHEALTHY, "the device plugin does not say that it is healthy"
    return None, ""


def _capacity(node: Node, resource: str) -> int:
    try:
        return parse_amount(node.capacity.get(resource, "0"), resource)
    except InvalidRequestError:
        return 0
