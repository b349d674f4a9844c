"""The series of cards that Volcano's scheduler has under the same names (nvidia 1.11)."""

from collections.abc import Iterator
from typing import Final

from core.port.cards import Series
from core.sharing.account import Assignment
from core.sharing.card import Card

_PREFIX: Final = "volcano_vgpu_device_"
OF_CARDS: Final = (
    Series(f"{_PREFIX}shared_number", "The number of vgpu tasks sharing this card."),
    Series(f"{_PREFIX}allocated_memory", "The number of vgpu memory allocated in this card."),
    Series(f"{_PREFIX}allocated_cores", "The percentage of gpu compute cores allocated in this card."),
    Series(f"{_PREFIX}memory_limit", "The number of total device memory in this card."),
)
OF_PODS: Final = (
    Series(f"{_PREFIX}memory_allocation_for_a_certain_pod", "The vgpu device memory allocated for a certain pod."),
    Series(f"{_PREFIX}core_allocation_for_a_certain_pod", "The vgpu device core allocated for a certain pod."),
)


def of_card(card: Card) -> tuple[str, tuple[int, ...]]:
    """The UUID of *card*, and its figures as `OF_CARDS` has them."""
    return card.fixed.uuid, (card.used_slots, card.used_memory, card.used_cores, card.fixed.memory)


def of_pod(assignment: Assignment) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The UUID of every entry's card, and the entry's figures as `OF_PODS` has them."""
    return ((entry.uuid, (entry.charge, entry.cores)) for entry in assignment.entries)
