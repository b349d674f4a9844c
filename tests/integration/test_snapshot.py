"""``kubectl cards snapshot``: commands say of the file what they say of the cluster; redacted, it names nobody."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from typing import Any

import pytest

from cli.options import parse
from cli.snapshot import SnapshotReads, UnusableSnapshotError, packed
from sandbox.demo.stage import NODES as STAGE
from tests.support.worlds.cards_cluster import ASSIGNED, NODES, add_pod, cards, cluster, give
from tests.support.worlds.controller_rig import Rig
from tests.support.worlds.volcano import create, install

VGPU = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "3000", "volcano.sh/vgpu-cores": "50"}
COMMANDS = (
    ("get",),
    ("get", "-o", "wide"),
    ("get", "t4-a", "-o", "json"),
    ("get", "-n", "default"),
    ("get", "-l", "team=blue"),
    ("waiting", "-A", "-o", "json"),
    ("waiting", "-n", "default", "--by", "reason"),
    ("explain", "holder"),
    ("explain", "absent"),
    ("queues",),
    ("plan", "--for", "2 x whole", "-o", "text"),
    ("fits", "--memory", "4000"),
    ("fits", "--memory", "4000", "--cards", "2", "-o", "json"),
)


async def filled(world: Any) -> None:
    await install(world.client)
    await world.client.patch(
        "/api/v1/nodes/t4-a", {"metadata": {"labels": {"team": "blue"}, "annotations": {"mail": "ann@blue.example"}}}
    )
    await add_pod(world, "holder", VGPU, ASSIGNED, "t4-a")
    await world.phase("holder")
    await add_pod(world, "waiter", {"volcano.sh/gpu-memory": "99999"}, {}, "")
    queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "research"}}
    await create(world.client, {**queue, "spec": {"weight": 1, "capability": {"volcano.sh/vgpu-number": "4"}}})


async def said(kubeconfig: str, capsys: Any, *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    status = await cards(kubeconfig, *words)
    found = capsys.readouterr()
    return status, found.out, re.sub(r".*this is the snapshot of .*\n", "", found.err)


async def test_commands_say_of_a_snapshot_what_they_say_of_the_cluster(rig, capsys, tmp_path):
    file = str(tmp_path / "cluster.json.gz")
    async with cluster(rig) as (world, kubeconfig):
        await filled(world)
        assert await cards(kubeconfig, "snapshot", "-o", file) == 0
        live = [await said(kubeconfig, capsys, *words) for words in COMMANDS]
        stored = [await said("/nowhere", capsys, *words, "--snapshot", file) for words in COMMANDS]
    assert stored == live


def _only_figures(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _only_figures(one) for key, one in value.items()}
    if isinstance(value, list):
        return sorted((_only_figures(one) for one in value), key=json.dumps)
    return value if isinstance(value, int | bool) or value is None else ""


async def test_a_redacted_snapshot_names_nobody_and_says_the_same_in_figures(rig, capsys, tmp_path):
    plain, hidden = str(tmp_path / "plain"), str(tmp_path / "hidden")
    async with cluster(rig) as (world, kubeconfig):
        await filled(world)
        assert await cards(kubeconfig, "snapshot", "-o", plain) == 0
        assert await cards(kubeconfig, "snapshot", "-o", hidden, "--redact") == 0
    text = await asyncio.to_thread(lambda: gzip.decompress((tmp_path / "hidden").read_bytes()).decode())
    names = [*(node["name"] for node in NODES), "holder", "waiter", "research", "blue", "ann", "GPU-t4-a-1"]
    # "plain" and "broken" are words too: they may stand inside of others.
    assert [name for name in names if re.search(rf"(?<![A-Za-z0-9-]){re.escape(name)}(?![A-Za-z0-9-])", text)] == []
    for words in (("get",), ("waiting", "-A"), ("queues",), ("fits", "--memory", "4000")):
        (_, shown, _), (_, other, _) = [
            await said("/nowhere", capsys, *words, "-o", "json", "--snapshot", file) for file in (plain, hidden)
        ]
        assert _only_figures(json.loads(other)) == _only_figures(json.loads(shown))


async def test_redacted_nodes_of_every_device_plugin_sell_what_they_sold(rig, capsys, tmp_path):
    plain, hidden = str(tmp_path / "plain"), str(tmp_path / "hidden")
    async with rig(nodes=STAGE) as world:
        kubeconfig = str(await asyncio.to_thread(world.write_admins_kubeconfig))
        assert await cards(kubeconfig, "snapshot", "-o", plain) == 0
        assert await cards(kubeconfig, "snapshot", "-o", hidden, "--redact") == 0
    for words in (("get",), ("fits", "--memory", "4000")):
        (_, shown, _), (_, other, _) = [
            await said("/nowhere", capsys, *words, "-o", "json", "--snapshot", file) for file in (plain, hidden)
        ]
        assert _only_figures(json.loads(other)) == _only_figures(json.loads(shown))


async def give_everywhere(world: Rig, account: str, rules: list[dict[str, Any]]) -> None:
    """Let a service account of namespace default do what *rules* say in all namespaces."""
    await give(world, account, rules)
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    await world.client.create(f"{rbac}/clusterroles", {"metadata": {"name": account}, "rules": rules})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": account}
    subject = {"kind": "ServiceAccount", "name": account, "namespace": "default"}
    body = {"metadata": {"name": account}, "roleRef": role, "subjects": [subject]}
    await world.client.create(f"{rbac}/clusterrolebindings", body)


async def test_what_may_not_be_listed_is_noted_and_refused_again(rig, capsys, tmp_path):
    file = str(tmp_path / "cluster.json.gz")
    async with cluster(rig) as (world, _):
        await give_everywhere(world, "tenant", [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}])
        assert await cards(await world.write_kubeconfig("tenant"), "snapshot", "-o", file) == 0
    assert "you may not list /api/v1/nodes" in capsys.readouterr().err
    status, _, complaint = await said("/nowhere", capsys, "get", "--snapshot", file)
    assert status == 1
    assert "the server gave this answer when the snapshot was taken" in complaint


async def test_a_config_map_that_may_not_be_read_is_noted_as_it_was(rig, capsys, tmp_path):
    file, hidden = str(tmp_path / "plain"), str(tmp_path / "hidden")
    async with cluster(rig) as (world, _):
        rules = [{"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "list"]}]
        await give_everywhere(world, "viewer", rules)
        kubeconfig = await world.write_kubeconfig("viewer")
        assert await cards(kubeconfig, "snapshot", "-o", file) == 0
        assert await cards(kubeconfig, "snapshot", "-o", hidden, "--redact") == 0
        live = await said(kubeconfig, capsys, "get", "-o", "json")
    assert "ConfigMaps" in live[1]
    for one in (file, hidden):
        status, shown, _ = await said("/nowhere", capsys, "get", "-o", "json", "--snapshot", one)
        notes = json.loads(shown)["notes"]
        assert status == live[0] == 0
        assert len(notes) == len(json.loads(live[1])["notes"])
        assert any("ConfigMaps" in note for note in notes)


async def test_nothing_of_a_container_that_may_be_secret_is_in_it(rig, tmp_path):
    file = tmp_path / "cluster.json.gz"
    async with cluster(rig) as (world, kubeconfig):
        container = {"name": "c", "image": "registry.internal/i", "env": [{"name": "TOKEN", "value": "s3cret"}]}
        container["args"] = ["--password=s3cret"]
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}}
        await world.client.create("/api/v1/namespaces/default/pods", body)
        assert await cards(kubeconfig, "snapshot", "-o", str(file)) == 0
    text = await asyncio.to_thread(lambda: gzip.decompress(file.read_bytes()).decode())
    assert [word for word in ("s3cret", "registry.internal", "TOKEN", "managedFields") if word in text] == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "it is not a snapshot"),
        (b"no gzip", "it is not a snapshot"),
        (gzip.compress(b"[]"), "it is not a snapshot"),
        (gzip.compress(b"{}"), "it is not a snapshot"),
        (packed({"version": 2, "taken": "", "namespace": "", "collections": {}}), "its version is 2"),
    ],
    # Compressed text has the time in it, and each of several test processes its own.
    ids=["nothing", "text", "list", "empty", "later version"],
)
def test_a_file_that_is_no_snapshot_is_one_line(text, problem):
    with pytest.raises(UnusableSnapshotError, match=problem):
        SnapshotReads(text)


@pytest.mark.parametrize(
    ("words", "problem"),
    [(["snapshot"], "--output-file: missing"), (["get", "--watch", "--snapshot", "x"], "a snapshot does not change")],
)
def test_a_wrong_command_is_one_line(words, problem, capsys):
    with pytest.raises(SystemExit):
        parse(words, {})
    assert problem in capsys.readouterr().err


async def test_a_file_that_is_not_there_is_one_line(capsys):
    status, _, complaint = await said("/nowhere", capsys, "get", "--snapshot", "/nowhere/file")
    assert status == 2
    assert "--snapshot /nowhere/file: No such file" in complaint


async def test_a_selector_that_a_snapshot_cannot_judge_is_refused(rig, capsys, tmp_path):
    file = str(tmp_path / "cluster.json.gz")
    async with cluster(rig) as (_, kubeconfig):
        assert await cards(kubeconfig, "snapshot", "-o", file) == 0
    status, _, complaint = await said("/nowhere", capsys, "get", "-l", "pool in (a)", "--snapshot", file)
    assert status == 1
    assert "KEY=VALUE" in complaint
