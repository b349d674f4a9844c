"""A sorted mapping from whole numbers that come and go often; taking one out costs no search."""

from bisect import bisect_left, insort
from typing import Final, Generic, TypeVar

_BLOCK: Final = 256

Value = TypeVar("Value")


class Ordered(Generic[Value]):
    """Whole numbers in ascending order with a value each, in blocks of bounded size.

    A number that is taken out loses its value at once and stays in its block, dead, until the block is full, the
    number comes back, or a reader that passed over it calls `trim` or `tidy`. *blocks* and *values* may be read, for
    walking from where `seek` points, as long as nothing is added meanwhile; the reader passes over the dead.
    """

    __slots__ = ("_dead", "_lasts", "blocks", "values")

    def __init__(self) -> None:
        self._lasts: list[int] = []
        self._dead: set[int] = set()
        self.blocks: list[list[int]] = []
        self.values: dict[int, Value] = {}

    def add(self, key: int, value: Value) -> None:
        """Insert *key*, which is not there."""
        self.values[key] = value
        if key in self._dead:
            self._dead.remove(key)
            return
        lasts = self._lasts
        at = bisect_left(lasts, key)
        if at == len(lasts):
            if not lasts:
                self.blocks.append([key])
                lasts.append(key)
                return
            at -= 1
            lasts[at] = key
        block = self.blocks[at]
        insort(block, key)
        if len(block) > _BLOCK:
            self._make_room(at)

    def remove(self, key: int) -> None:
        """Take *key* out, which is there."""
        del self.values[key]
        self._dead.add(key)

    def tidy(self, at: int) -> None:
        """Drop the dead of a block; places in it, and the block itself, are not where they were."""
        full = self.blocks[at]
        block = [key for key in full if key in self.values]
        self._dead.difference_update(full)
        if block:
            self.blocks[at] = block
        else:
            del self.blocks[at], self._lasts[at]

    def trim(self, at: int, first: int, behind: int) -> None:
        """Drop keys of a block from place *first* to before place *behind*, all of them dead; the rest moves up."""
        block = self.blocks[at]
        self._dead.difference_update(block[first:behind])
        del block[first:behind]

    def _make_room(self, at: int) -> None:
        """Drop the dead of a full block, and split it if it is still more than half full."""
        blocks = len(self.blocks)
        self.tidy(at)
        if len(self.blocks) == blocks and len(block := self.blocks[at]) > _BLOCK // 2:
            half = len(block) // 2
            self.blocks[at : at + 1] = [block[:half], block[half:]]
            self._lasts.insert(at, block[half - 1])

    def seek(self, start: int) -> tuple[int, int]:
        """(block, place) of the first number not below *start*, dead or not."""
        at = bisect_left(self._lasts, start)
        return (at, bisect_left(self.blocks[at], start)) if at < len(self.blocks) else (at, 0)
