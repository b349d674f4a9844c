"""Entries of annotations that assign cards to a container, in the format of HAMi's plugins.

An entry is ``name,type,memory,cores`` followed by a colon. Each dialect defines the meaning of its fields.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from core.errors import InvalidRequestError
from core.units import MAX_INT32
from core.wire.reading import check_length

_SEPARATOR: Final = ";"
# A pod has no more containers with cards, and hardly one of them has more cards than a node.
DEVICES_MAX: Final = 512


class Written(NamedTuple):
    """One entry, in the terms and units of its writer."""

    name: str
    type: str
    memory: int
    cores: int


class Unread(NamedTuple):
    """One entry that is not empty but unreadable; name is its first field."""

    name: str
    text: str


def entries(segment: str, most: int) -> Iterator[Written | Unread]:
    """Yield the entries of one container; their figures are whole numbers up to *most*."""
    for piece in segment.split(":"):
        if piece.strip():
            yield _entry(piece, most)


def text_of(found: Iterable[tuple[str, str, int, int]]) -> str:
    """Return the text for the entries of one container."""
    return "".join(f"{name},{kind},{memory},{cores}:" for name, kind, memory, cores in found)


def decode_segments(text: str, field: str, devices_max: int = DEVICES_MAX) -> list[list[Written | Unread]]:
    """Read an assignment of one segment for each container, each closed by a semicolon.

    Raises:
        InvalidRequestError: longer than an annotation may be, or of more than *devices_max* devices.
    """
    check_length(text, field)
    if max(text.count(":"), text.count(_SEPARATOR)) > devices_max:
        raise InvalidRequestError(field, text, f"no more than {devices_max} devices of one pod are read")
    pieces = text.split(_SEPARATOR)
    if not pieces[-1].strip():
        pieces.pop()
    return [list(entries(piece, MAX_INT32)) for piece in pieces]


def encode_segments(segments: Iterable[Iterable[tuple[str, str, int, int]]]) -> str:
    """Return the text of an assignment, one segment for each container, empty ones included."""
    return "".join([text_of(one) + _SEPARATOR for one in segments])


def _entry(piece: str, most: int) -> Written | Unread:
    name, *others = piece.split(",")
    if len(others) >= 3:
        memory, cores = _figure(others[1], most), _figure(others[2], most)
        if memory is not None and cores is not None:
            return Written(name, others[0], memory, cores)
    return Unread(name, piece)


def _figure(text: str, most: int) -> int | None:
    if text.isascii() and text.isdigit() and len(text) <= 64:
        value = int(text)
        return value if value <= most else None
    return None
