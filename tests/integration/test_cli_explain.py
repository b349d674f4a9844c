"""``kubectl cards explain`` against an API server."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.support.worlds.cards_cluster import ASSIGNED, add_event, add_pod, cards, cluster, give
from tests.support.worlds.controller_rig import Rig


async def test_explain_needs_no_rights_outside_of_the_pods_namespace(rig, capsys):
    async with cluster(rig) as (world, _):
        await add_pod(world, "a", {"volcano.sh/vgpu-number": "1"}, ASSIGNED, "t4-a")
        rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
        await give(world, "tenant", rules)
        limited = await world.write_kubeconfig("tenant")
        assert await cards(limited, "explain", "a") == 0
        said = capsys.readouterr()
        assert said.out.startswith("default/a is on t4-a (")
        assert "and holds GPU-t4-a-1 (3000 MiB, 50 % cores)" in said.out
        assert "note: you may not list events in namespace default" in said.err
        assert "volcano-vgpu-device-config are not used (" in said.err
        assert await cards(limited, "get") == 1
        assert "nodes is forbidden" in capsys.readouterr().err


async def add_owned(world: Rig, namespace: str, name: str, kind: str, owner: str, **labels: str) -> None:
    owned = {"apiVersion": "v1", "kind": kind, "name": owner, "uid": "u", "controller": True}
    pod = {
        "metadata": {"name": name, "labels": labels, "ownerReferences": [owned]},
        "spec": {"schedulerName": "cardshare", "containers": [{"name": "c", "image": "i"}]},
    }
    await world.client.create(f"/api/v1/namespaces/{namespace}/pods", {"apiVersion": "v1", "kind": "Pod", **pod})


async def test_explain_of_a_workload_tells_of_each_of_its_pods_and_of_no_other(rig, capsys):
    async with cluster(rig) as (world, kubeconfig):
        await world.client.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
        for name in ("web-1f-x", "web-1f-y"):
            await add_owned(world, "default", name, "ReplicaSet", "web-1f", **{"pod-template-hash": "1f"})
        await add_owned(world, "default", "web-b-2a-z", "ReplicaSet", "web-b-2a", **{"pod-template-hash": "2a"})
        await add_owned(world, "team", "train-0", "Job", "train")

        async def told(*words: str) -> list[str]:
            assert await cards(kubeconfig, "explain", *words, "-o", "json") == 0
            return [one["pod"] for one in json.loads(capsys.readouterr().out)["pods"]]

        assert await told("deployment/web") == ["default/web-1f-x", "default/web-1f-y"]
        assert await told("rs/web-b-2a") == ["default/web-b-2a-z"]
        assert await told("job/train", "-A") == await told("job/train", "-n", "team") == ["team/train-0"]
        assert await told("train-0", "-A") == ["team/train-0"]
        assert await cards(kubeconfig, "explain", "team/train-0") == 0
        assert capsys.readouterr().out.startswith("team/train-0 waits")
        assert await cards(kubeconfig, "explain", "deploy/web") == 0
        assert re.findall(r"^default/(\S+) waits", capsys.readouterr().out, re.MULTILINE) == ["web-1f-x", "web-1f-y"]
        assert await cards(kubeconfig, "explain", "sts/web", "-A") == 1
        assert capsys.readouterr().err == "kubectl cards: there is no pod of StatefulSet web in any namespace\n"


async def test_events_of_a_pod_that_had_the_same_name_are_not_shown(rig, capsys):
    async with cluster(rig) as (world, kubeconfig):
        await add_pod(world, "a", {}, {}, "")
        await add_event(world, "a", uid="of-one-that-is-gone", message="of another pod")
        assert await cards(kubeconfig, "explain", "a") == 0
        assert "of another pod" not in capsys.readouterr().out


async def test_events_as_kube_scheduler_writes_them_have_their_time_count_and_place(rig, capsys):
    async with cluster(rig) as (world, kubeconfig):
        await add_pod(world, "a", {}, {}, "")
        uid = (await world.client.get("/api/v1/namespaces/default/pods/a"))["metadata"]["uid"]
        scheduler: dict[str, Any] = {
            "action": "Scheduling",
            "count": None,
            "lastTimestamp": None,
            "reportingComponent": "default-scheduler",
            "reportingInstance": "default-scheduler-a",
            "type": "Warning",
        }
        series = {"count": 3, "lastObservedTime": "2026-01-03T00:00:00.500000Z"}
        for name, at, more in (("late", "2026-01-04", {}), ("again", "2025-12-31", {"series": series})):
            fields = {**scheduler, "eventTime": f"{at}T00:00:00.250000Z", **more}
            await add_event(world, "a", uid=uid, message=name, name=name, **fields)
        await add_event(world, "a", uid=uid, message="first", count=1)
        assert await cards(kubeconfig, "explain", "a") == 0
        assert [line.split() for line in capsys.readouterr().out.splitlines()[-3:]] == [
            ["2026-01-01T00:00:00Z", "FailedScheduling:", "first"],
            ["2026-01-03T00:00:00Z", "FailedScheduling:", "again", "(x3)"],
            ["2026-01-04T00:00:00Z", "FailedScheduling:", "late"],
        ]


async def test_explain_of_a_failed_pod_tells_the_reason_and_the_message_of_its_status(rig, capsys):
    async with cluster(rig) as (world, kubeconfig):
        await add_pod(world, "a", {}, {}, "")
        status = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "Allocate failed\x1b[2J"}
        await world.client.patch("/api/v1/namespaces/default/pods/a/status", {"status": status})
        assert await cards(kubeconfig, "explain", "a") == 0
        out = capsys.readouterr().out
        assert "(Failed, UnexpectedAdmissionError: Allocate failed\\x1b[2J)" in out


async def test_explain_tells_where_a_pod_is(rig, capsys):
    async with cluster(rig) as (world, kubeconfig):
        await add_pod(world, "a", {"volcano.sh/vgpu-number": "1"}, ASSIGNED, "t4-a")
        assert await cards(kubeconfig, "explain", "a") == 0
        told = capsys.readouterr().out
        assert told.startswith("default/a is on t4-a (")
        assert "GPU-t4-a-1 (3000 MiB" in told


async def test_explain_tells_why_a_pod_waits_from_its_status_and_events(rig, capsys):
    async with cluster(rig) as (world, kubeconfig):
        await add_pod(world, "a", {"volcano.sh/vgpu-number": "1"}, {}, "")
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room at all"}
        path = "/api/v1/namespaces/default/pods/a/status"
        await world.client.patch(path, {"status": {"conditions": [condition]}})
        pod = await world.client.get("/api/v1/namespaces/default/pods/a")
        await add_event(world, "a", uid=pod["metadata"]["uid"], message="0/4 nodes")
        assert await cards(kubeconfig, "explain", "a", "-n", "default") == 0
        out = capsys.readouterr().out
        assert "default/a waits (Unschedulable): no room at all" in out
        assert "2026-01-01T00:00:00Z  FailedScheduling: 0/4 nodes (x3)" in out


async def test_explain_of_a_pod_that_nobody_looked_at_names_its_scheduler(rig, capsys):
    async with cluster(rig) as (world, kubeconfig):
        await add_pod(world, "a", {}, {}, "")
        assert await cards(kubeconfig, "explain", "a") == 0
        assert "waits for the scheduler 'cardshare'" in capsys.readouterr().out


async def test_explain_falls_back_to_the_objects_when_the_controller_is_away(rig, capsys):
    async with cluster(rig) as (world, kubeconfig):
        await add_pod(world, "a", {}, {}, "")
        assert await cards(kubeconfig, "explain", "a", "--controller", "https://127.0.0.1:1") == 0
        told = capsys.readouterr()
        assert "does not answer" in told.err
        assert "waits for the scheduler" in told.out


async def test_explain_as_json_has_the_fields_of_its_page_and_ascii_alone(rig, capsys):
    async with cluster(rig) as (world, kubeconfig):
        await add_pod(world, "a", {"volcano.sh/vgpu-number": "1"}, ASSIGNED, "t4-a")
        await add_pod(world, "b", {}, {}, "")
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "red \x9b31m"}
        path = "/api/v1/namespaces/default/pods/b/status"
        await world.client.patch(path, {"status": {"conditions": [condition]}})
        assert await cards(kubeconfig, "explain", "a", "-o", "json") == 0
        bound = json.loads(capsys.readouterr().out)
        assert (bound["pod"], bound["state"], bound["node"]) == ("default/a", "bound", "t4-a")
        assert bound["cards"] == [
            {"card": "GPU-t4-a-1", "share": "3000 MiB, 50 % cores", "amount": 3000, "cores_pct": 50}
        ]
        assert await cards(kubeconfig, "explain", "b", "-o", "json") == 0
        text = capsys.readouterr().out
        assert text.isascii()
        waiting = json.loads(text)
        assert (waiting["state"], waiting["reason"], waiting["controller"]) == ("waits", "Unschedulable", None)
