"""Counts by name, without entries of zero."""

from typing import TypeVar

_K = TypeVar("_K")


def add(counts: dict[_K, int], key: _K, by: int) -> None:
    """Add *by*, which may be negative, to the count of *key*."""
    left = counts.get(key, 0) + by
    if left:
        counts[key] = left
    else:
        counts.pop(key, None)
