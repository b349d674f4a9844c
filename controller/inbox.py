"""What others tell the owner: a bounded line of calls, made by the owner's own task one after the other."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

# One call of the owner. Work that is long is an iterator, driven step by step so that the loop is never held.
Message = Callable[[], Iterator[None] | None]

# So many events wait at most; then the watches wait, and with them the API server.
_ROOM: Final = 4096


class Inbox:
    """Calls that wait for the owner's task."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.filled: Final = asyncio.Event()
        self._clock: Final = clock
        self._messages: Final[deque[Message]] = deque()
        self._steps: Iterator[None] | None = None
        self._room: Final = asyncio.Event()

    def put(self, message: Message) -> None:
        """Add what must not wait: the outcome of a call."""
        self._messages.append(message)
        self.filled.set()

    async def put_in_time(self, message: Message) -> None:
        """Add an event; waits while there is no room."""
        while len(self._messages) >= _ROOM:
            self._room.clear()
            await self._room.wait()
        self.put(message)

    async def put_and_wait(self, message: Message) -> None:
        """Add *message* and wait until the owner is through with it."""
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
        """Whether a long call has begun and not ended: what the owner knows is not consistent."""
        return self._steps is not None

    async def settled(self) -> None:
        """Wait until no long call is halfway."""
        while self.is_halfway:
            await self.put_and_wait(lambda: None)

    def work(self, until_s: float) -> bool:
        """Make the calls that wait, until *until_s* (monotonic); True if some are left."""
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
