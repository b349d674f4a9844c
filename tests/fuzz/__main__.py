"""``python -m tests.fuzz``: coverage-guided fuzzing of every decoder, each in a process of its own.

Needs atheris (requirements-fuzz.lock), which `scripts/test --fuzz` installs. What a target must not raise ends it with
the input that brought it about, on one line, to become a test. The last line is ``N passed, N failed``.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence

from tests.fuzz.targets import TARGETS

END_S = 600


def main(argv: Sequence[str]) -> int:
    """Fuzz the targets that are named, or all; the exit status is 0 only if none of them failed."""
    parser = argparse.ArgumentParser(prog="scripts/test --fuzz", description="Fuzz every decoder, guided by coverage.")
    parser.add_argument("names", nargs="*", metavar="TARGET", help=f"one of {', '.join(TARGETS)}; all by default")
    parser.add_argument("--seconds", type=int, default=60, help="for each target (default 60)")
    options = parser.parse_args(argv)
    unknown = [name for name in options.names if name not in TARGETS]
    if unknown:
        parser.error(f"found {', '.join(unknown)}; write names of {', '.join(TARGETS)}")
    failed = [name for name in options.names or TARGETS if not _in_a_process(name, options.seconds)]
    count = len(options.names or TARGETS)
    print(f"{count - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


def _in_a_process(name: str, seconds: int) -> bool:
    command = [sys.executable, "-m", "tests.fuzz.one", name, str(seconds)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + END_S, check=False)
    except subprocess.TimeoutExpired:
        print(f"{name}: FAILED: it did not end {END_S} s after its time", flush=True)
        return False
    said = [line for line in done.stderr.splitlines() if line.startswith(("Done ", "stat::number_of_executed_units"))]
    print(f"{name}: {'passed' if done.returncode == 0 else 'FAILED'} {' '.join(said)}", flush=True)
    if done.returncode:
        print(done.stdout[-2000:], done.stderr[-4000:], sep="\n", flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
