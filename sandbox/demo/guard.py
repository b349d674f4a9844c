"""Outlives the demo briefly and kills its processes, if the demo itself was killed by an uncatchable signal.

It runs in its own session; standard input is its only connection. A line ``+N`` adds process group N, ``-N`` removes
it;
the end of input means that the writer is gone.
"""

import contextlib
import os
import signal
import sys


def main() -> None:
    """Read to the end of input, then kill the remaining groups."""
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
    # Ctrl-C reaches the whole terminal; the demo ends its processes in order, and the guard waits for it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main()
