"""The grammar of assignments: which cards, and how much of each, every container of a pod holds.

Source: protocol reference, nvidia 1.10 ``pod-devices``; one segment per container (S24).
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from core.dialects.vgpu.keys import IDS
from core.errors import InvalidRequestError
from core.names import MAX_POD_ANNOTATION_BYTES

_MAX_UINT32: Final = 2**32 - 1
NVIDIA: Final = "NVIDIA"


class Assigned(NamedTuple):
    """One entry: card_id is a uuid, or ``uuid[group-position]``; memory in register units, cores in percent."""

    card_id: str
    type: str
    memory: int
    cores: int


class Unreadable(NamedTuple):
    """One entry that holds something but cannot be read; card_id is its first field."""

    card_id: str
    text: str


Segment = tuple[Assigned | Unreadable, ...]


def decode_pod_devices(text: str, field: str = f"annotation {IDS}") -> tuple[Segment, ...]:
    """Read an assignment; an empty text has no segment. What cannot be read stays, as `Unreadable`.

    Raises:
        InvalidRequestError: longer than an annotation of ours may be.
    """
    if not text:
        return ()
    if len(text) > MAX_POD_ANNOTATION_BYTES:
        raise InvalidRequestError(field, text, f"write no more than {MAX_POD_ANNOTATION_BYTES} characters")
    return tuple(tuple(_entries(segment)) for segment in text.split(";"))


def encode_pod_devices(segments: Iterable[Sequence[Assigned]]) -> str:
    """Write *segments*: every entry closed by ``:``, segments parted by ``;``."""
    return ";".join("".join(f"{a.card_id},{a.type},{a.memory},{a.cores}:" for a in segment) for segment in segments)


def readable(segments: Iterable[Segment]) -> tuple[tuple[Assigned, ...], ...]:
    """*segments* without what cannot be read, as upstream's scheduler sees them."""
    return tuple(tuple(entry for entry in segment if isinstance(entry, Assigned)) for segment in segments)


def devices_left(text: str) -> int:
    """How many devices the plugin counts in ``devices-to-allocate``, whether it can read them or not."""
    return sum(1 for segment in text.split(";") for piece in segment.split(":") if "," in piece)


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
        return value if value <= _MAX_UINT32 else None
    return None
