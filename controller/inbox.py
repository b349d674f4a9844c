"""The bounded queue of calls to the scheduler; the scheduler's own task runs them one at a time."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

# One call of the scheduler. Long work is an iterator, whose steps run separately so that the loop is never blocked.
Message = Callable[[], Iterator[None] | None]

# Maximum number of waiting events. When it is reached, the watches wait, and the API server with them.
_ROOM: Final = 4096


class Inbox:
    """Calls that wait for the scheduler's task."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.filled: Final = asyncio.Event()
        self._clock: Final = clock
        self._messages: Final[deque[Message]] = deque()
        self._steps: Iterator[None] | None = None
        self._room: Final = asyncio.Event()

    def put(self, message: Message) -> None:
        """Add a call that must not wait, such as the outcome of an action."""
        self._messages.append(message)
        self.filled.set()

    async def put_in_time(self, message: Message) -> None:
        """Add an event; wait while the queue is full."""
        while len(self._messages) >= _ROOM:
            self._room.clear()
            await self._room.wait()
        self.put(message)

    async def put_and_wait(self, message: Message) -> None:
        """Add *message* and wait until the scheduler has completed it."""
        done = asyncio.Event()

        def steps() -> Iterator[None]:
            rest = message()
            if rest is not None:
                yield from rest
            done.set()

        await self.put_in_time(steps)
        await done.wait()

    @property
    def is_halfway(self) -> bool:
        """Whether a long call has begun and not ended, so that the scheduler's state is inconsistent."""
        return self._steps is not None

    async def settled(self) -> None:
        """Wait until no long call is in progress."""
        while self.is_halfway:
            await self.put_and_wait(lambda: None)

    def work(self, until_s: float) -> bool:
        """Run waiting calls until *until_s* (monotonic); return True if some are left."""
        while True:
            if self._steps is not None:
                try:
                    next(self._steps)
                except StopIteration:
                    self._steps = None
            elif self._messages:
                self._steps = self._messages.popleft()()
            else:
                self._room.set()
                return False
            if self._clock() >= until_s:
                if len(self._messages) < _ROOM:
                    self._room.set()
                return True
