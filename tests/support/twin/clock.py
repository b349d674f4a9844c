"""Virtual time for all that runs in this process; to be imported before anything that keeps a clock's function.

Defaults such as ``clock=time.monotonic`` are bound when a module is imported: so the functions of `time` are replaced
first, once, for the life of the process. A simulation is a process of its own.
"""

import gc
import sys
import time
from types import SimpleNamespace
from typing import Final

# Of the machine that simulates: what it costs.
cpu_s: Final = time.process_time

_WALL_S: Final = 1_790_000_000.0
_BEGIN_S: Final = 10_000.0
_EARLY: Final = ("controller", "kube", "runtime")

# The longest that a Binding or an answer is on its way, and some: what was decided by may be that old.
_LATE_S: Final = 90.0

# now_s: seconds since boot; skew_s: how far the wall clock of whoever runs now is ahead; late_s: how old what a Binding
# was decided by may be.
CLOCK: Final = SimpleNamespace(now_s=_BEGIN_S, skew_s=0.0, late_s=_LATE_S)


def wall_s() -> float:
    """Unix seconds, by the clock of whoever runs now."""
    return float(_WALL_S + CLOCK.now_s + CLOCK.skew_s)


def begin() -> None:
    """Set the clock back: another world begins."""
    CLOCK.now_s, CLOCK.skew_s, CLOCK.late_s = _BEGIN_S, 0.0, _LATE_S


def install() -> None:
    """Have `time` tell virtual time from now on.

    Raises:
        RuntimeError: a module was imported that keeps the real clock already.
    """
    if time.time is wall_s:
        return
    early = sorted(name for name in _EARLY if name in sys.modules)
    if early:
        raise RuntimeError(f"imported before the clock: {early}")
    time.monotonic = lambda: CLOCK.now_s
    time.monotonic_ns = lambda: int(CLOCK.now_s * 1e9)
    time.clock_gettime = lambda _: CLOCK.now_s
    time.time = wall_s
    # A process of the product keeps all its objects for ever; here it is one of many that begin and end.
    gc.freeze = gc.disable = lambda: None
    gc.set_threshold = lambda *_: None
