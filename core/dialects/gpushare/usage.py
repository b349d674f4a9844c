"""Assignments on the wire: the indices of cards, each of which loses all that the pod asks for.

Source: protocol reference, nvidia 1.5, 4.4, 4.5, with 10.7 done as it says.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from core.dialects.gpushare.cards import MEMORY, NUMBER, Mode, name_of
from core.dialects.gpushare.requests import amounts_of, total_of
from core.errors import InvalidRequestError
from core.model import Pod
from core.names import GPU_INDEX
from core.port.cards import Held
from core.sharing.account import Assignment, Entry, assigned
from core.sharing.card import Card
from core.units import parse_int64
from core.wire.reading import check_length


class GpuIndex(NamedTuple):
    """A list of card indices as read; unreadable: at least one piece is no number."""

    indices: tuple[int, ...]
    unreadable: bool


def decode_gpu_index(text: str) -> GpuIndex:
    """Read ``gpu-index``; blanks are not allowed for, as upstream does not.

    Raises:
        InvalidRequestError: longer than an annotation of ours may be.
    """
    check_length(text, f"annotation {GPU_INDEX}")
    found = [parse_int64(piece) for piece in text.split(",")]
    return GpuIndex(tuple([index for index in found if index is not None]), None in found)


def encode_gpu_index(indices: Iterable[int]) -> str:
    """Write card indices in the given order."""
    return ",".join(map(str, indices))


def held(pod: Pod, cards: Sequence[Card], mode: Mode) -> Held[Assignment] | None:
    """Return what bound *pod* holds by its ``gpu-index``; on a node without cards only if it asks in *mode*.

    On the cards of one mode a pod of the other is counted too, which then closes them: see `core.ledger`. A piece that
    cannot be read may mean any card: the rest counts, and the node is closed. A card that is named twice holds the pod
    once.
    """
    text = pod.annotations.get(GPU_INDEX)
    if not text:
        return None
    memory, number = total_of(pod, MEMORY.resource), total_of(pod, NUMBER.resource)
    if not (memory if mode is MEMORY else number) and not (cards and (memory or number)):
        return None
    containers = max(1, len(amounts_of(pod, MEMORY.resource)) or len(amounts_of(pod, NUMBER.resource)))
    try:
        found = decode_gpu_index(text)
    except InvalidRequestError as error:
        return Held(assignment=Assignment(containers, (), ()), closes=f"pod {pod.key}: {error}")
    charge = memory if mode is MEMORY else 1
    # A node lists all of its cards, so an index is a slot.
    entries = [Entry(index, name_of(index), 0, charge, 0, charge) for index in sorted(set(found.indices))]
    closes = f"pod {pod.key}: annotation {GPU_INDEX} is '{text[:64]}', which may mean any card; delete the pod"
    return Held(assignment=assigned(containers, entries), closes=closes if found.unreadable else "")
