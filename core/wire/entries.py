"""Entries of annotations that assign cards to a container, in the format of HAMi's plugins.

An entry is ``name,type,memory,cores`` followed by a colon. Each dialect defines the meaning of its fields.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Entry(NamedTuple):
    """One entry, in the terms and units of its writer."""

    name: str
    type: str
    memory: int
    cores: int


class Unread(NamedTuple):
    """One entry that is not empty but unreadable; name is its first field."""

    name: str
    text: str


def entries(segment: str, most: int) -> Iterator[Entry | Unread]:
    """Yield the entries of one container; their figures are whole numbers up to *most*."""
    for piece in segment.split(":"):
        if piece.strip():
            yield _entry(piece, most)


def text_of(found: Iterable[tuple[str, str, int, int]]) -> str:
    """Return the text for the entries of one container."""
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
