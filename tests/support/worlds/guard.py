"""Outlives the tests by a moment: when they are gone, kills what they started and removes their data.

Run as a process of its own session, with standard input as the one connection to the tests. Each line there is a word
and what it is about: `group N` and `folder PATH` put a process group or folder in its care, `ended N` and
`removed PATH` take it out. The end of the input means that the tests ended, however they did: a signal that cannot
be caught closes the pipe too, which no `finally` and no `atexit` survives.
"""

import contextlib
import os
import shutil
import signal
import sys


def main() -> None:
    """Read until the tests are gone, then leave nothing of what is still in care."""
    groups: set[int] = set()
    folders: set[str] = set()
    for line in sys.stdin:
        match line.rstrip("\n").partition(" "):
            case ("group", _, number):
                groups.add(int(number))
            case ("ended", _, number):
                groups.discard(int(number))
            case ("folder", _, path):
                folders.add(path)
            case ("removed", _, path):
                folders.discard(path)
    for group in groups:
        # Nobody is left to read what an orderly stop would write, and the folders go in a moment.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    for path in folders:
        shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    main()
