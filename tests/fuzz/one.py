"""``python -m tests.fuzz.one TARGET SECONDS``: fuzz one target, in a process that `python -m tests.fuzz` starts.

Coverage is counted in the rooms that read what comes from outside, and nowhere else: what libraries do guides nobody to
a mistake of ours, and to count it takes longer than to read.
"""

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import atheris  # not in the tests' own lock

with atheris.instrument_imports(include=["core", "kube"]):
    from tests.fuzz.targets import TARGETS, read

MAX_INPUT_BYTES = 4096


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


if __name__ == "__main__":
    fuzz(sys.argv[1], int(sys.argv[2]))
