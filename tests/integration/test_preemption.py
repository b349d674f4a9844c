"""Pods of a lower priority are evicted for one of a higher, by real evictions, against real disruption budgets."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
import yaml

from sandbox.players.provisioner import SELECTED_NODE
from tests.support.worlds import volcano
from tests.support.worlds.controller_rig import PODS, pod, share
from tests.support.worlds.disks import CLAIMS, claim, mounting, storage

RIGHTS = Path(__file__).parents[2] / "deploy" / "preemption.yaml"
NODES = ({"name": "t4-a", "plugin": {"kind": "vgpu", "model": "Tesla T4", "memory_mib": 15360, "count": 1}},)
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
BINDING = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/cardshare-preemption"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
SETTINGS = "preemption: true\npreemption_delay_s: 0\n"


def grace(name, priority="", seconds=0, mib=9000, **labels):
    """A pod that takes more than half of a card, and *seconds* to end."""
    found = pod(name, share(mib))
    found["metadata"]["labels"] = labels
    found["spec"]["terminationGracePeriodSeconds"] = seconds
    if priority:
        found["spec"]["priorityClassName"] = priority
    return found


async def begun(world, tmp_path, text=SETTINGS, name="controller", fail_at=""):
    settings = tmp_path / "settings.yaml"
    settings.write_text(text)
    return await world.controller(f"--settings={settings}", name=name, fail_at=fail_at)


async def prepared(world):
    await world.apply(list(yaml.safe_load_all(RIGHTS.read_text())))
    for name, value in (("preempt-high", 1000), ("preempt-low", 10)):
        await world.ensure(CLASSES, name, value=value)


async def reasons(world, name):
    found = await world.client.get("/api/v1/namespaces/default/events")
    return {one["reason"]: one["message"] for one in found["items"] if one["involvedObject"].get("name") == name}


async def test_a_pod_of_a_lower_priority_makes_room(rig, tmp_path):
    async with rig(nodes=NODES) as world:
        await prepared(world)
        await begun(world, tmp_path)
        await world.add(grace("low", "preempt-low"))
        await world.phase("low")
        await world.add(grace("high", "preempt-high"))
        found = await world.phase("high")
        assert found["spec"]["nodeName"] == "t4-a"
        uid = found["metadata"]["uid"]

        async def told():
            about_low, about_high = await reasons(world, "low"), await reasons(world, "high")
            return about_low.get("Preempted"), about_high.get("Preempting")

        async def both():
            found = await told()
            return found if all(found) else None

        about_low, about_high = await world.until(both)
        assert about_low == f"Preempted by pod {uid} on node t4-a"
        assert about_high == "1 pod of a lower priority is being evicted from node t4-a"
        _, metrics = await world.http("/metrics", "text/plain")
        assert 'cardshare_evictions_total{outcome="evicted"} 1.0' in metrics


async def test_a_job_whose_queue_is_full_has_pods_of_that_queue_leave_although_cards_are_free(rig, tmp_path):
    """The Jobs are admitted, because `minResources` lacks what has only a limit; then their pods wait for the queue."""
    nodes = [{**NODES[0], "name": f"t4-{at}"} for at in "abc"]
    async with rig(nodes=nodes) as world:
        await prepared(world)
        await volcano.install(world.client)
        settings = tmp_path / "settings.yaml"
        settings.write_text(SETTINGS)
        await world.controller(f"--settings={settings}", *volcano.NAMES)
        made = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "team"}}
        await volcano.create(world.client, {**made, "spec": {"capability": {"volcano.sh/vgpu-number": "1"}}})

        async def running():
            pods = (await world.client.get(PODS))["items"]
            return {one["metadata"]["name"] for one in pods if one["status"].get("phase") == "Running"}

        async with volcano.playing(world.client):
            for name in ("low", "high"):
                worker = volcano.task("worker", 1, limits=share(9000))
                del worker["template"]["spec"]["containers"][0]["resources"]["requests"]
                one = volcano.job(name, worker, minAvailable=1, queue="team", priorityClassName=f"preempt-{name}")
                await volcano.create(world.client, one)

                async def runs(pod=f"{name}-worker-0"):
                    return pod in await running()

                await world.until(runs)

            async def told():
                low, high = await reasons(world, "low-worker-0"), await reasons(world, "high-worker-0")
                return low.get("Preempted") and high.get("Preempting")

            assert (await world.until(told)).startswith("1 pod of a lower priority is being evicted from node t4-")


async def test_no_pod_is_evicted_if_a_disruption_budget_forbids_one_of_two_evictions(rig, tmp_path):
    async with rig(nodes=NODES) as world:
        await prepared(world)
        budget = {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "low"}}}}
        await world.client.create(BUDGETS, budget)
        await world.client.patch(f"{BUDGETS}/b/status", {"status": {"disruptionsAllowed": 1}})
        await begun(world, tmp_path)
        for name in ("low-0", "low-1"):
            await world.add(grace(name, "preempt-low", mib=7000, app="low"))
            await world.phase(name)
        await world.add(grace("high", "preempt-high"))
        await world.waits("high", "a disruption budget forbids it: b allows 1 of 2 evictions;")
        for name in ("low-0", "low-1"):
            assert "deletionTimestamp" not in (await world.get(name))["metadata"]
        # Others are placed meanwhile.
        await world.add(pod("small", share(1000)))
        await world.phase("small")
        assert "nominatedNodeName" not in (await world.get("high"))["status"]
        await world.client.delete(f"{BUDGETS}/b")


async def test_without_the_right_to_evict_nobody_leaves_and_that_is_said(rig, tmp_path):
    async with rig(nodes=NODES) as world:
        await prepared(world)
        await world.client.delete(BINDING)
        await begun(world, tmp_path)
        await world.add(grace("low"))
        await world.phase("low")
        await world.add(grace("high", "preempt-high"))
        await world.waits("high", "CS501")

        async def noted():
            _, text = await world.http("/readyz", "text/plain")
            return "no pod is evicted for others" in text and "poddisruptionbudgets" in text

        await world.until(noted)
        assert "deletionTimestamp" not in (await world.get("low"))["metadata"]


async def test_another_controller_goes_on_keeping_the_room(rig, tmp_path):
    async with rig(nodes=NODES) as world:
        await prepared(world)
        first = await begun(world, tmp_path)
        low = grace("low", "preempt-low", seconds=600)
        low["metadata"]["annotations"] = {"sandbox.cardshare.io/stop-seconds": "600"}
        await world.add(low)
        await world.phase("low")
        await world.add(grace("high", "preempt-high"))

        async def nominated():
            high, low = await world.get("high"), await world.get("low")
            return high["status"].get("nominatedNodeName") == "t4-a" and "deletionTimestamp" in low["metadata"]

        await world.until(nominated)
        await world.processes.stop(first)
        await begun(world, tmp_path, name="controller-2")
        await world.waits("high", "CS515")
        # It would fit beside the one that leaves, but comes after the one that others left for.
        small = pod("small", share(1000))
        small["spec"]["priorityClassName"] = "preempt-low"
        await world.add(small)
        await world.waits("small", "kept free")
        await world.client.delete(f"{PODS}/low", grace_s=0)
        await world.phase("high")
        await world.phase("small")


@pytest.mark.parametrize("point", ["before-evict", "after-evict"])
async def test_a_controller_that_dies_around_an_eviction_is_followed_by_one_that_goes_on_making_room(
    rig, tmp_path, point
):
    async with rig(nodes=NODES) as world:
        await prepared(world)
        first = await begun(world, tmp_path, fail_at=f"{point}:kill")
        low = grace("low", "preempt-low", seconds=600)
        low["metadata"]["annotations"] = {"sandbox.cardshare.io/stop-seconds": "600"}
        await world.add(low)
        await world.phase("low")
        await world.add(grace("high", "preempt-high"))
        async with asyncio.timeout(60):
            assert await first.process.wait() == -signal.SIGKILL
        # For whom room is made stands in the API server before anybody is asked to leave.
        assert (await world.get("high"))["status"]["nominatedNodeName"] == "t4-a"
        assert ("deletionTimestamp" in (await world.get("low"))["metadata"]) == (point == "after-evict")
        await begun(world, tmp_path, name="second")
        await world.waits("high", "CS515")

        async def leaves():
            return "deletionTimestamp" in (await world.get("low"))["metadata"]

        await world.until(leaves)
        small = pod("small", share(1000))
        small["spec"]["priorityClassName"] = "preempt-low"
        await world.add(small)
        await world.waits("small", "kept free")
        await world.client.delete(f"{PODS}/low", grace_s=0)
        assert (await world.phase("high"))["spec"]["nodeName"] == "t4-a"
        await world.phase("small")


async def test_a_pod_that_needs_room_and_a_volume_gets_both(rig, tmp_path):
    both = (*NODES, {**NODES[0], "name": "t4-b"})
    async with rig(nodes=both) as world, storage(world):
        await prepared(world)
        await begun(world, tmp_path)

        async def add(name, priority, *, node="", of=""):
            made = mounting(name, of, 9000) if of else pod(name, share(9000))
            made["spec"] |= {"priorityClassName": priority, "terminationGracePeriodSeconds": 0}
            if node:
                made["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
            await world.add(made)
            return (await world.phase(name))["spec"]["nodeName"]

        for name in ("data", "fresh"):
            await world.client.create(CLAIMS, claim(name))
        await add("low-a", "preempt-low", node="t4-a")
        await add("low-b", "preempt-low", node="t4-b", of="data")
        # Only where its volume stands would anybody's leaving help.
        assert await add("high", "preempt-high", of="data") == "t4-b"
        assert (await world.get("low-a"))["spec"]["nodeName"] == "t4-a"
        # One that has no volume yet gets it where others left for it.
        assert await add("other", "preempt-high", of="fresh") == "t4-a"
        told = await world.client.get(f"{CLAIMS}/fresh")
        assert told["metadata"]["annotations"][SELECTED_NODE] == "t4-a"
