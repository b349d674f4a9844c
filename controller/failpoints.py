"""Named points at which a test lets a process die or stall.

In service nothing happens there: no flag and no variable leads to anything else, only who constructs a
`controller.run.Controller` can pass it.
"""

from collections.abc import Callable
from enum import StrEnum


class Point(StrEnum):
    """Where: before something is sent, and after the API server has carried it out, before the owner hears of it."""

    BEFORE_BIND = "before-bind"
    AFTER_BIND = "after-bind"
    BEFORE_FENCE = "before-fence"
    AFTER_FENCE = "after-fence"
    BEFORE_LOCK = "before-lock"
    AFTER_LOCK = "after-lock"
    BEFORE_VOLUME = "before-volume"
    AFTER_VOLUME = "after-volume"
    BEFORE_EVICT = "before-evict"
    AFTER_EVICT = "after-evict"
    BEFORE_CLEAR = "before-clear"
    AFTER_CLEAR = "after-clear"


Reached = Callable[[Point], None]


def go_on(point: Point) -> None:
    """What happens at every point in service."""
    del point
