"""``python -m tests.fuzz``: coverage-guided fuzzing of every decoder, each in a process of its own.

Needs atheris (requirements-fuzz.lock), which `scripts/test --fuzz` installs. What a target must not raise ends it with
the input that brought it about, on one line, to become a test. The last line is ``N passed, N failed``.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence

from tests.fuzz.targets import TARGETS


def main(argv: Sequence[str]) -> int:
    """Fuzz the targets that are named, or all; the exit status is 0 only if none of them failed."""
    parser = argparse.ArgumentParser(prog="scripts/test --fuzz", description="Fuzz every decoder, guided by coverage.")
    parser.add_argument("names", nargs="*", metavar="TARGET", help=f"one of {', '.join(TARGETS)}; all by default")
    parser.add_argument("--seconds", type=int, default=60, help="for each target (default 60)")
    options = parser.parse_args(argv)
    unknown = [name for name in options.names if name not in TARGETS]
    if unknown:
        parser.error(f"found {', '.join(unknown)}; write names of {', '.join(TARGETS)}")
    # What is imported here is not prepared for coverage.
    command = [sys.executable, "-m", "tests.fuzz.one", str(options.seconds), *(options.names or TARGETS)]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
