"""Collects garbage in small steps while the ledger changes, so that no collection holds the loop up for long.

Python collects when it has made so many objects more than it has freed. A ledger frees about as many as it makes: by
that count nothing is ever due, while all that is young piles up. After 10,000 placements on 5,000 nodes the collection
that comes at last takes 120 ms. The longer it waits the more each object costs, which has left the caches by then: of
decisions on 5,000 nodes with as many releases, collecting took 10 us each after every 500 changes, in steps of 2.6 ms
on average, and 6 us after every 50, in steps of 0.15 ms.
"""

import asyncio
import gc
from collections.abc import Callable
from typing import Final

_LOOK_S: Final = 0.1
_CHANGES: Final = 50
# What survived so many collections is looked at once more, and then left alone.
_YOUNGEST_ONLY: Final = 5
# Before the first sync nothing is collected, and without an API server that can be for days.
_FAILURES: Final = 16
# What was still in use in one of these rounds has grown old in it.
_ROUNDS: Final = 8


class Garbage:
    """Knows when to collect: the youngest objects after every few dozen changes, at times the next older too."""

    def __init__(
        self,
        changes: Callable[[], int],
        collector: Callable[[int], object] = gc.collect,
        is_enabled: Callable[[], bool] = gc.isenabled,
        failures: Callable[[], int] = lambda: 0,
    ) -> None:
        """Begin now.

        Args:
            changes: how many there have been.
            collector: takes the generation up to which to collect.
            is_enabled: whether anything is to be collected now.
            failures: how many calls have failed; each leaves cycles of some KiB behind, whatever is enabled.
        """
        self._changes: Final = changes
        self._collector: Final = collector
        self._is_enabled: Final = is_enabled
        self._seen = changes()
        self._times = 0
        self._failures: Final = failures
        self._failed = 0
        self._rounds = 0

    def look(self) -> None:
        """Collect if it is time."""
        failed = self._failures()
        if failed - self._failed >= _FAILURES:
            self._failed = failed
            self._rounds += 1
            self._collector(0 if self._rounds % _ROUNDS else 2)
        now = self._changes()
        if now - self._seen < _CHANGES:
            return
        self._seen = now
        if not self._is_enabled():
            return
        self._times += 1
        self._collector(0 if self._times % _YOUNGEST_ONLY else 1)

    async def run(self) -> None:
        """Look from time to time, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            self.look()
