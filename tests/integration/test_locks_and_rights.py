"""Volcano's node lock where it is asked for, and a start with the rights that the manifests give."""

from tests.support.controller_rig import GPU, NODES, pod, promised, share


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


async def test_a_cluster_without_mindcluster_needs_no_rights_for_it(rig):
    async with rig(nodes=NODES[:1]) as world:
        running = await world.controller()
        assert "cardshare_documents_forbidden 3.0" in (await world.http("/metrics"))[1]
        assert running.log_tail(100).count("ConfigMaps may not be listed") == 1
        await world.add(pod("p", {GPU: "1"}))
        await world.phase("p")
