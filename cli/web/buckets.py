"""Limits how much one address may ask: a bucket that fills over time, from which each call takes its cost."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final


class Buckets:
    """One bucket of *size* for each address; *per_s* flows in. The address that asked longest ago is forgotten."""

    def __init__(self, size: float, per_s: float, *, addresses_max: int, clock: Callable[[], float]) -> None:
        self._size: Final = size
        self._per_s: Final = per_s
        self._addresses_max: Final = addresses_max
        self._clock: Final = clock
        self._left: Final[OrderedDict[str, tuple[float, float]]] = OrderedDict()

    def takes(self, address: str, cost: float) -> bool:
        """Return whether the bucket of *address* has *cost* left, and take it."""
        now_s = self._clock()
        left, since_s = self._left.get(address, (self._size, now_s))
        left = min(self._size, left + (now_s - since_s) * self._per_s)
        is_enough = left >= cost
        self._left[address] = left - cost if is_enough else left, now_s
        self._left.move_to_end(address)
        if len(self._left) > self._addresses_max:
            self._left.popitem(last=False)
        return is_enough
