"""Kueue's Workloads are answered whether their pods fit now (docs/operators/kueue.md)."""

from pathlib import Path

import pytest
import yaml

from tests.support.worlds.controller_rig import NODES, pod, share
from tests.support.worlds.kueue import GROUP, Kueue, condition, reserved

RIGHTS = Path(__file__).parents[2] / "deploy/components/kueue/rights.yaml"


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
async def test_a_workload_is_told_whether_its_pods_fit_and_no_two_the_same_room(rig, version):
    async with rig(nodes=NODES[:1]) as world:  # two cards of 15360 MiB
        kueue = Kueue(world, version)
        await kueue.install()
        await world.apply(list(yaml.safe_load_all(RIGHTS.read_text())))
        await world.controller("--kueue")
        assert (await kueue.active())["status"] == "True"

        await kueue.reserve("large", share(16000))
        told = await kueue.told("large", "Retry")
        assert told["message"].startswith("CS502 "), told

        await kueue.reserve("first", share(15000), pods=2)
        assert "2 pods fit now, for example on t4-a" in (await kueue.told("first", "Ready"))["message"]
        await kueue.reserve("second", share(15000))
        told = await kueue.told("second", "Retry")
        assert told["message"].startswith("CS501 ")
        assert "360 of 15000 MiB free" in told["message"]

        # As Kueue does: the first finishes, and the second gets quota again.
        await kueue.write("first", {"conditions": [condition("QuotaReserved"), condition("Finished")]})
        await kueue.write("second", reserved())
        await kueue.told("second", "Ready")


async def test_nothing_of_kueue_is_read_without_the_flag(rig):
    async with rig(nodes=NODES[:1]) as world:
        kueue = Kueue(world)
        await kueue.install()
        await world.controller()
        await world.add(pod("p", share(1000)))
        await world.phase("p")
        assert GROUP not in {group for _, group, _ in await world.used_rights()}
