"""The entry point of ``kubectl-cards``: Ctrl-C ends the command quietly, also while its modules load."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Load the commands and run the requested one."""
    # Loading takes up to a second, in which Python's own handler would print a traceback.
    is_pythons = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_pythons:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from cli.__main__ import main as run  # noqa: PLC0415 (see above)

    if is_pythons:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return run()


if __name__ == "__main__":
    sys.exit(main())
