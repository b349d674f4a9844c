"""The grammar of assignments: which cards, and how much of each, every container of a pod holds.

Source: protocol reference, nvidia 1.10 ``pod-devices``; one segment per container (S24).
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from core.dialects.vgpu.keys import IDS
from core.wire.entries import Entry, Unread, entries, text_of
from core.wire.reading import check_length

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
    check_length(text, field)
    return tuple(tuple(map(_read, entries(segment, _MAX_UINT32))) for segment in text.split(";"))


def encode_pod_devices(segments: Iterable[Sequence[Assigned]]) -> str:
    """Write *segments*: every entry closed by ``:``, segments parted by ``;``."""
    return ";".join(map(text_of, segments))


def readable(segments: Iterable[Segment]) -> tuple[tuple[Assigned, ...], ...]:
    """*segments* without what cannot be read, as upstream's scheduler sees them."""
    return tuple(tuple(entry for entry in segment if isinstance(entry, Assigned)) for segment in segments)


def devices_left(text: str) -> int:
    """How many devices the plugin counts in ``devices-to-allocate``, whether it can read them or not."""
    return sum(1 for segment in text.split(";") for piece in segment.split(":") if "," in piece)


def _read(entry: Entry | Unread) -> Assigned | Unreadable:
    return Assigned(*entry) if isinstance(entry, Entry) else Unreadable(*entry)
