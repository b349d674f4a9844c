"""The product's processes as a cluster runs them: two of each, started again when they end, each on a way of its own.

Controllers and webhooks reach the API server through proxies that can spoil that way; the API server reaches the
webhooks through a balancer, as through their Service.
"""

import asyncio
import re
import signal
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import aiohttp

from sandbox.demo.processes import Running
from tests.support.servers.fault_proxy import FaultProxy

_RESTARTED_AFTER_S: Final = (0.5, 4.0)
_LOOK_S: Final = 0.2
_MEASURED_EVERY_S: Final = 2.0
# Samples from when it was first ready: of a life that lasted, until it is warm, and at its end.
_LASTED: Final = 30
_COLD, _WARM, _LAST = 5, 15, 5
_TASKS: Final = re.compile(r"^cardshare_tasks (\S+)$", re.MULTILINE)
# A process of a lease that it lost ends with 1, on purpose.
_ON_PURPOSE: Final = frozenset({0, 1, -signal.SIGKILL})


class Sample(NamedTuple):
    """What a process held at a moment: memory, open files, tasks of its loop (0 where it does not say)."""

    rss_mib: float
    files: int
    tasks: int


class Service:
    """One process that is there again soon whenever it ends.

    Attributes:
        lives: how often it was started.
        disturbed: (from, to) in seconds of the loop: when it was killed or stopped, and when it was ready again.
        wrong: what it did that no process may: unexpected exit codes, tracebacks.
    """

    def __init__(self, name: str, proxy: FaultProxy, start: Callable[[], Awaitable[tuple[Running, str]]]) -> None:
        self.name = name
        self.proxy = proxy
        self.lives = 0
        self.disturbed: list[tuple[float, float]] = []
        self.wrong: list[str] = []
        self._start = start
        self._running: Running | None = None
        self._url = ""
        self._hit_s: float | None = None
        self._read = 0
        self._samples: dict[int, list[Sample]] = {}

    async def keep(self) -> None:
        """Run it for ever."""
        wait_s, most_s = _RESTARTED_AFTER_S
        while True:
            began_s = _now()
            self._running, self._url = await self._start()
            self.lives += 1
            code = await self._running.process.wait()
            self._look_at_end(code)
            wait_s = _RESTARTED_AFTER_S[0] if _now() - began_s > 10.0 else min(2 * wait_s, most_s)
            await asyncio.sleep(wait_s)

    def _look_at_end(self, code: int) -> None:
        assert self._running is not None
        text = self._running.log.read_text(encoding="utf-8", errors="replace")
        new, self._read = text[self._read :], len(text)
        # Whoever is asked to end before it has said a word has not come to what it does then.
        early = code == -signal.SIGTERM and not new.strip()
        if not (code in _ON_PURPOSE or early) or "Traceback" in new:
            self.wrong.append(f"{self.name} ended with {code}: {new[-2000:]}")

    def hit(self, number: signal.Signals) -> None:
        """Send it a signal. One that is asked to end has to lose nothing, and is not disturbed."""
        if number is not signal.SIGTERM:
            self._hit_s = self._hit_s or _now()
        if self._running is not None and self._running.process.returncode is None:
            self._running.signal(number)

    async def until_ready(self, deadline_s: float) -> bool:
        """Whether it was ready within *deadline_s*."""
        end_s = _now() + deadline_s
        while _now() < end_s:
            if await self.is_ready():
                if self._hit_s is not None:
                    self.disturbed.append((self._hit_s, _now()))
                    self._hit_s = None
                return True
            await asyncio.sleep(_LOOK_S)
        return False

    async def until_away(self, deadline_s: float) -> None:
        """Return once it is not ready, or was for *deadline_s*."""
        end_s = _now() + deadline_s
        while _now() < end_s and await self.is_ready():  # noqa: ASYNC110 (it tells nobody)
            await asyncio.sleep(_LOOK_S)

    async def is_ready(self) -> bool:
        """Whether it says so now."""
        return (await self.get("/readyz"))[0] == 200

    async def get(self, path: str) -> tuple[int, str]:
        """What its plain port answers; (0, "") where nobody does."""
        try:
            async with (
                asyncio.timeout(2),
                aiohttp.ClientSession() as session,
                session.get(self._url + path) as answer,
            ):
                return answer.status, await answer.text()
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
            return 0, ""

    def was_disturbed(self, from_s: float, to_s: float) -> bool:
        """Whether anything happened to it in that time."""
        past = any(begin_s <= to_s and end_s + 1.0 >= from_s for begin_s, end_s in self.disturbed)
        return past or (self._hit_s is not None and self._hit_s <= to_s)

    async def measure(self) -> None:
        """Note every few seconds how much it holds."""
        while True:
            await asyncio.sleep(_MEASURED_EVERY_S)
            running = self._running
            if running is None or running.process.returncode is not None:
                continue
            life, pid = self.lives, running.process.pid
            if life not in self._samples and not await self.is_ready():
                continue
            try:
                rss_mib, files = _held(pid)
            except OSError:
                continue
            found = _TASKS.search((await self.get("/metrics"))[1])
            sample = Sample(rss_mib=rss_mib, files=files, tasks=int(float(found[1])) if found else 0)
            self._samples.setdefault(life, []).append(sample)

    def grown(self) -> list[tuple[Sample, Sample]]:
        """Of each life that lasted, the most that it held when it was warm, and the least in the end.

        What is under way then, calls and pods being handed over, comes and goes; what leaks stays.
        """
        lasted = [some for some in self._samples.values() if len(some) >= _LASTED]
        return [(_of(max, some[_COLD:_WARM]), _of(min, some[-_LAST:])) for some in lasted]


def _of(which: Callable[[Iterable[float]], float], samples: Sequence[Sample]) -> Sample:
    return Sample(
        rss_mib=which(one.rss_mib for one in samples),
        files=int(which(one.files for one in samples)),
        tasks=int(which(one.tasks for one in samples)),
    )


def _held(pid: int) -> tuple[float, int]:
    """(MiB of memory, open files) of a process. Linux only."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    rss_mib = next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:")), 0.0)
    return rss_mib, len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _now() -> float:
    return asyncio.get_running_loop().time()
