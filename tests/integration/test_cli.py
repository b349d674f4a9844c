"""``kubectl cards`` against an API server; what ``explain`` says is in test_cli_explain."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.__main__ import run
from cli.options import parse
from tests.support.worlds.cards_cluster import ASSIGNED, add_pod, cards, cluster, give
from tests.support.worlds.controller_rig import Rig
from tests.support.worlds.volcano import create, install


async def test_get_shows_every_card_and_who_holds_how_much(rig, capsys):
    async with cluster(rig) as (world, kubeconfig):
        limits = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "3000", "volcano.sh/vgpu-cores": "50"}
        await add_pod(world, "a", limits, ASSIGNED, "t4-a")
        await add_pod(world, "b", {"volcano.sh/gpu-memory": "1024"}, {"volcano.sh/gpu-index": "0"}, "share-a")
        assert await cards(kubeconfig, "get") == 0
        lines = capsys.readouterr().out.splitlines()
        rows = [re.split(r"  +", line) for line in lines]
        assert rows[1][:6] == ["share-a", "Ready", "GPU 0", "shared by memory", "1024/11178 MiB", "-"]
        assert rows[3][:6] == ["t4-a", "Ready", "GPU-t4-a-1", "Tesla T4", "3000/15360 MiB", "50%"]
        assert "default/a (3000 MiB" in lines[3]
        assert rows[4] == ["t4-a", "2 cards", "vgpu, 1 idle", "3000/30720 MiB", "50/200%"]
        assert rows[5] == ["TOTAL", "1 card", "gpu_memory, 0 idle", "1024/11178 MiB", "-"]
        assert rows[6] == ["TOTAL", "2 cards", "vgpu, 1 idle", "3000/30720 MiB", "50/200%"]
        assert lines[7].startswith("broken: ")


async def test_each_holder_has_a_line_and_the_node_says_what_keeps_pods_away(rig, capsys):
    async with cluster(rig) as (world, kubeconfig):
        for name in ("a", "b"):
            await add_pod(world, name, {"volcano.sh/gpu-memory": "1024"}, {"volcano.sh/gpu-index": "0"}, "share-a")
        taint = {"key": "team", "value": "x", "effect": "NoSchedule"}
        await world.client.patch("/api/v1/nodes/share-a", {"spec": {"unschedulable": True, "taints": [taint]}})
        assert await cards(kubeconfig, "get", "share-a", "-o", "wide") == 0
        header, first, second, told = capsys.readouterr().out.splitlines()
        assert header.split()[-5:] == ["PROTOCOL", "MODE", "HEALTH", "HELD", "BY"]
        assert "Ready,SchedulingDisabled  GPU 0" in first
        assert re.split(r"  +", first)[-4:] == ["gpu_memory", "memory", "healthy", "default/a (1024 MiB)"]
        assert second.strip() == "default/b (1024 MiB)"
        assert told.startswith("share-a: takes only pods that tolerate team=x:NoSchedule")


async def test_get_selects_nodes_by_label_and_leaves_headings_out(rig, capsys):
    async with cluster(rig) as (world, kubeconfig):
        await world.client.patch("/api/v1/nodes/t4-a", {"metadata": {"labels": {"pool": "t4"}}})
        assert await cards(kubeconfig, "get", "-l", "pool=t4", "--no-headers") == 0
        assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["t4-a", "t4-a"]
        assert await cards(kubeconfig, "get", "-l", "pool=none") == 0
        assert capsys.readouterr().out.startswith("no node has these labels")
        assert await cards(kubeconfig, "get", "-l", "pool in (") == 1


async def test_yaml_says_what_json_says(rig, capsys):
    async with cluster(rig) as (_, kubeconfig):
        assert await cards(kubeconfig, "get", "t4-a", "-o", "yaml") == 0
        as_yaml = yaml.safe_load(capsys.readouterr().out)
        assert await cards(kubeconfig, "get", "t4-a", "-o", "json") == 0
        assert as_yaml == json.loads(capsys.readouterr().out)


async def test_watch_prints_a_node_again_when_its_cards_change(rig, capsys):
    async with cluster(rig) as (world, kubeconfig):
        watching = asyncio.create_task(cards(kubeconfig, "get", "--watch", "share-a", "t4-a"))
        said = ""

        async def seen(text: str) -> bool:
            nonlocal said
            said += capsys.readouterr().out
            return text in said

        try:
            await world.until(lambda: seen("TOTAL"))
            await add_pod(world, "a", {"volcano.sh/gpu-memory": "1024"}, {"volcano.sh/gpu-index": "0"}, "share-a")
            await world.until(lambda: seen("default/a (1024 MiB)"))
            assert said.count("NODE") == 1
            assert said.count("GPU-t4-a-0") == 1
            await world.client.delete("/api/v1/namespaces/default/pods/a")
            await world.until(lambda: seen("default/a (1024 MiB)\nshare-a"))
        finally:
            watching.cancel()
            await asyncio.wait([watching])


async def test_a_reader_that_closes_the_pipe_ends_a_watch_quietly(rig):
    async with cluster(rig) as (_, kubeconfig):
        reader, writer = os.pipe()
        os.close(reader)
        words = (sys.executable, "-m", "cli", "get", "--watch", "--kubeconfig", kubeconfig)
        process = await asyncio.create_subprocess_exec(*words, stdout=writer, stderr=subprocess.PIPE)
        os.close(writer)
        async with asyncio.timeout(60):
            _, told = await process.communicate()
    assert (process.returncode, told.decode()) == (141, "")


async def refuse(world: Rig, pod: str, message: str) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    await world.client.patch(f"/api/v1/namespaces/default/pods/{pod}/status", {"status": {"conditions": [condition]}})


async def test_fits_counts_the_pods_of_a_manifest_within_the_quotas_of_a_namespace(rig, capsys, tmp_path):
    file = tmp_path / "deployment.yaml"
    container = {"name": "c", "image": "i", "resources": {"limits": {"volcano.sh/vgpu-memory": "4000"}}}
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [container]}}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}
    file.write_text(yaml.safe_dump({**deployment, "spec": {"selector": {}, "replicas": 9, "template": template}}))
    async with cluster(rig) as (world, kubeconfig):
        await add_pod(world, "a", {"volcano.sh/vgpu-number": "1"}, ASSIGNED, "t4-a")

        async def told(*words: str) -> dict[str, Any]:
            assert await cards(kubeconfig, "fits", *words, "-o", "json") == 0
            found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["ways"]
            return found[0]

        found = await told("-f", str(file))
        assert (found["protocol"], found["pods"], found["types"]) == (
            "vgpu",
            6,
            [{"type": "Tesla T4", "pods": 6, "nodes": 1}],
        )
        assert found["stops"].startswith("0/4 nodes are available: ")
        quota = {"metadata": {"name": "q"}, "spec": {"hard": {"limits.volcano.sh/vgpu-memory": "12000"}}}
        await world.client.create("/api/v1/namespaces/default/resourcequotas", quota)
        found = await told("-f", str(file))
        assert (found["pods"], found["code"]) == (2, "CS532")
        assert (await told("-f", str(file), "-n", "kube-system"))["pods"] == 6
        assert await cards(kubeconfig, "fits", "-f", str(tmp_path / "none.yaml")) == 2
        assert "none.yaml: it cannot be read: No such file or directory" in capsys.readouterr().err
        file.write_text("{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}")
        assert await cards(kubeconfig, "fits", "-f", str(file)) == 2
        assert "deployment.yaml: no pod in it asks for cards" in capsys.readouterr().err


async def test_waiting_lists_pods_with_their_places_in_the_queues_of_their_groups(rig, capsys):
    async with cluster(rig) as (world, kubeconfig):
        await install(world.client)
        group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "g"}}
        await create(world.client, {**group, "spec": {"queue": "q", "minMember": 1}})
        member = {"scheduling.k8s.io/group-name": "g"}
        await add_pod(world, "a", {"volcano.sh/vgpu-number": "1"}, ASSIGNED, "t4-a")
        for name in ("b", "c"):
            limits = {"volcano.sh/vgpu-number": "1"}
            container = {"name": "c", "image": "i", "resources": {"limits": limits}}
            spec = {"schedulerName": "cardshare", "containers": [container]}
            made = {"metadata": {"name": name, "annotations": member}, "spec": spec}
            await world.client.create("/api/v1/namespaces/default/pods", {"apiVersion": "v1", "kind": "Pod", **made})
        await refuse(world, "b", "CS501 0/4 nodes are available: 4 odd. Nearest: t4-a GPU-0: 1 of 2 MiB free. Ask.")
        assert await cards(kubeconfig, "waiting", "-A", "-o", "json") == 0
        found = json.loads(capsys.readouterr().out)
        assert [(one["pod"], one["queue"], one["place"], one["line"]) for one in found["pods"]] == [
            ("default/b", "q", 1, 2),
            ("default/c", "q", 2, 2),
        ]
        assert (found["pods"][0]["nearest"], found["pods"][0]["change"]) == ("t4-a GPU-0: 1 of 2 MiB free", "Ask")
        assert found["notes"] == []
        assert await cards(kubeconfig, "waiting", "-n", "nobody") == 0
        assert capsys.readouterr().out == "no pod waits in namespace nobody\n"


async def test_waiting_in_a_namespace_needs_no_rights_outside_of_it_and_says_what_is_not_known(rig, capsys):
    async with cluster(rig) as (world, _):
        await add_pod(world, "a", {"volcano.sh/vgpu-number": "1"}, {}, "")
        await give(world, "tenant", [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}])
        limited = await world.write_kubeconfig("tenant")
        assert await cards(limited, "waiting", "-n", "default", "-o", "json") == 0
        found = json.loads(capsys.readouterr().out)
        assert [(one["pod"], one["queue"], one["place"]) for one in found["pods"]] == [("default/a", "default", None)]
        assert "you may not list pods in all namespaces; places in line are not known" in found["notes"]
        assert await cards(limited, "waiting", "-A") == 1
        assert "pods is forbidden" in capsys.readouterr().err


async def test_get_of_a_namespace_shows_the_cards_of_its_pods_and_of_who_holds_them_no_others(rig, capsys):
    async with cluster(rig) as (world, kubeconfig):
        await add_pod(world, "b", {"volcano.sh/gpu-memory": "1024"}, {"volcano.sh/gpu-index": "0"}, "share-a")
        assert await cards(kubeconfig, "get", "-n", "default", "-o", "json") == 0
        found = json.loads(capsys.readouterr().out)
        assert [(n["name"], [h["pod"] for c in n["cards"] for h in c["held_by"]]) for n in found["nodes"]] == [
            ("share-a", ["default/b"])
        ]
        assert await cards(kubeconfig, "get", "-n", "nobody") == 0
        assert capsys.readouterr().out == "no pod of namespace nobody holds a card there\n"
        assert await cards(kubeconfig, "get", "-A") == 0
        assert "t4-a" in capsys.readouterr().out


async def test_check_and_version_ask_no_cluster(capsys, tmp_path):
    (tmp_path / "pod.yaml").write_text("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: []}}")
    assert await run(parse(["check", "-f", str(tmp_path / "pod.yaml")], {}), {}) == 0
    assert capsys.readouterr().out == "1 object, 0 denied\n"
    assert await run(parse(["version"], {}), {}) == 0
    assert capsys.readouterr().out.startswith("kubectl-cards ")


async def test_get_of_some_nodes_shows_those_and_names_what_is_missing(rig, capsys):
    async with cluster(rig) as (_, kubeconfig):
        assert await cards(kubeconfig, "get", "t4-a", "nowhere") == 1
        out = capsys.readouterr().out
        assert out.count("Tesla T4") == 2
        assert "share-a" not in out
        assert "there is no node nowhere; kubectl get nodes lists them" in out


async def test_get_of_a_node_with_a_malformed_register_shows_the_complaint_and_who_holds_cards_there(rig, capsys):
    async with cluster(rig, ("which the node does not have",)) as (world, kubeconfig):
        await add_pod(world, "a", {"volcano.sh/vgpu-number": "1"}, ASSIGNED, "t4-a")
        broken = {"metadata": {"annotations": {"volcano.sh/node-vgpu-register": "x\x1b[31m"}}}
        await world.client.patch("/api/v1/nodes/t4-a", broken)
        assert await cards(kubeconfig, "get", "t4-a") == 0
        out = capsys.readouterr().out
        assert "annotation volcano.sh/node-vgpu-register: found 'x" in out
        assert re.search(r"t4-a +Ready +GPU-t4-a-1 +not offered \(vgpu\) +- +- +default/a \(3000 MiB", out)
        assert "no node offers cards" not in out
        assert "\x1b" not in out


async def test_get_of_a_node_without_a_plugin_speaks_of_that_node_only(rig, capsys):
    async with cluster(rig) as (_, kubeconfig):
        assert await cards(kubeconfig, "get", "plain") == 0
        assert capsys.readouterr().out.startswith("no cards on plain; ")


@pytest.mark.parametrize(
    ("closed", "words", "said"),
    [
        ("<&-", "check -f -", "0 objects, 0 denied"),
        (">&-", "version", ""),
        ("2>&-", "check -f /nowhere", "0 objects, 0 denied"),
    ],
)
def test_a_closed_stream_is_no_traceback(closed, words, said):
    command = f"{sys.executable} -m cli {words} {closed}"
    ended = subprocess.run(["bash", "-c", command], check=False, capture_output=True, text=True, timeout=90)
    assert (ended.returncode, ended.stderr) == (2 if "nowhere" in words else 0, "")
    assert ended.stdout.endswith(f"{said}\n" if said else "")


def test_a_disk_that_is_full_is_told_in_one_line():
    script = """
