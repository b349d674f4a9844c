"""``python -m tests.support.worlds.failing_controller --fail-at=POINT:HOW``: a controller that fails once, at a point.

HOW: `kill`, as nothing can be caught; or `block=SECONDS`, in which its loop does nothing. Other flags are the
controller's.
"""

import os
import signal
import sys
import time
from collections.abc import Sequence

from controller.__main__ import main
from controller.failpoints import Point, Reached

FLAG = "--fail-at="


def failing(text: str) -> Reached:
    """What happens at which point, by *text*; the first time only."""
    name, _, how = text.partition(":")
    wanted, is_left = Point(name), [True]

    def reached(point: Point) -> None:
        if point is not wanted or not is_left:
            return
        is_left.clear()
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(float(how.removeprefix("block=")))

    return reached


def run(argv: Sequence[str]) -> int:
    """Run the controller."""
    (text,) = [one.removeprefix(FLAG) for one in argv if one.startswith(FLAG)]
    return main([one for one in argv if not one.startswith(FLAG)], os.environ, failing(text))


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
