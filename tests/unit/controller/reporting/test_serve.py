"""Who asks too much at once waits outside."""

import asyncio
from typing import Any

import pytest

from controller.reporting.serve import EXPLAIN, HISTORY, HISTORY_OF_PODS, PREVIEW, TrustedCalls
from runtime.calls import RefusedCallError


class Asked:
    body = b"{}"
    address = "10.0.0.1"

    def __init__(self, path: str, token: str) -> None:
        self.path, self.method = path, "POST" if path == PREVIEW else "GET"
        self._token = token.encode()

    def header(self, name: bytes) -> bytes:
        assert name == b"authorization"
        return self._token


class Everybody:
    async def judge(self, authorization: str, verb: str, path: str, address: str) -> None:
        return None

    async def user(self, authorization: str) -> str:
        return authorization.partition(".")[0]


def all_answered_by(answer: Any) -> TrustedCalls:
    nothing: Any = None
    everybody: Any = Everybody()
    return TrustedCalls(
        lambda: everybody,
        preview=answer,
        explain=answer,
        why=answer,
        day=answer,
        audit=nothing,
        packing=nothing,
        held=nothing,
        simulate=nothing,
    )


@pytest.mark.parametrize(
    ("path", "of_user"), [(PREVIEW, 24), (f"{EXPLAIN}/ns/p", 8), (f"{HISTORY_OF_PODS}/ns/p", 8), (HISTORY, 8)]
)
async def test_calls_of_one_user_and_of_all_are_bounded_and_answered_one_at_a_time(path, of_user):
    at_work = most = 0
    free = asyncio.Event()

    async def answer(*_: Any) -> dict[str, Any]:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await free.wait()
        at_work -= 1
        return {"state": "fits"}

    trusted = all_answered_by(answer)

    def ask(token: str) -> Any:
        call: Any = Asked(path, token)
        return trusted.answer(call)

    async with asyncio.TaskGroup() as tasks:
        first = [tasks.create_task(ask(f"a.{number}")) for number in range(of_user)]
        await asyncio.sleep(0)
        with pytest.raises(RefusedCallError) as refused:
            await ask("a")
        assert refused.value.status == 429
        more = [tasks.create_task(ask(f"other-{number}")) for number in range(32 - of_user)]
        await asyncio.sleep(0)
        with pytest.raises(RefusedCallError):
            await ask("e")
        free.set()
    assert {one.result().status for one in (*first, *more)} == {200}
    assert most == 1
    assert (await ask("a")).status == 200


async def test_the_planner_has_its_turn_between_two_answers():
    turns: list[str] = []

    async def answer(*_: Any) -> dict[str, Any]:
        turns.append("answer")
        return {}

    async def plan() -> None:
        while turns.count("answer") < 8:
            turns.append("plan")
            await asyncio.sleep(0)

    trusted = all_answered_by(answer)
    calls: list[Any] = [Asked(f"{EXPLAIN}/ns/p", f"user-{number}") for number in range(8)]
    await asyncio.gather(plan(), *map(trusted.answer, calls))
    assert "answer answer" not in " ".join(turns)
