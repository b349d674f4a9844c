"""Work on the event loop in slices, between which others have it."""

import asyncio
from collections.abc import Callable, Generator
from typing import Final, TypeVar

_STEP_S: Final = 0.005

_T = TypeVar("_T")


class Work:
    """One piece of work, and how long it took."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Begin; *clock*: monotonic seconds."""
        self._clock = clock
        self._worked_s, self._started_s = 0.0, clock()

    async def give_way(self) -> None:
        """Let others go on if this slice has lasted for long enough."""
        if self._clock() - self._started_s > _STEP_S:
            self._worked_s = self.worked_s
            await asyncio.sleep(0)
            self._started_s = self._clock()

    async def result(self, steps: Generator[None, None, _T]) -> _T:
        """What *steps* return; others may go on between two of them."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]  # typeshed knows no better
            await self.give_way()

    @property
    def worked_s(self) -> float:
        """The seconds of work up to now, those of others not counted."""
        return self._worked_s + self._clock() - self._started_s