import sys
from cli import __main__ as cards
async def run(options, environ):
    print("line after line")
    return 0
cards.run = run
sys.exit(cards.main(["get"]))
"""
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-c", script], check=False, stdout=full, stderr=subprocess.PIPE, timeout=90
        )
    said = "kubectl cards: the answer cannot be written: No space left on device\n"
    assert (ended.returncode, ended.stderr.decode()) == (1, said)


def test_a_reader_that_has_seen_enough_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    script = """
import sys
from cli import __main__ as cards
async def run(options, environ):
    print("line after line")
    return 0
cards.run = run
sys.exit(cards.main(["get"]))
"""
    try:
        ended = subprocess.run(
            [sys.executable, "-c", script], check=False, stdout=writer, stderr=subprocess.PIPE, timeout=90
        )
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr.decode()) == (141, "")


def test_an_interrupt_while_modules_load_is_no_traceback():
    script = """
import os, signal, sys
class Interrupting:
    def find_spec(self, name, *_):
        if name == "cli.__main__":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
from cli.start import main
sys.exit(main())
"""
    words = [sys.executable, "-c", script, "version"]
    ended = subprocess.run(words, check=False, capture_output=True, text=True, timeout=90)
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")


def test_the_installed_command_starts_so():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["scripts"]["kubectl-cards"] == "cli.start:main"


async def test_a_pod_that_does_not_exist_is_an_error(rig, capsys):
    async with cluster(rig) as (_, kubeconfig):
        assert await cards(kubeconfig, "explain", "nobody", "-n", "kube-system") == 1
        assert "there is no pod nobody in namespace kube-system" in capsys.readouterr().err


async def test_no_api_server_named_is_an_error_with_a_remedy(capsys):
    assert await run(parse(["get"], {}), {}) == 2
    assert "--kubeconfig" in capsys.readouterr().err


async def test_a_kubeconfig_or_context_that_is_not_there_is_2_with_the_contexts_there_are(rig, capsys, tmp_path):
    async with cluster(rig) as (_, kubeconfig):
        assert await cards(kubeconfig, "get", "--context", "nope") == 2
        told = capsys.readouterr().err
        assert (
            told == f"kubectl cards: kubeconfig {kubeconfig}: there is no context 'nope'; its contexts are: 'sandbox'\n"
        )
    assert await cards(str(tmp_path), "get") == 2
    assert "is a directory; name a file" in capsys.readouterr().err
    entries = {"contexts": [{"name": "here", "context": {"cluster": "c"}}], "clusters": [{"name": "c"}]}
    nobody = tmp_path / "nobody"
    nobody.write_text(json.dumps({"current-context": "here", **entries}))
    assert await cards(str(nobody), "get") == 2
    problem = "context 'here' names no user; it has no users: write one, and its name here"
    assert capsys.readouterr().err == f"kubectl cards: kubeconfig {nobody}: {problem}\n"


async def test_get_as_json_has_the_fields_of_its_page(rig, capsys):
    async with cluster(rig) as (world, kubeconfig):
        limits = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "3000", "volcano.sh/vgpu-cores": "50"}
        await add_pod(world, "a", limits, ASSIGNED, "t4-a")
        assert await cards(kubeconfig, "get", "t4-a", "broken", "nowhere", "-o", "json") == 1
        found = json.loads(capsys.readouterr().out)
        assert (found["version"], found["missing"], found["notes"]) == (1, ["nowhere"], [])
        assert [node["name"] for node in found["nodes"]] == ["broken", "t4-a"]
        assert found["nodes"][0]["cards"] == []
        (warning,) = found["nodes"][0]["warnings"]
        assert warning.startswith("allocatable volcano.sh/vgpu-number: node broken registers cards but has none")
        assert found["nodes"][1]["cards"][1] == {
            "id": "GPU-t4-a-1",
            "protocol": "vgpu",
            "type": "Tesla T4",
            "used": 3000,
            "total": 15360,
            "unit": "MiB",
            "cores_pct": 50,
            "note": "",
            "mode": "hami-core",
            "healthy": True,
            "stranded": False,
            "offered": True,
            "held_by": [
                {
                    "pod": "default/a",
                    "share": "3000 MiB, 50 % cores",
                    "amount": 3000,
                    "cores_pct": 50,
                    "removed": False,
                }
            ],
            "others": 0,
        }


@pytest.mark.parametrize(
    "command",
    [
        ["cli.start", "get"],
        ["certs", "ensure", "--ca-secret", "c", "--secret", "s", "--namespace", "n", "--dns", "a.b"],
    ],
    ids=["cards", "certs"],
)
async def test_an_interrupt_ends_the_wait_for_a_server_quietly(command, tmp_path):
    asked = asyncio.Event()

    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        asked.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(never_answer, "127.0.0.1", 0)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    kubeconfig = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    (tmp_path / "config").write_text(json.dumps(kubeconfig))
    async with server:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", *command, "--kubeconfig", str(tmp_path / "config")),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        async with asyncio.timeout(90):
            await asked.wait()
            process.send_signal(signal.SIGINT)
            out, _ = await process.communicate()
    assert (process.returncode, out) == (130, b"")
