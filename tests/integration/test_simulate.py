"""``kubectl cards simulate``, on a cluster and on its snapshot."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from cli.options import parse
from tests.integration.test_cli import ASSIGNED, add_pod, cards, cluster

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
        ((), "-f: missing; give -f, --add-nodes, --drain, --remove or --repartition"),
        (("--add-nodes", "2"), "--add-nodes: give it together with --like"),
        (("--add-nodes", "x", "--like", "a"), "--add-nodes: found 'x'"),
        (("--repartition", "a"), "--repartition: found 'a'; write it with an equals sign"),
        (("--drain", "a", "--request", "a=1"), "--request: it changes the pods of a file"),
        (
            ("--drain", "a", "--snapshot", "f", "--controller", "https://c"),
            "--controller: a snapshot is simulated here",
        ),
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
