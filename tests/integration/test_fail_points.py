"""A controller that dies or stalls at a named point, and one whose view is late: nothing is promised twice or lost."""

import asyncio
import signal

import pytest

from tests.support.servers.fault_proxy import fault_proxy
from tests.support.servers.replicas import QUICK, replicas
from tests.support.worlds.controller_rig import NODES, PODS, pod, promised, share

ONE_CARD = ({"name": "t4-a", "plugin": {"kind": "vgpu", "model": "Tesla T4", "memory_mib": 15360, "count": 1}},)


async def dies(running):
    async with asyncio.timeout(60):
        assert await running.process.wait() == -signal.SIGKILL


async def proxied(world, proxy):
    path = world.folder / "proxied"
    await asyncio.to_thread(path.write_text, await world.kubeconfig(server=proxy.url))
    return path


async def test_a_controller_that_dies_before_it_sends_its_binding_has_written_nothing(rig):
    async with rig(nodes=ONE_CARD) as world:
        first = await world.controller(fail_at="before-bind:kill")
        await world.add(pod("a", share(10_000)))
        await dies(first)
        assert not (await world.get("a"))["spec"].get("nodeName")
        await world.controller(name="second")
        await world.phase("a")
        await world.add(pod("b", share(5_000)))
        await world.phase("b")


async def test_a_controller_that_dies_after_its_binding_was_written_is_followed_by_one_that_counts_it(rig):
    async with rig(nodes=ONE_CARD) as world:
        first = await world.controller(fail_at="after-bind:kill")
        await world.add(pod("a", share(10_000)))
        await dies(first)
        before = promised(await world.phase("a"))
        await world.controller(name="second")
        await world.add(pod("b", share(10_000)), pod("c", share(5_000)))
        await world.phase("c")
        await world.waits("b", "MiB")
        assert promised(await world.get("a")) == before


@pytest.mark.parametrize("point", ["before-fence", "after-fence"])
async def test_a_controller_that_dies_while_it_settles_what_was_lost_leaves_that_to_the_next(rig, point):
    async with rig(nodes=ONE_CARD) as world, fault_proxy(world.client.server, world.ca_pem) as proxy:
        proxy.refused["/a/binding"] = "500"
        first = await world.controller(kubeconfig=await proxied(world, proxy), fail_at=f"{point}:kill")
        await world.add(pod("a", share(10_000)))
        await dies(first)
        await world.controller(name="second")
        await world.phase("a")


@pytest.mark.parametrize("point", ["before-lock", "after-lock"])
async def test_a_controller_that_dies_around_a_nodes_lock_leaves_no_node_locked_for_a_pod_of_its_own(rig, point):
    nodes = ({"name": "npu", "plugin": {"kind": "ascend-hami", "chip": "Ascend910B4", "count": 1}},)
    async with rig(nodes=nodes) as world:
        first = await world.controller(fail_at=f"{point}:kill")
        await world.add(pod("a", {"huawei.com/Ascend910B4": "1"}))
        await dies(first)
        await world.controller(name="second")
        await world.phase("a")


async def test_a_leader_whose_loop_was_blocked_until_its_lease_was_over_sends_nothing_when_it_goes_on(rig):
    async with rig(nodes=NODES[:1]) as world, replicas(world) as several:
        first = await several.start(*QUICK, fail_at="before-bind:block=14")
        await several.start(*QUICK)
        assert await several.leader() is first
        await world.add(pod("a", share(1000)))
        await world.phase("a", deadline_s=60.0)
        async with asyncio.timeout(90):
            await first.running.process.wait()
        assert not [path for _, _, path in first.writes() if path.endswith("/binding")]
        await several.sound()


async def test_a_controller_that_dies_during_its_first_list_or_before_its_watch_speaks_misses_nothing(rig):
    async with rig(nodes=ONE_CARD) as world, fault_proxy(world.client.server, world.ca_pem) as proxy:
        kubeconfig = await proxied(world, proxy)
        proxy.lag_s = 2.0
        first = await world.controller(kubeconfig=kubeconfig, wait=False)
        await world.until(lambda: _asked(proxy, "GET", "/pods"))
        first.signal(signal.SIGKILL)
        proxy.lag_s = 0.0
        proxy.held.add("/pods")
        second = await world.controller(kubeconfig=kubeconfig, name="second")
        await world.add(pod("a", share(10_000)))  # between its list and what its watch says
        second.signal(signal.SIGKILL)
        await world.controller(kubeconfig=kubeconfig, wait=False, name="third")
        await world.phase("a")
        await world.add(pod("b", share(5_000)))
        proxy.held.clear()
        await world.phase("b")


async def test_what_is_bound_while_the_watch_of_pods_is_held_back_counts_at_once(rig):
    async with rig(nodes=ONE_CARD) as world, fault_proxy(world.client.server, world.ca_pem) as proxy:
        node = "/api/v1/nodes/t4-a"
        await world.client.patch(node, {"spec": {"unschedulable": True}})
        await world.controller(kubeconfig=await proxied(world, proxy))
        await world.add(*(pod(f"p{at}", share(4_000)) for at in range(6)))
        for at in range(6):
            await world.waits(f"p{at}", "cordoned")
        proxy.held.add("/pods")
        await world.client.patch(node, {"spec": {"unschedulable": None}})

        async def bound():
            return [one for one in await world.client.list(PODS) if one["spec"].get("nodeName")]

        # One is in the plugin's hands at a time, and that it was served is what is held back.
        await world.until(bound)
        # A later event of a watch that is not held back. What could be decided has been decided by then.
        await world.add_unreadable_node("bad")
        await world.until(lambda: world.told("bad", "CardsUnusable"))
        assert sum(memory for one in await bound() for _, memory in promised(one)) <= 15_360
        proxy.held.clear()

        async def three():
            return len(await bound()) == 3

        await world.until(three)
        running = [one["metadata"]["name"] for one in await bound()]
        await world.client.delete(f"{PODS}/{running[0]}", grace_s=0)
        await world.until(three)


async def test_a_controller_stays_while_the_api_server_is_away_and_goes_on_when_it_is_back(rig):
    async with rig(nodes=NODES[:1]) as world, fault_proxy(world.client.server, world.ca_pem) as proxy:
        running = await world.controller(kubeconfig=await proxied(world, proxy))
        proxy.way = "cut"
        proxy.cut_watches()
        await world.add(pod("a", share(1000)))
        await world.not_ready_because("failing")
        before = len(proxy.seen)

        async def asked_often():
            assert (await world.http("/healthz"))[0] == 200
            return len(proxy.seen) >= before + 12

        await world.until(asked_often)
        proxy.way = "open"
        await world.phase("a")
        assert running.process.returncode is None


async def _asked(proxy, verb, ending):
    return bool(proxy.times(verb, ending))
