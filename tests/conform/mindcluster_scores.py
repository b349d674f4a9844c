"""The reference scheduler's scores over a list of nodes, for comparison: `fit.place` scores one node at a time.

Both make the same choice: the least idle node that need not downgrade, and the least idle of all where each must.
Source: protocol reference, ascend 3.10.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

_LEAST_IDLE: Final = 8
_NOT_DOWNGRADED: Final = 16


class Fitting(NamedTuple):
    """A node that fits: its idle AI cores, and whether it must downgrade."""

    idle_cores: int
    name: str
    downgraded: bool


def scores(fitting: Iterable[Fitting]) -> Mapping[str, int]:
    """The scores of nodes, before any weight."""
    ordered = sorted(fitting)
    found = dict.fromkeys((one.name for one in ordered), 0)
    if not any(one.downgraded for one in ordered):
        return found | {one.name: _LEAST_IDLE for one in ordered[:1]}
    for one in ordered:
        if not one.downgraded:
            found[one.name] = _NOT_DOWNGRADED
            break
        found[one.name] = _LEAST_IDLE
    return found
