"""Counts by name, in which nothing stands that there is none of."""

from typing import TypeVar

_K = TypeVar("_K")


def add(counts: dict[_K, int], key: _K, by: int) -> None:
    """Let there be *by* more of *key*, or fewer if that is negative."""
    left = counts.get(key, 0) + by
    if left:
        counts[key] = left
    else:
        counts.pop(key, None)
