"""Volcano's node lock where it is asked for, and a start with the rights that the manifests give."""

import asyncio

import pytest

from tests.support.servers.fault_proxy import Fault, fault_proxy
from tests.support.worlds.controller_rig import GPU, NODES, pod, promised, share


async def test_nodes_are_locked_for_each_pod_while_volcanos_scheduler_shares_them(rig):
    async with rig(nodes=NODES[:1]) as world:
        settings = world.folder / "cardshare.yaml"
        settings.write_text("node_lock: true\n")
        node = "/api/v1/nodes/t4-a"
        await world.client.patch(node, {"metadata": {"annotations": {"hamivgpu": "2001-01-01T00:00:00Z"}}})
        await world.controller("--settings", str(settings))
        asked = {f"p{at}": 1000 + 100 * at for at in range(5)}
        await world.add(*(pod(name, share(memory_mib)) for name, memory_mib in asked.items()))
        for name, memory_mib in asked.items():
            ((card, held),) = promised(await world.phase(name))
            env = world.records.of(f"default/{name}")["main"]
            assert (env["NVIDIA_VISIBLE_DEVICES"], held) == (card, memory_mib)
        assert ("patch", "", "nodes") in await world.used_rights()

        async def unlocked():
            return "hamivgpu" not in (await world.client.get(node))["metadata"]["annotations"]

        await world.until(unlocked)


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param((("cut-after", 0.0),), id="written, the answer lost"),
        pytest.param((("late", 1.2), ("cut-before", 0.0)), id="written after it was read, and tried again in vain"),
        pytest.param((("late", 1.2), ("late", 3.0)), id="two on their way"),
        pytest.param((("cut-before", 0.0),) * 7 + (("cut-after", 0.0),), id="written, and given up"),
    ],
)
async def test_a_lock_of_which_the_answer_was_lost_is_known_as_ours_and_locks_nobody_out(rig, faults):
    async with rig(nodes=NODES[:1]) as world, fault_proxy(world.client.server, world.ca_pem) as proxy:
        kubeconfig, settings = world.folder / "proxied", world.folder / "cardshare.yaml"
        await asyncio.to_thread(kubeconfig.write_text, await world.kubeconfig(server=proxy.url))
        settings.write_text("node_lock: true\n")
        await world.controller("--settings", str(settings), kubeconfig=kubeconfig)
        proxy.faults += [Fault("PATCH", "/nodes/t4-a", kind, delay_s=delay_s) for kind, delay_s in faults]
        await world.add(pod("p", share(1000)))
        await world.phase("p")
        await world.add(pod("q", share(1000)))
        await world.phase("q")

        async def unlocked():
            return "hamivgpu" not in (await world.client.get("/api/v1/nodes/t4-a"))["metadata"]["annotations"]

        await world.until(unlocked)


async def test_a_cluster_without_mindcluster_needs_no_rights_for_it(rig):
    async with rig(nodes=NODES[:1]) as world:
        running = await world.controller()
        _, text = await world.http("/metrics")
        assert "cardshare_documents_forbidden 3.0" in text
        # What is not read has no age: an infinite one would raise the alert CardshareWatchStale for ever.
        ages = [line for line in text.splitlines() if line.startswith("cardshare_watch_age_seconds{")]
        assert ages
        assert [line for line in ages if "-states" in line or "Inf" in line] == []
        assert running.log_tail(100).count("listing ConfigMaps is forbidden") == 1
        await world.add(pod("p", {GPU: "1"}))
        await world.phase("p")
