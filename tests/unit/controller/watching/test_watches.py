import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from controller.inbox import Inbox
from controller.scheduler_names import SchedulerNames
from controller.watching.watches import Watches
from kube.exchange import Response
from tests.support.worlds.world import World

pytestmark = pytest.mark.looptime

BUDGETS = json.dumps(
    {
        "metadata": {"resourceVersion": "7"},
        "items": [
            {
                "metadata": {"namespace": "default", "name": "one", "uid": "u", "resourceVersion": "7"},
                "spec": {"selector": {"matchLabels": {"app": "one"}}},
                "status": {"disruptionsAllowed": 0},
            }
        ],
    }
).encode()


class Source:
    """An API server with one disruption budget, on which nothing happens."""

    async def request(self, verb, path, **_):
        assert (verb, path) == ("GET", "/apis/policy/v1/poddisruptionbudgets")
        return Response(status=200, headers={}, body=BUDGETS)

    @asynccontextmanager
    async def stream(self, path, params, **_):
        yield self._nothing()

    async def _nothing(self):
        await asyncio.Event().wait()
        yield b""


async def test_budgets_are_not_known_once_preemption_is_off_however_late_the_owner_hears_of_them():
    world, inbox = World(preemption=True), Inbox(asyncio.get_running_loop().time)
    watches = Watches(
        world.owner,
        inbox,
        None,  # type: ignore[arg-type]  # what follows the configuration has no part in it
        frozenset(),
        SchedulerNames(()),
    )
    following = asyncio.create_task(watches._follow_budgets(Source()))  # type: ignore[arg-type]
    await asyncio.sleep(3.0)
    inbox.work(float("inf"))
    assert world.owner.occupants.budgets is not None
    await asyncio.sleep(3.0)
    world.configures(preemption=False)
    await asyncio.sleep(3.0)
    inbox.work(float("inf"))
    assert world.owner.occupants.budgets is None
    world.configures(preemption=True)
    await asyncio.sleep(3.0)  # they are listed again, and not taken yet
    world.configures(preemption=False)
    await asyncio.sleep(3.0)
    inbox.work(float("inf"))
    assert world.owner.occupants.budgets is None
    following.cancel()
