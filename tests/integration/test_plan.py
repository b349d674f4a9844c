"""``kubectl cards plan`` and ``apply``: a pod moves by a real eviction, and the one that waits gets in."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import yaml

from cli.__main__ import run
from cli.options import parse
from core.moving.who import MOVING
from tests.support.worlds.controller_rig import GPU, pod, share

NODES = tuple(
    {"name": name, "plugin": {"kind": "vgpu", "model": "Tesla T4", "memory_mib": 15360, "count": 2}}
    for name in ("t4-a", "t4-b")
)
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
PAGE = Path(__file__).parents[2] / "docs/operators/defragmentation.md"
YAML = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
CHANGING = re.compile(r"^( *(?:uid|state|newest_s|cluster)):.*", re.MULTILINE)


def normal(plan):
    """The text of a plan without what differs between runs."""
    return CHANGING.sub(r"\1", plan).strip()


SHOWN = {normal(found) for found in YAML.findall(PAGE.read_text())}


async def cards(world, *words):
    kubeconfig = str(await asyncio.to_thread(world.write_admins_kubeconfig))
    return await run(parse([*words, "--kubeconfig", kubeconfig], {}), {})


def owned(name, limits, **labels):
    """A pod of a ReplicaSet."""
    found = pod(name, limits)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "serve", "uid": "serve", "controller": True}
    found["metadata"] |= {"ownerReferences": [owner], "labels": labels}
    found["spec"]["terminationGracePeriodSeconds"] = 0
    return found


async def cordon(world, name, closed):
    await world.client.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": closed}})


async def crowded(world):
    """On each node one small pod, of which that on t4-a may move; and a pod that needs all cards of a node."""
    # Before the controller starts: later, it could hear of the pod first.
    await cordon(world, "t4-b", closed=True)
    await world.controller()
    await world.add(owned("serve-1", share(1000), app="serve"))
    await world.phase("serve-1")
    await cordon(world, "t4-b", closed=False)
    alone = pod("alone", share(1000))
    field = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["t4-b"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [field]}}
    alone["spec"]["affinity"] = {"nodeAffinity": required}
    await world.add(alone)
    await world.phase("alone")
    await world.add(pod("train", {GPU: "2", "volcano.sh/vgpu-memory": "15000"}))
    await world.waits("train", "CS501")


async def planned(world, capsys, *words):
    assert await cards(world, "plan", *words) == 0
    path = Path(world.folder) / "plan.yaml"
    text = capsys.readouterr().out
    path.write_text(text)
    return str(path), text


async def is_gone(world, name):
    found = await world.client.get("/api/v1/namespaces/default/pods")
    return all(one["metadata"]["name"] != name for one in found["items"])


async def replaced(world):
    """What the controller of the ReplicaSet does."""

    async def gone():
        return await is_gone(world, "serve-1")

    await world.until(gone)
    await world.add(owned("serve-2", share(1000), app="serve"))


async def taints(world, name):
    found = await world.client.get(f"/api/v1/nodes/{name}")
    return [one["key"] for one in found["spec"].get("taints") or () if one["key"] == MOVING]


async def test_a_pod_moves_and_the_one_that_waits_gets_in(rig, capsys):
    async with rig(nodes=NODES) as world:
        await crowded(world)
        path, text = await planned(world, capsys, "--for", "pod", "default/train")
        assert normal(text) in SHOWN
        plan = yaml.safe_load(text)
        (move,) = plan["moves"]
        assert (move["pod"], move["from_node"], move["to_node"]) == ("default/serve-1", "t4-a", "t4-b")
        assert (plan["helps"], plan["is_fewest"], plan["places"][0]["node"]) == (True, True, "t4-a")
        assert await cards(world, "apply", path, "--dry-run") == 0
        assert "pod default/serve-1 would be evicted from t4-a" in capsys.readouterr().out
        assert not await is_gone(world, "serve-1")

        assert await cards(world, "apply", path) == 6  # nobody agrees
        assert not await is_gone(world, "serve-1")
        done, _ = await asyncio.gather(cards(world, "apply", path, "--yes"), replaced(world))
        said = capsys.readouterr().out
        assert done == 0, said
        assert "its replacement default/serve-2 is on t4-b, as planned" in said
        assert "done: placed default/train" in said
        assert (await world.get("train"))["spec"]["nodeName"] == "t4-a"
        assert not await taints(world, "t4-a")
        # The same plan once more does nothing.
        assert await cards(world, "apply", path, "--yes") == 0


async def test_a_budget_stops_the_plan_and_later_it_goes_on_where_it_was(rig, capsys):
    async with rig(nodes=NODES) as world:
        await crowded(world)
        path, _ = await planned(world, capsys, "--for", "pod", "default/train")
        selector = {"matchLabels": {"app": "serve"}}
        budget = {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": selector}}
        await world.client.create(BUDGETS, budget)
        assert await cards(world, "plan", "--for", "pod/default/train", "-o", "text") == 6
        assert "1 pod stays: a PodDisruptionBudget allows no eviction now" in capsys.readouterr().out
        assert await cards(world, "apply", path, "--yes", "--timeout", "1") == 6
        assert "stopped: pod default/serve-1 is not evicted" in capsys.readouterr().err
        assert not await taints(world, "t4-a")
        await world.client.delete(f"{BUDGETS}/b")

        # Interrupted after the eviction: nobody else takes the room.
        async with asyncio.TaskGroup() as tasks:
            applying = tasks.create_task(cards(world, "apply", path, "--yes"))
            await world.until(lambda: is_gone(world, "serve-1"))
            applying.cancel()
        assert await taints(world, "t4-a")
        await world.add(owned("serve-2", share(1000), app="serve"))
        assert (await world.phase("serve-2"))["spec"]["nodeName"] == "t4-b"
        assert await cards(world, "apply", path, "--yes") == 0
        assert (await world.get("train"))["spec"]["nodeName"] == "t4-a"
        assert not await taints(world, "t4-a")


async def test_a_shape_gets_room_and_undo_opens_what_was_left_closed(rig, capsys):
    async with rig(nodes=NODES) as world:
        await crowded(world)
        path, text = await planned(world, capsys, "--for", "2 x whole T4")
        assert yaml.safe_load(text)["gain"] == "1 move makes room for 1 pod on 1 node: t4-a"
        async with asyncio.TaskGroup() as tasks:
            applying = tasks.create_task(cards(world, "apply", path, "--yes"))
            await world.until(lambda: is_gone(world, "serve-1"))
            applying.cancel()
        assert await taints(world, "t4-a")
        assert await cards(world, "apply", path, "--undo") == 0
        assert "node t4-a is open again" in capsys.readouterr().out
        assert not await taints(world, "t4-a")


async def test_a_plan_whose_pod_is_gone_stops_and_leaves_no_node_closed(rig, capsys):
    async with rig(nodes=NODES) as world:
        await crowded(world)
        path, _ = await planned(world, capsys, "--for", "pod", "default/train")
        async with asyncio.TaskGroup() as tasks:
            applying = tasks.create_task(cards(world, "apply", path, "--yes"))
            await world.until(lambda: is_gone(world, "serve-1"))
            applying.cancel()
        assert await taints(world, "t4-a")
        await world.client.delete("/api/v1/namespaces/default/pods/train", grace_s=0)
        assert await cards(world, "apply", path, "--yes") == 6
        assert "pod default/train, for which room is made, is gone" in capsys.readouterr().err
        assert not await taints(world, "t4-a")
