"""Bindings that the API server executes long after the leader that sent them has gone."""

import asyncio
import signal

import pytest

from tests.support.servers.fault_proxy import Fault
from tests.support.servers.replicas import LONG, QUICK, replicas
from tests.support.worlds.controller_rig import NODES, PODS, pod, share

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "ended"])
async def test_a_binding_that_outlives_its_leader_takes_no_room_of_another_pod(rig, how):
    async with rig(nodes=NODES[:1]) as world, replicas(world) as several:
        await world.ensure(CLASSES, "late-high", value=1000)
        first, _ = await several.start(*QUICK), await several.start(*QUICK)
        assert await several.leader() is first
        # Two cards of 15,360 MiB: one is taken all the time, one is freed.
        await world.add(pod("kept", share(9000)), pod("freed", share(9000)))
        for name in ("kept", "freed"):
            await world.phase(name)
        await world.add(pod("p", share(9000)))
        await world.waits("p", "CS50")
        stuck = Fault("POST", "/p/binding", "stuck", times=99)
        first.proxy.faults.append(stuck)
        await world.client.delete(f"{PODS}/freed")

        async def sent():
            return first.proxy.times("POST", "/p/binding")

        await world.until(sent)
        # It cannot learn what became of it, nor fence it off.
        first.proxy.refused |= {"/pods/p": "500", "/p/status": "500"}
        urgent = pod("urgent", share(9000))
        urgent["spec"]["priorityClassName"] = "late-high"
        await world.add(urgent)
        first.running.signal(how)
        await world.phase("urgent")
        async with asyncio.timeout(60):
            assert await first.running.process.wait() == (0 if how is signal.SIGTERM else -how)
        stuck.released.set()

        async def executed():
            return first.proxy.late_answers

        assert await world.until(executed) == [409]
        await world.waits("p", "CS50")
        await several.sound()


async def test_a_leader_that_ends_settles_what_it_sent_and_releases_its_lease(rig):
    async with rig(nodes=NODES[:1]) as world, replicas(world) as several:
        first, second = await several.start(*LONG), await several.start(*LONG)
        assert await several.leader() is first
        first.proxy.faults.append(Fault("POST", "/p/binding", "late", delay_s=6.0, times=99))
        await world.add(pod("p", share(9000)))

        async def sent():
            return first.proxy.times("POST", "/p/binding")

        await world.until(sent)
        first.running.signal(signal.SIGTERM)
        ended_s = asyncio.get_running_loop().time()
        await world.phase("p")
        assert await several.leader(but=first) is second
        # It closes the node for 5 s after it listed it, for pods that were removed by force before. A lease that is not
        # released lasts for a minute.
        assert second.proxy.times("POST", "/p/binding")[0] - ended_s < 45.0
        # It moved nothing, because nothing was left to be fenced off; why the pod waited for the node may be told.
        moved = [body for path, body in second.proxy.patches if path.endswith("/p/status") and b"lastProbeTime" in body]
        assert moved == []
        await several.sound()
