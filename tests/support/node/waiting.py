"""Waits for what happens on the real node."""

import time
from collections.abc import Callable
from typing import Final

from tests.support.node.namespaces import PATIENCE_S

_PAUSE_S: Final = 0.1


def wait(what: str, why_not: Callable[[], str]) -> float:
    """Ask *why_not* until it is "", and return the seconds that took.

    Raises:
        AssertionError: it took longer than `PATIENCE_S`.
    """
    begun_s = time.monotonic()
    while said := why_not():
        if time.monotonic() - begun_s > PATIENCE_S:
            raise AssertionError(f"{what}: not within {PATIENCE_S:.0f} s: {said}")
        time.sleep(_PAUSE_S)
    return time.monotonic() - begun_s
