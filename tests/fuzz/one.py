"""``python -m tests.fuzz.one SECONDS TARGET...``: fuzz targets one after the other, each in a process of its own.

Coverage is counted in the rooms that read what comes from outside, and nowhere else: what libraries do guides nobody to
a mistake of ours, and to count it takes longer than to read. The rooms are prepared for that once; each target's
process is a copy of this one, so that what one leaves behind is not there for the next.
"""

import os
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

import atheris  # not in the tests' own lock

with atheris.instrument_imports(include=["core", "kube"]):
    from tests.fuzz.targets import TARGETS, read

MAX_INPUT_BYTES = 4096
END_S = 600


def fuzz(name: str, seconds: int) -> None:
    """Fuzz the target for so long; what it must not raise ends the process."""
    target = TARGETS[name]

    def one(data: bytes) -> None:
        try:
            read(target, data)
        except Exception:
            sys.stderr.write(f"{name}: not refused as it should be: {data!r}\n")
            raise

    with TemporaryDirectory() as folder:
        for at, seed in enumerate(target.seeds):
            (Path(folder) / f"seed-{at}").write_bytes(seed)
        os.chdir(folder)  # where what breaks a target is written to
        limits = (f"-max_total_time={seconds}", f"-max_len={MAX_INPUT_BYTES}", "-timeout=5", "-rss_limit_mb=2048")
        atheris.Setup([sys.argv[0], folder, *limits, "-print_final_stats=1"], one)
        atheris.Fuzz()


def passes(name: str, seconds: int) -> bool:
    """Fuzz the target in a process of its own, and say in a line what came of it, or all that it said if it failed."""
    with TemporaryFile("w+", errors="replace") as said:
        child = os.fork()
        if not child:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            fuzz(name, seconds)
            os._exit(0)
        status = _ended(child, seconds + END_S)
        said.seek(0)
        text = said.read()
    if status is None:
        sys.stdout.write(f"{name}: FAILED: it did not end {END_S} s after its time\n")
    elif status:
        sys.stdout.write(f"{name}: FAILED\n{text[-6000:]}\n")
    else:
        done = [line for line in text.splitlines() if line.startswith("Done ")]
        sys.stdout.write(f"{name}: passed {' '.join(done)}\n")
    sys.stdout.flush()
    return status == 0


def _ended(child: int, within_s: float) -> int | None:
    """How the process ended, or None if it had to be ended."""
    end_s = time.monotonic() + within_s
    while time.monotonic() < end_s:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        time.sleep(0.2)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return None


if __name__ == "__main__":
    failed = [name for name in sys.argv[2:] if not passes(name, int(sys.argv[1]))]
    sys.stdout.write(f"{len(sys.argv) - 2 - len(failed)} passed, {len(failed)} failed\n")
    sys.exit(1 if failed else 0)
