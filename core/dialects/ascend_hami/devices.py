"""The grammar of assignments: which devices, and how much of each, every container of a pod holds.

Source: protocol reference, ascend 1.10 ``devices``: every device closed by ``:``, every container's segment by ``;``.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from core.units import MAX_INT32
from core.wire.entries import Entry, Unread, entries, text_of
from core.wire.reading import check_length


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
    check_length(text, field)
    pieces = text.split(_SEPARATOR)
    if not pieces[-1].strip():
        pieces.pop()
    return tuple(tuple(map(_read, entries(piece, MAX_INT32))) for piece in pieces)


def encode_devices(segments: Iterable[Sequence[Assigned]]) -> str:
    """Write *segments*, one per container of the pod, empty ones included."""
    return "".join(text_of(one) + _SEPARATOR for one in segments)


def devices_left(text: str) -> bool:
    """Whether the plugin has still something to serve: it empties segments, and closes them anew (ascend 1.10)."""
    return "," in text


def _read(entry: Entry | Unread) -> Assigned | Unreadable:
    return Assigned(*entry) if isinstance(entry, Entry) else Unreadable(*entry)
