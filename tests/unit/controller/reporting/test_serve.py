"""Who asks for too many previews at once waits outside."""

import asyncio
from typing import Any

import pytest

from controller.reporting.serve import PREVIEW, Trusted
from runtime.calls import RefusedCallError


class Asked:
    path, method, body = PREVIEW, "POST", b"{}"

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    def header(self, name: bytes) -> bytes:
        assert name == b"authorization"
        return self._token


class Everybody:
    async def judge(self, authorization: str, verb: str, path: str) -> None:
        return None


async def test_previews_of_one_caller_and_of_all_are_bounded_and_worked_on_one_at_a_time():
    at_work = most = 0
    free = asyncio.Event()

    async def preview(text: bytes) -> dict[str, Any]:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await free.wait()
        at_work -= 1
        return {"state": "fits"}

    async def explain(key: str) -> dict[str, Any]:
        raise AssertionError(key)

    nothing: Any = None
    everybody: Any = Everybody()
    trusted = Trusted(
        lambda: everybody,
        preview=preview,
        explain=explain,
        why=explain,
        day=nothing,
        audit=nothing,
        packing=nothing,
        held=nothing,
    )

    def ask(token: str) -> Any:
        call: Any = Asked(token)
        return trusted.answer(call)

    async with asyncio.TaskGroup() as tasks:
        first = [tasks.create_task(ask("a")) for _ in range(8)]
        await asyncio.sleep(0.01)
        with pytest.raises(RefusedCallError) as refused:
            await ask("a")
        assert refused.value.status == 429
        more = [tasks.create_task(ask(token)) for token in "bcd" for _ in range(8)]
        await asyncio.sleep(0.01)
        with pytest.raises(RefusedCallError):
            await ask("e")
        free.set()
    assert {one.result().status for one in (*first, *more)} == {200}
    assert most == 1
    assert (await ask("a")).status == 200
