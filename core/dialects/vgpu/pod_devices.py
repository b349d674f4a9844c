"""The grammar of assignments: which cards, and how much of each, every container of a pod holds.

Source: protocol reference, nvidia 1.10 ``pod-devices``; one segment per container (S24).
"""

from collections.abc import Iterable, Sequence
from typing import Final

from core.dialects.vgpu.keys import IDS
from core.wire.entries import Unread, Written, entries, text_of
from core.wire.reading import check_length

_MAX_UINT32: Final = 2**32 - 1
NVIDIA: Final = "NVIDIA"


Segment = tuple[Written | Unread, ...]


def decode_pod_devices(text: str, field: str = f"annotation {IDS}") -> tuple[Segment, ...]:
    """Read an assignment; an empty text has no segment. What cannot be read stays, as `Unread`.

    Raises:
        InvalidRequestError: longer than an annotation of ours may be.
    """
    if not text:
        return ()
    check_length(text, field)
    return tuple(tuple(entries(segment, _MAX_UINT32)) for segment in text.split(";"))


def encode_pod_devices(segments: Iterable[Sequence[Written]]) -> str:
    """Write *segments*: every entry closed by ``:``, segments parted by ``;``."""
    return ";".join(map(text_of, segments))


def readable(segments: Iterable[Segment]) -> tuple[tuple[Written, ...], ...]:
    """*segments* without what cannot be read, as upstream's scheduler sees them."""
    return tuple(tuple(entry for entry in segment if isinstance(entry, Written)) for segment in segments)


def devices_left(text: str) -> int:
    """How many devices the plugin counts in ``devices-to-allocate``, whether it can read them or not."""
    return sum(1 for segment in text.split(";") for piece in segment.split(":") if "," in piece)
