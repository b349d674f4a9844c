"""The controller tells to whom the time of cards goes."""

import re

from tests.support.worlds.controller_rig import NODES, pod, share

SERIES = re.compile(r"^cardshare_card_seconds_total\{.*part=\"(\w+)\",namespace=\"(\w*)\".*\} ([0-9.]+)$", re.MULTILINE)


async def test_cards_are_held_by_namespaces_from_then_on_that_pods_hold_them(rig):
    async with rig(nodes=NODES[:1]) as world:
        await world.controller()

        async def told():
            _, text = await world.http("/metrics")
            return {(part, namespace) for part, namespace, seconds in SERIES.findall(text) if float(seconds) > 0}

        assert await world.until(told) == {("idle", "")}
        await world.add(pod("a", share(4000)))
        await world.phase("a")

        async def held():
            return ("held", "default") in await told()

        await world.until(held)
