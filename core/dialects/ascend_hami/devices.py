"""The grammar of assignments: which devices, and how much of each, every container of a pod holds.

Source: protocol reference, ascend 1.10 ``devices``: every device closed by ``:``, every container's segment by ``;``.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from core.errors import InvalidRequestError
from core.names import MAX_POD_ANNOTATION_BYTES
from core.units import MAX_INT32


class Assigned(NamedTuple):
    """One device: memory in MiB, cores in percent of its AI cores (or their number, in template mode)."""

    uuid: str
    type: str
    memory_mib: int
    cores: int


class Unreadable(NamedTuple):
    """One entry that holds something but cannot be read; uuid is its first field."""

    uuid: str
    text: str


Segment = tuple[Assigned | Unreadable, ...]

_SEPARATOR: Final = ";"


def decode_devices(text: str, field: str) -> tuple[Segment, ...]:
    """Read an assignment, one segment per container; what cannot be read stays, as `Unreadable`.

    Raises:
        InvalidRequestError: longer than an annotation of ours may be.
    """
    if len(text) > MAX_POD_ANNOTATION_BYTES:
        raise InvalidRequestError(field, text, f"write no more than {MAX_POD_ANNOTATION_BYTES} characters")
    pieces = text.split(_SEPARATOR)
    if not pieces[-1].strip():
        pieces.pop()
    return tuple(tuple(_entries(piece)) for piece in pieces)


def encode_devices(segments: Iterable[Sequence[Assigned]]) -> str:
    """Write *segments*, one per container of the pod, empty ones included."""
    return "".join("".join(f"{a.uuid},{a.type},{a.memory_mib},{a.cores}:" for a in one) + ";" for one in segments)


def devices_left(text: str) -> bool:
    """Whether the plugin has still something to serve: it empties segments, and closes them anew (ascend 1.10)."""
    return "," in text


def _entries(segment: str) -> Iterable[Assigned | Unreadable]:
    for piece in segment.split(":"):
        if not piece.strip():
            continue
        fields = piece.split(",")
        memory = _figure(fields[2]) if len(fields) >= 4 else None
        cores = _figure(fields[3]) if len(fields) >= 4 else None
        if memory is None or cores is None:
            yield Unreadable(fields[0], piece)
        else:
            yield Assigned(fields[0], fields[1], memory, cores)


def _figure(text: str) -> int | None:
    if text.isascii() and text.isdigit() and len(text) <= 64:
        value = int(text)
        return value if value <= MAX_INT32 else None
    return None
