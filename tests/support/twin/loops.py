"""The event loop of one simulated process: it runs one callback at a time, when its world says so."""

import asyncio
import heapq
import itertools
from collections import deque
from typing import Any

from tests.support.twin.clock import CLOCK

_numbers = itertools.count()


class _Task(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address, so that runs repeat themselves."""

    def __init__(self, coro, *, loop, name=None, context=None):
        self._number = next(_numbers)
        super().__init__(coro, loop=loop, name=name, context=context)

    def __hash__(self):
        return self._number


class Loop:
    """What asyncio needs of a loop that has no sockets, and no more of `asyncio.AbstractEventLoop`.

    skew_s: how far the wall clock of its process is ahead. troubles: what nobody caught.
    """

    def __init__(self, skew_s: float = 0.0) -> None:
        self.skew_s = skew_s
        self.troubles: list[str] = []
        self._self: Any = self  # which asyncio takes for one of its own
        self._ready: Any = deque()
        self._timers: Any = []

    # ------------------------------------------------------------------ for the world

    def next_s(self):
        """When it has something to do."""
        if self._ready:
            return CLOCK.now_s
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else float("inf")

    def run_one(self):
        """Run the next callback that is due; False if there is none."""
        while self._timers and self._timers[0][0] <= CLOCK.now_s:
            self._ready.append(heapq.heappop(self._timers)[2])
        while self._ready:
            handle = self._ready.popleft()
            if handle.cancelled():
                continue
            CLOCK.skew_s = self.skew_s
            asyncio._set_running_loop(self._self)
            try:
                handle._run()
            finally:
                asyncio._set_running_loop(None)
                CLOCK.skew_s = 0.0
            return True
        return False

    # ------------------------------------------------------------------ for asyncio

    def time(self):
        return CLOCK.now_s

    def call_soon(self, callback, *args, context=None):
        handle = asyncio.Handle(callback, args, self._self, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(self, delay, callback, *args, context=None):
        return self.call_at(CLOCK.now_s + delay, callback, *args, context=context)

    def call_at(self, when, callback, *args, context=None):
        timer: Any = asyncio.TimerHandle(when, callback, args, self._self, context)
        heapq.heappush(self._timers, (when, next(_numbers), timer))
        timer._scheduled = True
        return timer

    def _timer_handle_cancelled(self, handle):
        pass

    def create_future(self):
        return asyncio.Future(loop=self._self)

    def create_task(self, coro, *, name=None, context=None):
        return _Task(coro, loop=self, name=name, context=context)

    def run_in_executor(self, executor, func, *args):
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as e:  # noqa: BLE001 (whoever waits for it gets it)
            future.set_exception(e)
        return future

    def call_exception_handler(self, context):
        self.troubles.append(f"{context.get('message')}: {context.get('exception')!r}")

    def get_debug(self):
        return False

    def is_running(self):
        return True

    def is_closed(self):
        return False


def new_loop(skew_s: float = 0.0) -> Any:
    """A loop of a process whose wall clock is *skew_s* ahead."""
    return Loop(skew_s)
