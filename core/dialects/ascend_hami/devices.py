"""The grammar of assignments: which devices, and how much of each, every container of a pod holds.

Source: protocol reference, ascend 1.10 ``devices``: every device closed by ``:``, every container's segment by ``;``.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from core.errors import InvalidRequestError
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
# No pod has more of one type: a node has 16 chips, and hardly a pod has eight containers that use all of them.
_MAX_DEVICES: Final = 128


def decode_devices(text: str, field: str) -> tuple[Segment, ...]:
    """Read an assignment, one segment per container; what cannot be read stays, as `Unreadable`.

    Raises:
        InvalidRequestError: longer than an annotation of ours may be, or of more devices than a pod can have.
    """
    check_length(text, field)
    if max(text.count(":"), text.count(_SEPARATOR)) > _MAX_DEVICES:
        raise InvalidRequestError(field, text, f"no more than {_MAX_DEVICES} devices of one pod are read")
    pieces = text.split(_SEPARATOR)
    if not pieces[-1].strip():
        pieces.pop()
    return tuple(tuple(map(_read, entries(piece, MAX_INT32))) for piece in pieces)


def encode_devices(segments: Iterable[Sequence[Assigned]]) -> str:
    """Write *segments*, one per container of the pod, empty ones included."""
    return "".join(text_of(one) + _SEPARATOR for one in segments)


def _read(entry: Entry | Unread) -> Assigned | Unreadable:
    return Assigned(*entry) if isinstance(entry, Entry) else Unreadable(*entry)
