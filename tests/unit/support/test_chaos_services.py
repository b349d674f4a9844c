"""What a run of chaos holds against a process, and what it does not."""

import asyncio
import contextlib
import os
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from tests.chaos.services import Service

READY_AFTER_S = 60.0


class Process:
    """One that ends with *code* as soon as it is waited for, or never."""

    def __init__(self, code: int | None) -> None:
        self.pid = os.getpid()
        self.returncode: int | None = None
        self._code = code

    async def wait(self) -> int:
        if self._code is None:
            await asyncio.Event().wait()
        assert self._code is not None
        return self._code


def service(tmp_path, code, said="", kind=Service) -> Any:
    log = tmp_path / "log"
    log.write_text(said, encoding="utf-8")

    async def start():
        return SimpleNamespace(process=Process(code), log=log), "http://nobody"

    return kind("one", None, start)


async def run(work, seconds):
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(work, seconds)


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("code", "said", "wrong"),
    [
        pytest.param(0, "stopping", False, id="ended"),
        pytest.param(-9, "", False, id="killed"),
        pytest.param(-15, "", False, id="asked to end before it said a word"),
        pytest.param(-15, "leader now", True, id="ended by a signal that it should have heeded"),
        pytest.param(3, "", True, id="a contradiction"),
        pytest.param(1, "Traceback (most recent call last)", True, id="a traceback"),
    ],
)
async def test_a_process_that_ends_as_none_may_is_told(tmp_path, code, said, wrong):
    one = service(tmp_path, code, said)
    await run(one.keep(), 0.1)
    assert bool(one.wrong) is wrong


class Slow(Service):
    """One that takes a minute until it is ready, and has its tasks from then on."""

    async def get(self, path):
        is_ready = asyncio.get_running_loop().time() >= READY_AFTER_S
        return (200 if is_ready else 503), f"cardshare_tasks {44 if is_ready else 10}.0\n"


@pytest.mark.looptime
async def test_what_a_process_takes_until_it_is_ready_is_no_growth(tmp_path):
    one = service(tmp_path, None, kind=Slow)
    async with asyncio.TaskGroup() as tasks:
        work = [tasks.create_task(one.keep()), tasks.create_task(one.measure())]
        await asyncio.sleep(READY_AFTER_S + 120.0)
        for task in work:
            task.cancel()
    ((warm, end),) = one.grown()
    assert (warm.tasks, end.tasks) == (44, 44)


class Busy(Slow):
    """One with much under way every now and then, and more and more of it if it leaks."""

    leaks: ClassVar[int] = 0

    async def get(self, path):
        status, _ = await super().get(path)
        now_s = asyncio.get_running_loop().time()
        under_way = 40 if now_s > READY_AFTER_S + 60.0 and int(now_s / 2) % 3 else 0
        return status, f"cardshare_tasks {44 + under_way + self.leaks * int(now_s)}.0\n"


class Leaking(Busy):
    """One that forgets a task a second."""

    leaks = 1


@pytest.mark.parametrize(("kind", "grows"), [(Busy, False), (Leaking, True)])
@pytest.mark.looptime
async def test_what_comes_and_goes_is_no_growth_and_what_stays_is(tmp_path, kind, grows):
    one = service(tmp_path, None, kind=kind)
    async with asyncio.TaskGroup() as tasks:
        work = [tasks.create_task(one.keep()), tasks.create_task(one.measure())]
        await asyncio.sleep(READY_AFTER_S + 120.0)
        for task in work:
            task.cancel()
    ((warm, end),) = one.grown()
    assert (end.tasks > warm.tasks + 32) is grows
