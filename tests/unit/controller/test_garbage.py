import asyncio
from contextlib import suppress

import pytest

from controller.garbage import collect


@pytest.mark.looptime
async def test_garbage_is_collected_after_some_hundred_changes_and_never_for_none():
    total = 0
    collected: list[int] = []

    def changes():
        return total

    task = asyncio.create_task(collect(changes, collector=collected.append))
    await asyncio.sleep(10)
    assert collected == []
    for _ in range(10):
        total += 600
        await asyncio.sleep(1)
    assert collected == [0, 0, 0, 0, 1, 0, 0, 0, 0, 1]
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
