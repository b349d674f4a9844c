"""The grammar of a node's register: the cards that a vGPU plugin offers.

Source: protocol reference, nvidia 1.10 ``register``, corrected by 10.1 and 10.2.
"""

from typing import Final, NamedTuple

from core.errors import InvalidRequestError
from core.names import MAX_NODE_ANNOTATION_BYTES, MAX_REGISTERED_CARDS, VGPU_REGISTER
from core.units import MAX_INT32, parse_int64

_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
# A record of five fields is either from plugin v1.9 or broken; only the former is readable.
_OLD_HEALTH: Final = frozenset({"true", "false"})
# The mode of plugins that report none.
_OLD_MODE: Final = "hami-core"
_FIELD: Final = f"annotation {VGPU_REGISTER}"
_REMEDY: Final = "restart the device plugin so that it writes 'uuid,count,memory,type,health,mode:' for every card"


class Record(NamedTuple):
    """One registered card.

    position: among all pieces of the register, including empty ones. slots: maximum number of shares.
    memory: in register units. healthy: None if the record does not contain it (5 fields). problem: why the card is
    unusable, "" if it is usable; the invalid figure is then 0.
    """

    position: int
    uuid: str
    slots: int
    memory: int
    type: str
    healthy: bool | None
    mode: str
    problem: str


def decode_register(text: str) -> tuple[Record, ...]:
    """Decode a register; a card with a figure out of range is a record with a problem.

    Raises:
        InvalidRequestError: it is longer than 1 MiB, has no ``:``, has more pieces than a node has cards, or has a
            record of fewer than five fields.
    """
    if len(text) > MAX_NODE_ANNOTATION_BYTES:
        raise InvalidRequestError(_FIELD, text, f"write no more than {MAX_NODE_ANNOTATION_BYTES} characters")
    if ":" not in text:
        raise InvalidRequestError(_FIELD, text, _REMEDY)
    pieces = text.count(":")
    if pieces > MAX_REGISTERED_CARDS:
        raise InvalidRequestError(
            _FIELD, text, f"no more than {MAX_REGISTERED_CARDS} cards are read, here are {pieces}"
        )
    return tuple(_record(position, piece) for position, piece in enumerate(text.split(":")) if "," in piece)


def _record(position: int, piece: str) -> Record:
    fields = piece.split(",")
    if len(fields) < 5:
        raise InvalidRequestError(_FIELD, piece, _REMEDY)
    uuid, count, memory, kind, health = fields[:5]
    slots, slots_problem = _figure(count, "count")
    units, memory_problem = _figure(memory, "memory")
    # Plugins of v1.9 write five fields and always "false" (nvidia 3.14), so their health is unknown.
    known = len(fields) > 5
    if not known and (slots_problem or memory_problem or health not in _OLD_HEALTH):
        raise InvalidRequestError(_FIELD, piece, _REMEDY)
    return Record(
        position=position,
        uuid=uuid,
        slots=slots,
        memory=units,
        type=kind,
        healthy=health in _TRUE if known else None,
        mode=fields[5] if known else _OLD_MODE,
        problem=slots_problem or memory_problem,
    )


def _figure(text: str, what: str) -> tuple[int, str]:
    value = parse_int64(text)
    if value is None or value < 0:
        return 0, f"its {what} is no whole number from 1 to {MAX_INT32}"
    if value > MAX_INT32:
        return 0, f"its {what} is above {MAX_INT32}"
    return value, "" if value else f"its {what} is 0"


def with_mode(text: str, mode: str) -> str:
    """Return the readable register *text* with *mode* for every card."""
    return ":".join(_with_field(piece, 5, mode) for piece in text.split(":"))


def with_slots(text: str, slots: int) -> tuple[str, int]:
    """Return the readable register *text* with *slots* shares for every card, and the number of all its shares."""
    pieces = text.split(":")
    return ":".join(_with_field(piece, 1, str(slots)) for piece in pieces), slots * sum("," in one for one in pieces)


def _with_field(piece: str, at: int, value: str) -> str:
    if "," not in piece:
        return piece
    fields = piece.split(",")
    fields[at : at + 1] = [value]
    return ",".join(fields)
