"""Real processes, kubelets that admit the dead, plugins that die and of three versions: nobody gets another's cards."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from sandbox.nodes.kubelet import AdmissionOrder, KubeletSettings
from sandbox.players.vgpu_protocol import Version
from tests.support.worlds.controller_rig import GPU, IDS, NODES, PODS, pod, share

T4 = {"kind": "vgpu", "model": "Tesla T4", "memory_mib": 15360, "count": 4}
WATCH = KubeletSettings(order=AdmissionOrder.WATCH)


def numbered(name, number):
    return pod(name, {GPU: str(number), "volcano.sh/vgpu-memory": "1000"})


async def bound(world, name, deadline_s=60.0):
    async def asked():
        found = await world.get(name)
        return found if found["spec"].get("nodeName") else None

    return await world.until(asked, deadline_s)


@pytest.mark.parametrize("resource", ["vgpu", "share"])
async def test_a_pod_deleted_by_force_before_it_was_served_takes_nobodys_cards(rig, resource):
    node, limits = (NODES[0], share(1000)) if resource == "vgpu" else (NODES[1], {"volcano.sh/gpu-memory": "1000"})
    name = node["name"]
    async with rig(nodes=[node], kubelet=WATCH) as world:
        await world.controller()
        world.kubelet.pause(name)
        await world.add(pod("dead", limits))
        await bound(world, "dead")
        await world.client.delete(f"{PODS}/dead", grace_s=0)
        await world.add(pod("a", limits), pod("b", limits))
        for one in ("a", "b"):
            await world.until(lambda name=one: reason(world, name))
        assert not [one for one in ("a", "b") if (await world.get(one))["spec"].get("nodeName")]
        world.kubelet.resume(name)
        for one in ("a", "b"):
            await world.phase(one)
        assert world.records.strangers() == []


async def test_many_that_are_deleted_by_force_take_nobodys_cards(rig):
    nodes = [{"name": f"t4-{at}", "plugin": {**T4, "delay_s": 0.2}} for at in range(3)]
    async with rig(nodes=nodes, kubelet=WATCH) as world:
        await world.controller()
        for at in range(12):
            await world.add(numbered(f"p{at}", 1 + at % 2))

        async def some_in_flight():
            return sum(bool(one["spec"].get("nodeName")) for one in await world.client.list(PODS)) > 1

        await world.until(some_in_flight)
        for at in range(0, 12, 3):
            await world.client.delete(f"{PODS}/p{at}", grace_s=0)
        for at in range(12):
            if at % 3:
                await world.phase(f"p{at}", deadline_s=60.0)
        assert world.records.strangers() == []


@pytest.mark.parametrize("version", [Version.V1_11_0, Version.V1_12_0, Version.MAIN])
async def test_pods_of_different_numbers_all_get_their_own_cards_whatever_the_plugins_version(rig, version):
    kubelet = KubeletSettings(order=AdmissionOrder.SHUFFLED, seed=5, admission_delay_s=0.1)
    node = {"name": "t4-a", "plugin": {**T4, "version": version.value}}
    async with rig(nodes=[node], kubelet=kubelet) as world:
        await world.controller()
        names = [f"p{at}" for at in range(8)]
        await world.add(*(numbered(name, 1 + at % 4) for at, name in enumerate(names)))
        for name in names:
            await world.phase(name, deadline_s=60.0)
        assert world.records.strangers() == []


async def test_a_dead_plugin_swallows_few_replacements_while_another_node_is_free(rig):
    nodes = [{"name": f"t4-{at}", "plugin": {**T4, "count": 8}} for at in ("a", "b")]
    async with rig(nodes=nodes, kubelet=KubeletSettings(node_status_delay_s=8.0)) as world:
        await world.controller()
        await world.add(numbered("first", 1))
        dead = (await world.phase("first"))["spec"]["nodeName"]
        await world.kubelet.kill_plugins(dead)
        failed, at = 0, 0
        async with asyncio.timeout(240):
            while at - failed < 10:
                await world.add(numbered(f"p{at}", 1))
                found = await world.until(lambda name=f"p{at}": ended(world, name))
                failed += found == "Failed"
                at += 1
        assert failed <= 2
        text = (await world.http("/metrics"))[1]
        assert f'cardshare_pods_turned_away_total{{dialect="vgpu"}} {float(failed)}' in text
        await world.kubelet.revive_plugins(dead)


async def reason(world, name):
    """Of its condition PodScheduled, with the message; "" without one."""
    conditions = (await world.get(name))["status"].get("conditions", ())
    return next((f"{one['reason']}: {one['message']}" for one in conditions if one["type"] == "PodScheduled"), "")


# Until the node's status says that its plugin is gone, on however slow a machine.
LATE = KubeletSettings(node_status_delay_s=20.0)


async def test_a_replacement_is_told_why_it_waits_for_a_node_whose_plugin_has_died(rig):
    """Within a second, as tests/unit/controller/handing_over/test_plugins.py holds in virtual time."""
    async with rig(nodes=[{"name": "t4-a", "plugin": T4}], kubelet=LATE) as world:
        await world.controller()
        await world.add(numbered("first", 1))
        await world.phase("first")
        await world.kubelet.kill_plugins("t4-a")
        await world.add(numbered("lost", 1))
        await world.phase("lost", "Failed")
        await world.add(numbered("next", 1))
        told = await world.until(lambda: reason(world, "next"))
        assert told.startswith("NodeRests: CS513 ")
        await world.kubelet.revive_plugins("t4-a")
        await world.phase("next", deadline_s=60.0)


async def test_no_pod_is_lost_while_the_plugins_own_pod_says_that_it_does_not_run(rig):
    own = pod("volcano-device-plugin-x", {})
    own["metadata"] |= {
        "namespace": "kube-system",
        "ownerReferences": [
            {
                "apiVersion": "apps/v1",
                "kind": "DaemonSet",
                "name": "volcano-device-plugin",
                "uid": "u",
                "controller": True,
            }
        ],
    }
    own["spec"] |= {"nodeName": "t4-a", "serviceAccountName": "volcano-device-plugin"}
    path = "/api/v1/namespaces/kube-system/pods"
    ready = [{"type": "Ready", "status": "False"}]
    async with rig(nodes=[{"name": "t4-a", "plugin": T4}], kubelet=LATE) as world:
        await world.ensure("/api/v1/namespaces", "kube-system")
        await world.controller()
        await world.client.create(path, own)
        await world.add(numbered("first", 1))
        await world.phase("first")
        await world.client.patch(f"{path}/{own['metadata']['name']}/status", {"status": {"conditions": ready}})
        await world.kubelet.kill_plugins("t4-a")
        await world.add(numbered("next", 1))
        told = await world.until(lambda: reason(world, "next"))
        assert "its device plugin's pod kube-system/volcano-device-plugin-x is not ready" in told
        await world.add(numbered("later", 2))
        await world.until(lambda: reason(world, "later"))
        assert not (await world.get("next"))["spec"].get("nodeName")
        await world.kubelet.revive_plugins("t4-a")
        ready[0]["status"] = "True"
        await world.client.patch(f"{path}/{own['metadata']['name']}/status", {"status": {"conditions": ready}})
        await world.phase("next", deadline_s=60.0)


async def is_calling(world, node):
    """Whether a plugin is being called."""
    return world.kubelet._nodes[node].calling


async def ended(world, name):
    phase = (await world.get(name))["status"].get("phase")
    return phase if phase in ("Running", "Failed") else ""


async def test_a_plugin_that_dies_under_a_call_costs_one_pod_and_its_node_serves_again(rig):
    node = {"name": "t4-a", "plugin": {**T4, "delay_s": 300.0, "lists_step_s": 0.2}}
    async with rig(nodes=[node], kubelet=KubeletSettings(node_status_delay_s=1.0)) as world:
        await world.controller()
        await world.add(numbered("under", 1))
        await bound(world, "under")
        await world.until(lambda: is_calling(world, "t4-a"))
        await world.kubelet.kill_plugins("t4-a")
        await world.phase("under", "Failed")
        (plugin,) = world.kubelet.plugins("t4-a")
        plugin.faults.delay_s = 0.0
        await world.kubelet.revive_plugins("t4-a")
        await world.add(numbered("next", 1))
        await world.phase("next", deadline_s=60.0)
        assert world.records.strangers() == []


async def test_five_calls_a_second_are_enough_for_everybody_to_get_his_own(rig):
    kubelet = KubeletSettings(order=AdmissionOrder.NEWEST_FIRST, plugin_calls_per_s=5.0)
    async with rig(nodes=[{"name": "t4-a", "plugin": T4}], kubelet=kubelet) as world:
        await world.controller()
        names = [f"p{at}" for at in range(12)]
        await world.add(*(numbered(name, 1 + at % 2) for at, name in enumerate(names)))
        for name in names:
            await world.phase(name, deadline_s=90.0)
        assert world.records.strangers() == []


async def test_38_a_card_that_falls_ill_again_and_again_is_left_alone_and_its_node_serves(rig):
    async with rig(nodes=[{"name": "t4-a", "plugin": {**T4, "count": 2}}]) as world:
        await world.controller()
        (plugin,) = world.kubelet.plugins("t4-a")
        card = plugin._setup.cards[0].id

        async def register():
            return (await world.client.get("/api/v1/nodes/t4-a"))["metadata"]["annotations"][
                "volcano.sh/node-vgpu-register"
            ]

        async def unsteady(wanted):
            text = (await world.http("/metrics"))[1]
            return f'cardshare_cards_unsteady{{dialect="vgpu"}} {wanted}.0' in text

        for number, is_healthy in enumerate((False, True, False, True)):
            before = await register()
            await plugin.set_healthy(card, is_healthy)
            assert await register() != before
            # A later change of a node, by the same watch.
            later = f"later-{number}"
            await world.add_unreadable_node(later)
            await world.until(partial(world.told, later, "CardsUnusable"))
        await world.until(lambda: unsteady(1))
        await world.add(pod("a", share(12000)))
        assert card not in (await bound(world, "a"))["metadata"]["annotations"][IDS]
        await world.add(pod("b", share(12000)))
        await world.waits("b", "free")
        await world.until(lambda: unsteady(0))
        assert card in (await bound(world, "b"))["metadata"]["annotations"][IDS]
