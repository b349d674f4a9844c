"""Named points at which a test can make a process die or stall.

In production nothing happens there. No flag or variable changes that; only code that constructs a
`controller.run.Controller` can.
"""

from collections.abc import Callable
from enum import StrEnum


class Point(StrEnum):
    """The points: before a write is sent, and after the API server has executed it but before the scheduler knows."""

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
    """Do nothing; the behaviour in production."""
    del point
