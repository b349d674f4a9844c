import asyncio
from collections.abc import Iterator
from functools import partial

import pytest

from controller.actions import Inbox

pytestmark = pytest.mark.looptime


def now_s() -> float:
    return asyncio.get_running_loop().time()


def in_steps(made: list[str]) -> Iterator[None]:
    for i in range(3):
        made.append(f"step {i}")
        yield


async def test_calls_are_made_in_the_order_in_which_they_came():
    inbox, made = Inbox(now_s), list[int]()
    for i in range(5):
        inbox.put(partial(made.append, i))
    assert not inbox.work(now_s() + 1.0)
    assert made == [0, 1, 2, 3, 4]


async def test_who_waits_for_the_end_of_a_long_call_goes_on_after_it():
    inbox, made = Inbox(now_s), list[str]()

    async def asks() -> None:
        await inbox.settled()
        made.append("answer")

    inbox.put(partial(in_steps, made))
    inbox.work(now_s())
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(asks())
        await asyncio.sleep(0)
        inbox.work(now_s() + 1.0)
        assert made == ["step 0", "step 1", "step 2"]
    assert made[3:] == ["answer"]


async def test_a_long_call_is_made_in_steps_and_nothing_comes_between_them():
    inbox, made = Inbox(now_s), list[str]()

    inbox.put(partial(in_steps, made))
    inbox.put(partial(made.append, "next"))
    assert inbox.work(now_s())
    assert inbox.is_halfway
    while inbox.work(now_s()):
        pass
    assert made == ["step 0", "step 1", "step 2", "next"]
    assert not inbox.is_halfway


async def test_whoever_waits_goes_on_when_the_last_step_was_made():
    inbox, made = Inbox(now_s), list[str]()

    def long() -> Iterator[None]:
        made.append("begun")
        yield
        made.append("ended")

    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(inbox.put_and_wait(long))
        await asyncio.sleep(0.1)
        inbox.work(now_s())
        await asyncio.sleep(0.1)
        assert not waiting.done()
        while inbox.work(now_s()):
            pass
        await asyncio.sleep(0.1)
        assert waiting.done()
    assert made == ["begun", "ended"]


@pytest.mark.parametrize("steps", [0, 1])
async def test_whoever_waits_goes_on_although_the_call_failed(steps):
    inbox = Inbox(now_s)

    def failing() -> Iterator[None]:
        yield from [None] * steps
        raise RuntimeError("an undefined event")

    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        tasks.create_task(inbox.put_and_wait(failing))
        await asyncio.sleep(0.1)
        with pytest.raises(RuntimeError):
            inbox.work(now_s() + 1.0)
    assert not inbox.work(now_s() + 1.0)
    assert not inbox.is_halfway


async def test_a_full_inbox_makes_the_watches_wait_but_not_the_answers_of_calls():
    inbox, made = Inbox(now_s), list[int]()
    for i in range(4096):
        await inbox.put_in_time(partial(made.append, i))
    async with asyncio.TaskGroup() as tasks:
        late = tasks.create_task(inbox.put_in_time(partial(made.append, -1)))
        await asyncio.sleep(0.1)
        assert not late.done()
        inbox.put(partial(made.append, -2))
        inbox.work(now_s() + 1.0)
        await asyncio.sleep(0.1)
        assert late.done()
    inbox.work(now_s() + 1.0)
    assert made[-2:] == [-2, -1]
