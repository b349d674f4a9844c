"""Work on the event loop in slices, between which other tasks run."""

import asyncio
from collections.abc import Callable, Generator
from typing import Final, TypeVar

_STEP_S: Final = 0.005

_T = TypeVar("_T")


class Work:
    """One piece of work, and its duration."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Begin; *clock*: monotonic seconds."""
        self._clock = clock
        self._worked_s, self._started_s = 0.0, clock()

    async def give_way(self) -> None:
        """Let other tasks run if this slice has lasted long enough."""
        if self._clock() - self._started_s > _STEP_S:
            self._worked_s = self.worked_s
            await asyncio.sleep(0)
            self._started_s = self._clock()

    async def result(self, steps: Generator[None, None, _T]) -> _T:
        """Return the result of *steps*; other tasks may run between two of them."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]  # typeshed knows no better
            await self.give_way()

    @property
    def worked_s(self) -> float:
        """The seconds of work so far, without those of other tasks."""
        return self._worked_s + self._clock() - self._started_s


class Rate:
    """A rate limit: work starts *per_s* times a second, and *burst* times at once after a pause."""

    def __init__(self, clock: Callable[[], float], per_s: float, burst: float) -> None:
        """Begin after a pause; *clock*: monotonic seconds."""
        self._clock: Final = clock
        self._per_s: Final = per_s
        self._burst: Final = burst
        self._next_s = float("-inf")

    async def turn(self) -> None:
        """Wait until it may begin."""
        now_s = self._clock()
        at_s = max(self._next_s, now_s - self._burst / self._per_s)
        self._next_s = at_s + 1.0 / self._per_s
        if at_s > now_s:
            await asyncio.sleep(at_s - now_s)

    def rest(self, until_s: float) -> None:
        """Begin nothing before *until_s*, monotonic."""
        self._next_s = max(self._next_s, until_s)
