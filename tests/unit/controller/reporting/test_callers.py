"""Callers of the TLS port: how many tokens of one address the API server is asked about."""

from typing import Any

from controller.reporting.serve import Callers
from kube.calls import Access, Identity
from kube.reviews import YES_S

HERE, THERE = "10.0.0.1", "10.0.0.2"


class Server:
    """The API server, which knows the tokens that begin with "known"."""

    def __init__(self) -> None:
        self.reviewed: list[str] = []

    async def token_review(self, token: str, *, audiences: tuple[str, ...]) -> Identity:
        del audiences
        self.reviewed.append(token)
        return Identity(authenticated=token.startswith("known"), username=token)

    async def subject_access_review(self, identity: Identity, access: Access) -> bool:
        del identity, access
        return True


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


async def test_one_address_has_few_unknown_tokens_reviewed_and_harms_no_known_caller():
    server: Any = Server()
    clock = Clock()
    callers = Callers(server, "ours", clock=clock)

    async def status(token: str, address: str) -> int:
        denied = await callers.judge(f"Bearer {token}", "get", "/v1/held", address)
        return denied.status if denied is not None else 200

    assert await status("known", HERE) == 200
    found = [await status(f"guess-{number}", HERE) for number in range(100)]
    assert found == [401] * 39 + [429] * 61
    assert len(server.reviewed) == 40
    assert await status("known", HERE) == 200, "its owner is remembered"
    assert await status("", HERE) == 401, "no token costs no review"
    assert await status("guess", THERE) == 401, "other addresses are not affected"
    clock.now_s += 1.0
    assert [await status(f"more-{number}", HERE) for number in range(6)] == [401] * 4 + [429] * 2
    clock.now_s += YES_S
    assert await status("known", HERE) == 200
