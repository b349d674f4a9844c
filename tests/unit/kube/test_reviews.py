"""Answers about tokens are remembered: good ones for a minute, bad ones for seconds, and never too many."""

import asyncio
from typing import Any

import pytest

from kube.calls import Access, Identity
from kube.errors import ApiUnreachableError
from kube.reviews import NO_S, TOKEN_CHARACTERS_MAX, YES_S, Reviews, bearer

PODS = Access(verb="list", resource="pods", namespace="a")
NODES = Access(verb="list", resource="nodes")


class Server:
    """The API server's two reviews, and how often each was asked."""

    def __init__(self, *users: str, allowed: bool = True) -> None:
        self.users, self.allowed = {*users}, allowed
        self.tokens: list[str] = []
        self.accesses: list[tuple[str, Access]] = []

    async def token_review(self, token: str, *, audiences: tuple[str, ...]) -> Identity:
        del audiences
        await asyncio.sleep(0)
        self.tokens.append(token)
        return Identity(authenticated=token in self.users, username=token)

    async def subject_access_review(self, identity: Identity, access: Access) -> bool:
        self.accesses.append((identity.username, access))
        return self.allowed


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def reviews(server: Any, clock: Clock, **options: Any) -> Reviews:
    return Reviews(server, clock=clock, **options)


async def test_a_yes_is_asked_once_a_minute_and_a_no_again_after_seconds():
    server, clock = Server("anna"), Clock()
    asked = reviews(server, clock)
    for _ in range(3):
        assert await asked.allows("anna", PODS)
    assert (server.tokens, server.accesses) == (["anna"], [("anna", PODS)])
    clock.now_s += YES_S
    server.allowed = False
    assert not await asked.allows("anna", PODS)
    assert not await asked.allows("anna", PODS)
    assert len(server.accesses) == 2
    clock.now_s += NO_S
    server.allowed = True
    assert await asked.allows("anna", PODS)
    assert len(server.tokens) == 2


async def test_a_revoked_token_is_unknown_within_a_minute():
    server, clock = Server("anna"), Clock()
    asked = reviews(server, clock)
    assert await asked.allows("anna", PODS)
    server.users.clear()
    assert asked.knows("anna")
    clock.now_s += YES_S
    assert not asked.knows("anna")
    assert not (await asked.identity("anna")).authenticated
    assert not await asked.allows("anna", PODS)
    assert server.tokens == ["anna", "anna"]


async def test_many_calls_at_once_with_one_token_ask_few_times():
    server = Server("anna")
    asked = reviews(server, Clock())
    async with asyncio.TaskGroup() as tasks:
        found = [tasks.create_task(asked.identity("anna")) for _ in range(1000)]
    assert all(one.result().authenticated for one in found)
    assert len(server.tokens) <= 8


async def test_no_number_of_bad_tokens_drives_out_a_good_one_and_memory_is_bounded():
    server, clock = Server("anna", *(f"good-{number}" for number in range(20))), Clock()
    asked = reviews(server, clock, tokens_max=8)
    await asked.identity("anna")
    for number in range(100):
        await asked.identity(f"bad-{number}")
    assert asked.knows("anna")
    for number in range(20):
        await asked.identity(f"good-{number}")
    assert len(asked._known) == len(asked._unknown) == 8
    assert not asked.knows("anna")


async def test_accesses_of_one_token_are_bounded():
    asked = reviews(Server("anna"), Clock())
    for number in range(1000):
        assert await asked.allows("anna", Access(verb="list", resource="pods", namespace=f"{number}"))
    assert len(asked._known.popitem()[1].answers) <= 256


@pytest.mark.parametrize("token", ["", "x" * (TOKEN_CHARACTERS_MAX + 1)])
async def test_what_is_no_token_is_not_sent(token):
    server = Server(token)
    assert not (await reviews(server, Clock()).identity(token)).authenticated
    assert server.tokens == []


async def test_an_api_server_that_does_not_answer_is_neither_a_yes_nor_a_no():
    class Away(Server):
        async def token_review(self, token: str, *, audiences: tuple[str, ...]) -> Identity:
            raise ApiUnreachableError(verb="POST", path="/", status=0, message="away")

    asked = reviews(Away(), Clock())
    for _ in range(2):
        with pytest.raises(ApiUnreachableError):
            await asked.allows("anna", NODES)


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("Bearer a", "a"),
        ("bearer  a", "a"),
        ("Basic a", ""),
        ("Bearer", ""),
        ("", ""),
        ("a", ""),
        ("Bearer \udcff", ""),
    ],
)
def test_only_a_bearer_has_a_token(header, token):
    assert bearer(header) == token
