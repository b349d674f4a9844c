"""Starts server processes for tests so that none outlives them, and keeps what they wrote.

What a process is and how one knows that it is ready is left to the caller.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

GUARD: Final = Path(__file__).with_name("guard.py")


def cpu_s_of(pid: int) -> float:
    """CPU seconds that a process used so far, in user and kernel mode, to the nanosecond. Linux only.

    Source: clock_getcpuclockid(3); CPUCLOCK_SCHED of linux/posix-timers_types.h.

    Raises:
        OSError: it ended.
    """
    return time.clock_gettime((~pid << 3) | 2)


class Child:
    """One process in a process group of its own, its output appended to *log*."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.log = log
        self._process = process

    @property
    def pid(self) -> int:
        """Its process id, which is its group's too."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """`None` while it runs; minus the signal's number where one ended it."""
        return self._process.poll()

    def cpu_s(self) -> float:
        """CPU seconds that it used so far, see `cpu_s_of`."""
        return cpu_s_of(self.pid)

    def peak_rss_mib(self) -> float:
        """The most memory that it held at once, in MiB. Linux only."""
        lines = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024

    def log_tail(self, lines: int = 20) -> str:
        """The last *lines* of what it wrote."""
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and all that it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def stop(self, grace_s: float = 60.0) -> int:
        """Ask it to end, kill what is left of its group after *grace_s*, and say its exit code."""
        if self._process.poll() is None:
            self.signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace_s)
        self.signal(signal.SIGKILL)
        return self._process.wait()


class Children:
    """The processes and folders of one owner, all gone after `close` or when this process is gone."""

    def __init__(self, logs: Path) -> None:
        logs.mkdir(parents=True, exist_ok=True)
        self.logs = logs
        self._running: dict[int, Child] = {}
        self._folders: list[Path] = []
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", str(GUARD)],
            stdin=subprocess.PIPE,
            start_new_session=True,
            cwd="/",
        )

    def keep_folder(self, folder: Path) -> None:
        """Remove *folder* at the end."""
        self._folders.append(folder)
        self._tell(f"folder {folder}")

    def start(
        self, name: str, argv: Sequence[str | Path], *, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> Child:
        """Start *argv*; its output goes to `<logs>/<name>.log`. *env* is all of it, `None` our own."""
        path = self.logs / f"{name}.log"
        with path.open("ab") as log:
            process = subprocess.Popen(
                [str(word) for word in argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=env,
                cwd=cwd,
            )
        self._tell(f"group {process.pid}")
        child = Child(name, process, path)
        self._running[child.pid] = child
        return child

    def stop(self, child: Child, grace_s: float = 60.0) -> int:
        """Stop one of them and say its exit code."""
        code = child.stop(grace_s)
        if self._running.pop(child.pid, None):
            self._tell(f"ended {child.pid}")
        return code

    def close(self, grace_s: float = 10.0) -> None:
        """Stop all, the last started first, and remove the folders. Twice does no harm."""
        for child in reversed(tuple(self._running.values())):
            self.stop(child, grace_s)
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)
        self._folders.clear()
        if self._guard.stdin is not None and not self._guard.stdin.closed:
            self._guard.stdin.close()
        self._guard.wait(10)

    def _tell(self, line: str) -> None:
        assert self._guard.stdin is not None
        self._guard.stdin.write(line.encode() + b"\n")
        self._guard.stdin.flush()


def until(
    what: str, ready: Callable[[], str], *, deadline_s: float, children: Sequence[Child] = (), pause_s: float = 0.05
) -> None:
    """Ask *ready* (which answers "" for yes, or why not) until it is, in real time and blocking.

    Raises:
        RuntimeError: a process of *children* ended meanwhile, or *deadline_s* passed; the text quotes their logs.
    """
    end_s = time.monotonic() + deadline_s
    while why_not := ready():
        ended = [child for child in children if child.exit_code is not None]
        if ended or time.monotonic() > end_s:
            said = "".join(f"\n--- {c.log}, exit code {c.exit_code}\n{c.log_tail()}" for c in ended or children)
            raise RuntimeError(f"{what} is not ready: {why_not}{said}")
        time.sleep(pause_s)
