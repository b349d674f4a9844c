"""What doctor reads more than once."""

import asyncio
from dataclasses import replace

import pytest

from cli.doctor import watched
from tests.support.worlds.doctor import HELD, NOW_S

pytestmark = pytest.mark.looptime
# As read where the clock is two minutes ahead of the holder's.
AHEAD = replace(HELD, renewed_s=NOW_S - 120)


class Leases:
    """A Lease that is read: *found*, and from the second *changes_s* on *then*."""

    def __init__(self, found, then=None, changes_s=float("inf")):
        self.found, self.then, self.changes_s, self.reads = found, then, changes_s, 0

    async def read(self):
        self.reads += 1
        return self.found if asyncio.get_running_loop().time() < self.changes_s else self.then


async def test_a_lease_that_is_renewed_while_it_is_watched_is_held_whatever_the_clocks():
    leases = Leases(AHEAD, replace(AHEAD, renewed_s=NOW_S - 118), changes_s=1.5)
    found = await watched(leases.read, NOW_S)
    assert found is not None
    assert found.is_held(NOW_S)
    assert leases.reads == 3


async def test_a_lease_that_nobody_renews_has_expired():
    found = await watched(Leases(AHEAD).read, NOW_S)
    assert found == AHEAD
    assert asyncio.get_running_loop().time() <= 6.0


async def test_a_lease_that_is_released_while_it_is_watched_is_not_held():
    found = await watched(Leases(AHEAD, replace(AHEAD, holder=""), changes_s=1.5).read, NOW_S)
    assert found is not None
    assert not found.is_held(NOW_S)


@pytest.mark.parametrize("found", [HELD, None, replace(AHEAD, holder="")], ids=["held", "none", "released"])
async def test_a_lease_that_does_not_seem_to_have_expired_is_read_once(found):
    leases = Leases(found)
    assert await watched(leases.read, NOW_S) == found
    assert leases.reads == 1
