"""The entries of annotations that tell a device plugin which cards a container holds, as HAMi's plugins write them.

An entry is ``name,type,memory,cores`` and closed by a colon. What of an entry means what is each dialect's own.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Entry(NamedTuple):
    """One entry, in the words and units of who wrote it."""

    name: str
    type: str
    memory: int
    cores: int


class Unread(NamedTuple):
    """One entry that holds something but cannot be read; name is its first field."""

    name: str
    text: str


def entries(segment: str, most: int) -> Iterator[Entry | Unread]:
    """The entries of one container; their figures are whole numbers up to *most*."""
    for piece in segment.split(":"):
        if piece.strip():
            yield _entry(piece, most)


def text_of(found: Iterable[tuple[str, str, int, int]]) -> str:
    """The entries of one container as they are written."""
    return "".join(f"{name},{kind},{memory},{cores}:" for name, kind, memory, cores in found)


def _entry(piece: str, most: int) -> Entry | Unread:
    name, *others = piece.split(",")
    if len(others) >= 3:
        memory, cores = _figure(others[1], most), _figure(others[2], most)
        if memory is not None and cores is not None:
            return Entry(name, others[0], memory, cores)
    return Unread(name, piece)


def _figure(text: str, most: int) -> int | None:
    if text.isascii() and text.isdigit() and len(text) <= 64:
        value = int(text)
        return value if value <= most else None
    return None
