"""Outlives the demo by a moment and kills what it started, if it was itself killed in a way that cannot be caught.

Run as a process of its own session; standard input is its one connection. A line ``+N`` puts process group N in its
care, ``-N`` takes it out; the end of the input means that whoever wrote it is gone.
"""

import contextlib
import os
import signal
import sys


def main() -> None:
    """Read to the end, then kill what is left in care."""
    groups: set[int] = set()
    for line in sys.stdin:
        sign, number = line[:1], int(line[1:])
        if sign == "+":
            groups.add(number)
        else:
            groups.discard(number)
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    # Ctrl-C reaches the whole terminal; the demo ends its processes in order, and this waits for it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main()
