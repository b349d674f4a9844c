"""The series of cards that HAMi's scheduler v2.10 has under the same names; what is called a ratio is percent."""

from typing import Final

from core.dialects.hami.cards import Card
from core.port import Series

_PREFIX: Final = "hami_gpu_"
_LABELS: Final = ("device_uuid", "node")
_MIB: Final = 1 << 20
OF_CARDS: Final = (
    Series(f"{_PREFIX}memory_limit_bytes", "Device memory limit for a certain GPU", _LABELS),
    Series(f"{_PREFIX}memory_allocated_bytes", "Device memory allocated for a certain GPU", _LABELS),
    Series(f"{_PREFIX}core_limit_ratio", "Device core limit for a certain GPU", _LABELS),
    Series(f"{_PREFIX}core_allocated_ratio", "Device core allocated for a certain GPU", _LABELS),
    Series(f"{_PREFIX}shared_count", "Number of containers sharing this GPU", _LABELS),
)


def of_card(card: Card) -> tuple[str, tuple[int, ...]]:
    """The UUID of *card*, and its figures as `OF_CARDS` has them."""
    fixed = card.fixed
    memory, used = fixed.memory * _MIB, card.used_memory * _MIB
    return fixed.uuid, (memory, used, fixed.cores, card.used_cores, card.used_slots)
