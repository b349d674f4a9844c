"""``kubectl cards simulate``, on a cluster and on its snapshot."""

from __future__ import annotations

import asyncio
import json
import random
from functools import partial
from typing import Any

import pytest

from cli.options import parse
from core.waiting import code_in
from tests.integration.test_explain import AUDIENCE, asked
from tests.support.worlds.cards_cluster import ASSIGNED, add_pod, cards, cluster
from tests.support.worlds.controller_rig import PODS, Rig, pod, share

VGPU = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "3000", "volcano.sh/vgpu-cores": "50"}
POD = """
apiVersion: v1
kind: Pod
metadata: {name: new}
spec:
  containers:
  - name: main
    image: i
    resources: {limits: {volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory: 14000}}
"""


async def filled(world: Any) -> None:
    await add_pod(world, "holder", VGPU, ASSIGNED, "t4-a")
    await world.phase("holder")
    await add_pod(world, "waiter", {"volcano.sh/vgpu-number": "2", "volcano.sh/vgpu-memory": "15000"}, {}, "")


async def test_a_cluster_and_its_snapshot_are_simulated_alike(rig, capsys, tmp_path):
    file, change = str(tmp_path / "cluster.json.gz"), tmp_path / "change.yaml"
    await asyncio.to_thread(change.write_text, POD, encoding="utf-8")
    words = ("simulate", "-f", str(change), "--add-nodes", "1", "--like", "t4-a", "-o", "json")
    async with cluster(rig) as (world, kubeconfig):
        await filled(world)
        assert await cards(kubeconfig, "snapshot", "-o", file) == 0
        capsys.readouterr()
        assert await cards(kubeconfig, *words) == 0
        live = json.loads(capsys.readouterr().out)
    assert await cards("/nowhere", *words, "--snapshot", file) == 0
    stored = json.loads(capsys.readouterr().out)
    assert stored == live
    assert {one["pod"]: one["node"] for one in live["pods"]} == {"default/new": "t4-a", "default/waiter": "t4-a-new-1"}


async def test_the_controller_simulates_as_the_command_does(rig, capsys, tmp_path):
    change = tmp_path / "change.yaml"
    await asyncio.to_thread(change.write_text, POD, encoding="utf-8")
    async with asked(rig, nodes=NODES[:2]) as (world, found):
        await world.add(serving("held", 12000), serving("large", 99_000))
        await settled(world, "held")
        await settled(world, "large")
        for words in (
            ("-f", str(change), "--drain", "n0"),
            ("--policy", "spread"),
            ("--add-nodes", "1", "--like", "n1"),
        ):
            told = []
            for by in (found.cards, partial(cards, found.kubeconfig)):
                assert await by("simulate", *words, "-o", "json") in (0, 5)
                # The controller's account may not read what MindCluster writes, which its notes say.
                told.append(json.loads(capsys.readouterr().out) | {"notes": []})
            assert told[0] == told[1], words
            assert told[0]["kinds"]
        assert await found.cards("simulate", "--drain", "nowhere") == 2
        assert "--drain: there is no node 'nowhere'" in capsys.readouterr().err
        found.token = await world.token("nobody", "default", audiences=(AUDIENCE,))
        assert await found.cards("simulate", "--drain", "n0") == 1
        assert "may not post /v1/simulate" in capsys.readouterr().err


async def test_who_would_lose_a_place_is_the_exit_status(rig, capsys):
    async with cluster(rig) as (world, kubeconfig):
        await filled(world)
        assert await cards(kubeconfig, "simulate", "--drain", "t4-a") == 5
    told = capsys.readouterr().out
    assert "default/holder" in told
    assert "1 pod that runs now would not run" in told


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ((), "-f: missing; give -f, --add-nodes, --drain, --remove, --repartition or --policy"),
        (("--add-nodes", "2"), "--add-nodes: give it together with --like"),
        (("--add-nodes", "x", "--like", "a"), "--add-nodes: found 'x'; write a number from 0 to 5000"),
        (("--add-nodes", "5001", "--like", "a"), "--add-nodes: found '5001'; write a number from 0 to 5000"),
        (("--repartition", "a"), "--repartition: found 'a'; write it with an equals sign"),
        (("--drain", "a", "--request", "a=1"), "--request: it changes the pods of a file"),
    ],
)
def test_a_wrong_command_is_one_line(words, problem, capsys):
    with pytest.raises(SystemExit):
        parse(["simulate", *words], {})
    assert problem in capsys.readouterr().err


