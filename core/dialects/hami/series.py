"""The series of cards, and of what pods hold of them, that HAMi's scheduler v2.10 has under the same names.

What is called a ratio is percent.
"""

from collections.abc import Iterator
from typing import Final

from core.port.cards import Series
from core.sharing.account import Assignment
from core.sharing.card import Card

_PREFIX: Final = "hami_gpu_"
_LABELS: Final = ("device_uuid", "node")
_OF_PODS: Final = "hami_vgpu_"
_POD_LABELS: Final = ("namespace", "pod")
_MIB: Final = 1 << 20
OF_CARDS: Final = (
    Series(f"{_PREFIX}memory_limit_bytes", "Device memory limit for a certain GPU", _LABELS),
    Series(f"{_PREFIX}memory_allocated_bytes", "Device memory allocated for a certain GPU", _LABELS),
    Series(f"{_PREFIX}core_limit_ratio", "Device core limit for a certain GPU", _LABELS),
    Series(f"{_PREFIX}core_allocated_ratio", "Device core allocated for a certain GPU", _LABELS),
    Series(f"{_PREFIX}shared_count", "Number of containers sharing this GPU", _LABELS),
)
OF_PODS: Final = (
    Series(f"{_OF_PODS}memory_allocated_bytes", "vGPU memory allocated from a container", _LABELS, _POD_LABELS),
    Series(f"{_OF_PODS}core_allocated_ratio", "vGPU core allocated from a container", _LABELS, _POD_LABELS),
)


def of_card(card: Card) -> tuple[str, tuple[int, ...]]:
    """The UUID of *card*, and its figures as `OF_CARDS` has them."""
    fixed = card.fixed
    memory, used = fixed.memory * _MIB, card.used_memory * _MIB
    return fixed.uuid, (memory, used, fixed.cores, card.used_cores, card.used_slots)


def of_pod(assignment: Assignment) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The UUID of every entry's card, and the entry's figures as `OF_PODS` has them."""
    return ((entry.uuid, (entry.memory * _MIB, entry.cores)) for entry in assignment.entries)