async def test_a_change_that_cannot_be_made_is_one_line(rig, capsys):
    async with cluster(rig) as (_, kubeconfig):
        assert await cards(kubeconfig, "simulate", "--drain", "nowhere") == 2
        assert await cards(kubeconfig, "simulate", "-f", "/nowhere") == 2
    told = capsys.readouterr().err
    assert "--drain: there is no node 'nowhere'" in told
    assert "-f '/nowhere': it cannot be read" in told


NODES = [
    {"name": f"n{at}", "plugin": {"kind": "vgpu", "model": "Tesla T4", "memory_mib": 16000, "count": 2}}
    for at in range(4)
]


def serving(name: str, memory_mib: int) -> dict[str, Any]:
    """A pod of a ReplicaSet, which would create it again."""
    found: dict[str, Any] = pod(name, share(memory_mib))
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "serve", "uid": "serve", "controller": True}
    found["metadata"]["ownerReferences"] = [owner]
    return {"apiVersion": "v1", "kind": "Pod", **found}


async def settled(world: Rig, name: str) -> dict[str, Any]:
    """The pod once it runs, or is told why it waits."""

    async def asked() -> dict[str, Any] | None:
        found: dict[str, Any] = await world.get(name)
        told = any(one["type"] == "PodScheduled" and one["status"] == "False" for one in conditions(found))
        return found if found["status"]["phase"] == "Running" or told else None

    return dict(await world.until(asked))


def conditions(found: dict[str, Any]) -> list[dict[str, Any]]:
    return list(found["status"].get("conditions", ()))


def outcome(found: dict[str, Any]) -> tuple[str, str, list[str]]:
    """The node, the code, and the cards."""
    reasons = (one.get("message", "") for one in conditions(found) if one["type"] == "PodScheduled")
    ids = found["metadata"].get("annotations", {}).get("volcano.sh/vgpu-ids-new", "")
    cards = sorted(part.split(",")[0] for part in ids.split(":") if part)
    return found["spec"].get("nodeName", ""), next(map(code_in, reasons), ""), cards


@pytest.mark.parametrize("seed", range(2))
async def test_what_was_simulated_happens_in_a_whole_cluster(rig, capsys, tmp_path, seed):
    draw, number, file = random.Random(seed), 0, tmp_path / "change.json"
    made: dict[str, Any] = {}
    async with rig(nodes=NODES) as world:
        kubeconfig = str(await asyncio.to_thread(world.write_admins_kubeconfig))
        await world.controller()
        for step in range(4):
            added = [serving(f"p{number + at}", draw.choice((3000, 7000, 12000))) for at in range(4)]
            number += len(added)
            drained = f"n{draw.randrange(4)}" if step % 2 else ""
            await asyncio.to_thread(file.write_text, json.dumps({"kind": "List", "items": added}), encoding="utf-8")
            capsys.readouterr()
            words = ("--drain", drained) if drained else ()
            assert await cards(kubeconfig, "simulate", "-f", str(file), *words, "-o", "json") in (0, 5)
            told = json.loads(capsys.readouterr().out)
            made |= {one["metadata"]["name"]: one for one in added}
            moved = await drain(world, drained) if drained else []
            for name in (*moved, *(one["metadata"]["name"] for one in added)):
                await world.add(made[name])
                await settled(world, name)
            for one in told["pods"]:
                await comes(world, one["pod"].partition("/")[2], one)


async def comes(world: Rig, name: str, foretold: dict[str, Any]) -> None:
    """Wait for what was foretold: a pod whose Binding is settled later is told so first."""
    wanted = (foretold["node"], foretold["code"], sorted(card["card"] for card in foretold["cards"]))

    async def asked() -> bool:
        return outcome(await settled(world, name)) == wanted

    try:
        await world.until(asked)
    except TimeoutError:
        assert outcome(await settled(world, name)) == wanted


async def drain(world: Rig, name: str) -> list[str]:
    """Cordon a node, end its pods, and return their names."""
    await world.client.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}})
    pods = [one for one in await world.client.list(PODS) if one["spec"].get("nodeName") == name]
    for one in pods:
        await world.client.delete(f"{PODS}/{one['metadata']['name']}")
    for one in pods:
        await world.until(partial(is_gone, world, one["metadata"]["name"]))
    return sorted(one["metadata"]["name"] for one in pods)


async def is_gone(world: Rig, name: str) -> bool:
    return all(one["metadata"]["name"] != name for one in await world.client.list(PODS))
